"""The style sheet of the card, from ``card.css`` beside this file, and how a style sheet is made short."""

from __future__ import annotations

import re
from functools import cache
from importlib import resources


@cache
def card_css() -> str:
    """Return the style sheet of the card, minified."""
    return minified(resources.files(__package__).joinpath("card.css").read_text(encoding="utf-8"))


def minified(text: str) -> str:
    """Return a style sheet without comments and without needless white space."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    text = re.sub(r"\s+", " ", text)
    return re.sub(r" ?([{};,]) ?", r"\1", text).replace(";}", "}").replace(": ", ":").strip()
