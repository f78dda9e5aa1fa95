"""What a wrong output resembles: its reference transposed, shifted, scaled, in another format, or added to something.

Each answer is shown by the elements: all within the bounds of the reference, or, of a shift, nearly all.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from kernellab.measure.comparison import ExpectedValue, agree, wrong_elements
from kernellab.measure.tolerance import unit_of

_ELEMENTS_AT_MOST = 1 << 24
_DISTINCT_AT_LEAST = 4
_PROBE = 8
_PROBE_NEAR = 1e-2
_PROBED_AT = (1 / 2, 1 / 4, 3 / 4, 1 / 8, 7 / 8)
_PLACES_AT_MOST = 16
_EQUAL_AT_LEAST = 0.99
_OVERLAP_AT_LEAST = 0.5
_UNSHIFTED_WRONG_AT_LEAST = 0.5
_LARGEST_PART = 16  # of what is called a simple fraction
_NEAR = 2e-3
_NEAR_ROOT = 5e-4  # roots of whole numbers lie close together
_LARGEST_UNDER_ROOT = 256
_NARROW = ("bfloat16", "float16", "float32")  # a number of the first is one of the others, too
_NARROW_ROUNDINGS = 4
_NARROW_AT_LEAST = 0.9


def is_transposed(got: Any, want: ExpectedValue) -> bool:
    """Tell whether an output holds its reference with the last two dimensions exchanged, in the order of memory."""
    if want.value.dim() < 2 or not _can_be_told(got, want):
        return False
    error = None if want.error is None else want.error.mT.reshape(got.shape)
    return agree(got, ExpectedValue(want.value.mT.reshape(got.shape), error, want.unit))


@dataclass(frozen=True, slots=True)
class Shift:
    """How far each element lies from where it belongs: by ``distance`` along ``dimension``, or where that is None
    through the elements in the order of memory. ``share`` of those that remain inside are equal.
    """

    distance: int
    dimension: int | None
    share: float


def shift_of(got: Any, want: ExpectedValue, unwritten: Any = None) -> Shift | None:
    """Return the shift after which an output holds its reference, None where there is none.

    It is one by which at least 99 % of the elements are right that stay inside, and these are at least half of all,
    while at least half of all are wrong without it.
    """
    if not _can_be_told(got, want):
        return None
    wrong = wrong_elements(got, want)
    if float(wrong.float().mean()) < _UNSHIFTED_WRONG_AT_LEAST:
        return None
    found = (_shifted(got, want, k, unwritten) for k in _distances(got, want))
    return max(filter(None, found), key=lambda shift: shift.share, default=None)


def factor_of(got: Any, want: ExpectedValue) -> tuple[float, str] | None:
    """Return the one factor by which an output differs from its reference and its name, None where there is none.

    A simple fraction, a power of two, a whole number and a square root of one have their names, others their digits.
    """
    if not _can_be_told(got, want) or got.is_complex():
        return None
    a, b = got.double().flatten(), want.value.double().flatten()
    usable = b.isfinite() & a.isfinite()
    below = float((b[usable] ** 2).sum())
    factor = float((a[usable] * b[usable]).sum()) / below if below else 0.0
    if not math.isfinite(factor) or factor == 0:
        return None
    for value, name in (*_simple_near(factor), (factor, f"{factor:.4g}")):
        error = None if want.error is None else want.error.double() * max(abs(value), 1)
        if value != 1 and agree(
            got, ExpectedValue(want.value.double() * value, error, max(want.unit, unit_of(got.dtype)))
        ):
            return value, name
    return None


def added_launches(got: Any, want: ExpectedValue, before: Any, launches: int) -> int | None:
    """Return how many launches added the reference to what an output held before: one, or all of them; else None."""
    for count in dict.fromkeys((1, launches)):
        total = before.double() + count * want.value.double()
        slack = unit_of(got.dtype) * (before.double().abs() + count * want.value.double().abs())
        error = None if want.error is None else count * want.error.double() + count * slack
        if agree(got, ExpectedValue(total, error, want.unit)):
            return count
    return None


def wraps_at(got: Any, want: ExpectedValue) -> int | None:
    """Return the largest number of the format of an output that holds the low bits of a reference beyond it."""
    import torch

    is_small = not (got.dtype.is_floating_point or got.dtype.is_complex or got.dtype == torch.bool)
    value = want.value
    if not is_small or value.is_complex() or not bool(value.double().isfinite().all()):
        return None
    limits = torch.iinfo(got.dtype)
    whole = value.double().round().to(torch.int64)
    exceeds = (whole > limits.max) | (whole < limits.min)
    if not bool(exceeds.any()) or float(value.double().abs().max()) >= 2.0**62:
        return None
    return int(limits.max) if torch.equal(whole.to(got.dtype), got) else None


def narrow_format(got: Any, want: ExpectedValue) -> str | None:
    """Return the format of fewer bits that holds all elements of an output, and not those of its reference.

    Nearly all are within a few of its roundings of the reference, so that rounding to it explains the difference.
    """
    import torch

    if not got.dtype.is_floating_point or not _can_be_told(got, want) or not bool(got.isfinite().all()):
        return None
    value, have = want.value.double(), got.double()
    if bool((have == have.round()).all()):
        return None
    for name in _NARROW:
        dtype = getattr(torch, name)
        unit = unit_of(dtype)
        if unit <= unit_of(got.dtype):
            continue
        fits = value.to(dtype).double() == value.to(got.dtype).double()
        if not bool((have.to(dtype).double() == have).all()) or float(fits.float().mean()) > 1 / 2:
            continue
        near = (have - value).abs() <= _NARROW_ROUNDINGS * unit * value.abs()
        return name if float(near.float().mean()) >= _NARROW_AT_LEAST else None
    return None


def _can_be_told(got: Any, want: ExpectedValue) -> bool:
    """Tell whether a reference has enough different values for a likeness to mean something."""
    if not 0 < got.numel() <= _ELEMENTS_AT_MOST:
        return False
    first = want.value.flatten()[: 1 << 16]
    return int(first.unique().numel()) >= _DISTINCT_AT_LEAST


def _simple_near(factor: float) -> Iterator[tuple[float, str]]:
    """Yield numbers with a name that are near a factor, the simplest first."""
    sign, size = ("-" if factor < 0 else ""), abs(factor)
    power = round(math.log2(size))
    exact = [(2.0**power, f"2^{power}" if abs(power) > 4 else str(Fraction(2) ** power))]
    near = Fraction(size).limit_denominator(_LARGEST_PART)
    if near and (near.denominator == 1 or near.numerator <= _LARGEST_PART):
        exact.append((float(near), str(near)))
    inverse = Fraction(1, max(1, round(1 / size)))
    exact.append((float(inverse), str(inverse)))
    whole = max(2, round(max(size, 1 / size) ** 2))
    near_by = [(value, name, _NEAR) for value, name in exact]
    if whole <= _LARGEST_UNDER_ROOT:
        root = math.sqrt(whole)
        near_by.append((root, f"√{whole}", _NEAR_ROOT) if size > 1 else (1 / root, f"1/√{whole}", _NEAR_ROOT))
    for value, name, limit in near_by:
        if abs(value - size) <= limit * size:
            yield math.copysign(value, factor), f"{sign}{name}"


def _distances(got: Any, want: ExpectedValue) -> list[int]:
    """Return by how many elements some of an output's may have moved, where few distances can be told."""
    a, b = got.double().flatten(), want.value.double().flatten()
    row = want.value.shape[-1] if want.value.dim() > 1 else 0
    length = min(_PROBE, row // 2 if row >= 2 * _DISTINCT_AT_LEAST else len(b) // 2)
    for share in _PROBED_AT:
        place = int(share * (len(b) - length))
        if row > length:  # in the middle of a row, which a shift within rows leaves whole
            place = place // row * row + (row - length) // 2
        place = min(place, len(b) - length)
        if b[place : place + length].unique().numel() < min(length, _DISTINCT_AT_LEAST):
            continue
        found = [at - place for at in _places_of(b[place : place + length], a) if at != place]
        if 0 < len(found) <= _PLACES_AT_MOST:
            return found
    return []


def _places_of(probe: Any, values: Any) -> list[int]:
    """Return where in a vector a few consecutive values stand."""
    import torch

    count = len(values) - len(probe) + 1
    hits = torch.ones(count, dtype=torch.bool, device=values.device)
    for at, expected in enumerate(probe):
        hits &= (values[at : at + count] - expected).abs() <= _PROBE_NEAR * expected.abs()
    return [int(place) for place in hits.nonzero().flatten()[: _PLACES_AT_MOST + 2]]


def _shifted(got: Any, want: ExpectedValue, distance: int, unwritten: Any) -> Shift | None:
    """Return how an output is shifted by a number of elements, along the dimension that tells it best."""
    shape = want.value.shape
    row = shape[-1] if len(shape) > 1 else 0
    flat = want.value.numel()
    ways: list[tuple[int | None, int, tuple[int, int]]] = []
    if row and abs(distance) < row:
        ways.append((len(shape) - 1, distance, (flat // row, row)))
    if row and distance % row == 0 and len(shape) == 2:
        ways.append((0, distance // row, (flat // row, row)))
    ways.append((0 if len(shape) == 1 else None, distance, (1, flat)))
    for dimension, by, view in ways:
        share = _share_equal(got, want, by, view, axis=0 if dimension == 0 and row else 1, unwritten=unwritten)
        if share >= _EQUAL_AT_LEAST:
            return Shift(by, dimension, share)
    return None


def _share_equal(got: Any, want: ExpectedValue, by: int, view: tuple[int, int], axis: int, unwritten: Any) -> float:
    size = view[axis]
    kept = size - abs(by)
    if kept < size * _OVERLAP_AT_LEAST or kept < 1:
        return 0.0

    def part(tensor: Any, start: int) -> Any:
        return tensor.reshape(view).narrow(axis, start, kept)

    to, of = max(by, 0), max(-by, 0)
    error = None if want.error is None else part(want.error, of)
    wrong = wrong_elements(part(got, to), ExpectedValue(part(want.value, of), error, want.unit))
    if unwritten is not None:
        wrong = wrong | part(unwritten, to).flatten()
    return 1 - float(wrong.float().mean())
