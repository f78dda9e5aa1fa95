"""Affine forms of what the lanes of tensors hold, inequalities between forms, and the largest value that these allow.

A form is a sum of terms, each with a coefficient, and a constant. A term is an SSA value as it lies in a tensor:
dimension i of the value is dimension ``dims[i]`` of the tensor. So one range, once along the rows and once along the
columns, is two terms. Along a dimension of size 1 a term has the same value in all lanes, as broadcasting makes it.

The largest value of a form under inequalities is found by elimination: where ``g <= 0`` and ``f = k g + r`` with a
positive integer ``k``, ``f`` is at most ``r``. Each way to cancel a term gives a bound, and the least of these counts.
It is never less than the largest value (Schrijver, *Theory of Linear and Integer Programming*, chapter 7: weak
duality); where inequalities are left out, or more would have to be added up, it is only larger.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

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


def conditions_of(facts: Iterable[HeldCondition]) -> frozenset[Condition]:
    """Return the conditions that follow from facts, each of which counts once what it is given is among them."""
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
    return _eliminated(dict(form.terms), form.constant, ranges, _near(form, inequalities), depth)


def _near(form: Form, inequalities: Sequence[Form]) -> list[Form]:
    """Return the inequalities that share a term with a form, directly or through others."""
    reached, found, waiting = {term for term, _ in form.terms}, list[Form](), list(inequalities)
    while len(found) < _MOST_INEQUALITIES:
        next_ = next((each for each in waiting if any(term in reached for term, _ in each.terms)), None)
        if next_ is None:
            break
        waiting.remove(next_)
        found.append(next_)
        reached |= {term for term, _ in next_.terms}
    return found


def _eliminated(weights: _Weights, constant: int, ranges: Ranges, inequalities: Sequence[Form], depth: int) -> int:
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
                best = min(best, _eliminated(left, constant - factor * each.constant, ranges, rest, depth - 1))
    return best
