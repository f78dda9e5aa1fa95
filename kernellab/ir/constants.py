"""Integers of a kernel that are known when it is compiled, and integers as sums over other values.

``b + (d - b)`` is ``d``, also where ``b`` may be any of several arguments: both mentions of ``b`` are the same value,
since the definition of an SSA value dominates its uses.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

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
            operation = self.graph.maker(value)
            if operation is not None and operation.name in _THROUGH:
                self._known[value] = self.integer(operation.operands[0])
            else:
                text = operation.attribute("value") if operation and operation.name == "arith.constant" else ""
                self._known[value] = integer_of(text)
        return self._known[value]

    def rounds(self, loop: Operation) -> int | None:
        """Return the number of iterations of an ``scf.for``, or None for unknown bounds or step."""
        start, stop, step = (self.integer(bound) for bound in loop.operands[:3])
        if start is None or stop is None or step is None or step <= 0:
            return None
        return max(0, -(-(stop - start) // step))


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
            parts = None if operation is None else self._parts(operation)
            total = {value: 1} if parts is None else dict[int, int]()
            for part, factor in parts or ():
                for term, coefficient in self.of(part, depth + 1).items():
                    total[term] = total.get(term, 0) + factor * coefficient
            terms = {term: coefficient for term, coefficient in total.items() if coefficient}
            self._known[value] = {value: 1} if len(terms) > _MANY else terms
        return self._known[value]

    def _parts(self, operation: Operation) -> list[tuple[int, int]] | None:
        """Return the operands that an operation adds up, each with its constant factor; None of any other operation."""
        name, operands = operation.name, operation.operands
        if name in _SAME_LANES:
            return [(operands[0], 1)]
        if name == "arith.constant":
            return []
        if name == "tt.addptr":
            size = self.constants.graph.values[operands[0]].pointee_bytes
            return None if size is None else [(operands[0], 1), (operands[1], size)]
        if name in {"arith.addi", "arith.subi"}:
            return [(operands[0], 1), (operands[1], 1 if name == "arith.addi" else -1)]
        if name == "arith.shli":
            distance = self.constants.integer(operands[1])
            return None if distance is None or not 0 <= distance < 64 else [(operands[0], 1 << distance)]
        if name == "arith.muli":
            for value, other in (operands, operands[::-1]):
                factor = self.constants.integer(other)
                if factor is not None:
                    return [(value, factor)]
        return None
