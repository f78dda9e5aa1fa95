"""The kernels that the GPU worker launches itself: on redzones, poison, and the outputs of two launches.

All parameters are addresses or integers of 64 bits. Views have up to five dimensions: ``n1`` to ``n4`` are the sizes of
the last four, ``s0`` to ``s4`` the strides, in elements; those of a view that ``IS_DENSE`` do not count.
"""

from __future__ import annotations

import triton
import triton.language as tl

DIMENSIONS = 5
BLOCK = 1024
GOLDEN = -7046029254386353131
"""Multiplied with the position, so that bytes copied from one redzone to another place show as damage."""

_GOLDEN = tl.constexpr(GOLDEN)
_INFINITY = tl.constexpr(float("inf"))


@triton.jit
def _pattern(place):
    """Return the bytes that redzones hold at these places of an allocation."""
    return (((place >> 3) * _GOLDEN) >> ((place & 7) * 8)) & 255


@triton.jit
def mark_zone(room, start, end, BLOCK: tl.constexpr):
    place = start + tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(room + place, _pattern(place).to(tl.uint8), mask=place < end)


@triton.jit
def zone_damage(room, start, end, totals, BLOCK: tl.constexpr):
    """Add up in ``totals``: the number of damaged bytes; the first and the last place of one."""
    place = start + tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    held = tl.load(room + place, mask=place < end, other=0).to(tl.int64)
    wrong = (place < end) & (held != _pattern(place))
    count = tl.sum(wrong.to(tl.int64))
    if count > 0:
        tl.atomic_add(totals, count)
        tl.atomic_min(totals + 1, tl.min(tl.where(wrong, place, 2**62)))
        tl.atomic_max(totals + 2, tl.max(tl.where(wrong, place, -1)))


@triton.jit
def sum_of_bytes(data, count, totals, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(totals, tl.sum(tl.load(data + place, mask=place < count, other=0).to(tl.int64)))


@triton.jit
def _offset(element, n1, n2, n3, n4, s0, s1, s2, s3, s4, IS_DENSE: tl.constexpr):
    """Return the offsets of a view's elements, by their number in it."""
    if IS_DENSE:
        return element
    at = (element % n4) * s4
    element = element // n4
    at += (element % n3) * s3
    element = element // n3
    at += (element % n2) * s2
    element = element // n2
    return at + (element % n1) * s1 + (element // n1) * s0


@triton.jit
def fill_view(data, bits, count, n1, n2, n3, n4, s0, s1, s2, s3, s4, IS_DENSE: tl.constexpr, BLOCK: tl.constexpr):
    element = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    at = _offset(element, n1, n2, n3, n4, s0, s1, s2, s3, s4, IS_DENSE)
    value = tl.full((BLOCK,), 0, tl.int64) + bits
    tl.store(data + at, value.to(data.dtype.element_ty), mask=element < count)


@triton.jit
def largest_size(data, totals, count, n1, n2, n3, n4, s0, s1, s2, s3, s4, IS_DENSE: tl.constexpr, BLOCK: tl.constexpr):
    """Raise ``totals``, a float64, to the largest magnitude of the finite elements."""
    element = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    at = _offset(element, n1, n2, n3, n4, s0, s1, s2, s3, s4, IS_DENSE)
    size = tl.abs(tl.load(data + at, mask=element < count, other=0).to(tl.float64))
    largest = tl.max(tl.where(size < _INFINITY, size, 0.0))
    # Floats that are not negative have the order of their bits.
    tl.atomic_max(totals, largest.to(tl.int64, bitcast=True))


@triton.jit
def differing_floats(
    got_data,
    want_data,
    largest,
    limits,
    totals,
    count,
    n1,
    n2,
    n3,
    n4,
    s0,
    s1,
    s2,
    s3,
    s4,
    IS_DENSE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Compare two views as `kernellab.checking.tolerance` does; ``limits`` are those of the format, and the share.

    Adds up in ``totals``: the number of elements beyond the tolerance; the largest finite distance, a float64; the
    number of elements that differ by no finite distance.
    """
    element = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = element < count
    at = _offset(element, n1, n2, n3, n4, s0, s1, s2, s3, s4, IS_DENSE)
    got = tl.load(got_data + at, mask=inside, other=0).to(tl.float64)
    want = tl.load(want_data + at, mask=inside, other=0).to(tl.float64)
    unit, smallest, greatest = tl.load(limits), tl.load(limits + 1), tl.load(limits + 2)
    size = tl.abs(want)
    is_finite = (tl.abs(got) < _INFINITY) & (size < _INFINITY)
    allowed = unit * tl.where(size < _INFINITY, size, 0.0) + smallest + tl.load(limits + 3) * tl.load(largest)
    distance = tl.abs(got - want)
    beyond = (size < _INFINITY) & (size + allowed > greatest)
    over = (tl.abs(got) >= greatest) & ((got > 0) == (want > 0))
    right = is_finite & (distance <= allowed) | (got == want) | (got != got) & (want != want) | beyond & over
    wrong = inside & ~right
    tl.atomic_add(totals, tl.sum(wrong.to(tl.int64)))
    known = tl.max(tl.where(inside & (distance < _INFINITY), distance, 0.0))
    tl.atomic_max(totals + 1, known.to(tl.int64, bitcast=True))
    tl.atomic_add(totals + 2, tl.sum((wrong & ~(distance < _INFINITY)).to(tl.int64)))


@triton.jit
def differing_integers(
    got_data, want_data, totals, count, n1, n2, n3, n4, s0, s1, s2, s3, s4, IS_DENSE: tl.constexpr, BLOCK: tl.constexpr
):
    """Add up in ``totals``: the number of differing elements; the largest distance, a float64."""
    element = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = element < count
    at = _offset(element, n1, n2, n3, n4, s0, s1, s2, s3, s4, IS_DENSE)
    got = tl.load(got_data + at, mask=inside, other=0).to(tl.int64)
    want = tl.load(want_data + at, mask=inside, other=0).to(tl.int64)
    tl.atomic_add(totals, tl.sum((inside & (got != want)).to(tl.int64)))
    distance = tl.max(tl.abs((got - want).to(tl.float64)))
    tl.atomic_max(totals + 1, distance.to(tl.int64, bitcast=True))


@triton.jit
def keep_busy(turns, totals, BLOCK: tl.constexpr):
    """Let one program count; the memory of the device stays untouched but for one word."""
    value = turns
    for _ in range(turns):
        value = value * 6364136223846793005 + 1442695040888963407
    tl.store(totals, value)
