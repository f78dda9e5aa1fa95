"""The reference in a ring in place of floats, where equal sums have equal bits: a check without a tolerance.

It is asked of references that consist of sums, differences, products and their matrix forms alone, without numbers of
their own: there a candidate that computes the same has the same bits, in whatever order it adds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from kernellab.checking.bounds import OperationMode
from kernellab.checking.payload_tensor import in_algebra
from kernellab.errors import UsageError
from kernellab.judge.replay import copies_of
from kernellab.judge.specification import Specification

_SUMS = frozenset(
    {"add", "sub", "mul", "neg", "mm", "bmm", "addmm", "baddbmm", "mv", "dot", "sum", "cumsum", "square", "matmul"}
)
_MOVES = frozenset(
    {
        *("view", "_unsafe_view", "reshape", "transpose", "permute", "t", "expand", "unsqueeze", "squeeze", "slice"),
        *("select", "clone", "detach", "alias", "as_strided", "cat", "stack", "flip", "unfold"),
    }
)
_NUMBERS = (bool, float, int)


class _Operations(OperationMode):
    """Notes whether all operations are sums and products of tensors."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.are_sums = True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.removeprefix("aten::")
        if name in _SUMS:
            is_elementwise = name in {"add", "sub", "mul"}
            self.are_sums &= not (is_elementwise and any(isinstance(value, _NUMBERS) for value in args[:2]))
            self.are_sums &= not any(value != 1 for value in (kwargs or {}).values() if isinstance(value, _NUMBERS))
        else:
            self.are_sums &= name in _MOVES
        return func(*args, **(kwargs or {}))


def expected_in_ring(specification: Specification, inputs: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the reference's outputs in the ring, as floats of its bit patterns; None where it is not asked."""
    if not specification.algebra or not any(_is_float(value) for value in inputs.values()):
        return None
    operations, copies = _Operations(), copies_of(inputs)
    with operations:
        specification.expected(copies)
    if not operations.are_sums:
        return None
    try:
        values: dict[str, Any] = in_algebra(specification.expected, copies_of(inputs))
    except UsageError:
        return None
    return values


def _is_float(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()
