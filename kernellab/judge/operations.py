"""The operations of torch that a candidate's program may use, by what its specification allows."""

from __future__ import annotations

from typing import Any

import torch

from kernellab.capture.plan import EMPTY
from kernellab.capture.tape import COPY, LAUNCH, READ, WINDOW

ALLOCATIONS = EMPTY | frozenset(
    {
        *("aten.zeros.default", "aten.zeros_like.default", "aten.new_zeros.default"),
        *("aten.ones.default", "aten.ones_like.default", "aten.new_ones.default"),
        *("aten.full.default", "aten.full_like.default", "aten.new_full.default"),
        *("aten.fill_.Scalar", "aten.zero_.default"),
    }
)
"""Operations that make memory, or fill it with one number."""

_REFUSED = frozenset({"set_", "resize_", "resize_as_", "from_file", "record_stream", "_local_scalar_dense", "item"})


def operation_named(name: str) -> Any:
    """Return the operator of torch with a name such as ``aten.add.Tensor``, or None where there is none."""
    parts = name.split(".")
    if len(parts) != 3 or parts[0] != "aten" or not all(part.isidentifier() for part in parts):
        return None
    if any(part.startswith("__") for part in parts[1:]):
        return None
    packet = getattr(torch.ops.aten, parts[1], None)
    return None if packet is None else getattr(packet, parts[2], None)


def operation_problem(name: str, allow: str) -> tuple[str, str] | None:
    """Return the rule that an operation breaks and a sentence, or None; ``allow`` is ``"triton"`` or ``"torch"``."""
    if name in {LAUNCH, WINDOW}:
        return None
    if name == READ:
        return "host_reads_data", "Python reads values of a tensor: what follows would hold for these values alone"
    short = name.split(".")[1] if name.count(".") == 2 else name
    if name != COPY:
        operation = operation_named(name)
        if operation is None or short in _REFUSED:
            return "unknown_operation", f"{name} is not an operation that a judge runs"
        if torch.Tag.nondeterministic_seeded in operation.tags:
            return "random", f"torch's {short} draws random numbers, so no run repeats another"
        if torch.Tag.dynamic_output_shape in operation.tags and short != "index":
            return "shape_from_data", f"the shape of what torch's {short} returns depends on data"
        if name in ALLOCATIONS or _is_view(operation):
            return None
    if allow == "torch":
        return None
    return (
        "torch_operation",
        f'torch\'s {short} computes or copies; allow = "triton" leaves allocation, views and launches',
    )


def _is_view(operation: Any) -> bool:
    """Whether an operation returns views of its operands and changes nothing."""
    schema = operation._schema
    return not schema.is_mutable and any(value.alias_info is not None for value in schema.returns)
