"""What a wrong output teaches: the likeliest mistakes, each only where the data show it.

A rule looks at the facts of a difference and returns a sentence, or nothing. The order of the rules is that of how much
each explains; of what they say, the first two are told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from kernellab.ir.effects import NO_EFFECTS, Access, Effects
from kernellab.measure.comparison import ExpectedValue
from kernellab.measure.resemblance import (
    Shift,
    added_launches,
    factor_of,
    is_transposed,
    narrow_format,
    shift_of,
    wraps_at,
)

_AT_MOST = 2
_NAMES = ("i", "j", "k", "l", "m")


class HintKind(StrEnum):
    """What a hint is about."""

    STORES_NOTHING = "stores nothing"
    ACCUMULATOR = "accumulator"
    TRANSPOSED = "transposed"
    SHIFTED = "shifted"
    SCALED = "scaled"
    FORMAT = "format"
    NOT_CONTIGUOUS = "not contiguous"
    MASKED_LANES = "masked lanes"
    NEVER_READ = "never read"


@dataclass(frozen=True, slots=True)
class Hint:
    """A mistake that explains a difference, as a sentence for the user."""

    kind: HintKind
    text: str


@dataclass(frozen=True, slots=True)
class MaskedLanes:
    """A load whose masked lanes reach the output: with ``fill`` in place of what they hold, that equals its reference.

    ``has_other`` tells whether the load says itself what they hold.
    """

    argument: str
    line: int | None
    fill: str
    has_other: bool


@dataclass(frozen=True, slots=True)
class NeverRead:
    """Elements of an input that no program reads, and that the reference depends on where the output is wrong."""

    argument: str
    count: int
    elements: int
    first: tuple[int, ...]
    last: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Tried:
    """What launches on changed copies showed.

    ``strides`` holds those of the arguments that are not contiguous, by name, where the output of contiguous ones
    equals its reference.
    """

    strides: tuple[tuple[str, tuple[int, ...]], ...] = ()
    lanes: tuple[MaskedLanes, ...] = ()
    never_read: tuple[NeverRead, ...] = ()


@dataclass(frozen=True, slots=True)
class Mismatch:
    """An output that differs from its reference, called ``expression``.

    ``got`` is the tensor and ``want`` what it is to hold; ``unwritten`` is the mask of the elements that no launch
    wrote and ``before`` what it held before the first of ``launches``, None where that is not known.
    """

    argument: str
    expression: str
    got: Any
    want: ExpectedValue
    effects: Effects = NO_EFFECTS
    unwritten: Any = None
    before: Any = None
    launches: int = 1
    tried: Tried = Tried()


def hints_on(mismatch: Mismatch) -> tuple[Hint, ...]:
    """Return at most two hints, the likeliest first."""
    found: list[Hint] = []
    for rule in _RULES:
        text = next(rule.texts(mismatch), None)
        if text is not None:
            found.append(Hint(rule.kind, text))
        if len(found) == _AT_MOST or (text is not None and rule.is_whole):
            break  # what explains every element leaves nothing to explain
    return tuple(found)


def stores_nothing(kernel: str) -> Hint:
    """Return the hint on a kernel that has no store at all."""
    text = f"{kernel} stores nothing: pass it an output and write to that, as in tl.store(out_ptr + offsets, value)."
    return Hint(HintKind.STORES_NOTHING, text)


def _never_stored(facts: Mismatch) -> Iterator[str]:
    if facts.unwritten is None or not bool(facts.unwritten.all()):
        return
    sites = [site for site in facts.effects.sites if (site.argument, site.kind) == (facts.argument, Access.WRITE)]
    lines = sorted({site.line for site in sites if site.line is not None})
    where = f" in line{'s' if len(lines) > 1 else ''} {', '.join(map(str, lines))}" if lines else ""
    if sites and all(site.masked and not site.conditional for site in sites):
        yield f"No lane stored to {facts.argument}: the mask of its store{where} was off in all of them."
    elif sites and all(site.conditional and not site.masked for site in sites):
        yield f"No program stored to {facts.argument}: none came to its store{where}."


def _accumulator(facts: Mismatch) -> Iterator[str]:
    if facts.before is None or facts.got.is_complex() or not bool(facts.before.double().isfinite().all()):
        return
    held = facts.before.flatten().nonzero()
    count = added_launches(facts.got, facts.want, facts.before, facts.launches)
    if count is None:
        return
    if count > 1:
        yield (
            f"{facts.argument} was added to by {count} launches: set it to zero before each of them, as with "
            f"{facts.argument}.zero_()."
        )
    elif len(held):
        value = float(facts.before.flatten()[held[0, 0]])
        what = f"{value:.6g}" if facts.got.numel() == 1 else f"{value:.6g} at {_place(facts.got, int(held[0, 0]))}"
        yield (
            f"{facts.argument} was not zero at the start ({what}), and the kernel adds to what it holds: set it to "
            "zero before the launch, as with torch.zeros."
        )


def _transposed(facts: Mismatch) -> Iterator[str]:
    if _is_whole(facts) and is_transposed(facts.got, facts.want):
        yield (
            f"{facts.argument} holds {facts.expression} transposed: exchange rows and columns in the offsets of a load "
            "or of the store."
        )


def _shifted(facts: Mismatch) -> Iterator[str]:
    if facts.got.is_complex():
        return
    shift = shift_of(facts.got, facts.want, facts.unwritten)
    if shift is not None:
        share = "" if shift.share == 1 else f", in {min(shift.share, 0.999):.1%} of the elements"
        yield f"{facts.argument} holds {facts.expression} shifted: {_shift_words(facts, shift)}{share}."


def _shift_words(facts: Mismatch, shift: Shift) -> str:
    by = f"{'+' if shift.distance > 0 else '-'} {abs(shift.distance)}"
    if shift.dimension is None:
        way = "further on" if shift.distance > 0 else "earlier"
        return f"each element lies {abs(shift.distance):,} elements {way} in memory than it should"
    names = _NAMES[: facts.got.dim()]
    there = [f"{name} {by}" if at == shift.dimension else name for at, name in enumerate(names)]
    return f"[{', '.join(there)}] has what belongs to [{', '.join(names)}]"


def _scaled(facts: Mismatch) -> Iterator[str]:
    found = factor_of(facts.got, facts.want) if _is_whole(facts) else None
    if found is None:
        return
    factor, name = found
    if factor == -1:
        yield f"{facts.argument} is {facts.expression} with the other sign, in each element."
    else:
        yield f"{facts.argument} is {name} times {facts.expression}, in each element."


def _format(facts: Mismatch) -> Iterator[str]:
    if not _is_whole(facts):
        return
    kind = str(facts.got.dtype).removeprefix("torch.")
    largest = wraps_at(facts.got, facts.want)
    if largest is not None:
        yield (
            f"{facts.argument} is {kind}, whose largest number is {largest:,}, and {facts.expression} goes beyond: "
            "what exceeds it loses its high bits. Use an output with more bits."
        )
        return
    narrow = narrow_format(facts.got, facts.want)
    if narrow is not None:
        yield (
            f"Each element of {facts.argument} is a {narrow} number, though it is {kind}: the kernel rounds to "
            f"{narrow} before it stores, and {facts.expression} does not."
        )


def _not_contiguous(facts: Mismatch) -> Iterator[str]:
    for name, strides in facts.tried.strides:
        own = f"{name}.contiguous()" if name != facts.argument else "a contiguous one"
        yield (
            f"{name} is not contiguous (strides {strides}), and the kernel takes it to be: with {own}, "
            f"{facts.argument} equals {facts.expression}. Pass the strides, or that."
        )


def _masked_lanes(facts: Mismatch) -> Iterator[str]:
    for lanes in facts.tried.lanes:
        where = "" if lanes.line is None else f" in line {lanes.line}"
        why = "its other= is no neutral value" if lanes.has_other else "what they hold is not defined without other="
        yield (
            f"Masked lanes of the load of {lanes.argument}{where} reach the result, and {why}: with "
            f"other={lanes.fill}, {facts.argument} equals {facts.expression}."
        )


def _never_read(facts: Mismatch) -> Iterator[str]:
    for found in facts.tried.never_read:
        span = _index(found.first) if found.count == 1 else f"{_index(found.first)} to {_index(found.last)}"
        what = "1 element" if found.count == 1 else f"{found.count:,} of the {found.elements:,} elements"
        yield (
            f"No program reads {what} of {found.argument}, {span}, on which {facts.expression} depends where "
            f"{facts.argument} is wrong: look at the grid, the ends of loops, and the masks."
        )


def _is_whole(facts: Mismatch) -> bool:
    return facts.unwritten is None or not bool(facts.unwritten.any())


def _place(tensor: Any, flat: int) -> str:
    place = []
    for size in reversed(tensor.shape):
        flat, at = divmod(flat, size)
        place.append(at)
    return _index(tuple(reversed(place)))


def _index(place: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, place))}]"


@dataclass(frozen=True, slots=True)
class _Rule:
    """``is_whole`` where what it says explains every element, and what to do about it."""

    kind: HintKind
    texts: Callable[[Mismatch], Iterator[str]]
    is_whole: bool = False


_RULES = (
    _Rule(HintKind.STORES_NOTHING, _never_stored, is_whole=True),
    _Rule(HintKind.ACCUMULATOR, _accumulator, is_whole=True),
    _Rule(HintKind.NOT_CONTIGUOUS, _not_contiguous, is_whole=True),
    _Rule(HintKind.TRANSPOSED, _transposed),
    _Rule(HintKind.SHIFTED, _shifted),
    _Rule(HintKind.SCALED, _scaled),
    _Rule(HintKind.FORMAT, _format),
    _Rule(HintKind.MASKED_LANES, _masked_lanes, is_whole=True),
    _Rule(HintKind.NEVER_READ, _never_read),
)
