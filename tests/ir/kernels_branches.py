"""Pointers chosen: by where, ternaries, branches, constexpr branches, early returns."""

# ruff: noqa: SIM108 - branches and ternaries become different operations

import triton
import triton.language as tl

from tests.ir.expected import expect


@expect(reads="x y", writes="out", may="read:y")
@triton.jit
def chooses_by_where(x, y, out, flag, B: tl.constexpr = 16):
    p = tl.where(flag > 0, x, y)
    offs = tl.arange(0, B)
    tl.store(out + offs, tl.load(p + offs))


@expect(reads="x y", writes="out")
@triton.jit
def chooses_lane_by_lane(x, y, out, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    p = tl.where(offs < 8, x + offs, y + offs)
    tl.store(out + offs, tl.load(p))


@expect(reads="x", writes="y out", may="write:out")
@triton.jit
def chooses_by_a_ternary(x, y, out, flag, B: tl.constexpr = 16):
    p = y if flag > 0 else out
    offs = tl.arange(0, B)
    tl.store(p + offs, tl.load(x + offs))


@expect(reads="x", writes="y out", may="write:out")
@triton.jit
def chooses_in_a_branch(x, y, out, flag, B: tl.constexpr = 16):
    if flag > 0:
        p = y
    else:
        p = out + 16
    offs = tl.arange(0, B)
    tl.store(p + offs, tl.load(x + offs))


@expect(reads="x", writes="y out", may="write:out", args={"flag": 7})
@triton.jit
def stores_in_one_branch_or_the_other(x, y, out, flag, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    if flag == 7:
        tl.store(y + offs, tl.load(x + offs))
    else:
        tl.store(out + offs, tl.load(x + offs))


# x reaches the store in no run: the two branches on n agree. The analysis does not relate them.
@expect(reads="x", writes="x y out", may="write:out write:x")
@triton.jit
def chooses_in_nested_branches(x, y, out, n, flag, B: tl.constexpr = 16):
    p = x
    if n > 0:
        if flag > 0:
            p = y
        else:
            p = out
    offs = tl.arange(0, B)
    if n > 0:
        tl.store(p + offs, tl.load(x + offs))
    else:
        tl.store(y + offs, 0.0)


@expect(reads="x", writes="y")
@triton.jit
def chooses_by_a_constexpr(x, y, out, FIRST: tl.constexpr = True, B: tl.constexpr = 16):
    if FIRST:
        p = y
    else:
        p = out
    offs = tl.arange(0, B)
    tl.store(p + offs, tl.load(x + offs))


@expect(reads="x", writes="out", args={"FIRST": False})
@triton.jit
def chooses_by_a_constexpr_that_was_passed(x, y, out, FIRST: tl.constexpr = True, B: tl.constexpr = 16):
    p = y if FIRST else out
    offs = tl.arange(0, B)
    tl.store(p + offs, tl.load(x + offs))


@expect(reads="x", writes="y")
@triton.jit
def returns_early(x, y, n, B: tl.constexpr = 16):
    if n == 0:
        return
    offs = tl.arange(0, B)
    tl.store(y + offs, tl.load(x + offs))


@expect(reads="x", writes="y", args={"n": 0}, may="read:x write:y")
@triton.jit
def returns_early_indeed(x, y, n, B: tl.constexpr = 16):
    if n == 0:
        return
    offs = tl.arange(0, B)
    tl.store(y + offs, tl.load(x + offs))


@expect(reads="x", writes="y out", may="read:x write:out")
@triton.jit
def stores_before_an_early_return(x, y, out, n, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    if n > 0:
        tl.store(y + offs, 1.0)
        return
    tl.store(out + offs, tl.load(x + offs))


@expect(reads="x", writes="y out", may="write:out")
@triton.jit
def returns_early_after_choosing(x, y, out, n, flag, B: tl.constexpr = 16):
    p = y
    if flag > 100:
        p = out
    if n == 0:
        return
    if n == 2000:
        return
    offs = tl.arange(0, B)
    tl.store(p + offs, tl.load(x + offs))


@expect(reads="x", writes="y")
@triton.jit
def always_takes_the_same_branch(x, y, out, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    if B > 8:
        tl.store(y + offs, tl.load(x + offs))
    else:
        tl.store(out + offs, tl.load(x + offs))


@expect(reads="x y", writes="out")
@triton.jit
def swaps_in_a_branch(x, y, out, flag, B: tl.constexpr = 16):
    a, b = x, y
    if flag > 0:
        a, b = y, x
    offs = tl.arange(0, B)
    tl.store(out + offs, tl.load(a + offs) - tl.load(b + offs))


@expect(reads="x", writes="y out", may="write:out")
@triton.jit
def chooses_an_offset_as_well(x, y, out, flag, n, B: tl.constexpr = 16):
    p = tl.where(flag > 0, y, out)
    shift = tl.where(flag > 0, n, 2 * n)
    offs = tl.arange(0, B)
    tl.store(p + shift + offs, tl.load(x + offs))


@expect(reads="x", writes="y")
@triton.jit
def chooses_between_a_pointer_and_itself(x, y, flag, B: tl.constexpr = 16):
    p = y
    if flag > 0:
        p = y + 16
    offs = tl.arange(0, B)
    tl.store(p + offs, tl.load(x + offs))


@expect(reads="x y", writes="out", may="read:y")
@triton.jit
def loads_in_a_ternary(x, y, out, flag, B: tl.constexpr = 16):
    offs = tl.arange(0, B)
    value = tl.load(x + offs) if flag > 0 else tl.load(y + offs)
    tl.store(out + offs, value)


@expect(reads="x idx", writes="y out", may="write:out")
@triton.jit
def chooses_by_a_loaded_value(x, idx, y, out, B: tl.constexpr = 16):
    p = y
    if tl.load(idx) != 0:
        p = out
    offs = tl.arange(0, B)
    tl.store(p + offs, tl.load(x + offs))


@expect(reads="x", writes="y")
@triton.jit
def static_asserts_and_branches_on_a_type(x, y, B: tl.constexpr = 16):
    tl.static_assert(B == 16)
    offs = tl.arange(0, B)
    if x.dtype.element_ty == tl.float32:
        tl.store(y + offs, tl.load(x + offs))
    else:
        tl.store(x + offs, 0.0)
