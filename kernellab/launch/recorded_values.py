"""The values that a recorded launch held: what is asked for, and each value as plain data.

The interpreter records them on the CPU; on a GPU a copy of the kernel stores them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Program = tuple[int, int, int]


def program_at(grid: tuple[int, int, int], number: int) -> Program:
    """Return the id of a program by its number in the order of the grid, the first axis fastest."""
    x_size, y_size, _ = grid
    return number % x_size, number // x_size % y_size, number // (x_size * y_size)


def program_number(grid: tuple[int, int, int], program: Program) -> int:
    """Return the number of a program in the order of the grid, as `program_at` takes it."""
    x, y, z = program
    return x + grid[0] * (y + grid[1] * z)


class ValueKind(StrEnum):
    """How a value came about."""

    PARAMETER = "parameter"
    ASSIGNMENT = "assignment"
    LOOP = "loop variable"
    RETURN = "return"
    LOAD = "load"
    STORE = "store"
    ATOMIC = "atomic"

    @property
    def is_store(self) -> bool:
        """Whether the value went to memory, by a store or an atomic."""
        return self is ValueKind.STORE or self is ValueKind.ATOMIC


@dataclass(frozen=True, slots=True)
class RecordRequest:
    """The values to record: those of ``programs``, in ``lines`` or, if None, in all.

    With ``is_wide``, floats of every type are computed in float64; memory keeps its types. A tile of more than
    ``tile_bytes`` is sampled; after ``total_bytes`` every tile of more than a few kilobytes is. After ``seconds``, if
    not 0, the running program is stopped, and what it held until then is kept.
    """

    programs: tuple[Program, ...] = ((0, 0, 0),)
    lines: frozenset[int] | None = None
    tile_bytes: int = 1 << 20
    total_bytes: int = 1 << 28
    is_wide: bool = False
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Summary:
    """Figures of a tile: of its active lanes, without NaN and Inf the extremes and the mean (None if nothing is left).

    ``masked`` counts the lanes of an access that its mask turns off.
    """

    min: float | None
    max: float | None
    mean: float | None
    nan: int
    inf: int
    zeros: int
    masked: int


@dataclass(frozen=True)
class RecordedValue:
    """A value that one program held.

    ``name`` is the variable, of a store or atomic None; ``line`` is a line of ``file``; ``calls`` are the lines of the
    calls that led into a helper, and ``iteration`` the number of each loop around it, from 0, both outermost first.
    ``dtype`` is Triton's (``fp16``, ``*fp32``); ``shape`` is ``()`` for a scalar.

    ``data`` holds the tile: bf16 and fp8 as float32, pointers as int64 element numbers of ``argument``, counted from
    its first element. Of a tile that is too large only every ``steps``-th element along each axis is there, and
    ``summary`` counts all. Of an access, ``mask`` are the active lanes (None: all) and ``elements`` the element numbers
    in ``argument``; of an atomic, ``data`` are the operands. ``reads`` are the positions, among all recorded values, of
    those that it was computed from, and ``read_arguments`` the kernel's arguments that it names.
    """

    kind: ValueKind
    function: str
    name: str | None
    file: str | None
    line: int
    calls: tuple[int, ...]
    program: Program
    iteration: tuple[int, ...]
    shape: tuple[int, ...]
    dtype: str
    data: NDArray[Any]
    steps: tuple[int, ...] = ()
    argument: str | None = None
    elements: NDArray[np.int64] | None = None
    mask: NDArray[np.bool_] | None = None
    reads: tuple[int, ...] = ()
    read_arguments: tuple[str, ...] = ()
    whole: Summary | None = field(default=None, repr=False)

    @property
    def is_sampled(self) -> bool:
        """Whether only a sample of the tile is there."""
        return any(step > 1 for step in self.steps)

    @property
    def is_pointer(self) -> bool:
        """Whether the elements are addresses."""
        return self.dtype.startswith("*")

    @cached_property
    def summary(self) -> Summary:
        """The figures of the whole tile."""
        return self.whole if self.whole is not None else summary_of(self.data, self.mask)


class NonFinite(StrEnum):
    """NaN, or an infinity of either sign."""

    NAN = "NaN"
    INF = "inf"


@dataclass(frozen=True, slots=True)
class NonFiniteEvent:
    """The first lane in which an operation of a line made a NaN or an infinity from operands without one.

    ``operation`` is the name of the interpreter's operation (``exp``, ``fsub``), ``operands`` are its operands in that
    lane, and ``result`` and ``dtype`` the number and its type. ``lanes`` counts the lanes, ``after`` the values that
    were recorded before it.
    """

    kind: NonFinite
    line: int
    iteration: tuple[int, ...]
    program: Program
    operation: str
    operands: tuple[float, ...]
    result: float
    dtype: str
    lanes: int
    after: int


def summary_of(data: NDArray[Any], mask: NDArray[np.bool_] | None = None) -> Summary:
    """The figures of a tile, of its active lanes."""
    import numpy as np

    active = data.ravel() if mask is None else data[np.broadcast_to(mask, data.shape)]
    masked = 0 if mask is None else int(data.size - active.size)
    is_float = active.dtype.kind == "f"
    nan = int(np.isnan(active).sum()) if is_float else 0
    inf = int(np.isinf(active).sum()) if is_float else 0
    finite = active[np.isfinite(active)] if nan or inf else active
    zeros = int(active.size - np.count_nonzero(active))
    if not finite.size:
        return Summary(None, None, None, nan, inf, zeros, masked)
    mean = float(finite.mean(dtype=np.float64))
    return Summary(float(finite.min()), float(finite.max()), mean, nan, inf, zeros, masked)


def steps_within(shape: Sequence[int], itemsize: int, most_bytes: int) -> tuple[int, ...]:
    """The steps along each axis that leave at most ``most_bytes`` of a tile, the longest axes thinned first."""
    steps = [1] * len(shape)

    def count(axis: int) -> int:
        return math.ceil(shape[axis] / steps[axis])

    while shape and math.prod(map(count, range(len(shape)))) * itemsize > most_bytes:
        axis = max(range(len(shape)), key=count)
        if count(axis) <= 1:
            break
        steps[axis] *= 2
    return tuple(steps) if any(step > 1 for step in steps) else ()
