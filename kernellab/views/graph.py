"""The graph of a kernel as SVG: by operation, by source line, or the slice of one argument."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from kernellab.errors import UsageError, choice_message
from kernellab.ir.effects import Effects
from kernellab.ir.graph import Graph
from kernellab.views.diagram import Diagram, restricted
from kernellab.views.dot import to_dot
from kernellab.views.drawing import draw
from kernellab.views.graphviz import lay_out, warm
from kernellab.views.operations import operation_diagram
from kernellab.views.places import SourceText, main_file
from kernellab.views.source_view import source_diagram
from kernellab.views.tree import draw_tree

__all__ = ["OPERATIONS_AT_MOST", "View", "diagram_of", "svg", "warm"]

OPERATIONS_AT_MOST = 150


class View(StrEnum):
    """What one box of the picture stands for."""

    OPERATIONS = "operations"
    SOURCE = "source"


def default_view(graph: Graph) -> View:
    """Return the operation view for up to 150 operations, the source view above."""
    return View.OPERATIONS if len(graph.operations) <= OPERATIONS_AT_MOST else View.SOURCE


def svg(
    graph: Graph,
    effects: Effects | None = None,
    *,
    view: View | str | None = None,
    argument: str | None = None,
    text: Mapping[int, str] | None = None,
) -> str:
    """Return the graph as one ``<svg>`` element, the same for the same input.

    ``effects`` name the arguments at loads and stores. ``view`` is "operations" or "source"; by default the number of
    operations decides. ``argument`` keeps what leads from that argument and to it. ``text`` maps line numbers of the
    kernel's file to source text, for when that file is not at hand. Where no layout engine works, the picture is an
    indented list.

    Raises:
        UsageError: the graph has no such view or argument.
    """
    diagram = diagram_of(graph, effects, view=view, argument=argument, text=text)
    layout = lay_out(to_dot(diagram))
    return draw(diagram, layout) if layout is not None else draw_tree(diagram)


def diagram_of(
    graph: Graph,
    effects: Effects | None = None,
    *,
    view: View | str | None = None,
    argument: str | None = None,
    text: Mapping[int, str] | None = None,
) -> Diagram:
    """Return what `svg` draws, before it is laid out."""
    chosen = default_view(graph) if view is None else view
    if chosen not in tuple(View):
        raise UsageError(choice_message("view", chosen, tuple(View)))
    build = operation_diagram if chosen == View.OPERATIONS else source_diagram
    diagram = build(graph, effects, SourceText(main_file(graph), text or {}))
    return diagram if argument is None else _slice(diagram, graph, effects, argument)


def _slice(diagram: Diagram, graph: Graph, effects: Effects | None, argument: str) -> Diagram:
    names = graph.kernel.parameters
    if argument not in names:
        raise UsageError(choice_message("argument", argument, names, owner=graph.kernel.name))
    starts = {f"v{value}" for value, name in zip(graph.kernel.arguments, names, strict=False) if name == argument}
    touching = {
        node.id
        for node in diagram.nodes
        if any(argument in line.replace(",", " ").split() for line in node.lines) and node.id not in starts
    }
    return restricted(diagram, f"{diagram.title}: {argument}", starts, touching | starts)
