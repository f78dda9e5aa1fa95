"""Runtime of bound kernels: device, trials, recording, and errors in the user's words."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from kernellab._triton.kernel import BoundJit, JitKernel, Kernel
from kernellab.compile.cache import Compiler
from kernellab.compile.entries import triton_files
from kernellab.compile.types import Compiled, job_of
from kernellab.errors import CannotRun, KernellabError, OutOfBounds, warn_user
from kernellab.ir.effects import Effects
from kernellab.launch import run as run_records
from kernellab.launch.calls import CheckedGrid, Grid3, GridErrors, launch_error, require_launchable, verb
from kernellab.launch.launch_call import LaunchCall, evaluated_grid
from kernellab.launch.memory import call_with_tensors, tensors_for_pointers, with_reached
from kernellab.launch.modes import bypass_modes
from kernellab.launch.poison import NO_CHECKS, LaunchChecks, Poison, key_of, no_new_nan, poison
from kernellab.launch.recording import Launched, LaunchRecord, Observers, Recorder, Switch, can_read, record_of
from kernellab.launch.run import ElementAccesses, Run, TrialRequest, TrialResult, Trials, Watch, show_unrecorded
from kernellab.launch.value_samples import samples_before
from kernellab.target import Target

_CLOSER_LOOK_S = 10.0
_NOT_RECORDED = Recorder()  # asks for nothing
Tune = Callable[[Any, tuple[Any, ...], dict[str, Any], float | None], Any]
Interpret = Callable[..., Run]
Reporter = Callable[[str], Callable[[tuple[int, int]], None]]


@dataclass(slots=True)
class Runtime:
    """The runtime of bound kernels.

    ``offline`` is the driver that stands in for a GPU, or None where there is one; then ``trials`` are its workers,
    and ``tune`` returns the config of an autotuned kernel, from its arguments, grid and options among them. ``keep`` is
    told of launches that nobody records. ``reporter`` shows how far a launch on the CPU has come, ``compile_reporter``
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
    _compiled: dict[str, Compiled] = field(default_factory=dict)
    _sources: MutableMapping[Any, Compiled] = field(default_factory=WeakKeyDictionary)
    _local: threading.local = field(default_factory=threading.local)
    _recording: ContextVar[Recorder | None] = field(default_factory=lambda: ContextVar("recording", default=None))
    _recorders: tuple[Recorder, ...] = ()

    def start_workers(self, *, compiling: bool = True) -> None:
        """Start compile workers, if ``compiling``, and with a GPU the trial worker, in the background."""
        if compiling:
            self.compiler.pool.start()
        if self.trials is not None and self.trials.enabled:
            self.trials.prepare()

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
        """Continue without a GPU: launches run on the CPU, with an offline driver in its place."""
        from kernellab._triton.drivers import OfflineDriver  # keeps `import kernellab` light

        self.trials = self.tune = None
        self.offline = OfflineDriver(self.target, self.interpreted)
        self.activate()

    def best_config(self, kernel: Kernel, args: tuple[Any, ...], meta: dict[str, Any]) -> Any:
        """Tune an autotuned kernel for a launch on the GPU; None if it will not be launched there."""
        asked = self._wishes
        if self.tune is None or not asked.run:
            return None
        with self.observers.withheld():
            return self.tune(kernel, args, meta, asked.timeout_s)

    def compiled_files(self, src: Any, target: Any, options: Mapping[str, Any]) -> tuple[Mapping[str, str], str]:
        """Compile an `ASTSource` in a worker, for Triton's own launch path."""
        from kernellab._triton.compiling import notify_listener  # keeps `import kernellab` light
        from kernellab._triton.specialize import target_of

        job = job_of(src.fn, target_of(target), src.signature, src.constants, src.attrs, options or {})
        if self.trials is not None and self._isolates() and not self.compiler.has(job):
            self.trials.prepare()  # the worker gets ready while the kernel compiles
        with self.compiling(job.closure.name):
            compiled = self.compiler.compile(job)
        self._compiled[compiled.digest] = compiled
        self._sources[src] = compiled
        files = triton_files(compiled)
        notify_listener(src, files, compiled.stage_seconds, compiled.digest, compiled.from_cache)
        return files, compiled.digest

    def launch(self, kernel: BoundJit, args: tuple[Any, ...], meta: dict[str, Any], grid: Any, warmup: bool) -> Any:
        """Launch a bound kernel and return the `CompiledKernel` that Triton would return.

        Raises:
            LaunchError: the arguments or the grid do not fit.
            KernellabError: it does not compile, or fails on the interpreter.
        """
        __tracebackhide__ = True
        self.activate()
        if self.interprets() and not warmup:
            args, meta = call_with_tensors(kernel.arg_names, args, meta)
        with self.observers.withheld():
            return self._launch(LaunchCall(kernel, args, meta, CheckedGrid(kernel, grid)), warmup)

    def _launch(self, call: LaunchCall, warmup: bool) -> Any:
        __tracebackhide__ = True
        if warmup or not self._checks_of(call).nan or not can_read(call.arguments):
            return self._launch_without_nan_check(call, warmup)
        handle = self._resolve_handle(call)
        if handle is None:
            return self._launch_without_nan_check(call, warmup)
        with no_new_nan(call.kernel.__name__, call.arguments, self._compiled[handle.hash].effects):
            return self._launch_without_nan_check(call, warmup)

    def _launch_without_nan_check(self, call: LaunchCall, warmup: bool) -> Any:
        """Launch without the NaN check."""
        __tracebackhide__ = True
        recorder = self.recorder
        if warmup or not self._wishes.run:
            handle = self._launch_with_triton(call, warmup=True)
            if recorder is not None and handle is not None:
                compiled = self._compiled[handle.hash]
                recorder.note(call.kernel, compiled, call.arguments, None, None, call.grid.given)
            return handle
        if recorder is not None:
            return self._launch_recorded(recorder, call)
        if self.observers.are_there or self._is_kept:
            self._sample_inputs(call)
        is_tried = self._isolates() or (self.trials is not None and self._checks_of(call).bounds)
        handle = self._launch_after_trial(call) if is_tried else self._launch_with_triton(call)
        self._tell(call, handle)
        if 0 in (call.grid.value or ()):
            name = call.kernel.__name__
            warn_user(f"{name}: the grid {call.grid.value} is empty; nothing was launched.")
        return handle

    def effects_of(self, handle: Any) -> Effects | None:
        """The effects of a launched handle; None if another runtime compiled it."""
        compiled = self._compiled.get(getattr(handle, "hash", ""))
        return None if compiled is None else compiled.effects

    def launch_error(self, kernel: BoundJit, args: tuple[Any, ...], meta: dict[str, Any], exc: Exception) -> Exception:
        """The error to raise for a failed launch on the fast path: the lab's, else the original."""
        call = LaunchCall(kernel, args, meta, CheckedGrid(kernel, None))
        return launch_error(kernel, call.arguments, args, meta, exc, self.target) or exc

    @bypass_modes()
    def interpreted(self, src: Any, arguments: Mapping[str, Any], grid: Grid3) -> None:
        """Run a launch that the offline driver got for an `ASTSource`."""
        compiled, runs = self._sources.get(src), getattr(self._local, "runs", None)
        arguments = {name: tensors_for_pointers(name, value) for name, value in arguments.items()}
        if compiled is not None:
            _require_fit(compiled)
            arguments = with_reached(arguments, compiled.effects, "cpu")
        run = self._interpreted(src.fn, arguments, grid, compiled)
        if runs is None:
            show_unrecorded(run)
        else:
            runs.append(run)

    def _interpreted(self, function: JitKernel, arguments: Any, grid: Grid3, compiled: Compiled | None) -> Run:
        require_launchable(grid, function.__name__, self.target)
        asked = self._wishes
        progress = self.reporter(function.__name__) if self.reporter is not None else None
        run = self.interpret(
            function,
            arguments,
            grid,
            asked.timeout_s,
            uninitialised=asked.uninitialised,
            progress=progress,
            follows=True,
            warps=None if compiled is None else compiled.options["num_warps"],
        )
        if progress is not None:  # the last programs go by without a word of the worker
            progress((math.prod(grid), math.prod(grid)))
        return run

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
    ) -> Iterator[Recorder]:
        """Record the launches of this thread, or of this task where a loop runs several; see `Recorder`."""
        before = self._recording.get()
        undoes = undoes or poison
        recorder = Recorder(timeout_s, run, isolate, interpret, uninitialised, poison, undoes, follows=follows)
        self._recording.set(recorder)
        self._recorders += (recorder,)
        try:
            with self.switch.on():
                yield recorder
        finally:
            self._recording.set(before)
            self._recorders = tuple(each for each in self._recorders if each is not recorder)

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

    def _checks_of(self, call: LaunchCall) -> LaunchChecks:
        checks: LaunchChecks | None = getattr(self._local, "checks", None)
        return NO_CHECKS if checks is None else checks.of(call.kernel.__name__)

    @property
    def recorder(self) -> Recorder | None:
        """The recorder of this thread or task: its own, or one that follows it."""
        return self._recording.get() or next((each for each in reversed(self._recorders) if each.follows()), None)

    @property
    def _wishes(self) -> Recorder:
        """The recorder's wishes for launches of this thread; the defaults without a recorder."""
        return self.recorder or _NOT_RECORDED

    def _launch_recorded(self, recorder: Recorder, call: LaunchCall) -> Any:
        __tracebackhide__ = True
        with recorder.lock, self._poison_outputs(recorder, call) as poisoned:
            if self.is_offline():
                with self._collect_runs() as runs:
                    handle = self._launch_with_triton(call)
                run = runs[-1] if runs else None
            elif recorder.interpret:
                handle, run = self._run_on_cpu(call)
            else:
                handle, run = self._launch_measured(recorder, call)
        if run is not None and poisoned.changed:
            run = replace(run, changed={**run.changed, **poisoned.changed})
        if handle is not None:
            compiled, grid = self._compiled[handle.hash], call.grid
            recorder.note(call.kernel, compiled, dict(grid.arguments), grid.value, run, grid.given, call.before)
        self._tell(call, handle)
        return handle

    @contextmanager
    def _collect_runs(self) -> Iterator[list[Run]]:
        """Collect the CPU runs of one launch, without those of a signal handler amid it."""
        before, self._local.runs = getattr(self._local, "runs", None), []
        try:
            yield self._local.runs
        finally:
            self._local.runs = before

    @property
    def _is_kept(self) -> bool:
        """Whether an unrecorded launch by the user's own code is stored."""
        return self.keep is not None and self.recorder is None and self.observers.is_withheld == 1

    def _tell(self, call: LaunchCall, handle: Any) -> None:
        """Report a launch to observers, and store it if the user's own code made it; skip empty grids."""
        kernel, grid = call.kernel, call.grid
        if handle is None or grid.value is None or 0 in grid.value or not (self.observers.are_there or self._is_kept):
            return
        handle = handle.result() if hasattr(handle, "result") else handle
        compiled, arguments = self._compiled[handle.hash], dict(grid.arguments)
        if self.observers.are_there:
            options = {name: value for name, value in call.meta.items() if name not in kernel.arg_names}
            self.observers.tell(Launched(kernel, compiled, arguments, options, grid.value, grid.given, call.before))
        told = (handle.hash, getattr(grid.given, "__code__", None))  # another grid function may tell more of the grid
        if self._is_kept and self.keep is not None and told not in kernel.reported and can_read(arguments):
            kernel.reported.add(told)
            record = record_of(kernel, compiled, arguments, grid, "interpreter" if self.is_offline() else "gpu")
            record.before = call.before
            self.keep(record)

    def _sample_inputs(self, call: LaunchCall) -> tuple[dict[str, Any], Effects | None]:
        """Sample the inputs that a launch will change; return its arguments and effects, None if unknown."""
        __tracebackhide__ = True
        handle, arguments = self._resolve_handle(call), call.arguments
        if handle is None:
            return arguments, None
        effects = self._compiled[handle.hash].effects
        if can_read(arguments):
            call.before = samples_before(arguments, effects)
            if self.recorder is not None:
                self.recorder.sample_earlier(arguments, effects)
        return arguments, effects

    @contextmanager
    def _poison_outputs(self, recorder: Recorder, call: LaunchCall) -> Iterator[Poison]:
        """Poison the outputs of a launch if the recorder asks for it, and record the unwritten elements."""
        __tracebackhide__ = True
        arguments, effects = self._sample_inputs(call)
        if effects is not None and recorder.undoes:
            recorder.keep_before(arguments, effects)
        if effects is None or not recorder.poison:
            yield Poison()
            return
        poisoned = poison(arguments, effects)
        try:
            yield poisoned
        finally:
            poisoned.lift()
        for found in poisoned.filled:
            key, mask = key_of(found.tensor), poisoned.unwritten[found.name]
            recorder.unwritten[key] = mask & recorder.unwritten.get(key, mask)

    def _launch_measured(self, recorder: Recorder, call: LaunchCall) -> tuple[Any, Run | None]:
        """Launch on the GPU; the first launch of a specialization is compared with its earlier outputs."""
        __tracebackhide__ = True
        handle = self._resolve_handle(call)
        if handle is None:
            return None, None
        compiled = self._compiled[handle.hash]
        trial = self._trial(call, handle) if self._isolates() else TrialResult()
        if trial.has_launched:
            grid = call.grid.value or (0, 1, 1)
            return handle, Run(compiled.kernel, grid, 0.0, {}, (), "gpu", trial.output, trial.notes)
        if recorder.has(call.kernel, compiled):
            return self._launch_with_triton(call), None

        launch = partial(self._launch_with_triton, call)
        handle, run = run_records.observe_launch(compiled, call.arguments, launch, lambda: call.grid.value)
        return handle, replace(run, notes=(*run.notes, *trial.notes), output=trial.output)

    def _run_on_cpu(self, call: LaunchCall) -> tuple[Any, Run | None]:
        """Compile for the GPU, and run in the interpreter; an empty grid runs nothing."""
        __tracebackhide__ = True

        handle = self._resolve_handle(call)
        arguments = call.arguments
        extents = evaluated_grid(call, arguments)
        if 0 in extents:
            return handle, None
        compiled = None if handle is None else self._compiled[handle.hash]
        run = lambda copies: self._interpreted(call.kernel, copies, extents, compiled)  # noqa: E731
        return handle, run_records.run_on_cpu(arguments, run, None if compiled is None else compiled.effects)

    def _isolates(self) -> bool:
        """Whether new specializations are tried in the GPU worker first."""
        return self.trials is not None and self.trials.enabled and self._wishes.isolate

    def _launch_after_trial(self, call: LaunchCall) -> Any:
        """Launch on the GPU, a new specialization after its trial in the worker."""
        __tracebackhide__ = True
        handle = self._resolve_handle(call)
        if handle is None or self._trial(call, handle).has_launched:
            return handle
        return self._launch_with_triton(call)

    def _trial(self, call: LaunchCall, handle: Any) -> TrialResult:
        """Try a specialization in the GPU worker unless it has passed; the grid is evaluated once."""
        __tracebackhide__ = True
        assert self.trials is not None
        forced = self._checks_of(call).bounds
        if not forced and self.trials.has_passed(handle.hash):
            return TrialResult()
        arguments = call.arguments
        extents = evaluated_grid(call, arguments)
        if 0 in extents:
            return TrialResult()
        call.kernel.load(handle)
        call.kernel.call_hooks(call.args, call.meta)
        call.are_hooks_called = True
        compiled = self._compiled[handle.hash]
        _require_fit(compiled)
        closer = partial(self._repeat_on_cpu, call.kernel, arguments, extents, compiled.effects)
        request = TrialRequest(handle, triton_files(compiled), compiled, arguments, extents, closer, forced)
        return self.trials.launch(request, self._wishes.timeout_s)

    def repeated(
        self, record: LaunchRecord, arguments: Mapping[str, Any], watch: Watch, timeout_s: float
    ) -> ElementAccesses:
        """The element accesses of a launch, from a repeat on CPU copies of its arguments.

        Raises:
            KernellabError: it fails, or takes longer.
        """
        told: list[ElementAccesses] = []
        warps = record.compiled.options["num_warps"]
        given = (record.kernel, arguments, record.grid, timeout_s)
        self.interpret(*given, warps=warps, watch=watch, on_accesses=told.append)
        return told[0]

    def _repeat_on_cpu(
        self, kernel: BoundJit, arguments: Mapping[str, Any], grid: Grid3, effects: Effects
    ) -> KernellabError | None:
        """Repeat a faulted launch on the CPU, where every access is checked; return the error found."""
        try:
            self.interpret(kernel, run_records.on_cpu(arguments, effects), grid, _CLOSER_LOOK_S)
        except OutOfBounds as exc:
            return exc
        except KernellabError:
            return None
        return None

    def _resolve_handle(self, call: LaunchCall) -> Any:
        """Triton's handle of a launch, compiled if needed; None if a hook of Triton's replaces the compile."""
        __tracebackhide__ = True
        return self._translate_errors(call, partial(call.kernel.resolve, call.args, call.meta))

    def _launch_with_triton(self, call: LaunchCall, warmup: bool = False) -> Any:
        """Launch with Triton, or with ``warmup`` only specialize and compile; return its handle."""
        __tracebackhide__ = True
        given = (call.args, call.meta, call.grid, warmup, call.are_hooks_called)
        return self._translate_errors(call, partial(call.kernel.launch_with_triton, *given))

    def _translate_errors(self, call: LaunchCall, step: Callable[[], Any]) -> Any:
        """Run a step of a launch; Triton's exceptions become errors of the lab."""
        __tracebackhide__ = True
        with GridErrors():
            try:
                return step()
            except KernellabError:
                raise
            except (TypeError, KeyError, ValueError, AssertionError, RuntimeError, OverflowError) as exc:
                error = launch_error(call.kernel, call.arguments, call.args, call.meta, exc, self.target)
                if error is None:
                    raise
                raise error from exc


def _require_fit(compiled: Compiled) -> None:
    """Raise `CannotRun` if a kernel exceeds a limit that Triton does not check at load."""
    if not compiled.resources.fits:
        message = f"{compiled.kernel} cannot run on {compiled.target}: {compiled.resources.why_not}."
        raise CannotRun(message, kernel=compiled.kernel)
