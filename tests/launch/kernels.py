"""Kernels to launch; none of them is ever compiled."""

from __future__ import annotations

from types import ModuleType

import triton
import triton.language as tl

SHIFT = tl.constexpr(1)
settings = ModuleType("settings")
vars(settings)["OFFSET"] = tl.constexpr(1)


@triton.jit
def doubled(value):
    return value * 2


@triton.jit
def tripled(value):
    return value * 3


@triton.jit
def squared(value):
    return value * value


@triton.jit
def calling(a, BLOCK: tl.constexpr):
    tl.store(a + settings.OFFSET, doubled(BLOCK))


@triton.jit
def anything(a, b, c, BLOCK: tl.constexpr, MODE: tl.constexpr = 3):
    tl.store(a, SHIFT)


@triton.jit(do_not_specialize=["b"], do_not_specialize_on_alignment=["a", "c"])
def loose(a, b, c, BLOCK: tl.constexpr, MODE: tl.constexpr = 3):
    tl.store(a, b)


@triton.jit
def annotated(a, b: tl.int64, c: tl.float32, BLOCK: tl.constexpr, MODE: tl.constexpr = 3):
    tl.store(a, b)


@triton.jit
def copy_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n), mask=offsets < n)


CONFIGS = [triton.Config({"BLOCK": 64}, num_warps=2), triton.Config({"BLOCK": 128}, num_warps=8)]
tuned = triton.autotune(configs=CONFIGS, key=["n"])(copy_kernel)
one_config = triton.autotune(configs=CONFIGS[:1], key=["n"])(copy_kernel)
with_heuristics = triton.heuristics({"BLOCK": lambda args: 64 if args["n"] < 100 else 128})(copy_kernel)


@triton.jit
def even_copy(x_ptr, out_ptr, n, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=EVEN or offsets < n), mask=EVEN or offsets < n)


EVEN = {"EVEN": lambda args: args["n"] % args["BLOCK"] == 0}
tuned_outside = triton.autotune(configs=CONFIGS, key=["x_ptr"][:0])(triton.heuristics(EVEN)(even_copy))
tuned_inside = triton.heuristics({"EVEN": lambda args: args["n"] % 64 == 0})(
    triton.autotune(configs=CONFIGS, key=["n"])(even_copy)
)
