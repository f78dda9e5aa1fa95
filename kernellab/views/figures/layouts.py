"""Layouts as pictures: the elements of a tile, coloured and numbered by who holds them, or by their bank."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from itertools import groupby
from operator import itemgetter

from kernellab.ir.layouts import Index, Layout, MemoryLayout, TensorMemoryLayout
from kernellab.views.graph.drawing import svg_element

CORNER = (32, 32)  # rows and columns of the maps by lane, register and bank; more could not be read
_CELL_PX, _MARGIN_PX, _TEXT_PX = 10, 24, 6.5
_WHOLE_CELLS = 32  # a side of the map by warp, whose cells are blocks of elements
_ROWS_OF_A_WARP = 32  # https://docs.nvidia.com/cuda/parallel-thread-execution/#tcgen05-data-movement-operations
_HUES = ("#2b83dc", "#e06c12", "#0f9d75", "#a855e8", "#e03e4a", "#c9a227", "#0ea5b7", "#80868f")
_STEPS = 8
_LEAST_OPACITY, _OPACITY_STEP = 0.18, 0.09


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
    flat = _flattened(layout.shape)
    if isinstance(layout, MemoryLayout):
        return (_corner(layout.banks(element_bits), flat, "bank", "the bank of shared memory that holds it"),)
    if isinstance(layout, TensorMemoryLayout):
        return _tensor_memory_maps(layout, flat)
    holders = layout.holders()
    warps = {element: holder.warp for element, holder in holders.items()}
    lanes = {element: holder.lane for element, holder in holders.items()}
    registers = {element: holder.register for element, holder in holders.items()}
    copies = max((holder.copies for holder in holders.values()), default=1)
    more = f"; {copies} registers of the block hold each element, the first is told" if copies > 1 else ""
    return (
        _whole(warps, flat, f"the warp that holds it{more}"),
        _corner(lanes, flat, "lane", "the lane of its warp"),
        _corner(registers, flat, "register", "the register of its lane"),
    )


def _tensor_memory_maps(layout: TensorMemoryLayout, flat: _Flat) -> tuple[TileMap, ...]:
    warps = {element: row // _ROWS_OF_A_WARP for element, (row, _) in layout.places.items()}
    rows = {element: row for element, (row, _) in layout.places.items()}
    columns = {element: column for element, (_, column) in layout.places.items()}
    return (
        _whole(warps, flat, "the warp of four that reaches it in tensor memory"),
        _corner(rows, flat, "row", "the row of tensor memory that holds it"),
        _corner(columns, flat, "column", "the column of tensor memory, as wide as an element"),
    )


def tile_svg(tile: TileMap) -> str:
    """Return a map as inline SVG; pointing at a cell tells its number."""
    width, height = tile.columns * _CELL_PX, tile.rows * _CELL_PX
    body = [*_axes(tile), *_cells(tile), *_labels(tile)]
    described = f"{tile.caption}, {tile.rows} by {tile.columns} cells"
    return svg_element(f"By {tile.unit}", described, width + _MARGIN_PX, height + _MARGIN_PX, body)


def _flattened(shape: Index) -> _Flat:
    """Return how a tile is drawn: its last two axes, at the start of others; one axis in rows of 32."""
    if len(shape) >= 2:
        return shape[-2], shape[-1], len(shape)
    columns = min(shape[0], CORNER[1]) if shape else 1
    return (shape[0] // columns if shape else 1), columns, len(shape)


def _element(row: int, column: int, flat: _Flat) -> Index:
    if flat[2] >= 2:
        return (*(0,) * (flat[2] - 2), row, column)
    return (row * flat[1] + column,) if flat[2] else ()


def corner_of(shape: Index) -> list[Index]:
    """Return the elements that the maps of a corner show, row by row."""
    flat = _flattened(shape)
    rows, columns = min(flat[0], CORNER[0]), min(flat[1], CORNER[1])
    return [_element(row, column, flat) for row in range(rows) for column in range(columns)]


def _corner(numbers: Mapping[Index, int], flat: _Flat, unit: str, words: str) -> TileMap:
    rows, columns = min(flat[0], CORNER[0]), min(flat[1], CORNER[1])
    found = {(r, c): numbers[_element(r, c, flat)] for r in range(rows) for c in range(columns)}
    part = "" if (rows, columns) == flat[:2] else f" (the first {rows} x {columns} of {flat[0]} x {flat[1]})"
    return TileMap(f"Each element by {words}{part}", unit, found, rows, columns)


def _whole(numbers: Mapping[Index, int], flat: _Flat, words: str) -> TileMap:
    """Return the map of a whole tile; where it has many elements, a cell stands for a block of them."""
    down, across = max(1, flat[0] // _WHOLE_CELLS), max(1, flat[1] // _WHOLE_CELLS)
    rows, columns = flat[0] // down, flat[1] // across
    found = {(r, c): numbers[_element(r * down, c * across, flat)] for r in range(rows) for c in range(columns)}
    part = f" (a cell is {down} x {across} elements, told by the first)" if down * across > 1 else ""
    return TileMap(f"Each element by {words}{part}", "warp", found, rows, columns, (down, across))


def _axes(tile: TileMap) -> list[str]:
    """Return the numbers of some rows and columns, on the sides that cells leave free."""
    style = f'font-size="{_TEXT_PX + 1:g}" fill="currentColor" fill-opacity=".72"'
    parts = [f"<g {style}>"]
    for column in range(0, tile.columns, 4):
        x = _MARGIN_PX + (column + 0.5) * _CELL_PX
        parts.append(f'<text x="{x:g}" y="{_MARGIN_PX - 5}" text-anchor="middle">{column * tile.block[1]}</text>')
    for row in range(0, tile.rows, 4):
        y = _MARGIN_PX + (row + 0.5) * _CELL_PX + 3
        parts.append(f'<text x="{_MARGIN_PX - 4}" y="{y:g}" text-anchor="end">{row * tile.block[0]}</text>')
    return [*parts, "</g>"]


def _runs(tile: TileMap) -> dict[int, list[tuple[int, int, int]]]:
    """Return, by number, the runs of cells in a row: row, first column, length."""
    found: dict[int, list[tuple[int, int, int]]] = {}
    for row in range(tile.rows):
        cells = ((tile.numbers[row, column], column) for column in range(tile.columns))
        for number, run in groupby(cells, key=itemgetter(0)):
            columns = [column for _, column in run]
            found.setdefault(number, []).append((row, columns[0], len(columns)))
    return found


def _cells(tile: TileMap) -> list[str]:
    """Return a path for each number; hues tell warps apart, and shades of hues the numbers of a longer row."""
    parts = [f'<g fill="none" stroke-width="{_CELL_PX - 1}">']
    for number, runs in sorted(_runs(tile).items()):
        hue = _HUES[number % len(_HUES)] if tile.unit == "warp" else _HUES[number // _STEPS % len(_HUES)]
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
        told: set[tuple[int, int, int]] = set()
        for row, column, length in runs:
            is_new = (row - 1, column, length) not in told
            told.add((row, column, length))
            if is_new and length * _CELL_PX >= len(str(number)) * _TEXT_PX * 0.62 + 1:
                x = _MARGIN_PX + (column + length / 2) * _CELL_PX
                y = _MARGIN_PX + (row + 0.5) * _CELL_PX + _TEXT_PX * 0.36
                parts.append(f'<text x="{x:g}" y="{y:.1f}">{number}</text>')
    return [*parts, "</g>"]
