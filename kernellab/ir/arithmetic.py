"""What one run of an operation computes: the product of a dot, the elements of an elementwise operation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kernellab.ir.graph import Graph, Operation
from kernellab.ir.programs import CannotFollow, Grid3, Programs, Weight, integers, scalars_of

_KINDS = {"f16": "fp16", "bf16": "bf16", "f64": "fp64", "i8": "int8", "i4": "int4"}
_ARITH = frozenset(
    {
        *("arith.addf", "arith.subf", "arith.mulf", "arith.divf", "arith.remf", "arith.negf", "arith.maximumf"),
        *("arith.minimumf", "arith.maxnumf", "arith.minnumf", "tt.precise_sqrt", "tt.precise_divf", "tt.approx_divf"),
        *("tt.clampf", "tt.extern_elementwise"),
    }
)
_COMBINING = frozenset({"tt.reduce", "tt.scan", "tt.map_elementwise"})


@dataclass(frozen=True, slots=True)
class Dot:
    """The product of two tiles: ``flops`` are 2 M N K, ``kind`` the numbers that are multiplied."""

    kind: str
    flops: int


def dot_work(graph: Graph, operation: Operation) -> Dot | None:
    """Return the floating-point operations of a dot, None for any other operation.

    K follows from the elements of the left tile; of type ``e2m1`` there are two to a byte, whichever way it is packed.
    """
    if operation.name not in {"tt.dot", "tt.dot_scaled"}:
        return None
    left, result = graph.values[operation.operands[0]], graph.values[operation.results[0]]
    elements = math.prod(left.shape) * (2 if operation.attribute("lhs") == "e2m1" else 1)
    inner = elements // math.prod(result.shape[:-1])
    if operation.name == "tt.dot_scaled":
        kind = "mxfp4" if operation.attribute("lhs") == operation.attribute("rhs") == "e2m1" else "mxfp8"
    else:
        kind = _kind(left.element, operation.attribute("inputPrecision", "ieee"))
    return Dot(kind, 2 * math.prod(result.shape) * inner)


def elementwise_work(graph: Graph, operation: Operation) -> int | str:
    """Return the floating-point operations on single elements that an operation stands for; a text says why not known.

    A reduction of n elements to one counts n - 1 times what combines two, a scan n times. The operations inside their
    regions count nothing by themselves.
    """
    if operation.name in _COMBINING:
        return _combine_work(graph, operation)
    owner = next(graph.owners(operation.block), None)
    if owner is not None and owner.name in _COMBINING:
        return 0
    if operation.name == "tt.elementwise_inline_asm":
        return "what inline assembly computes is not known"
    return _of_element(graph, operation)


def _combine_work(graph: Graph, operation: Operation) -> int:
    source = math.prod(graph.values[operation.operands[0]].shape)
    block = graph.bodies(operation)[0]
    per_element = sum(_of_element(graph, graph.operations[index]) for index in block.operations)
    if operation.name == "tt.reduce":
        return per_element * (source - math.prod(graph.values[operation.results[0]].shape))
    pack = operation.attribute("pack", "1").split(" ")[0]
    return per_element * source // (int(pack) if operation.name == "tt.map_elementwise" else 1)


def _of_element(graph: Graph, operation: Operation) -> int:
    if not operation.results or not (operation.name in _ARITH or operation.name.startswith("math.")):
        return 0
    result = graph.values[operation.results[0]]
    if not result.element.startswith(("f", "bf")):
        return 0
    return math.prod(result.shape) * (2 if operation.name == "math.fma" else 1)


def _kind(element: str, precision: str) -> str:
    if element == "f32":
        return "fp32" if precision == "ieee" else precision
    return "fp8" if element.startswith("f8") else _KINDS.get(element, element)


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """The floating-point operations of a launch; a multiply-add counts as two.

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
    dots, elementwise = _count(graph, arguments, grid, by_rounds=False)
    if isinstance(dots, str) or isinstance(elementwise, str):
        dots_again, elementwise_again = _count(graph, arguments, grid, by_rounds=True)
        dots = dots_again if isinstance(dots, str) else dots
        elementwise = elementwise_again if isinstance(elementwise, str) else elementwise
    return Arithmetic(
        dots=None if isinstance(dots, str) else tuple(sorted(dots.items())),
        elementwise=None if isinstance(elementwise, str) else elementwise,
        why_unknown=next((part for part in (dots, elementwise) if isinstance(part, str)), ""),
    )


def _count(
    graph: Graph, arguments: Mapping[str, Any], grid: Grid3, *, by_rounds: bool
) -> tuple[dict[str, int] | str, int | str]:
    """Count dots by kind and elementwise operations; a text says why one is not known."""
    dots: dict[str, int] = {}
    elementwise = 0
    whys = ["", ""]

    def visit(operation: Operation, weight: Weight) -> None:
        nonlocal elementwise
        dot, work = dot_work(graph, operation), elementwise_work(graph, operation)
        if isinstance(work, str):
            whys[1] = whys[1] or work
        elif isinstance(weight, str):
            whys[:] = [whys[0] or (weight if dot else ""), whys[1] or (weight if work else "")]
        elif dot or work:
            runs = programs.runs(weight)
            elementwise += work * runs
            if dot:
                dots[dot.kind] = dots.get(dot.kind, 0) + dot.flops * runs

    programs = Programs(graph, grid, by_rounds, visit)
    try:
        programs.call(graph.kernel, scalars_of(graph, arguments), integers(1))
    except CannotFollow as exc:
        whys = [str(exc)] * 2
    return whys[0] or dots, whys[1] or elementwise
