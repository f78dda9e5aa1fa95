"""A card is a list of blocks. Each block is written once; it has lines for a terminal and HTML for a notebook.

``lines(width)`` returns lines of at most ``width`` characters where they can be broken; `UNLIMITED` breaks none.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from html import escape
from itertools import chain
from typing import Any, Protocol, TypeVar

from kernellab.views.elements import dim, style, text_html, title

UNLIMITED = 1_000_000
WIDTH = 100
_INDENT = "  "
WARNING = "kl-note kl-warn"
Row = TypeVar("Row")


class Block(Protocol):
    """A part of a card."""

    def lines(self, width: int) -> list[str]:
        """Return the block as text; [] where a terminal does not show it."""
        ...

    def html(self) -> str:
        """Return the block as HTML; "" where a page does not show it."""
        ...


@dataclass(frozen=True, slots=True)
class Card:
    """Sections of blocks, rendered as lines of at most ``width`` characters or as HTML."""

    sections: Sequence[Section]
    width: int = UNLIMITED

    def text(self) -> str:
        """Return the lines; an empty one separates sections."""
        return "\n\n".join(filter(None, ("\n".join(section.lines(self.width)) for section in self.sections)))

    def html(self) -> str:
        """Return one ``<div>`` with its style sheet."""
        return "\n".join(['<div class="kl-card">', style(__package__, "card.css"), html_of(self.sections), "</div>"])

    __repr__ = text
    _repr_html_ = html


def lines_of(blocks: Sequence[Block], width: int = UNLIMITED) -> list[str]:
    """Return the lines of some blocks, one after the other."""
    return [*chain.from_iterable(block.lines(width) for block in blocks)]


def html_of(blocks: Sequence[Block]) -> str:
    """Return the HTML of some blocks, one after the other."""
    return "\n".join(filter(None, (block.html() for block in blocks)))


def wrap_text(text: str, width: int, indent: str = "") -> list[str]:
    """Return a text as lines; those after the first are indented."""
    if len(indent) + len(text) <= width:
        return [indent + text]
    return textwrap.wrap(
        text, width, initial_indent=indent, subsequent_indent=indent + _INDENT, break_on_hyphens=False
    ) or [indent]


def wrap_lines(texts: Iterable[str], width: int, indent: str = "") -> list[str]:
    """Return the lines of each text, one after the other."""
    return [*chain.from_iterable(wrap_text(text, width, indent) for text in texts)]


def join_parts(parts: Sequence[str], width: int, separator: str) -> list[str]:
    """Return parts on as few lines as hold them, broken between parts where one fits a line."""
    lines = [parts[0]]
    for part in parts[1:]:
        if len(lines[-1]) + len(separator) + len(part) > width:
            lines.append(_INDENT + part)
        else:
            lines[-1] += separator + part
    wrapped = (wrap_text(line.strip(), width, line[: len(line) - len(line.lstrip())]) for line in lines)
    return [*chain.from_iterable(wrapped)]


@dataclass(frozen=True, slots=True)
class Heading:
    """The title line: name and version, then facts, some of them with tooltips (``tips``, by fact)."""

    label: str
    facts: Sequence[str] = ()
    tips: Mapping[str, str] = field(default_factory=dict)
    in_text: bool = True

    def lines(self, width: int) -> list[str]:
        """Return name and facts in a row."""
        return join_parts([self.label, *self.facts], width, _INDENT) if self.in_text else []

    def html(self) -> str:
        """Return the title line."""
        name, _, version = self.label.partition("@")
        tail = f'<span class="kl-version">@{escape(version)}</span>' if version else ""
        facts = " ".join(f"<span{title(self.tips.get(fact, ''))}>{escape(fact)}</span>" for fact in self.facts)
        heading = f'<span class="kl-name">{escape(name)}{tail}</span>'
        return f'<div class="kl-head">{heading} <span class="kl-facts">{facts}</span></div>'


@dataclass(frozen=True, slots=True)
class Section:
    """Blocks under a heading, or without one; in a terminal they are indented by ``indent``."""

    heading: Heading | None
    blocks: Sequence[Block]
    indent: str = ""

    def lines(self, width: int) -> list[str]:
        """Return the heading, then the blocks."""
        head = [] if self.heading is None else self.heading.lines(width)
        return [*head, *(self.indent + line for line in lines_of(self.blocks, width - len(self.indent)))]

    def html(self) -> str:
        """Return the part of a card that belongs to one kernel."""
        content = f'<div class="kl-body">{html_of(self.blocks)}</div>'
        if self.heading is None:
            return content
        return f'<section class="kl-kernel">{self.heading.html()}\n{content}</section>'


@dataclass(frozen=True, slots=True)
class Message:
    """A sentence; ``style`` are CSS classes, ``prefix`` stands before it in a terminal only."""

    words: str
    style: str = "kl-note"
    prefix: str = ""
    in_text: bool = True

    def lines(self, width: int) -> list[str]:
        """Return the sentence."""
        return wrap_text(f"{self.prefix}{self.words}", width) if self.in_text else []

    def html(self) -> str:
        """Return a paragraph."""
        return f'<p class="{self.style}">{text_html(self.words)}</p>'


def notes(sentences: Sequence[str], prefix: str = "") -> list[Block]:
    """Return a message for each sentence."""
    return [Message(sentence, prefix=prefix) for sentence in sentences]


@dataclass(frozen=True, slots=True)
class PlainText:
    """Text as it is, such as a source; ``caption`` stands above it in a terminal."""

    text: str
    caption: str = ""
    css: str = ""

    def lines(self, width: int) -> list[str]:
        """Return the lines, below the caption and indented where there is one."""
        lines = self.text.rstrip("\n").splitlines()
        if not self.caption:
            return lines
        return [self.caption, *wrap_lines(lines, width, _INDENT)]

    def html(self) -> str:
        """Return a ``<pre>``."""
        css = f' class="{self.css}"' if self.css else ""
        return f"<pre{css}>\n{escape(self.text)}</pre>"


@dataclass(frozen=True, slots=True)
class Drawing:
    """HTML such as a picture, drawn when the card is rendered; a terminal shows ``lines``, by default none."""

    html: Callable[[], str]
    lines: Callable[[int], list[str]] = lambda _: []


def text_only(text: Sequence[str]) -> Drawing:
    """Return lines that a terminal shows in place of a picture."""
    return Drawing(lambda: "", partial(wrap_lines, text))


@dataclass(frozen=True, slots=True)
class Fold:
    """Blocks that fold on a page, with a remark in the summary line; empty where they are empty."""

    summary: str
    blocks: Sequence[Block]
    detail: str = ""
    is_open: bool = False

    def lines(self, width: int) -> list[str]:
        """Return the lines of the blocks."""
        return lines_of(self.blocks, width)

    def html(self) -> str:
        """Return a ``<details>``."""
        content = html_of(self.blocks)
        if not content:
            return ""
        extra = dim(f" {self.detail}") if self.detail else ""  # the space shows where styles are dropped
        tag = "<details open>" if self.is_open else "<details>"
        return f"{tag}<summary>{escape(self.summary)}{extra}</summary>\n{content}\n</details>"


@dataclass(frozen=True, slots=True)
class Table:
    """Cells of text under a head; nothing without rows. ``tips`` are tooltips of rows.

    ``left`` names the columns that are aligned to the left, where the others are aligned to the right. A terminal shows
    ``most_lines`` rows, and says where the rest is of all ``count`` (None: of these rows). ``code`` names the columns
    of source text, which is not wrapped.
    """

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    tips: Sequence[str] = ()
    left: Collection[str] = ()
    most_lines: int = UNLIMITED
    rest_is: str = "in .frame"
    count: int | None = None
    code: Collection[str] = ()

    def without_empty_columns(self) -> Table:
        """Return the table without the columns that are empty in every row."""
        kept = [at for at in range(len(self.head)) if any(row[at] for row in self.rows)]
        rows = [[row[at] for at in kept] for row in self.rows]
        return replace(self, head=[self.head[at] for at in kept], rows=rows)

    def lines(self, _width: int = UNLIMITED) -> list[str]:
        """Return aligned columns, the head first."""
        lines = [self.head, *self.rows[: self.most_lines]] if self.rows else []
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        padded = ([cell.ljust(width) for cell, width in zip(line, widths, strict=True)] for line in lines)
        rest = (len(self.rows) if self.count is None else self.count) - self.most_lines
        more = [f"... and {rest} more {self.rest_is}"] if rest > 0 else []
        return [*("  ".join(line).rstrip() for line in padded), *more]

    def html(self) -> str:
        """Return a ``<table>``."""
        if not self.rows:
            return ""
        sides = ["left" if name in self.left else "right" for name in self.head]
        styles = [f' style="text-align:{side}"' if self.left else "" for side in sides]
        head = [f'<th scope="col"{css}>{escape(name)}</th>' for name, css in zip(self.head, styles, strict=True)]
        classes = [' class="kl-code"' if name in self.code else "" for name in self.head]
        cell_styles = [f"{kind}{css}" for kind, css in zip(classes, styles, strict=True)]
        rows = []
        for row, tip in zip(self.rows, self.tips or [""] * len(self.rows), strict=True):
            cells = (f"<td{css}>{escape(cell)}</td>" for cell, css in zip(row, cell_styles, strict=True))
            rows.append(f"<tr{title(tip)}>{''.join(cells)}</tr>")
        return html_table(rows, head)


def table_of(columns: Mapping[str, Callable[[Row], str]], rows: Sequence[Row], **options: Any) -> Table:
    """Return a table with a column for each function of a row; columns that are empty in every row are left out."""
    cells = [[write(row) for write in columns.values()] for row in rows]
    return Table([*columns], cells, **options).without_empty_columns()


def html_table(rows: Iterable[str], head: Iterable[str] = (), style: str = "") -> str:
    """Return a table of the card: elements ``<tr>`` under those of ``head``, ``<th>``; ``style`` are CSS classes."""
    above = f"<thead><tr>{''.join(head)}</tr></thead>" if head else ""
    return f'<table class="{f"kl-args {style}".strip()}">{above}<tbody>{"".join(rows)}</tbody></table>'
