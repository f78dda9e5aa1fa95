"""Observers of launches, per thread; records of launches; and memory contents before each.

A reference is computed from the arguments before the launch, and compared with the outputs after it. At the end of a
cell both may be overwritten, by the kernel itself or by a later one. So each launch saves the memory that it may
change; undoing launches from the last one back restores the state before any of them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from kernellab._triton.closure import decorated_closure_of
from kernellab._triton.kernel import JitKernel, Kernel
from kernellab.compile.types import Compiled
from kernellab.errors import LaunchError, SourceError
from kernellab.ir.effects import Effects
from kernellab.launch.arguments import bypass_modes, memory_of, values_of
from kernellab.launch.bound_launch import BoundLaunch, ValueSample, changing_storages, samples_of_changing
from kernellab.launch.calls import Grid3
from kernellab.launch.memory import device_of, span_of, with_reached
from kernellab.launch.poison import Key
from kernellab.launch.run import Run
from kernellab.source import Closure
from kernellab.workers.forks_and_interrupts import is_fork, rlock

_MOST_BYTES_OF_ONE = 1 << 28
_MOST_BYTES_IN_ALL = 1 << 30


@dataclass(frozen=True, slots=True)
class _Change:
    """Bytes that launch ``number`` may change, as a view, and their contents before it."""

    number: int
    memory: Any
    held: Any


@dataclass(slots=True)
class UndoLog:
    """Numbers launches from 1 on, and undoes them.

    ``too_large`` has the number of a launch and the name of each argument that was not kept.
    """

    number: int = 0
    too_large: list[tuple[int, str]] = field(default_factory=list)
    _changes: list[_Change] = field(default_factory=list)

    def begin(self, arguments: Mapping[str, Any], effects: Effects, wanted: Iterable[int]) -> None:
        """Save the memory that the next launch may change; of earlier launches, only ``wanted`` stay undoable."""
        import torch  # a launch needs it anyway

        self._forget_but(wanted)
        self.number += 1
        is_known = not (effects.unknown or effects.through)
        tensors = memory_of(with_reached(arguments, effects, device_of(arguments)))
        with torch.inference_mode(False):  # what is made there cannot be changed outside
            for name, tensor in tensors.items():
                if tensor.numel() and (not is_known or name in effects.mutated):
                    self._keep(name, _bytes_of(tensor))

    def is_kept(self, number: int, names: Iterable[str]) -> bool:
        """Whether the earlier values of a launch's arguments can be restored."""
        return not any(place == (number, name) for place in self.too_large for name in names)

    @contextmanager
    def before(self, number: int) -> Iterator[None]:
        """Restore the memory contents before launch ``number``, inside a with statement."""
        undone = []
        try:
            for change in reversed(self._changes):
                if change.number >= number:
                    undone.append((change.memory, change.memory.clone()))
                    change.memory.copy_(change.held)
            yield
        finally:
            for memory, now in reversed(undone):
                memory.copy_(now)

    def _keep(self, name: str, memory: Any) -> None:
        import torch  # a launch needs it anyway

        size = memory.numel()
        held = None
        if size <= _MOST_BYTES_OF_ONE and size + sum(c.held.numel() for c in self._changes) <= _MOST_BYTES_IN_ALL:
            with suppress(torch.OutOfMemoryError):
                held = memory.clone()
        if held is None:
            self.too_large.append((self.number, name))
        else:
            self._changes.append(_Change(self.number, memory, held))

    def _forget_but(self, wanted: Iterable[int]) -> None:
        """Drop changes that no wanted state needs: per place, the first change since counts."""
        needed = set()
        for number in {at for launch in wanted for at in (launch, launch + 1)}:
            first: dict[tuple[int, int], _Change] = {}
            for change in self._changes:
                if change.number >= number:
                    first.setdefault((change.memory.data_ptr(), change.memory.numel()), change)
            needed |= {id(change) for change in first.values()}
        self._changes = [change for change in self._changes if id(change) in needed]


def _bytes_of(tensor: Any) -> Any:
    """The memory from the first to the last element of a tensor, viewed as bytes."""
    import torch  # a launch needs it anyway

    storage = tensor.untyped_storage()
    start, end = span_of(tensor)
    data = torch.empty(0, dtype=torch.uint8, device=storage.device)
    return data.set_(storage, start - storage.data_ptr(), (end - start,), (1,))


Observe = Callable[[BoundLaunch], None]


class Observers:
    """The observers of each thread, in the order of their registration."""

    def __init__(self) -> None:
        self._local = threading.local()
        self._followers: tuple[tuple[Observe, Callable[[], bool]], ...] = ()

    @contextmanager
    def observe(self, observe: Observe, follows: Callable[[], bool] = lambda: False) -> Iterator[None]:
        """Report the launches of this thread inside a with statement to ``observe``.

        Also of those of another thread in which ``follows`` holds: torch runs the backward pass of a GPU in such.
        """
        before, followers = self._of_thread(), self._followers
        self._local.observers = (*before, observe)
        self._followers = (*followers, (observe, follows))
        try:
            yield
        finally:
            self._local.observers = before
            self._followers = tuple(follower for follower in self._followers if follower[0] is not observe)

    @contextmanager
    def own_launches(self) -> Iterator[None]:
        """Mark the launches of this thread inside a with statement as the lab's own."""
        self._local.own_depth = self.own_depth + 1
        try:
            yield
        finally:
            self._local.own_depth -= 1

    @property
    def own_depth(self) -> int:
        """The number of nested with statements of `own_launches` in this thread."""
        return getattr(self._local, "own_depth", 0)

    @property
    def are_there(self) -> bool:
        """Whether this thread has any."""
        return bool(self._listening())

    def report(self, launch: BoundLaunch) -> None:
        """Report a launch to the observers of this thread."""
        for observe in self._listening():
            observe(launch)

    def _listening(self) -> tuple[Observe, ...]:
        own = self._of_thread()
        if not self._followers:
            return own
        return (*own, *(observe for observe, follows in self._followers if observe not in own and follows()))

    def _of_thread(self) -> tuple[Observe, ...]:
        return getattr(self._local, "observers", ())


@dataclass(slots=True)
class LaunchRecord:
    """The launches of one specialization of one kernel while a recorder watched.

    ``kernel`` is the jit function; ``owner`` is what was launched, decorators and all, and ``closure`` that with all
    that it captured, as it was then: None where its source is not known. ``given_grid`` is the last grid as the user
    gave it: a function, or extents. ``where`` is the place of the run, if there is no ``run`` that has it. ``first``
    and ``last`` are the numbers of its launches in the recorder's undo log, 0 where that keeps nothing. ``before``
    samples what arguments of the last launch held that it, or a later launch, has read and changed.
    """

    kernel: JitKernel
    compiled: Compiled
    arguments: Mapping[str, Any]
    owner: Kernel
    grid: Grid3 | None = None
    launches: int = 0
    run: Run | None = None
    given_grid: Any = None
    closure: Closure | None = None
    where: str = "nowhere"
    first: int = 0
    last: int = 0
    before: Mapping[str, ValueSample] = field(default_factory=dict)

    @property
    def keywords(self) -> dict[str, Any]:
        """The options and the arguments of the last launch by name, with which it can be made again."""
        options = {name: self.compiled.options[name] for name in ("num_warps", "num_stages", "num_ctas")}
        return {**options, **self.arguments}


def record_of(launch: BoundLaunch, where: str = "nowhere") -> LaunchRecord:
    """The record of a launch that this thread is making; its count is 0, its grid not set."""
    owner = launch.kernel.launched_as
    try:
        closure = decorated_closure_of(owner)
    except SourceError:
        closure = None
    return LaunchRecord(
        launch.kernel,
        launch.compiled,
        launch.arguments,
        owner,
        given_grid=launch.given_grid,
        closure=closure,
        where=where,
        before=launch.before,
    )


def can_read(arguments: Mapping[str, Any]) -> bool:
    """Whether arguments can be read now: not those on a GPU in a fork, or while a CUDA graph captures the launch."""
    import torch  # a launch needs it anyway

    on_gpu = any(tensor.is_cuda for tensor in memory_of(arguments).values())
    return not (on_gpu and (is_fork() or torch.cuda.is_current_stream_capturing()))


@dataclass(slots=True)
class Recorder:
    """Collects launches, one record per specialization, in the order of their first launch.

    ``timeout_s`` limits each launch in a worker; with ``run`` false, launches are compiled only; with ``isolate``
    false, first launches on a GPU are not tried in the worker; with ``interpret``, none runs on a GPU.
    ``uninitialised`` names arguments whose contents count as never written on the CPU. With ``poison``, outputs are
    filled with a pattern before each launch, and ``unwritten`` holds masks of the elements that no launch wrote. With
    ``undoes``, launches can be undone by the ``undo`` log. ``begins`` is called before a launch runs on the
    CPU. ``follows`` says whether launches of another thread are recorded, too.
    Kernels with the same code count as one: a function may make the kernel anew each time that it launches it.
    """

    timeout_s: float | None = None
    run: bool = True
    isolate: bool = True
    interpret: bool = False
    uninitialised: frozenset[str] = frozenset()
    poison: bool = False
    undoes: bool = False
    unwritten: dict[Key, Any] = field(default_factory=dict)
    undo: UndoLog = field(default_factory=UndoLog)
    follows: Callable[[], bool] = lambda: False
    begins: Callable[[BoundLaunch], None] = lambda launch: None
    records: dict[tuple[int, str], LaunchRecord] = field(default_factory=dict)
    lock: Any = field(default_factory=rlock)

    def has(self, kernel: JitKernel, compiled: Compiled) -> bool:
        """Whether a specialization of a kernel was launched or compiled before."""
        return (id(kernel.fn.__code__), compiled.digest) in self.records

    @bypass_modes()
    def keep_before(self, arguments: Mapping[str, Any], effects: Effects) -> None:
        """Save the memory that the next launch may change, so that it can be undone."""
        wanted = [number for record in self.records.values() for number in (record.first, record.last) if number]
        self.undo.begin(arguments, effects, wanted)

    def sample_earlier(self, arguments: Mapping[str, Any], effects: Effects) -> None:
        """Sample the inputs of earlier launches that the next launch may change."""
        if storages := changing_storages(arguments, effects):
            for record in self.records.values():
                read = samples_of_changing(record.arguments, record.compiled.effects, storages)
                record.before = {**read, **record.before}

    def note(self, launch: BoundLaunch, *, is_launched: bool = True) -> None:
        """Record a launch, or a compile alone."""
        with self.lock:
            key = (id(launch.kernel.fn.__code__), launch.compiled.digest)
            if key not in self.records:
                self.records[key] = record_of(launch)
            record = self.records[key]
            record.arguments, record.before = launch.arguments, launch.before
            record.given_grid = launch.given_grid or record.given_grid
            if is_launched:
                record.grid = launch.grid
            record.launches += is_launched
            record.run = launch.run or record.run
            record.last = self.undo.number
            record.first = record.first or record.last

    def last_run(self, kernel: Kernel) -> Run:
        """The run of the last launch.

        Raises:
            LaunchError: ``kernel`` launched nothing.
        """
        if not self.records:
            raise LaunchError(f"{kernel!r} launched nothing.")
        record = list(self.records.values())[-1]
        if record.run is not None:
            return replace(record.run, arguments=values_of(record.arguments))
        empty = ("the grid is empty: nothing was launched",)
        return Run(record.compiled.kernel, record.grid or (0, 1, 1), 0.0, {}, (), "nowhere", notes=empty)
