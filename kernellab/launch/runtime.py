"""Launches of bound kernels: where they run, and errors in the user's words."""

from __future__ import annotations

import math
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from kernellab.compile.cache import Compiler, job_of, triton_files
from kernellab.compile.types import Compiled
from kernellab.errors import KernellabError, OutOfBounds
from kernellab.ir.effects import Effects
from kernellab.launch.calls import verb
from kernellab.launch.errors import launch_error
from kernellab.launch.grid import CheckedGrid, Grid3, grid_errors, require_launchable
from kernellab.launch.pointer_objects import call_with_tensors
from kernellab.launch.poison import Poison, key_of, poison
from kernellab.launch.recording import Launched, LaunchRecord, Observers, Recorder, Switch, can_read, record_of
from kernellab.launch.run import Run
from kernellab.launch.trial import TrialRequest, TrialResult, Trials
from kernellab.target import Target

_CLOSER_LOOK_S = 10.0
Tune = Callable[[Any, tuple[Any, ...], dict[str, Any], float | None], Any]
Interpret = Callable[..., Run]
Reporter = Callable[[str], Callable[[tuple[int, int]], None]]


class NotFlown(Exception):
    """Stops a launch whose specialization has just been compiled and is to be tried in the GPU worker first."""


@dataclass(slots=True)
class Launches:
    """The runtime of bound kernels.

    ``offline`` is the driver that stands in for a GPU, or None where there is one; then ``flights`` are its workers,
    and ``tune`` returns the config of an autotuned kernel, from its arguments, grid and options among them. ``keep`` is
    told of launches that nobody records. ``reporter`` shows how far a launch on the CPU has come, ``compile_reporter``
    that one waits for its kernel, ``tuning_reporter`` and ``benchmark_reporter`` how far these have come.
    """

    compiler: Compiler
    interpret: Interpret
    target: Target
    offline: Any = None
    flights: Trials | None = None
    tune: Tune | None = None
    switch: Switch = field(default_factory=Switch)
    observers: Observers = field(default_factory=Observers)
    keep: Callable[[LaunchRecord], None] | None = None
    reporter: Reporter | None = None
    tuning_reporter: Callable[..., AbstractContextManager[Any]] | None = None
    benchmark_reporter: Callable[..., AbstractContextManager[Any]] | None = None
    compile_reporter: Callable[[str], AbstractContextManager[None]] | None = None
    is_closed: bool = False
    _compiled: dict[str, Compiled] = field(default_factory=dict)
    _sources: MutableMapping[Any, Compiled] = field(default_factory=WeakKeyDictionary)
    _local: threading.local = field(default_factory=threading.local)

    def is_offline(self) -> bool:
        return self.offline is not None

    def interprets(self) -> bool:
        """Tell whether the launches of this thread go to the interpreter: without a GPU all do, else on request."""
        recorder = self._recorder
        return self.is_offline() or (recorder is not None and recorder.interpret)

    def close(self) -> None:
        """Stop the GPU workers, and take the offline driver away; a lab that comes may take the kernels over."""
        self.is_closed = True
        if self.flights is not None:
            self.flights.close()
        if self.offline is not None:
            from kernellab._triton.offline import deactivate  # keeps `import kernellab` light

            deactivate(self.offline)

    def best_config(self, kernel: Any, args: tuple[Any, ...], meta: dict[str, Any]) -> Any:
        """Tune an autotuned kernel for a launch on the GPU; None where none of its launches gets there."""
        recorder = self._recorder
        if self.tune is None or (recorder is not None and not recorder.run):
            return None
        timeout_s = None if recorder is None else recorder.timeout_s
        with self.observers.withheld():
            return self.tune(kernel, args, meta, timeout_s)

    def compiled_files(self, src: Any, target: Any, options: Mapping[str, Any]) -> tuple[Mapping[str, str], str]:
        """Compile an `ASTSource` in a worker, for Triton's own launch path.

        Raises:
            NotFlown: this thread is about to launch it, and it has to be tried in the GPU worker first.
        """
        from kernellab._triton.specialize import target_of  # keeps `import kernellab` light

        job = job_of(src.fn, target_of(target), src.signature, src.constants, src.attrs, options or {})
        with self.compiling(job.closure.name):
            compiled = self.compiler.compile(job)
        self._compiled[compiled.digest] = compiled
        self._sources[src] = compiled
        if getattr(self._local, "must_fly", False):
            raise NotFlown
        src.fn.untried.add(compiled.digest)
        return triton_files(compiled), compiled.digest

    def launch(self, kernel: Any, args: tuple[Any, ...], meta: dict[str, Any], grid: Any, warmup: bool) -> Any:
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
            return self._launch(kernel, args, meta, grid, warmup)

    def _launch(self, kernel: Any, args: tuple[Any, ...], meta: dict[str, Any], grid: Any, warmup: bool) -> Any:
        __tracebackhide__ = True
        recorder = self._recorder
        if warmup or (recorder is not None and not recorder.run):
            handle = self._through_triton(kernel, args, meta, CheckedGrid(kernel, grid), True)
            if recorder is not None and handle is not None:
                arguments = _bound_arguments(kernel, args, meta)
                recorder.note(kernel, self._compiled[handle.hash], arguments, None, None)
            return handle
        if recorder is None:
            checked = CheckedGrid(kernel, grid)
            launch = self._isolated if self._isolates(recorder) else partial(self._through_triton, warmup=False)
            handle = launch(kernel, args, meta, checked)
            self._tell(kernel, handle, meta, checked)
            if 0 in (checked.value or ()):
                warnings.warn(
                    f"{kernel.__name__}: the grid {checked.value} is empty; nothing was launched.", stacklevel=5
                )
            return handle
        return self._recorded(recorder, kernel, args, meta, grid)

    def launch_error(self, kernel: Any, args: tuple[Any, ...], meta: dict[str, Any], exc: Exception) -> Exception:
        """Return what a failed launch of a known kernel raises: an error in the user's words where there is one."""
        return launch_error(kernel, _bound_arguments(kernel, args, meta), args, meta, exc, self.target) or exc

    def interpreted(self, src: Any, arguments: Mapping[str, Any], grid: Grid3) -> None:
        """Run a launch of an `ASTSource` that the offline driver was handed."""
        compiled = self._sources.get(src)
        effects = None if compiled is None else compiled.effects
        self._local.run = self._interpreted(src.fn, arguments, grid, compiled, effects)

    def _interpreted(
        self, function: Any, arguments: Any, grid: Grid3, compiled: Compiled | None, effects: Effects | None
    ) -> Run:
        require_launchable(grid, function.__name__, self.target)
        recorder = self._recorder or Recorder()
        progress = self.reporter(function.__name__) if self.reporter is not None else None
        run = self.interpret(
            function,
            arguments,
            grid,
            recorder.timeout_s,
            uninitialised=recorder.uninitialised,
            progress=progress,
            effects=effects,
            follows=True,
            warps=None if compiled is None else compiled.options["num_warps"],
        )
        if progress is not None:  # the last programs go by without a word of the worker
            progress((math.prod(grid), math.prod(grid)))
        return run

    def compiling(self, kernel: str) -> AbstractContextManager[None]:
        """Return the context in which a kernel compiles, watched where somebody watches."""
        return nullcontext() if self.compile_reporter is None else self.compile_reporter(kernel)

    def report_to(self, live: Any) -> None:
        """Let ``live`` show how far launches, compiles, tunings and benchmarks have come."""
        self.reporter, self.tuning_reporter, self.compile_reporter = live, live.tuning, live.compiling
        self.benchmark_reporter = live.benchmark

    def activate(self) -> None:
        """Make the offline driver Triton's active one, where this lab has one."""
        if self.offline is not None:
            from kernellab._triton.offline import activate

            activate(self.offline)

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
    ) -> Iterator[Recorder]:
        """Record the launches of this thread; see `Recorder`."""
        before, recorder = self._recorder, Recorder(timeout_s, run, isolate, interpret, uninitialised, poison)
        self._local.recorder = recorder
        try:
            with self.switch.on():
                yield recorder
        finally:
            self._local.recorder = before

    @property
    def _recorder(self) -> Recorder | None:
        return getattr(self._local, "recorder", None)

    def _recorded(self, recorder: Recorder, kernel: Any, args: tuple[Any, ...], meta: dict[str, Any], grid: Any) -> Any:
        __tracebackhide__ = True
        checked = CheckedGrid(kernel, grid)
        self._local.run = None
        with self._poisoned(recorder, kernel, args, meta, checked) as poisoned:
            if self.is_offline():
                handle = self._through_triton(kernel, args, meta, checked, False)
                run = self._local.run
            elif recorder.interpret:
                handle, run = self._run_on_cpu(kernel, args, meta, checked)
            else:
                handle, run = self._measured(recorder, kernel, args, meta, checked)
        if run is not None and poisoned.changed:
            run = replace(run, changed={**run.changed, **poisoned.changed})
        if handle is not None:
            recorder.note(kernel, self._compiled[handle.hash], dict(checked.arguments), checked.value, run, grid)
        self._tell(kernel, handle, meta, checked)
        return handle

    def _tell(self, kernel: Any, handle: Any, meta: Mapping[str, Any], grid: CheckedGrid) -> None:
        """Tell the observers of a launch, and whoever keeps what the user's own code launched; not of an empty grid."""
        is_kept = self.keep is not None and self._recorder is None and self.observers.is_withheld == 1
        if handle is None or grid.value is None or 0 in grid.value or not (self.observers.are_there or is_kept):
            return
        handle = handle.result() if hasattr(handle, "result") else handle
        compiled, arguments = self._compiled[handle.hash], dict(grid.arguments)
        if self.observers.are_there:
            options = {name: value for name, value in meta.items() if name not in kernel.arg_names}
            self.observers.tell(Launched(kernel, compiled, arguments, options, grid.value))
        if is_kept and self.keep is not None and handle.hash not in kernel.told and can_read(arguments):
            kernel.told.add(handle.hash)
            self.keep(record_of(kernel, compiled, arguments, grid, "interpreter" if self.is_offline() else "gpu"))

    @contextmanager
    def _poisoned(
        self, recorder: Recorder, kernel: Any, args: tuple[Any, ...], meta: dict[str, Any], grid: CheckedGrid
    ) -> Iterator[Poison]:
        """Poison the outputs of a launch where the recorder wants it, and note what the launch did not write."""
        __tracebackhide__ = True
        handle = self._through_triton(kernel, args, meta, grid, True) if recorder.poison else None
        if handle is None:
            yield Poison()
            return
        poisoned = poison(_bound_arguments(kernel, args, meta), self._compiled[handle.hash].effects)
        try:
            yield poisoned
        finally:
            poisoned.lift()
        for found in poisoned.filled:
            key, mask = key_of(found.tensor), poisoned.unwritten[found.name]
            recorder.unwritten[key] = mask & recorder.unwritten.get(key, mask)

    def _measured(
        self, recorder: Recorder, kernel: Any, args: tuple[Any, ...], meta: dict[str, Any], grid: CheckedGrid
    ) -> tuple[Any, Run | None]:
        """Launch on the GPU; the first launch of a specialization is compared with what its outputs held before."""
        __tracebackhide__ = True
        handle = self._through_triton(kernel, args, meta, grid, True)
        compiled = self._compiled.get(handle.hash) if handle is not None else None
        if compiled is None:
            return self._through_triton(kernel, args, meta, grid, False), None
        arguments = _bound_arguments(kernel, args, meta)
        result = self._first_flight(kernel, handle, arguments, grid) if self._isolates(recorder) else TrialResult()
        if result.has_launched:
            return handle, Run(
                compiled.kernel, grid.value or (0, 1, 1), 0.0, {}, (), "gpu", result.output, result.notes
            )
        if (id(kernel), compiled.digest) in recorder.records:
            return self._through_triton(kernel, args, meta, grid, False), None
        from kernellab.launch.observed import observed  # needs torch

        handle, run = observed(
            compiled, arguments, lambda: self._through_triton(kernel, args, meta, grid, False), lambda: grid.value
        )
        return handle, replace(run, notes=(*run.notes, *result.notes), output=result.output)

    def _run_on_cpu(
        self, kernel: Any, args: tuple[Any, ...], meta: dict[str, Any], grid: CheckedGrid
    ) -> tuple[Any, Run | None]:
        """Compile for the GPU, and run in the interpreter; an empty grid runs nothing."""
        __tracebackhide__ = True
        from kernellab.launch.observed import run_on_cpu

        handle = self._through_triton(kernel, args, meta, grid, True)
        arguments = _bound_arguments(kernel, args, meta)
        with grid_errors():
            grid.grid = extents = grid(arguments)
        if 0 in extents:
            return handle, None
        compiled = None if handle is None else self._compiled[handle.hash]
        run = lambda copies: self._interpreted(kernel, copies, extents, compiled, None)  # noqa: E731
        return handle, run_on_cpu(arguments, run, None if compiled is None else compiled.effects)

    def _isolates(self, recorder: Recorder | None) -> bool:
        """Tell whether first launches fly in the GPU worker."""
        return self.flights is not None and self.flights.enabled and (recorder is None or recorder.isolate)

    def _isolated(self, kernel: Any, args: tuple[Any, ...], meta: dict[str, Any], grid: CheckedGrid) -> Any:
        """Launch on the GPU, a new specialization after its flight. A known one costs no more than with Triton."""
        __tracebackhide__ = True
        if not kernel.untried:
            self._local.must_fly = True
            try:
                return self._through_triton(kernel, args, meta, grid, False)
            except NotFlown:
                pass
            finally:
                self._local.must_fly = False
        handle = self._through_triton(kernel, args, meta, grid, True)
        if self._first_flight(kernel, handle, _bound_arguments(kernel, args, meta), grid).has_launched:
            return handle
        return self._through_triton(kernel, args, meta, grid, False)

    def _first_flight(self, kernel: Any, handle: Any, arguments: Mapping[str, Any], grid: CheckedGrid) -> TrialResult:
        """Try a specialization in the GPU worker unless it has been there; the grid is evaluated and stays so."""
        __tracebackhide__ = True
        import torch  # only where there is a GPU

        assert self.flights is not None
        handle = handle.result() if hasattr(handle, "result") else handle
        if self.flights.has_passed(handle.hash, torch.cuda.current_device()):
            kernel.untried.discard(handle.hash)
            return TrialResult()
        with grid_errors():
            extents = grid(arguments)
        grid.grid = extents
        if 0 in extents:
            return TrialResult()
        kernel.load(handle)
        compiled = self._compiled[handle.hash]
        recorder = self._recorder
        closer = partial(self._closer, kernel, arguments, extents, compiled.effects)
        request = TrialRequest(handle, triton_files(compiled), compiled, arguments, extents, closer)
        result = self.flights.launch(request, None if recorder is None else recorder.timeout_s)
        kernel.untried.discard(handle.hash)
        return result

    def _closer(
        self, kernel: Any, arguments: Mapping[str, Any], grid: Grid3, effects: Effects
    ) -> KernellabError | None:
        """Repeat a launch that faulted on the CPU, where every access is checked; return what that found."""
        from kernellab.launch.observed import on_cpu

        try:
            self.interpret(kernel, on_cpu(arguments, effects), grid, _CLOSER_LOOK_S)
        except OutOfBounds as exc:
            return exc
        except KernellabError:
            return None
        return None

    def _through_triton(
        self, kernel: Any, args: tuple[Any, ...], meta: dict[str, Any], grid: CheckedGrid, warmup: bool
    ) -> Any:
        __tracebackhide__ = True
        try:
            with grid_errors():
                return kernel.launch_with_triton(args, meta, grid, warmup)
        except KernellabError:
            raise
        except (TypeError, KeyError, ValueError, AssertionError, RuntimeError, OverflowError) as exc:
            if grid.has_failed:
                raise
            error = launch_error(kernel, _bound_arguments(kernel, args, meta), args, meta, exc, self.target)
            if error is None:
                raise
            raise error from exc


def _bound_arguments(kernel: Any, args: tuple[Any, ...], meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments by parameter name, defaults included."""
    given = {**dict(zip(kernel.arg_names, args, strict=False)), **meta}
    defaults = {p.name: p.default for p in kernel.params if p.has_default}
    return {name: given.get(name, defaults.get(name)) for name in kernel.arg_names}
