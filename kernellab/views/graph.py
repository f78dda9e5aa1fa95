"""The graph of a kernel as SVG: by operation, by source line, or the slice of one argument."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum

from kernellab.errors import UsageError, choice_message
from kernellab.ir.effects import Effects
from kernellab.ir.graph import Graph
from kernellab.ir.slices import argument_slice
from kernellab.views.diagram import Diagram, restricted
from kernellab.views.dot import to_dot
from kernellab.views.drawing import draw
from kernellab.views.folding import fitting, folded
from kernellab.views.graphviz import lay_out, warm
from kernellab.views.operations import operation_diagram
from kernellab.views.places import SourceText, main_file
from kernellab.views.slicing import nodes_of_slice
from kernellab.views.source_view import source_diagram
from kernellab.views.tree import draw_tree
from kernellab.views.wording import plural

__all__ = ["BOXES_AT_MOST", "OPERATIONS_AT_MOST", "View", "diagram_of", "picture", "svg", "warm", "whole_diagram"]

OPERATIONS_AT_MOST = 150
BOXES_AT_MOST = 500  # beyond some thousand boxes a layout takes minutes, and nobody could read it


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
    collapsed: Collection[str] | None = None,
) -> str:
    """Return the graph as one ``<svg>`` element, the same for the same input.

    ``effects`` name the arguments at loads and stores. ``view`` is "operations" or "source"; by default the number of
    operations decides. ``argument`` keeps what leads from that argument and to it. ``text`` maps line numbers of the
    kernel's file to source text, for when that file is not at hand. ``collapsed`` names the frames (``r3``) that show
    as one box; by default as many, from the inside out, as leave at most 500 boxes. Where no layout engine works, or
    there are more source lines than that, the picture is an indented list.

    Raises:
        UsageError: the graph has no such view or argument, or the operation view has more boxes than can be laid out.
    """
    diagram = diagram_of(graph, effects, view=view, argument=argument, text=text, collapsed=collapsed)
    if len(diagram.nodes) > BOXES_AT_MOST and view == View.OPERATIONS:
        raise UsageError(too_large(diagram, graph, argument))
    return picture(diagram)


def picture(diagram: Diagram, classes: Mapping[str, str] | None = None) -> str:
    """Return a diagram laid out and drawn, with CSS ``classes`` on the outlines of boxes by their ids."""
    layout = lay_out(to_dot(diagram)) if len(diagram.nodes) <= BOXES_AT_MOST else None
    return draw(diagram, layout, classes) if layout is not None else draw_tree(diagram)


def too_large(diagram: Diagram, graph: Graph, argument: str | None = None) -> str:
    """Return the sentence that says why a diagram cannot be laid out, and what to do."""
    remedies = ["Collapse more frames"] if diagram.clusters else []
    remedies.append('draw it by source line (view="source")')
    if argument is None and graph.kernel.parameters:
        remedies.append(f'draw the slice of one argument (argument="{graph.kernel.parameters[0]}")')
    counted = plural(len(diagram.nodes), "box")
    remedy = ", or ".join(remedies)
    return f"{diagram.title}: {counted}, and at most {BOXES_AT_MOST} can be laid out. {remedy[0].upper()}{remedy[1:]}."


def diagram_of(
    graph: Graph,
    effects: Effects | None = None,
    *,
    view: View | str | None = None,
    argument: str | None = None,
    text: Mapping[int, str] | None = None,
    collapsed: Collection[str] | None = None,
) -> Diagram:
    """Return what `svg` draws, before it is laid out."""
    diagram = whole_diagram(graph, effects, view=view, text=text)
    if argument is not None:
        kept = nodes_of_slice(diagram, argument_slice(graph, argument, effects), _boxes_of(graph, argument))
        diagram = restricted(diagram, f"{diagram.title}: {argument}", kept)
    return folded(diagram, fitting(diagram, BOXES_AT_MOST) if collapsed is None else collapsed)


def whole_diagram(
    graph: Graph,
    effects: Effects | None = None,
    *,
    view: View | str | None = None,
    text: Mapping[int, str] | None = None,
) -> Diagram:
    """Return every box of a view, nothing folded."""
    chosen = default_view(graph) if view is None else view
    if chosen not in tuple(View):
        raise UsageError(choice_message("view", chosen, tuple(View)))
    build = operation_diagram if chosen == View.OPERATIONS else source_diagram
    return build(graph, effects, SourceText(main_file(graph), text or {}))


def _boxes_of(graph: Graph, argument: str) -> frozenset[str]:
    kernel = graph.kernel
    pairs = zip(kernel.arguments, kernel.parameters, strict=False)
    return frozenset(f"v{value}" for value, name in pairs if name == argument)
