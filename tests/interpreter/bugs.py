"""Launches of the planted bugs, with what must be said of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from tests.interpreter import planted


@dataclass(frozen=True, slots=True)
class Bug:
    """A launch with a planted bug: what is found, on which argument, and words of the message where it is an error."""

    kernel: Any
    grid: tuple[int, ...]
    arguments: Callable[[], tuple[Any, ...]]
    kind: str
    argument: str | None
    block: int | None = None
    words: tuple[str, ...] = ()
    uninitialised: tuple[str, ...] = ()
    named: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        named: dict[str, Any] = {} if self.block is None else {"BLOCK": self.block}
        if self.uninitialised:
            named["uninitialised"] = self.uninitialised
        object.__setattr__(self, "named", named)


def block(*shape: int) -> torch.Tensor:
    return torch.arange(torch.Size(shape).numel(), dtype=torch.float32).reshape(shape)


def at(offset: int, size: int = 4) -> Callable[[], tuple[Any, ...]]:
    return lambda: (block(size), block(4), offset)


def hundred() -> tuple[Any, ...]:
    return block(100), block(100), 100


def shifted_views() -> tuple[Any, ...]:
    whole = block(16)
    return whole[:8], whole[4:12], 8


def rows_with_gaps() -> tuple[Any, ...]:
    return block(4, 16)[:, :10], block(4, 16)[:, :10], 16


def integers(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


def pair(size: int) -> tuple[Any, ...]:
    return block(size), block(size)


def _fault(
    kernel: Any, grid: tuple[int, ...], arguments: Any, argument: str, *words: str, block: int | None = None
) -> Bug:
    return Bug(kernel, grid, arguments, "out_of_bounds", argument, block, words)


p = planted
OUT_OF_BOUNDS = {
    "load past the end": _fault(
        p.copy_without_mask, (2,), hundred, "x", "load of x", "element 100 (byte 400)", block=64
    ),
    "store past the end": _fault(p.store_without_mask, (2,), hundred, "out", "store of out", "element 100 ", block=64),
    "load far away": _fault(p.load_at, (1,), at(10**8), "x", "load of x", "element 100000000 "),
    "load just before": _fault(p.load_at, (1,), at(-1), "x", "load of x", "element -1 (byte -4)"),
    "load of an empty tensor": _fault(p.load_at, (1,), at(0, size=0), "x", "load of x", "no elements"),
    "store one past": _fault(p.store_at, (1,), at(4), "out", "store of out", "element 4 (byte 16)"),
    "store far away": _fault(p.store_at, (1,), at(2**40), "out", "store of out", f"element {2**40} "),
    "store far before": _fault(p.store_at, (1,), at(-(2**40)), "out", "store of out", f"element -{2**40} "),
    "atomic one past": _fault(p.atomic_at, (1,), at(4), "out", "atomic of out", "element 4 (byte 16)"),
    "atomic far before": _fault(p.atomic_at, (1,), at(-(10**9)), "out", "atomic of out", "element -1000000000 "),
    "compare and swap": _fault(
        p.cas_at, (1,), lambda: (torch.zeros(2, dtype=torch.int32), 2), "flags", "atomic of flags", "element 2 (byte 8)"
    ),
    "mask off by one": _fault(p.wrong_mask, (1,), hundred, "x", "load of x", "mask: offs <= n", block=128),
    "wrong stride": _fault(
        p.wrong_stride, (4,), lambda: (block(4, 10), block(4, 10), 4, 10, 16), "x", "load of x", "element 40 ", block=16
    ),
    "negative offset": _fault(p.first_of_next, (4,), lambda: (block(4), block(4), 4), "x", "load of x", "element -1 "),
    "descriptor that promises too much": _fault(
        p.descriptor_too_large, (1,), lambda: (block(8, 8), block(8, 8), 8, 8), "x", "load of x", "element 64 ", block=8
    ),
    "descriptor store": _fault(
        p.descriptor_store_too_large, (1,), lambda: (block(8, 8), 8, 8), "out", "store of out", "element 64 ", block=8
    ),
    "32-bit overflow of row * stride": _fault(
        p.row_of_large_matrix, (1,), lambda: (block(64), block(8), 3, 2**30), "x", "load of x", "overflow", block=8
    ),
    "32-bit overflow in a loop": _fault(
        p.index_in_loop, (1,), lambda: (block(64), block(8), 2**30, 3), "x", "load of x", "overflow", block=8
    ),
    "load on the wrong side of and": _fault(p.guarded_by_and, (2,), lambda: (block(4), block(4)), "x", "element -1 "),
}

WARNINGS = {
    "uninitialised read": Bug(
        p.accumulate, (1,), lambda: (block(8), block(8), 8), "uninitialised_read", "out", 8, uninitialised=("out",)
    ),
    "uninitialised tail": Bug(
        p.unwritten_tail, (1,), lambda: (block(8), block(8), 8), "uninitialised_read", "out", 8, uninitialised=("out",)
    ),
    "atomics on uninitialised memory": Bug(
        p.atomics_on_uninitialised,
        (2,),
        lambda: (block(16), block(4), 16),
        "uninitialised_read",
        "out",
        8,
        uninitialised=("out",),
    ),
    "race of stores": Bug(p.sum_without_atomic, (4,), lambda: (block(32), block(1), 32), "race", "out", 8),
    "race at block edges": Bug(p.overlapping_blocks, (3,), lambda: (block(64),), "race", "out", 8),
    "race of a store and a load": Bug(p.neighbour_in_place, (4,), lambda: (block(32),), "race", "x", 8),
    "race of a load and a store": Bug(p.right_neighbour_in_place, (3,), lambda: (block(32),), "race", "x", 8),
    "race of atomics and a store": Bug(
        p.reset_while_counting,
        (2,),
        lambda: (torch.arange(16, dtype=torch.int32) % 4, torch.zeros(8, dtype=torch.int32)),
        "race",
        "counts",
        8,
    ),
    "race of a store and an atomic of the same element": Bug(
        p.first_program_clears, (4,), lambda: (block(32), torch.full((1,), 7.0)), "race", "total", 8
    ),
    "race between lanes": Bug(p.colliding_lanes, (1,), lambda: (torch.zeros(8, dtype=torch.int32),), "race", "out", 8),
    "overlap of shifted views": Bug(p.shifted_copy, (1,), shifted_views, "overlap", "out", 8),
    "32-bit overflow that stays in bounds": Bug(
        p.row_of_large_matrix, (1,), lambda: (block(64), block(8), 4, 2**30), "address_overflow", "x", 8
    ),
    "store into the gap of a view": Bug(p.fills_the_gap, (4,), rows_with_gaps, "outside_view", "out", 16),
    "load from the gap of a view": Bug(p.reads_the_gap, (4,), rows_with_gaps, "outside_view", "x", 16),
    "a stride that is no multiple": Bug(
        p.promises_multiples, (1,), lambda: (block(64), block(8), 10), "false_promise", None, 8
    ),
    "indices that are not contiguous": Bug(
        p.promises_contiguous, (1,), lambda: (integers(0, 1, 2, 3, 4, 6, 5, 7), *pair(8)), "false_promise", None, 8
    ),
    "indices that are not constant": Bug(
        p.promises_constant, (1,), lambda: (integers(3, 3, 3, 3, 4, 4, 4, 5), *pair(8)), "false_promise", None, 8
    ),
    "pointers that are not aligned": Bug(
        p.promises_aligned_pointers, (1,), lambda: (block(16), block(8)), "false_promise", "x", 8
    ),
    "division by zero": Bug(
        p.divides,
        (2,),
        lambda: (integers(*range(12)), integers(*range(12)), integers(*range(12)), 12),
        "undefined_value",
        "out",
        8,
    ),
    "the least integer divided by -1": Bug(
        p.divides, (1,), lambda: (integers(-(2**31)), integers(-1), integers(0), 1), "undefined_value", "out", 8
    ),
    "a branch on a remainder by zero": Bug(
        p.remainder_decides, (1,), lambda: (integers(4), integers(0), 0), "undefined_value", None
    ),
    "a shift by the width": Bug(
        p.shifts_too_far, (1,), lambda: (integers(*range(8)), integers(*range(8)), 32), "undefined_value", "out", 8
    ),
    "an index beyond what is gathered": Bug(
        p.gathers_beyond,
        (1,),
        lambda: (block(8), integers(0, 1, 2, 3, 4, 5, 6, -1), block(8)),
        "undefined_value",
        "out",
        8,
    ),
    "a plain load of a counter": Bug(
        p.takes_a_number, (4,), lambda: (integers(0), integers(0, 0, 0, 0)), "race", "counter"
    ),
    "a plain load of totals": Bug(
        p.reads_totals_too_early, (3,), lambda: (block(8), block(8), block(8)), "race", "totals", 8
    ),
    "a store after the release": Bug(
        p.writes_after_its_release, (2,), lambda: (integers(0), block(1), block(1)), "race", "data"
    ),
}
