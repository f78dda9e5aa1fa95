"""The values of a launch next to its source: a static page that opens line by line, and the widget's pieces.

The page holds the first program, and of each line the last iteration. The widget asks for a tile when it is looked at.
"""

from __future__ import annotations

import base64
import io
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernellab.inside.values import Values
from kernellab.launch.recorded_values import Program, RecordedValue, ValueKind
from kernellab.views.elements import code_line, file_text, minify
from kernellab.views.figures.canvas import value_text
from kernellab.views.palette import GREY, MAGENTA, ORANGE, SCALE_COLOURS, fill_in, tones

_MINIATURE, _PICTURE = 24, 128  # the most rows and columns of a miniature, and of a picture on the static page
MOST_CELLS = 256  # the most rows and columns that the widget shows
_MOST_ROWS = 12
_FIGURES = ("min", "max", "mean", "NaN", "inf", "masked")


def css() -> str:
    """The style sheet of the page and the widget."""
    return minify(fill_in(file_text(__package__, "values.css")))


def script() -> str:
    """The script of the widget."""
    return file_text(__package__, "values.js")


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
        sources = [(self.values.file, self.values.first_line, self.values.source), *self.values.helpers]
        return tuple(
            Line(file, start + number, text, tuple(positions.get((file, start + number), ())))
            for place, (file, start, source) in enumerate(sources)
            for number, text in enumerate(source.rstrip("\n").splitlines())
            if place == 0 or any((file, start + number) in positions for number in range(source.count("\n") + 1))
        )

    def html(self) -> str:
        """The static page: source lines that open without a script, each with its values and a picture."""
        return f'<style>{css()}</style><div class="kv kv-still">{"".join(map(self._folded, self.lines))}</div>'

    def widget_html(self) -> str:
        """The source on the left, with a button for each name, and the pane of a tile on the right."""
        rows = "".join(self._row(line) for line in self.lines)
        pane = (
            '<div class="kv-pane"><div class="kv-bar"></div><div class="kv-facts"></div><canvas tabindex="-1"></canvas>'
            '<div class="kv-hover" aria-live="polite"></div><div class="kv-flow"></div></div>'
        )
        return f'<style>{css()}</style><div class="kv"><div class="kv-source" tabindex="0">{rows}</div>{pane}</div>'

    def _row(self, line: Line) -> str:
        chips = "".join(self._chip(position) for position in self._last_of_names(line))
        number = f'<i>{line.number}</i><span class="kv-code">{code_line(line.text)}</span>'
        return f'<div class="kv-line" data-line="{line.number}">{number}<span class="kv-chips">{chips}</span></div>'

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

    def _folded(self, line: Line) -> str:
        code = f'<i>{line.number}</i><span class="kv-code">{code_line(line.text)}</span>'
        if not line.positions:
            return f'<div class="kv-line">{code}</div>'
        last = [self.values.values[position] for position in self._last_of_names(line)]
        chips = "".join(
            f"<span>{miniature(value)}{escape(value_name(value))} {shape_words(value)}</span>" for value in last
        )
        pictures = "".join(f"<figure>{picture(value)}</figure>" for value in last if value.shape)
        summary = f'<summary class="kv-line">{code}<span class="kv-chips">{chips}</span></summary>'
        return f"<details>{summary}{self._table(line)}{pictures}</details>"

    def _table(self, line: Line) -> str:
        rows = [self.values.values[position] for position in line.positions]
        more = f"<caption>the last {_MOST_ROWS} of {len(rows)} values</caption>" if len(rows) > _MOST_ROWS else ""
        head = "".join(
            f"<th>{name}</th>" for name in ("name", "iteration", "min", "max", "mean", "NaN", "inf", "masked")
        )
        body = "".join(
            f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in _cells(row))}</tr>" for row in rows[-_MOST_ROWS:]
        )
        return f"<table>{more}<tr>{head}</tr>{body}</table>"

    def tile(self, position: int, page: int = 0) -> dict[str, Any]:
        """A value as the widget draws it: figures, a plane of its elements, and its neighbours in the flow."""
        value = self.values.values[position]
        plane, mask, elements, pages = _plane(value, page)
        return {
            "position": position,
            "title": f"{value_name(value)} in line {value.line}",
            "facts": dict(zip(_FIGURES, _cells(value)[2:], strict=True)),
            "dtype": value.dtype,
            "shape": list(value.shape),
            "argument": value.argument or "",
            "rows": plane.shape[0],
            "columns": plane.shape[1],
            "pages": pages,
            "page": page,
            "steps": list(value.steps),
            "data": _base64(plane.astype(np.float64)),
            "mask": "" if mask is None else _base64(mask.astype(np.uint8)),
            "elements": "" if elements is None else _base64(elements.astype(np.float64)),
            "iterations": [[at, _iteration_words(self.values.values[at])] for at in self._iterations(value)],
            "programs": [[at, str(self.values.values[at].program)] for at in self._programs(value)],
            "reads": [[at, self._label(at)] for at in value.reads],
            "read_by": [[at, self._label(at)] for at in self._readers.get(position, ())],
            "arguments": list(value.read_arguments),
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
        sites = defaultdict[tuple[Any, ...], list[int]](list)
        for position, value in enumerate(self.values.values):
            sites[_site(value)].append(position)
        return dict(sites)

    def _iterations(self, value: RecordedValue) -> list[int]:
        """The values of the same name and line in the same program, in the order of execution."""
        return [at for at in self._sites[_site(value)] if self.values.values[at].program == value.program]

    def _programs(self, value: RecordedValue) -> list[int]:
        """The values of the same name, line and iteration in every program."""
        same = [at for at in self._sites[_site(value)] if self.values.values[at].iteration == value.iteration]
        first: dict[Program, int] = {}
        for at in same:
            first.setdefault(self.values.values[at].program, at)
        return list(first.values())

    def _label(self, position: int) -> str:
        value = self.values.values[position]
        return f"{value_name(value)}, line {value.line}{_bracketed(_iteration_words(value))}"


def value_name(value: RecordedValue) -> str:
    """The variable, or the access with its argument: ``store out``."""
    return value.name or f"{value.kind.value} {value.argument or ''}".strip()


def shape_words(value: RecordedValue) -> str:
    """The shape as ``16x16``; of a scalar its number."""
    if value.shape or not value.data.size:
        return "x".join(map(str, value.shape))
    return f"= {value_text(value.data.item())}" if value.kind is not ValueKind.STORE else ""


def _site(value: RecordedValue) -> tuple[Any, ...]:
    return value.file, value.line, value_name(value), value.calls


def _iteration_words(value: RecordedValue) -> str:
    return ", ".join(map(str, value.iteration))


def _bracketed(words: str) -> str:
    return f" [{words}]" if words else ""


def _cells(value: RecordedValue) -> list[str]:
    figures = value.summary
    numbers = [value_text(number) for number in (figures.min, figures.max, figures.mean)]
    counts = [f"{count:,}" if count else "" for count in (figures.nan, figures.inf, figures.masked)]
    return [value_name(value), _iteration_words(value), *numbers, *counts]


def _plane(value: RecordedValue, page: int) -> tuple[NDArray[Any], NDArray[np.bool_] | None, NDArray[Any] | None, int]:
    """The last two axes of a tile, its mask and elements, at one place of the others; and how many places there are."""
    shape = value.data.shape
    flat = shape[-2:] if len(shape) >= 2 else (1, *shape) if shape else (1, 1)
    parts = [
        None if part is None else np.broadcast_to(part, shape).reshape(-1, *flat)[page, :MOST_CELLS, :MOST_CELLS]
        for part in (value.data, value.mask, value.elements)
    ]
    plane = parts[0]
    assert plane is not None, "a value has data"
    return plane, parts[1], parts[2], max(1, value.data.size // max(1, flat[0] * flat[1]))


def _base64(array: NDArray[Any]) -> str:
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()


def miniature(value: RecordedValue) -> str:
    """A tile as a tiny image; nothing for a scalar."""
    return _image(value, _MINIATURE, "kv-mini") if value.shape else ""


def picture(value: RecordedValue) -> str:
    """A tile as an image of at most 128 rows and columns, which a page shows with sharp pixels."""
    return _image(value, _PICTURE, "kv-tile")


def _image(value: RecordedValue, most: int, style: str) -> str:
    plane, mask, _, _ = _plane(value, 0)
    steps = [max(1, -(-extent // most)) for extent in plane.shape]
    thin = (slice(None, None, steps[0]), slice(None, None, steps[1]))
    pixels = colours_of(plane[thin].astype(np.float64), None if mask is None else mask[thin])
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
