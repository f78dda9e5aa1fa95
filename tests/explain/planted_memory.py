"""Pairs whose slow half waits for memory: how addresses lie, what is fetched twice, how much is under way."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from kernellab.explain.causes import Cause
from tests.explain.planted import KernelCall, Planted, cdiv, random


@triton.jit
def copy_by_columns(x_ptr, out_ptr, rows, columns, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row, column = index % rows, index // rows
    inside = index < rows * columns
    x = tl.load(x_ptr + row * columns + column, mask=inside)  # planted
    tl.store(out_ptr + row * columns + column, x * 2, mask=inside)  # planted


@triton.jit
def copy_by_rows(x_ptr, out_ptr, rows, columns, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = index < rows * columns
    x = tl.load(x_ptr + index, mask=inside)
    tl.store(out_ptr + index, x * 2, mask=inside)


@triton.jit
def length_by_fields(points_ptr, out_ptr, n, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = index < n
    x = tl.load(points_ptr + index * 16, mask=inside)  # planted
    y = tl.load(points_ptr + index * 16 + 5, mask=inside)  # planted
    tl.store(out_ptr + index, x * x + y * y, mask=inside)


@triton.jit
def length_of_arrays(points_ptr, out_ptr, n, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = index < n
    x = tl.load(points_ptr + index, mask=inside)
    y = tl.load(points_ptr + 5 * n + index, mask=inside)
    tl.store(out_ptr + index, x * x + y * y, mask=inside)


@triton.jit
def column_sums_by_column(x_ptr, out_ptr, rows, columns, ROWS: tl.constexpr):
    column = tl.program_id(0)
    total = tl.zeros((ROWS,), tl.float32)
    for start in range(0, rows, ROWS):
        row = start + tl.arange(0, ROWS)
        total += tl.load(x_ptr + row * columns + column, mask=row < rows, other=0.0)  # planted
    tl.store(out_ptr + column, tl.sum(total))


@triton.jit
def column_sums_by_tile(x_ptr, out_ptr, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    first = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    x = tl.load(x_ptr + first[:, None] * columns + column[None, :], mask=(first < rows)[:, None], other=0.0)
    tl.atomic_add(out_ptr + column, tl.sum(x, 0))


@triton.jit
def transpose_by_element(x_ptr, out_ptr, rows, columns, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = index < rows * columns
    x = tl.load(x_ptr + index, mask=inside)
    tl.store(out_ptr + (index % columns) * rows + index // columns, x, mask=inside)  # planted


@triton.jit
def transpose_by_tile(x_ptr, out_ptr, rows, columns, SIDE: tl.constexpr):
    row = tl.program_id(0) * SIDE + tl.arange(0, SIDE)
    column = tl.program_id(1) * SIDE + tl.arange(0, SIDE)
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    x = tl.load(x_ptr + row[:, None] * columns + column[None, :], mask=inside)
    tl.store(out_ptr + column[:, None] * rows + row[None, :], tl.trans(x), mask=tl.trans(inside))


def matrix(large: bool, device: str) -> dict[str, Any]:
    rows, columns = (8192, 8192) if large else (96, 64)
    x = random(rows, columns, device=device)
    return {"x_ptr": x, "out_ptr": torch.empty_like(x), "rows": rows, "columns": columns}


def transposed(large: bool, device: str) -> dict[str, Any]:
    given = matrix(large, device)
    return {**given, "out_ptr": torch.empty(given["columns"], given["rows"], device=device)}


def points(large: bool, device: str) -> dict[str, Any]:
    n = 1 << 22 if large else 200
    return {"points_ptr": random(16 * n, device=device), "out_ptr": torch.empty(n, device=device), "n": n}


def as_arrays(inputs: Any) -> dict[str, Any]:
    n = inputs["n"]
    return {**inputs, "points_ptr": inputs["points_ptr"].view(n, 16).t().contiguous()}


def sums(large: bool, device: str) -> dict[str, Any]:
    given = matrix(large, device)
    return {**given, "out_ptr": torch.zeros(given["columns"], device=device)}


@triton.jit
def widen_rows(x_ptr, starts_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    start = tl.load(starts_ptr + row)
    index = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + start + index, mask=index < columns)  # planted
    tl.store(out_ptr + row * columns + index, x + 1, mask=index < columns)


@triton.jit
def widen_rows_aligned(x_ptr, starts_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    start = tl.multiple_of(tl.load(starts_ptr + row), 16)
    index = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + start + index, mask=index < columns)
    tl.store(out_ptr + row * columns + index, x + 1, mask=index < columns)


@triton.jit
def add_bytes(x_ptr, y_ptr, out_ptr, shift_ptr, BLOCK: tl.constexpr):
    shift = tl.load(shift_ptr)
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK) + shift
    x = tl.load(x_ptr + index)  # planted
    y = tl.load(y_ptr + index)  # planted
    tl.store(out_ptr + index, x + y)  # planted


@triton.jit
def add_bytes_aligned(x_ptr, y_ptr, out_ptr, shift_ptr, BLOCK: tl.constexpr):
    shift = tl.multiple_of(tl.load(shift_ptr), 16)
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK) + shift
    tl.store(out_ptr + index, tl.load(x_ptr + index) + tl.load(y_ptr + index))


def ragged(large: bool, device: str) -> dict[str, Any]:
    rows, columns = (16384, 8192) if large else (5, 64)
    x = random(rows * columns, device=device, dtype=torch.int8 if large else torch.float32)
    x = x if large else (x * 100).to(torch.int8)
    starts = torch.arange(rows, device=device, dtype=torch.int32) * columns
    out = torch.empty(rows * columns, dtype=torch.int8, device=device)
    return {"x_ptr": x, "starts_ptr": starts, "out_ptr": out, "columns": columns}


def halves(large: bool, device: str) -> dict[str, Any]:
    n = 1 << 27 if large else 4096
    x, y = (torch.zeros(n, device=device, dtype=torch.int8) + s for s in (3, 4))
    return {
        "x_ptr": x,
        "y_ptr": y,
        "out_ptr": torch.empty_like(x),
        "shift_ptr": torch.zeros(1, dtype=torch.int32, device=device),
    }


@triton.jit
def softmax_in_passes(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * columns
    best = tl.full((BLOCK,), -float("inf"), tl.float32)
    for start in range(0, columns, BLOCK):
        best = tl.maximum(best, tl.load(x_ptr + row + start + tl.arange(0, BLOCK)))
    top = tl.max(best, 0)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        total += tl.exp(tl.load(x_ptr + row + start + tl.arange(0, BLOCK)) - top)  # planted
    scale = 1 / tl.sum(total, 0)
    for start in range(0, columns, BLOCK):
        x = tl.load(x_ptr + row + start + tl.arange(0, BLOCK))  # planted
        tl.store(out_ptr + row + start + tl.arange(0, BLOCK), tl.exp(x - top) * scale)


@triton.jit
def softmax_at_once(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * columns
    index = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row + index)
    e = tl.exp(x - tl.max(x, 0))
    tl.store(out_ptr + row + index, e / tl.sum(e, 0))


def wide_rows(large: bool, device: str) -> dict[str, Any]:
    rows, columns = (8192, 16384) if large else (3, 512)
    x = random(rows, columns, device=device)
    return {"x_ptr": x, "out_ptr": torch.empty_like(x), "columns": columns}


@triton.jit
def scale_for_each(x_ptr, weights_ptr, out_ptr, n, X_FIRST: tl.constexpr, BLOCK: tl.constexpr):
    block = tl.program_id(0) if X_FIRST else tl.program_id(1)
    batch = tl.program_id(1) if X_FIRST else tl.program_id(0)
    index = block * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + index)  # planted
    weight = tl.load(weights_ptr + batch)
    tl.store(out_ptr + batch.to(tl.int64) * n + index, (x * weight).to(tl.float16))


def shared_input(large: bool, device: str) -> dict[str, Any]:
    n, batches = (65535 * 1024, 8) if large else (2048, 3)  # as many blocks as fit along y
    out = torch.empty(batches * n, dtype=torch.float16, device=device)
    return {"x_ptr": random(n, device=device), "weights_ptr": random(batches, device=device), "out_ptr": out, "n": n}


def batches_of(inputs: Any) -> int:
    return int(inputs["weights_ptr"].numel())


@triton.jit
def strided_table(x_ptr, order_ptr, out_ptr, N: tl.constexpr):
    index = tl.arange(0, N)
    base = tl.program_id(0) * N
    x = tl.load(x_ptr + base + index)
    order = tl.load(order_ptr + index)
    for _ in range(64):
        x = tl.gather(x, order, 0) + 1.0  # planted
    tl.store(out_ptr + base + index, x)


def table_of(conflicting: bool) -> Any:
    def inputs(large: bool, device: str) -> dict[str, Any]:
        n, programs = 1024, 4096 if large else 3
        x = random(n * programs, device=device)
        return {"x_ptr": x, "order_ptr": order(n, conflicting, device), "out_ptr": torch.empty_like(x)}

    return inputs


def order(n: int, conflicting: bool, device: str) -> torch.Tensor:
    """Return which element each lane takes: one of its own bank, or one 32 further for each lane of a warp."""
    index = torch.arange(n, device=device)
    found = (index % 32) * (n // 32) + index // 32 if conflicting else index
    return found.to(torch.int32)


@triton.jit
def sum_of_rows_in_turn(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * columns
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        total = total * 0.5 + tl.load(x_ptr + row + start + tl.arange(0, BLOCK))  # planted
    tl.store(out_ptr + tl.program_id(0), tl.sum(total, 0))


@triton.jit
def sum_of_rows_ahead(x_ptr, out_ptr, columns, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * columns
    total = tl.zeros((BLOCK,), tl.float32)
    for start in tl.range(0, columns, BLOCK, num_stages=STAGES):
        total = total * 0.5 + tl.load(x_ptr + row + start + tl.arange(0, BLOCK))
    tl.store(out_ptr + tl.program_id(0), tl.sum(total, 0))


def few_long_rows(large: bool, device: str) -> dict[str, Any]:
    rows, columns = (264, 1 << 18) if large else (3, 2048)
    return {
        "x_ptr": random(rows, columns, device=device),
        "out_ptr": torch.empty(rows, device=device),
        "columns": columns,
    }


def rows_of(inputs: Any) -> tuple[int, ...]:
    return (int(inputs["out_ptr"].shape[0]),)


@triton.jit
def total_by_element(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + index, mask=index < n, other=0.0)
    tl.atomic_add(out_ptr + index * 0, x, mask=index < n)  # planted


@triton.jit
def total_by_block(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out_ptr, tl.sum(tl.load(x_ptr + index, mask=index < n, other=0.0), 0))


@triton.jit
def count_by_element(x_ptr, out_ptr, n, BINS: tl.constexpr, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + index)
    tl.atomic_add(out_ptr + x % BINS, 1)  # planted


@triton.jit
def count_by_block(x_ptr, out_ptr, n, BINS: tl.constexpr, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    counts = tl.histogram(tl.load(x_ptr + index) % BINS, BINS)
    tl.atomic_add(out_ptr + tl.arange(0, BINS), counts)


def summed(large: bool, device: str) -> dict[str, Any]:
    n = 1 << 24 if large else 3000
    return {"x_ptr": random(n, device=device), "out_ptr": torch.zeros(1, device=device), "n": n}


def counted(large: bool, device: str) -> dict[str, Any]:
    n = 1 << 24 if large else 4096
    x = torch.arange(n, device=device, dtype=torch.int32) * 5 // 3
    return {"x_ptr": x, "out_ptr": torch.zeros(8, dtype=torch.int32, device=device), "n": n}


def over(name: str, block: int) -> Any:
    return lambda inputs: (cdiv(int(inputs[name].numel()), block),)


UNCOALESCED = (Cause.UNCOALESCED,)
MEMORY_PAIRS = (
    Planted(
        "copy, columns first",
        UNCOALESCED,
        KernelCall(copy_by_columns, over("x_ptr", 1024), {"BLOCK": 1024}),
        KernelCall(copy_by_rows, over("x_ptr", 1024), {"BLOCK": 1024}),
        matrix,
        ("out_ptr",),
    ),
    Planted(
        "array of structures",
        UNCOALESCED,
        KernelCall(length_by_fields, over("out_ptr", 1024), {"BLOCK": 1024}),
        KernelCall(length_of_arrays, over("out_ptr", 1024), {"BLOCK": 1024}, as_arrays),
        points,
        ("out_ptr",),
    ),
    Planted(
        "column sums, a column each",
        UNCOALESCED,
        KernelCall(column_sums_by_column, lambda i: (i["columns"],), {"ROWS": 1024}),
        KernelCall(
            column_sums_by_tile,
            lambda i: (cdiv(i["columns"], 32), cdiv(i["rows"], 128)),
            {"ROWS": 128, "COLUMNS": 32},
        ),
        sums,
        ("out_ptr",),
        tolerance=1e-2,
    ),
    Planted(
        "transpose by element",
        UNCOALESCED,
        KernelCall(transpose_by_element, over("x_ptr", 1024), {"BLOCK": 1024}),
        KernelCall(transpose_by_tile, lambda i: (cdiv(i["rows"], 64), cdiv(i["columns"], 64)), {"SIDE": 64}),
        transposed,
        ("out_ptr",),
    ),
    Planted(
        "rows of unknown start, int8",
        (Cause.NARROW,),
        KernelCall(widen_rows, lambda i: (i["starts_ptr"].numel(),), {"BLOCK": 8192}),
        KernelCall(widen_rows_aligned, lambda i: (i["starts_ptr"].numel(),), {"BLOCK": 8192}),
        ragged,
        ("out_ptr",),
    ),
    Planted(
        "shift of unknown alignment, int8",
        (Cause.NARROW,),
        KernelCall(add_bytes, over("x_ptr", 4096), {"BLOCK": 4096}),
        KernelCall(add_bytes_aligned, over("x_ptr", 4096), {"BLOCK": 4096}),
        halves,
        ("out_ptr",),
    ),
    Planted(
        "softmax in three passes",
        (Cause.REREAD,),
        KernelCall(softmax_in_passes, lambda i: (i["x_ptr"].shape[0],), {"BLOCK": 512}),
        KernelCall(
            softmax_at_once,
            lambda i: (i["x_ptr"].shape[0],),
            {"num_warps": 16},
            lambda i: {**i, "BLOCK": i["columns"]},
        ),
        wide_rows,
        ("out_ptr",),
    ),
    Planted(
        "shared input, far apart",
        (Cause.ORDER,),
        KernelCall(
            scale_for_each,
            lambda i: (cdiv(i["n"], 1024), batches_of(i)),
            {"X_FIRST": True, "BLOCK": 1024},
        ),
        KernelCall(
            scale_for_each,
            lambda i: (batches_of(i), cdiv(i["n"], 1024)),
            {"X_FIRST": False, "BLOCK": 1024},
        ),
        shared_input,
        ("out_ptr",),
    ),
    Planted(
        "row sums, one load at a time",
        (Cause.NO_PIPELINE,),
        KernelCall(sum_of_rows_in_turn, rows_of, {"BLOCK": 1024}),
        KernelCall(sum_of_rows_ahead, rows_of, {"BLOCK": 1024, "STAGES": 6}),
        few_long_rows,
        ("out_ptr",),
    ),
    Planted(
        "an atomic per element",
        (Cause.ATOMICS,),
        KernelCall(total_by_element, over("x_ptr", 1024), {"BLOCK": 1024}),
        KernelCall(total_by_block, over("x_ptr", 1024), {"BLOCK": 1024}),
        summed,
        ("out_ptr",),
        tolerance=0.5,
    ),
    Planted(
        "a histogram by atomics",
        (Cause.ATOMICS,),
        KernelCall(count_by_element, over("x_ptr", 4096), {"BLOCK": 4096, "BINS": 8}),
        KernelCall(count_by_block, over("x_ptr", 4096), {"BLOCK": 4096, "BINS": 8}),
        counted,
        ("out_ptr",),
    ),
    Planted(
        "gather across one bank",
        (Cause.CONFLICTS,),
        KernelCall(strided_table, lambda i: (i["x_ptr"].numel() // 1024,), {"N": 1024}),
        KernelCall(
            strided_table,
            lambda i: (i["x_ptr"].numel() // 1024,),
            {"N": 1024},
            lambda i: {**i, "order_ptr": order(1024, False, i["x_ptr"].device)},
        ),
        table_of(conflicting=True),
        (),
    ),
)
