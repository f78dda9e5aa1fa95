"""Arithmetic of a ``tl.constexpr`` with a tensor, as the compiler does it: the result is a tensor.

The compiler looks at both operands. In Python the left one decides, and ``tl.constexpr`` would wrap the tensor that it
computes in another ``tl.constexpr``, which nothing can store.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import triton.language as tl

_OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "__add__": operator.add,
    "__sub__": operator.sub,
    "__mul__": operator.mul,
    "__truediv__": operator.truediv,
    "__floordiv__": operator.floordiv,
    "__mod__": operator.mod,
    "__and__": operator.and_,
    "__or__": operator.or_,
    "__xor__": operator.xor,
    "__lshift__": operator.lshift,
    "__rshift__": operator.rshift,
    "__lt__": operator.lt,
    "__le__": operator.le,
    "__gt__": operator.gt,
    "__ge__": operator.ge,
    "__eq__": operator.eq,
    "__ne__": operator.ne,
}


def let_tensors_decide() -> None:
    """Make an operation of a constexpr and a tensor, in this order, the tensor's."""
    for name, operation in _OPERATIONS.items():
        setattr(tl.constexpr, name, _deferring(getattr(tl.constexpr, name), operation))


def _deferring(original: Callable[[Any, Any], Any], operation: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def method(constant: Any, other: Any) -> Any:
        return operation(constant.value, other) if isinstance(other, tl.tensor) else original(constant, other)

    return method
