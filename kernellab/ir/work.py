"""What one run of an operation computes: the product of a dot, the elements of an elementwise operation."""

from __future__ import annotations

import math
from dataclasses import dataclass

from kernellab.ir.graph import Graph, Operation

_KINDS = {"f16": "fp16", "bf16": "bf16", "f64": "fp64", "i8": "int8", "i4": "int4"}
_ARITH = frozenset(
    {
        "arith.addf",
        "arith.subf",
        "arith.mulf",
        "arith.divf",
        "arith.remf",
        "arith.negf",
        "arith.maximumf",
        "arith.minimumf",
        "arith.maxnumf",
        "arith.minnumf",
        "tt.precise_sqrt",
        "tt.precise_divf",
        "tt.approx_divf",
        "tt.clampf",
        "tt.extern_elementwise",
    }
)
_COMBINING = frozenset({"tt.reduce", "tt.scan", "tt.map_elementwise"})


@dataclass(frozen=True, slots=True)
class Dot:
    """The product of two tiles: ``flops`` are 2 M N K, ``kind`` the numbers that are multiplied."""

    kind: str
    flops: int


def dot_work(graph: Graph, operation: Operation) -> Dot | None:
    """Return what a dot computes, None for any other operation.

    K is told by the elements of the left tile; of type ``e2m1`` there are two to a byte, whichever way it is packed.
    """
    if operation.name not in {"tt.dot", "tt.dot_scaled"}:
        return None
    left, result = graph.values[operation.operands[0]], graph.values[operation.results[0]]
    attributes = dict(operation.attributes)
    elements = math.prod(left.shape) * (2 if attributes.get("lhs") == "e2m1" else 1)
    inner = elements // math.prod(result.shape[:-1])
    if operation.name == "tt.dot_scaled":
        kind = "mxfp4" if attributes.get("lhs") == attributes.get("rhs") == "e2m1" else "mxfp8"
    else:
        kind = _kind(left.element, attributes.get("inputPrecision", "ieee"))
    return Dot(kind, 2 * math.prod(result.shape) * inner)


def elementwise_work(graph: Graph, operation: Operation) -> int | str:
    """Return the floating-point operations on single elements that an operation stands for; a text says why not known.

    A reduction of n elements to one counts n - 1 times what combines two, a scan n times. The operations inside their
    regions count nothing by themselves.
    """
    if operation.name in _COMBINING:
        return _combined(graph, operation)
    owner = graph.regions[graph.blocks[operation.block].region].owner
    if owner is not None and graph.operations[owner].name in _COMBINING:
        return 0
    if operation.name == "tt.elementwise_inline_asm":
        return "what inline assembly computes is not known"
    return _of_element(graph, operation)


def _combined(graph: Graph, operation: Operation) -> int:
    source = math.prod(graph.values[operation.operands[0]].shape)
    block = graph.regions[operation.regions[0]].blocks[0]
    each = sum(_of_element(graph, graph.operations[index]) for index in graph.blocks[block].operations)
    if operation.name == "tt.reduce":
        return each * (source - math.prod(graph.values[operation.results[0]].shape))
    pack = dict(operation.attributes).get("pack", "1").split(" ")[0]
    return each * source // (int(pack) if operation.name == "tt.map_elementwise" else 1)


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
