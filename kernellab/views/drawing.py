"""A diagram with a layout becomes SVG.

Everything is said in presentation attributes, so the picture survives sanitizers that drop style sheets. Text takes
the colour of its surroundings (``currentColor``); fills are translucent and strokes of medium lightness, which read on
white and on black alike. Nothing has an id, so any number of pictures fit on one page. What scripts link is told by
``data-`` attributes: the id of a box or frame, the ends of an arrow, the source line of a box.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from html import escape

from kernellab.views.diagram import Diagram, Edge, Flow, Kind, Node
from kernellab.views.dot import DETAIL_PX, LINE_EM, TITLE_PX, box_size
from kernellab.views.graphviz import Layout, Point

FONT = "DejaVu Sans Mono,Menlo,Consolas,monospace"
COLORS = {
    Kind.ARGUMENT: "#0f9d75",
    Kind.SCALAR: "#8a8f98",
    Kind.COMPUTE: "#8a8f98",
    Kind.CONTROL: "#8a8f98",
    Kind.READ: "#2b83dc",
    Kind.WRITE: "#e06c12",
    Kind.ATOMIC: "#a855e8",
    Kind.UNKNOWN: "#e03e4a",
}
_ADDRESS, _PLAIN = "#0f9d75", "#80868f"
_FLOW_STYLES = {
    Flow.VALUE: (_PLAIN, ".95", ""),
    Flow.ADDRESS: (_ADDRESS, ".75", ""),
    Flow.MASK: (_PLAIN, ".55", "1.5 2.5"),
    Flow.CONTROL: (_PLAIN, ".5", "1 3"),
}
_BACK_STYLE = (_PLAIN, ".8", "5 3")
_MARGIN_PX = 6.0
# A document of its own brings its own background; inside a page the page decides.
_ALONE = "<style>svg:root{color-scheme:light dark;color:CanvasText;background:Canvas}</style>"


def draw(diagram: Diagram, layout: Layout, classes: Mapping[str, str] | None = None) -> str:
    """Return the SVG element, with tooltips on boxes and arrows, and CSS ``classes`` on outlines by boxes' ids."""
    styles = classes or {}
    body = [
        *_frames(diagram, layout),
        *_arrows(diagram, layout),
        f'<g text-anchor="middle" font-size="{TITLE_PX:g}" fill="currentColor">',
        *(
            _box(node, layout.nodes[node.id], styles.get(node.id, ""))
            for node in diagram.nodes
            if node.id in layout.nodes
        ),
        "</g>",
    ]
    return svg_element(diagram.title, describe(diagram), layout.width, layout.height, body)


def svg_element(title: str, description: str, width: float, height: float, body: list[str]) -> str:
    """Return an ``<svg>`` of a size in pixels, with a title and a description for those who cannot see it."""
    total_width, total_height = math.ceil(width + 2 * _MARGIN_PX), math.ceil(height + 2 * _MARGIN_PX)
    box = f"{-_MARGIN_PX:g} {-_MARGIN_PX:g} {total_width} {total_height}"
    attributes = {
        "xmlns": "http://www.w3.org/2000/svg",
        "role": "img",
        "aria-label": title,
        "width": total_width,
        "height": total_height,
        "viewBox": box,
        "font-family": FONT,
    }
    head = " ".join(f'{name}="{escape(str(value))}"' for name, value in attributes.items())
    words = f"<title>{escape(title)}</title><desc>{escape(description)}</desc>"
    return "\n".join([f"<svg {head}>", words + _ALONE, *body, "</svg>"])


def describe(diagram: Diagram) -> str:
    """Return what the picture shows, in a sentence."""
    counts = {kind: [node.lines[0] for node in diagram.nodes if node.kind is kind] for kind in Kind}
    parts = [f"{len(diagram.nodes)} boxes and {len(diagram.edges)} arrows"]
    if counts[Kind.ARGUMENT]:
        parts.append("arguments: " + ", ".join(counts[Kind.ARGUMENT]))
    for kind, words in ((Kind.READ, "loads"), (Kind.WRITE, "stores"), (Kind.ATOMIC, "atomics")):
        if counts[kind]:
            parts.append(f"{len(counts[kind])} {words}")
    return "; ".join(parts) + "."


def _frames(diagram: Diagram, layout: Layout) -> Iterator[str]:
    for cluster in diagram.clusters:
        if cluster.id not in layout.clusters:
            continue
        left, top, right, bottom = layout.clusters[cluster.id]
        yield (
            f'<g data-frame="{cluster.id}">'
            f'<rect x="{_n(left)}" y="{_n(top)}" width="{_n(right - left)}" height="{_n(bottom - top)}" rx="6" '
            'fill="#8a8f98" fill-opacity=".07" stroke="#8a8f98" stroke-opacity=".45"/>'
            f'<text x="{_n(left + 8)}" y="{_n(top + 14)}" font-size="{DETAIL_PX:g}" fill="currentColor" '
            f'fill-opacity=".65">{escape(cluster.label)}</text></g>'
        )


def _arrows(diagram: Diagram, layout: Layout) -> Iterator[str]:
    """Yield the arrows in a group for each style."""
    groups: dict[tuple[str, str, str], list[str]] = {}
    for index, edge in enumerate(diagram.edges):
        points = layout.edges.get(f"e{index}", ())
        if len(points) > 4:
            groups.setdefault(_BACK_STYLE if edge.back else _FLOW_STYLES[edge.flow], []).append(_arrow(edge, points))
    for (color, opacity, dashes), arrows in groups.items():
        dashed = f' stroke-dasharray="{dashes}"' if dashes else ""
        yield f'<g fill="{color}" stroke="{color}" stroke-width="1.1" opacity="{opacity}"{dashed}>'
        yield from arrows
        yield "</g>"


def _arrow(edge: Edge, points: tuple[Point, ...]) -> str:
    (x0, y0), *rest = points[:-1]
    curve = f"M{_n(x0)} {_n(y0)}C" + " ".join(f"{_n(x)} {_n(y)}" for x, y in rest)
    (bx, by), (tx, ty) = points[-2:]
    side_x, side_y = (ty - by) * 0.45, (bx - tx) * 0.45
    tip = f"M{_n(tx)} {_n(ty)}L{_n(bx + side_x)} {_n(by + side_y)} {_n(bx - side_x)} {_n(by - side_y)}Z"
    title = f"<title>{escape(edge.tip)}</title>" if edge.tip else ""
    ends = f'data-edge="{edge.tail} {edge.head}"'
    return f'<g {ends}>{title}<path fill="none" d="{curve}"/><path stroke="none" d="{tip}"/></g>'


def _box(node: Node, center: Point, style: str) -> str:
    x, y = center
    width, height = box_size(node)
    color = COLORS[Kind.UNKNOWN if node.unsure else node.kind]
    strong = node.kind not in (Kind.COMPUTE, Kind.SCALAR, Kind.CONTROL)
    dash = ' stroke-dasharray="4 2"' if node.unsure or node.kind in (Kind.CONTROL, Kind.SCALAR) else ""
    marked = f' class="{style}"' if style else ""
    outline = (
        f'<path{marked} d="{_outline(node.kind, x, y, width / 2, height / 2)}" fill="{color}" '
        f'fill-opacity="{".2" if strong else ".1"}" stroke="{color}" stroke-width="{"1.6" if strong else "1"}"{dash}/>'
    )
    if node.folds:  # the edges of a pile
        pile = "".join(f"M{_n(x - width / 2 + gap)} {_n(y + height / 2 + gap)}h{_n(width)}" for gap in (3, 6))
        outline += f'<path d="{pile}" stroke="{color}" stroke-opacity=".7"/>'
    facts = {"line": node.source_line, "file": node.file, "folds": node.folds}
    data = "".join(f' data-{name}="{escape(str(value))}"' for name, value in facts.items() if value)
    text = _text(node, x, y, height)
    return f'<g data-node="{node.id}"{marked}{data}><title>{escape(node.tip)}</title>{outline}{text}</g>'


def _text(node: Node, x: float, y: float, height: float) -> str:
    title, *details = node.lines
    baseline = y - height / 2 + 4.5 + TITLE_PX
    weight = ' font-weight="600"' if node.kind not in (Kind.COMPUTE, Kind.SCALAR, Kind.CONTROL) else ""
    parts = [f'<text x="{_n(x)}" y="{_n(baseline)}"{weight}>{escape(title)}</text>']
    for detail in details:
        baseline += DETAIL_PX * LINE_EM
        parts.append(
            f'<text x="{_n(x)}" y="{_n(baseline)}" font-size="{DETAIL_PX:g}" fill-opacity=".72">{escape(detail)}</text>'
        )
    return "".join(parts)


def _outline(kind: Kind, x: float, y: float, w: float, h: float) -> str:
    """Return the path of a shape: pills are arguments, funnels load, feet store, hexagons are atomic."""
    slant = 9.0
    if kind is Kind.READ:
        return _polygon((x - w, y - h), (x + w, y - h), (x + w - slant, y + h), (x - w + slant, y + h))
    if kind is Kind.WRITE:
        return _polygon((x - w + slant, y - h), (x + w - slant, y - h), (x + w, y + h), (x - w, y + h))
    if kind is Kind.ATOMIC:
        return _polygon(
            (x - w + slant, y - h),
            (x + w - slant, y - h),
            (x + w, y),
            (x + w - slant, y + h),
            (x - w + slant, y + h),
            (x - w, y),
        )
    radius = h if kind in (Kind.ARGUMENT, Kind.SCALAR) else 0.0 if kind is Kind.UNKNOWN else 4.0
    return _rounded(x - w, y - h, 2 * w, 2 * h, radius)


def _polygon(*corners: Point) -> str:
    return "M" + "L".join(f"{_n(x)} {_n(y)}" for x, y in corners) + "Z"


def _rounded(left: float, top: float, width: float, height: float, radius: float) -> str:
    r, across, down = _n(radius), _n(width - 2 * radius), _n(height - 2 * radius)
    return (
        f"M{_n(left + radius)} {_n(top)}h{across}a{r} {r} 0 0 1 {r} {r}v{down}a{r} {r} 0 0 1 -{r} {r}"
        f"h-{across}a{r} {r} 0 0 1 -{r} -{r}v-{down}a{r} {r} 0 0 1 {r} -{r}Z"
    )


def _n(number: float) -> str:
    """Return a coordinate with at most one decimal, so that the file stays small and the same everywhere."""
    return f"{number:.1f}".removesuffix(".0")
