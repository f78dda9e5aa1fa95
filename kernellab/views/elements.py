"""What all views in HTML share: pages, style sheets, the mark of a memory access."""

from __future__ import annotations

import re
from functools import cache
from html import escape
from importlib import resources

from kernellab.ir.effects import Access
from kernellab.views.wording import MARKS


@cache
def card_css() -> str:
    """Return the style sheet of the card, minified."""
    return minified(resources.files(__package__).joinpath("card.css").read_text(encoding="utf-8"))


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


def badge(kind: Access, text: str, *, word: str = "", tip: str = "") -> str:
    """Return the mark of an access, told by shape and word beside its colour."""
    head = f"{MARKS[kind]} {word}".rstrip()
    title = f' title="{escape(tip)}"' if tip else ""
    return f'<span class="kl-badge kl-{kind}"{title}><b>{head}</b>{" " if text else ""}{escape(text)}</span>'
