"""Figures of diagrams: the dataflow of a kernel, the tiles of its layouts."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from kernellab.compile.types import Compiled
from kernellab.ir.effects import Effects
from kernellab.ir.graph import Graph
from kernellab.ir.layouts import Layouts
from kernellab.views.elements import shorten
from kernellab.views.figures.canvas import sentences_figure, theme_of
from kernellab.views.figures.vector import svg_figure
from kernellab.views.graph import View, svg
from kernellab.views.layouts import most_interesting, tile_maps, tile_svg, type_words

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TITLE = 110


def dataflow_figure(
    graph: Graph,
    effects: Effects | None = None,
    *,
    view: View | str | None = None,
    argument: str | None = None,
    collapsed: Collection[str] | None = None,
    text: Mapping[int, str] | None = None,
    dark: bool = False,
) -> Figure:
    """Draw the dataflow of a kernel; the options are those of `kernellab.views.graph.svg`."""
    picture = svg(graph, effects, view=view, argument=argument, collapsed=collapsed, text=text)
    return svg_figure([(picture, "")], theme_of(dark))


def compiled_dataflow_figure(
    compiled: Compiled,
    *,
    view: View | str | None = None,
    argument: str | None = None,
    collapsed: Collection[str] | None = None,
    text: Mapping[int, str] | None = None,
    dark: bool = False,
) -> Figure:
    """Draw the dataflow of a compiled kernel, with the names of arguments at loads and stores."""
    options = {"view": view, "argument": argument, "collapsed": collapsed, "text": text}
    return dataflow_figure(compiled.graph, compiled.effects, **options, dark=dark)  # type: ignore[arg-type]


def tiles_figure(layouts: Layouts, *, value: str | None = None, dark: bool = False) -> Figure:
    """Draw who holds each element of a value: by warp, lane and register, or by bank of memory.

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
