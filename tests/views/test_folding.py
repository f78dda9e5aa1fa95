from __future__ import annotations

from collections.abc import Callable

import pytest

from kernellab.compile.types import Compiled
from kernellab.errors import UsageError
from kernellab.views.graph import diagram_of, svg
from kernellab.views.graph.diagram import ArrowKind, BoxKind, Diagram, Edge, Node, RegionFrame, collapse, fitting

Kernels = Callable[[str], Compiled]


def diagram() -> Diagram:
    """Two frames, one in the other, between a box above and one below."""
    nodes = (
        Node("a", ("a",), BoxKind.ARGUMENT, ""),
        Node("b", ("b",), BoxKind.READ, "", "outer", 3),
        Node("c", ("c",), BoxKind.COMPUTE, "", "inner", 4, operations=(7,)),
        Node("d", ("d",), BoxKind.WRITE, "", "inner", 5, operations=(8,)),
        Node("e", ("e",), BoxKind.COMPUTE, ""),
    )
    edges = tuple(
        Edge(tail, head, ArrowKind.VALUE, f"{tail}{head}") for tail, head in ("ab", "bc", "cd", "ac", "de", "ce")
    )
    return Diagram(
        "t", nodes, edges, (RegionFrame("outer", "loop"), RegionFrame("inner", "if", "outer")), (("b", "d"),)
    )


def test_a_folded_frame_is_one_box_with_what_it_holds() -> None:
    result = collapse(diagram(), {"inner"})
    assert [node.id for node in result.nodes] == ["a", "b", "inner", "e"]
    box = result.nodes[2]
    assert (box.folds, box.cluster, box.kind, box.operations, box.source_line) == (2, "outer", BoxKind.WRITE, (7, 8), 4)
    assert box.lines == ("▸ if", "2 boxes, 1 store")
    assert [cluster.id for cluster in result.clusters] == ["outer"]


def test_arrows_lead_to_the_folded_box_once() -> None:
    result = collapse(diagram(), {"inner"})
    assert [(edge.tail, edge.head) for edge in result.edges] == [
        ("a", "b"),
        ("b", "inner"),
        ("a", "inner"),
        ("inner", "e"),
    ]
    assert next(edge.tip for edge in result.edges if edge.head == "e") == "de\nce"
    assert result.order == (("b", "inner"),)


def test_the_outermost_folded_frame_counts() -> None:
    result = collapse(diagram(), {"inner", "outer"})
    assert [node.id for node in result.nodes] == ["a", "outer", "e"]
    assert result.clusters == ()
    assert result.order == ()


def test_nothing_folded_is_the_same_diagram() -> None:
    assert collapse(diagram(), set()).nodes == diagram().nodes


@pytest.mark.parametrize(
    ("boxes", "expected"), [(5, set()), (4, {"inner"}), (3, {"inner", "outer"}), (1, {"inner", "outer"})]
)
def test_as_few_frames_as_needed_are_folded_from_the_inside(boxes: int, expected: set[str]) -> None:
    assert fitting(diagram(), boxes) == expected


@pytest.mark.slow
def test_a_view_too_large_to_lay_out_is_refused_with_what_to_do(compiled: Kernels) -> None:
    with pytest.raises(UsageError, match=r'1,809 boxes, and at most 500.*view="source".*argument="x_ptr"'):
        svg(compiled("unrolled").graph, view="operations")


@pytest.mark.slow
def test_frames_that_are_named_are_folded(compiled: Kernels) -> None:
    graph = compiled("matmul").graph
    (frame,) = {node.cluster for node in diagram_of(graph, view="operations").nodes if node.cluster}
    assert 'data-folds="' in svg(graph, view="operations", collapsed=[frame])
    assert 'data-folds="' not in svg(graph, view="operations")
