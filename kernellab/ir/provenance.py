"""What a value can be, seen as an address: an algebra of the arguments that it derives from.

A value is a set of alternatives, the values that it may have in some run. An alternative is

- a linear form over the addresses of the kernel's arguments, whose constant part is not kept: ``x`` is
  ``((0, 1),)``, and a plain number ``()``; so that ``y + (x - y)`` is an address in ``x``, and nothing else;
- or `Opaque`: a value that derives from addresses, or from memory, in a way that cannot be followed.

An offset keeps an address inside the memory of its argument; no other assumption is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import product

MAX_ALTERNATIVES = 512
MAX_COEFFICIENT = 64

Linear = tuple[tuple[int, int], ...]
"""Pairs of argument and coefficient, sorted, without zeros."""


@dataclass(frozen=True, slots=True)
class Opaque:
    """A value that cannot be followed: made by ``operation`` for ``reason``, from the addresses of ``arguments``.

    One that ``absorbs`` stands for more alternatives than are kept, and takes in whatever is joined to it.
    """

    operation: int
    reason: str
    arguments: frozenset[int] = frozenset()
    absorbs: bool = False


Alternative = Linear | Opaque
Alternatives = frozenset[Alternative]

NUMBER: Alternatives = frozenset({()})
"""A value that is no address."""

UNDEFINED: Alternatives = frozenset()
"""A value that no run has: poison, or one that is not reached."""


def address_of(argument: int) -> Alternatives:
    """Return the alternatives of a pointer that was passed as ``argument``."""
    return frozenset({((argument, 1),)})


def argument_in(alternative: Alternative) -> int | None:
    """Return the argument in whose memory an address points, or None where it is no such address."""
    if isinstance(alternative, tuple) and len(alternative) == 1 and alternative[0][1] == 1:
        return alternative[0][0]
    return None


def arguments_of(values: Iterable[Alternatives]) -> frozenset[int]:
    """Return every argument that some alternative derives from."""
    found: set[int] = set()
    for value in values:
        for each in value:
            found.update(each.arguments if isinstance(each, Opaque) else (argument for argument, _ in each))
    return frozenset(found)


def carries_address(value: Alternatives) -> bool:
    """Tell whether some alternative is more than a number."""
    return value != NUMBER and any(each != () for each in value)


def union(values: Iterable[Alternatives], operation: int) -> Alternatives:
    """Return every alternative of all values, or one opaque value where they grow beyond all bounds.

    ``operation`` is named as the place where the bound was passed.
    """
    joined: Alternatives = frozenset().union(*values)
    absorbing = [each for each in joined if isinstance(each, Opaque) and each.absorbs]
    if len(joined) <= MAX_ALTERNATIVES and not absorbing:
        return joined
    reason = f"it may be more than {MAX_ALTERNATIVES} different addresses"
    first = min((each.operation for each in absorbing), default=operation)
    return frozenset({Opaque(first, reason, arguments_of([joined]), absorbs=True)})


def combine(
    left: Alternatives,
    right: Alternatives,
    rule: Callable[[Linear, Linear], Alternative],
    operation: int,
) -> Alternatives:
    """Return ``rule`` of every pair of alternatives; an opaque one stays what it is."""
    if left == NUMBER == right:
        return NUMBER
    found: set[Alternative] = set()
    for one, other in product(left, right):
        if isinstance(one, Opaque):
            found.add(one)
        elif isinstance(other, Opaque):
            found.add(other)
        else:
            found.add(rule(one, other))
    return union([frozenset(found)], operation)


def scaled_sum(left: Linear, right: Linear, factor: int, operation: int) -> Alternative:
    """Return ``left + factor * right``, opaque where a coefficient grows beyond all use."""
    if not right:
        return left
    total = dict(left)
    for argument, coefficient in right:
        total[argument] = total.get(argument, 0) + factor * coefficient
    if any(abs(coefficient) > MAX_COEFFICIENT for coefficient in total.values()):
        return Opaque(operation, "it is a multiple of an address", frozenset(total))
    return tuple(sorted((argument, coefficient) for argument, coefficient in total.items() if coefficient))


def mixed(values: Iterable[Alternatives], operation: int, reason: str) -> Alternatives:
    """Return what a rule that keeps no linear form makes of its operands: a number, or an opaque value.

    Opaque operands stay what they are, so that a report names the operation where the trace was lost.
    """
    operands = list(values)
    if any(not value for value in operands):
        return UNDEFINED
    opaque = {each for value in operands for each in value if isinstance(each, Opaque)}
    linear = [frozenset(each for each in value if not isinstance(each, Opaque)) for value in operands]
    found: Alternatives = frozenset(opaque)
    if any(carries_address(value) for value in linear):
        found |= frozenset({Opaque(operation, reason, arguments_of(linear))})
    if all(() in value for value in operands):
        found |= NUMBER
    return found
