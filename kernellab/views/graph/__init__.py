"""The graph of a kernel as SVG: by operation, by source line, or the slice of one argument; its frame on a page."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from html import escape
from typing import NamedTuple, TypedDict, Unpack

import traitlets

from kernellab.errors import UsageError, choice_message, plural
from kernellab.ir.effects import Effects
from kernellab.ir.graph import Graph, main_file
from kernellab.ir.uses import Slice, argument_slice, operation_slice, value_slice
from kernellab.views.elements import file_text, style
from kernellab.views.graph.dataflow import SourceText
from kernellab.views.graph.diagram import Diagram, Node, ancestors, collapse, fitting, subdiagram
from kernellab.views.graph.drawing import BOXES_AT_MOST, picture
from kernellab.views.graph.ttir import operation_diagram, source_diagram
from kernellab.workers.forks_and_interrupts import cached_property

OPERATIONS_AT_MOST = 150
FEW_OPERATIONS = 40  # above that, a graph is drawn by source line unless a view is named


class View(StrEnum):
    """The kind of a picture: its boxes are operations or source lines."""

    OPERATIONS = "operations"
    SOURCE = "source"


def default_view(graph: Graph) -> View:
    """Return the operation view for up to 40 operations, the source view above."""
    return View.OPERATIONS if len(graph.operations) <= FEW_OPERATIONS else View.SOURCE


class PictureOptions(TypedDict, total=False):
    """The part of a graph that a picture shows.

    ``view`` is "operations" or "source"; by default the number of operations decides. ``argument`` keeps what leads
    from that argument and to it. ``text`` maps line numbers of the kernel's file to source text, for when that file is
    not at hand. ``collapsed`` names the frames (``r3``) that show as one box; by default as many, from the inside out,
    as leave at most 500 boxes.
    """

    view: View | str | None
    argument: str | None
    text: Mapping[int, str] | None
    collapsed: Collection[str] | None


def svg(graph: Graph, effects: Effects | None = None, **options: Unpack[PictureOptions]) -> str:
    """Return the graph as one ``<svg>`` element, the same for the same input.

    ``effects`` name the arguments at loads and stores. Where no layout engine works, or there are more source lines
    than 500, the picture is an indented list.

    Raises:
        UsageError: the graph has no such view or argument, or the operation view has more boxes than can be laid out.
    """
    diagram = diagram_of(graph, effects, **options)
    if len(diagram.nodes) > BOXES_AT_MOST and options.get("view") == View.OPERATIONS:
        raise UsageError(too_large(diagram, graph, options.get("argument")))
    return picture(diagram)


def too_large(diagram: Diagram, graph: Graph, argument: str | None = None) -> str:
    """Return the message on a diagram that cannot be laid out, with what to do."""
    remedies = ["Collapse more frames"] if diagram.clusters else []
    remedies.append('draw it by source line (view="source")')
    if argument is None and graph.kernel.parameters:
        remedies.append(f'draw the slice of one argument (argument="{graph.kernel.parameters[0]}")')
    counted = plural(len(diagram.nodes), "box")
    remedy = ", or ".join(remedies)
    return f"{diagram.title}: {counted}, and at most {BOXES_AT_MOST} can be laid out. {remedy[0].upper()}{remedy[1:]}."


def diagram_of(graph: Graph, effects: Effects | None = None, **options: Unpack[PictureOptions]) -> Diagram:
    """Return the diagram that `svg` draws, without a layout."""
    diagram = whole_diagram(graph, effects, options.get("view"), options.get("text"))
    argument, collapsed = options.get("argument"), options.get("collapsed")
    if argument is not None:
        kept = nodes_of_slice(diagram, *_slice_of_argument(graph, diagram, argument, effects))
        diagram = subdiagram(diagram, f"{diagram.title}: {argument}", kept)
    return collapse(diagram, fitting(diagram, BOXES_AT_MOST) if collapsed is None else collapsed)


def whole_diagram(
    graph: Graph, effects: Effects | None, view: View | str | None, text: Mapping[int, str] | None
) -> Diagram:
    """Return every box of a view, nothing folded."""
    chosen = default_view(graph) if view is None else view
    if chosen not in tuple(View):
        raise UsageError(choice_message("view", chosen, tuple(View)))
    build = operation_diagram if chosen == View.OPERATIONS else source_diagram
    return build(graph, effects, SourceText(main_file(graph), text or {}))


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
    return _slice_of_argument(graph, diagram, values.get(start, start), effects)


def _slice_of_argument(
    graph: Graph, diagram: Diagram, argument: str, effects: Effects | None
) -> tuple[Slice, frozenset[str]]:
    part = argument_slice(graph, argument, None if effects is None else effects.touching(argument))
    boxes = {node.id for node in diagram.nodes}
    named = zip(graph.kernel.arguments, graph.kernel.parameters, strict=False)
    return part, frozenset(boxes & {f"v{value}" for value, name in named if name == argument})


def nodes_of_slice(
    diagram: Diagram, part: Slice, starts: Collection[str], direction: Direction = Direction.BOTH
) -> frozenset[str]:
    """Return the boxes of a slice: those of its operations, and the values that pass between them.

    A box without operations is a value: an argument of the kernel or one that a loop carries. It leads to the slice
    if an arrow leads from it to what is backward of the start, and comes from it if one leads there from what is
    forward of it.
    """
    nodes = set(starts)
    for other, operations in ((Direction.BACKWARD, part.forward), (Direction.FORWARD, part.backward)):
        if direction != other:
            boxes = {node.id for node in diagram.nodes if not operations.isdisjoint(node.operations)}
            nodes |= boxes | _adjacent_values(diagram, boxes, follow_back=other is Direction.FORWARD)
    return frozenset(nodes)


def _adjacent_values(diagram: Diagram, boxes: Iterable[str], *, follow_back: bool) -> set[str]:
    """Return the values that boxes lead to, directly or through other values, or that lead to them."""
    values = {node.id for node in diagram.nodes if not node.operations}
    next_of: dict[str, list[str]] = defaultdict(list)
    for edge in diagram.edges:
        tail, head = (edge.head, edge.tail) if follow_back else (edge.tail, edge.head)
        if head in values:
            next_of[tail].append(head)
    adjacent: set[str] = set()
    waiting = list(boxes)
    while waiting:
        fresh = [value for value in next_of[waiting.pop()] if value not in adjacent]
        adjacent.update(fresh)
        waiting += fresh
    return adjacent


_SHRINK_TO = 0.8  # smaller text could not be read


def graph_script() -> str:
    """Return the script: an ES module that exports ``graphPane(root, link)``."""
    return file_text(__package__, "graph.js")


def shrinking(picture: str) -> str:
    """Return a picture that shrinks a little where its place is too narrow, before that scrolls."""
    width = int(picture.split(' width="', 1)[1].split('"', 1)[0])
    return picture.replace("<svg ", f'<svg style="max-width:max(100%,{width * _SHRINK_TO:.0f}px)" ', 1)


def graph_pane(picture: str, title: str = "") -> str:
    """Return the frame around a picture, with its style sheet. ``title`` shows where no script adds the tools."""
    shown = shrinking(picture) if picture else ""
    head = f'<div class="kg-head">{escape(title)}</div>' if title else ""
    sheet = style(__package__, "graph.css")
    return f'<div class="kg">{sheet}{head}<div class="kg-canvas">{shown}</div></div>'


_KEPT = 64  # pictures, of some 100 kB each


class StateError(UsageError, traitlets.TraitError):
    """A state that a view cannot take: it keeps the one it has."""


class Picture(NamedTuple):
    """A diagram as it shows, some frames folded, and its SVG."""

    diagram: Diagram
    svg: str


@dataclass(eq=False)
class GraphPictures:
    """Draws one graph. ``style`` gives the CSS classes of a box; ``text`` lines of the kernel's file."""

    graph: Graph
    effects: Effects | None
    text: Mapping[int, str] | None = None
    style: Callable[[Node], str] = lambda node: ""
    _whole: dict[str, Diagram] = field(default_factory=dict)
    _drawn: dict[tuple[str, frozenset[str]], Picture] = field(default_factory=dict)

    @cached_property
    def arguments(self) -> list[str]:
        """The arguments that a slice can start from: those that any box derives from."""
        named = dict.fromkeys(self.graph.kernel.parameters)
        shown = {node.lines[0] for node in self.whole(View.SOURCE).nodes if not node.operations}
        return [name for name in named if name in shown]

    @cached_property
    def views(self) -> list[str]:
        """The views that can be laid out."""
        return [view.value for view in (View.SOURCE, View.OPERATIONS) if self._fits(self.whole(view))]

    @cached_property
    def default(self) -> str:
        """The view that suits the graph best, as far as it can be laid out."""
        best = default_view(self.graph).value
        return best if best in self.views or not self.views else self.views[0]

    @staticmethod
    def _fits(diagram: Diagram) -> bool:
        return len(collapse(diagram, fitting(diagram, BOXES_AT_MOST)).nodes) <= BOXES_AT_MOST

    def whole(self, view: str) -> Diagram:
        """Return a view with nothing folded."""
        if view not in self._whole:
            self._whole[view] = whole_diagram(self.graph, self.effects, view, self.text)
        return self._whole[view]

    def collapsed_at_first(self, view: str) -> list[str]:
        """Return the frames of a view that are folded at first, so that some 150 boxes are left."""
        return sorted(fitting(self.whole(view), OPERATIONS_AT_MOST))

    def draw(self, view: str, collapsed: Collection[str]) -> Picture:
        """Draw a view with collapsed frames, or return the earlier drawing."""
        key = (view, frozenset(collapsed))
        if key not in self._drawn:
            if len(self._drawn) >= _KEPT:
                del self._drawn[next(iter(self._drawn))]
            diagram = collapse(self.whole(view), key[1])
            self._drawn[key] = Picture(diagram, picture(diagram, {node.id: self.style(node) for node in diagram.nodes}))
        return self._drawn[key]

    def index(self, view: str) -> list[tuple[str, str, list[str]]]:
        """Return, for a search, each box with its words and the frames around it from the outside in."""
        diagram = self.whole(view)
        parents = {cluster.id: cluster.parent for cluster in diagram.clusters}
        return [
            (node.id, "\n".join([*node.lines, node.tip]), list(ancestors(node.cluster, parents))[::-1])
            for node in diagram.nodes
        ]

    def members(self, view: str, collapsed: Collection[str], start: str, direction: str) -> list[str]:
        """Return the boxes of a picture that belong to a slice."""
        part, starts = start_slice(self.graph, self.whole(view), start, self.effects)
        inside = nodes_of_slice(self.whole(view), part, starts, Direction(direction))
        where, hidden = {name: frames for name, _, frames in self.index(view)}, frozenset(collapsed)
        return sorted({next((frame for frame in where[name] if frame in hidden), name) for name in inside})

    def checked_view(self, view: str) -> str:
        """Return a view that exists and can be laid out.

        Raises:
            StateError: it does not or cannot.
        """
        if view not in tuple(View):
            raise StateError(choice_message("view", view, tuple(View)))
        if view not in self.views and self.views:
            raise StateError(too_large(self.whole(view), self.graph))
        return view

    def checked_frames(self, view: str, collapsed: Collection[str]) -> list[str]:
        """Return the names of frames, where they exist and folding them leaves something that can be laid out.

        Raises:
            StateError: they do not.
        """
        known = tuple(sorted({cluster.id for name in View for cluster in self.whole(name).clusters}))
        for name in collapsed:
            if name not in known:
                raise StateError(choice_message("frame", name, known, owner=self.graph.kernel.name))
        diagram = collapse(self.whole(view), frozenset(collapsed))
        if len(diagram.nodes) > BOXES_AT_MOST and self._fits(self.whole(view)):
            raise StateError(too_large(diagram, self.graph))
        return sorted(set(collapsed))

    def checked_start(self, view: str, start: str) -> str:
        """Return the argument, box or frame that a slice starts from, "" for none.

        Raises:
            StateError: the graph has no such argument and the view no such box or frame.
        """
        if start:
            try:
                start_slice(self.graph, self.whole(view), start, self.effects)
            except UsageError as error:
                raise StateError(error.message) from error
        return start
