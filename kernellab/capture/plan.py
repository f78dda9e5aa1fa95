"""Where the buffers of a program lie: which of them share memory, and how much is needed at most.

What is counted: the bytes of every storage that the program makes, its outputs included. Inputs and constants are not,
nor is what a torch operation uses for itself while it runs. *Unplanned* is a program that holds all of that until its
end, as a notebook cell does whose intermediates have names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kernellab.capture.graph import operation_named
from kernellab.capture.tape import COPY, LAUNCH, WINDOW, Step, Tape


@dataclass(frozen=True, slots=True)
class Buffer:
    """A storage that a program makes.

    ``first`` is the step that makes it, ``last`` the last one that uses it or a view of it; for an output that is the
    number of steps. A buffer that is ``fixed`` is allocated by the operation that makes it. ``kind`` keeps apart what
    cannot share memory: dtype and device.
    """

    name: str
    size_bytes: int
    kind: str
    first: int
    last: int
    fixed: bool = False


@dataclass(frozen=True, slots=True)
class Allocation:
    """Memory that is allocated once: the buffers that lie in it, one after the other. It is freed after the last."""

    size_bytes: int
    kind: str
    buffers: tuple[str, ...]
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """The allocations of a program of ``steps`` steps, in the order in which they are made.

    ``unplanned_bytes`` is what its buffers take when all live until the end.
    """

    steps: int
    buffers: tuple[Buffer, ...]
    allocations: tuple[Allocation, ...]
    unplanned_bytes: int

    @property
    def peak_bytes(self) -> int:
        """The most bytes that are allocated at one time."""
        return max(live_bytes(self.allocations, self.steps), default=0)

    @property
    def reused(self) -> int:
        """How many buffers lie in memory that another one has left."""
        return len(self.buffers) - len(self.allocations)


def planned(buffers: Sequence[Buffer], steps: int) -> MemoryPlan:
    """Return the plan for buffers in the order in which they are made.

    A buffer takes the memory of a dead one of the same size and kind, the one that died last. It does so only where
    keeping that memory meanwhile does not raise the peak, so no plan needs more than freeing each buffer after its
    last use.
    """
    ordered = sorted(buffers, key=lambda buffer: buffer.first)
    live = live_bytes([_allocation([buffer]) for buffer in ordered], steps)
    peak = max(live, default=0)
    memories: list[list[Buffer]] = []
    for buffer in ordered:
        memory = None if buffer.fixed or not buffer.size_bytes else _free_memory(memories, buffer, live, peak)
        if memory is None:
            memories.append([buffer])
            continue
        for step in range(memory[-1].last + 1, buffer.first):
            live[step] += buffer.size_bytes
        memory.append(buffer)
    allocations = tuple(_allocation(memory) for memory in memories)
    return MemoryPlan(steps, tuple(ordered), allocations, sum(buffer.size_bytes for buffer in ordered))


def live_bytes(allocations: Sequence[Allocation], steps: int) -> list[int]:
    """Return the bytes that are allocated during each step, and after the last one."""
    changes = [0] * (steps + 2)
    for allocation in allocations:
        changes[allocation.first] += allocation.size_bytes
        changes[allocation.last + 1] -= allocation.size_bytes
    total, found = 0, []
    for change in changes[: steps + 1]:
        total += change
        found.append(total)
    return found


def _free_memory(memories: list[list[Buffer]], buffer: Buffer, live: Sequence[int], peak: int) -> list[Buffer] | None:
    fitting = [
        memory
        for memory in memories
        if not memory[0].fixed
        and (memory[-1].size_bytes, memory[-1].kind) == (buffer.size_bytes, buffer.kind)
        and memory[-1].last < buffer.first
    ]
    for memory in sorted(fitting, key=lambda memory: -memory[-1].last):
        if all(live[step] + buffer.size_bytes <= peak for step in range(memory[-1].last + 1, buffer.first)):
            return memory
    return None


def _allocation(memory: Sequence[Buffer]) -> Allocation:
    names = tuple(buffer.name for buffer in memory)
    return Allocation(memory[0].size_bytes, memory[0].kind, names, memory[0].first, memory[-1].last)


EMPTY = frozenset(
    f"aten.{name}"
    for name in (
        *("empty.memory_format", "empty_strided.default", "empty_like.default"),
        *("new_empty.default", "new_empty_strided.default"),
    )
)
FILLED = {
    "aten.zeros.default": "0",
    "aten.zeros_like.default": "0",
    "aten.new_zeros.default": "0",
    "aten.ones.default": "1",
    "aten.ones_like.default": "1",
    "aten.new_ones.default": "1",
}
FILLED_WITH = frozenset({"aten.full.default", "aten.full_like.default", "aten.new_full.default"})
COPIED = frozenset({"aten.clone.default", "aten._to_copy.default"})


def plan_of(tape: Tape) -> MemoryPlan:
    """Return the plan of a program's buffers."""
    return planned(buffers_of(tape), len(tape.steps))


def buffers_of(tape: Tape) -> list[Buffer]:
    """Return the storages that a program makes; a storage lives as long as any view of it is used."""
    storages = [value.storage for value in tape.values]
    given = {storages[index] for index in (*tape.inputs, *(index for index, _ in tape.constants))}
    makers: dict[int, tuple[int, int]] = {}
    last: dict[int, int] = {}
    for number, step in enumerate(tape.steps):
        for index in (*step.taken, *step.mutated, *(i for i in step.results if i >= 0)):
            last[storages[index]] = number
            if index in step.results and storages[index] not in given:
                makers.setdefault(storages[index], (number, index))
    last.update({storages[index]: len(tape.steps) for index in tape.outputs})
    return [_buffer(tape, storage, number, index, last[storage]) for storage, (number, index) in makers.items()]


def out_variant(operation: str) -> Any:
    """Return the form of an operation that writes into a given tensor, or None where it has none of its own."""
    from torch import Tag  # needs torch

    overload = operation_named(operation)
    wanted = [(a.name, str(a.type)) for a in overload._schema.arguments]
    packet = overload._overloadpacket
    for name in packet.overloads():
        other = getattr(packet, name)
        outs = [a for a in other._schema.arguments if a.is_out]
        given = [(a.name, str(a.type)) for a in other._schema.arguments if not a.is_out]
        if len(outs) == 1 and given == wanted and Tag.generated not in other.tags:
            return other
    return None


def _buffer(tape: Tape, storage: int, number: int, index: int, last: int) -> Buffer:
    value, step = tape.values[index], tape.steps[number]
    layout = value.layout
    fills = layout.offset == 0 and layout.span * layout.itemsize == tape.storages[storage] == layout.size_bytes
    kind = f"{layout.dtype} {layout.device}"
    return Buffer(value.name, tape.storages[storage], kind, number, last, fixed=not (fills and _is_placeable(step)))


def _is_placeable(step: Step) -> bool:
    """Tell whether the one result of a step can be written into memory that is already there."""
    name = step.operation
    if name in (LAUNCH, WINDOW, COPY) or step.several or step.mutated or step.is_random or step.has_open_shape:
        return False
    if name in EMPTY or name in FILLED or name in FILLED_WITH or name in COPIED:
        return True
    return not dict(step.kwargs).keys() & {"device", "layout"} and out_variant(name) is not None
