"""Why a thread moves neighbouring elements piece by piece: the alignment that the compiler can prove.

Triton moves several elements of a thread by one instruction if their address is provably a multiple of their size and
one mask holds for all. Its analysis (``AxisInfo.cpp``) starts at the arguments, integers and pointers divisible by 16,
and at constants. This module repeats it on the graph of the TTIR, for the first element of each thread.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from kernellab.compile.types import Compiled
from kernellab.explain.facts import WIDEST_BYTES, WidthLimit, widest_access
from kernellab.ir.effects import access_bytes
from kernellab.ir.graph import Graph, Operation, joins, place_of
from kernellab.ir.instructions import InstructionKind, LineProfile, profiles_of
from kernellab.ir.lines import stage_lines
from kernellab.ir.operations import Access

_ANY = 1 << 30  # a multiple of everything
_DIVISOR = 16  # what Triton looks for in an argument
_NUMBER = re.compile(r"-?\d+")
_PARAMETER = re.compile(r"%(?=[\w.]+: )")
_DIVISIBLE = re.compile(r"tt\.divisibility = (\d+)")
_KINDS = {"tt.load": Access.READ, "tt.store": Access.WRITE}
_INSTRUCTIONS = {
    Access.READ: (InstructionKind.LOAD, InstructionKind.ASYNC_COPY),
    Access.WRITE: (InstructionKind.STORE,),
}


@dataclass(frozen=True, slots=True)
class Divisibility:
    """The divisor that the compiler can prove for a value, at the first element of each thread.

    ``varies`` is True if the value differs between the elements of a thread. ``source`` is the value that limits the
    divisor: the name of an argument, a constant, ``what is loaded``, or "" if there is no single one.
    """

    divisor: int
    varies: bool = False
    source: str = ""


def width_limits(
    compiled: Compiled, operation: Operation, elements: int, arguments: Mapping[str, Any], assumed: Collection[str] = ()
) -> tuple[WidthLimit, ...]:
    """Return the reasons why no single instruction moves ``elements`` neighbouring elements of a load or store.

    The arguments that ``assumed`` names count as divisible by 16.
    """
    graph = compiled.graph
    divisors = _divisible_arguments(compiled)
    named = zip(graph.kernel.arguments, graph.kernel.parameters, strict=False)
    divisors = {**divisors, **{value: _DIVISOR for value, name in named if name in assumed}}
    analysis = _DivisibilityAnalysis(graph, divisors, _incoming_values(graph))
    address, *others = operation.operands
    size = graph.values[address].pointee_bytes or 1
    base, offset = analysis.of_address(address)
    proven: list[tuple[Literal["base", "offset", "mask"], Divisibility, int]]
    proven = [("base", base, min(elements * size, WIDEST_BYTES)), ("offset", offset, elements)]
    proven += [("mask", analysis.of(other), elements) for other in others if graph.values[other].element == "i1"][-1:]
    limits = []
    for part, known, needed in proven:
        if known.divisor < needed:
            value = arguments.get(known.source)
            is_integer = isinstance(value, int) and not isinstance(value, bool)
            limits.append(WidthLimit(part, known.source, value if is_integer else None))
    return tuple(limits)


def _divisible_arguments(compiled: Compiled) -> Mapping[int, int]:
    """Return the ``tt.divisibility`` of each argument, by its value in the graph; 1 where none is declared."""
    header = next((line for line in compiled.ttir.splitlines() if "tt.func public" in line), "")
    parts = _PARAMETER.split(header)[1:]
    known = [int(match[1]) if (match := _DIVISIBLE.search(part)) else 1 for part in parts]
    return dict(zip(compiled.graph.kernel.arguments, known, strict=False))


def _incoming_values(graph: Graph) -> Mapping[int, list[int]]:
    """Return the values that flow into block arguments and results of regions, by the value that receives them."""
    incoming: dict[int, list[int]] = {}
    for operation in graph.operations:
        if operation.regions or operation.successors:
            for target, source, _ in joins(graph, operation):
                incoming.setdefault(target, []).append(source)
        if operation.name == "scf.for":
            lower, _, step = operation.operands[:3]
            incoming.setdefault(graph.bodies(operation)[0].arguments[0], []).extend((lower, step))
    return incoming


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
            self._known[value] = self._compute(value)
        return self._known[value]

    def of_address(self, value: int) -> tuple[Divisibility, Divisibility]:
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
                steps = [step for step in self.sources[value][1:] if step not in seen]
                for step in steps:
                    offset = _least_divisible(offset, self.of_address(step)[1] if step != value else offset)
                value = self.sources[value][0]
        return self.of(value), offset

    def _compute(self, value: int) -> Divisibility:
        if value in self.arguments:
            name = self.graph.kernel.parameters[self.graph.kernel.arguments.index(value)]
            return Divisibility(self.arguments[value], source=name)
        maker = self.graph.maker(value)
        if maker is None or (maker.regions and self.sources.get(value)):
            incoming = [self.of(source) for source in self.sources.get(value, ())]
            return _least_divisible(*incoming) if incoming else Divisibility(1)
        rule = _RULES.get(maker.name)
        result = Divisibility(1) if rule is None else rule(self, maker)
        hint = _NUMBER.search(maker.attribute("tt.divisibility").removeprefix("dense<"))
        return replace(result, divisor=max(result.divisor, int(hint[0]))) if hint else result

    def of_first_operand(self, operation: Operation) -> Divisibility:
        return self.of(operation.operands[0])

    def of_operands(self, operation: Operation) -> tuple[Divisibility, Divisibility]:
        left, right = operation.operands[:2]
        return self.of(left), self.of(right)


def _least_divisible(*values: Divisibility) -> Divisibility:
    least = min(values, key=lambda value: value.divisor)
    return replace(least, varies=any(value.varies for value in values))


def _constant(analysis: _DivisibilityAnalysis, operation: Operation) -> Divisibility:
    number = _NUMBER.search(operation.attribute("value").removeprefix("dense<"))
    whole = int(number[0]) if number else 0
    return Divisibility(whole & -whole or _ANY, source=f"the constant {whole:,}")


def _range(analysis: _DivisibilityAnalysis, operation: Operation) -> Divisibility:
    start = _NUMBER.search(operation.attribute("start"))
    return Divisibility(int(start[0]) if start and int(start[0]) else _ANY, varies=True)


def _expand_dims(analysis: _DivisibilityAnalysis, operation: Operation) -> Divisibility:
    """Return the divisor of a tile with a new axis; a range along any other axis than the last does not vary."""
    source = analysis.of_first_operand(operation)
    axis = _NUMBER.search(operation.attribute("axis"))
    rank = len(analysis.graph.values[operation.results[0]].shape)
    is_last = axis is not None and int(axis[0]) == rank - 1
    return Divisibility(1) if is_last and source.varies else source


def _product(analysis: _DivisibilityAnalysis, operation: Operation) -> Divisibility:
    left, right = analysis.of_operands(operation)
    if left.varies or right.varies:
        return Divisibility(1, varies=True, source="a stride between neighbours")
    source = left.source if left.divisor >= right.divisor else right.source
    return Divisibility(min(_ANY, left.divisor * right.divisor), source=source or left.source or right.source)


def _divide(analysis: _DivisibilityAnalysis, operation: Operation) -> Divisibility:
    left, right = analysis.of_operands(operation)
    divides = right.divisor < _ANY and not left.divisor % right.divisor
    return replace(left, divisor=max(1, left.divisor // right.divisor) if divides else 1)


def _remainder(analysis: _DivisibilityAnalysis, operation: Operation) -> Divisibility:
    left, right = analysis.of_operands(operation)
    return replace(_least_divisible(left, right), divisor=math.gcd(left.divisor, right.divisor))


def _comparison(analysis: _DivisibilityAnalysis, operation: Operation) -> Divisibility:
    """Return for how many neighbours a comparison has one result: all, where neither side varies."""
    left, right = analysis.of_operands(operation)
    if not left.varies and not right.varies:
        return Divisibility(_ANY)
    return _least_divisible(left, right)


def _nothing_known(analysis: _DivisibilityAnalysis, operation: Operation) -> Divisibility:
    return Divisibility(1, varies=bool(analysis.graph.values[operation.results[0]].shape), source="what is loaded")


_SAME = frozenset(
    {
        *("tt.splat", "tt.broadcast", "arith.extsi", "arith.extui", "arith.trunci", "arith.index_cast"),
        *("tt.bitcast", "ttg.convert_layout"),
    }
)
_RULES: dict[str, Callable[[_DivisibilityAnalysis, Operation], Divisibility]] = {
    **dict.fromkeys(_SAME, lambda analysis, operation: analysis.of_first_operand(operation)),
    **dict.fromkeys(
        ("arith.addi", "arith.subi", "tt.addptr", "arith.andi", "arith.ori", "arith.minsi", "arith.maxsi"),
        lambda analysis, operation: _least_divisible(*analysis.of_operands(operation)),
    ),
    "arith.select": lambda analysis, operation: _least_divisible(*map(analysis.of, operation.operands[1:])),
    "arith.constant": _constant,
    "tt.make_range": _range,
    "tt.expand_dims": _expand_dims,
    "arith.muli": _product,
    **dict.fromkeys(("arith.divsi", "arith.divui"), _divide),
    **dict.fromkeys(("arith.remsi", "arith.remui"), _remainder),
    "arith.cmpi": _comparison,
    **dict.fromkeys(("tt.load", "tt.atomic_rmw", "tt.atomic_cas"), _nothing_known),
}


@dataclass(frozen=True, slots=True)
class NarrowAccess:
    """A load or store that moves ``width_bytes`` per thread and instruction, where ``possible_bytes`` would fit.

    ``also`` are the other arguments that have to be divisible by 16, too.
    """

    kind: Access
    line: int | None
    width_bytes: int
    possible_bytes: int
    also: tuple[str, ...] = ()


def narrow_accesses(compiled: Compiled, arguments: Mapping[str, Any]) -> Mapping[str, tuple[NarrowAccess, ...]]:
    """Return the narrow loads and stores of an NVIDIA kernel, by each argument that keeps them so.

    An access counts if its instructions in the PTX are narrower than a thread's part of the tile, and if nothing else
    than arguments that are not known to be divisible by 16 stands against wider ones. Triton compiles a kernel again
    for arguments that are, and then moves up to 16 bytes by one instruction.
    """
    if compiled.target.backend != "cuda" or "ptx" not in compiled.stages:
        return {}
    profiles = profiles_of("ptx", stage_lines("ptx", compiled.ptx))
    accesses_by_argument: dict[str, dict[NarrowAccess, None]] = {}
    for operation in compiled.graph.operations:
        place = place_of(operation.location)
        profile = profiles.get((place.file, place.line))
        if operation.name not in _KINDS or profile is None:
            continue
        access = _narrow_access(compiled, operation, profile)
        if access is not None:
            names = _limiting_arguments(compiled, operation, access, arguments)
            for name in names:
                also = tuple(other for other in compiled.graph.kernel.parameters if other in names - {name})
                accesses_by_argument.setdefault(name, {})[replace(access, also=also)] = None
    return {name: tuple(accesses) for name, accesses in accesses_by_argument.items()}


def _narrow_access(compiled: Compiled, operation: Operation, profile: LineProfile) -> NarrowAccess | None:
    """Return the access of an operation if its narrowest instruction moves less than fits, else None."""
    kind = _KINDS[operation.name]
    widths = [instruction.bytes for wanted in _INSTRUCTIONS[kind] for instruction, _ in profile.of(wanted)]
    owned = access_bytes(compiled.graph, operation) // compiled.resources.threads
    possible = widest_access(owned)
    if not widths or min(widths) >= possible:
        return None
    return NarrowAccess(kind, place_of(operation.location).line, min(widths), possible)


def _limiting_arguments(
    compiled: Compiled, operation: Operation, access: NarrowAccess, arguments: Mapping[str, Any]
) -> frozenset[str]:
    """Return the arguments that keep an access narrow; none where anything else would, too."""
    element = compiled.graph.values[operation.operands[0]].pointee_bytes or 1
    elements = access.possible_bytes // element
    sources = {limit.source for limit in width_limits(compiled, operation, elements, arguments)}
    names = sources & set(compiled.graph.kernel.parameters)
    if names != sources or width_limits(compiled, operation, elements, arguments, assumed=names):
        return frozenset()
    return frozenset(names)
