"""Loads and stores: plain, masked, volatile, of every shape, in place, and none at all."""

import triton
import triton.language as tl

from tests.ir.expected import expect


@expect(reads="x", writes="y")
@triton.jit
def copies(x, y, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    tl.store(y + offs, tl.load(x + offs))


@expect(reads="x y", writes="out")
@triton.jit
def adds_under_a_mask(x, y, out, n, B: tl.constexpr = 16):
    offs = tl.program_id(0) * B + tl.arange(0, B)
    mask = offs < n
    tl.store(out + offs, tl.load(x + offs, mask=mask) + tl.load(y + offs, mask=mask, other=0.0), mask=mask)


@expect(reads="x", writes="x")
@triton.jit
def doubles_in_place(x, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    tl.store(x + offs, 2 * tl.load(x + offs))


@expect(writes="x")
@triton.jit
def fills(x, B: tl.constexpr = 16):
    tl.store(x + tl.arange(0, B), tl.zeros((B,), tl.float32))


@expect(reads="x", writes="y")
@triton.jit
def copies_one_scalar(x, y):
    tl.store(y, tl.load(x))


@expect(writes="y")
@triton.jit
def stores_its_program_id(y):
    tl.store(y + tl.program_id(0), tl.num_programs(0))


@expect(reads="x", writes="long_out")
@triton.jit
def stores_an_index(x, long_out, B: tl.constexpr = 16):
    tl.store(long_out, tl.argmax(tl.load(x + tl.arange(0, B)), 0))


@expect(writes="y")
@triton.jit
def leaves_an_argument_unused(x, y, B: tl.constexpr = 16):
    tl.store(y + tl.arange(0, B), 1.0)


@expect(reads="x", writes="y")
@triton.jit
def loads_volatile(x, y, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    tl.store(y + offs, tl.load(x + offs, volatile=True))


@expect(reads="x", writes="y")
@triton.jit
def loads_with_cache_hints(x, y, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    value = tl.load(x + offs, cache_modifier=".cg")
    tl.store(y + offs, value + tl.load(x + offs, eviction_policy="evict_first"), eviction_policy="evict_last")


@expect(reads="x", writes="y")
@triton.jit
def transposes(x, y, B: tl.constexpr = 8):
    rows = tl.arange(0, B)[:, None]
    columns = tl.arange(0, B)[None, :]
    tl.store(y + columns * B + rows, tl.load(x + rows * B + columns))


@expect(reads="x", writes="y")
@triton.jit
def loads_three_dimensions(x, y, B: tl.constexpr = 4):
    i = tl.arange(0, B)[:, None, None]
    j = tl.arange(0, B)[None, :, None]
    k = tl.arange(0, B)[None, None, :]
    tl.store(y + i * B * B + j * B + k, tl.load(x + k * B * B + j * B + i))


@expect(reads="x", writes="y", args={"n": 0}, may="write:y read:x")
@triton.jit
def loads_under_a_mask_that_is_all_false(x, y, n, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    tl.store(y + offs, tl.load(x + offs, mask=offs < n), mask=offs < n)


@expect(writes="y")
@triton.jit
def loads_under_a_constant_false(x, y, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    tl.store(y + offs, tl.load(x + offs, mask=False, other=0.0))


@expect(reads="x", writes="y")
@triton.jit
def copies_half_precision(x, y, half, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    tl.store(y + offs, tl.load(x + offs).to(tl.float16).to(tl.float32))


@expect(reads="half", writes="half")
@triton.jit
def casts_in_place(half, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    tl.store(half + offs, (tl.load(half + offs).to(tl.float32) + 1).to(tl.float16))


@expect(reads="x", writes="y", grid=3)
@triton.jit
def runs_three_programs(x, y, B: tl.constexpr = 16):
    offs = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + offs, tl.load(x + offs))


@expect()
@triton.jit
def does_nothing(x):
    pass


@expect(reads="x", writes="y", may="read:x")
@triton.jit
def computes_addresses_and_stores_elsewhere(x, y, n, B: tl.constexpr = 16):
    far = x + n * 1000
    offs = tl.arange(0, B)
    value = tl.load(far + offs, mask=offs < 0)
    tl.store(y + offs, value)


@expect(reads="x", writes="y")
@triton.jit
def has_a_docstring(x, y, B: tl.constexpr = 16):
    """Copy.

    tl.store(x, 0) and loc("y") stand in here only to be read past.
    """
    offs = tl.arange(0, B)
    tl.store(y + offs, tl.load(x + offs))


@expect(reads="x", writes="y")
@triton.jit
def loads_volatile_and_forgets(x, y, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    tl.load(x + offs, volatile=True)
    tl.store(y + offs, 1.0)


@expect(reads="x", writes="y", options={"debug": True})
@triton.jit
def asserts_in_debug_mode(x, y, n, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    value = tl.load(x + offs * n // n)
    tl.device_assert(value < 1000.0, "small")
    tl.store(y + offs, value)
