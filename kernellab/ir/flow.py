"""How addresses pass through one operation: the rules behind `kernellab.ir.operations.Flow`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kernellab.ir.constants import Constants, Sums
from kernellab.ir.graph import Operation
from kernellab.ir.operations import Flow
from kernellab.ir.provenance import (
    NUMBER,
    UNDEFINED,
    Alternative,
    Alternatives,
    Linear,
    OpaqueAddress,
    combine,
    mixed,
    scaled_sum,
    union,
)

SMALL_NUMBER = 1 << 20
"""A number below this is an index or a tag, even when it was cut out of an address."""

_BITS = re.compile(r"[a-z]*?(\d+)")

State = Callable[[int], Alternatives]
"""What a value can be, as far as the analysis has come."""


@dataclass(slots=True)
class Rules:
    """The rules for one graph. Each takes an operation and its operands' alternatives, and gives the results'."""

    constants: Constants
    sums: Sums = field(init=False)

    def __post_init__(self) -> None:
        self.sums = Sums(self.constants)

    def results(
        self, flow: Flow, operation: Operation, operands: Sequence[Alternatives], state: State
    ) -> list[Alternatives]:
        """Return what each result of ``operation`` can be."""
        if flow in _ARITHMETIC:
            return [self._arithmetic(flow, operation, operands, state)]
        return [_RULES[flow](self, operation, operands)] * len(operation.results)

    def _arithmetic(
        self, flow: Flow, operation: Operation, operands: Sequence[Alternatives], state: State
    ) -> Alternatives:
        """Return the sum of an operation's terms; where one operand is no address, the terms need not be known."""
        left, right = operands
        if left == NUMBER == right or (right == NUMBER and flow in _KEEPS_FIRST):
            return left
        terms = self.sums.of(operation.results[0])
        if operation.results[0] in terms:
            return mixed(operands, operation.index, f"{operation.name} makes it from an address")
        total = NUMBER
        for value, factor in terms.items():
            total = _scaled(operation, total, state(value), factor)
        return total

    def _copy(self, operation: Operation, operands: Sequence[Alternatives]) -> Alternatives:
        return operands[0] if len(operands) == 1 else union(operands, operation.index)

    def _first(self, operation: Operation, operands: Sequence[Alternatives]) -> Alternatives:
        return operands[0]

    def _select(self, operation: Operation, operands: Sequence[Alternatives]) -> Alternatives:
        condition = self.constants.integer(operation.operands[0])
        if condition is not None:
            return operands[1] if condition else operands[2]
        return union(operands[1:], operation.index)

    def _bits(self, operation: Operation, operands: Sequence[Alternatives]) -> Alternatives:
        index = operation.index
        return combine(operands[0], operands[1], lambda one, other: _one_of(one, other, index), index)

    def _mask(self, operation: Operation, operands: Sequence[Alternatives]) -> Alternatives:
        known = [self.constants.integer(each) for each in operation.operands]
        if any(each is not None and 0 <= each < SMALL_NUMBER for each in known):
            return NUMBER
        return self._bits(operation, operands)

    def _remainder(self, operation: Operation, operands: Sequence[Alternatives]) -> Alternatives:
        return NUMBER if operands[1] == NUMBER else self._mix(operation, operands)

    def _truncate(self, operation: Operation, operands: Sequence[Alternatives]) -> Alternatives:
        bits = _BITS.match(self.constants.graph.values[operation.results[0]].element)
        return NUMBER if bits is not None and int(bits[1]) < 32 else self._mix(operation, operands)

    def _number(self, operation: Operation, operands: Sequence[Alternatives]) -> Alternatives:
        return NUMBER

    def _mix(self, operation: Operation, operands: Sequence[Alternatives]) -> Alternatives:
        return mixed(operands, operation.index, f"{operation.name} makes it from an address")

    def _undefined(self, operation: Operation, operands: Sequence[Alternatives]) -> Alternatives:
        return UNDEFINED


def _scaled(operation: Operation, left: Alternatives, right: Alternatives, factor: int) -> Alternatives:
    index = operation.index
    return combine(left, right, lambda one, other: scaled_sum(one, other, factor, index), index)


def _one_of(one: Linear, other: Linear, operation: int) -> Alternative:
    """Return the only address of two forms; bits of two addresses cannot be told apart."""
    if one and other:
        return OpaqueAddress(operation, "it has the bits of two addresses", frozenset(arg for arg, _ in one + other))
    return one or other


_ARITHMETIC = frozenset({Flow.ADD, Flow.SUBTRACT, Flow.MULTIPLY, Flow.SHIFT_LEFT, Flow.OFFSET})
_KEEPS_FIRST = frozenset({Flow.ADD, Flow.SUBTRACT, Flow.OFFSET})

_Rule = Callable[[Rules, Operation, Sequence[Alternatives]], Alternatives]

_RULES: dict[Flow, _Rule] = {
    Flow.COPY: Rules._copy,
    Flow.FIRST: Rules._first,
    Flow.SELECT: Rules._select,
    Flow.BITS: Rules._bits,
    Flow.MASK: Rules._mask,
    Flow.REMAINDER: Rules._remainder,
    Flow.TRUNCATE: Rules._truncate,
    Flow.NUMBER: Rules._number,
    Flow.MIX: Rules._mix,
    Flow.UNDEFINED: Rules._undefined,
}
