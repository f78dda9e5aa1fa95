"""Values that are known when the kernel is compiled: masks, loop bounds, conditions, alignments."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from kernellab.ir.graph import Graph, Operation

_THROUGH = frozenset(
    {
        "arith.bitcast",
        "arith.extsi",
        "arith.index_cast",
        "tt.broadcast",
        "tt.expand_dims",
        "tt.reshape",
        "tt.splat",
        "tt.trans",
        "tt.unsplat",
        "ttg.convert_layout",
    }
)
_INTEGER = re.compile(r"(?:dense<)?(-?\d+|true|false)>?$")


@dataclass(slots=True)
class Constants:
    """The integers that values of a graph are known to be; all elements of a tensor are the same."""

    graph: Graph
    _known: dict[int, int | None] = field(default_factory=dict)

    def integer(self, value: int) -> int | None:
        """Return what ``value`` is known to be, true being 1, or None."""
        if value not in self._known:
            self._known[value] = self._find(value)
        return self._known[value]

    def rounds(self, loop: Operation) -> int | None:
        """Return how often the body of an ``scf.for`` runs, or None where its bounds or step are not known."""
        start, stop, step = (self.integer(each) for each in loop.operands[:3])
        if start is None or stop is None or step is None or step <= 0:
            return None
        return max(0, -(-(stop - start) // step))

    def _find(self, value: int) -> int | None:
        index = self.graph.values[value].operation
        if index is None:
            return None
        operation = self.graph.operations[index]
        if operation.name == "arith.constant":
            return _parsed(dict(operation.attributes).get("value", ""))
        if operation.name in _THROUGH:
            return self.integer(operation.operands[0])
        return None


def _parsed(text: str) -> int | None:
    match = _INTEGER.match(text)
    if match is None:
        return None
    return {"true": 1, "false": 0}[match[1]] if match[1][0] in "tf" else int(match[1])
