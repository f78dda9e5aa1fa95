"""What all views share of HTML and text: pages, style sheets, the parts of a card, tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from html import escape
from importlib import resources

from kernellab.ir.effects import Access
from kernellab.views.wording import MARKS


@cache
def file_text(package: str | None, name: str) -> str:
    """Return the text of a file that lies in a package."""
    assert package is not None
    return resources.files(package).joinpath(name).read_text(encoding="utf-8")


@cache
def style_sheet(package: str | None, name: str) -> str:
    """Return a style sheet that lies in a package, minified."""
    return minified(file_text(package, name))


def style(package: str | None, name: str) -> str:
    """Return a style sheet that lies in a package as an element."""
    return f"<style>{style_sheet(package, name)}</style>"


def minified(text: str) -> str:
    """Return a style sheet without comments and without needless white space."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    text = re.sub(r"\s+", " ", text)
    return re.sub(r" ?([{};,]) ?", r"\1", text).replace(";}", "}").replace(": ", ":").strip()


_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
{style}
</style>
</head>
<body>
{body}
</body>
</html>
"""


def html_page(title: str, style: str, body: str) -> str:
    """Return the whole file; ``title`` is text, ``style`` a style sheet and ``body`` HTML."""
    return _PAGE.format(title=escape(title), style=style.strip(), body=body)


def framed(*parts: str) -> str:
    """Return the card around its sections, with its style sheet."""
    return "\n".join(['<div class="kl-card">', style(__package__, "card.css"), *parts, "</div>"])


def body(*parts: str) -> str:
    """Return a part of a card that has no heading."""
    return f'<div class="kl-body">{"".join(parts)}</div>'


def section(heading: str, *parts: str) -> str:
    """Return one kernel's part of a card."""
    return "\n".join(['<section class="kl-kernel">', heading, '<div class="kl-body">', *parts, "</div></section>"])


def header(label: str, words: Iterable[str], tips: Mapping[str, str] | None = None) -> str:
    """Return the title line: name and version, then the facts, some of them with ``tips``."""
    name, _, version = label.partition("@")
    tail = f'<span class="kl-version">@{escape(version)}</span>' if version else ""
    facts = " ".join(f"<span{title((tips or {}).get(word, ''))}>{escape(word)}</span>" for word in words)
    heading = f'<span class="kl-name">{escape(name)}{tail}</span>'
    return f'<div class="kl-head">{heading} <span class="kl-facts">{facts}</span></div>'


def message(style: str, text: str) -> str:
    """Return a paragraph; ``style`` are CSS classes, such as ``kl-note kl-warn``."""
    return f'<p class="{style}">{escape(text)}</p>'


def warning(text: str) -> str:
    """Return a paragraph that must not be overlooked."""
    return message("kl-note kl-warn", text)


def dim(text: str) -> str:
    """Return text of little weight."""
    return f'<span class="kl-dim">{escape(text)}</span>'


def title(tip: str) -> str:
    """Return the attribute with which an element tells a tip; "" for none."""
    return f' title="{escape(tip)}"' if tip else ""


def details(summary: str, content: str, detail: str = "", *, is_open: bool = False) -> str:
    """Return a part that folds, with a remark beside its summary; "" where there is nothing to show."""
    if not content:
        return ""
    extra = dim(f" {detail}") if detail else ""  # the space shows where styles are dropped
    return f"<details{' open' if is_open else ''}><summary>{escape(summary)}{extra}</summary>\n{content}\n</details>"


def code_line(text: str) -> str:
    """Return a line of source whose indentation stays where style sheets are dropped, as on code hosts.

    It is made of spaces that do not break; what is copied has plain ones, browsers see to that.
    """
    line = text.expandtabs(4)
    bare = line.lstrip(" ")
    return "\u00a0" * (len(line) - len(bare)) + escape(bare)


def badge(kind: Access, text: str, *, word: str = "", tip: str = "") -> str:
    """Return the mark of an access, told by shape and word beside its colour."""
    head = f"{MARKS[kind]} {word}".rstrip()
    return f'<span class="kl-badge kl-{kind}"{title(tip)}><b>{head}</b>{" " if text else ""}{escape(text)}</span>'


@dataclass(frozen=True, slots=True)
class Table:
    """Cells of text under a head; ``tips`` are what hovering over a row tells."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    tips: Sequence[str] = ()

    def filled(self) -> Table:
        """Return the table without the columns in which no row says anything."""
        told = [at for at in range(len(self.head)) if any(row[at] for row in self.rows)]
        return replace(self, head=[self.head[at] for at in told], rows=[[row[at] for at in told] for row in self.rows])

    def text(self) -> list[str]:
        """Return aligned columns for a terminal, the head first."""
        lines = [self.head, *self.rows]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        padded = ([cell.ljust(width) for cell, width in zip(line, widths, strict=True)] for line in lines)
        return ["  ".join(line).rstrip() for line in padded]

    def html(self, aligned: Mapping[str, str] | None = None) -> str:
        """Return a table; ``aligned`` gives columns their ``text-align``, which is else "right"."""
        styles = [f' style="text-align:{aligned.get(name, "right")}"' if aligned else "" for name in self.head]
        titles = (f'<th scope="col"{each}>{escape(name)}</th>' for name, each in zip(self.head, styles, strict=True))
        rows = []
        for at, row in enumerate(self.rows):
            cells = "".join(f"<td{each}>{escape(cell)}</td>" for cell, each in zip(row, styles, strict=True))
            tip = f' title="{escape(self.tips[at])}"' if self.tips else ""
            rows.append(f"<tr{tip}>{cells}</tr>")
        head = "".join(titles)
        return f'<table class="kl-args"><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table>'


def number(value: float | None, pattern: str) -> str:
    """Return a number in a pattern of `format`; "" where it is not known."""
    return "" if value is None else format(value, pattern)


def interval(low: float | None, high: float | None) -> str:
    """Return ``1.01 - 1.03``; "" where it is not known."""
    return "" if low is None or high is None else f"{low:.4g} - {high:.4g}"
