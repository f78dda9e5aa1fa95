"""Loops that carry pointers: bumped, swapped, rotated, chosen, nested, entered or not."""

import triton
import triton.language as tl

from tests.ir.expected import expect


@expect(reads="x", writes="y")
@triton.jit
def bumps_pointers_in_a_loop(x, y, k, B: tl.constexpr = 16):
    p, q = x + tl.arange(0, B), y + tl.arange(0, B)
    for _ in range(k):
        tl.store(q, tl.load(p))
        p += B
        q += B


@expect(reads="x y", writes="x y")
@triton.jit
def swaps_two_buffers_in_a_loop(x, y, k, B: tl.constexpr = 16):
    a, b = x, y
    offs = tl.arange(0, B)
    for _ in range(k):
        tl.store(b + offs, tl.load(a + offs) + 1)
        a, b = b, a


@expect(reads="x y w", writes="out")
@triton.jit
def rotates_three_pointers(x, y, w, out, k, B: tl.constexpr = 16):
    a, b, c = x, y, w
    offs = tl.arange(0, B)
    total = tl.zeros((B,), tl.float32)
    for _ in range(k):
        total += tl.load(a + offs)
        a, b, c = b, c, a
    tl.store(out + offs, total)


@expect(writes="x y w z")
@triton.jit
def rotates_four_pointers_and_stores(x, y, w, z, n, B: tl.constexpr = 16):
    a, b, c, d = x, y, w, z
    for _ in range(n):
        tl.store(a + tl.arange(0, B), 1.0)
        a, b, c, d = b, c, d, a


@expect(reads="x y", writes="out", may="read:x")
@triton.jit
def reads_what_a_loop_left(x, y, out, k, B: tl.constexpr = 16):
    p = x
    for _ in range(k):
        p = y
    offs = tl.arange(0, B)
    tl.store(out + offs, tl.load(p + offs))


@expect(reads="x y", writes="out", args={"n": 0}, may="read:y")
@triton.jit
def reads_what_an_empty_loop_left(x, y, out, n, B: tl.constexpr = 16):
    p = x
    for _ in range(n):
        p = y
    offs = tl.arange(0, B)
    tl.store(out + offs, tl.load(p + offs))


@expect(reads="y", writes="out")
@triton.jit
def reads_what_a_loop_of_known_length_left(x, y, out, B: tl.constexpr = 16):
    p = x
    for _ in range(4):
        p = y
    offs = tl.arange(0, B)
    tl.store(out + offs, tl.load(p + offs))


@expect(reads="x", writes="y", args={"n": 0}, may="read:x write:y")
@triton.jit
def does_all_in_an_empty_loop(x, y, n, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    for _ in range(n):
        tl.store(y + offs, tl.load(x + offs))


@expect(reads="x", writes="y")
@triton.jit
def bumps_in_a_while(x, y, k, B: tl.constexpr = 16):
    p, q = x, y
    offs = tl.arange(0, B)
    while k > 0:
        tl.store(q + offs, tl.load(p + offs))
        p += B
        q += B
        k -= 1


@expect(reads="x y", writes="x y")
@triton.jit
def swaps_in_a_while(x, y, k, B: tl.constexpr = 16):
    a, b = x, y
    offs = tl.arange(0, B)
    while k > 0:
        tl.store(b + offs, tl.load(a + offs) + 1)
        a, b = b, a
        k -= 1


@expect(reads="idx x", writes="y")
@triton.jit
def loads_in_the_condition_of_a_while(idx, x, y):
    position = tl.load(idx)
    while tl.load(idx + position) < 3:
        position += 1
    tl.store(y, tl.load(x + position))


@expect(reads="x y", writes="x y out", may="read:y write:x write:out")
@triton.jit
def chooses_in_a_loop(x, y, out, k, B: tl.constexpr = 16):
    p, q = x, y
    offs = tl.arange(0, B)
    for i in range(k):
        tl.store(q + offs, tl.load(p + offs))
        if i > 10:
            p, q = y, x
        elif i > 5:
            q = out


@expect(reads="x", writes="y")
@triton.jit
def nests_loops(x, y, k, B: tl.constexpr = 16):
    p, q = x, y
    offs = tl.arange(0, B)
    for _ in range(k):
        for _ in range(2):
            tl.store(q + offs, tl.load(p + offs))
            p += 1
        q += B


@expect(reads="x y", writes="out")
@triton.jit
def swaps_in_an_inner_loop(x, y, out, k, B: tl.constexpr = 16):
    a, b = x, y
    offs = tl.arange(0, B)
    total = tl.zeros((B,), tl.float32)
    for _ in range(k):
        for _ in range(3):
            a, b = b, a
        total += tl.load(a + offs)
    tl.store(out + offs, total)


@expect(reads="x y w", writes="out")
@triton.jit
def carries_through_three_loops(x, y, w, out, k, B: tl.constexpr = 16):
    a, b, c = x, y, w
    offs = tl.arange(0, B)
    total = tl.zeros((B,), tl.float32)
    for _ in range(k):
        while k > 1:
            a, b = b, a
            k -= 1
        for _ in range(3):
            b, c = c, b
            total += tl.load(a + offs) + tl.load(b + offs)
    tl.store(out + offs, total)


@expect(reads="x", writes="y")
@triton.jit
def unrolls_statically(x, y, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    for i in tl.static_range(3):
        tl.store(y + i * B + offs, tl.load(x + offs))


@expect(reads="x y", writes="out")
@triton.jit
def swaps_while_unrolling(x, y, out, B: tl.constexpr = 16):
    a, b = x, y
    offs = tl.arange(0, B)
    total = tl.zeros((B,), tl.float32)
    for _ in tl.static_range(2):
        total += tl.load(a + offs)
        a, b = b, a
    tl.store(out + offs, total)


@expect(reads="x", writes="y")
@triton.jit
def swaps_an_even_number_of_times(x, y, B: tl.constexpr = 16):
    a, b = x, y
    for _ in tl.static_range(4):
        a, b = b, a
    offs = tl.arange(0, B)
    tl.store(b + offs, tl.load(a + offs))


@expect(reads="x", writes="y")
@triton.jit
def loops_with_range_options(x, y, k, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    for i in tl.range(0, k, num_stages=3, loop_unroll_factor=2):
        tl.store(y + i * B + offs, tl.load(x + i * B + offs))


@expect(reads="x", writes="y")
@triton.jit
def counts_down(x, y, k, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    for i in range(k, 0, -1):
        tl.store(y + i * B + offs, tl.load(x + offs))


@expect(reads="x", writes="y")
@triton.jit
def loops_over_addresses(x, y, B: tl.constexpr = 16):
    start = y.to(tl.int64)
    nothing = tl.program_id(0).to(tl.int64)
    for address in range(start, start + 64, 4):
        tl.store((address + nothing).to(tl.pointer_type(tl.float32)), tl.load(x))


@expect(reads="x", writes="y")
@triton.jit
def bumps_an_address_as_an_integer(x, y, k):
    address = y.to(tl.int64)
    for _ in range(k):
        tl.store(address.to(tl.pointer_type(tl.float32)), tl.load(x))
        address += 4


@expect(reads="pair[0] pair[1]", writes="pair[0] pair[1]")
@triton.jit
def swaps_tuple_members_in_a_loop(pair, k, B: tl.constexpr = 16):
    a, b = pair[0], pair[1]
    offs = tl.arange(0, B)
    for _ in range(k):
        tl.store(b + offs, tl.load(a + offs) + 1)
        a, b = b, a


@expect(writes="y", reads="x", may="write:y")
@triton.jit
def stores_after_a_search(x, y, n, B: tl.constexpr = 16):
    found = 0
    i = 0
    while (found == 0) & (i < n):
        if tl.load(x + i) > 100.0:
            found = 1
        i += 1
    if found == 1:
        tl.store(y, i)


@expect(reads="x y", writes="x y")
@triton.jit
def carries_a_tuple_of_pointers(x, y, k, B: tl.constexpr = 16):
    both = (x, y)
    offs = tl.arange(0, B)
    for _ in range(k):
        tl.store(both[1] + offs, tl.load(both[0] + offs) + 1)
        both = (both[1], both[0])


@expect(reads="x", writes="y")
@triton.jit
def loops_for_specialised_warps(x, y, k, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    for i in tl.range(0, k, flatten=True, disallow_acc_multi_buffer=True):
        tl.store(y + i * B + offs, tl.load(x + i * B + offs))


@expect(reads="x", writes="y out")
@triton.jit
def fills_two_outputs_in_turns(x, y, out, B: tl.constexpr = 16):
    p, q = y, out
    offs = tl.arange(0, B)
    for i in range(4):
        tl.store(p + i * B + offs, tl.load(x + offs))
        p, q = q, p


@expect(reads="x", writes="y")
@triton.jit
def swaps_an_even_number_of_times_in_a_loop(x, y, B: tl.constexpr = 16):
    a, b = x, y
    for _ in range(100):
        a, b = b, a
    offs = tl.arange(0, B)
    tl.store(b + offs, tl.load(a + offs))
