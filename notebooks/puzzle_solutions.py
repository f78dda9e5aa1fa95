"""One solution for each of the twelve puzzles. There are others."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def copy_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets))


@triton.jit
def double_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, 2 * tl.load(x_ptr + offsets, mask=mask), mask=mask)


@triton.jit
def reverse_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + n - 1 - offsets, mask=mask), mask=mask)


@triton.jit
def table_kernel(rows_ptr, columns_ptr, out_ptr, m, n, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    i = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    j = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    rows = tl.load(rows_ptr + i, mask=i < m)
    columns = tl.load(columns_ptr + j, mask=j < n)
    mask = (i[:, None] < m) & (j[None, :] < n)
    tl.store(out_ptr + i[:, None] * n + j[None, :], rows[:, None] + columns[None, :], mask=mask)


@triton.jit
def transpose_kernel(x_ptr, out_ptr, m, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    mask = (i < m) & (j < n)
    tl.store(out_ptr + j * m + i, tl.load(x_ptr + i * n + j, mask=mask), mask=mask)


@triton.jit
def row_sum_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + row * n + offsets, mask=offsets < n, other=0.0)
    tl.store(out_ptr + row, tl.sum(total, axis=0))


@triton.jit
def softmax_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * n + offsets, mask=offsets < n, other=-float("inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * n + offsets, e / tl.sum(e, axis=0), mask=offsets < n)


@triton.jit
def gather_kernel(table_ptr, index_ptr, out_ptr, width, BLOCK: tl.constexpr):
    i = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < width
    row = tl.load(index_ptr + i)
    tl.store(out_ptr + i * width + offsets, tl.load(table_ptr + row * width + offsets, mask=mask), mask=mask)


@triton.jit
def histogram_kernel(x_ptr, counts_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0)
    tl.atomic_add(counts_ptr + x, 1, mask=mask)


@triton.jit
def logsumexp_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    largest = -float("inf")
    s = 0.0
    for start in range(0, n, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * n + offsets, mask=offsets < n, other=-float("inf"))
        raised = tl.maximum(largest, tl.max(x, axis=0))
        s = s * tl.exp(largest - raised) + tl.sum(tl.exp(x - raised), axis=0)
        largest = raised
    tl.store(out_ptr + row, tl.log(s) + largest)


@triton.jit
def matmul_kernel(a_ptr, b_ptr, out_ptr, m, n, k, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for start in range(0, k, BLOCK):
        inner = start + tl.arange(0, BLOCK)
        a = tl.load(a_ptr + i[:, None] * k + inner[None, :], mask=(i[:, None] < m) & (inner[None, :] < k), other=0.0)
        b = tl.load(b_ptr + inner[:, None] * n + j[None, :], mask=(inner[:, None] < k) & (j[None, :] < n), other=0.0)
        total = tl.dot(a, b, total)
    mask = (i[:, None] < m) & (j[None, :] < n)
    tl.store(out_ptr + i[:, None] * n + j[None, :], total.to(tl.float16), mask=mask)


@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, n, scale, WIDTH: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr
):
    rows = tl.program_id(0) * QUERIES + tl.arange(0, QUERIES)
    columns = tl.arange(0, WIDTH)
    places = rows[:, None] * WIDTH + columns[None, :]
    q = tl.load(q_ptr + places, mask=rows[:, None] < n, other=0.0)
    largest = tl.full((QUERIES,), -float("inf"), dtype=tl.float32)
    total = tl.zeros((QUERIES,), dtype=tl.float32)
    out = tl.zeros((QUERIES, WIDTH), dtype=tl.float32)
    for start in range(0, n, KEYS):
        keys = start + tl.arange(0, KEYS)
        block = keys[:, None] * WIDTH + columns[None, :]
        k = tl.load(k_ptr + block, mask=keys[:, None] < n, other=0.0)
        v = tl.load(v_ptr + block, mask=keys[:, None] < n, other=0.0)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        scores = tl.where(keys[None, :] < n, scores, -float("inf"))
        raised = tl.maximum(largest, tl.max(scores, axis=1))
        shrink = tl.exp(largest - raised)
        weights = tl.exp(scores - raised[:, None])
        total = total * shrink + tl.sum(weights, axis=1)
        out = out * shrink[:, None] + tl.dot(weights, v, input_precision="ieee")
        largest = raised
    tl.store(out_ptr + places, out / total[:, None], mask=rows[:, None] < n)
