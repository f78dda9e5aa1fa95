"""What the arguments of a compile or launch were, as far as a card shows it."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ArgumentValue:
    """The value of an argument: shape and strides of a tensor or descriptor in elements, or a plain value.

    ``shape`` is None unless there is one; ``value`` is None for everything that is not a number, truth value or string.
    """

    shape: tuple[int, ...] | None = None
    strides: tuple[int, ...] = ()
    value: bool | int | float | str | None = None

    @property
    def elements(self) -> int | None:
        """The number of elements, None without a shape."""
        return None if self.shape is None else math.prod(self.shape)

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements lie one after the other, the last dimension innermost."""
        expected = 1
        for extent, stride in zip(reversed(self.shape or ()), reversed(self.strides), strict=True):
            if extent != 1 and stride != expected:
                return False
            expected *= extent
        return True
