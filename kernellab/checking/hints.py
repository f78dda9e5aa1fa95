"""Hints on wrong outputs: the likeliest mistakes, each only where the data show it.

Each rule returns a sentence about a mismatch, or nothing. The rules that explain most come first, and at most two hints
are shown. An output resembles a changed reference (transposed, shifted, scaled, in another format, or added to initial
contents) if all its elements are within the bounds of that, for a shift nearly all.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Any

from kernellab.checking.comparison import ExpectedValue, agree, index_of, index_text
from kernellab.checking.resemblance import is_distinctive, row_factors, shift_of
from kernellab.checking.tolerance import FLOAT32, error_of_unknown, share_of_largest, unit_of
from kernellab.ir.effects import NO_EFFECTS, Effects
from kernellab.ir.operations import Access

_AT_MOST = 2
_NAMES = ("i", "j", "k", "l", "m")
_LARGEST_PART = 16  # of the numerator and denominator of a simple fraction
_NEAR = 2e-3
_NEAR_ROOT = 5e-4  # roots of whole numbers lie close together
_LARGEST_UNDER_ROOT = 256
_NARROW = ("bfloat16", "float16", "float32")  # from coarse to fine
_NARROW_ROUNDINGS = 4
_NARROW_AT_LEAST = 0.9


class HintKind(StrEnum):
    """The kind of mistake that a hint names."""

    STORES_NOTHING = "stores nothing"
    ACCUMULATOR = "accumulator"
    TRANSPOSED = "transposed"
    SHIFTED = "shifted"
    SCALED = "scaled"
    FORMAT = "format"
    NOT_CONTIGUOUS = "not contiguous"
    MASKED_LANES = "masked lanes"
    NEVER_READ = "never read"
    ROWS_SCALED = "rows scaled"


@dataclass(frozen=True, slots=True)
class MaskedLanes:
    """A load with masked lanes that reach the output: with ``fill`` in them, the output equals its reference.

    ``has_other``: the load has an ``other=``.
    """

    argument: str
    line: int | None
    fill: str
    has_other: bool


@dataclass(frozen=True, slots=True)
class UnreadElements:
    """Elements of an input that no program reads, though wrong elements of the output depend on them."""

    argument: str
    count: int
    elements: int
    first: tuple[int, ...]
    last: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RepeatOutcome:
    """The outcome of launches on changed copies.

    ``strides`` has the strides of non-contiguous arguments, by name, if the launch is right on contiguous copies.
    """

    strides: tuple[tuple[str, tuple[int, ...]], ...] = ()
    lanes: tuple[MaskedLanes, ...] = ()
    never_read: tuple[UnreadElements, ...] = ()


@dataclass(frozen=True, slots=True)
class Mismatch:
    """An output that differs from its reference; ``expression`` names the reference.

    ``got`` is the output and ``want`` its expected value; ``unwritten`` is the mask of unwritten elements and
    ``before`` the contents before the first of ``launches``, None where unknown.
    """

    argument: str
    expression: str
    got: Any
    want: ExpectedValue
    effects: Effects = NO_EFFECTS
    unwritten: Any = None
    before: Any = None
    launches: int = 1
    outcome: RepeatOutcome = RepeatOutcome()


def hints_on(mismatch: Mismatch) -> dict[HintKind, str]:
    """Return at most two mistakes that explain a difference, the likeliest first, each as a sentence."""
    hints: dict[HintKind, str] = {}
    for kind, texts in _RULES.items():
        for text in itertools.islice(texts(mismatch), 1):
            hints[kind] = text
        if len(hints) == _AT_MOST or hints.keys() & _WHOLE:
            break
    return hints


def stores_nothing(kernel: str) -> str:
    """Return the advice for a kernel without any store."""
    return f"{kernel} stores nothing: pass it an output and write to that, as in tl.store(out_ptr + offsets, value)."


def _hint_no_store(facts: Mismatch) -> Iterator[str]:
    if facts.unwritten is None or not bool(facts.unwritten.all()):
        return
    sites = [site for site in facts.effects.sites if (site.argument, site.kind) == (facts.argument, Access.WRITE)]
    lines = sorted({site.line for site in sites if site.line is not None})
    where = f" in line{'s' if len(lines) > 1 else ''} {', '.join(map(str, lines))}" if lines else ""
    if sites and all(site.masked and not site.conditional for site in sites):
        yield f"No lane stored to {facts.argument}: the mask of its store{where} was off in all of them."
    elif sites and all(site.conditional and not site.masked for site in sites):
        yield f"No program stored to {facts.argument}: none reached its store{where}."


def _hint_accumulation(facts: Mismatch) -> Iterator[str]:
    if facts.before is None or facts.got.is_complex() or not bool(facts.before.double().isfinite().all()):
        return
    held = facts.before.flatten().nonzero()
    count = _count_added_launches(facts.got, facts.want, facts.before, facts.launches)
    if count is None:
        return
    name = facts.argument
    if count > 1:
        yield f"{name} was added to by {count} launches: set it to zero before each of them, as with {name}.zero_()."
    elif len(held):
        value = float(facts.before.flatten()[held[0, 0]])
        where = index_text(index_of(int(held[0, 0]), facts.got.shape))
        what = f"{value:.6g}" if facts.got.numel() == 1 else f"{value:.6g} at {where}"
        why = f"{name} was not zero at the start ({what}), and the kernel adds to what it holds"
        yield f"{why}: set it to zero before the launch, as with torch.zeros."


def _hint_transposition(facts: Mismatch) -> Iterator[str]:
    got, want = facts.got, facts.want
    if not _is_fully_written(facts) or want.value.dim() < 2 or not is_distinctive(got, want):
        return
    error = None if want.error is None else want.error.mT.reshape(got.shape)
    if agree(got, ExpectedValue(want.value.mT.reshape(got.shape), error, want.unit)):
        how = "exchange rows and columns in the offsets of a load or of the store"
        yield f"{facts.argument} holds {facts.expression} transposed: {how}."


def _hint_shift(facts: Mismatch) -> Iterator[str]:
    shift = None if facts.got.is_complex() else shift_of(facts.got, facts.want, facts.unwritten)
    if shift is None:
        return
    is_later, size = shift.distance > 0, abs(shift.distance)
    if shift.dimension is None:
        way = "further on" if is_later else "earlier"
        words = f"each element lies {size:,} elements {way} in memory than it should"
    else:
        names = _NAMES[: facts.got.dim()]
        moved = [f"{n} {'+' if is_later else '-'} {size}" if i == shift.dimension else n for i, n in enumerate(names)]
        words = f"[{', '.join(moved)}] has what belongs to [{', '.join(names)}]"
    share = "" if shift.share == 1 else f", in {min(shift.share, 0.999):.1%} of the elements"
    yield f"{facts.argument} holds {facts.expression} shifted: {words}{share}."


def _hint_factor(facts: Mismatch) -> Iterator[str]:
    factor = _factor_of(facts.got, facts.want) if _is_fully_written(facts) else None
    if factor == "-1":
        yield f"{facts.argument} is {facts.expression} with the opposite sign, in each element."
    elif factor is not None:
        yield f"{facts.argument} is {factor} times {facts.expression}, in each element."


def _hint_format(facts: Mismatch) -> Iterator[str]:
    if not _is_fully_written(facts):
        return
    kind, name = str(facts.got.dtype).removeprefix("torch."), facts.argument
    largest = _wraps_at(facts.got, facts.want)
    narrow = None if largest is not None else _narrow_format(facts.got, facts.want)
    if largest is not None:
        yield (
            f"{name} is {kind}, whose largest number is {largest:,}, and {facts.expression} goes beyond: "
            "what exceeds it loses its high bits. Use an output with more bits."
        )
    elif narrow is not None:
        yield (
            f"Each element of {name} is a {narrow} number, though it is {kind}: the kernel rounds to "
            f"{narrow} before it stores, and {facts.expression} does not."
        )


def _hint_strides(facts: Mismatch) -> Iterator[str]:
    for name, strides in facts.outcome.strides:
        own = f"{name}.contiguous()" if name != facts.argument else "a contiguous one"
        yield (
            f"{name} is not contiguous (strides {strides}), and the kernel takes it to be: with {own}, "
            f"{facts.argument} equals {facts.expression}. Pass the strides, or that."
        )


def _hint_masked_lanes(facts: Mismatch) -> Iterator[str]:
    for lanes in facts.outcome.lanes:
        where = "" if lanes.line is None else f" in line {lanes.line}"
        why = "its other= is not a neutral value" if lanes.has_other else "what they hold is not defined without other="
        yield (
            f"Masked lanes of the load of {lanes.argument}{where} reach the result, and {why}: with "
            f"other={lanes.fill}, {facts.argument} equals {facts.expression}."
        )


def _hint_unread(facts: Mismatch) -> Iterator[str]:
    for unread in facts.outcome.never_read:
        span, what = index_text(unread.first), "1 element"
        if unread.count > 1:
            span = f"{span} to {index_text(unread.last)}"
            what = f"{unread.count:,} of the {unread.elements:,} elements"
        yield (
            f"No program reads {what} of {unread.argument}, {span}, on which {facts.expression} depends where "
            f"{facts.argument} is wrong: look at the grid, the ends of loops, and the masks."
        )


def _hint_row_factors(facts: Mismatch) -> Iterator[str]:
    if facts.outcome.lanes or facts.outcome.never_read or not _is_fully_written(facts):
        return
    factors = row_factors(facts.got, facts.want)
    if factors is not None:
        yield (
            f"Each row of {facts.argument} is scaled by a factor of its own ({factors[0]:.3g} to {factors[1]:.3g}), as "
            "by a wrong norm or sum. If masked lanes count in that, exclude them: tl.where(mask, x - mean, 0.0)."
        )


def _is_fully_written(facts: Mismatch) -> bool:
    return facts.unwritten is None or not bool(facts.unwritten.any())


def _factor_of(got: Any, want: ExpectedValue) -> str | None:
    """Return the name of the common factor of an output over its reference, None if there is none.

    Simple fractions, powers of two, integers and their square roots are named exactly, other factors by digits.
    """
    if not is_distinctive(got, want) or got.is_complex():
        return None
    a, b = got.double().flatten(), want.value.double().flatten()
    usable = b.isfinite() & a.isfinite()
    below = float((b[usable] ** 2).sum())
    factor = float((a[usable] * b[usable]).sum()) / below if below else 0.0
    if not math.isfinite(factor) or factor == 0:
        return None
    digits = f"{factor:.4g}" if abs(factor - 1) > _NEAR else f"{factor:.8g}"
    for value, name in (*_simple_near(factor), (factor, digits)):
        scaled = want.value.double() * value
        rounded = scaled.abs().nan_to_num(0.0, 0.0, 0.0)
        if want.error is None:
            error = rounded * share_of_largest(max(want.unit, unit_of(got.dtype)))
        else:
            error = want.error.double() * abs(value) + rounded * FLOAT32
        if value != 1 and agree(got, ExpectedValue(scaled, error)):
            return name
    return None


def _count_added_launches(got: Any, want: ExpectedValue, before: Any, launches: int) -> int | None:
    """Return the number of launches added to the initial contents: one, or all of them; else None."""
    for count in dict.fromkeys((1, launches)):
        total = before.double() + count * want.value.double()
        slack = unit_of(got.dtype) * (before.double().abs() + count * want.value.double().abs())
        own = error_of_unknown(got, want.value, want.unit) if want.error is None else want.error.double()
        error = count * (own + slack)
        if agree(got, ExpectedValue(total, error)) and not agree(got, ExpectedValue(before.double(), error)):
            return count
    return None


def _wraps_at(got: Any, want: ExpectedValue) -> int | None:
    """Return the largest integer of an output's format where the output holds the low bits of its reference."""
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


def _narrow_format(got: Any, want: ExpectedValue) -> str | None:
    """Return the narrower format that holds all elements of an output but not those of its reference.

    Nearly all elements are within a few roundings to it of the reference, so that this rounding is the cause.
    """
    import torch

    if not got.dtype.is_floating_point or not is_distinctive(got, want) or not bool(got.isfinite().all()):
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


def _simple_near(factor: float) -> Iterator[tuple[float, str]]:
    """Yield simple numbers near a factor, with their names, the simplest first."""
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


_RULES: Mapping[HintKind, Callable[[Mismatch], Iterator[str]]] = {
    HintKind.STORES_NOTHING: _hint_no_store,
    HintKind.ACCUMULATOR: _hint_accumulation,
    HintKind.NOT_CONTIGUOUS: _hint_strides,
    HintKind.TRANSPOSED: _hint_transposition,
    HintKind.SHIFTED: _hint_shift,
    HintKind.SCALED: _hint_factor,
    HintKind.FORMAT: _hint_format,
    HintKind.MASKED_LANES: _hint_masked_lanes,
    HintKind.NEVER_READ: _hint_unread,
    HintKind.ROWS_SCALED: _hint_row_factors,
}
_WHOLE = {HintKind.STORES_NOTHING, HintKind.ACCUMULATOR, HintKind.NOT_CONTIGUOUS, HintKind.MASKED_LANES}
"""The hints that explain every element, and how to fix it."""
