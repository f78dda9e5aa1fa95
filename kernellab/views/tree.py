"""A diagram as an indented list, for machines without a layout engine."""

from __future__ import annotations

from collections import defaultdict
from html import escape

from kernellab.views.diagram import Diagram, Kind, Node
from kernellab.views.dot import CHARACTER_EM, TITLE_PX
from kernellab.views.drawing import COLORS, describe, svg_element

_ROW_PX = 16.0
_MARKS = {Kind.ARGUMENT: "○", Kind.READ: "▽", Kind.WRITE: "△", Kind.ATOMIC: "⬡", Kind.UNKNOWN: "?", Kind.CONTROL: "↻"}


def tree_lines(diagram: Diagram) -> list[tuple[str, Node | None]]:
    """Return a row per box, indented by frame, with the boxes that it gets its values from."""
    names = {node.id: node.lines[0] for node in diagram.nodes}
    inputs = defaultdict(list)
    for edge in diagram.edges:
        inputs[edge.head].append(names[edge.tail])
    depths: dict[str | None, int] = {None: 0}
    for cluster in diagram.clusters:
        depths[cluster.id] = depths[cluster.parent] + 1
    rows: list[tuple[str, Node | None]] = []
    for node in diagram.nodes:
        source = f"  ← {', '.join(inputs[node.id])}" if inputs[node.id] else ""
        mark = _MARKS.get(node.kind, "·")
        rows.append((f"{'    ' * depths[node.cluster]}{mark} {'  '.join(node.lines)}{source}", node))
    return rows


def draw_tree(diagram: Diagram) -> str:
    """Return the list as SVG, so that it can stand wherever the picture would."""
    rows = tree_lines(diagram)
    body = [f'<g font-size="{TITLE_PX:g}" fill="currentColor" xml:space="preserve">']
    for index, (row, node) in enumerate(rows):
        tip = f"<title>{escape(node.tip)}</title>" if node else ""
        color = COLORS[node.kind] if node and node.kind not in (Kind.COMPUTE, Kind.CONTROL) else "currentColor"
        body.append(f'<text y="{(index + 1) * _ROW_PX:g}" fill="{color}">{tip}{escape(row)}</text>')
    width = max((len(row) for row, _ in rows), default=10) * TITLE_PX * CHARACTER_EM
    return svg_element(diagram.title, describe(diagram), width, (len(rows) + 1) * _ROW_PX, [*body, "</g>"])
