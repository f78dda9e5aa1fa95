"""Code from outside: inline assembly and device libraries, pure and impure. The interpreter runs none of it."""

import triton
import triton.language as tl
from triton.language.extra import libdevice

from tests.ir.expected import expect


@expect(reads="x", writes="y", interpreted=False)
@triton.jit
def computes_in_pure_assembly(x, y, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    value = tl.inline_asm_elementwise(
        "add.f32 $0, $1, $1;", "=r,r", [tl.load(x + offs)], dtype=tl.float32, is_pure=True, pack=1
    )
    tl.store(y + offs, value)


@expect(reads="x", writes="y", interpreted=False)
@triton.jit
def computes_in_impure_assembly(x, y, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    value = tl.inline_asm_elementwise(
        "add.f32 $0, $1, $1;", "=r,r", [tl.load(x + offs)], dtype=tl.float32, is_pure=False, pack=1
    )
    tl.store(y + offs, value)


@expect(writes="y", interpreted=False)
@triton.jit
def reads_a_clock_in_assembly(x, y):
    clock = tl.inline_asm_elementwise("mov.u32 $0, %clock;", "=r", [], dtype=tl.int32, is_pure=False, pack=1)
    tl.store(y, clock.to(tl.float32))


@expect(reads="y", writes="y out", interpreted=False)
@triton.jit
def stores_in_impure_assembly(x, y, out, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    done = tl.inline_asm_elementwise(
        "st.global.f32 [$1], 0f3F800000; mov.u32 $0, 0;",
        "=r,l",
        [(y + offs).to(tl.int64)],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )
    tl.store(out + offs, done.to(tl.float32))


@expect(reads="x", writes="out", interpreted=False)
@triton.jit
def loads_in_pure_assembly(x, out, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    value = tl.inline_asm_elementwise(
        "ld.global.nc.f32 $0, [$1];", "=r,l", [(x + offs).to(tl.int64)], dtype=tl.float32, is_pure=True, pack=1
    )
    tl.store(out + offs, value)


@expect(reads="x", writes="out", interpreted=False)
@triton.jit
def loads_in_impure_assembly(x, out, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    value = tl.inline_asm_elementwise(
        "ld.volatile.global.f32 $0, [$1];", "=r,l", [(x + offs).to(tl.int64)], dtype=tl.float32, is_pure=False, pack=1
    )
    tl.store(out + offs, value)


@expect(reads="x", writes="x y", interpreted=False)
@triton.jit
def hands_a_pointer_to_assembly_that_says_nothing(x, y):
    value = tl.inline_asm_elementwise("frobnicate $0, $1;", "=r,l", [x.to(tl.int64)], tl.int32, is_pure=False, pack=1)
    tl.store(y, value.to(tl.float32))


@expect(unknown="tt.store", reads="x", interpreted=False)
@triton.jit
def moves_an_address_through_assembly(x, y):
    address = tl.inline_asm_elementwise("mov.u64 $0, $1;", "=l,l", [y.to(tl.int64)], tl.int64, is_pure=True, pack=1)
    tl.store(address.to(tl.pointer_type(tl.float32)), tl.load(x))


@expect(reads="x", writes="y", interpreted=False)
@triton.jit
def calls_a_device_library(x, y, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    tl.store(y + offs, libdevice.tanh(tl.load(x + offs)))
