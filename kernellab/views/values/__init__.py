"""The values of a launch next to its source: a static page that opens line by line, and the widget's pieces.

The page holds the first program, and of each line the last iteration. The widget asks for a tile when it is looked at.
"""

from __future__ import annotations

import base64
import io
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernellab.compile.argument_values import ArgumentValue
from kernellab.errors import KernellabError
from kernellab.inside.values import Values
from kernellab.launch.recorded_values import Program, RecordedValue, ValueKind
from kernellab.views.elements import code_line, file_text, group_by, minify, value_name
from kernellab.views.figures.canvas import value_text
from kernellab.views.graph import GraphPictures, View, graph_pane, graph_script
from kernellab.views.palette import GREY, MAGENTA, ORANGE, SCALE_COLOURS, fill_in, tones
from kernellab.views.values.graph import Place, StatementPlaces, box_class, pictures_of

_MINIATURE, _PICTURE = 24, 128  # the most rows and columns of a miniature, and of a picture on the static page
MOST_CELLS = 256  # the most rows and columns that the widget shows
_MOST_ROWS = 12
_MOST_READERS = 8
_MARKED = fill_in("stroke:$mark;stroke-width:3.5px")
_FIGURES = ("min", "max", "mean", "NaN", "inf", "masked")


def css() -> str:
    """The style sheet of the page and the widget."""
    return minify(fill_in(file_text(__package__, "values.css")))


def script() -> str:
    """The script of the widget, behind that of the graph."""
    return f"{graph_script()}\n{file_text(__package__, 'values.js')}"


@dataclass(frozen=True)
class Line:
    """A line of the kernel or of a helper, with the positions of its values in the first program."""

    file: str
    number: int
    text: str
    positions: tuple[int, ...]


@dataclass(frozen=True)
class ValuesPage:
    """The lines of a kernel with their values, drawn for a page and for the widget."""

    values: Values

    @cached_property
    def lines(self) -> tuple[Line, ...]:
        """The lines of the kernel, then those of its helpers that have values."""
        first = self.values.programs[0] if self.values.programs else (0, 0, 0)
        positions = defaultdict[tuple[str, int], list[int]](list)
        for position, value in enumerate(self.values.values):
            if value.program == first:
                positions[value.file or "", value.line].append(position)
        return tuple(
            Line(file, start + number, text, tuple(positions.get((file, start + number), ())))
            for place, (file, start, source) in enumerate(self.values.texts)
            for number, text in enumerate(source.rstrip("\n").splitlines())
            if place == 0 or any((file, start + number) in positions for number in range(source.count("\n") + 1))
        )

    def html(self) -> str:
        """The static page: source lines that open without a script, each with its values and a picture.

        The boxes of open lines are marked in the graph below.
        """
        lines, graph = "".join(map(self._line_details, self.lines)), self._still_graph()
        return f'<style>{css()}</style><div class="kv kv-still">{lines}{graph}</div>'

    def _still_graph(self) -> str:
        if isinstance(self.pictures, str):
            return f'<p class="kv-no-graph">{escape(self.pictures)}</p>'
        view = self.pictures.default
        drawn = self.pictures.draw(view, self.pictures.collapsed_at_first(view))
        rows = [row for row, line in enumerate(self.lines) if line.positions]
        boxes = {row: box_class(self._statement_rows[self._line_place(self.lines[row])]) for row in rows}
        marks = ",".join(f".kv-still:has(.kv-line{row}[open]) .{name}" for row, name in boxes.items())
        rule = f"<style>{marks}{{{_MARKED}}}</style>" if marks else ""
        return f"{rule}<details><summary>Dataflow graph</summary>{graph_pane(drawn.svg)}</details>"

    def widget_html(self) -> str:
        """The source on the left, with a button for each name, and the pane of a tile on the right."""
        rows = "".join(self._row(line) for line in self.lines)
        pane = (
            '<div class="kv-pane"><div class="kv-bar"></div><div class="kv-facts"></div><canvas tabindex="-1"></canvas>'
            '<div class="kv-hover" aria-live="polite"></div><div class="kv-flow"></div></div>'
        )
        graph = escape(self.pictures) if isinstance(self.pictures, str) else graph_pane("")
        below = f'<div class="kv-graph" hidden>{graph}</div>'
        source = f'<div class="kv-source" tabindex="0">{rows}</div>'
        return f'<style>{css()}</style><div class="kv">{source}{pane}{below}</div>'

    @cached_property
    def pictures(self) -> GraphPictures | str:
        """The pictures of the kernel's dataflow graph, or why there are none."""
        try:
            return pictures_of(self.values, self._places, self._statement_rows)
        except KernellabError as error:
            return f"No dataflow graph: {error.message}"

    @cached_property
    def _statement_rows(self) -> dict[Place, int]:
        """The row in the source pane of the first line of each statement."""
        rows: dict[Place, int] = {}
        for row, line in enumerate(self.lines):
            rows.setdefault(self._line_place(line), row)
        return rows

    def _line_place(self, line: Line) -> Place:
        return self._places.of(line.file, line.number)

    @cached_property
    def _operations(self) -> Counter[Place]:
        """The number of operations of TTIR by statement."""
        nodes = () if isinstance(self.pictures, str) else self.pictures.whole(View.OPERATIONS).nodes
        return Counter(Place(node.file or "", node.source_line or 0) for node in nodes if node.operations)

    @cached_property
    def _places(self) -> StatementPlaces:
        return StatementPlaces(self.values)

    def place(self, position: int) -> Place:
        """The statement of a value, by which the graph knows it."""
        value = self.values.values[position]
        return self._places.of(value.file, value.line)

    def position_at(self, place: Place) -> int | None:
        """The first of the values that a line shows, of the line's statement; None where it has none."""
        shown = (at for line in self.lines for at in self._last_of_names(line))
        return next((at for at in shown if self.place(at) == place), None)

    @cached_property
    def _rows(self) -> dict[tuple[str, int], int]:
        return {(line.file, line.number): place for place, line in enumerate(self.lines)}

    def _row(self, line: Line) -> str:
        chips = "".join(self._chip(position) for position in self._last_of_names(line))
        code = f'<i>{line.number}</i><span class="kv-code">{code_line(line.text)}</span>'
        row = self._rows[line.file, line.number]
        return f'<div class="kv-line" data-row="{row}">{code}<span class="kv-chips">{chips}</span></div>'

    def _chip(self, position: int) -> str:
        value = self.values.values[position]
        words = f"{value_name(value)} {shape_words(value)}"
        return f'<button data-position="{position}" title="{escape(words)}">{miniature(value)}{escape(words)}</button>'

    def _last_of_names(self, line: Line) -> list[int]:
        """The last value of each name of a line."""
        last: dict[str, int] = {}
        for position in line.positions:
            last[value_name(self.values.values[position])] = position
        return list(last.values())

    def _line_details(self, line: Line) -> str:
        code = f'<i>{line.number}</i><span class="kv-code">{code_line(line.text)}</span>'
        if not line.positions:
            return f'<div class="kv-line">{code}</div>'
        last = [self.values.values[position] for position in self._last_of_names(line)]
        chips = "".join(
            f"<span>{miniature(value)}{escape(value_name(value))} {shape_words(value)}</span>" for value in last
        )
        pictures = "".join(f"<figure>{picture(value)}</figure>" for value in last if value.shape)
        summary = f'<summary class="kv-line">{code}<span class="kv-chips">{chips}</span></summary>'
        row = self._rows[line.file, line.number]
        return f'<details class="kv-line{row}">{summary}{self._table(line)}{pictures}</details>'

    def _table(self, line: Line) -> str:
        rows = [self.values.values[position] for position in line.positions]
        more = f"<caption>the last {_MOST_ROWS} of {len(rows)} values</caption>" if len(rows) > _MOST_ROWS else ""
        head = "".join(f"<th>{name}</th>" for name in ("name", "iteration", *_FIGURES))
        cells = ("".join(f"<td>{escape(cell)}</td>" for cell in _cells(row)) for row in rows[-_MOST_ROWS:])
        body = "".join(f"<tr>{row}</tr>" for row in cells)
        return f"<table>{more}<tr>{head}</tr>{body}</table>"

    def tile(self, position: int, page: int = 0) -> dict[str, Any]:
        """A value as the widget draws it: figures, a plane of its elements, and its neighbours in the flow.

        ``places`` are the numbers of the shown elements in the recorded tile, of which each axis has every
        ``steps``-th element; ``row`` is the line in the source pane.
        """
        value = self.values.values[position]
        return {
            "position": position,
            "row": self._rows.get((value.file or "", value.line), -1),
            "operations": self._operations[self.place(position)],
            "title": f"{value_name(value)} in line {value.line}",
            "facts": dict(zip(_FIGURES, _cells(value)[2:], strict=True)),
            "dtype": value.dtype,
            "shape": list(value.shape),
            "held": list(value.data.shape),
            "steps": list(value.steps),
            "argument": value.argument or "",
            **_plane_data(plane_of(value, page, MOST_CELLS), page),
            **self._neighbours(position, value),
        }

    def _neighbours(self, position: int, value: RecordedValue) -> dict[str, Any]:
        """The values of the same place in other iterations and programs, and those before and after it in the flow."""
        readers = self._readers.get(position, [])
        own = [at for at in self._sites[_site(value)] if self.values.values[at].program == value.program]
        return {
            "iterations": [[at, _iteration_words(self.values.values[at])] for at in own],
            "programs": [[at, str(self.values.values[at].program)] for at in self._programs(value)],
            "reads": [[at, self._label(at)] for at in value.reads],
            "read_by": [[at, self._label(at)] for at in readers[:_MOST_READERS]],
            "more_readers": max(0, len(readers) - _MOST_READERS),
            "arguments": [[name, self._argument_words(name)] for name in value.read_arguments],
            "count": len(self.values.values),
        }

    @cached_property
    def _readers(self) -> dict[int, list[int]]:
        readers = defaultdict[int, list[int]](list)
        for position, value in enumerate(self.values.values):
            for source in value.reads:
                readers[source].append(position)
        return dict(readers)

    @cached_property
    def _sites(self) -> dict[tuple[Any, ...], list[int]]:
        values = self.values.values
        return group_by(range(len(values)), lambda position: _site(values[position]))

    def _programs(self, value: RecordedValue) -> list[int]:
        """The value of the same name and line in every program: of the same iteration, or else of the last one."""
        chosen: dict[Program, int] = {}
        for at in self._sites[_site(value)]:
            other = self.values.values[at]
            known = chosen.get(other.program)
            if known is None or self.values.values[known].iteration != value.iteration:
                chosen[other.program] = at
        return list(chosen.values())

    def _argument_words(self, name: str) -> str:
        """An argument with what the launch passed: ``a 50x40``, ``n = 100``."""
        passed = self.values.arguments.get(name, ArgumentValue())
        if passed.shape is not None:
            return f"{name} {'x'.join(map(str, passed.shape))}"
        return name if passed.value is None else f"{name} = {passed.value}"

    def _label(self, position: int) -> str:
        value = self.values.values[position]
        iteration = f" [{_iteration_words(value)}]" if value.iteration else ""
        return f"{value_name(value)}, line {value.line}{iteration}"


def shape_words(value: RecordedValue) -> str:
    """The shape as ``16x16``; of a scalar its number."""
    if value.shape or not value.data.size:
        return "x".join(map(str, value.shape))
    return f"= {value_text(value.data.item())}" if value.kind is not ValueKind.STORE else ""


def _site(value: RecordedValue) -> tuple[Any, ...]:
    return value.file, value.line, value_name(value), value.calls


def _iteration_words(value: RecordedValue) -> str:
    return ", ".join(map(str, value.iteration))


def _cells(value: RecordedValue) -> list[str]:
    figures = value.summary
    numbers = [value_text(number) for number in (figures.min, figures.max, figures.mean)]
    counts = [f"{count:,}" if count else "" for count in (figures.nan, figures.inf, figures.masked)]
    return [value_name(value), _iteration_words(value), *numbers, *counts]


@dataclass(frozen=True)
class Plane:
    """The last two axes of a tile, thinned to what is shown, at one of ``pages`` places of the other axes.

    ``places`` are the numbers of the elements in the recorded tile; one cell stands for ``cells_of`` elements along the
    rows and columns: for a NaN among them, else for an infinity, else for the first.
    """

    data: NDArray[Any]
    mask: NDArray[np.bool_] | None
    elements: NDArray[Any] | None
    places: NDArray[np.int64]
    cells_of: tuple[int, int]
    pages: int


def plane_of(value: RecordedValue, page: int, most: int) -> Plane:
    """A plane of a tile with at most so many rows and columns; a page beyond the last is the last."""
    shape = value.data.shape
    rows, columns = shape[-2:] if len(shape) >= 2 else (1, *shape) if shape else (1, 1)
    pages = max(1, value.data.size // max(1, rows * columns))
    places: NDArray[np.int64] = np.arange(value.data.size).reshape(-1, rows, columns)[min(page, pages - 1)]
    step = (max(1, -(-rows // most)), max(1, -(-columns // most)))
    flat = value.data.reshape(-1)
    mask = None if value.mask is None else np.broadcast_to(value.mask, shape).reshape(-1)
    if step != (1, 1):
        places = _most_notable(places, flat, mask, step)
    elements = None if value.elements is None else np.broadcast_to(value.elements, shape).reshape(-1)
    lanes = None if mask is None else mask[places]
    return Plane(flat[places], lanes, None if elements is None else elements[places], places, step, pages)


def _most_notable(
    places: NDArray[np.int64], data: NDArray[Any], mask: NDArray[np.bool_] | None, step: tuple[int, int]
) -> NDArray[np.int64]:
    """Of each block of elements the first NaN, else the first infinity, else the first element."""
    rank = np.zeros(places.shape, np.int8)
    if data.dtype.kind == "f":
        rank = np.where(np.isnan(data[places]), 2, np.isinf(data[places])).astype(np.int8)
    if mask is not None:
        rank[~mask[places]] = 0
    counts = [-(-extent // width) for extent, width in zip(places.shape, step, strict=True)]
    padding = [(0, count * width - extent) for count, width, extent in zip(counts, step, places.shape, strict=True)]
    blocks = (counts[0], step[0], counts[1], step[1])
    padded = np.pad(rank, padding, constant_values=-1), np.pad(places, padding)
    ranks, numbers = (part.reshape(blocks).swapaxes(1, 2).reshape(*counts, -1) for part in padded)
    notable: NDArray[np.int64] = np.take_along_axis(numbers, ranks.argmax(-1)[..., None], -1)[..., 0]
    return notable


def _plane_data(plane: Plane, page: int) -> dict[str, Any]:
    """A plane as the widget gets it; integers stay whole, all other numbers are float64."""
    number = {"i": "int64", "u": "uint64"}.get(plane.data.dtype.kind, "float64")
    return {
        "rows": plane.data.shape[0],
        "columns": plane.data.shape[1],
        "cells_of": list(plane.cells_of),
        "pages": plane.pages,
        "page": min(page, plane.pages - 1),
        "number": number,
        "data": _base64(plane.data.astype(number)),
        "mask": "" if plane.mask is None else _base64(plane.mask.astype(np.uint8)),
        "elements": "" if plane.elements is None else _base64(plane.elements.astype(np.float64)),
        "places": _base64(plane.places.astype(np.float64)),
    }


def _base64(array: NDArray[Any]) -> str:
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()


def miniature(value: RecordedValue) -> str:
    """A tile as a tiny image; nothing for a scalar."""
    return _image(value, _MINIATURE, "kv-mini") if value.shape else ""


def picture(value: RecordedValue) -> str:
    """A tile as an image of at most 128 rows and columns, which a page shows with sharp pixels."""
    return _image(value, _PICTURE, "kv-tile")


def _image(value: RecordedValue, most: int, style: str) -> str:
    plane = plane_of(value, 0, most)
    pixels = colours_of(plane.data.astype(np.float64), plane.mask)
    if pixels.shape[0] == 1:
        pixels = np.repeat(pixels, 4, 0)
    alt = f"{value_name(value)}, {shape_words(value)}"
    return f'<img class="{style}" alt="{escape(alt)}" src="data:image/png;base64,{_png(pixels)}">'


def colours_of(plane: NDArray[np.float64], mask: NDArray[np.bool_] | None) -> NDArray[np.uint8]:
    """Red, green and blue of each element: a scale from least to largest; NaN, infinities and masked lanes apart."""
    finite = np.isfinite(plane)
    shown = plane[finite if mask is None else finite & mask]
    low, high = (float(shown.min()), float(shown.max())) if shown.size else (0.0, 1.0)
    share = np.clip((np.where(finite, plane, low) - low) / ((high - low) or 1.0), 0, 1)
    scale = np.array([tones(colour) for colour in SCALE_COLOURS], np.float64)
    place = share * (len(scale) - 1)
    left = np.minimum(place.astype(int), len(scale) - 2)
    part = (place - left)[..., None]
    pixels = scale[left] * (1 - part) + scale[left + 1] * part
    pixels[np.isnan(plane)] = tones(MAGENTA)
    pixels[np.isinf(plane)] = tones(ORANGE)
    if mask is not None:
        rows, columns = np.indices(plane.shape)
        grey = np.array(tones(GREY))
        striped: NDArray[np.bool_] = np.asarray((rows + columns) % 4 < 2)
        pixels = np.where(mask[..., None], pixels, np.where(striped[..., None], grey, (grey + 255) / 2))
    tile: NDArray[np.uint8] = pixels.astype(np.uint8)
    return tile


def _png(pixels: NDArray[np.uint8]) -> str:
    from PIL import Image  # comes with matplotlib; keeps `import kernellab` light

    buffer = io.BytesIO()
    Image.fromarray(pixels, "RGB").save(buffer, "PNG", optimize=True)
    return base64.b64encode(buffer.getvalue()).decode()
