"""When the buffers of a program come and go, and which operations can write into memory that is already there."""

from __future__ import annotations

from typing import Any

from kernellab.capture.graph import operation_named
from kernellab.capture.plan import Buffer, Plan, planned
from kernellab.capture.tape import COPY, LAUNCH, WINDOW, Step, Tape

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


def plan_of(tape: Tape) -> Plan:
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
