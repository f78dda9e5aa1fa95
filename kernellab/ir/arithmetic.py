"""How much a launch computes, counted in its graph: the products of its dots, and its elementwise operations.

A product of tiles counts all lanes, masked ones too: it is what the kernel does, and not what was asked of it. How
often an operation runs follows from the bounds of its loops and the conditions of its branches, where these derive from
constants, scalar arguments, the program id and the grid. They are evaluated for all programs of the grid at once: loops
first as a factor of their rounds, then, where a bound or condition inside depends on the round, round by round.
What derives from memory is not known, and neither is then the count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kernellab.ir.graph import Graph, Operation
from kernellab.ir.programs import CannotFollow, Grid3, Programs, Weight
from kernellab.ir.scalars import Known, integers
from kernellab.ir.work import dot_work, elementwise_work


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """What a launch computes: floating-point operations, a multiplication and an addition counting as two.

    ``dots`` gives those of the matrix products by the kind of number that goes in: ``fp16``, ``bf16``, ``tf32``,
    ``fp32``, ``fp8``, ``mxfp4``, ``int8``, ... ``elementwise`` counts all others but comparisons and conversions, a
    ``math`` function as one. Each is None where it is not known, for the reason in ``why_unknown``.
    """

    dots: tuple[tuple[str, int], ...] | None
    elementwise: int | None
    why_unknown: str = ""

    @property
    def dot_flops(self) -> int | None:
        """The operations of all matrix products; 0 for a kernel without any, None where they are not known."""
        return None if self.dots is None else sum(flops for _, flops in self.dots)

    @property
    def main_dot(self) -> str | None:
        """The kind of number that most products multiply, None where there are none or they are not known."""
        return max(self.dots, key=lambda pair: pair[1])[0] if self.dots else None


def arithmetic_of(graph: Graph, arguments: Mapping[str, Any], grid: Grid3) -> Arithmetic:
    """Count what a launch computes. ``arguments`` are those of the launch by name; only whole numbers are looked at."""
    first = _counted(graph, arguments, grid, by_rounds=False)
    if not first.dots_unknown and not first.elementwise_unknown:
        return _result(first)
    again = _counted(graph, arguments, grid, by_rounds=True)
    if first.dots_unknown:
        first.dots, first.dots_unknown = again.dots, again.dots_unknown
    if first.elementwise_unknown:
        first.elementwise, first.elementwise_unknown = again.elementwise, again.elementwise_unknown
    return _result(first)


@dataclass(slots=True)
class _Tally:
    """What was counted so far; a text says why a count is not known."""

    dots: dict[str, int] = field(default_factory=dict)
    elementwise: int = 0
    dots_unknown: str = ""
    elementwise_unknown: str = ""


def _counted(graph: Graph, arguments: Mapping[str, Any], grid: Grid3, *, by_rounds: bool) -> _Tally:
    tally = _Tally()

    def visit(operation: Operation, weight: Weight) -> None:
        dot, work = dot_work(graph, operation), elementwise_work(graph, operation)
        if isinstance(work, str):
            tally.elementwise_unknown = tally.elementwise_unknown or work
        elif isinstance(weight, str):
            tally.dots_unknown = tally.dots_unknown or (weight if dot else "")
            tally.elementwise_unknown = tally.elementwise_unknown or (weight if work else "")
        elif dot or work:
            runs = programs.runs(weight)
            tally.elementwise += work * runs
            if dot:
                tally.dots[dot.kind] = tally.dots.get(dot.kind, 0) + dot.flops * runs

    programs = Programs(graph, grid, by_rounds, visit)
    try:
        programs.call(graph.kernel, _scalars(graph.kernel.parameters, arguments), integers(1))
    except CannotFollow as exc:
        tally.dots_unknown = tally.elementwise_unknown = str(exc)
    return tally


def _scalars(names: tuple[str, ...], arguments: Mapping[str, Any]) -> list[Known]:
    """Return the whole numbers among the arguments, in order; a descriptor stands for several values, none known."""
    given = [arguments.get(name) if names.count(name) == 1 else None for name in names]
    return [integers(int(v)) if isinstance(v, int) and abs(v) < 2**63 else None for v in given]


def _result(tally: _Tally) -> Arithmetic:
    dots = None if tally.dots_unknown else tuple(sorted(tally.dots.items()))
    elementwise = None if tally.elementwise_unknown else tally.elementwise
    return Arithmetic(dots, elementwise, tally.dots_unknown or tally.elementwise_unknown)
