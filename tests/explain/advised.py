"""Kernels with one flaw each, and what the advice of an explanation makes of them."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def copy_masked(x, y, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    tl.store(y + offs, tl.load(x + offs, mask=mask), mask=mask)


@triton.jit
def copy_masked_with_hints(x, y, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    offs = tl.max_contiguous(tl.multiple_of(offs, BLOCK), BLOCK)
    tl.store(y + offs, tl.load(x + offs, mask=mask), mask=mask)


@triton.jit
def copy_of_known_length(x, y, n: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    tl.store(y + offs, tl.load(x + offs, mask=mask), mask=mask)


@triton.jit
def copy_by_branch(x, y, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if (tl.program_id(0) + 1) * BLOCK <= n:
        tl.store(y + offs, tl.load(x + offs))
    else:
        mask = offs < n
        tl.store(y + offs, tl.load(x + offs, mask=mask), mask=mask)


@triton.jit
def copy_rows(x, y, rows, columns, stride, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, COLUMNS)[None, :]
    mask = (row < rows) & (column < columns)
    tl.store(y + row * columns + column, tl.load(x + row * stride + column, mask=mask), mask=mask)


@triton.jit
def gather_with_stride(x, y, STRIDE: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + offs, tl.load(x + offs * STRIDE))


@triton.jit
def gather_in_another_order(x, y, STRIDE: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.ravel(tl.trans(tl.reshape(tl.arange(0, BLOCK), (BLOCK // 32, 32))))
    tl.store(y + offs, tl.load(x + offs * STRIDE))


@triton.jit
def sums_by_thread(x, y, COLUMNS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for column in range(COLUMNS):
        total += tl.load(x + row * COLUMNS + column)
    tl.store(y + row, total)


@triton.jit
def sums_by_tile(x, y, COLUMNS: tl.constexpr, BLOCK: tl.constexpr, PART: tl.constexpr):
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, COLUMNS, PART):
        column = start + tl.arange(0, PART)
        total += tl.sum(tl.load(x + row[:, None] * COLUMNS + column[None, :]), axis=1)
    tl.store(y + row, total)


@triton.jit
def nearest(x, points, y, n, EACH: tl.constexpr, BLOCK: tl.constexpr):
    """The distance from each point to the nearest of all x, for as many points as a program takes."""
    own = tl.program_id(0) * EACH + tl.arange(0, EACH)
    point = tl.load(points + own)
    best = tl.full((EACH,), float("inf"), tl.float32)
    for start in range(0, n, BLOCK):
        others = tl.load(x + start + tl.arange(0, BLOCK))
        best = tl.minimum(best, tl.min(tl.abs(others[None, :] - point[:, None]), axis=1))
    tl.store(y + own, best)


@triton.jit
def variances_in_passes(x, y, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * columns
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        total += tl.load(x + row + start + tl.arange(0, BLOCK))
    mean = tl.sum(total, 0) / columns
    squares = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        centred = tl.load(x + row + start + tl.arange(0, BLOCK)) - mean
        squares += centred * centred
    tl.store(y + tl.program_id(0), tl.sum(squares, 0) / columns)


@triton.jit
def variances_in_one_pass(x, y, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * columns
    total = tl.zeros((BLOCK,), tl.float32)
    squares = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        part = tl.load(x + row + start + tl.arange(0, BLOCK))
        total += part
        squares += part * part
    mean = tl.sum(total, 0) / columns
    tl.store(y + tl.program_id(0), tl.sum(squares, 0) / columns - mean * mean)


@triton.jit
def softmax_online(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * columns
    best = tl.full((BLOCK,), -float("inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        part = tl.load(x_ptr + row + start + tl.arange(0, BLOCK))
        higher = tl.maximum(best, part)
        total = total * tl.exp(best - higher) + tl.exp(part - higher)
        best = higher
    top = tl.max(best, 0)
    scale = 1 / tl.sum(total * tl.exp(best - top), 0)
    for start in range(0, columns, BLOCK):
        part = tl.load(x_ptr + row + start + tl.arange(0, BLOCK))
        tl.store(out_ptr + row + start + tl.arange(0, BLOCK), tl.exp(part - top) * scale)
