"""The memory plan of a program: which buffers share memory, and the peak.

A plan counts the bytes of every storage that the program makes, its outputs included. It does not count inputs and
constants, nor what a torch operation allocates for itself while it runs. *Unplanned* is a program that keeps all
storages until its end, as a notebook cell does whose intermediates have names.

In memory that the caller gives, all lie in one piece with an offset for each: those that are alive at one time do not
overlap. Outputs lie elsewhere, since they outlive the run, and so does what an operation of torch allocates by itself.

A value may take the memory of one that dies when it is made. The copy of a value that has no other use is that value.
An elementwise operation of torch may write its result over an operand, since it reads each element before it writes
that one (torch allows ``out`` to be an operand as a whole, and refuses a part of one). Inputs are not overwritten
unless the caller has donated them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import torch

from kernellab.capture.graph import operation_named
from kernellab.capture.tape import COPY, LAUNCH, READ, WINDOW, Ref, Step, Tape

ALIGNMENT = 512  # bytes, as torch's allocator of GPU memory has it; Triton counts on 16
EMPTY = frozenset(
    f"aten.{name}"
    for name in (
        *("empty.memory_format", "empty_strided.default", "empty_like.default"),
        *("new_empty.default", "new_empty_strided.default"),
    )
)
FILLED = {
    f"aten.{name}.default": value
    for names, value in ((("zeros", "zeros_like", "new_zeros"), "0"), (("ones", "ones_like", "new_ones"), "1"))
    for name in names
}
FILLED_WITH = frozenset({"aten.full.default", "aten.full_like.default", "aten.new_full.default"})
COPIED = frozenset({"aten.clone.default", "aten._to_copy.default"})
# These work row by row, and write an element after they have read it for the last time.
_BY_ROWS = frozenset({"aten._softmax.default", "aten._log_softmax.default"})


@dataclass(frozen=True, slots=True)
class Buffer:
    """A storage that a program makes.

    ``first`` is the step that makes it, ``last`` the last one that uses it or a view of it; for an output that is the
    number of steps. The operation that makes a ``fixed`` buffer allocates it. ``kind`` is dtype and device: buffers of
    different kinds cannot share memory. A buffer may take the memory of another one that dies in the step that makes
    it: ``takes`` is the name of that buffer, and ``source`` that of a value in it. ``preallocated`` marks a donated
    input or a constant: the program may write to it, and does not allocate it.
    """

    name: str
    size_bytes: int
    kind: str
    first: int
    last: int
    fixed: bool = False
    takes: str = ""
    source: str = ""
    preallocated: bool = False


@dataclass(frozen=True, slots=True)
class Allocation:
    """Memory that is allocated once, for buffers one after the other, and freed after the last.

    ``preallocated`` memory exists before the program begins, and counts for nothing.
    """

    size_bytes: int
    kind: str
    buffers: tuple[str, ...]
    first: int
    last: int
    preallocated: bool = False


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """The allocations of a program of ``steps`` steps, in the order in which they are made.

    ``unplanned_bytes`` is the sum of its buffers, as when all live until the end. ``offsets`` are those of allocations,
    by their first buffers, in a workspace of the caller, which has ``workspace_bytes``.
    """

    steps: int
    buffers: tuple[Buffer, ...]
    allocations: tuple[Allocation, ...]
    unplanned_bytes: int
    offsets: tuple[tuple[str, int], ...] = ()
    workspace_bytes: int = 0

    @property
    def peak_bytes(self) -> int:
        """The most bytes that are allocated at one time."""
        return max(live_bytes(self.allocations, self.steps), default=0)

    @property
    def overwritten(self) -> tuple[str, ...]:
        """The inputs and constants that other buffers overwrite."""
        return tuple(a.buffers[0] for a in self.allocations if a.preallocated and len(a.buffers) > 1)


def make_plan(buffers: Sequence[Buffer], steps: int) -> MemoryPlan:
    """Return the plan for buffers in the order in which they are made.

    Buffers that take each other's memory are a chain. A chain takes the memory of a dead one of the same size and kind,
    the one that died last, unless keeping that memory meanwhile raises the peak. So no plan needs more than freeing
    each buffer after its last use.
    """
    chains = _chains(sorted(buffers, key=lambda buffer: buffer.first))
    live = live_bytes([_allocation(chain) for chain in chains], steps)
    peak = max(live, default=0)
    memories: list[list[Buffer]] = []
    for chain in chains:
        first = chain[0]
        movable = not first.fixed and not first.preallocated and first.size_bytes
        memory = _free_memory(memories, first, live, peak) if movable else None
        if memory is None:
            memories.append(list(chain))
            continue
        if not memory[0].preallocated:
            for step in range(memory[-1].last + 1, first.first):
                live[step] += int(first.size_bytes)
        memory += chain
        if memory[0].preallocated:
            for step in range(first.first, chain[-1].last + 1):
                live[step] -= int(first.size_bytes)
    allocations = tuple(_allocation(memory) for memory in memories)
    ordered = tuple(sorted((b for chain in chains for b in chain), key=lambda buffer: buffer.first))
    return MemoryPlan(steps, ordered, allocations, sum(int(b.size_bytes) for b in ordered if not b.preallocated))


def _chains(ordered: Sequence[Buffer]) -> list[list[Buffer]]:
    """Return buffers by the memory that they take from each other, in the order in which the first of each is made."""
    chains: list[list[Buffer]] = []
    ends: dict[str, list[Buffer]] = {}
    for buffer in ordered:
        chain = ends.pop(buffer.takes, None)
        if chain is None:
            chain = [replace(buffer, takes="", source="")]
            chains.append(chain)
        else:
            chain.append(buffer)
        ends[buffer.name] = chain
    return chains


def live_bytes(allocations: Sequence[Allocation], steps: int) -> list[int]:
    """Return the bytes that are allocated during each step, and after the last one."""
    changes = [0] * (steps + 2)
    for allocation in allocations:
        if allocation.preallocated:
            continue
        changes[allocation.first] += int(allocation.size_bytes)
        changes[allocation.last + 1] -= int(allocation.size_bytes)
    return list(accumulate(changes[: steps + 1]))


def _free_memory(memories: list[list[Buffer]], buffer: Buffer, live: Sequence[int], peak: int) -> list[Buffer] | None:
    fitting = [
        memory
        for memory in memories
        if not memory[0].fixed
        and (memory[-1].size_bytes, memory[-1].kind) == (buffer.size_bytes, buffer.kind)
        and memory[-1].last < buffer.first
    ]
    for memory in sorted(fitting, key=lambda memory: -memory[-1].last):
        idle = range(memory[-1].last + 1, buffer.first)
        if memory[0].preallocated or all(live[step] + int(buffer.size_bytes) <= peak for step in idle):
            return memory
    return None


def _allocation(memory: Sequence[Buffer]) -> Allocation:
    names = tuple(buffer.name for buffer in memory)
    first, last = memory[0], max(buffer.last for buffer in memory)
    return Allocation(first.size_bytes, first.kind, names, first.first, last, first.preallocated)


def plan_of(tape: Tape, donated: Collection[int]) -> MemoryPlan:
    """Return the plan of a program's buffers; the values ``donated`` are inputs that it may write to."""
    return make_plan(buffers_of(tape, donated), len(tape.steps))


def buffers_of(tape: Tape, donated: Collection[int]) -> list[Buffer]:
    """Return the storages that a program makes, after those of inputs and constants that it may overwrite.

    A storage lives as long as any view of it is used.
    """
    storages = [value.storage for value in tape.values]
    not_made = {storages[index] for index in (*tape.inputs, *(index for index, _ in tape.constants))}
    own = [*(index for index in tape.inputs if index in donated), *(index for index, _ in tape.constants)]
    makers: dict[int, tuple[int, int]] = {}
    last: dict[int, int] = {storages[index]: -1 for index in own}
    for number, step in enumerate(tape.steps):
        for index in (*step.operands, *step.mutated, *(i for i in step.results if i >= 0)):
            last[storages[index]] = number
            if index in step.results and storages[index] not in not_made:
                makers.setdefault(storages[index], (number, index))
    last.update({storages[index]: len(tape.steps) for index in tape.outputs})
    names = {storages[index]: tape.values[index].name for index in own}
    names |= {storage: tape.values[index].name for storage, (_, index) in makers.items()}
    sources = memory_sources(tape, last, names)
    buffers = [_buffer(tape, index, -1, last[storages[index]]) for index in own]
    for storage, (number, index) in makers.items():
        buffer = _buffer(tape, index, number, last[storage])
        source = sources.get(index)
        if source is not None:
            buffer = replace(buffer, takes=names[storages[source]], source=tape.values[source].name)
        buffers.append(buffer)
    return buffers


def _buffer(tape: Tape, index: int, first: int, last: int) -> Buffer:
    """Return the storage of a value as a buffer; ``first`` is -1 for an input or a constant."""
    value, preallocated = tape.values[index], first < 0
    layout, size_bytes = value.layout, tape.storages[value.storage]
    fills = layout.offset == 0 and layout.span * layout.itemsize == size_bytes == layout.size_bytes
    fixed = not (fills and (preallocated or _is_placeable(tape.steps[first])))
    return Buffer(
        value.name, size_bytes, f"{layout.dtype} {layout.device}", first, last, fixed, preallocated=preallocated
    )


def _is_placeable(step: Step) -> bool:
    """Whether the one result of a step can be written into existing memory."""
    name = step.operation
    if name in (LAUNCH, WINDOW, COPY) or step.several or step.mutated or step.is_random or step.has_dynamic_shape:
        return False
    if name in EMPTY or name in FILLED or name in FILLED_WITH or name in COPIED:
        return True
    return not dict(step.kwargs).keys() & {"device", "layout"} and out_variant(name) is not None


def with_workspace(plan: MemoryPlan, device: str) -> MemoryPlan:
    """Return the plan with offsets for the buffers on a device, the largest first, each at the lowest place."""
    buffers = {buffer.name: buffer for buffer in plan.buffers}
    placed: list[tuple[int, Allocation]] = []
    for allocation in sorted(plan.allocations, key=lambda allocation: -allocation.size_bytes):
        first = buffers[allocation.buffers[0]]
        is_there = first.fixed or allocation.preallocated or not allocation.size_bytes
        if is_there or allocation.last >= plan.steps or first.kind.partition(" ")[2] != device:
            continue
        placed.append((_offset(placed, allocation), allocation))
    offsets: Mapping[str, int] = {allocation.buffers[0]: offset for offset, allocation in placed}
    size_bytes = max((offset + allocation.size_bytes for offset, allocation in placed), default=0)
    return replace(plan, offsets=tuple(offsets.items()), workspace_bytes=size_bytes)


def _offset(placed: list[tuple[int, Allocation]], new: Allocation) -> int:
    """Return the lowest offset at which an allocation overlaps no other of the same time."""
    others = [(o, a) for o, a in placed if a.first <= new.last and new.first <= a.last]
    offset = 0
    for start, other in sorted(others, key=lambda pair: pair[0]):
        if start - offset >= new.size_bytes:
            break
        offset = max(offset, -(-(start + other.size_bytes) // ALIGNMENT) * ALIGNMENT)
    return offset


def memory_sources(tape: Tape, last: Mapping[int, int], private: Collection[int]) -> dict[int, int]:
    """Return the value that each value can replace in memory, as that one dies when it is made.

    ``last`` is the last step that uses a storage; ``private`` are the storages that the program may write to.
    """
    sources: dict[int, int] = {}
    for number, step in enumerate(tape.steps):
        dying = {tape.values[i].storage for i in (*step.operands, *step.mutated)} & set(private)
        dying = {storage for storage in dying if last.get(storage) == number}
        if dying:
            sources.update(_source_pairs(tape, step, dying))
    return sources


def out_variant(operation: str) -> Any:
    """Return the variant of an operation that writes into an ``out`` tensor, or None without one of its own."""
    overload = operation_named(operation)
    wanted = [(a.name, str(a.type)) for a in overload._schema.arguments]
    packet = overload._overloadpacket
    for name in packet.overloads():
        other = getattr(packet, name)
        arguments = [(a.name, str(a.type)) for a in other._schema.arguments if not a.is_out]
        if len(_outs(other)) == 1 and arguments == wanted and torch.Tag.generated not in other.tags:
            return other
    return None


def in_place_variant(operation: str) -> Any:
    """Return the variant of an operation that writes over its first argument, or None."""
    overload = operation_named(operation)
    namespace, packet, *_ = operation.split(".")
    other = getattr(getattr(getattr(torch.ops, namespace), f"{packet}_", None), overload._overloadname, None)
    if other is None or [a.name for a in other._schema.arguments] != [a.name for a in overload._schema.arguments]:
        return None
    return other


def writing_call(step: Step, result: str, source: str, arguments: list[str]) -> str:
    """Return the call of an operation that writes into ``result``, in the memory of its operand ``source``."""
    variant = out_variant(step.operation)
    if variant is None:
        return f"torch.ops.{in_place_variant(step.operation)}({', '.join([source, *arguments[1:]])})"
    return f"torch.ops.{variant}({', '.join([*arguments, f'{_outs(variant)[0]}={result}'])})"


def _outs(overload: Any) -> list[str]:
    return [a.name for a in overload._schema.arguments if a.is_out]


def _source_pairs(tape: Tape, step: Step, dying: Collection[int]) -> Iterator[tuple[int, int]]:
    """Yield (result, value that it replaces in memory) for one step."""
    if step.operation == LAUNCH and step.functional:
        pairs = [(new, old) for new, old in zip(step.results, step.mutated, strict=True) if new >= 0]
    elif step.operation in (COPY, "aten.clone.default"):
        pairs = [(new, old) for new in step.results for old in step.operands]
    elif _is_elementwise(step):
        pairs = [(new, old) for new in step.results for old in step.operands if _is_writable(tape, step, old)]
    else:
        return
    placed: set[int] = set()
    for new, old in pairs:
        one, other = tape.values[new], tape.values[old]
        is_whole = tape.storages[one.storage] == tape.storages[other.storage] and one.layout.offset == 0
        if other.storage in dying and new not in placed and is_whole and one.layout == other.layout:
            placed.add(new)
            yield new, old


def _is_elementwise(step: Step) -> bool:
    """Whether an operation of torch, in place, reads each element before it writes that one."""
    if step.operation in (LAUNCH, WINDOW, COPY, READ) or step.several or step.mutated or step.is_random:
        return False
    if step.operation in _BY_ROWS:
        return True
    return torch.Tag.pointwise in operation_named(step.operation).tags


def _is_writable(tape: Tape, step: Step, old: int) -> bool:
    """Whether a step can write over an operand, and takes no other view of its memory."""
    value = tape.values[old]
    others = (tape.values[index] for index in step.operands)
    if any(other.storage == value.storage and other.layout != value.layout for other in others):
        return False
    if out_variant(step.operation) is not None:
        return True
    return step.args[:1] == (Ref(old),) and in_place_variant(step.operation) is not None
