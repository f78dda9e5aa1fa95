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


@tl.core.extern
def pure_extern(address, _semantic=None):
    return tl.core.extern_elementwise(
        "", "", [address], {(tl.int64,): ("pure_function", tl.int32)}, is_pure=True, _semantic=_semantic
    )


@tl.core.extern
def impure_extern(address, value, _semantic=None):
    return tl.core.extern_elementwise(
        "",
        "",
        [address, value],
        {(tl.int64, tl.int32): ("impure_function", tl.int32)},
        is_pure=False,
        _semantic=_semantic,
    )


@expect(reads="x idx", writes="y x", interpreted=False)
@triton.jit
def hands_a_pointer_to_an_impure_extern(x, idx, y, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    done = impure_extern((x + offs).to(tl.int64), tl.load(idx + offs))
    tl.store(y + offs, done.to(tl.float32))


@expect(reads="x", writes="y", interpreted=False)
@triton.jit
def hands_a_pointer_to_a_pure_extern(x, y, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    tl.store(y + offs, pure_extern((x + offs).to(tl.int64)).to(tl.float32))


@expect(reads="idx long", writes="y", interpreted=False)
@triton.jit
def hands_loaded_values_to_an_impure_extern(long, idx, y, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    done = impure_extern(tl.load(long + offs), tl.load(idx + offs))
    tl.store(y + offs, done.to(tl.float32))


@expect(reads="x y", writes="x out", interpreted=False)
@triton.jit
def hands_one_pointer_and_one_value_to_assembly(x, y, out, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    a, b = tl.inline_asm_elementwise(
        "st.global.f32 [$2], $3; mov.u32 $0, 0; mov.u32 $1, 1;",
        "=r,=r,l,r",
        [(x + offs).to(tl.int64), tl.load(y + offs)],
        dtype=(tl.int32, tl.int32),
        is_pure=False,
        pack=1,
    )
    tl.store(out + offs, (a + b).to(tl.float32))
