"""Layouts as pictures: the owner of each element of a tile, on a card of values, and in a pane of the explorer."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from kernellab.errors import UsageError, plural
from kernellab.ir.layouts import Index, LaidOutValue, Layout, Layouts, MemoryLayout, RegisterLayout, TensorMemoryLayout
from kernellab.views.blocks import Block, Card, Drawing, Heading, Message, Section, Table, text_only
from kernellab.views.elements import runs_of, style_sheet
from kernellab.views.figures.raster import without_fallbacks
from kernellab.views.graph.drawing import svg_element
from kernellab.views.palette import SERIES, fill_in

if TYPE_CHECKING:
    from kernellab.views.explorers.exploration import LineKey

MOST_TILES, FEW_TILES = 12, 6  # layouts that a page or a widget draws; those of static HTML in a notebook
CORNER = (32, 32)  # rows and columns of the maps by lane, register and bank; more could not be read
_CELL_PX, _MARGIN_PX, _TEXT_PX = 18, 30, 11  # numbers that can be read; tiles.js has the first two as well
_WHOLE_CELLS = 32  # a side of the map by warp, whose cells are blocks of elements
_ROWS_OF_A_WARP = 32  # https://docs.nvidia.com/cuda/parallel-thread-execution/#tcgen05-data-movement-operations
_STEPS = 8
_LEAST_OPACITY, _OPACITY_STEP = 0.14, 0.07


@dataclass(frozen=True, slots=True)
class TileMap:
    """A picture of a tile: its caption, and the number of each cell that shows, by row and column."""

    caption: str
    unit: str
    numbers: Mapping[tuple[int, int], int]
    rows: int
    columns: int
    block: tuple[int, int] = (1, 1)


_Flat = tuple[int, int, int]  # rows, columns, and how many axes they are of


def tile_maps(layout: Layout, element_bits: int = 32) -> tuple[TileMap, ...]:
    """Return the maps of a layout: by warp, lane and register; by bank of shared, by place in tensor memory."""
    flat = _flatten(layout.shape)
    if isinstance(layout, MemoryLayout):
        return (_corner(layout.banks(element_bits), flat, "bank", "the bank of shared memory that holds it"),)
    if isinstance(layout, TensorMemoryLayout):
        rows, columns = ({element: place[axis] for element, place in layout.places.items()} for axis in (0, 1))
        reaching = {element: row // _ROWS_OF_A_WARP for element, row in rows.items()}
        return (
            _whole(reaching, flat, "the warp of four that reaches it in tensor memory"),
            _corner(rows, flat, "row", "the row of tensor memory that holds it"),
            _corner(columns, flat, "column", "the column of tensor memory, as wide as an element"),
        )
    holders = layout.holders()
    warps, lanes, registers = (
        {element: getattr(holder, unit) for element, holder in holders.items()} for unit in ("warp", "lane", "register")
    )
    copies = max((holder.copies for holder in holders.values()), default=1)
    more = f"; {copies} registers of the block hold each element, the first is shown" if copies > 1 else ""
    return (
        _whole(warps, flat, f"the warp that holds it{more}"),
        _corner(lanes, flat, "lane", "the lane of its warp"),
        _corner(registers, flat, "register", "the register of its lane"),
    )


def tile_svg(tile: TileMap) -> str:
    """Return a map as inline SVG; the tooltip of a cell has its number."""
    width, height = tile.columns * _CELL_PX, tile.rows * _CELL_PX
    body = [*_axes(tile), *_cells(tile), *_labels(tile)]
    described = f"{tile.caption}, {tile.rows} by {tile.columns} cells"
    return svg_element(f"By {tile.unit}", described, width + _MARGIN_PX, height + _MARGIN_PX, body)


def _flatten(shape: Index) -> _Flat:
    """Return the drawn part of a tile: its last two axes; one axis in rows of 32."""
    if len(shape) >= 2:
        return shape[-2], shape[-1], len(shape)
    columns = min(shape[0], CORNER[1]) if shape else 1
    return (shape[0] // columns if shape else 1), columns, len(shape)


def _element_index(row: int, column: int, flat: _Flat) -> Index:
    if flat[2] >= 2:
        return (*(0,) * (flat[2] - 2), row, column)
    return (row * flat[1] + column,) if flat[2] else ()


def _corner(numbers: Mapping[Index, int], flat: _Flat, unit: str, words: str) -> TileMap:
    rows, columns = min(flat[0], CORNER[0]), min(flat[1], CORNER[1])
    shown = {(r, c): numbers[_element_index(r, c, flat)] for r in range(rows) for c in range(columns)}
    part = "" if (rows, columns) == flat[:2] else f" (the first {rows} x {columns} of {flat[0]} x {flat[1]})"
    return TileMap(f"Each element by {words}{part}", unit, shown, rows, columns)


def _whole(numbers: Mapping[Index, int], flat: _Flat, words: str) -> TileMap:
    """Return the map of a whole tile; where it has many elements, a cell stands for a block of them."""
    down, across = max(1, flat[0] // _WHOLE_CELLS), max(1, flat[1] // _WHOLE_CELLS)
    rows, columns = flat[0] // down, flat[1] // across
    shown = {(r, c): numbers[_element_index(r * down, c * across, flat)] for r in range(rows) for c in range(columns)}
    part = f" (one cell = {down} x {across} elements)" if down * across > 1 else ""
    return TileMap(f"Each element by {words}{part}", "warp", shown, rows, columns, (down, across))


def _axes(tile: TileMap) -> list[str]:
    style = f'font-size="{_TEXT_PX}" fill="currentColor" fill-opacity=".8"'
    parts = [f"<g {style}>"]
    for column in range(0, tile.columns, 4):
        x = _MARGIN_PX + (column + 0.5) * _CELL_PX
        parts.append(f'<text x="{x:g}" y="{_MARGIN_PX - 5}" text-anchor="middle">{column * tile.block[1]}</text>')
    for row in range(0, tile.rows, 4):
        y = _MARGIN_PX + (row + 0.5) * _CELL_PX + 4
        parts.append(f'<text x="{_MARGIN_PX - 4}" y="{y:g}" text-anchor="end">{row * tile.block[0]}</text>')
    return [*parts, "</g>"]


def _runs(tile: TileMap) -> dict[int, list[tuple[int, int, int]]]:
    """Return, by number, the runs of cells in a row: row, first column, length."""
    runs: dict[int, list[tuple[int, int, int]]] = {}
    for row in range(tile.rows):
        numbers = [tile.numbers[row, column] for column in range(tile.columns)]
        for run in runs_of(numbers):
            runs.setdefault(numbers[run.start], []).append((row, run.start, len(run)))
    return runs


def _cells(tile: TileMap) -> list[str]:
    """Return a path per number; hues are warps, shades of a hue the numbers of a longer row."""
    parts = [f'<g fill="none" stroke-width="{_CELL_PX - 1}">']
    for number, runs in sorted(_runs(tile).items()):
        hue = SERIES[number % len(SERIES)] if tile.unit == "warp" else SERIES[number // _STEPS % len(SERIES)]
        shade = 0.42 if tile.unit == "warp" else _LEAST_OPACITY + _OPACITY_STEP * (number % _STEPS)
        path = "".join(
            f"M{_MARGIN_PX + column * _CELL_PX} {_MARGIN_PX + row * _CELL_PX + _CELL_PX / 2:g}h{length * _CELL_PX - 1}"
            for row, column, length in runs
        )
        line = f'<path stroke="{hue}" stroke-opacity="{shade:.2f}" d="{path}"/>'
        parts.append(f"<g><title>{escape(tile.unit)} {number}</title>{line}</g>")
    return [*parts, "</g>"]


def _labels(tile: TileMap) -> list[str]:
    """Return the number of each run that has room for it; of runs one below the other, of the first alone."""
    parts = [f'<g font-size="{_TEXT_PX}" fill="currentColor" text-anchor="middle" pointer-events="none">']
    for number, runs in sorted(_runs(tile).items()):
        for row, column, length in runs:
            is_first = (row - 1, column, length) not in runs
            if is_first and length * _CELL_PX >= len(str(number)) * _TEXT_PX * 0.62 + 1:
                x = _MARGIN_PX + (column + length / 2) * _CELL_PX
                y = _MARGIN_PX + (row + 0.5) * _CELL_PX + _TEXT_PX * 0.36
                parts.append(f'<text x="{x:g}" y="{y:.1f}">{number}</text>')
    return [*parts, "</g>"]


def layouts_card(layouts: Layouts, uid: str = "layouts") -> Card:
    """Return the values with their tiles, a row for each value; ``uid`` has to differ between the cards of one page."""
    drawn = len({tile_key(value) for value in layouts.values})
    facts = [layouts.target, plural(len(layouts.values), "value"), plural(drawn, "layout")]
    rows = [
        (value.name, value.operation, str(value.line or ""), type_words(value), str(value.encoding))
        for value in layouts.values
    ]
    table = Table(("value", "made by", "line", "type", "layout"), rows)
    blocks: list[Block] = [
        text_only([f"{layouts.kernel}  {layouts.target}", *(f"  {line}" for line in table.lines())]),
        Drawing(lambda: _tiles_html(layouts, uid)),
    ]
    return Card([Section(Heading(layouts.kernel, facts, in_text=False), blocks)])


def _tiles_html(layouts: Layouts, uid: str) -> str:
    if not layouts.values:
        return Message("No value of its TTGIR has a layout.").html()
    uid = uid.replace(".", "-")  # which ends a name in a style sheet
    pane = TilesPane(layouts, MOST_TILES, uid, {})
    return f'<div id="{uid}"><style>{pane.rules()}</style>{pane.html(is_open=True)}</div>'


Key = tuple[str, tuple[int, ...], int]


def tile_key(value: LaidOutValue) -> Key:
    """The key of a tile's drawing: layout, shape, element type."""
    return str(value.encoding), value.shape, value.element_bits if "shared" in value.encoding.kind else 0


_PRODUCTS = {"nvidia_mma": 4, "amd_mfma": 4, "amd_wmma": 4, "tensor_memory_encoding": 4}
_INTEREST = {"slice": 0, "blocked": 1, "dot_op": 3, **_PRODUCTS}  # 2 for values in shared memory


def most_interesting(layouts: Layouts) -> LaidOutValue:
    """Return the value to show first: a result or an operand of tensor cores, if there is one."""
    return max(layouts.values, key=_interest)


def _interest(value: LaidOutValue) -> tuple[bool, int]:
    """Rank values: results of tensor cores, operands and shared memory, whole tiles, rows."""
    return min(value.shape, default=1) > 1, _INTEREST.get(value.encoding.kind, 2)


def type_words(value: LaidOutValue) -> str:
    """Return buffers, shape and element of a value."""
    buffers = f"{value.buffers} x " if value.buffers > 1 else ""
    return f"{buffers}{'x'.join(map(str, value.shape))} {value.element}"


def layout_card(value: LaidOutValue, uid: str = "layout") -> Card:
    """Return the tile of one value; ``uid`` is as for `layouts_card`."""
    drawn = Drawing(lambda: _tiles_html(Layouts("", "", (value,)), uid))
    return Card([Section(None, [text_only([f"{value.name}  {value.encoding}"]), drawn])])


_HIDDEN = 'style="display:none"'  # where a page drops style sheets, which overrule it
_FIRST_UNIT = 1  # by lane, which tells most


class TilesPane:
    """The values of a kernel and the tiles of at most ``most`` layouts; ``numbers`` are those of source lines.

    It stands on a card, and in the explorer below TTGIR. Without a script, a value is chosen in the list, where those
    of the chosen line come first. A script chooses the value that is clicked in TTGIR, and shows the owner of the
    element under the pointer, from ``data-tile``.
    """

    def __init__(self, layouts: Layouts, most: int, uid: str, numbers: Mapping[LineKey, int]) -> None:
        self._uid, self._layouts, self._numbers = uid, layouts, numbers
        self._tiles: dict[Key, LaidOutValue] = {}  # a value for each drawn layout and shape, by interest
        for value in sorted(layouts.values, key=_interest, reverse=True):
            if len(self._tiles) < most:
                self._tiles.setdefault(tile_key(value), value)
        self._at = {key: number for number, key in enumerate(self._tiles)}
        self._left_out = len({tile_key(value) for value in layouts.values} - set(self._tiles))

    def rules(self, stage: int | None = None) -> str:
        """Return the CSS rules that show the chosen tile; with ``stage`` (TTGIR), the pane shows with that alone."""
        root = f"#{self._uid}"
        rules = [] if stage is None else [f"{root}:has(.kx-tab{stage}:checked) .kx-tiles{{display:grid!important}}"]
        for tile in range(len(self._tiles)):
            rules.append(f"{root}:has(.v{tile}:checked) .t{tile}{{display:block!important}}")
        for unit in range(3):
            rules.append(f"{root}:has(.u{unit}:checked) .f{unit}{{display:block}}")
            rules.append(f"{root}:has(.u{unit}:checked) .b{unit}{{background:rgba($mark,.26)}}")
        lines = sorted({n for value in self._layouts.values if (n := self._number(value)) is not None})
        first = ",".join(f"{root}:has(.r{n}:checked) .kx-values .k{n}" for n in lines)
        sheet = style_sheet(__package__, "tiles.css")
        return sheet + fill_in("".join(rules)) + (f"{first}{{order:-1}}" if first else "")

    def html(self, *, is_open: bool = False) -> str:
        """Return the pane, which a style sheet shows; one that ``is_open`` shows a tile without one, too."""
        left_out = f"<p>{plural(self._left_out, 'more layout')} of this kernel are not drawn here.</p>"
        units = "".join(
            f'<input type="radio" name="{self._uid}-unit" class="u{unit}" id="{self._uid}-u{unit}"'
            f"{' checked' if unit == _FIRST_UNIT else ''}>"
            for unit in range(3)
        )
        tiles = "".join(self._tile(value, number) for number, value in enumerate(self._tiles.values()))
        values = f'<div class="kx-values" aria-label="values with a layout">{"".join(self._values())}</div>'
        content = f"{values}<div>{units}{tiles}{left_out if self._left_out else ''}</div>"
        if is_open:
            return f'<form class="kx-tiles kx-open">{content}</form>'
        return f'<form class="kx-tiles" {_HIDDEN}><rp>{without_fallbacks(content)}</rp></form>'

    def drawn_values(self) -> tuple[str, ...]:
        """Return the names in TTGIR of the values with a drawn layout."""
        return tuple(value.name for value in self._layouts.values if tile_key(value) in self._at)

    def _number(self, value: LaidOutValue) -> int | None:
        return self._numbers.get((value.file, value.line or 0))

    def _values(self) -> Iterator[str]:
        chosen = next(iter(self._tiles.values()), None)
        for value in self._layouts.values:
            tile = self._at.get(tile_key(value))
            if tile is None:
                continue
            line = self._number(value)
            lit = "" if line is None else f' class="k{line}"'
            lit += "" if value.line is None else f' data-n="{value.line}"'
            checked = " checked" if value is chosen else ""
            yield (
                f'<label{lit} data-value="{escape(value.name)}" title="{escape(str(value.encoding))}">'
                f'<input type="radio" name="{self._uid}-value" class="v{tile}"{checked}>'
                f"<b>{escape(value.name)}</b> {escape(type_words(value))} "
                f"<span>{escape(value.encoding.kind)}</span></label>"
            )

    def _tile(self, value: LaidOutValue, number: int) -> str:
        words = f"<p>{escape(type_words(value))}: <code>{escape(str(value.encoding))}</code></p>"
        try:
            maps, layout = tile_maps(value.layout, value.element_bits), value.layout
        except UsageError as error:
            return self._part(number, "", f"{words}<p>{escape(error.message)}</p>")
        buttons = "".join(
            f'<label class="b{unit}" for="{self._uid}-u{unit}">by {escape(tile.unit)}</label>'
            for unit, tile in enumerate(maps)
        )
        figures = ""
        for unit, tile in enumerate(maps):
            name = f'class="f{unit}" ' if len(maps) > 1 else ""  # the only map of its tile shows always
            figures += _figure(tile, f'{name}data-map="{tile.rows} {tile.columns} {tile.block[0]} {tile.block[1]}"')
        bar = f'<div class="kx-units">{buttons if len(maps) > 1 else ""}<output></output></div>'
        data = escape(json.dumps(_data(layout, value.element_bits), separators=(",", ":")))
        return self._part(number, f' data-tile="{data}"', f"{words}{bar}{figures}")

    def _part(self, number: int, data: str, content: str) -> str:
        """Return a tile; where a page drops style sheets, the first one alone shows."""
        if number:
            return f'<div class="t{number}"{data} {_HIDDEN}><rp>{without_fallbacks(content)}</rp></div>'
        return f'<div class="t{number}"{data}>{content}</div>'


def _figure(tile: TileMap, attributes: str = "") -> str:
    figure = f"<figure {attributes}".rstrip()
    return f"{figure}>{tile_svg(tile)}<figcaption>{escape(tile.caption)}</figcaption></figure>"


def _data(layout: Layout, element_bits: int) -> dict[str, Any]:
    """Return the owners of elements for a script: bases, or the places of the shown elements."""
    if isinstance(layout, RegisterLayout):
        bases = {"register": layout.registers, "lane": layout.lanes, "warp": layout.warps}
        return {"shape": layout.shape, **bases}
    flat = _flatten(layout.shape)
    shown = ((row, column) for row in range(min(flat[0], CORNER[0])) for column in range(min(flat[1], CORNER[1])))
    places = [layout.places[_element_index(*cell, flat)] for cell in shown]
    bits = {"bits": element_bits} if isinstance(layout, MemoryLayout) else {}
    return {"shape": layout.shape, **bits, "places": places}
