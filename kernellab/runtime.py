"""Launches of bound kernels: where they run, what is recorded of them, and errors in the user's words."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from kernellab.compile import Compiled
from kernellab.compiler import Compiler, job_of, triton_files
from kernellab.errors import KernellabError, LaunchError
from kernellab.run import Run
from kernellab.target import Target

Grid3 = tuple[int, int, int]
Interpret = Callable[[Any, Mapping[str, Any], Grid3, float | None], Run]


@dataclass(slots=True)
class LaunchRecord:
    """The launches of one specialization of one kernel while a recorder watched."""

    kernel: Any
    compiled: Compiled
    arguments: Mapping[str, Any]
    grid: Grid3 | None = None
    launches: int = 0
    run: Run | None = None


@dataclass(slots=True)
class Recorder:
    """Collects launches, one record per specialization, in the order of their first launch.

    ``timeout_s`` limits each launch on the interpreter; with ``run`` false, launches are compiled only.
    """

    timeout_s: float | None = None
    run: bool = True
    records: dict[tuple[int, str], LaunchRecord] = field(default_factory=dict)

    def note(
        self, kernel: Any, compiled: Compiled, arguments: Mapping[str, Any], grid: Grid3 | None, run: Run | None
    ) -> None:
        key = (id(kernel), compiled.digest)
        record = self.records.setdefault(key, LaunchRecord(kernel, compiled, arguments))
        record.arguments, record.grid = arguments, grid or record.grid
        record.launches += grid is not None
        record.run = run or record.run


class GridFailed(Exception):
    """Carries an exception of the user's own grid function through Triton. ``trace`` begins in the user's code."""

    def __init__(self, error: Exception, trace: TracebackType | None) -> None:
        super().__init__(str(error))
        self.error = error
        self.trace = trace


class CheckedGrid:
    """A grid as the user gave it, evaluated and checked at launch, together with the arguments that Triton bound."""

    def __init__(self, kernel: Any, grid: Any) -> None:
        self.kernel = kernel
        self.grid = grid
        self.value: Grid3 | None = None
        self.arguments: Mapping[str, Any] = {}

    def __call__(self, bound: Mapping[str, Any]) -> Grid3:
        self.arguments = bound
        try:
            given = self.grid(bound) if callable(self.grid) else self.grid
        except Exception as exc:
            raise GridFailed(exc, exc.__traceback__ and exc.__traceback__.tb_next) from exc
        self.value = checked_grid(given, self.kernel.__name__)
        return self.value


def checked_grid(grid: Any, name: str) -> Grid3:
    """Return a grid of one to three extents as three.

    Raises:
        LaunchError: it has another form, or an extent is negative.
    """
    extents = (grid,) if isinstance(grid, int) else grid
    if not isinstance(extents, tuple | list) or not 1 <= len(extents) <= 3:
        raise LaunchError(
            f"The grid of {name} is {grid!r}; expected one to three integers, such as (64,).", kernel=name
        )
    try:
        numbers = tuple(extent.__index__() for extent in extents)
    except AttributeError:
        raise LaunchError(f"The grid of {name} is {grid!r}; its extents must be integers.", kernel=name) from None
    if min(numbers) < 0:
        raise LaunchError(f"The grid of {name} is {grid!r}; an extent cannot be negative.", kernel=name)
    return (*numbers, 1, 1)[:3]


class Switch:
    """Counts the recorders of all threads; while there is one, all launches go the slow way."""

    def __init__(self) -> None:
        self.slow = 0
        self._lock = threading.Lock()

    @contextmanager
    def on(self) -> Iterator[None]:
        with self._lock:
            self.slow += 1
        try:
            yield
        finally:
            with self._lock:
                self.slow -= 1


@dataclass(slots=True)
class Launches:
    """The runtime of bound kernels. ``offline`` is the driver that stands in for a GPU, or None where there is one."""

    compiler: Compiler
    interpret: Interpret
    target: Target
    offline: Any = None
    switch: Switch = field(default_factory=Switch)
    _compiled: dict[str, Compiled] = field(default_factory=dict)
    _local: threading.local = field(default_factory=threading.local)

    def is_offline(self) -> bool:
        return self.offline is not None

    def compiled_files(self, src: Any, target: Any, options: Mapping[str, Any]) -> tuple[Mapping[str, str], str]:
        """Compile an `ASTSource` in a worker, for Triton's own launch path."""
        from kernellab._triton.specialize import target_of  # keeps `import kernellab` light

        job = job_of(src.fn, target_of(target), src.signature, src.constants, src.attrs, options or {})
        compiled = self.compiler.compile(job)
        self._compiled[compiled.digest] = compiled
        return triton_files(compiled), compiled.digest

    def launch(self, kernel: Any, args: tuple[Any, ...], meta: dict[str, Any], grid: Any, warmup: bool) -> Any:
        """Launch a bound kernel and return the `CompiledKernel` that Triton would return.

        Raises:
            LaunchError: the arguments or the grid do not fit.
            KernellabError: it does not compile, or fails on the interpreter.
        """
        __tracebackhide__ = True
        self.activate()
        recorder = self._recorder
        if warmup or (recorder is not None and not recorder.run):
            handle = self._through_triton(kernel, args, meta, CheckedGrid(kernel, grid), True)
            if recorder is not None and handle is not None:
                arguments = _bound_arguments(kernel, args, meta)
                recorder.note(kernel, self._compiled[handle.hash], arguments, None, None)
            return handle
        if recorder is None:
            return self._through_triton(kernel, args, meta, CheckedGrid(kernel, grid), False)
        return self._recorded(recorder, kernel, args, meta, grid)

    def launch_error(self, kernel: Any, args: tuple[Any, ...], meta: dict[str, Any], exc: Exception) -> Exception:
        """Return what a failed launch of a known kernel raises: an error in the user's words where there is one."""
        return self._translated(kernel, args, meta, exc) or exc

    def interpreted(self, function: Any, arguments: Mapping[str, Any], grid: Grid3) -> None:
        """Run a launch that the offline driver was handed."""
        recorder = self._recorder
        timeout_s = None if recorder is None else recorder.timeout_s
        self._local.run = self.interpret(function, arguments, grid, timeout_s)

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

    @contextmanager
    def recording(self, *, timeout_s: float | None = None, run: bool = True) -> Iterator[Recorder]:
        """Record the launches of this thread; with ``run`` false, compile them only."""
        before, recorder = self._recorder, Recorder(timeout_s, run)
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
        if self.is_offline():
            handle = self._through_triton(kernel, args, meta, checked, False)
            run = self._local.run
        else:
            handle, run = self._measured(recorder, kernel, args, meta, checked)
        if handle is not None:
            recorder.note(kernel, self._compiled[handle.hash], dict(checked.arguments), checked.value, run)
        return handle

    def _measured(
        self, recorder: Recorder, kernel: Any, args: tuple[Any, ...], meta: dict[str, Any], grid: CheckedGrid
    ) -> tuple[Any, Run | None]:
        """Launch on the GPU; the first launch of a specialization is compared with what its outputs held before."""
        __tracebackhide__ = True
        handle = self._through_triton(kernel, args, meta, grid, True)
        compiled = self._compiled.get(handle.hash) if handle is not None else None
        if compiled is None or (id(kernel), compiled.digest) in recorder.records:
            return self._through_triton(kernel, args, meta, grid, False), None
        from kernellab.gpu import observed  # needs torch

        arguments = _bound_arguments(kernel, args, meta)
        return observed(
            compiled, arguments, lambda: self._through_triton(kernel, args, meta, grid, False), lambda: grid.value
        )

    def _through_triton(
        self, kernel: Any, args: tuple[Any, ...], meta: dict[str, Any], grid: CheckedGrid, warmup: bool
    ) -> Any:
        __tracebackhide__ = True
        try:
            return kernel.launch_with_triton(args, meta, grid, warmup)
        except KernellabError:
            raise
        except GridFailed as failed:
            raise failed.error.with_traceback(failed.trace) from None
        except (TypeError, KeyError, ValueError, AssertionError, RuntimeError) as exc:
            error = self._translated(kernel, args, meta, exc)
            if error is None:
                raise
            raise error from exc

    def _translated(
        self, kernel: Any, args: tuple[Any, ...], meta: dict[str, Any], exc: Exception
    ) -> KernellabError | None:
        from kernellab._triton.specialize import launch_problem, option_error

        problem = launch_problem(kernel, args, meta)
        if problem is not None:
            return LaunchError(problem, kernel=kernel.__name__)
        if "annot be accessed from Triton" in str(exc):
            return LaunchError(self._wrong_device(kernel, args, meta), kernel=kernel.__name__, detail=str(exc))
        if isinstance(exc, KeyError | AssertionError | ValueError):
            return option_error(kernel, exc, self.target)
        if isinstance(exc, TypeError):
            return LaunchError(f"{kernel.__name__} cannot take these arguments: {exc}", kernel=kernel.__name__)
        return None

    def _wrong_device(self, kernel: Any, args: tuple[Any, ...], meta: dict[str, Any]) -> str:
        arguments = _bound_arguments(kernel, args, meta)
        on_cpu = [
            name for name, value in arguments.items() if getattr(getattr(value, "device", None), "type", "") == "cpu"
        ]
        names = ", ".join(on_cpu) or "an argument"
        return f"{names} of {kernel.__name__} is on the CPU and the kernel runs on a GPU; move it with .to('cuda')."


def _bound_arguments(kernel: Any, args: tuple[Any, ...], meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments by parameter name, defaults included."""
    given = {**dict(zip(kernel.arg_names, args, strict=False)), **meta}
    defaults = {p.name: p.default for p in kernel.params if p.has_default}
    return {name: given.get(name, defaults.get(name)) for name in kernel.arg_names}
