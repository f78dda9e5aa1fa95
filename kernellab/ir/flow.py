"""How addresses pass through one operation: the rules behind `kernellab.ir.operations.Flow`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kernellab.ir.constants import Constants
from kernellab.ir.graph import Operation
from kernellab.ir.operations import Flow
from kernellab.ir.provenance import (
    NUMBER,
    UNDEFINED,
    Alternative,
    Alternatives,
    Linear,
    Opaque,
    combine,
    mixed,
    scaled_sum,
    union,
)

SMALL_NUMBER = 1 << 20
"""A number below this is an index or a tag, even when it was cut out of an address."""

_BITS = re.compile(r"[a-z]*?(\d+)")
_POINTEE_BITS = re.compile(r"!tt\.ptr<(?:[a-z]*?)(\d+)")


@dataclass(slots=True)
class Rules:
    """The rules for one graph. Each takes an operation and its operands' alternatives, and gives the results'."""

    constants: Constants

    def results(self, flow: Flow, operation: Operation, operands: Sequence[Alternatives]) -> list[Alternatives]:
        """Return what each result of ``operation`` can be."""
        rule = _RULES[flow]
        return [rule(self, operation, operands)] * len(operation.results)

    def _copy(self, operation: Operation, operands: Sequence[Alternatives]) -> Alternatives:
        return operands[0] if len(operands) == 1 else union(operands, operation.index)

    def _first(self, operation: Operation, operands: Sequence[Alternatives]) -> Alternatives:
        return operands[0]

    def _select(self, operation: Operation, operands: Sequence[Alternatives]) -> Alternatives:
        condition = self.constants.integer(operation.operands[0])
        if condition is not None:
            return operands[1] if condition else operands[2]
        return union(operands[1:], operation.index)

    def _add(self, operation: Operation, operands: Sequence[Alternatives]) -> Alternatives:
        return _scaled(operation, operands[0], operands[1], 1)

    def _subtract(self, operation: Operation, operands: Sequence[Alternatives]) -> Alternatives:
        return _scaled(operation, operands[0], operands[1], -1)

    def _offset(self, operation: Operation, operands: Sequence[Alternatives]) -> Alternatives:
        if operands[1] == NUMBER:
            return operands[0]
        value = self.constants.graph.values[operation.operands[0]]
        bits = _POINTEE_BITS.search(value.element)
        if bits is None:
            return mixed(operands, operation.index, "its offset is an address")
        return _scaled(operation, operands[0], operands[1], max(1, int(bits[1]) // 8))

    def _multiply(self, operation: Operation, operands: Sequence[Alternatives]) -> Alternatives:
        left, right = (self.constants.integer(each) for each in operation.operands)
        if right is not None:
            return _scaled(operation, NUMBER, operands[0], right)
        if left is not None:
            return _scaled(operation, NUMBER, operands[1], left)
        return self._mix(operation, operands)

    def _shift_left(self, operation: Operation, operands: Sequence[Alternatives]) -> Alternatives:
        distance = self.constants.integer(operation.operands[1])
        if distance is None or not 0 <= distance < 64:
            return self._mix(operation, operands)
        return _scaled(operation, NUMBER, operands[0], 1 << distance)

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
        return Opaque(operation, "it has the bits of two addresses", frozenset(arg for arg, _ in one + other))
    return one or other


_Rule = Callable[[Rules, Operation, Sequence[Alternatives]], Alternatives]

_RULES: dict[Flow, _Rule] = {
    Flow.COPY: Rules._copy,
    Flow.FIRST: Rules._first,
    Flow.SELECT: Rules._select,
    Flow.ADD: Rules._add,
    Flow.SUBTRACT: Rules._subtract,
    Flow.MULTIPLY: Rules._multiply,
    Flow.SHIFT_LEFT: Rules._shift_left,
    Flow.OFFSET: Rules._offset,
    Flow.BITS: Rules._bits,
    Flow.MASK: Rules._mask,
    Flow.REMAINDER: Rules._remainder,
    Flow.TRUNCATE: Rules._truncate,
    Flow.NUMBER: Rules._number,
    Flow.MIX: Rules._mix,
    Flow.UNDEFINED: Rules._undefined,
}
