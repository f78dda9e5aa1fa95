"""The graphs of every kernel of the effects suite, raw and optimised, drawn both ways."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from kernellab.ir.effects import effects_of
from kernellab.ir.graph import Graph
from kernellab.views.graph import View, diagram_of
from kernellab.views.graph.diagram import BoxKind, lay_out, to_dot
from kernellab.views.graph.drawing import draw
from tests.ir.conftest import graphs_of_case
from tests.ir.expected import Case, all_cases
from tests.tables import every

pytestmark = pytest.mark.filterwarnings("ignore:.*make_block_ptr is deprecated.*:UserWarning")

# What is marked is looked at in all kernels; Graphviz, which takes most of the time, draws every third.
DRAWN = {case.name for case in all_cases()[::3]}
MARKED = {BoxKind.READ, BoxKind.WRITE, BoxKind.ATOMIC, BoxKind.UNKNOWN}


@pytest.mark.slow
@pytest.mark.parametrize("case", every(5, all_cases()), ids=lambda case: case.name)
def test_every_touched_argument_is_marked_and_everything_has_a_place(case: Case) -> None:
    for graph in graphs_of_case(case):
        effects = effects_of(graph)
        touched = {site.argument for site in effects.sites}
        for view in _views(graph):
            diagram = diagram_of(graph, effects, view=view)
            shown = " ".join(" ".join((*node.lines, node.tip)) for node in diagram.nodes if node.kind in MARKED)
            assert {name for name in touched if name not in shown} == set()
            assert any(node.unsure for node in diagram.nodes) == bool(effects.unknown)
            if case.name in DRAWN:
                layout = lay_out(to_dot(diagram))
                assert layout is not None
                assert {node.id for node in diagram.nodes} == set(layout.nodes)
                assert {cluster.id for cluster in diagram.clusters} == set(layout.clusters)
                assert len(layout.edges) == len(diagram.edges)
                ElementTree.fromstring(draw(diagram, layout))


def _views(graph: Graph) -> tuple[View, ...]:
    """Both views, but not the operations of a graph that nobody would draw: dot takes minutes for thousands of them."""
    return tuple(View) if len(graph.operations) <= 1000 else (View.SOURCE,)
