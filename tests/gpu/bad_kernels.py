"""Kernels that do what no kernel should; most are harmless for some arguments."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def read_at(x_ptr, out_ptr, offset, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    tl.store(out_ptr + lanes, tl.load(x_ptr + offset + lanes))


@triton.jit
def write_at(x_ptr, out_ptr, offset, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    tl.store(out_ptr + offset + lanes, tl.load(x_ptr + lanes))


@triton.jit
def add_at(x_ptr, out_ptr, offset, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    tl.atomic_add(out_ptr + offset + lanes, tl.load(x_ptr + lanes))


@triton.jit
def write_by_stride(x_ptr, out_ptr, stride, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    tl.store(out_ptr + (tl.program_id(0) + 1) * stride + lanes, tl.load(x_ptr + lanes))


@triton.jit
def copy_all(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n), mask=offsets < n)


@triton.jit
def without_mask(x_ptr, out_ptr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets))


@triton.jit
def write_at_integer(address, value):
    tl.store(tl.cast(address, tl.pointer_type(tl.int32)), value)


@triton.jit
def endless(x_ptr):
    value = tl.load(x_ptr, volatile=True)
    while value < 2:
        value = tl.load(x_ptr, volatile=True)
    tl.store(x_ptr, value)


@triton.jit
def never_unlocked(lock_ptr, out_ptr):
    while tl.atomic_cas(lock_ptr, 0, 1) != 0:
        pass
    tl.store(out_ptr, 1.0)


@triton.jit
def asserting(x_ptr, out_ptr, BLOCK: tl.constexpr):
    value = tl.load(x_ptr + tl.arange(0, BLOCK))
    tl.device_assert(value > 100.0, "too small")
    tl.store(out_ptr + tl.arange(0, BLOCK), value)


@triton.jit
def trapping(x_ptr, BLOCK: tl.constexpr):
    value = tl.load(x_ptr + tl.arange(0, BLOCK))
    value = tl.inline_asm_elementwise(
        "{ trap; mov.b32 $0, $1; }", "=r,r", [value], dtype=tl.float32, is_pure=False, pack=1
    )
    tl.store(x_ptr + tl.arange(0, BLOCK), value)


@triton.jit
def outer_product(a_ptr, b_ptr, out_ptr, N: tl.constexpr):
    rows = tl.arange(0, N)
    a = tl.load(a_ptr + rows)
    b = tl.load(b_ptr + rows)
    tl.store(out_ptr + rows[:, None] * N + rows[None, :], a[:, None] * b[None, :])


@triton.jit
def store_tile(tile_desc, value, N: tl.constexpr):
    tile_desc.store([0, 0], tl.full((N, N), value, tl.float32))


@triton.jit
def raced_scatter(index_ptr, out_ptr, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    tl.store(out_ptr + tl.load(index_ptr + lanes), 1.0)
