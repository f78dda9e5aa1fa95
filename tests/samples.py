"""Small kernels that the tests of source, compiling, binding and the registry share."""

from __future__ import annotations

import math as loose_alias

import torch
import triton
import triton.language as tl

SCALE = tl.constexpr(3)
SETTING = {"not": "taken along"}
x = torch.ones(4)  # of the same name as a local variable of the kernels


@triton.jit
def scaled(value, factor: tl.constexpr = SCALE):
    return value * factor


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + tl.load(y_ptr + offsets, mask=mask), mask=mask)


@triton.jit
def scale_kernel(x_ptr: torch.Tensor, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, scaled(x) + SCALE, mask=mask)


@triton.jit
def apply_kernel(x_ptr, out_ptr, FUNCTION: tl.constexpr, DTYPE: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, FUNCTION(tl.load(x_ptr + offsets)).to(DTYPE))


@triton.jit
def sum_of_pair(pair, out_ptr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(pair[0] + offsets) + tl.load(pair[1] + offsets))


@triton.jit
def broken_helper(value):
    return value + tl.arange(0, 48)


@triton.jit
def broken_kernel(x_ptr, BLOCK: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, BLOCK), broken_helper(tl.arange(0, BLOCK)))


@triton.jit
def endless_kernel(x_ptr):
    value = tl.load(x_ptr)
    while value < 2:
        value = tl.load(x_ptr)
    tl.store(x_ptr, value)


@triton.jit
def slow_to_trace(x_ptr):
    for i in tl.static_range(10_000_000):
        tl.store(x_ptr + i, i)


@triton.jit
def unrolled_kernel(x_ptr, TIMES: tl.constexpr):
    value = tl.load(x_ptr)
    for i in tl.static_range(TIMES):
        value = value * 1.5 + i
    tl.store(x_ptr, value)


@triton.jit
def unassemblable_kernel(x_ptr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    value = tl.inline_asm_elementwise(
        "no_such_instruction $0, $1;", "=r,r", [tl.load(x_ptr + offsets)], dtype=tl.int32, is_pure=True, pack=1
    )
    tl.store(x_ptr + offsets, value)


@triton.jit
def static_shared_kernel(x_ptr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    value = tl.inline_asm_elementwise(
        "{ .shared .align 4 .b8 buffer[4096]; st.shared.b32 [buffer], $1; ld.shared.b32 $0, [buffer]; }",
        "=r,r",
        [tl.load(x_ptr + offsets)],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )
    tl.store(x_ptr + offsets, value)


@triton.jit
def fatal_kernel(x_ptr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    value = tl.inline_asm_elementwise(
        "mov.u32 $0, $1;", "=r", [tl.load(x_ptr + offsets)], dtype=tl.int32, is_pure=True, pack=1
    )
    tl.store(x_ptr + offsets, value)


def kernel_of(function):
    """Return a kernel that refers to its helper through a closure."""

    @triton.jit
    def made_kernel(x_ptr, out_ptr, BLOCK: tl.constexpr):
        offsets = tl.arange(0, BLOCK)
        tl.store(out_ptr + offsets, function(tl.load(x_ptr + offsets)))

    return made_kernel


@triton.jit
def doubled(value):
    return value * 2


@triton.jit
def squared(value):
    return value * value


@triton.autotune(configs=[triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128}, num_warps=8)], key=["n"])
@triton.heuristics({"EVEN": lambda arguments: arguments["n"] % arguments["BLOCK"] == 0})
@triton.jit
def tuned_kernel(x_ptr, out_ptr, n, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        tl.store(out_ptr + offsets, tl.load(x_ptr + offsets))
    else:
        mask = offsets < n
        tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask), mask=mask)


PI = tl.constexpr(loose_alias.pi)


@triton.jit
def greedy(x_ptr, out_ptr, N: tl.constexpr, M: tl.constexpr):
    """Need more shared memory than a block has."""
    rows, columns, few = tl.arange(0, N), tl.arange(0, M), tl.arange(0, 16)
    left = tl.load(x_ptr + rows[:, None] * M + columns[None, :])
    right = tl.load(x_ptr + columns[:, None] * 16 + few[None, :])
    tl.store(out_ptr + rows[:, None] * 16 + few[None, :], tl.dot(left, right))
