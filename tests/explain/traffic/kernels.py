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
