"""Why a thread moves neighbouring elements piece by piece: the alignment that the compiler can prove.

Triton moves several elements of a thread by one instruction if their address is provably a multiple of their size and
one mask holds for all. Its analysis (``AxisInfo.cpp``) starts at the arguments, integers and pointers divisible by 16,
and at constants. This module repeats it on the graph of the TTIR, for the first element of each thread.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from kernellab.compile.types import Compiled
from kernellab.explain.facts import WidthLimit
from kernellab.ir.graph import Graph, Operation, joins

_ANY = 1 << 30  # a multiple of everything
_POINTER_BYTES = 16
_NUMBER = re.compile(r"-?\d+")
_PARAMETER = re.compile(r"%(?=[\w.]+: )")
_DIVISIBLE = re.compile(r"tt\.divisibility = (\d+)")


@dataclass(frozen=True, slots=True)
class Divisibility:
    """The divisor that the compiler can prove for a value, at the first element of each thread.

    ``varies`` is True if the value differs between the elements of a thread. ``source`` is the value that limits the
    divisor: the name of an argument, a constant, ``what is loaded``, or "" if there is no single one.
    """

    of: int
    varies: bool = False
    source: str = ""


def width_limits(compiled: Compiled, operation: Operation, elements: int) -> tuple[WidthLimit, ...]:
    """Return the reasons why no single instruction moves ``elements`` neighbouring elements of a load or store."""
    graph = compiled.graph
    followed = _DivisibilityAnalysis(graph, _divisible_arguments(compiled), _incoming_values(graph))
    address, *others = operation.operands
    size = graph.values[address].pointee_bytes or 1
    base, offset = followed.address(address)
    found = []
    if base.of < min(elements * size, _POINTER_BYTES):
        found.append(WidthLimit("base", base.source, base.of))
    if offset.of < elements:
        found.append(WidthLimit("offset", offset.source, offset.of))
    masks = [each for each in others if graph.values[each].element == "i1"]
    if masks and (mask := followed.of(masks[-1])).of < elements:
        found.append(WidthLimit("mask", mask.source, mask.of))
    return tuple(found)


def _divisible_arguments(compiled: Compiled) -> Mapping[int, int]:
    """Return the ``tt.divisibility`` of each argument, by its value in the graph; 1 where none is declared."""
    header = next((line for line in compiled.ttir.splitlines() if "tt.func public" in line), "")
    parts = _PARAMETER.split(header)[1:]
    known = [int(match[1]) if (match := _DIVISIBLE.search(part)) else 1 for part in parts]
    return dict(zip(compiled.graph.kernel.arguments, known, strict=False))


def _incoming_values(graph: Graph) -> Mapping[int, list[int]]:
    """Return the values that flow into block arguments and results of regions, by the value that receives them."""
    found: dict[int, list[int]] = {}
    for operation in graph.operations:
        if operation.regions or operation.successors:
            for target, source, _ in joins(graph, operation):
                found.setdefault(target, []).append(source)
        if operation.name == "scf.for":
            lower, _, step = operation.operands[:3]
            found.setdefault(graph.bodies(operation)[0].arguments[0], []).extend((lower, step))
    return found


@dataclass(slots=True)
class _DivisibilityAnalysis:
    graph: Graph
    arguments: Mapping[int, int]
    sources: Mapping[int, list[int]]
    _known: dict[int, Divisibility] = field(default_factory=dict)

    def of(self, value: int) -> Divisibility:
        """Return the known divisor of a value."""
        if value not in self._known:
            self._known[value] = Divisibility(_ANY)  # the optimistic start of a fixed point, for loop-carried values
            self._known[value] = self._found(value)
        return self._known[value]

    def address(self, value: int) -> tuple[Divisibility, Divisibility]:
        """Return the known divisors of an address: of its base in bytes, and of its offset in elements."""
        offset = Divisibility(_ANY)
        seen = set[int]()
        while value not in seen:
            seen.add(value)
            maker = self.graph.maker(value)
            if maker is not None and maker.name == "tt.addptr":
                offset = _least_divisible(offset, self.of(maker.operands[1]))
                value = maker.operands[0]
            elif maker is not None and maker.name in _SAME:
                value = maker.operands[0]
            elif self.sources.get(value):
                steps = [each for each in self.sources[value][1:] if each not in seen]
                for each in steps:
                    offset = _least_divisible(offset, self.address(each)[1] if each != value else offset)
                value = self.sources[value][0]
        return self.of(value), offset

    def _found(self, value: int) -> Divisibility:
        if value in self.arguments:
            name = self.graph.kernel.parameters[self.graph.kernel.arguments.index(value)]
            return Divisibility(self.arguments[value], source=name)
        maker = self.graph.maker(value)
        if maker is None or (maker.regions and self.sources.get(value)):
            found = [self.of(each) for each in self.sources.get(value, ())]
            return _least_divisible(*found) if found else Divisibility(1)
        rule = _RULES.get(maker.name)
        result = Divisibility(1) if rule is None else rule(self, maker)
        hint = _NUMBER.search(maker.attribute("tt.divisibility").removeprefix("dense<"))
        return replace(result, of=max(result.of, int(hint[0]))) if hint else result

    def first(self, operation: Operation) -> Divisibility:
        return self.of(operation.operands[0])

    def both(self, operation: Operation) -> tuple[Divisibility, Divisibility]:
        left, right = operation.operands[:2]
        return self.of(left), self.of(right)


def _least_divisible(*values: Divisibility) -> Divisibility:
    least = min(values, key=lambda each: each.of)
    return replace(least, varies=any(each.varies for each in values))


def _constant(followed: _DivisibilityAnalysis, operation: Operation) -> Divisibility:
    number = _NUMBER.search(operation.attribute("value").removeprefix("dense<"))
    whole = int(number[0]) if number else 0
    return Divisibility(whole & -whole or _ANY, source=f"the constant {whole:,}")


def _range(followed: _DivisibilityAnalysis, operation: Operation) -> Divisibility:
    start = _NUMBER.search(operation.attribute("start"))
    return Divisibility(int(start[0]) if start and int(start[0]) else _ANY, varies=True)


def _expand_dims(followed: _DivisibilityAnalysis, operation: Operation) -> Divisibility:
    """Return the divisor of a tile with a new axis; a range along any other axis than the last does not vary."""
    source = followed.first(operation)
    axis = _NUMBER.search(operation.attribute("axis"))
    rank = len(followed.graph.values[operation.results[0]].shape)
    is_last = axis is not None and int(axis[0]) == rank - 1
    return Divisibility(1) if is_last and source.varies else source


def _product(followed: _DivisibilityAnalysis, operation: Operation) -> Divisibility:
    left, right = followed.both(operation)
    if left.varies or right.varies:
        return Divisibility(1, varies=True, source="a stride between neighbours")
    source = left.source if left.of >= right.of else right.source
    return Divisibility(min(_ANY, left.of * right.of), source=source or left.source or right.source)


def _quotient(followed: _DivisibilityAnalysis, operation: Operation) -> Divisibility:
    left, right = followed.both(operation)
    return replace(left, of=max(1, left.of // right.of) if right.of < _ANY and not left.of % right.of else 1)


def _remainder(followed: _DivisibilityAnalysis, operation: Operation) -> Divisibility:
    left, right = followed.both(operation)
    return replace(_least_divisible(left, right), of=math.gcd(left.of, right.of))


def _comparison(followed: _DivisibilityAnalysis, operation: Operation) -> Divisibility:
    """Return for how many neighbours a comparison has one result: all, where neither side varies."""
    left, right = followed.both(operation)
    if not left.varies and not right.varies:
        return Divisibility(_ANY)
    return _least_divisible(left, right)


def _nothing_known(followed: _DivisibilityAnalysis, operation: Operation) -> Divisibility:
    return Divisibility(1, varies=bool(followed.graph.values[operation.results[0]].shape), source="what is loaded")


_SAME = frozenset(
    {
        *("tt.splat", "tt.broadcast", "arith.extsi", "arith.extui", "arith.trunci", "arith.index_cast"),
        *("tt.bitcast", "ttg.convert_layout"),
    }
)
_RULES: dict[str, Callable[[_DivisibilityAnalysis, Operation], Divisibility]] = {
    **dict.fromkeys(_SAME, lambda followed, operation: followed.first(operation)),
    **dict.fromkeys(
        ("arith.addi", "arith.subi", "tt.addptr", "arith.andi", "arith.ori", "arith.minsi", "arith.maxsi"),
        lambda followed, operation: _least_divisible(*followed.both(operation)),
    ),
    "arith.select": lambda followed, operation: _least_divisible(*map(followed.of, operation.operands[1:])),
    "arith.constant": _constant,
    "tt.make_range": _range,
    "tt.expand_dims": _expand_dims,
    "arith.muli": _product,
    **dict.fromkeys(("arith.divsi", "arith.divui"), _quotient),
    **dict.fromkeys(("arith.remsi", "arith.remui"), _remainder),
    "arith.cmpi": _comparison,
    **dict.fromkeys(("tt.load", "tt.atomic_rmw", "tt.atomic_cas"), _nothing_known),
}
