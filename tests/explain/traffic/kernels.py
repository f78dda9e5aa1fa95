"""Kernels whose traffic says something that those of the benchmarks do not."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def helper_load(x, offs):
    return tl.load(x + offs)


@triton.jit
def calls_a_helper(x, y, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + offs, helper_load(x, offs))


@triton.jit
def branches_on_a_product(x, y, N: tl.constexpr):
    offs = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    block = tl.load(x + offs)
    if tl.max(tl.max(tl.dot(block, block), axis=1), axis=0) > 0:
        tl.store(y + offs, block)


@triton.jit
def reads_what_it_stored(index, y, z, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.store(index + offs, offs * 8)
    tl.debug_barrier()
    tl.store(z + offs, tl.load(y + tl.load(index + offs)))


@triton.jit
def follows_a_table(table, y, BLOCK: tl.constexpr):
    x = tl.load(table + tl.program_id(0)).to(tl.pointer_type(tl.float32))
    offs = tl.arange(0, BLOCK)
    tl.store(y + tl.program_id(0) * BLOCK + offs, tl.load(x + offs))


@triton.jit
def loads_members(inputs, y, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.store(y + offs, tl.load(inputs[0] + offs) + tl.load(inputs[1] + 2 * offs))


@triton.jit
def takes_tickets(counter, y):
    tl.store(y + tl.atomic_add(counter, 1) * 8, tl.program_id(0))


@triton.jit
def reverses_in_place(x, N: tl.constexpr):
    offs = tl.arange(0, N)
    value = tl.load(x + N - 1 - offs)
    tl.debug_barrier()
    tl.store(x + offs, value)


@triton.jit
def layer_norm_backward(
    dx, dy, dw, db, x, w, means, rstds, locks, stride, columns, GROUP: tl.constexpr, BLOCK: tl.constexpr
):
    """Rows add their part of the weights' gradients to those of their group, one row after the other, under a lock."""
    row = tl.program_id(0)
    offs = tl.arange(0, BLOCK)
    mask = offs < columns
    group = row % GROUP
    lock, count = locks + group, locks + GROUP + group
    dw += group * columns + offs
    db += group * columns + offs
    values = tl.load(x + row * stride + offs, mask=mask, other=0).to(tl.float32)
    grads = tl.load(dy + row * stride + offs, mask=mask, other=0).to(tl.float32)
    weights = tl.load(w + offs, mask=mask).to(tl.float32)
    mean, rstd = tl.load(means + row), tl.load(rstds + row)
    normal = tl.where(mask, (values - mean) * rstd, 0.0)
    scaled = tl.where(mask, weights * grads, 0.0)
    along = tl.sum(normal * scaled, axis=0) / columns
    average = tl.sum(scaled, axis=0) / columns
    tl.store(dx + row * stride + offs, (scaled - (normal * along + average)) * rstd, mask=mask)
    part_dw = (grads * normal).to(weights.dtype)
    part_db = grads.to(weights.dtype)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    if tl.load(count) == 0:
        tl.atomic_xchg(count, 1)
    else:
        part_dw += tl.load(dw, mask=mask)
        part_db += tl.load(db, mask=mask)
    tl.store(dw, part_dw, mask=mask)
    tl.store(db, part_db, mask=mask)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


@triton.jit
def spreads(x, y, n, TIMES: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    tl.store(y + offs, tl.load(x + offs // TIMES, mask=mask, other=0.0), mask=mask)


@triton.jit
def loads_with_and_without_a_mask(x, y, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    tl.store(y + offs, tl.load(x + offs, mask=mask) + 2 * tl.load(x + offs), mask=mask)


@triton.jit
def adds_at(index, x, y, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(y + tl.load(index + offs), tl.load(x + offs))


@triton.jit
def adds_to_one(x, y, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(y + offs * 0, tl.load(x + offs), mask=offs < n)


@triton.jit
def stores_a_product_and_branches_on_it(x, y, N: tl.constexpr):
    offs = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    block = tl.load(x + offs)
    tl.store(y + offs, tl.dot(block, block).to(tl.float16))
    tl.debug_barrier()
    if tl.load(y) > 0:
        tl.store(y + offs, block)


@triton.jit
def copies_by_a_descriptor(x, y, n, BLOCK: tl.constexpr):
    source = tl.make_tensor_descriptor(x, shape=[n, n], strides=[n, 1], block_shape=[BLOCK, BLOCK])
    row, column = tl.program_id(0) * BLOCK, tl.program_id(1) * BLOCK
    offs = (row + tl.arange(0, BLOCK)[:, None]) * n + column + tl.arange(0, BLOCK)[None, :]
    tl.store(y + offs, source.load([row, column]))


@triton.jit
def scales_rows(x, scale, bias, y, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offs = row * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + offs, tl.load(x + offs) * tl.load(scale) + tl.load(bias + row))


@triton.jit
def adds_a_column(x, scale, bias, y, BLOCK: tl.constexpr):
    """Each program adds a column that several lanes load, and a scalar, to its part of x."""
    rows, columns = tl.arange(0, 8)[:, None], tl.arange(0, BLOCK // 8)[None, :]
    offs = rows * BLOCK + tl.program_id(0) * (BLOCK // 8) + columns
    tl.store(y + offs, tl.load(x + offs) + tl.load(bias + rows) * tl.load(scale + tl.zeros((8, 1), tl.int32)))


@triton.jit
def loads_by_inline_ptx(x, y, LOAD: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    first = tl.inline_asm_elementwise(LOAD, "=r,l", [x + offs], dtype=tl.int32, is_pure=False, pack=1)
    again = tl.inline_asm_elementwise(LOAD, "=r,l", [x + offs], dtype=tl.int32, is_pure=False, pack=1)
    tl.store(y + offs, first * again)
