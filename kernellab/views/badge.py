"""The mark of a memory access in HTML."""

from __future__ import annotations

from html import escape

from kernellab.ir.effects import Access
from kernellab.views.wording import MARKS


def badge(kind: Access, text: str, *, word: str = "", tip: str = "") -> str:
    """Return the mark of an access, told by shape and word beside its colour."""
    head = f"{MARKS[kind]} {word}".rstrip()
    title = f' title="{escape(tip)}"' if tip else ""
    return f'<span class="kl-badge kl-{kind}"{title}><b>{head}</b>{" " if text else ""}{escape(text)}</span>'
