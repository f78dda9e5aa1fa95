"""The layouts of a kernel as a card: its values, and for the chosen one who holds which element."""

from __future__ import annotations

from functools import lru_cache
from html import escape

from kernellab.errors import UsageError, plural
from kernellab.ir.layouts import LaidOutValue, Layouts
from kernellab.views.elements import Table, body, framed, header, message, section, style, style_sheet
from kernellab.views.figures.layouts import tile_maps, tile_svg
from kernellab.views.figures.raster import without_fallbacks

MOST_TILES = 12  # of different layouts or shapes


def layouts_html(found: Layouts, uid: str) -> str:
    """Return the card; ``uid`` has to differ between those of one page."""
    words = [
        found.target,
        plural(len(found.values), "value"),
        plural(len({tile_key(value) for value in found.values}), "layout"),
    ]
    return framed(section(header(found.kernel, words), chooser(found, uid)))


def chooser(found: Layouts, uid: str, most: int = MOST_TILES) -> str:
    """Return the values, to choose one of without a script, beside the tile of that which is chosen.

    At most ``most`` layouts are drawn, those of one axis last; values of the others are left out.
    """
    if not found.values:
        return message("kl-note", "No value of its TTGIR has a layout.")
    tiles = tiles_of(found, most)
    numbers = {key: number for number, key in enumerate(tiles)}
    at_first = max(range(len(found.values)), key=lambda at: _interest(found.values[at]))
    labels, rules = [], []
    for at, value in enumerate(found.values):
        number = numbers.get(tile_key(value))
        if number is None:
            continue
        checked = " checked" if at == at_first else ""
        labels.append(
            f'<label title="{escape(str(value.encoding))}"><input type="radio" name="{escape(uid)}" '
            f'class="kl-v{number}"{checked}>{escape(_value_words(value))}</label>'
        )
    for number in range(len(tiles)):
        rules.append(f".kl-card .kl-layouts:has(.kl-v{number}:checked) .kl-t{number}{{display:block!important}}")
    shown = numbers.get(tile_key(found.values[at_first]), 0)
    parts = [_tile(value, number, is_shown=number == shown) for number, value in enumerate(tiles.values())]
    rest = len({tile_key(value) for value in found.values}) - len(tiles)
    more = message("kl-note", f"{plural(rest, 'more layout')} of this kernel are not drawn here.") if rest else ""
    sheet = f"<style>{style_sheet(__package__, 'layouts.css')}{''.join(rules)}</style>"
    # Without a style sheet all tiles would show; so all but the first are hidden until theirs is chosen.
    form = f'<form class="kl-layouts"><div class="kl-values">{"".join(labels)}</div>{"".join(parts)}</form>'
    return sheet + form + more


def layouts_text(found: Layouts) -> str:
    """Return a row for each value."""
    rows = [(each.name, each.operation, _lines(each), type_words(each), str(each.encoding)) for each in found.values]
    table = Table(("value", "made by", "line", "type", "layout"), rows)
    return "\n".join([f"{found.kernel}  {found.target}", *(f"  {line}" for line in table.text())])


Key = tuple[str, tuple[int, ...], int]


def tile_key(value: LaidOutValue) -> Key:
    """Return what decides how a value is drawn."""
    return str(value.encoding), value.shape, value.element_bits if "shared" in value.encoding.kind else 0


def tiles_of(found: Layouts, most: int) -> dict[Key, LaidOutValue]:
    """Return a value for each layout and shape that is drawn, ``most`` of them, what tells most first."""
    tiles: dict[Key, LaidOutValue] = {}
    for value in sorted(found.values, key=_interest, reverse=True):
        if len(tiles) < most:
            tiles.setdefault(tile_key(value), value)
    return tiles


_PRODUCTS = {"nvidia_mma": 4, "amd_mfma": 4, "amd_wmma": 4, "tensor_memory_encoding": 4}
_INTEREST = {"slice": 0, "blocked": 1, "dot_op": 3, **_PRODUCTS}  # what lies in shared memory comes between


def _interest(value: LaidOutValue) -> tuple[bool, int]:
    """Return what is drawn first: results of tensor cores, then operands and shared memory, whole tiles before rows."""
    kind = value.encoding.kind
    return min(value.shape, default=1) > 1, _INTEREST.get(kind, 2)


def _value_words(value: LaidOutValue) -> str:
    line = f"line {_lines(value)}  " if value.line is not None else ""
    return f"{line}{value.name}  {type_words(value)}  {value.encoding.kind}"


def _lines(value: LaidOutValue) -> str:
    return "" if value.line is None else str(value.line)


def type_words(value: LaidOutValue) -> str:
    """Return buffers, shape and element of a value."""
    buffers = f"{value.buffers} x " if value.buffers > 1 else ""
    return f"{buffers}{'x'.join(map(str, value.shape))} {value.element}"


def _tile(value: LaidOutValue, number: int, *, is_shown: bool) -> str:
    drawn = _drawn(_Drawing(value))
    if is_shown:
        return f'<div class="kl-tile kl-t{number}">{drawn}</div>'
    return f'<div class="kl-tile kl-t{number}" style="display:none"><rp>{without_fallbacks(drawn)}</rp></div>'


class _Drawing:
    """A value as the key of what is drawn of it."""

    def __init__(self, value: LaidOutValue) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Drawing) and tile_key(self.value) == tile_key(other.value)

    def __hash__(self) -> int:
        return hash(tile_key(self.value))


@lru_cache(maxsize=64)
def _drawn(drawing: _Drawing) -> str:
    """Return the pictures of a layout, with their captions."""
    value = drawing.value
    words = f'<p class="kl-caption">{escape(str(value.encoding))}, {escape(type_words(value))}</p>'
    try:
        maps = tile_maps(value.layout, value.element_bits)
    except UsageError as error:
        return words + message("kl-note", error.message)
    return words + "".join(
        f"<figure>{tile_svg(tile)}<figcaption>{escape(tile.caption)}</figcaption></figure>" for tile in maps
    )


def layout_html(value: LaidOutValue) -> str:
    """Return the card of one value."""
    return framed(body(style(__package__, "layouts.css"), _tile(value, 0, is_shown=True)))
