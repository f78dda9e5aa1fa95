"""The picture of a program as SVG: kernels filled, tensors as text on the arrows, changes dashed.

As in the other pictures, all is said in attributes, and the colours read on white and on black.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from kernellab.views.dot import CHARACTER_EM, DETAIL_PX, LINE_EM, TITLE_PX
from kernellab.views.drawing import svg_element
from kernellab.views.graphviz import Layout, Point, lay_out
from kernellab.views.program_diagram import Arrow, Box, Picture, Role

_COLORS = {
    Role.INPUT: "#0f9d75",
    Role.OUTPUT: "#e06c12",
    Role.KERNEL: "#2b83dc",
    Role.OPERATION: "#8a8f98",
    Role.TENSOR: "#8a8f98",
}
_FILLS = {Role.INPUT: ".16", Role.OUTPUT: ".16", Role.KERNEL: ".34", Role.OPERATION: ".12", Role.TENSOR: "0"}
_PLAIN, _CHANGE = "#80868f", "#e06c12"
_POINTS_PER_INCH = 72.0


def picture_svg(picture: Picture, title: str) -> str | None:
    """Return the picture as one ``<svg>`` element, or None where no layout engine works."""
    layout = lay_out(_dot(picture))
    if layout is None:
        return None
    roles = {box.id: box.role for box in picture.boxes}
    body = [
        *_arrows(picture, layout, roles),
        f'<g text-anchor="middle" font-size="{TITLE_PX:g}" fill="currentColor">',
        *(_box(box, layout.nodes[box.id]) for box in picture.boxes if box.id in layout.nodes),
        "</g>",
    ]
    kernels = [box.lines[0] for box in picture.boxes if box.role is Role.KERNEL]
    description = f"{len(kernels)} launches: {', '.join(kernels)}."
    return svg_element(title, description, layout.width, layout.height, body)


def _size(box: Box) -> tuple[float, float]:
    title, *details = box.lines
    text = max([len(title) * TITLE_PX, *(len(line) * DETAIL_PX for line in details)]) * CHARACTER_EM
    padding = {Role.TENSOR: (8.0, 2.0), Role.KERNEL: (24.0, 11.0)}.get(box.role, (20.0, 8.0))
    return text + padding[0], TITLE_PX * LINE_EM + len(details) * DETAIL_PX * LINE_EM + padding[1]


def _dot(picture: Picture) -> str:
    lines = ["digraph program {", "newrank=true; ranksep=.24; nodesep=.22;"]
    lines += ['node [shape=box,fixedsize=true,label=""];', "edge [arrowsize=.5];"]
    for box in picture.boxes:
        width, height = _size(box)
        lines.append(f'"{box.id}" [width={width / _POINTS_PER_INCH:.3f},height={height / _POINTS_PER_INCH:.3f}];')
    inputs = [box.id for box in picture.boxes if box.role is Role.INPUT]
    if picture.is_contracted and inputs:
        lines.append("{rank=source; " + " ".join(f'"{box}";' for box in inputs) + "}")
    lines += [f'"{a.tail}" -> "{a.head}" [id="e{i}"];' for i, a in enumerate(picture.arrows)]
    return "\n".join([*lines, "}"])


def _arrows(picture: Picture, layout: Layout, roles: dict[str, Role]) -> Iterator[str]:
    for index, arrow in enumerate(picture.arrows):
        points = layout.edges.get(f"e{index}", ())
        if len(points) > 4:
            yield _arrow(arrow, points, has_tip=roles[arrow.head] is not Role.TENSOR)


def _arrow(arrow: Arrow, points: tuple[Point, ...], *, has_tip: bool) -> str:
    """Return an arrow; one that leads to a tensor goes on through its name, and has no tip there."""
    (x0, y0), *rest = points[:-1]
    (bx, by), (tx, ty) = points[-2:]
    curve = f"M{_n(x0)} {_n(y0)}C" + " ".join(f"{_n(x)} {_n(y)}" for x, y in rest)
    color = _CHANGE if arrow.changes else _PLAIN
    dashes = ' stroke-dasharray="5 3"' if arrow.changes else ""
    line = f'<path fill="none" stroke="{color}" stroke-width="{1.5 if arrow.changes else 1.1}"{dashes} d="{curve}'
    if not has_tip:
        return f'{line}L{_n(tx)} {_n(ty)}"/>'
    side_x, side_y = (ty - by) * 0.45, (bx - tx) * 0.45
    tip = f"M{_n(tx)} {_n(ty)}L{_n(bx + side_x)} {_n(by + side_y)} {_n(bx - side_x)} {_n(by - side_y)}Z"
    return f'{line}"/><path fill="{color}" d="{tip}"/>'


def _box(box: Box, center: Point) -> str:
    (x, y), (width, height) = center, _size(box)
    color = _COLORS[box.role]
    outline = ""
    if box.role is not Role.TENSOR:
        radius = height / 2 if box.role in (Role.INPUT, Role.OUTPUT) else 5.0
        outline = (
            f'<rect x="{_n(x - width / 2)}" y="{_n(y - height / 2)}" width="{_n(width)}" height="{_n(height)}" '
            f'rx="{_n(radius)}" fill="{color}" fill-opacity="{_FILLS[box.role]}" stroke="{color}" '
            f'stroke-width="{1.6 if box.role is Role.KERNEL else 1.2}"/>'
        )
    title, *details = box.lines
    baseline = y - (TITLE_PX * LINE_EM + len(details) * DETAIL_PX * LINE_EM) / 2 + TITLE_PX
    weight = ' font-weight="600"' if box.role in (Role.KERNEL, Role.INPUT, Role.OUTPUT) else ""
    parts = [f'<text x="{_n(x)}" y="{_n(baseline)}"{weight}>{escape(title)}</text>']
    for detail in details:
        baseline += DETAIL_PX * LINE_EM
        parts.append(
            f'<text x="{_n(x)}" y="{_n(baseline)}" font-size="{DETAIL_PX:g}" fill-opacity=".72">{escape(detail)}</text>'
        )
    return f'<g data-box="{box.id}"><title>{escape(box.tip)}</title>{outline}{"".join(parts)}</g>'


def _n(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")
