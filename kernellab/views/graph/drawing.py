"""The one way from a diagram to SVG: a layout, then a drawing; without a layout, an indented list.

In the SVG everything is said in presentation attributes, so the picture survives sanitizers that drop style sheets.
Text takes the colour of its surroundings (``currentColor``); fills are translucent and strokes of medium lightness,
which read on white and on black alike. Nothing has an id, so any number of pictures fit on one page. What scripts link
is marked by ``data-`` attributes: the id of a box or frame, the ends of an arrow, the source line of a box.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from html import escape

from kernellab.errors import plural
from kernellab.views.elements import MARKS
from kernellab.views.graph.diagram import (
    CHARACTER_EM,
    DETAIL_PX,
    ENGINES,
    LINE_EM,
    MISSING,
    PADDING_PX,
    TITLE_PX,
    ArrowKind,
    BoxKind,
    Diagram,
    Edge,
    Engine,
    GraphPositions,
    Node,
    Point,
    box_size,
    lay_out,
    to_dot,
)
from kernellab.views.palette import ATOMIC, BAD, GREEN, GREY, READ, WRITE

BOXES_AT_MOST = 500  # beyond some thousand boxes a layout takes minutes, and cannot be read
FONT = "DejaVu Sans Mono,Menlo,Consolas,monospace"
_MARGIN_PX = 6.0
# A document of its own brings its own background; inside a page the page decides.
_ALONE = "<style>svg:root{color-scheme:light dark;color:CanvasText;background:Canvas}</style>"


@dataclass(frozen=True, slots=True)
class _Box:
    """How a kind of box is drawn."""

    color: str
    fill: str = ".2"
    stroke: str = "1.6"
    is_strong: bool = True
    is_dashed: bool = False


_BOXES = {
    BoxKind.ARGUMENT: _Box(GREEN),
    BoxKind.SCALAR: _Box(GREY, ".1", "1", is_strong=False, is_dashed=True),
    BoxKind.COMPUTE: _Box(GREY, ".1", "1", is_strong=False),
    BoxKind.CONTROL: _Box(GREY, ".1", "1", is_strong=False, is_dashed=True),
    BoxKind.READ: _Box(READ),
    BoxKind.WRITE: _Box(WRITE),
    BoxKind.ATOMIC: _Box(ATOMIC),
    BoxKind.UNKNOWN: _Box(BAD),
    BoxKind.KERNEL: _Box(READ, ".34"),
    BoxKind.TENSOR: _Box(GREY, is_strong=False),
    BoxKind.OUTPUT: _Box(WRITE),
}


@dataclass(frozen=True, slots=True)
class _Arrow:
    color: str
    opacity: str
    dashes: str = ""
    width: str = "1.1"


_ARROWS = {
    ArrowKind.VALUE: _Arrow(GREY, ".95"),
    ArrowKind.ADDRESS: _Arrow(GREEN, ".75"),
    ArrowKind.MASK: _Arrow(GREY, ".55", "1.5 2.5"),
    ArrowKind.CONTROL: _Arrow(GREY, ".5", "1 3"),
    ArrowKind.CHANGE: _Arrow(WRITE, "1", "5 3", "1.5"),
}
_BACK = _Arrow(GREY, ".8", "5 3")


def picture(diagram: Diagram, classes: Mapping[str, str] | None = None, engines: tuple[Engine, ...] = ENGINES) -> str:
    """Return a diagram laid out and drawn, with CSS ``classes`` on the outlines of boxes by their ids.

    Where there are more boxes than can be laid out, or no engine works, it is a list, which says so.
    """
    if len(diagram.nodes) > BOXES_AT_MOST:
        return draw_tree(diagram)
    layout = lay_out(to_dot(diagram), engines)
    return draw_tree(diagram, MISSING) if layout is None else draw(diagram, layout, classes)


def draw(diagram: Diagram, layout: GraphPositions, classes: Mapping[str, str] | None = None) -> str:
    """Return the SVG element, with tooltips on boxes and arrows, and CSS ``classes`` on outlines by boxes' ids."""
    boxes = [node for node in diagram.nodes if node.id in layout.nodes]
    body = [
        *_frames(diagram, layout),
        *_arrows(diagram, layout),
        f'<g text-anchor="middle" font-size="{TITLE_PX:g}" fill="currentColor">',
        *(_box(node, layout.nodes[node.id], (classes or {}).get(node.id, "")) for node in boxes),
        "</g>",
    ]
    return svg_element(diagram.title, describe(diagram), layout.width, layout.height, body)


def svg_element(title: str, description: str, width: float, height: float, body: list[str]) -> str:
    """Return an ``<svg>`` in pixels, with a title and a description for screen readers."""
    total_width, total_height = math.ceil(width + 2 * _MARGIN_PX), math.ceil(height + 2 * _MARGIN_PX)
    box = f"{-_MARGIN_PX:g} {-_MARGIN_PX:g} {total_width} {total_height}"
    head = (
        f'xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{escape(title)}" width="{total_width}" '
        f'height="{total_height}" viewBox="{box}" font-family="{FONT}"'
    )
    words = f"<title>{escape(title)}</title><desc>{escape(description)}</desc>"
    return "\n".join([f"<svg {head}>", words + _ALONE, *body, "</svg>"])


def describe(diagram: Diagram) -> str:
    """Describe a picture in a sentence."""
    counts = {kind: [node.lines[0] for node in diagram.nodes if node.kind is kind] for kind in BoxKind}
    parts = [f"{len(diagram.nodes)} boxes and {len(diagram.edges)} arrows"]
    if counts[BoxKind.ARGUMENT]:
        parts.append("arguments: " + ", ".join(counts[BoxKind.ARGUMENT]))
    for kind, words in ((BoxKind.READ, "loads"), (BoxKind.WRITE, "stores"), (BoxKind.ATOMIC, "atomics")):
        if counts[kind]:
            parts.append(f"{len(counts[kind])} {words}")
    if counts[BoxKind.KERNEL]:
        parts.append(f"{plural(len(counts[BoxKind.KERNEL]), 'launch')}: {', '.join(counts[BoxKind.KERNEL])}")
    return "; ".join(parts) + "."


def _frames(diagram: Diagram, layout: GraphPositions) -> Iterator[str]:
    for cluster in diagram.clusters:
        if cluster.id not in layout.clusters:
            continue
        left, top, right, bottom = layout.clusters[cluster.id]
        yield (
            f'<g data-frame="{cluster.id}">'
            f'<rect x="{_n(left)}" y="{_n(top)}" width="{_n(right - left)}" height="{_n(bottom - top)}" rx="6" '
            f'fill="{GREY}" fill-opacity=".07" stroke="{GREY}" stroke-opacity=".45"/>'
            f'<text x="{_n(left + 8)}" y="{_n(top + 14)}" font-size="{DETAIL_PX:g}" fill="currentColor" '
            f'fill-opacity=".65">{escape(cluster.label)}</text></g>'
        )


def _arrows(diagram: Diagram, layout: GraphPositions) -> Iterator[str]:
    """Yield the arrows in a group for each style; one to a tensor goes on through its name, without a tip."""
    tensors = {node.id for node in diagram.nodes if node.kind is BoxKind.TENSOR}
    groups: dict[_Arrow, list[str]] = {}
    for index, edge in enumerate(diagram.edges):
        points = layout.edges.get(f"e{index}", ())
        if len(points) > 4:
            style = _BACK if edge.back else _ARROWS[edge.flow]
            groups.setdefault(style, []).append(_arrow(edge, points, has_tip=edge.head not in tensors))
    for style, arrows in groups.items():
        dashes = f' stroke-dasharray="{style.dashes}"' if style.dashes else ""
        look = f'stroke="{style.color}" stroke-width="{style.width}" opacity="{style.opacity}"{dashes}'
        yield "\n".join([f'<g fill="{style.color}" {look}>', *arrows, "</g>"])


def _arrow(edge: Edge, points: tuple[Point, ...], *, has_tip: bool) -> str:
    (x0, y0), *rest = points[:-1]
    (bx, by), (tx, ty) = points[-2:]
    curve = f"M{_n(x0)} {_n(y0)}C" + " ".join(f"{_n(x)} {_n(y)}" for x, y in rest)
    title = f"<title>{escape(edge.tip)}</title>" if edge.tip else ""
    start = f'<g data-edge="{edge.tail} {edge.head}">{title}<path fill="none" d="{curve}'
    if not has_tip:
        return f'{start}L{_n(tx)} {_n(ty)}"/></g>'
    side_x, side_y = (ty - by) * 0.45, (bx - tx) * 0.45
    tip = f"M{_n(tx)} {_n(ty)}L{_n(bx + side_x)} {_n(by + side_y)} {_n(bx - side_x)} {_n(by - side_y)}Z"
    return f'{start}"/><path stroke="none" d="{tip}"/></g>'


def _box(node: Node, center: Point, css_class: str) -> str:
    x, y = center
    width, height = box_size(node)
    marked = f' class="{css_class}"' if css_class else ""
    style, outline = _BOXES[node.kind], ""
    if node.unsure:  # it touches memory that no argument names
        style = replace(style, color=_BOXES[BoxKind.UNKNOWN].color, is_dashed=True)
    if node.kind is not BoxKind.TENSOR:
        dash = ' stroke-dasharray="4 2"' if style.is_dashed else ""
        outline = (
            f'<path{marked} d="{_outline(node.kind, x, y, width / 2, height / 2)}" fill="{style.color}" '
            f'fill-opacity="{style.fill}" stroke="{style.color}" stroke-width="{style.stroke}"{dash}/>'
        )
    if node.folds:  # the edges of a pile
        pile = "".join(f"M{_n(x - width / 2 + gap)} {_n(y + height / 2 + gap)}h{_n(width)}" for gap in (3, 6))
        outline += f'<path d="{pile}" stroke="{style.color}" stroke-opacity=".7"/>'
    facts = {"line": node.source_line, "file": node.file, "folds": node.folds}
    data = "".join(f' data-{name}="{escape(str(value))}"' for name, value in facts.items() if value)
    text = _text(node, x, y, height)
    return f'<g data-node="{node.id}"{marked}{data}><title>{escape(node.tip)}</title>{outline}{text}</g>'


def _text(node: Node, x: float, y: float, height: float) -> str:
    title, *details = node.lines
    style = _BOXES[node.kind]
    baseline = y - height / 2 + PADDING_PX[node.kind][1] / 2 + TITLE_PX
    weight = ' font-weight="600"' if style.is_strong else ""
    parts = [f'<text x="{_n(x)}" y="{_n(baseline)}"{weight}>{escape(title)}</text>']
    for detail in details:
        baseline += DETAIL_PX * LINE_EM
        parts.append(
            f'<text x="{_n(x)}" y="{_n(baseline)}" font-size="{DETAIL_PX:g}" fill-opacity=".72">{escape(detail)}</text>'
        )
    return "".join(parts)


def _outline(kind: BoxKind, x: float, y: float, w: float, h: float) -> str:
    """Return the path of a shape: pills are arguments, funnels load, feet store, hexagons are atomic."""
    slant = 9.0
    if kind is BoxKind.READ:
        return _polygon((x - w, y - h), (x + w, y - h), (x + w - slant, y + h), (x - w + slant, y + h))
    if kind is BoxKind.WRITE:
        return _polygon((x - w + slant, y - h), (x + w - slant, y - h), (x + w, y + h), (x - w, y + h))
    if kind is BoxKind.ATOMIC:
        top, bottom = (x - w + slant, x + w - slant), (x + w - slant, x - w + slant)
        return _polygon(*((at, y - h) for at in top), (x + w, y), *((at, y + h) for at in bottom), (x - w, y))
    radius = h if kind in (BoxKind.ARGUMENT, BoxKind.SCALAR, BoxKind.OUTPUT) else 4.0
    return _rounded_rectangle(x - w, y - h, 2 * w, 2 * h, 0.0 if kind is BoxKind.UNKNOWN else radius)


def _polygon(*corners: Point) -> str:
    return "M" + "L".join(f"{_n(x)} {_n(y)}" for x, y in corners) + "Z"


def _rounded_rectangle(left: float, top: float, width: float, height: float, radius: float) -> str:
    r, across, down = _n(radius), _n(width - 2 * radius), _n(height - 2 * radius)
    return (
        f"M{_n(left + radius)} {_n(top)}h{across}a{r} {r} 0 0 1 {r} {r}v{down}a{r} {r} 0 0 1 -{r} {r}"
        f"h-{across}a{r} {r} 0 0 1 -{r} -{r}v-{down}a{r} {r} 0 0 1 {r} -{r}Z"
    )


def _n(number: float) -> str:
    """Return a coordinate with at most one decimal, so that the file stays small and the same everywhere."""
    return f"{number:.1f}".removesuffix(".0")


_ROW_PX = 16.0
_INDENT_PX = 24.0
_MARKS = {BoxKind(kind.value): mark for kind, mark in MARKS.items()}
_MARKS |= {BoxKind.ARGUMENT: "○", BoxKind.UNKNOWN: "?", BoxKind.CONTROL: "↻"}


def _tree(diagram: Diagram) -> Iterator[tuple[int, str, Node]]:
    """Yield, per box, its depth in frames, its words with the boxes that its values come from, and itself."""
    names = {node.id: node.lines[0].partition("  ")[0] for node in diagram.nodes}
    inputs = defaultdict(list)
    for edge in diagram.edges:
        inputs[edge.head].append(names[edge.tail])
    depths: dict[str | None, int] = {None: 0}
    for cluster in diagram.clusters:
        depths[cluster.id] = depths[cluster.parent] + 1
    for node in diagram.nodes:
        source = f"  ← {', '.join(dict.fromkeys(inputs[node.id]))}" if inputs[node.id] else ""
        text = f"{_MARKS.get(node.kind, '·')} {'  '.join(node.lines)}{source}"
        yield depths[node.cluster], text, node


def tree_text(diagram: Diagram) -> str:
    """Return the list as text."""
    return "\n".join("    " * depth + text for depth, text, _ in _tree(diagram))


def draw_tree(diagram: Diagram, why: str = "") -> str:
    """Return the list as SVG, so that it can stand wherever the picture would; ``why`` says below it why it does."""
    rows = list(_tree(diagram))
    body = [f'<g font-size="{TITLE_PX:g}" fill="currentColor">']
    for index, (depth, text, node) in enumerate(rows, start=1):
        color = "currentColor" if node.kind in (BoxKind.COMPUTE, BoxKind.CONTROL) else _BOXES[node.kind].color
        place = f'x="{depth * _INDENT_PX:g}" y="{index * _ROW_PX:g}"'
        body.append(f'<text {place} fill="{color}"><title>{escape(node.tip)}</title>{escape(text)}</text>')
    widths = [depth * _INDENT_PX + len(text) * TITLE_PX * CHARACTER_EM for depth, text, _ in rows]
    height = (len(rows) + 1) * _ROW_PX
    if why:
        body.append(f'<text x="0" y="{height:g}" font-style="italic">{escape(why)}</text>')
        widths.append(len(why) * TITLE_PX * CHARACTER_EM)
        height += _ROW_PX
    return svg_element(diagram.title, describe(diagram), max(widths, default=100.0), height, [*body, "</g>"])
