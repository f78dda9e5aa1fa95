"""The pictures of one graph: each view with any frames folded, drawn once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple

import traitlets

from kernellab.errors import UsageError, choice_message
from kernellab.ir.effects import Effects
from kernellab.ir.graph import Graph
from kernellab.views.diagram import Diagram, Node
from kernellab.views.folding import ancestors, fitting, folded
from kernellab.views.graph import (
    BOXES_AT_MOST,
    OPERATIONS_AT_MOST,
    View,
    default_view,
    picture,
    too_large,
    whole_diagram,
)
from kernellab.views.slicing import Direction, nodes_of_slice, start_slice
from kernellab.workers.forks import cached_property

Folded = frozenset[str]
_KEPT = 64  # pictures, of some 100 kB each


class StateError(UsageError, traitlets.TraitError):
    """A state that a view cannot take: it keeps the one it has."""


class Picture(NamedTuple):
    """A diagram as it shows, some frames folded, and its SVG."""

    diagram: Diagram
    svg: str


class GraphPictures:
    """Draws one graph. ``style`` gives the CSS classes of a box; ``text`` lines of the kernel's file."""

    def __init__(
        self,
        graph: Graph,
        effects: Effects | None,
        text: Mapping[int, str] | None = None,
        style: Callable[[Node], str] = lambda node: "",
    ) -> None:
        self.graph = graph
        self.effects = effects
        self.style = style
        self._text = text
        self._whole: dict[str, Diagram] = {}
        self._drawn: dict[tuple[str, Folded], Picture] = {}

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
        return len(folded(diagram, fitting(diagram, BOXES_AT_MOST)).nodes) <= BOXES_AT_MOST

    def whole(self, view: str) -> Diagram:
        """Return a view with nothing folded."""
        if view not in self._whole:
            self._whole[view] = whole_diagram(self.graph, self.effects, view=view, text=self._text)
        return self._whole[view]

    def collapsed_at_first(self, view: str) -> list[str]:
        """Return the frames of a view that are folded at first, so that some 150 boxes are left."""
        return sorted(fitting(self.whole(view), OPERATIONS_AT_MOST))

    def drawn(self, view: str, collapsed: Collection[str]) -> Picture:
        """Return a view with frames folded, from memory where it was drawn before."""
        key = (view, frozenset(collapsed))
        if key not in self._drawn:
            if len(self._drawn) >= _KEPT:
                del self._drawn[next(iter(self._drawn))]
            diagram = folded(self.whole(view), key[1])
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
        where = {name: around for name, _, around in self.index(view)}
        hidden = frozenset(collapsed)
        return sorted({next((each for each in where[name] if each in hidden), name) for name in inside})

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
        known = tuple(sorted({cluster.id for each in View for cluster in self.whole(each).clusters}))
        for name in collapsed:
            if name not in known:
                raise StateError(choice_message("frame", name, known, owner=self.graph.kernel.name))
        diagram = folded(self.whole(view), frozenset(collapsed))
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
