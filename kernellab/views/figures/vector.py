"""The inline SVG of the lab as matplotlib figures: graphs and tiles, in the colours of a theme."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from kernellab.views.figures.canvas import new_figure
from kernellab.views.figures.raster import Color, Painter, Point, view_box
from kernellab.views.palette import Theme, tones

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
