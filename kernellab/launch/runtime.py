"""Runtime of bound kernels: device, trials, recording, and errors in the user's words."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from kernellab._triton.compiling import notify_listener
from kernellab._triton.drivers import OfflineDriver, compiles_launchers
from kernellab._triton.kernel import JitKernel, Kernel
from kernellab._triton.launcher import Switch
from kernellab._triton.specialize import Specialization
from kernellab._triton.targets import target_of
from kernellab.compile.cache import Compiler
from kernellab.compile.entries import triton_files
from kernellab.compile.types import Compiled, job_of
from kernellab.errors import CannotRun, KernellabError, LaunchError, OutOfBounds, warn_user
from kernellab.ir.effects import Effects
from kernellab.launch.arguments import bypass_modes
from kernellab.launch.bound_launch import BoundLaunch, TrialResult, Trials, samples_before
from kernellab.launch.calls import Grid3, evaluated_grid, launch_error, require_launchable
from kernellab.launch.memory import with_reached
from kernellab.launch.pointers import call_with_tensors, tensors_for_pointers
from kernellab.launch.poison import NO_CHECKS, LaunchChecks, Poison, key_of, no_new_nan, poison
from kernellab.launch.recording import LaunchRecord, Observers, Recorder, can_read, record_of
from kernellab.launch.run import ElementAccesses, Run, Watch, observe_launch, on_cpu, run_on_cpu, show_unrecorded
from kernellab.launch.verbs import verb
from kernellab.target import Target

if TYPE_CHECKING:
    from kernellab._triton.bound import BoundKernel

_CLOSER_LOOK_S = 10.0
_NOT_RECORDED = Recorder()  # asks for nothing
Tune = Callable[[Any, tuple[Any, ...], dict[str, Any], float | None], Any]
Interpret = Callable[..., Run]
Reporter = Callable[[str, int], AbstractContextManager[Callable[[tuple[int, int]], None]]]


@dataclass(slots=True)
class Runtime:
    """The runtime of bound kernels.

    ``offline`` is the driver that stands in for a GPU, or None where there is one; then ``trials`` are its workers,
    and ``tune`` returns the config of an autotuned kernel, from its arguments, grid and options among them. ``keep``
    gets launches that no recorder has. ``reporter`` shows how far a launch on the CPU has come, ``compile_reporter``
    that one waits for its kernel, ``tuning_reporter``, ``benchmark_reporter`` and ``dispatch_reporter`` how far these
    have come.
    """

    compiler: Compiler
    interpret: Interpret
    target: Target
    offline: Any = None
    trials: Trials | None = None
    tune: Tune | None = None
    switch: Switch = field(default_factory=Switch)
    observers: Observers = field(default_factory=Observers)
    keep: Callable[[LaunchRecord], None] | None = None
    reporter: Reporter | None = None
    tuning_reporter: Callable[..., AbstractContextManager[Any]] | None = None
    benchmark_reporter: Callable[..., AbstractContextManager[Any]] | None = None
    dispatch_reporter: Callable[..., AbstractContextManager[Any]] | None = None
    compile_reporter: Callable[[str], AbstractContextManager[None]] | None = None
    is_closed: bool = False
    _sources: MutableMapping[Any, Compiled] = field(default_factory=WeakKeyDictionary)
    _local: threading.local = field(default_factory=threading.local)
    _recording: ContextVar[Recorder | None] = field(default_factory=lambda: ContextVar("recording", default=None))
    _recorders: tuple[Recorder, ...] = ()

    def __post_init__(self) -> None:
        if self.trials is not None and compiles_launchers():
            self.compiler.launches_on = self.target

    def start_workers(self, *, compiling: bool = True) -> threading.Thread | None:
        """Start compile workers, if ``compiling``, and with a GPU the trial worker; return what starts it."""
        if compiling:
            self.compiler.pool.start()
        return self.trials.prepare() if self.trials is not None and self.trials.enabled else None

    def is_offline(self) -> bool:
        """Whether there is no GPU to launch on."""
        return self.offline is not None

    @property
    def device(self) -> str:
        """torch's name of the device of a launch's tensors."""
        return "cpu" if self.is_offline() else "cuda"

    def interprets(self) -> bool:
        """Whether the launches of this thread go to the interpreter: all without a GPU, else on request."""
        return self.is_offline() or self._wishes.interpret

    def close(self) -> None:
        """Stop the GPU workers and remove the offline driver; a later lab may bind the kernels again."""
        self.is_closed = True
        if self.trials is not None:
            self.trials.close()
        if self.offline is not None:
            self.offline.deactivate()

    def go_offline(self) -> None:
        """Continue without a GPU: launches run on the CPU, with an offline driver instead."""
        self.trials = self.tune = None
        self.offline = OfflineDriver(self.target, self.interpret_offline, show_unrecorded)
        self.activate()

    def best_config(self, kernel: Kernel, args: tuple[Any, ...], meta: dict[str, Any]) -> Any:
        """Tune an autotuned kernel for a launch on the GPU; None if it will not be launched there."""
        asked = self._wishes
        if self.tune is None or not asked.run:
            return None
        with self.observers.own_launches():
            return self.tune(kernel, args, meta, asked.timeout_s)

    def compiled_files(self, src: Any, target: Any, options: Mapping[str, Any]) -> tuple[Mapping[str, str], str]:
        """Compile an `ASTSource` in a worker, for Triton's own launch path."""
        special = Specialization(src.signature, src.constants, src.attrs, options or {})
        job = job_of(src.fn, target_of(target), special)
        if self.trials is not None and self._isolates() and not self.compiler.has(job):
            self.trials.prepare()  # the worker gets ready while the kernel compiles
        with self.compiling(job.closure.name):
            compiled = self.compiler.compile(job)
        self._sources[src] = compiled
        files = triton_files(compiled)
        notify_listener(src, files, compiled.stage_seconds, compiled.digest, compiled.from_cache)
        return files, compiled.digest

    def launch(
        self, kernel: BoundKernel, args: tuple[Any, ...], meta: Mapping[str, Any], grid: Any, warmup: bool
    ) -> Any:
        """Launch a bound kernel, or only compile it; return the `CompiledKernel` that Triton would return.

        Raises:
            LaunchError: the arguments or the grid do not fit.
            KernellabError: it does not compile, or fails on the interpreter.
        """
        __tracebackhide__ = True
        self.activate()
        if isinstance(grid, int) and not warmup:
            name = kernel.__name__
            raise LaunchError(f"The grid of {name} is {grid}, and Triton takes a tuple: write ({grid},).", kernel=name)
        if self.interprets() and not warmup:
            args, meta = call_with_tensors(kernel.arg_names, args, meta)
        launch, recorder = BoundLaunch(kernel, args, meta, grid), self.recorder
        is_launched = not warmup and self._wishes.run
        with self.observers.own_launches():
            if not is_launched:
                launch.call_hooks()
            resolve = partial(kernel.resolve, args, meta, not is_launched)
            launch.handle, launch.arguments = self._translate_errors(launch, resolve)
            if launch.handle is None:
                return None
            launch.compiled = self._sources[launch.handle.src]
            if not launch.compiled.from_cache:  # it was compiled for this launch, and the next one finds it
                self._sources[launch.handle.src] = replace(launch.compiled, from_cache=True)
            if is_launched:
                launch.grid = evaluated_grid(kernel, grid, launch.arguments)
                self._launch(launch)
            elif recorder is not None:
                recorder.note(launch, is_launched=False)
        return launch.handle

    def _launch(self, launch: BoundLaunch) -> None:
        """Launch a compiled kernel, with the checks of its thread, and report the launch."""
        __tracebackhide__ = True
        name, recorder = launch.kernel.__name__, self.recorder
        checks_nan = self._checks_of(launch).nan and can_read(launch.arguments)
        with no_new_nan(name, launch.arguments, launch.compiled.effects) if checks_nan else nullcontext():
            if recorder is not None:
                self._launch_recorded(recorder, launch)
            else:
                if self.observers.are_there or self._is_kept:
                    self._sample_inputs(launch)
                if not self._try_out(launch).has_launched and (run := self._start(launch)) is not None:
                    show_unrecorded(run)
                if 0 in launch.grid:
                    warn_user(f"{name}: the grid {launch.grid} is empty; nothing was launched.")
            self._report(launch)

    def _start(self, launch: BoundLaunch) -> Run | None:
        """Launch on the GPU, or else on the CPU, which returns the run."""
        __tracebackhide__ = True
        launch.call_hooks()
        start = partial(launch.kernel.launch_compiled, launch.handle, launch.arguments, launch.grid)
        run = self._translate_errors(launch, start)
        return run if isinstance(run, Run) else None

    def effects_of(self, handle: Any) -> Effects | None:
        """The effects of a launched handle; None if another runtime compiled it."""
        source = getattr(handle, "src", None)
        compiled = None if source is None else self._sources.get(source)
        return None if compiled is None else compiled.effects

    def launch_error(
        self, kernel: BoundKernel, args: tuple[Any, ...], meta: Mapping[str, Any], exc: Exception
    ) -> Exception:
        """The error to raise for a failed launch on the fast path: the lab's, else the original."""
        return launch_error(kernel, args, meta, exc, self.target) or exc

    @bypass_modes()
    def interpret_offline(self, src: Any, arguments: Mapping[str, Any], grid: Grid3) -> Run:
        """Run a launch that the offline driver got for an `ASTSource`."""
        compiled = self._sources.get(src)
        arguments = {name: tensors_for_pointers(name, value) for name, value in arguments.items()}
        if compiled is not None:
            _require_fit(compiled)
            arguments = with_reached(arguments, compiled.effects, "cpu")
        return self._interpret(src.fn, arguments, grid, compiled)

    def _interpret(self, function: JitKernel, arguments: Any, grid: Grid3, compiled: Compiled | None) -> Run:
        require_launchable(grid, function.__name__, self.target)
        asked = self._wishes
        shown = nullcontext() if self.reporter is None else self.reporter(function.__name__, math.prod(grid))
        with shown as progress:
            return self.interpret(
                function,
                arguments,
                grid,
                asked.timeout_s,
                uninitialised=asked.uninitialised,
                progress=progress,
                follows=True,
                warps=None if compiled is None else compiled.options["num_warps"],
            )

    def compiling(self, kernel: str) -> AbstractContextManager[None]:
        """The context in which a kernel compiles, with its progress reported."""
        return nullcontext() if self.compile_reporter is None else self.compile_reporter(kernel)

    def report_to(self, live: Any) -> None:
        """Let ``live`` show the progress of launches, compiles, tunings and benchmarks."""
        self.reporter, self.tuning_reporter, self.compile_reporter = live, live.tuning, live.compiling
        self.benchmark_reporter, self.dispatch_reporter = live.benchmark, live.dispatch

    def activate(self) -> None:
        """Make the offline driver Triton's active one, if this lab has one."""
        if self.offline is not None:
            self.offline.activate()

    def use(self, target: Target) -> Target:
        """Compile for ``target`` from now on."""
        self.target = target
        if self.offline is not None:
            self.offline.use(target)
        return target

    @verb
    @contextmanager
    def recording(
        self,
        *,
        timeout_s: float | None = None,
        run: bool = True,
        isolate: bool = True,
        interpret: bool = False,
        uninitialised: frozenset[str] = frozenset(),
        poison: bool = False,
        undoes: bool = False,
        follows: Callable[[], bool] = lambda: False,
        begins: Callable[[BoundLaunch], None] = lambda launch: None,
    ) -> Iterator[Recorder]:
        """Record the launches of this thread, or of this task where a loop runs several; see `Recorder`."""
        before = self._recording.get()
        undoes = undoes or poison
        recorder = Recorder(timeout_s, run, isolate, interpret, uninitialised, poison, undoes, follows=follows)
        recorder.begins = begins
        self._recording.set(recorder)
        self._recorders += (recorder,)
        try:
            with self.switch.on():
                yield recorder
        finally:
            self._recording.set(before)
            self._recorders = tuple(other for other in self._recorders if other is not recorder)

    @verb
    @contextmanager
    def checking(self, *, nan: bool = True, bounds: bool = False, kernels: Iterable[str] = ()) -> Iterator[None]:
        """Check the launches of this thread inside a with statement; see `LaunchChecks`."""
        before = getattr(self._local, "checks", None)
        self._local.checks = checks = LaunchChecks(nan, bounds, frozenset(kernels))
        try:
            with self.switch.on():
                yield
        finally:
            self._local.checks = before
        if problem := checks.missed_kernels_warning():
            warn_user(problem)

    def _checks_of(self, launch: BoundLaunch) -> LaunchChecks:
        checks: LaunchChecks | None = getattr(self._local, "checks", None)
        return NO_CHECKS if checks is None else checks.of(launch.kernel.__name__)

    @property
    def recorder(self) -> Recorder | None:
        """The recorder of this thread or task: its own, or one that follows it."""
        return self._recording.get() or next((r for r in reversed(self._recorders) if r.follows()), None)

    @property
    def _wishes(self) -> Recorder:
        """The recorder's wishes for launches of this thread; the defaults without a recorder."""
        return self.recorder or _NOT_RECORDED

    def _launch_recorded(self, recorder: Recorder, launch: BoundLaunch) -> None:
        __tracebackhide__ = True
        with recorder.lock, self._poison_outputs(recorder, launch) as poisoned:
            if self.is_offline():
                recorder.begins(launch)
                launch.run = self._start(launch)
            elif recorder.interpret:
                launch.run = self._run_on_cpu(launch)
            else:
                launch.run = self._launch_measured(recorder, launch)
        if launch.run is not None and poisoned.changed:
            launch.run = replace(launch.run, changed={**launch.run.changed, **poisoned.changed})
        recorder.note(launch)

    @property
    def _is_kept(self) -> bool:
        """Whether an unrecorded launch by the user's own code is stored."""
        return self.keep is not None and self.recorder is None and self.observers.own_depth == 1

    def _report(self, launch: BoundLaunch) -> None:
        """Report a launch to observers, and store it if the user's own code made it; skip empty grids."""
        if 0 in launch.grid:
            return
        self.observers.report(launch)
        seen = (launch.handle.hash, getattr(launch.given_grid, "__code__", None))  # its text tells how grids follow
        reported = launch.kernel.reported
        if self._is_kept and self.keep is not None and seen not in reported and can_read(launch.arguments):
            reported.add(seen)
            record = record_of(launch, "interpreter" if self.is_offline() else "gpu")
            record.grid = launch.grid
            self.keep(record)

    def _sample_inputs(self, launch: BoundLaunch) -> None:
        """Sample the inputs that a launch will change."""
        arguments, effects = launch.arguments, launch.compiled.effects
        if can_read(arguments):
            launch.before = samples_before(arguments, effects)
            if self.recorder is not None:
                self.recorder.sample_earlier(arguments, effects)

    @contextmanager
    def _poison_outputs(self, recorder: Recorder, launch: BoundLaunch) -> Iterator[Poison]:
        """Poison the outputs of a launch if the recorder asks for it, and record the unwritten elements."""
        __tracebackhide__ = True
        self._sample_inputs(launch)
        if recorder.undoes:
            recorder.keep_before(launch.arguments, launch.compiled.effects)
        if not recorder.poison:
            yield Poison()
            return
        poisoned = poison(launch.arguments, launch.compiled.effects)
        try:
            yield poisoned
        finally:
            poisoned.lift()
        for output in poisoned.filled:
            key, mask = key_of(output.tensor), poisoned.unwritten[output.name]
            recorder.unwritten[key] = mask & recorder.unwritten.get(key, mask)

    def _launch_measured(self, recorder: Recorder, launch: BoundLaunch) -> Run | None:
        """Launch on the GPU; the first launch of a specialization is compared with its earlier outputs."""
        __tracebackhide__ = True
        trial, compiled = self._try_out(launch), launch.compiled
        if trial.has_launched:
            return Run(compiled.kernel, launch.grid, 0.0, {}, (), "gpu", trial.output, trial.notes)
        if recorder.has(launch.kernel, compiled):
            return self._start(launch)
        run = observe_launch(compiled, launch.arguments, launch.grid, partial(self._start, launch))
        return replace(run, notes=(*run.notes, *trial.notes), output=trial.output)

    def _run_on_cpu(self, launch: BoundLaunch) -> Run | None:
        """Run a launch of the GPU in the interpreter; an empty grid runs nothing."""
        __tracebackhide__ = True
        if 0 in launch.grid:
            return None
        run = lambda copies: self._interpret(launch.kernel, copies, launch.grid, launch.compiled)  # noqa: E731
        return run_on_cpu(launch.arguments, run, launch.compiled.effects)

    def _isolates(self) -> bool:
        """Whether new specializations are tried in the GPU worker first."""
        return self.trials is not None and self.trials.enabled and self._wishes.isolate

    def _try_out(self, launch: BoundLaunch) -> TrialResult:
        """Try a specialization in the GPU worker unless it has passed."""
        __tracebackhide__ = True
        forced = self._checks_of(launch).bounds
        if self.trials is None or 0 in launch.grid:
            return TrialResult()
        if not forced and (not self._isolates() or self.trials.has_passed(launch.handle.hash)):
            return TrialResult()
        launch.kernel.load(launch.handle)
        launch.call_hooks()
        _require_fit(launch.compiled)
        closer = partial(self._repeat_on_cpu, launch)
        return self.trials.launch(launch, closer, forced=forced, timeout_s=self._wishes.timeout_s)

    def accesses_on_cpu(
        self, record: LaunchRecord, arguments: Mapping[str, Any], watch: Watch, timeout_s: float
    ) -> ElementAccesses:
        """The element accesses of a launch, from a repeat on CPU copies of its arguments.

        Raises:
            KernellabError: it fails, or takes longer.
        """
        accesses: list[ElementAccesses] = []
        launch, warps = (record.kernel, arguments, record.grid, timeout_s), record.compiled.options["num_warps"]
        self.interpret(*launch, warps=warps, watch=watch, on_accesses=accesses.append)
        return accesses[0]

    def _repeat_on_cpu(self, launch: BoundLaunch) -> KernellabError | None:
        """Repeat a faulted launch on the CPU, where every access is checked; return the error found."""
        try:
            self.interpret(
                launch.kernel, on_cpu(launch.arguments, launch.compiled.effects), launch.grid, _CLOSER_LOOK_S
            )
        except KernellabError as exc:
            return exc if isinstance(exc, OutOfBounds) else None
        return None

    def _translate_errors(self, launch: BoundLaunch, step: Callable[[], Any]) -> Any:
        """Run a step of a launch; Triton's exceptions become errors of the lab."""
        __tracebackhide__ = True
        try:
            return step()
        except KernellabError:
            raise
        except (TypeError, KeyError, ValueError, AssertionError, RuntimeError, OverflowError) as exc:
            error = launch_error(launch.kernel, launch.args, launch.meta, exc, self.target)
            if error is None:
                raise
            raise error from exc


def _require_fit(compiled: Compiled) -> None:
    """Raise `CannotRun` if a kernel exceeds a limit that Triton does not check at load."""
    if not compiled.resources.fits:
        message = f"{compiled.kernel} cannot run on {compiled.target}: {compiled.resources.why_not}."
        raise CannotRun(message, kernel=compiled.kernel)
