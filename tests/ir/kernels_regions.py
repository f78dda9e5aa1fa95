"""Operations with regions, and whole-block ones: reduce, scan, sort, histogram, gather, dot, random numbers."""

import triton
import triton.language as tl

from tests.ir.expected import expect


@triton.jit
def larger(a, b):
    return tl.where(a > b, a, b)


@triton.jit
def linear(a1, b1, a2, b2):
    return a1 * a2, b1 * a2 + b2


@triton.jit
def half_and_double(a):
    return a / 2, a * 2


@expect(reads="x", writes="y")
@triton.jit
def sums(x, y, B: tl.constexpr = 16):
    tl.store(y, tl.sum(tl.load(x + tl.arange(0, B))))


@expect(reads="x", writes="y")
@triton.jit
def reduces_with_a_function(x, y, B: tl.constexpr = 16):
    tl.store(y, tl.reduce(tl.load(x + tl.arange(0, B)), 0, larger))


@expect(reads="x", writes="y")
@triton.jit
def reduces_a_matrix(x, y, B: tl.constexpr = 8):
    offs = tl.arange(0, B)[:, None] * B + tl.arange(0, B)[None, :]
    tl.store(y + tl.arange(0, B), tl.max(tl.load(x + offs), axis=1))


@expect(reads="x", writes="y")
@triton.jit
def finds_the_maximum_and_its_index(x, y, B: tl.constexpr = 16):
    value, index = tl.max(tl.load(x + tl.arange(0, B)), axis=0, return_indices=True)
    tl.store(y + index, value)


@expect(reads="x", writes="y")
@triton.jit
def scans(x, y, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    tl.store(y + offs, tl.cumsum(tl.load(x + offs), axis=0))


@expect(reads="x y", writes="out")
@triton.jit
def scans_two_values(x, y, out, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    _, b = tl.associative_scan((tl.load(x + offs), tl.load(y + offs)), 0, linear)
    tl.store(out + offs, b)


@expect(reads="x", writes="y")
@triton.jit
def sorts(x, y, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    tl.store(y + offs, tl.sort(tl.load(x + offs)))


@expect(reads="idx", writes="long_out")
@triton.jit
def counts_in_a_histogram(idx, long_out, B: tl.constexpr = 16):
    counts = tl.histogram(tl.load(idx + tl.arange(0, B)), 16)
    tl.store(long_out + tl.arange(0, 16), counts)


@expect(reads="x idx", writes="y")
@triton.jit
def gathers_in_registers(x, idx, y, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    tl.store(y + offs, tl.gather(tl.load(x + offs), tl.load(idx + offs), 0))


@expect(reads="x y", writes="out")
@triton.jit
def multiplies_matrices(x, y, out, B: tl.constexpr = 16):
    offs = tl.arange(0, B)[:, None] * B + tl.arange(0, B)[None, :]
    tl.store(out + offs, tl.dot(tl.load(x + offs), tl.load(y + offs)))


@expect(reads="x y", writes="out")
@triton.jit
def accumulates_matrix_products(x, y, out, k, B: tl.constexpr = 16):
    offs = tl.arange(0, B)[:, None] * B + tl.arange(0, B)[None, :]
    p, q = x + offs, y + offs
    total = tl.zeros((B, B), tl.float32)
    for _ in range(k):
        total = tl.dot(tl.load(p, mask=offs < 100, other=0.0), tl.load(q, mask=offs < 100, other=0.0), total)
        p += 1
        q += B
    tl.store(out + offs, total, mask=offs < 200)


@expect(reads="x", writes="y")
@triton.jit
def joins_and_splits_values(x, y, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    value = tl.load(x + offs)
    a, b = tl.split(tl.join(value, value + 1))
    tl.store(y + offs, a + b)


@expect(reads="x", writes="y")
@triton.jit
def interleaves_and_reshapes(x, y, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    value = tl.load(x + offs)
    both = tl.interleave(value, value)
    tl.store(y + tl.arange(0, 2 * B), tl.reshape(tl.permute(tl.reshape(both, (2, B)), (1, 0)), (2 * B,)))


@expect(writes="y")
@triton.jit
def draws_random_numbers(y, k, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    tl.store(y + offs, tl.rand(k, offs) + tl.randn(k, offs))


@expect(reads="x", writes="y", interpreted=False)
@triton.jit
def maps_elementwise(x, y, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    a, b = tl.map_elementwise(half_and_double, tl.load(x + offs))
    tl.store(y + offs, a + b)


@triton.jit
def branches_inside(a, b):
    if a > b:
        return a
    if b > 3:
        return b * 2
    return a + b


@expect(reads="x y", writes="out", interpreted=False)
@triton.jit
def maps_with_branches(x, y, out, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    value = tl.map_elementwise(branches_inside, tl.load(x + offs), tl.load(y + offs))
    tl.store(out + offs, value)


@expect(reads="x", writes="y", interpreted=False)
@triton.jit
def maps_packed(x, y, B: tl.constexpr = 256):
    offs = tl.arange(0, B)
    tl.store(y + offs, tl.map_elementwise(swaps_two, tl.load(x + offs), pack=2)[0])


@triton.jit
def swaps_two(a, b):
    return b, a


@expect(reads="x", writes="y")
@triton.jit
def prints_and_asserts(x, y, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    tl.device_assert(offs < 1000, "in range")
    value = tl.load(x + offs)
    tl.debug_barrier()
    tl.store(y + offs, value)


@expect(reads="x", writes="y", interpreted=False)
@triton.jit
def prints_a_pointer(x, y):
    tl.device_print("pointer", y.to(tl.int64))
    tl.store(y, tl.load(x))


@expect(reads="x", writes="y")
@triton.jit
def assumes(x, y, n, B: tl.constexpr = 16):
    tl.assume(n > 0)
    offs = tl.multiple_of(tl.max_contiguous(tl.arange(0, B), B), B)
    tl.store(y + offs, tl.load(x + offs))


@expect(reads="x", writes="y")
@triton.jit
def does_mathematics(x, y, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    value = tl.load(x + offs)
    value = tl.exp(value) + tl.sin(value) + tl.sqrt(tl.abs(value)) + tl.fma(value, value, value)
    value = tl.clamp(tl.math.floor(value), 0.0, 1.0) + tl.maximum(value, 1.0) + tl.umulhi(offs, offs)
    tl.store(y + offs, value)


@expect(reads="x y", writes="out")
@triton.jit
def reduces_addresses_to_the_lowest(x, y, out, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    lowest = tl.min((x + offs).to(tl.int64), axis=0).to(tl.pointer_type(tl.float32))
    both = tl.where(offs < 8, lowest, y)
    tl.store(out + offs, tl.load(both))
