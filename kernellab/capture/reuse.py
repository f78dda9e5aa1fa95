"""Which values of a program may lie where a dying one lies: copies that need not be made, and operations in place.

The copy of a value that nothing uses again is that value. An elementwise operation of torch may write its result over
an operand, since it reads each element before it writes that one (torch allows ``out`` to be an operand as a whole, and
refuses a part of one). What lies in an input is left alone unless the caller has donated that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from kernellab.capture.graph import operation_named
from kernellab.capture.tape import COPY, LAUNCH, READ, WINDOW, Ref, Step, Tape, TensorLayout

# These go through one row after the other, and write an element after the last time that they read it.
_BY_ROWS = frozenset({"aten._softmax.default", "aten._log_softmax.default"})
_CLONED = frozenset({"aten.clone.default"})


def taken_over(tape: Tape, last: Mapping[int, int], private: Collection[int]) -> dict[int, int]:
    """Return values that may lie where another one lies, which dies when they are made: the other one by each.

    ``last`` gives the last step that uses a storage; the ``private`` storages are those that the program may write to.
    """
    found: dict[int, int] = {}
    for number, step in enumerate(tape.steps):
        dying = {tape.values[i].storage for i in (*step.taken, *step.mutated)} & set(private)
        dying = {storage for storage in dying if last.get(storage) == number}
        if dying:
            found.update(_pairs(tape, step, dying))
    return found


def out_variant(operation: str) -> Any:
    """Return the form of an operation that writes into a given tensor, or None where it has none of its own."""
    from torch import Tag  # needs torch

    overload = operation_named(operation)
    wanted = [(a.name, str(a.type)) for a in overload._schema.arguments]
    packet = overload._overloadpacket
    for name in packet.overloads():
        other = getattr(packet, name)
        given = [(a.name, str(a.type)) for a in other._schema.arguments if not a.is_out]
        if len(_outs(other)) == 1 and given == wanted and Tag.generated not in other.tags:
            return other
    return None


def in_place_variant(operation: str) -> Any:
    """Return the form of an operation that writes over its first argument, or None where it has none."""
    import torch

    overload = operation_named(operation)
    namespace, packet, *_ = operation.split(".")
    other = getattr(getattr(getattr(torch.ops, namespace), f"{packet}_", None), overload._overloadname, None)
    if other is None or [a.name for a in other._schema.arguments] != [a.name for a in overload._schema.arguments]:
        return None
    return other


def writing_call(step: Step, result: str, source: str, arguments: list[str]) -> str:
    """Return the call of an operation that writes into ``result``, which lies where its operand ``source`` does."""
    variant = out_variant(step.operation)
    if variant is None:
        return f"torch.ops.{in_place_variant(step.operation)}({', '.join([source, *arguments[1:]])})"
    return f"torch.ops.{variant}({', '.join([*arguments, f'{_outs(variant)[0]}={result}'])})"


def _outs(overload: Any) -> list[str]:
    return [a.name for a in overload._schema.arguments if a.is_out]


def _pairs(tape: Tape, step: Step, dying: Collection[int]) -> Iterator[tuple[int, int]]:
    """Yield (result, value that it takes the place of) for one step."""
    if step.operation == LAUNCH and step.functional:
        pairs = [(new, old) for new, old in zip(step.results, step.mutated, strict=True) if new >= 0]
    elif step.operation in (COPY, *_CLONED):
        pairs = [(new, old) for new in step.results for old in step.taken]
    elif _is_elementwise(step):
        pairs = [(new, old) for new in step.results for old in step.taken if _is_writable(tape, step, old)]
    else:
        return
    taken: set[int] = set()
    for new, old in pairs:
        one, other = tape.values[new], tape.values[old]
        is_whole = tape.storages[one.storage] == tape.storages[other.storage]
        if other.storage in dying and new not in taken and is_whole and _is_alike(one.layout, other.layout):
            taken.add(new)
            yield new, old


def _is_elementwise(step: Step) -> bool:
    """Tell whether an operation of torch reads each element before it writes that one, if both lie at one place."""
    if step.operation in (LAUNCH, WINDOW, COPY, READ) or step.several or step.mutated or step.is_random:
        return False
    if step.operation in _BY_ROWS:
        return True
    from torch import Tag  # needs torch

    return Tag.pointwise in operation_named(step.operation).tags


def _is_writable(tape: Tape, step: Step, old: int) -> bool:
    """Tell whether a step can write over an operand, and takes nothing else in the memory of that."""
    value = tape.values[old]
    others = (tape.values[index] for index in step.taken)
    if any(other.storage == value.storage and other.layout != value.layout for other in others):
        return False
    if out_variant(step.operation) is not None:
        return True
    return step.args[:1] == (Ref(old),) and in_place_variant(step.operation) is not None


def _is_alike(one: TensorLayout, other: TensorLayout) -> bool:
    """Tell whether two values have one layout, from the first element of their storages on."""
    wanted = (one.dtype, one.shape, one.stride, one.device, one.offset)
    return wanted == (other.dtype, other.shape, other.stride, other.device, other.offset) and one.offset == 0
