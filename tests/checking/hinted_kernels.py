"""Kernels with a mistake each, and their neighbours without it."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def exchange(x_ptr, out_ptr, N: tl.constexpr):
    rows = tl.arange(0, N)[:, None]
    columns = tl.arange(0, N)[None, :]
    tl.store(out_ptr + columns * N + rows, tl.load(x_ptr + rows * N + columns))


@triton.jit
def move(x_ptr, out_ptr, n, distance, factor, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = factor * tl.load(x_ptr + at, mask=at < n)
    tl.store(out_ptr + at + distance, x, mask=at + distance < n)


@triton.jit
def by_stride(x_ptr, out_ptr, n, stride, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at * stride, mask=at < n) + 1, mask=at < n)


@triton.jit
def add_up(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out_ptr, tl.sum(tl.load(x_ptr + at, mask=at < n, other=0.0)))


@triton.jit
def largest_of_rows(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = tl.program_id(0)
    x = tl.load(x_ptr + row * n + at, mask=at < n)
    tl.store(out_ptr + row, tl.max(x, axis=0))


@triton.jit
def smallest_of_rows(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = tl.program_id(0)
    x = tl.load(x_ptr + row * n + at, mask=at < n, other=0.0)
    tl.store(out_ptr + row, tl.min(x, axis=0))


@triton.jit
def sum_of_blocks(x_ptr, out_ptr, n, blocks, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    for k in range(blocks):
        at = k * BLOCK + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + row * n + at, mask=at < n, other=0.0)
    tl.store(out_ptr + row, tl.sum(total))


@triton.jit
def keep_nothing(x_ptr, BLOCK: tl.constexpr):
    tl.device_print("x", tl.sum(tl.load(x_ptr + tl.arange(0, BLOCK))))


@triton.jit
def through_float16(x_ptr, out_ptr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at).to(tl.float16))
