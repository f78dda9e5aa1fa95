"""A diagram as an indented list, for machines without a layout engine."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from html import escape

from kernellab.views.diagram import Diagram, Kind, Node
from kernellab.views.dot import CHARACTER_EM, TITLE_PX
from kernellab.views.drawing import COLORS, describe, svg_element

_ROW_PX = 16.0
_INDENT_PX = 24.0
_MARKS = {Kind.ARGUMENT: "○", Kind.READ: "▽", Kind.WRITE: "△", Kind.ATOMIC: "⬡", Kind.UNKNOWN: "?", Kind.CONTROL: "↻"}


@dataclass(frozen=True, slots=True)
class Row:
    """A box as a line of text at a depth of frames."""

    depth: int
    text: str
    node: Node


def tree_rows(diagram: Diagram) -> list[Row]:
    """Return a row per box with the boxes that it gets its values from, source lines by their numbers."""
    names = {node.id: node.lines[0].partition("  ")[0] for node in diagram.nodes}
    inputs = defaultdict(list)
    for edge in diagram.edges:
        inputs[edge.head].append(names[edge.tail])
    depths: dict[str | None, int] = {None: 0}
    for cluster in diagram.clusters:
        depths[cluster.id] = depths[cluster.parent] + 1
    rows = []
    for node in diagram.nodes:
        source = f"  ← {', '.join(dict.fromkeys(inputs[node.id]))}" if inputs[node.id] else ""
        text = f"{_MARKS.get(node.kind, '·')} {'  '.join(node.lines)}{source}"
        rows.append(Row(depths[node.cluster], text, node))
    return rows


def tree_text(diagram: Diagram) -> str:
    """Return the list as text."""
    return "\n".join("    " * row.depth + row.text for row in tree_rows(diagram))


def draw_tree(diagram: Diagram) -> str:
    """Return the list as SVG, so that it can stand wherever the picture would."""
    rows = tree_rows(diagram)
    body = [f'<g font-size="{TITLE_PX:g}" fill="currentColor">']
    for index, row in enumerate(rows, start=1):
        color = "currentColor" if row.node.kind in (Kind.COMPUTE, Kind.CONTROL) else COLORS[row.node.kind]
        place = f'x="{row.depth * _INDENT_PX:g}" y="{index * _ROW_PX:g}"'
        body.append(f'<text {place} fill="{color}"><title>{escape(row.node.tip)}</title>{escape(row.text)}</text>')
    width = max((row.depth * _INDENT_PX + len(row.text) * TITLE_PX * CHARACTER_EM for row in rows), default=100.0)
    return svg_element(diagram.title, describe(diagram), width, (len(rows) + 1) * _ROW_PX, [*body, "</g>"])
