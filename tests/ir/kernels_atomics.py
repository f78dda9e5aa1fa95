"""Every atomic: with and without mask, with an unused result, with an operand that changes nothing."""

import triton
import triton.language as tl

from tests.ir.expected import expect


@expect(atomics="x")
@triton.jit
def adds_atomically(x, B: tl.constexpr = 16):
    tl.atomic_add(x + tl.arange(0, B), 1.0)


@expect(atomics="x")
@triton.jit
def adds_zero_atomically(x, B: tl.constexpr = 16):
    tl.atomic_add(x + tl.arange(0, B), 0.0)


@expect(atomics="x", writes="y")
@triton.jit
def uses_the_result_of_an_atomic(x, y, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    tl.store(y + offs, tl.atomic_add(x + offs, 1.0))


@expect(reads="y", atomics="x")
@triton.jit
def adds_atomically_under_a_mask(x, y, n, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    tl.atomic_add(x + offs, tl.load(y + offs), mask=offs < n)


@expect(atomics="idx")
@triton.jit
def takes_maximum_and_minimum(idx, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    tl.atomic_max(idx + offs, 3)
    tl.atomic_min(idx + offs, 1)


@expect(atomics="x")
@triton.jit
def takes_the_maximum_of_floats(x, B: tl.constexpr = 16):
    tl.atomic_max(x + tl.arange(0, B), 3.0)


@expect(atomics="idx")
@triton.jit
def does_bitwise_atomics(idx, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    tl.atomic_and(idx + offs, 3)
    tl.atomic_or(idx + offs, 4)
    tl.atomic_xor(idx + offs, 5)


@expect(atomics="idx")
@triton.jit
def exchanges(idx, B: tl.constexpr = 16):
    tl.atomic_xchg(idx + tl.arange(0, B), 7)


@expect(atomics="idx")
@triton.jit
def compares_and_swaps(idx):
    tl.atomic_cas(idx, 0, 1)


@expect(atomics="idx", writes="y")
@triton.jit
def takes_a_lock(idx, y, B: tl.constexpr = 16):
    while tl.atomic_cas(idx, 0, 1) == 1:
        pass
    tl.store(y + tl.arange(0, B), 1.0)
    tl.atomic_xchg(idx, 0)


@expect(atomics="idx x", reads="x")
@triton.jit
def adds_where_an_atomic_points(idx, x, B: tl.constexpr = 16):
    slot = tl.atomic_add(idx + tl.arange(0, B), 0) % 16
    tl.atomic_add(x + slot, tl.load(x))


@expect(atomics="x", grid=3)
@triton.jit
def counts_programs(x):
    tl.atomic_add(x, 1.0, sem="relaxed", scope="cta")


@expect(atomics="pair[1]", reads="pair[0]")
@triton.jit
def adds_into_a_tuple_member(pair, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    tl.atomic_add(pair[1] + offs, tl.load(pair[0] + offs))


@expect(atomics="x", reads="idx", writes="x")
@triton.jit
def reads_writes_and_updates(idx, x, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    tl.store(x + offs, 0.0)
    tl.atomic_add(x + tl.load(idx + offs), 1.0)


@expect(reads="idx", writes="y", since=(3, 9))
@triton.jit
def loads_atomically(idx, y, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    tl.store(y + offs, tl.atomic_load(idx + offs).to(tl.float32))


@expect(writes="idx", since=(3, 9))
@triton.jit
def stores_atomically(idx, n, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    tl.atomic_store(idx + offs, offs, mask=offs < n)


@expect(reads="idx", writes="y", since=(3, 9))
@triton.jit
def polls(idx, y):
    ready = tl.atomic_poll(idx, 0)
    tl.store(y, ready.to(tl.float32))
