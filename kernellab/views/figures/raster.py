"""The pictures of the lab as PNG: for pages that drop SVG, as pages do that show notebooks from elsewhere.

It paints what our own pictures are made of (groups, rectangles, paths, lines, circles and text, in presentation
attributes), in light colours on white, and nothing else of SVG. Pillow and the font come with matplotlib.

JupyterLab sanitizes the outputs of notebooks that the user does not trust, and code hosts those of all: style sheets
and SVG go, and the text of the SVG stays behind as a wall of words. So a PNG comes with each picture. Which of the
two shows is decided without a script: the PNG hides where the picture next to it is an SVG still, and the picture is
held by what hides by itself, and shows only by our style sheet. A ``display`` of its own does that in JupyterLab;
``hidden`` would not: it is dropped there without a value, and no style sheet overrules it in pages with Tailwind, as
marimo's. Where attributes go, too, ``<rp>`` hides, the parenthesis around ruby text, which browsers do not show
(https://html.spec.whatwg.org/multipage/rendering.html#hidden-elements).
PNG, since what shows notebooks on GitHub refuses SVG in a data URI (https://github.com/jupyter/nbconvert/pull/2106).
"""

from __future__ import annotations

import base64
import io
import math
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from html import escape, unescape
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol
from xml.etree import ElementTree
from xml.etree.ElementTree import ParseError

from kernellab.views.palette import INK, tones

Point = tuple[float, float]
Color = tuple[int, ...]

SCALE = 1.5  # pixels of the image for one of the picture, for the sharpness of today's screens
WIDEST_PX = 1400  # pages shrink what is wider than they are, so there is no use in more
_COLORS = 256
_PAPER = (255, 255, 255)
_FONTS = {False: "DejaVuSansMono.ttf", True: "DejaVuSansMono-Bold.ttf"}
_CURVE_STEPS, _QUARTER = 10, 0.5523  # points of a Bezier curve; its control points for a quarter of a circle
_INHERITED = (
    *("fill", "stroke", "stroke-width", "stroke-dasharray", "fill-opacity", "stroke-opacity", "text-anchor"),
    *("font-size", "font-weight", "visibility"),
)


def rasterize(svg: str) -> tuple[bytes, tuple[int, int]]:
    """Return an ``<svg>`` of ours as PNG, and the width and height in pixels that it is to show in.

    Raises:
        xml.etree.ElementTree.ParseError: the text is not XML.
    """
    from PIL import Image, ImageDraw  # keeps `import kernellab` light

    root = ElementTree.fromstring(svg)
    left, top, width, height = view_box(root)
    scale = min(SCALE, WIDEST_PX / max(width, 1.0))
    image = Image.new("RGB", (max(1, round(width * scale)), max(1, round(height * scale))), _PAPER)
    painter = Painter(_Image(ImageDraw.Draw(image)), scale, (left, top))
    painter.paint(root)
    palette = Image.new("P", (1, 1))
    # Paper, what was painted, and what the edges of letters blend of ink.
    blends = (_blend(tones(INK), share) for share in (0.25, 0.5, 0.75))
    colors = dict.fromkeys([_PAPER, *sorted(painter.colors), *blends])
    palette.putpalette([tone for color in [*colors][:_COLORS] for tone in color])
    buffer = io.BytesIO()
    image.quantize(palette=palette, dither=Image.Dither.NONE).save(buffer, "png")
    return buffer.getvalue(), (math.ceil(width), math.ceil(height))


def view_box(root: ElementTree.Element) -> tuple[float, float, float, float]:
    """Return the left, top, width and height of a picture in its own units."""
    box = root.get("viewBox") or f"0 0 {root.get('width', 100)} {root.get('height', 100)}"
    left, top, width, height = map(float, box.split())
    return left, top, width, height


class Surface(Protocol):
    """The surface of a painting; colours are red, green and blue from 0 to 255, sizes are in its units."""

    def polygon(self, points: list[Point], color: Color) -> None:
        """Fill a polygon."""

    def line(self, points: list[Point], color: Color, width: float) -> None:
        """Draw a line through points."""

    def text(self, place: Point, words: str, color: Color, size: float, *, is_bold: bool, anchor: str) -> None:
        """Write a line of text on its base line; ``anchor`` is "start", "middle" or "end"."""


class _Image:
    """A surface of Pillow."""

    def __init__(self, canvas: Any) -> None:
        self._canvas = canvas

    def polygon(self, points: list[Point], color: Color) -> None:
        self._canvas.polygon(points, fill=color)

    def line(self, points: list[Point], color: Color, width: float) -> None:
        self._canvas.line(points, fill=color, width=max(1, round(width)), joint="curve")

    def text(self, place: Point, words: str, color: Color, size: float, *, is_bold: bool, anchor: str) -> None:
        letters = {"middle": "ms", "end": "rs"}.get(anchor, "ls")
        self._canvas.text(place, words, fill=color, font=_font(round(size), is_bold=is_bold), anchor=letters)


class Painter:
    """Paints one of our pictures on a surface, in ``ink`` on ``paper`` where the picture names no colour."""

    def __init__(self, surface: Surface, scale: float, origin: Point, ink: str = INK, paper: Color = _PAPER) -> None:
        self._surface, self._scale, self._origin, self._ink, self._paper = surface, scale, origin, ink, paper
        self.colors: set[Color] = set()

    def paint(self, root: ElementTree.Element) -> None:
        """Paint a whole picture."""
        self._paint(root, {"fill": self._ink, "stroke-width": "1"}, 1.0)

    def _paint(self, element: ElementTree.Element, look: Mapping[str, str], opacity: float) -> None:
        """Paint an element and its children; ``look`` and ``opacity`` are those of its surroundings."""
        tag = element.tag.rpartition("}")[2]
        look = {**look, **{name: value for name, value in element.attrib.items() if name in _INHERITED}}
        opacity *= float(element.get("opacity", 1))
        if tag in ("g", "svg"):
            for child in element:
                self._paint(child, look, opacity)
        elif tag == "text":
            self._text(element, look, opacity)
        else:
            for points, is_closed in _outlines(tag, element):
                self._shape([self._place(point) for point in points], look, opacity, is_closed=is_closed)

    def _place(self, point: Point) -> Point:
        return (point[0] - self._origin[0]) * self._scale, (point[1] - self._origin[1]) * self._scale

    def _shape(self, points: list[Point], look: Mapping[str, str], opacity: float, *, is_closed: bool) -> None:
        inside = self._color(look, "fill", opacity)
        if inside is not None and len(points) > 2:
            self._surface.polygon(points, inside)
        line = self._color(look, "stroke", opacity)
        if line is not None and len(points) > 1:
            width = float(look["stroke-width"]) * self._scale
            whole = [*points, points[0]] if is_closed else points
            dashes = [float(length) * self._scale for length in look.get("stroke-dasharray", "").split()]
            for part in _dashes(whole, dashes) if dashes else (whole,):
                self._surface.line(part, line, width)

    def _color(self, look: Mapping[str, str], part: str, opacity: float) -> Color | None:
        """Return the colour of a part, "fill" or "stroke"; None for none."""
        name = look.get(part, "none")
        if name == "none":
            return None
        own = tones(self._ink if name in ("currentColor", INK) else name)
        color = _blend(own, opacity * float(look.get(f"{part}-opacity", 1)), self._paper)
        self.colors.add(color)
        return color

    def _text(self, element: ElementTree.Element, look: Mapping[str, str], opacity: float) -> None:
        color = self._color(look, "fill", opacity)
        words = "".join([element.text or "", *(child.tail or "" for child in element)])
        if color is None or look.get("visibility") == "hidden":
            return
        place = self._place((float(element.get("x", 0)), float(element.get("y", 0))))
        size, is_bold = float(look.get("font-size", 11)) * self._scale, look.get("font-weight") == "600"
        self._surface.text(place, words, color, size, is_bold=is_bold, anchor=look.get("text-anchor", "start"))


@lru_cache(maxsize=32)
def _font(size_px: int, *, is_bold: bool) -> Any:
    from PIL import ImageFont

    module = find_spec("matplotlib")
    folder = Path(module.origin).parent if module is not None and module.origin else Path()
    try:
        return ImageFont.truetype(str(folder / "mpl-data/fonts/ttf" / _FONTS[is_bold]), max(1, size_px))
    except OSError:
        return ImageFont.load_default(max(1, size_px))


def _blend(color: Color, share: float, paper: Color = _PAPER) -> Color:
    """Return a translucent colour as it shows on the paper."""
    return tuple(round(below + (tone - below) * share) for tone, below in zip(color, paper, strict=True))


def _outlines(tag: str, element: ElementTree.Element) -> Iterator[tuple[list[Point], bool]]:
    """Yield the lines of an element, with whether each returns to its beginning; none for what is not painted."""

    def number(name: str) -> float:
        return float(element.get(name, 0))

    if tag == "path":
        yield from _path(element.get("d", ""))
    elif tag == "rect":
        x, y, right, bottom = number("x"), number("y"), number("x") + number("width"), number("y") + number("height")
        yield [(x, y), (right, y), (right, bottom), (x, bottom)], True
    elif tag == "circle":
        x, y, radius = number("cx"), number("cy"), number("r")
        turns = (math.tau * step / 32 for step in range(32))
        yield [(x + radius * math.cos(turn), y + radius * math.sin(turn)) for turn in turns], True
    elif tag == "line":
        yield [(number("x1"), number("y1")), (number("x2"), number("y2"))], False
    elif tag == "polyline":
        pairs = (pair.split(",") for pair in element.get("points", "").split())
        yield [(float(x), float(y)) for x, y in pairs], False


_STEP = re.compile(r"([A-Za-z])([^A-Za-z]*)")
_NUMBER = re.compile(r"-?\d*\.?\d+(?:e-?\d+)?")
_TAKES = {"M": 2, "L": 2, "H": 1, "V": 1, "C": 6, "A": 7, "Z": 0}


def _path(text: str) -> Iterator[tuple[list[Point], bool]]:
    """Yield the lines of a path (https://www.w3.org/TR/SVG2/paths.html); arcs are quarters of circles."""
    points: list[Point] = []
    for letter, words in _STEP.findall(text):
        kind, numbers = letter.upper(), [float(word) for word in _NUMBER.findall(words)]
        if kind == "Z":
            yield points, True
            points = []
            continue
        size = _TAKES[kind]
        for at in range(0, len(numbers), size):
            if kind == "M" and at == 0:
                if points:
                    yield points, False
                zero = points[-1] if letter == "m" and points else (0.0, 0.0)
                points = [(zero[0] + numbers[0], zero[1] + numbers[1])]
            else:
                points += _step_corners(points[-1], kind, numbers[at : at + size], is_relative=letter.islower())
    if points:
        yield points, False


def _step_corners(here: Point, kind: str, numbers: list[float], *, is_relative: bool) -> list[Point]:
    zero = here if is_relative else (0.0, 0.0)
    if kind == "H":
        return [(zero[0] + numbers[0], here[1])]
    if kind == "V":
        return [(here[0], zero[1] + numbers[0])]
    odd = len(numbers) % 2
    corners = [(zero[0] + x, zero[1] + y) for x, y in zip(numbers[odd::2], numbers[odd + 1 :: 2], strict=True)]
    end = corners[-1]
    if kind == "C":
        return _curve(here, *corners)
    if kind == "A":
        # A quarter of a circle that turns right ends beside its centre or below it.
        corner = (end[0], here[1]) if (end[0] - here[0]) * (end[1] - here[1]) > 0 else (here[0], end[1])
        first, second = (
            (start[0] + _QUARTER * (corner[0] - start[0]), start[1] + _QUARTER * (corner[1] - start[1]))
            for start in (here, end)
        )
        return _curve(here, first, second, end)
    return [end]


def _curve(a: Point, b: Point, c: Point, d: Point) -> list[Point]:
    points = []
    for step in range(1, _CURVE_STEPS + 1):
        t = step / _CURVE_STEPS
        shares = (1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3
        x, y = (sum(s * p[axis] for s, p in zip(shares, (a, b, c, d), strict=True)) for axis in (0, 1))
        points.append((x, y))
    return points


def _dashes(points: list[Point], dashes: list[float]) -> Iterator[list[Point]]:
    """Yield the dashes of a line; ``dashes`` are the lengths of a dash and of the gap after it."""
    at, left, is_on = points[0], dashes[0], True
    part = [at]
    for target in points[1:]:
        while (away := math.dist(at, target)) > left > 0:
            at = (at[0] + (target[0] - at[0]) * left / away, at[1] + (target[1] - at[1]) * left / away)
            if is_on:
                yield [*part, at]
            is_on = not is_on
            part, left = [at], dashes[0 if is_on else -1]
        part.append(target)
        at, left = target, left - away
    if is_on and len(part) > 1:
        yield part


_STYLE = (
    "<style>.kl-drawn:has(svg),.kl-drawn:has(svg)>rp{display:contents!important}"
    ".kl-drawn:has(svg)+.kl-flat{display:none!important}</style>"
)
_ALONE = 'data-fallback="none"'
_SVG = re.compile(r"<svg\b.*?</svg>", re.DOTALL)
_LABEL = re.compile(r'\baria-label="([^"]*)"')


def with_fallbacks(html: str) -> str:
    """Add a PNG to each inline SVG of ours; HTML that has them stays as it is."""
    if "<svg" not in html or 'class="kl-flat"' in html:
        return html
    return _STYLE + _SVG.sub(lambda match: _with_png(match.group()), html)


def without_fallbacks(html: str) -> str:
    """Mark pictures that need no PNG: those that show after a click in styled pages only."""
    return html.replace("<svg ", f"<svg {_ALONE} ")


@lru_cache(maxsize=64)
def _with_png(svg: str) -> str:
    if svg.startswith(f"<svg {_ALONE}"):
        return svg
    try:
        png, (width, _) = rasterize(svg)
    except ParseError:
        return svg
    label = _LABEL.search(svg)
    alt = escape(unescape(label.group(1))) if label else "picture"
    source = f"data:image/png;base64,{base64.b64encode(png).decode()}"
    image = f'<img class="kl-flat" alt="{alt}" width="{width}" style="max-width:100%" src="{source}">'
    return f'<span class="kl-drawn" style="display:none"><rp>{svg}</rp></span>{image}'
