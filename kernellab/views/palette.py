"""The colours of all pictures, figures and style sheets; no other file states one.

The named colours read on white and on black alike; figures of matplotlib have darker and lighter tones of them, in
`LIGHT` and `DARK`. A style sheet writes ``$blue``, or ``rgba($blue,.2)`` (`fill_in`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

BLUE, ORANGE, PURPLE, GREEN, RED = "#2b83dc", "#e06c12", "#a855e8", "#0f9d75", "#e03e4a"
GREY, YELLOW, TEAL, MAGENTA = "#80868f", "#c9a227", "#0ea5b7", "#c026d3"
SCALE_COLOURS = ("#440154", "#414487", "#2a788e", "#22a884", "#7ad151", "#fde725")  # viridis, from low to high
MARK = "#e0a010"  # what the user chose
INK, WHITE, BLACK = "#1f2328", "#ffffff", "#000000"
READ, WRITE, ATOMIC = BLUE, ORANGE, PURPLE
GOOD, WARNING, BAD = GREEN, ORANGE, RED
SERIES = (BLUE, ORANGE, GREEN, PURPLE, RED, YELLOW, TEAL, GREY)  # what has a number

_TEXT = "var(--jp-content-font-color1,var(--vscode-foreground,CanvasText))"
TEXT_COLOURS = (RED, ORANGE)  # those that text may have, as `$redtext` and `$orangetext`
TEXT_SHARE = 0.55  # of a colour in text, of which the rest is the text colour of the page: 4.5:1 in light and dark


def text_tone(colour: str) -> str:
    """Return a colour for text, as CSS: mixed with the text colour of the page, so that it reads in light and dark."""
    return f"color-mix(in srgb,{colour} {TEXT_SHARE:.0%},{_TEXT})"


_VARIABLES = {
    **{name.lower(): colour for name, colour in globals().items() if name.isupper() and isinstance(colour, str)},
    "line": f"rgba({GREY},.32)",
    "soft": f"rgba({GREY},.1)",
    # The colours and fonts of the page: Jupyter's variables, VS Code's, else those of the system.
    "text": _TEXT,
    "redtext": text_tone(RED),
    "orangetext": text_tone(ORANGE),
    "paper": "var(--jp-layout-color0,var(--vscode-editor-background,Canvas))",
    "sans": 'var(--jp-ui-font-family,system-ui,-apple-system,"Segoe UI",sans-serif)',
    "mono": "var(--jp-code-font-family,var(--vscode-editor-font-family,ui-monospace,Menlo,Consolas,"
    '"DejaVu Sans Mono",monospace))',
}


def tones(colour: str) -> tuple[int, ...]:
    """Return red, green and blue of ``#rrggbb``, from 0 to 255."""
    return tuple(bytes.fromhex(colour.lstrip("#")))


def with_opacity(colour: str, share: float) -> str:
    """Return a colour of the palette with an opacity from 0 to 1, as CSS."""
    return f"rgba({','.join(map(str, tones(colour)))},{share:.2f})"


def fill_in(sheet: str) -> str:
    """Return a style sheet with the values of its ``$names``.

    Raises:
        KeyError: the palette has no such name.
    """
    sheet = re.sub(r"\$([a-z]+)", lambda match: _VARIABLES[match[1]], sheet)
    return re.sub(r"rgba\((#\w{6})", lambda match: f"rgba({','.join(map(str, tones(match[1])))}", sheet)


@dataclass(frozen=True, slots=True)
class Theme:
    """The colours of a figure; winner, tie, other and failure differ in lightness too, ``series`` by their markers.

    ``differs`` is for what ran well and differs from most.
    """

    background: str
    text: str
    faint: str
    winner: str
    tied: str
    other: str
    failed: str
    differs: str
    series: tuple[str, ...]


LIGHT = Theme(
    WHITE,
    INK,
    "#d7dbe0",
    "#0a7d38",
    "#5aa9e6",
    "#6e7781",
    "#c4432b",
    "#946200",
    ("#0969da", "#bc4c00", "#0a7d38", "#8250df", "#946200", "#a40e60"),
)
DARK = Theme(
    "#14171a",
    "#e6e9ec",
    "#363c43",
    "#4cd07d",
    "#2f81c7",
    "#98a2ad",
    "#ff8a6b",
    "#d9b23c",
    ("#58a6ff", "#f0883e", "#4cd07d", "#bc8cff", "#d9b23c", "#ff7bbd"),
)
