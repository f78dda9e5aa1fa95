"""Figures of the inline SVG of the lab: the dataflow of a kernel, the tiles of its layouts."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from kernellab.compile.types import Compiled
from kernellab.ir.effects import Effects
from kernellab.ir.graph import Graph
from kernellab.ir.layouts import Layouts
from kernellab.views.elements import shorten
from kernellab.views.figures.canvas import new_figure, sentences_figure, theme_of
from kernellab.views.figures.raster import Color, Painter, Point, view_box
from kernellab.views.graph import View, svg
from kernellab.views.layouts import most_interesting, tile_maps, tile_svg, type_words
from kernellab.views.palette import Theme, tones

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_TITLE = 110


def dataflow_figure(
    subject: Graph | Compiled,
    effects: Effects | None = None,
    *,
    view: View | str | None = None,
    argument: str | None = None,
    collapsed: Collection[str] | None = None,
    text: Mapping[int, str] | None = None,
    dark: bool = False,
) -> Figure:
    """Draw the dataflow of a kernel; the options are those of `kernellab.views.graph.svg`.

    The effects of a compiled kernel name the arguments at loads and stores.
    """
    if isinstance(subject, Compiled):
        effects, subject = subject.effects if effects is None else effects, subject.graph
    picture = svg(subject, effects, view=view, argument=argument, collapsed=collapsed, text=text)
    return svg_figure([(picture, "")], theme_of(dark))


def tiles_figure(layouts: Layouts, *, value: str | None = None, dark: bool = False) -> Figure:
    """Draw the owner of each element of a value: its warp, lane and register, or its bank of memory.

    ``value`` is its name in TTGIR; by default, an operand or result of a product, if there is one.

    Raises:
        UsageError: there is no such value, or nothing defines its layout.
    """
    theme = theme_of(dark)
    if not layouts.values:
        title = f"{layouts.kernel} for {layouts.target}: no layouts"
        return sentences_figure(title, ["No value of its TTGIR has a layout."], theme)
    chosen = most_interesting(layouts) if value is None else layouts[value]
    pictures = []
    for tile in tile_maps(chosen.layout, chosen.element_bits):
        rows, columns = tile.block
        part = f", one cell = {rows} x {columns} elements" if rows * columns > 1 else ""
        pictures.append((tile_svg(tile), f"by {tile.unit}{part}"))
    line = "" if chosen.line is None else f", line {chosen.line}"
    title = f"{layouts.kernel}: {chosen.name}{line}, {type_words(chosen)}, {chosen.encoding.kind}"
    return svg_figure(pictures, theme, shorten(title, _TITLE))


_PX_PER_INCH = 96
_POINTS_PER_PX = 72 / _PX_PER_INCH
_WIDEST_IN, _TALLEST_IN = 30.0, 60.0
_GAP_PX, _CAPTION_PX = 24, 22


class _Axes:
    """A surface of matplotlib, in pixels from the upper left corner; ``shrink`` is the scale of the whole figure."""

    def __init__(self, axes: Axes, shrink: float) -> None:
        self._axes, self._points = axes, _POINTS_PER_PX * shrink

    def polygon(self, points: list[Point], color: Color) -> None:
        self._axes.fill(*zip(*points, strict=True), color=_share(color), linewidth=0)

    def line(self, points: list[Point], color: Color, width: float) -> None:
        style: dict[str, Any] = {"color": _share(color), "linewidth": width * self._points}
        self._axes.plot(*zip(*points, strict=True), **style, solid_capstyle="butt")

    def text(self, place: Point, words: str, color: Color, size: float, *, is_bold: bool, anchor: str) -> None:
        sides = {"middle": "center", "end": "right"}
        self._axes.text(
            *place,
            words,
            color=_share(color),
            fontsize=size * self._points,
            family="monospace",
            weight="bold" if is_bold else "normal",
            ha=sides.get(anchor, "left"),
            va="baseline",
            parse_math=False,
        )


def _share(color: Color) -> tuple[float, ...]:
    return tuple(tone / 255 for tone in color)


def svg_figure(pictures: Sequence[tuple[str, str]], theme: Theme, title: str = "") -> Figure:
    """Return pictures side by side, each an ``<svg>`` of ours with a caption above it, or "" for none."""
    roots = [(ElementTree.fromstring(svg), caption) for svg, caption in pictures]
    boxes = [view_box(root) for root, _ in roots]
    top = (_CAPTION_PX if any(caption for _, caption in roots) else 0) + (_CAPTION_PX + 8 if title else 0)
    width = sum(box[2] for box in boxes) + _GAP_PX * (len(boxes) - 1)
    height = max(box[3] for box in boxes) + top
    shrink = min(1.0, _WIDEST_IN * _PX_PER_INCH / width, _TALLEST_IN * _PX_PER_INCH / height)
    figure = new_figure(width * shrink / _PX_PER_INCH, height * shrink / _PX_PER_INCH, theme)
    figure.set_layout_engine("none")
    axes = figure.add_axes((0, 0, 1, 1), frameon=False, xlim=(0, width), ylim=(height, 0), xticks=[], yticks=[])
    axes.set_autoscale_on(False)
    surface, left = _Axes(axes, shrink), 0.0
    ink = tones(theme.text)
    if title:
        surface.text((8, 20), title, ink, 14, is_bold=True, anchor="start")
    for (root, caption), box in zip(roots, boxes, strict=True):
        if caption:
            surface.text((left + 8, top - 6), caption, ink, 11, is_bold=False, anchor="start")
        origin = (box[0] - left, box[1] - top)
        Painter(surface, 1.0, origin, theme.text, tones(theme.background)).paint(root)
        left += box[2] + _GAP_PX
    return figure
