"""Larger kernels in the style of real ones."""

from __future__ import annotations

from typing import NamedTuple

import triton
import triton.language as tl


class Strides(NamedTuple):
    row: int
    column: int


@triton.jit
def grouped_products(a_table, b_table, c_table, sizes, count, tensors, BLOCK: tl.constexpr, PROGRAMS: tl.constexpr):
    """Products of matrices of different sizes, given by tables of addresses and sizes."""
    tile = tl.program_id(0)
    last = 0
    for group in range(count):
        m = tl.load(sizes + group * 3)
        n = tl.load(sizes + group * 3 + 1)
        k = tl.load(sizes + group * 3 + 2)
        columns = tl.cdiv(n, BLOCK)
        tiles = tl.cdiv(m, BLOCK) * columns
        while tile >= last and tile < last + tiles:
            a = tl.load(a_table + group).to(tl.pointer_type(tl.float16))
            b = tl.load(b_table + group).to(tl.pointer_type(tl.float16))
            c = tl.load(c_table + group).to(tl.pointer_type(tl.float16))
            local = tile - last
            rows = local // columns * BLOCK + tl.arange(0, BLOCK)
            cols = local % columns * BLOCK + tl.arange(0, BLOCK)
            total = tl.zeros((BLOCK, BLOCK), tl.float32)
            for start in range(0, k, BLOCK):
                inner = start + tl.arange(0, BLOCK)
                left = (rows[:, None] < m) & (inner[None, :] < k)
                right = (inner[:, None] < k) & (cols[None, :] < n)
                x = tl.load(a + rows[:, None] * k + inner[None, :], mask=left, other=0.0)
                y = tl.load(b + inner[:, None] * n + cols[None, :], mask=right, other=0.0)
                total = tl.dot(x, y, total)
            inside = (rows[:, None] < m) & (cols[None, :] < n)
            tl.store(c + rows[:, None] * n + cols[None, :], total.to(tl.float16), mask=inside)
            tile += PROGRAMS
        last += tiles


@triton.jit
def persistent_product(a, b, c, M, N, K, BLOCK: tl.constexpr, PROGRAMS: tl.constexpr):
    """A matrix product by descriptors, of a few programs that each compute many tiles."""
    a_desc = tl.make_tensor_descriptor(a, [M, K], [K, 1], [BLOCK, BLOCK])
    b_desc = tl.make_tensor_descriptor(b, [K, N], [N, 1], [BLOCK, BLOCK])
    c_desc = tl.make_tensor_descriptor(c, [M, N], [N, 1], [BLOCK, BLOCK])
    columns = tl.cdiv(N, BLOCK)
    for tile in tl.range(tl.program_id(0), tl.cdiv(M, BLOCK) * columns, PROGRAMS, flatten=True):
        row, column = tile // columns * BLOCK, tile % columns * BLOCK
        total = tl.zeros((BLOCK, BLOCK), tl.float32)
        for k in range(0, K, BLOCK):
            total = tl.dot(a_desc.load([row, k]), b_desc.load([k, column]), total)
        c_desc.store([row, column], total.to(c.dtype.element_ty))


@triton.jit
def split_product(a, b, c, N: tl.constexpr, K: tl.constexpr, PART: tl.constexpr):
    """A matrix product whose inner dimension is split over programs, summed by atomics."""
    n, k = tl.arange(0, N), tl.program_id(0) * PART + tl.arange(0, PART)
    x = tl.load(a + n[:, None] * K + k[None, :])
    y = tl.load(b + k[:, None] * N + n[None, :])
    tl.atomic_add(c + n[:, None] * N + n[None, :], tl.dot(x, y), sem="relaxed")


@triton.jit
def locked_gradients(dy, dw, locks, counts, rows, GROUPS: tl.constexpr, N: tl.constexpr):
    """Partial sums over rows, one per group, each guarded by a lock and initialised by whoever comes first."""
    row = tl.program_id(0)
    group = row % GROUPS
    offs = tl.arange(0, N)
    partial = tl.load(dy + row * N + offs).to(tl.float32)
    target = dw + group * N + offs
    while tl.atomic_cas(locks + group, 0, 1) == 1:
        pass
    if tl.load(counts + group) == 0:
        tl.atomic_xchg(counts + group, 1)
    else:
        partial += tl.load(target)
    tl.store(target, partial)
    tl.debug_barrier()
    tl.atomic_xchg(locks + group, 0)


@triton.jit
def chained_scan(x, out, flags, sums, N: tl.constexpr):
    """A prefix sum over programs: each waits for the flag of the one before it."""
    pid = tl.program_id(0)
    offs = pid * N + tl.arange(0, N)
    values = tl.load(x + offs)
    before = 0.0
    if pid > 0:
        while tl.atomic_add(flags + pid - 1, 0) == 0:
            pass
        before = tl.load(sums + pid - 1)
    tl.store(sums + pid, before + tl.sum(values))
    tl.atomic_xchg(flags + pid, 1)
    tl.store(out + offs, before + tl.cumsum(values, 0))


@triton.jit
def strided_by_tuple(x, out, strides, shape, M: tl.constexpr, N: tl.constexpr):
    m, n = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :]
    mask = (m < shape[0]) & (n < shape[1])
    values = tl.load(x + m * strides.row + n * strides.column, mask=mask, other=0.0)
    tl.store(out + m * N + n, values)
