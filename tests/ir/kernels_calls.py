"""Helpers: inlined and not, nested, in loops, returning pointers and tuples with pointers."""

import triton
import triton.language as tl

from tests.ir.expected import expect


@triton.jit
def store_one(p, offs):
    tl.store(p + offs, 1.0)


@triton.jit(noinline=True)
def store_one_apart(p, value):
    tl.store(p, value)


@triton.jit
def load_block(p, offs):
    return tl.load(p + offs)


@triton.jit
def moved(p, by):
    return p + by


@triton.jit(noinline=True)
def moved_apart(p, by):
    return p + by


@triton.jit
def swapped(a, b):
    return b, a


@triton.jit(noinline=True)
def swapped_apart(a, b):
    return b, a


@triton.jit
def chosen(a, b, flag):
    if flag > 0:
        return a
    return b


@triton.jit
def pointer_and_value(p, offs):
    return p + 16, tl.load(p + offs)


@triton.jit
def copy_through(source, sink, offs):
    store_value(sink, offs, load_block(source, offs))


@triton.jit
def store_value(p, offs, value):
    tl.store(p + offs, value)


@triton.jit(noinline=True)
def copy_scalar_apart(source, sink):
    store_one_apart(sink, tl.load(source))


@triton.jit
def ignores_its_pointer(p, value):
    return value + 1


@triton.jit
def member_of(pair, INDEX: tl.constexpr):
    return pair[INDEX]


@triton.jit
def store_unless(p, n):
    if n > 100:
        return
    tl.store(p, 1.0)


@triton.jit
def apply(FUNCTION: tl.constexpr, p, offs):
    return FUNCTION(p, offs)


@triton.jit(noinline=True)
def bumped_in_a_loop_apart(p, n):
    for _ in range(n):
        tl.store(p, 1.0)
        p += 1
    return p


@expect(writes="y")
@triton.jit
def calls_a_helper_that_stores(x, y, B: tl.constexpr = 16):
    store_one(y, tl.arange(0, B))


@expect(writes="y")
@triton.jit
def calls_a_noinline_helper_that_stores(x, y):
    store_one_apart(y, 2.0)


@expect(reads="x", writes="y")
@triton.jit
def calls_one_helper_for_two_tensors(x, y, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    store_value(moved(y, 1), offs, load_block(moved(x, 2), offs))


@expect(reads="x", writes="y")
@triton.jit
def calls_one_noinline_helper_for_two_tensors(x, y, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    tl.store(moved_apart(y, 1) + offs, tl.load(moved_apart(x, 2) + offs))


@expect(reads="y", writes="x")
@triton.jit
def swaps_by_a_helper(x, y, B: tl.constexpr = 16):
    a, b = swapped(x, y)
    offs = tl.arange(0, B)
    tl.store(b + offs, tl.load(a + offs))


@expect(reads="y", writes="x")
@triton.jit
def swaps_by_a_noinline_helper(x, y, B: tl.constexpr = 16):
    a, b = swapped_apart(x, y)
    offs = tl.arange(0, B)
    tl.store(b + offs, tl.load(a + offs))


@expect(reads="x", writes="y out", may="write:out")
@triton.jit
def chooses_in_a_helper(x, y, out, flag, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    tl.store(chosen(y, out, flag) + offs, tl.load(x + offs))


@expect(reads="x", writes="y")
@triton.jit
def gets_a_pointer_and_a_value(x, y, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    p, value = pointer_and_value(x, offs)
    tl.store(y + offs, value + tl.load(p + offs))


@expect(reads="x", writes="y")
@triton.jit
def nests_helpers(x, y, B: tl.constexpr = 16):
    copy_through(x, y, tl.arange(0, B))


@expect(reads="x", writes="y")
@triton.jit
def nests_noinline_helpers(x, y):
    copy_scalar_apart(x, y)


@expect(reads="x y", writes="x y")
@triton.jit
def calls_both_ways_round(x, y, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    copy_through(x, y, offs)
    copy_through(y, x, offs)


@expect(writes="y")
@triton.jit
def hands_a_pointer_to_a_helper_that_ignores_it(x, y):
    tl.store(y, ignores_its_pointer(x, 1.0))


@expect(reads="pair[0]", writes="pair[1]")
@triton.jit
def takes_members_by_a_helper(pair, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    tl.store(member_of(pair, 1) + offs, tl.load(member_of(pair, 0) + offs))


@expect(reads="x", writes="y")
@triton.jit
def makes_a_tuple_of_pointers(x, y, B: tl.constexpr = 16):
    both = (x, y)
    offs = tl.arange(0, B)
    tl.store(both[1] + offs, tl.load(both[0] + offs))


@expect(writes="x y")
@triton.jit
def calls_a_helper_with_an_early_return(x, y, n):
    store_unless(y, n)
    tl.store(x, 1.0)


@expect(writes="y", args={"n": 101}, may="write:y")
@triton.jit
def calls_a_helper_that_does_return_early(y, n):
    store_unless(y, n)


@expect(reads="x", writes="y")
@triton.jit
def passes_a_function_as_constexpr(x, y, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    tl.store(y + offs, apply(load_block, x, offs))


@expect(writes="y")
@triton.jit
def calls_a_noinline_helper_with_a_loop(y, k):
    end = bumped_in_a_loop_apart(y, k)
    tl.store(end, 2.0)


@expect(writes="x y", may="write:x")
@triton.jit
def calls_a_noinline_helper_in_a_branch(x, y, flag):
    if flag > 0:
        store_one_apart(y, 1.0)
    else:
        store_one_apart(x, 1.0)


@expect(writes="y")
@triton.jit
def calls_a_noinline_helper_in_a_loop(x, y, k):
    p = y
    for _ in range(k):
        store_one_apart(p, 1.0)
        p = moved_apart(p, 1)


@expect(reads="x", writes="y")
@triton.jit
def uses_helpers_of_the_language(x, y, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    value = tl.load(x + offs)
    tl.store(y + offs, tl.softmax(value) + tl.sigmoid(value) + tl.cdiv(B, 3))


@expect(writes="y")
@triton.jit
def calls_a_helper_with_an_early_return_in_a_loop(x, y, n, k):
    for i in range(k):
        store_unless(y + i, n)


@expect(reads="x", writes="y out", may="write:out")
@triton.jit
def chooses_in_a_helper_in_a_loop(x, y, out, flag, k, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    p = y
    for _ in range(k):
        tl.store(p + offs, tl.load(x + offs))
        p = chosen(y, out, flag)


@triton.jit
def with_default(p, offs, scale: tl.constexpr = 2):
    tl.store(p + offs * scale, 1.0)


@expect(writes="y")
@triton.jit
def calls_with_defaults_and_names(x, y, B: tl.constexpr = 16):
    with_default(offs=tl.arange(0, B), p=y)
