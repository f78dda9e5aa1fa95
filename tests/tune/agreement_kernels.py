"""Right kernels that leave other contents for another config, and lists of configs some of which are wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

N, ROWS, COLUMNS = 1025, 32, 64
UNREPEATED = -1


@dataclass(frozen=True)
class Case:
    """A kernel, what its arguments are made of, and configs, with the group of outputs of each: equal ones in one."""

    name: str
    kernel: Any
    grid: Callable[[dict[str, int]], tuple[int, ...]]
    arguments: Callable[[str], tuple[Any, ...]]
    configs: Sequence[Any]
    groups: Sequence[int]


@triton.jit
def norm_backward(dy_ptr, x_ptr, partial_ptr, lock_ptr, count_ptr, COLUMNS: tl.constexpr, GROUPS: tl.constexpr):
    row = tl.program_id(0)
    group = row % GROUPS
    columns = tl.arange(0, COLUMNS)
    here = row * COLUMNS + columns
    sums = tl.load(dy_ptr + here) * tl.load(x_ptr + here)
    while tl.atomic_cas(lock_ptr + group, 0, 1) == 1:
        pass
    count = tl.load(count_ptr + group)
    target = partial_ptr + group * COLUMNS + columns
    if count == 0:
        tl.atomic_xchg(count_ptr + group, 1)
    else:
        sums += tl.load(target)
    tl.store(target, sums)
    tl.debug_barrier()
    tl.atomic_xchg(lock_ptr + group, 0)


@triton.jit
def partial_sums(x_ptr, scratch_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(scratch_ptr + tl.program_id(0), tl.sum(tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)))


@triton.jit
def partial_rows(x_ptr, scratch_ptr, COLUMNS: tl.constexpr, BLOCK: tl.constexpr):
    columns = tl.arange(0, COLUMNS)
    sums = tl.zeros((COLUMNS,), tl.float32)
    for row in range(BLOCK):
        sums += tl.load(x_ptr + (tl.program_id(0) * BLOCK + row) * COLUMNS + columns)
    tl.store(scratch_ptr + tl.program_id(0) * COLUMNS + columns, sums)


@triton.jit
def split_sum(x_ptr, work_ptr, COLUMNS: tl.constexpr, ROWS: tl.constexpr, SPLIT: tl.constexpr, ZERO: tl.constexpr):
    columns, part = tl.arange(0, COLUMNS), tl.program_id(0)
    sums = tl.zeros((COLUMNS,), tl.float32)
    for row in range(part, ROWS, SPLIT):
        sums += tl.load(x_ptr + row * COLUMNS + columns)
    tl.store(work_ptr + part * COLUMNS + columns, sums)
    if ZERO:
        for rest in range(SPLIT + part, 16, SPLIT):
            tl.store(work_ptr + rest * COLUMNS + columns, tl.zeros((COLUMNS,), tl.float32))


@triton.jit
def atomic_sum(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out_ptr, tl.sum(tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)))


@triton.jit
def atomic_columns(x_ptr, out_ptr, COLUMNS: tl.constexpr, BLOCK: tl.constexpr):
    columns = tl.arange(0, COLUMNS)
    sums = tl.zeros((COLUMNS,), tl.float32)
    for row in range(BLOCK):
        sums += tl.load(x_ptr + (tl.program_id(0) * BLOCK + row) * COLUMNS + columns)
    tl.atomic_add(out_ptr + columns, sums)


@triton.jit
def histograms(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x_ptr + offsets, mask=offsets < n, other=0)
    tl.store(out_ptr + tl.program_id(0) * 16 + tl.arange(0, 16), tl.histogram(values, 16))


@triton.jit
def noise(out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.rand(tl.program_id(0), tl.arange(0, BLOCK)), mask=offsets < n)


@triton.jit
def dropout(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    kept = tl.rand(BLOCK, offsets) > 0.5
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(out_ptr + offsets, tl.where(kept, 2 * x, 0.0), mask=offsets < n)


@triton.jit
def padded(x_ptr, out_ptr, COLUMNS: tl.constexpr, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * COLUMNS + columns, mask=columns < COLUMNS, other=0.0)
    tl.store(out_ptr + tl.program_id(0) * BLOCK + columns, x)


@triton.jit
def with_tail(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n))


@triton.jit
def with_counter(x_ptr, out_ptr, programs_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n) * 2, mask=offsets < n)
    tl.atomic_add(programs_ptr, 1)


@triton.jit
def winners(x_ptr, best_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=-1.0)
    tl.store(best_ptr + tl.program_id(0), tl.argmax(x, 0))


@triton.jit
def arrivals(counter_ptr, order_ptr, BLOCK: tl.constexpr):
    place = tl.atomic_add(counter_ptr, 1)
    tl.store(order_ptr + place, tl.program_id(0) + BLOCK)


@triton.jit
def block_scan(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
    tl.store(out_ptr + offsets, tl.cumsum(x, 0), mask=offsets < n)


@triton.jit
def sum_of_last(x_ptr, scratch_ptr, count_ptr, out_ptr, n, BLOCK: tl.constexpr, MOST: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(scratch_ptr + tl.program_id(0), tl.sum(tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)))
    tl.debug_barrier()
    if tl.atomic_add(count_ptr, 1) == tl.num_programs(0) - 1:
        parts = tl.arange(0, MOST)
        loaded = tl.load(scratch_ptr + parts, mask=parts < tl.num_programs(0), other=0.0, volatile=True)
        tl.store(out_ptr, tl.sum(loaded))


@triton.jit
def tiled(x_ptr, out_ptr, COLUMNS: tl.constexpr, BLOCK: tl.constexpr):
    rows, columns = tl.arange(0, BLOCK), tl.arange(0, COLUMNS)
    here = (tl.program_id(0) * BLOCK + rows[:, None]) * COLUMNS + columns[None, :]
    there = tl.program_id(0) * BLOCK * COLUMNS + columns[None, :] * BLOCK + rows[:, None]
    tl.store(out_ptr + there, tl.load(x_ptr + here))


@triton.jit
def block_sort(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=9.0)
    tl.store(out_ptr + offsets, tl.sort(x))


@triton.jit
def quantize(x_ptr, out_ptr, scale_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
    scale = tl.max(tl.abs(x), 0) / 127.0
    tl.store(out_ptr + offsets, (x / scale).to(tl.int8), mask=offsets < n)
    tl.store(scale_ptr + tl.program_id(0), scale)


@triton.jit
def moments(x_ptr, mean_ptr, square_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
    tl.store(mean_ptr + tl.program_id(0), tl.sum(x) / BLOCK)
    tl.store(square_ptr + tl.program_id(0), tl.sum(x * x) / BLOCK)


@triton.jit
def mistaken(x_ptr, out_ptr, n, BLOCK: tl.constexpr, BUG: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    if BUG == 1:
        x = x * 2
    if BUG == 2:
        mask = mask & (offsets % 7 != 3)
    if BUG == 3:
        x = tl.load(x_ptr + offsets + 1, mask=offsets + 1 < n, other=0.0)
    if BUG == 4:
        x = x.to(tl.float8e5).to(tl.float32)
    if BUG == 5:
        mask = mask & (offsets != n - 1)
    if BUG == 6:
        x = tl.where(offsets % BLOCK == 0, float("nan"), x)
    if BUG == 7:
        x = x + 0.05 * (offsets == 5)
    if BUG == 8:
        x = -x
    if BUG == 9:
        x = tl.load(x_ptr + tl.arange(0, BLOCK))
    tl.store(out_ptr + offsets, x, mask=mask)


@triton.jit
def row_norm(x_ptr, out_ptr, COLUMNS: tl.constexpr, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * COLUMNS + columns, mask=columns < COLUMNS, other=0.0)
    norm = tl.sqrt(tl.sum(x * x) / COLUMNS)
    tl.store(out_ptr + tl.program_id(0) * COLUMNS + columns, x / norm, mask=columns < COLUMNS)


@triton.jit
def column_sum(x_ptr, out_ptr, COLUMNS: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    columns, rows = tl.arange(0, COLUMNS), tl.arange(0, BLOCK)
    sums = tl.zeros((COLUMNS,), tl.float32)
    for start in range(ROWS // BLOCK):  # which loses the rest
        here = (start * BLOCK + rows[:, None]) * COLUMNS + columns[None, :]
        sums += tl.sum(tl.load(x_ptr + here), 0)
    tl.store(out_ptr + columns, sums)


def blocks(*sizes: int, name: str = "BLOCK", warps: Sequence[int] = (4,), **more: int) -> list[Any]:
    return [triton.Config({name: size, **more}, num_warps=count) for size in sizes for count in warps]


def each_program(meta: dict[str, int]) -> tuple[int, ...]:
    return (triton.cdiv(N, meta["BLOCK"]),)


def each_rows(meta: dict[str, int]) -> tuple[int, ...]:
    return (ROWS // meta["BLOCK"],)


def every_row(meta: dict[str, int]) -> tuple[int, ...]:
    return (ROWS,)


def vector(device: str, n: int = N) -> torch.Tensor:
    return (torch.arange(n, dtype=torch.float32, device=device) * 0.37).sin() + 1.5


def matrix(device: str, rows: int = ROWS) -> torch.Tensor:
    return vector(device, rows * COLUMNS).view(rows, COLUMNS)


def empty(device: str, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.full(shape, -1, dtype=dtype, device=device)


def zeros(device: str, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.zeros(shape, dtype=dtype, device=device)


FOUR = blocks(64, 128, 256, 512)
PAIRS = blocks(64, 128, 256, 512, warps=(2, 4))
IN_PAIRS = (0, 0, 1, 1, 2, 2, 3, 3)
SCRATCH = 2048

RIGHT = [
    Case(
        "norm backward with a lock",
        norm_backward,
        every_row,
        lambda d: (
            matrix(d),
            matrix(d),
            zeros(d, 16, COLUMNS),
            *(zeros(d, 16, dtype=torch.int32) for _ in "lc"),
            COLUMNS,
        ),
        blocks(1, 2, 4, 8, 16, name="GROUPS", warps=(1, 2)),
        (0, 0, 1, 1, 2, 2, 3, 3, 4, 4),
    ),
    Case("partial sums", partial_sums, each_program, lambda d: (vector(d), empty(d, 32), N), PAIRS, IN_PAIRS),
    Case(
        "partial rows",
        partial_rows,
        each_rows,
        lambda d: (matrix(d), empty(d, ROWS, COLUMNS), COLUMNS),
        blocks(1, 2, 4, 8),
        (0, 1, 2, 3),
    ),
    Case(
        "split without zeroing",
        split_sum,
        lambda meta: (meta["SPLIT"],),
        lambda d: (matrix(d), empty(d, 16, COLUMNS), COLUMNS, ROWS),
        blocks(1, 2, 4, 8, 16, name="SPLIT", ZERO=0),
        (0, 1, 2, 3, 4),
    ),
    Case(
        "split with zeroing",
        split_sum,
        lambda meta: (meta["SPLIT"],),
        lambda d: (matrix(d), empty(d, 16, COLUMNS), COLUMNS, ROWS),
        blocks(1, 2, 4, 8, name="SPLIT", ZERO=1),
        (0, 1, 2, 3),
    ),
    Case("a float atomic", atomic_sum, each_program, lambda d: (vector(d), zeros(d, 1), N), FOUR, (0, 0, 0, 0)),
    Case(
        "float atomics per column",
        atomic_columns,
        each_rows,
        lambda d: (matrix(d), zeros(d, COLUMNS), COLUMNS),
        blocks(1, 2, 4, 8),
        (0, 0, 0, 0),
    ),
    Case(
        "histograms per program",
        histograms,
        each_program,
        lambda d: ((vector(d) * 5).to(torch.int32), empty(d, 512, dtype=torch.int32), N),
        PAIRS,
        IN_PAIRS,
    ),
    Case("noise per block", noise, each_program, lambda d: (empty(d, N), N), FOUR, (0, 1, 2, 3)),
    Case("a seed per block size", dropout, each_program, lambda d: (vector(d), empty(d, N), N), PAIRS, IN_PAIRS),
    Case(
        "padded rows",
        padded,
        every_row,
        lambda d: (matrix(d), empty(d, ROWS * 512), COLUMNS),
        blocks(64, 128, 256, 512),
        (0, 1, 2, 3),
    ),
    Case(
        "an uninitialised tail",
        with_tail,
        each_program,
        lambda d: (vector(d), empty(d, SCRATCH), N),
        FOUR,
        (0, 1, 2, 3),
    ),
    Case(
        "a counter of programs",
        with_counter,
        each_program,
        lambda d: (vector(d), empty(d, N), zeros(d, 1, dtype=torch.int32), N),
        PAIRS,
        IN_PAIRS,
    ),
    Case(
        "a winner per block",
        winners,
        each_program,
        lambda d: (vector(d), empty(d, 32, dtype=torch.int32), N),
        FOUR,
        (0, 1, 2, 3),
    ),
    Case(
        "an order of arrival",
        arrivals,
        lambda meta: (256,),
        lambda d: (zeros(d, 1, dtype=torch.int32), empty(d, 256, dtype=torch.int32)),
        blocks(0, 1000, 2000, 3000),
        (UNREPEATED,) * 4,
    ),
    Case("a scan per block", block_scan, each_program, lambda d: (vector(d), empty(d, N), N), PAIRS, IN_PAIRS),
    Case(
        "a sum by the last program",
        sum_of_last,
        each_program,
        lambda d: (vector(d), empty(d, 32), zeros(d, 1, dtype=torch.int32), empty(d, 1), N),
        [triton.Config({"BLOCK": block, "MOST": 32}) for block in (64, 128, 256, 512)],
        (0, 1, 2, 3),
    ),
    Case(
        "tiles",
        tiled,
        each_rows,
        lambda d: (matrix(d), empty(d, ROWS, COLUMNS), COLUMNS),
        blocks(1, 2, 4, 8),
        (0, 1, 2, 3),
    ),
    Case("a sort per block", block_sort, each_program, lambda d: (vector(d), empty(d, SCRATCH), N), FOUR, (0, 1, 2, 3)),
    Case(
        "moments per block",
        moments,
        each_program,
        lambda d: (vector(d), empty(d, 32), empty(d, 32), N),
        PAIRS,
        IN_PAIRS,
    ),
    Case(
        "scales per block",
        quantize,
        each_program,
        lambda d: (vector(d), empty(d, N, dtype=torch.int8), empty(d, 32), N),
        FOUR,
        (0, 1, 2, 3),
    ),
]


def mistakes(name: str, *bugs: int) -> Case:
    """Return configs of one kernel with these mistakes, 0 for none: sizes and warps go through all alike."""
    sizes = (64, 128, 256, 512)
    configs = [
        triton.Config({"BLOCK": sizes[i % 4], "BUG": bug}, num_warps=(2, 4, 8)[i // 4 % 3])
        for i, bug in enumerate(bugs)
    ]
    return Case(name, mistaken, each_program, lambda d: (vector(d), empty(d, N), N), configs, bugs)


WRONG = [
    mistakes("twice, of three", 0, 1, 0),
    mistakes("twice, the first", 1, 0, 0, 0),
    mistakes("twice, the last", 0, 0, 0, 1),
    mistakes("elements left out", 0, 2, 0, 0),
    mistakes("a neighbour", 3, 0, 0),
    mistakes("too coarse a format", 0, 0, 4),
    mistakes("the last element left out", 0, 5, 0),
    mistakes("some not a number", 6, 0, 0, 0, 6),
    mistakes("one element, by a little", 0, 7, 0),
    mistakes("another sign", 0, 0, 8, 0),
    mistakes("one block in place of all", 9, 0, 0),
    mistakes("two alike", 1, 1, 0, 0, 0),
    mistakes("two unlike", 1, 2, 0, 0, 0),
    mistakes("three unlike at first", 1, 2, 3, 0, 0, 0, 0),
    mistakes("five unlike at first", 1, 2, 3, 4, 5, 0, 0, 0, 0, 0, 0),
    mistakes("five unlike at last", 0, 0, 0, 0, 0, 0, 8, 7, 5, 3, 2),
    mistakes("five unlike in between", 0, 1, 0, 2, 0, 3, 0, 4, 0, 5, 0),
    mistakes("just more than half", 8, 8, 8, 1, 1, 0, 0, 0, 0, 0, 0),
    Case(
        "blocks too small for a row",
        row_norm,
        every_row,
        lambda d: (matrix(d), empty(d, ROWS, COLUMNS), COLUMNS),
        blocks(16, 32, 64, 128, 256),
        (1, 2, 0, 0, 0),
    ),
    Case(
        "a rest that is lost",
        column_sum,
        lambda meta: (1,),
        lambda d: (matrix(d, 24), empty(d, COLUMNS), COLUMNS, 24),
        blocks(1, 2, 4, 8, 16),
        (0, 0, 0, 0, 1),
    ),
]
