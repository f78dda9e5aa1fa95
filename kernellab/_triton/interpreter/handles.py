"""What a Triton value is in the interpreter: a numpy array and its type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Bounds = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Wrapped:
    """Which lanes of a 32-bit integer wrapped around, and at which (file, line) that happened."""

    lanes: Array
    place: tuple[str, int] | None


class Handle:
    """A block or scalar. It takes the place of Triton's ``TensorHandle``, which validates each one anew.

    ``bounds`` are limits of an integer block, where they are known; ``wrapped`` tells of lanes that overflowed.
    """

    __slots__ = ("attr", "bounds", "data", "dtype", "wrapped")

    def __init__(self, data: Array, dtype: Any, attr: dict[str, Any] | None = None) -> None:
        self.data = data
        self.dtype = dtype
        self.attr = attr
        self.bounds: Bounds | None = None
        self.wrapped: Wrapped | None = None

    def __bool__(self) -> bool:
        return bool(self.data.all())

    def get_element_ty(self) -> Any:
        """Return the type of one element: of what a pointer points to, which may be a pointer again."""
        dtype = self.dtype.scalar
        return dtype.element_ty.scalar if dtype.is_ptr() else dtype

    def clone(self) -> Handle:
        return Handle(self.data.copy(), self.dtype)

    def set_attr(self, key: str, value: Any) -> None:
        """Take a hint such as ``tl.multiple_of``, which decides nothing here."""


def bounds_of(handle: Handle) -> Bounds:
    """Return the least and the greatest value of an integer block."""
    if handle.bounds is None:
        data = handle.data
        if data.size == 1:
            value = int(data.item())
            handle.bounds = (value, value)
        else:
            handle.bounds = (int(data.min()), int(data.max())) if data.size else (0, 0)
    return handle.bounds


def moved(source: Handle, data: Array, dtype: Any, lanes: Array | None = None) -> Handle:
    """Return a handle whose elements are those of ``source``; ``lanes`` are its wrapped lanes, moved likewise."""
    result = Handle(data, dtype)
    result.bounds = source.bounds
    if source.wrapped is not None and lanes is not None:
        result.wrapped = Wrapped(lanes, source.wrapped.place)
    return result


def joined_wraps(*handles: Handle, shape: tuple[int, ...]) -> Wrapped | None:
    """Return the wrapped lanes of a result computed element by element, or None where no operand has any."""
    wraps = [handle.wrapped for handle in handles if handle.wrapped is not None]
    if not wraps:
        return None
    lanes = np.zeros(shape, dtype=bool)
    for wrap in wraps:
        lanes |= wrap.lanes if wrap.lanes.size > 1 else bool(wrap.lanes.any())
    return Wrapped(lanes, wraps[0].place)
