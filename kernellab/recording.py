"""What is recorded of the launches of a thread while somebody watches: a record per specialization."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from kernellab.compile import Compiled
from kernellab.errors import LaunchError, SourceError
from kernellab.forks import lock
from kernellab.grid import CheckedGrid, Grid3
from kernellab.measure.poison import Key
from kernellab.memory import memory_of
from kernellab.run import Run
from kernellab.source import Closure, decorated_closure_of


@dataclass(slots=True)
class LaunchRecord:
    """The launches of one specialization of one kernel while a recorder watched.

    ``kernel`` is the jit function; ``owner`` is what was launched, decorators and all, and ``closure`` that with all
    that it captured, as it was then: None where its source is not known. ``given_grid`` is the last grid as the user
    gave it: a function, or extents. ``where`` it ran is told here if ``run`` does not tell it.
    """

    kernel: Any
    compiled: Compiled
    arguments: Mapping[str, Any]
    grid: Grid3 | None = None
    launches: int = 0
    run: Run | None = None
    given_grid: Any = None
    owner: Any = None
    closure: Closure | None = None
    where: str = "nowhere"


def record_of(
    kernel: Any,
    compiled: Compiled,
    arguments: Mapping[str, Any],
    grid: CheckedGrid | None = None,
    where: str = "nowhere",
) -> LaunchRecord:
    """Return the record of a launch of a bound jit function that this thread is making; it counts none yet."""
    owner = kernel.launched_as
    try:
        closure = decorated_closure_of(owner)
    except SourceError:
        closure = None
    record = LaunchRecord(kernel, compiled, arguments, owner=owner, closure=closure, where=where)
    if grid is not None:
        record.grid, record.given_grid = grid.value, grid.given
    return record


def can_read(arguments: Mapping[str, Any]) -> bool:
    """Tell whether arguments can be read now: not where a launch on a GPU goes into a CUDA graph."""
    import torch  # a launch needs it anyway

    on_gpu = any(tensor.is_cuda for tensor in memory_of(arguments).values())
    return not (on_gpu and torch.cuda.is_current_stream_capturing())


@dataclass(slots=True)
class Recorder:
    """Collects launches, one record per specialization, in the order of their first launch.

    ``timeout_s`` limits each launch in a worker; with ``run`` false, launches are compiled only; with ``isolate``
    false, first launches on a GPU do not fly in the worker; with ``interpret``, none runs on a GPU. ``uninitialised``
    names arguments whose contents count as never written on the CPU. With ``poison``, outputs are filled with a pattern
    before each launch, and ``unwritten`` holds masks of the elements that no launch wrote.
    """

    timeout_s: float | None = None
    run: bool = True
    isolate: bool = True
    interpret: bool = False
    uninitialised: frozenset[str] = frozenset()
    poison: bool = False
    unwritten: dict[Key, Any] = field(default_factory=dict)
    records: dict[tuple[int, str], LaunchRecord] = field(default_factory=dict)

    def note(
        self,
        kernel: Any,
        compiled: Compiled,
        arguments: Mapping[str, Any],
        grid: Grid3 | None,
        run: Run | None,
        given_grid: Any = None,
    ) -> None:
        key = (id(kernel), compiled.digest)
        if key not in self.records:
            self.records[key] = record_of(kernel, compiled, arguments)
        record = self.records[key]
        record.arguments, record.grid = arguments, grid or record.grid
        record.given_grid = given_grid or record.given_grid
        record.launches += grid is not None
        record.run = run or record.run

    def last_run(self, kernel: Any) -> Run:
        """Return what the last launch did.

        Raises:
            LaunchError: ``kernel`` launched nothing.
        """
        if not self.records:
            raise LaunchError(f"{kernel!r} launched nothing.")
        record = list(self.records.values())[-1]
        if record.run is not None:
            return record.run
        empty = ("the grid is empty: nothing was launched",)
        return Run(record.compiled.kernel, record.grid or (0, 1, 1), 0.0, {}, (), "nowhere", notes=empty)


class Switch:
    """Counts the recorders of all threads; while there is one, all launches go the slow way."""

    def __init__(self) -> None:
        self.slow = 0
        self._lock = lock()

    @contextmanager
    def on(self) -> Iterator[None]:
        with self._lock:
            self.slow += 1
        try:
            yield
        finally:
            with self._lock:
                self.slow -= 1
