"""Which boxes of a diagram belong to a slice of the graph."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from enum import StrEnum

from kernellab.ir.effects import Effects
from kernellab.ir.graph import Graph
from kernellab.ir.slices import Slice, argument_slice, operation_slice, value_slice
from kernellab.views.diagram import Diagram


class Direction(StrEnum):
    """Which half of a slice counts: what the start leads to, what leads to it, or both."""

    FORWARD = "forward"
    BACKWARD = "backward"
    BOTH = "both"


def start_slice(graph: Graph, diagram: Diagram, start: str, effects: Effects | None) -> tuple[Slice, frozenset[str]]:
    """Return the slice of an argument by its name, or of a box or frame by its id, and the boxes it starts from.

    Raises:
        UsageError: the kernel has no such argument, and the diagram no such box.
    """
    kernel = graph.kernel
    boxes = {node.id: node for node in diagram.nodes}
    inside = frozenset(node.id for node in diagram.nodes if node.cluster == start)
    if inside:
        operations = [index for name in inside for index in boxes[name].operations]
        return operation_slice(graph, operations), inside
    if start in boxes and boxes[start].operations:
        return operation_slice(graph, boxes[start].operations), frozenset({start})
    values = {f"v{value}": name for value, name in zip(kernel.arguments, kernel.parameters, strict=False)}
    if start in boxes and start not in values:
        return value_slice(graph, int(start.removeprefix("v"))), frozenset({start})
    argument = values.get(start, start)
    found = argument_slice(graph, argument, effects)
    return found, frozenset(box for box, name in values.items() if name == argument and box in boxes)


def nodes_of_slice(
    diagram: Diagram, part: Slice, starts: Collection[str], direction: Direction = Direction.BOTH
) -> frozenset[str]:
    """Return the boxes of a slice: those of its operations, and the values that pass between them.

    A box without operations is a value: an argument of the kernel or one that a loop carries. It leads to the slice
    if an arrow leads from it to what is backward of the start, and comes from it if one leads there from what is
    forward of it.
    """
    found = set(starts)
    for wanted, operations, back in (
        (direction != Direction.BACKWARD, part.forward, False),
        (direction != Direction.FORWARD, part.backward, True),
    ):
        if wanted:
            boxes = {node.id for node in diagram.nodes if not operations.isdisjoint(node.operations)}
            found |= boxes | _values_beside(diagram, boxes, follow_back=back)
    return frozenset(found)


def _values_beside(diagram: Diagram, boxes: Iterable[str], *, follow_back: bool) -> set[str]:
    """Return the values that boxes lead to, directly or through other values, or that lead to them."""
    values = {node.id for node in diagram.nodes if not node.operations}
    next_of: dict[str, list[str]] = defaultdict(list)
    for edge in diagram.edges:
        tail, head = (edge.head, edge.tail) if follow_back else (edge.tail, edge.head)
        if head in values:
            next_of[tail].append(head)
    found: set[str] = set()
    waiting = list(boxes)
    while waiting:
        fresh = [value for value in next_of[waiting.pop()] if value not in found]
        found.update(fresh)
        waiting += fresh
    return found
