"""The pane of layouts in the explorer: the values of TTGIR, and for the chosen one who holds which element."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from kernellab.errors import UsageError
from kernellab.ir.layouts import LaidOutValue, Layout, Layouts, MemoryLayout, RegisterLayout
from kernellab.views.cards.layouts import tile_key, tiles_of, type_words
from kernellab.views.elements import style_sheet
from kernellab.views.explorers.exploration import LineKey
from kernellab.views.figures.layouts import TileMap, corner_of, tile_maps, tile_svg
from kernellab.views.figures.raster import without_fallbacks

_HIDDEN = 'style="display:none"'  # where a page drops style sheets, which overrule it
_FIRST_UNIT = 1  # by lane, which tells most


class TilesPane:
    """The values of a kernel and the tiles of at most ``most`` layouts; ``numbers`` are those of source lines.

    Without a script, a value is chosen in the list, where those of the chosen line come first. A script chooses the
    value that is clicked in TTGIR, and tells who holds the element under the pointer, from ``data-tile``.
    """

    def __init__(self, found: Layouts, most: int, uid: str, numbers: Mapping[LineKey, int]) -> None:
        self._uid, self._found, self._numbers = uid, found, numbers
        self._tiles = tiles_of(found, most)
        self._at = {key: number for number, key in enumerate(self._tiles)}
        rest = {tile_key(value) for value in found.values} - set(self._tiles)
        self._left_out = len(rest)

    def rules(self, stage: int) -> str:
        """Return the rules that show the pane beside TTGIR, which is stage ``stage``, and the tile of the value."""
        root = f"#{self._uid}"
        rules = [f"{root}:has(.kx-tab{stage}:checked) .kx-tiles{{display:grid!important}}"]
        rules += [f"{root}:has(.v{n}:checked) .t{n}{{display:block}}" for n in range(len(self._tiles))]
        for unit in range(3):
            rules.append(f"{root}:has(.u{unit}:checked) .f{unit}{{display:block}}")
            rules.append(f"{root}:has(.u{unit}:checked) .b{unit}{{background:var(--kx-on)}}")
        lines = sorted({n for value in self._found.values if (n := self._number(value)) is not None})
        first = ",".join(f"{root}:has(.r{n}:checked) .kx-values .k{n}" for n in lines)
        sheet = style_sheet(__package__, "tiles.css")
        return sheet + "".join(rules) + (f"{first}{{order:-1}}" if first else "")

    def html(self) -> str:
        """Return the pane, which shows by a style sheet alone."""
        left_out = f"<p>{self._left_out} more layouts of this kernel are not drawn here.</p>" if self._left_out else ""
        units = "".join(
            f'<input type="radio" name="{self._uid}-unit" class="u{unit}" id="{self._uid}-u{unit}"'
            f"{' checked' if unit == _FIRST_UNIT else ''}>"
            for unit in range(3)
        )
        tiles = "".join(self._tile(value, number) for number, value in enumerate(self._tiles.values()))
        values = f'<div class="kx-values" aria-label="values with a layout">{"".join(self._values())}</div>'
        content = f"{values}<div>{units}{tiles}{left_out}</div>"
        return f'<form class="kx-tiles" {_HIDDEN}><rp>{without_fallbacks(content)}</rp></form>'

    def drawn_values(self) -> tuple[str, ...]:
        """Return the values whose layouts are drawn, by their names in TTGIR."""
        return tuple(value.name for value in self._found.values if tile_key(value) in self._at)

    def _number(self, value: LaidOutValue) -> int | None:
        return None if value.line is None else self._numbers.get((value.file, value.line))

    def _values(self) -> Iterator[str]:
        chosen = next(iter(self._tiles.values()), None)
        for value in self._found.values:
            tile = self._at.get(tile_key(value))
            if tile is None:
                continue
            line = self._number(value)
            lit = "" if line is None else f' class="k{line}" data-n="{value.line}"'
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
            return f'<div class="t{number}">{words}<p>{escape(error.message)}</p></div>'
        buttons = "".join(
            f'<label class="b{unit}" for="{self._uid}-u{unit}">by {escape(tile.unit)}</label>'
            for unit, tile in enumerate(maps)
        )
        figures = "".join(_figure(tile, unit if len(maps) > 1 else None) for unit, tile in enumerate(maps))
        bar = f'<div class="kx-units">{buttons if len(maps) > 1 else ""}<output></output></div>'
        data = escape(json.dumps(_data(layout, value.element_bits), separators=(",", ":")))
        return f'<div class="t{number}" data-tile="{data}">{words}{bar}{figures}</div>'


def _figure(tile: TileMap, unit: int | None) -> str:
    """Return a map; without a ``unit`` it is the only one of its tile, and shows always."""
    name = "" if unit is None else f' class="f{unit}"'
    size = f"{tile.rows} {tile.columns} {tile.block[0]} {tile.block[1]}"
    caption = f"<figcaption>{escape(tile.caption)}</figcaption>"
    return f'<figure{name} data-map="{size}">{tile_svg(tile)}{caption}</figure>'


def _data(layout: Layout, element_bits: int) -> dict[str, Any]:
    """Return what tells a script who holds each element: bases, or the places of those elements that show."""
    if isinstance(layout, RegisterLayout):
        bases = {"register": layout.registers, "lane": layout.lanes, "warp": layout.warps}
        return {"shape": layout.shape, **bases}
    shown = corner_of(layout.shape)
    if isinstance(layout, MemoryLayout):
        return {"shape": layout.shape, "bits": element_bits, "places": [layout.places[each] for each in shown]}
    return {"shape": layout.shape, "places": [layout.places[each] for each in shown]}
