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

_VIEWS = frozenset(
    {
        *("alias", "as_strided", "broadcast_to", "chunk", "detach", "diagonal", "expand", "expand_as", "flatten", "mT"),
        *("movedim", "moveaxis", "narrow", "numpy_T", "permute", "ravel", "select", "slice", "split"),
        *("split_with_sizes", "squeeze", "swapaxes", "swapdims", "t", "tensor_split", "transpose", "unbind"),
        *("unflatten", "unfold", "unsqueeze", "view", "view_as", "view_as_complex", "view_as_real", "lift_fresh"),
        *("hsplit", "vsplit", "dsplit", "_unsafe_view", "reshape", "reshape_as", "contiguous", "real"),
    }
)
"""Operations that give a view, or a copy in another layout where no view has it. Under inference mode, torch shows
`reshape` and `flatten` themselves."""
_COPIES = frozenset({"clone", "copy_", "_to_copy", "to"})
"""Operations that copy: `to` and `copy_` into another dtype, too."""

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
    short = _short(name)
    if name != COPY:
        operation = operation_named(name)
        if operation is None or short in _REFUSED:
            return "unknown_operation", f"{name} is not an operation that a judge runs"
        if torch.Tag.nondeterministic_seeded in operation.tags:
            return "random", f"torch's {short} draws random numbers, so no run repeats another"
        if torch.Tag.dynamic_output_shape in operation.tags and short != "index":
            return "shape_from_data", f"the shape of what torch's {short} returns depends on data"
        if name in ALLOCATIONS:
            return None
    if allow == "torch" or name == COPY or short in _VIEWS | _COPIES:
        return None
    return (
        "torch_operation",
        f'torch\'s {short} computes; allow = "triton" leaves allocation, views, copies and launches',
    )


def keeps_bits(name: str) -> bool:
    """Whether an operation that `operation_problem` lets a candidate of kernels use moves bits, and never rounds."""
    return name in {LAUNCH, WINDOW, COPY} or name in ALLOCATIONS or _short(name) in _VIEWS | {"clone"}


def is_copy(name: str) -> bool:
    """Whether an operation copies, or may, as ``reshape`` does."""
    return name == COPY or _short(name) in _COPIES | {"reshape", "reshape_as", "contiguous", "flatten", "ravel"}


def _short(name: str) -> str:
    return name.split(".")[1] if name.count(".") == 2 else name
