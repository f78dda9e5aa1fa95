"""Kernels whose times are recorded beside those of `tune_kernels`, to fit and to judge a model of time.

Copies, reductions along each axis, atomics with few and many collisions, a quantised and a grouped product, and the
gradients of an attention.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    places = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = places < n
    tl.store(out_ptr + places, tl.load(x_ptr + places, mask=mask) + tl.load(y_ptr + places, mask=mask), mask=mask)


@triton.jit
def gelu(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    places = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + places, mask=places < n).to(tl.float32)
    result = 0.5 * x * (1 + tl.erf(x * 0.70710678))
    tl.store(out_ptr + places, result.to(tl.float16), mask=places < n)


@triton.jit
def strided_copy(x_ptr, out_ptr, n, stride, BLOCK: tl.constexpr):
    places = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + places, tl.load(x_ptr + places * stride, mask=places < n), mask=places < n)


@triton.jit
def transpose(x_ptr, out_ptr, rows, columns, BM: tl.constexpr, BN: tl.constexpr):
    lines, lanes = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    mask = (lines[:, None] < rows) & (lanes[None, :] < columns)
    tile = tl.load(x_ptr + lines[:, None] * columns + lanes[None, :], mask=mask)
    tl.store(out_ptr + lanes[None, :] * rows + lines[:, None], tile, mask=mask)


@triton.jit
def row_sum(x_ptr, out_ptr, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    lines = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    total = tl.zeros((ROWS, BLOCK), dtype=tl.float32)
    for start in range(0, columns, BLOCK):
        lanes = start + tl.arange(0, BLOCK)
        mask = (lines[:, None] < rows) & (lanes[None, :] < columns)
        total += tl.load(x_ptr + lines[:, None] * columns + lanes[None, :], mask=mask, other=0.0)
    tl.store(out_ptr + lines, tl.sum(total, axis=1), mask=lines < rows)


@triton.jit
def column_sum(x_ptr, out_ptr, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    lanes = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((ROWS, BLOCK), dtype=tl.float32)
    for start in range(0, rows, ROWS):
        lines = start + tl.arange(0, ROWS)
        mask = (lines[:, None] < rows) & (lanes[None, :] < columns)
        total += tl.load(x_ptr + lines[:, None] * columns + lanes[None, :], mask=mask, other=0.0)
    tl.store(out_ptr + lanes, tl.sum(total, axis=0), mask=lanes < columns)


@triton.jit
def total_sum(x_ptr, out_ptr, n, BLOCK: tl.constexpr, ROUNDS: tl.constexpr):
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    first = tl.program_id(0) * (BLOCK * ROUNDS)
    for step in range(ROUNDS):
        places = first + step * BLOCK + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + places, mask=places < n, other=0.0)
    tl.atomic_add(out_ptr, tl.sum(total, axis=0), sem="relaxed")


@triton.jit
def scatter_add(x_ptr, index_ptr, out_ptr, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = places < n
    slots = tl.load(index_ptr + places, mask=mask, other=0)
    tl.atomic_add(out_ptr + slots, tl.load(x_ptr + places, mask=mask), mask=mask, sem="relaxed")


@triton.jit
def cumulative_sum(x_ptr, out_ptr, columns, WIDTH: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * columns + tl.arange(0, WIDTH)
    mask = tl.arange(0, WIDTH) < columns
    tl.store(out_ptr + place, tl.cumsum(tl.load(x_ptr + place, mask=mask, other=0.0), axis=0), mask=mask)


@triton.jit
def quantised_product(
    a_ptr, b_ptr, scale_ptr, c_ptr, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    tiles_n = tl.cdiv(n, BN)
    rows = tl.program_id(0) // tiles_n * BM + tl.arange(0, BM)
    columns = tl.program_id(0) % tiles_n * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    left = a_ptr + (rows % m)[:, None] * k + inner[None, :]
    right = b_ptr + inner[:, None] * n + (columns % n)[None, :]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(tl.cdiv(k, BK)):
        total = tl.dot(tl.load(left), tl.load(right).to(tl.float16), total)
        left += BK
        right += BK * n
    total *= tl.load(scale_ptr + columns % n)[None, :]
    mask = (rows[:, None] < m) & (columns[None, :] < n)
    tl.store(c_ptr + rows[:, None] * n + columns[None, :], total.to(tl.float16), mask=mask)


@triton.jit
def grouped_product(
    a_ptr, b_ptr, c_ptr, bounds_ptr, groups, n, k, PROGRAMS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    BK: tl.constexpr,
):  # fmt: skip
    tile, tiles_n, before = tl.program_id(0), tl.cdiv(n, BN), 0
    inner = tl.arange(0, BK)
    for group in range(groups):
        start, end = tl.load(bounds_ptr + group), tl.load(bounds_ptr + group + 1)
        after = before + tl.cdiv(end - start, BM) * tiles_n
        while (tile >= before) & (tile < after):
            rows = start + (tile - before) // tiles_n * BM + tl.arange(0, BM)
            columns = (tile - before) % tiles_n * BN + tl.arange(0, BN)
            left = a_ptr + rows[:, None] * k + inner[None, :]
            right = b_ptr + group * k * n + inner[:, None] * n + columns[None, :]
            total = tl.zeros((BM, BN), dtype=tl.float32)
            for _ in range(tl.cdiv(k, BK)):
                total = tl.dot(tl.load(left, mask=rows[:, None] < end, other=0.0), tl.load(right), total)
                left += BK
                right += BK * n
            mask = (rows[:, None] < end) & (columns[None, :] < n)
            tl.store(c_ptr + rows[:, None] * n + columns[None, :], total.to(tl.float16), mask=mask)
            tile += PROGRAMS
        before = after


@triton.jit
def attention_backward(
    q_ptr, k_ptr, v_ptr, do_ptr, dk_ptr, dv_ptr, high_ptr, delta_ptr, length, scale, WIDTH: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    base = tl.program_id(1).to(tl.int64) * length * WIDTH
    row_base = tl.program_id(1).to(tl.int64) * length
    keys, lanes = tl.program_id(0) * BN + tl.arange(0, BN), tl.arange(0, WIDTH)
    own = base + keys[:, None] * WIDTH + lanes[None, :]
    k, v = tl.load(k_ptr + own), tl.load(v_ptr + own)
    dk = tl.zeros((BN, WIDTH), dtype=tl.float32)
    dv = tl.zeros((BN, WIDTH), dtype=tl.float32)
    for start in range(0, length, BM):
        rows = start + tl.arange(0, BM)
        place = base + rows[:, None] * WIDTH + lanes[None, :]
        q, do = tl.load(q_ptr + place), tl.load(do_ptr + place)
        high, delta = tl.load(high_ptr + row_base + rows), tl.load(delta_ptr + row_base + rows)
        weight = tl.exp2(tl.dot(k, tl.trans(q)) * (scale * 1.44269504) - high[None, :])
        dv = tl.dot(weight.to(tl.float16), do, dv)
        ds = weight * (tl.dot(v, tl.trans(do)) - delta[None, :])
        dk = tl.dot(ds.to(tl.float16), q, dk)
    tl.store(dk_ptr + own, (dk * scale).to(tl.float16))
    tl.store(dv_ptr + own, dv.to(tl.float16))
