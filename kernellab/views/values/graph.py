"""The dataflow graph of a kernel next to its values: boxes and values meet in the statements of the source."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import replace
from textwrap import dedent
from typing import NamedTuple

from kernellab.errors import UsageError
from kernellab.inside.values import Values
from kernellab.ir.effects import effects_of
from kernellab.ir.graph import Graph, Location, main_file, place_of, short_file
from kernellab.views.graph import GraphPictures
from kernellab.views.graph.diagram import Node


class Place(NamedTuple):
    """The first line of a statement; ``file`` is "" for the kernel's own file, else the last part of a path."""

    file: str
    line: int


class StatementPlaces:
    """The statements of a kernel and its helpers: each line of one stands for the first."""

    def __init__(self, values: Values) -> None:
        self._own = short_file(values.file)
        self._starts: dict[Place, int] = {}
        for file, first_line, text in values.texts:
            for line, start in _statement_starts(text, first_line).items():
                self._starts[Place(self._short(file), line)] = start

    def of(self, file: str | None, line: int) -> Place:
        """The place of a line, which may be a later one of its statement."""
        place = Place(self._short(file), line)
        return place._replace(line=self._starts.get(place, line))

    def _short(self, file: str | None) -> str:
        name = short_file(file)
        return "" if name == self._own else name


def _statement_starts(text: str, first_line: int) -> dict[int, int]:
    """The first line of the innermost statement around each line; of a block only its head belongs to it."""
    starts: dict[int, int] = {}
    for node in ast.walk(ast.parse(dedent(text))):
        if isinstance(node, ast.stmt):
            body: Sequence[ast.stmt] = getattr(node, "body", ())
            end = body[0].lineno - 1 if body else node.end_lineno or node.lineno
            for line in range(node.lineno, max(end, node.lineno) + 1):
                starts[first_line - 1 + line] = first_line - 1 + node.lineno
    return starts


def pictures_of(values: Values, places: StatementPlaces, rows: Mapping[Place, int]) -> GraphPictures:
    """The pictures of the graph of TTIR, each operation at the begin of its statement.

    ``rows`` number the statements of the source; a box gets the class of its row, see `box_class`.

    Raises:
        KernellabError: there is no graph, as where the kernel does not compile for the target.
    """
    if values.build_graph is None:
        raise UsageError(f"The values of {values.kernel} come without its graph.")
    graph = _by_statement(values.build_graph(), places)
    text = {values.first_line + at: line for at, line in enumerate(values.source.splitlines())}

    def style(node: Node) -> str:
        row = rows.get(Place(node.file or "", node.source_line or 0))
        return "" if row is None else box_class(row)

    return GraphPictures(graph, effects_of(graph), text, style)


def box_class(row: int) -> str:
    """The CSS class of the boxes that belong to a line of the source pane."""
    return f"kv-box{row}"


def _by_statement(graph: Graph, places: StatementPlaces) -> Graph:
    """A graph with its operations in the first lines of their statements."""
    home = main_file(graph)

    def first_line_of(location: Location) -> Location:
        place = place_of(location)
        if place.line is None:
            return location
        return replace(place, line=places.of(None if place.file == home else place.file, place.line).line)

    return replace(graph, operations=tuple(replace(op, location=first_line_of(op.location)) for op in graph.operations))
