"""Integers of a kernel: known when it is compiled, as sums over other values, as affine forms under inequalities.

Of sums: ``b + (d - b)`` is ``d``, also where ``b`` may be any of several arguments: both mentions of ``b`` are the same
value, since the definition of an SSA value dominates its uses.

A form is a sum of terms, each with a coefficient, and a constant. A term is an SSA value as it lies in a tensor:
dimension i of the value is dimension ``dims[i]`` of the tensor. So one range, once along the rows and once along the
columns, is two terms. Along a dimension of size 1 a term has the same value in all lanes, as broadcasting makes it.

The largest value of a form under inequalities is found by elimination: where ``g <= 0`` and ``f = k g + r`` with a
positive integer ``k``, ``f`` is at most ``r``. Each way to cancel a term gives a bound, and the least of these counts.
It is never less than the largest value (Schrijver, *Theory of Linear and Integer Programming*, chapter 7: weak
duality); where inequalities are left out, or more would have to be added up, it is only larger.

Intervals of products, quotients and so on are those of interval arithmetic (Moore, Kearfott and Cloud, *Introduction
to Interval Analysis*, chapter 2).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from kernellab.ir.graph import Graph, Operation

_THROUGH = frozenset(
    {
        *("arith.bitcast", "arith.extsi", "arith.index_cast", "tt.broadcast", "tt.expand_dims", "tt.reshape"),
        *("tt.splat", "tt.trans", "tt.unsplat", "ttg.convert_layout"),
    }
)
_INTEGER = re.compile(r"(?:dense<)?(-?\d+|true|false)>?$")


@dataclass(slots=True)
class Constants:
    """The integers that values of a graph are known to be; all elements of a tensor are the same."""

    graph: Graph
    _known: dict[int, int | None] = field(default_factory=dict)

    def integer(self, value: int) -> int | None:
        """Return the known value of ``value``, true being 1, or None."""
        if value not in self._known:
            self._known[value] = self._find(value)
        return self._known[value]

    def rounds(self, loop: Operation) -> int | None:
        """Return the number of iterations of an ``scf.for``, or None for unknown bounds or step."""
        start, stop, step = (self.integer(bound) for bound in loop.operands[:3])
        if start is None or stop is None or step is None or step <= 0:
            return None
        return max(0, -(-(stop - start) // step))

    def _find(self, value: int) -> int | None:
        operation = self.graph.maker(value)
        if operation is None:
            return None
        if operation.name == "arith.constant":
            return integer_of(operation.attribute("value"))
        if operation.name in _THROUGH:
            return self.integer(operation.operands[0])
        return None


def integer_of(text: str) -> int | None:
    """Return the integer that the value of a constant is, or each element of it; None of any other value."""
    match = _INTEGER.match(text)
    if match is None:
        return None
    return {"true": 1, "false": 0}[match[1]] if match[1][0] in "tf" else int(match[1])


_SAME_LANES = frozenset(
    {
        *("arith.bitcast", "arith.extsi", "arith.extui", "arith.index_cast", "arith.index_castui", "tt.bitcast"),
        *("tt.int_to_ptr", "tt.ptr_to_int", "tt.splat"),
    }
)
_MANY = 32
_DEEP = 64

Sum = Mapping[int, int]
"""Values and their coefficients; constants are left out."""


@dataclass(slots=True)
class Sums:
    """The terms of each sum of a graph. Any other value is the sum of itself."""

    constants: Constants
    _known: dict[int, Sum] = field(default_factory=dict)

    def of(self, value: int, depth: int = 0) -> Sum:
        """Return the terms of ``value``; what lies deeper than `_DEEP` operations is a term, not taken apart."""
        if value not in self._known:
            operation = None if depth > _DEEP else self.constants.graph.maker(value)
            found = None if operation is None else self._terms(operation, depth + 1)
            self._known[value] = {value: 1} if found is None or len(found) > _MANY else found
        return self._known[value]

    def _terms(self, operation: Operation, depth: int) -> Sum | None:
        name, operands = operation.name, operation.operands
        if name in _SAME_LANES:
            return self.of(operands[0], depth)
        if name == "arith.constant":
            return {}
        if name == "tt.addptr":
            size = self.constants.graph.values[operands[0]].pointee_bytes
            return None if size is None else self._sum(operands, size, depth)
        if name in {"arith.addi", "arith.subi"}:
            return self._sum(operands, 1 if name == "arith.addi" else -1, depth)
        scaled = self.scaled(operation)
        if scaled is None:
            return None
        value, factor = scaled
        return {term: factor * coefficient for term, coefficient in self.of(value, depth).items() if factor}

    def scaled(self, operation: Operation) -> tuple[int, int] | None:
        """Return the value that a multiplication or shift scales, and the constant that it scales by."""
        left, right = operation.operands[:2] if len(operation.operands) == 2 else (0, 0)
        if operation.name == "arith.shli":
            distance = self.constants.integer(right)
            return None if distance is None or not 0 <= distance < 64 else (left, 1 << distance)
        if operation.name != "arith.muli":
            return None
        known = [self.constants.integer(left), self.constants.integer(right)]
        if known[1] is not None:
            return left, known[1]
        return None if known[0] is None else (right, known[0])

    def _sum(self, operands: tuple[int, ...], factor: int, depth: int) -> Sum:
        total = dict(self.of(operands[0], depth))
        for value, coefficient in self.of(operands[1], depth).items():
            total[value] = total.get(value, 0) + factor * coefficient
        return {value: coefficient for value, coefficient in total.items() if coefficient}


Interval = tuple[int, int]
"""The least and the greatest value."""

Dims = tuple[int, ...]
Term = tuple[int, Dims]
"""An SSA value, or a number below 0 that its maker knows, and where its dimensions lie."""

Ranges = Mapping[int, Interval]
"""The interval of each value that is a term."""

_MOST_CANCELLED = 3
_MOST_INEQUALITIES = 12


@dataclass(frozen=True, slots=True)
class Form:
    """``sum(coefficient * term) + constant``. As an inequality, it stands for ``form <= 0``."""

    terms: tuple[tuple[Term, int], ...] = ()
    constant: int = 0

    def plus(self, other: Form, factor: int = 1) -> Form:
        """Return ``self + factor * other``."""
        total = dict(self.terms)
        for term, coefficient in other.terms:
            total[term] = total.get(term, 0) + factor * coefficient
        kept = tuple(sorted((term, coefficient) for term, coefficient in total.items() if coefficient))
        return Form(kept, self.constant + factor * other.constant)

    def times(self, factor: int) -> Form:
        """Return ``factor * self``."""
        return Form().plus(self, factor)

    def moved(self, place: Callable[[int], int]) -> Form:
        """Return the form in a tensor where dimension i of this one is dimension ``place(i)``."""
        terms = (((value, tuple(map(place, dims))), coefficient) for (value, dims), coefficient in self.terms)
        return Form(tuple(sorted(terms)), self.constant)

    def reduced(self) -> Form:
        """Return the inequality in lowest terms, which the integers allow to tighten: ``2 x <= 3`` is ``x <= 1``."""
        divisor = math.gcd(*(coefficient for _, coefficient in self.terms))
        if divisor < 2:
            return self
        terms = tuple((term, coefficient // divisor) for term, coefficient in self.terms)
        return Form(terms, -(-self.constant // divisor))


def term_of(value: int, rank: int) -> Form:
    """Return the form that is one value with ``rank`` dimensions, as it is."""
    return Form((((value, tuple(range(rank))), 1),))


@dataclass(frozen=True, slots=True)
class OpaqueCondition:
    """A condition that is no inequality: that a term is true."""

    term: Term

    def moved(self, place: Callable[[int], int]) -> OpaqueCondition:
        """Return the condition in a tensor where dimension i of this one is dimension ``place(i)``."""
        return OpaqueCondition((self.term[0], tuple(map(place, self.term[1]))))


Condition = Form | OpaqueCondition


@dataclass(frozen=True, slots=True)
class HeldCondition:
    """A condition that holds in the lanes where all those in ``given`` do."""

    condition: Condition
    given: frozenset[Condition] = frozenset()

    def moved(self, place: Callable[[int], int]) -> HeldCondition:
        """Return the fact in a tensor where dimension i of this one is dimension ``place(i)``."""
        return HeldCondition(self.condition.moved(place), frozenset(each.moved(place) for each in self.given))


Facts = frozenset[HeldCondition]
NOTHING: Facts = frozenset()


@dataclass(frozen=True, slots=True)
class Number:
    """The value of an integer in the lanes where all conditions in ``given`` hold.

    With a ``base``, the number of an argument, it is an address: ``form`` bytes behind the one that was passed.
    """

    form: Form
    given: frozenset[Condition] = frozenset()
    base: int | None = None

    def moved(self, place: Callable[[int], int]) -> Number:
        """Return the number in a tensor where dimension i of this one is dimension ``place(i)``."""
        return Number(self.form.moved(place), frozenset(each.moved(place) for each in self.given), self.base)


@dataclass(frozen=True, slots=True)
class Truth:
    """A condition: true exactly where all of ``when_true`` hold; where false, ``when_false`` hold."""

    when_true: Facts
    when_false: Facts = NOTHING

    @property
    def needed(self) -> frozenset[Condition]:
        """Conditions that together make it true."""
        return frozenset().union(*({fact.condition} | fact.given for fact in self.when_true))

    @property
    def inverse(self) -> Truth | None:
        """The opposite of a single inequality."""
        sides = (self.when_true, self.when_false)
        is_single = all(len(side) == 1 and isinstance(next(iter(side)).condition, Form) for side in sides)
        return Truth(self.when_false, self.when_true) if is_single else None

    def moved(self, place: Callable[[int], int]) -> Truth:
        """Return the condition in a tensor where dimension i of this one is dimension ``place(i)``."""
        true, false = (frozenset(fact.moved(place) for fact in facts) for facts in (self.when_true, self.when_false))
        return Truth(true, false)


Known = Number | Truth | None
"""None stands for what is not followed: floating point, an address that is lost."""


def conditions_of(facts: Iterable[HeldCondition]) -> frozenset[Condition]:
    """Return the conditions that follow from facts; each counts once its premises are known."""
    known: set[Condition] = set()
    waiting = list(facts)
    while True:
        counting = [fact for fact in waiting if fact.given <= known]
        if not counting:
            return frozenset(known)
        known.update(fact.condition for fact in counting)
        waiting = [fact for fact in waiting if not fact.given <= known]


def bounds_of(form: Form, ranges: Ranges, conditions: Iterable[Condition] = ()) -> Interval:
    """Return an interval that holds every value of a form where the conditions hold; the least one of no larger."""
    inequalities = [each for each in conditions if isinstance(each, Form)]
    highest = _greatest(form, ranges, inequalities, _MOST_CANCELLED)
    lowest = -_greatest(form.times(-1), ranges, inequalities, _MOST_CANCELLED)
    return lowest, highest


_Weights = dict[Term, int]


def _greatest(form: Form, ranges: Ranges, inequalities: Sequence[Form], depth: int) -> int:
    return _eliminate(dict(form.terms), form.constant, ranges, _near(form, inequalities), depth)


def _near(form: Form, inequalities: Sequence[Form]) -> list[Form]:
    """Return the inequalities that share a term with a form, directly or through others."""
    reached, near, waiting = {term for term, _ in form.terms}, list[Form](), list(inequalities)
    while len(near) < _MOST_INEQUALITIES:
        next_ = next((each for each in waiting if any(term in reached for term, _ in each.terms)), None)
        if next_ is None:
            break
        waiting.remove(next_)
        near.append(next_)
        reached |= {term for term, _ in next_.terms}
    return near


def _eliminate(weights: _Weights, constant: int, ranges: Ranges, inequalities: Sequence[Form], depth: int) -> int:
    best = constant
    for (value, _), weight in weights.items():
        best += weight * ranges[value][weight > 0]
    if not depth:
        return best
    for position, each in enumerate(inequalities):
        rest, tried = [*inequalities[:position], *inequalities[position + 1 :]], set[int]()
        for term, coefficient in each.terms:
            factor, remainder = divmod(weights.get(term, 0), coefficient)
            if factor > 0 and not remainder and factor not in tried:
                tried.add(factor)
                left = dict(weights)
                for other, own in each.terms:
                    left[other] = left.get(other, 0) - factor * own
                left = {other: weight for other, weight in left.items() if weight}
                best = min(best, _eliminate(left, constant - factor * each.constant, ranges, rest, depth - 1))
    return best


def limits(width: int) -> Interval:
    """Return the least and the greatest signed integer of so many bits."""
    return -(1 << (width - 1)), (1 << (width - 1)) - 1


def is_in(inner: Interval, outer: Interval) -> bool:
    """Return whether an interval lies in another one."""
    return outer[0] <= inner[0] and inner[1] <= outer[1]


def hull(one: Interval, other: Interval) -> Interval:
    """Return the least interval that holds two."""
    return min(one[0], other[0]), max(one[1], other[1])


_IntervalRule = Callable[[Interval, Interval], Interval | None]


def _corners(rule: Callable[[int, int], int]) -> _IntervalRule:
    def of(one: Interval, other: Interval) -> Interval:
        found = [rule(a, b) for a in one for b in other]
        return min(found), max(found)

    return of


def _division(rule: Callable[[int, int], int]) -> _IntervalRule:
    corners = _corners(rule)
    return lambda one, other: corners(one, other) if other[0] > 0 else None


def _shifted_right(one: Interval, other: Interval) -> Interval | None:
    return _corners(lambda a, b: a >> b)(one, other) if other[0] >= 0 and other[1] < 64 else None


def _remainder(one: Interval, other: Interval) -> Interval | None:
    most = other[1] - 1
    return (max(-most, min(one[0], 0)), min(most, max(one[1], 0))) if other[0] > 0 else None


def _unsigned_remainder(one: Interval, other: Interval) -> Interval | None:
    return (0, other[1] - 1) if other[0] > 0 else None


def _bitwise_and(one: Interval, other: Interval) -> Interval | None:
    above = [high for low, high in (one, other) if low >= 0]
    return (0, min(above)) if above else None


def _merged_bits(one: Interval, other: Interval) -> Interval | None:
    return (0, (1 << max(one[1], other[1]).bit_length()) - 1) if min(one[0], other[0]) >= 0 else None


def _for_unsigned(rule: _IntervalRule) -> _IntervalRule:
    return lambda one, other: rule(one, other) if min(one[0], other[0]) >= 0 else None


def _truncated_quotient(a: int, b: int) -> int:
    return a // b if a >= 0 else -(-a // b)


INTERVALS: Mapping[str, _IntervalRule] = MappingProxyType(
    {
        "arith.muli": _corners(lambda a, b: a * b),
        "arith.divsi": _division(_truncated_quotient),
        "arith.floordivsi": _division(lambda a, b: a // b),
        "arith.ceildivsi": _division(lambda a, b: -(-a // b)),
        "arith.divui": _for_unsigned(_division(lambda a, b: a // b)),
        "arith.remsi": _remainder,
        "arith.remui": _unsigned_remainder,
        "arith.andi": _bitwise_and,
        "arith.ori": _merged_bits,
        "arith.xori": _merged_bits,
        "arith.shrsi": _shifted_right,
        "arith.shrui": _for_unsigned(_shifted_right),
        "arith.minsi": _corners(min),
        "arith.maxsi": _corners(max),
        "arith.minui": _for_unsigned(_corners(min)),
        "arith.maxui": _for_unsigned(_corners(max)),
    }
)
