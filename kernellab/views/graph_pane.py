"""The picture of a graph in a frame of its own: what a static page shows, and what the script adds its tools to."""

from __future__ import annotations

from functools import cache
from html import escape
from importlib import resources

from kernellab.views.style import minified

_SHRINK_TO = 0.8  # smaller text could not be read


@cache
def graph_css() -> str:
    """Return the style sheet of the graph with its tools, minified."""
    return minified(resources.files(__package__).joinpath("graph.css").read_text(encoding="utf-8"))


@cache
def graph_script() -> str:
    """Return the script: an ES module that exports ``graphPane(root, link)``."""
    return resources.files(__package__).joinpath("graph.js").read_text(encoding="utf-8")


def shrinking(picture: str) -> str:
    """Return a picture that shrinks a little where its place is too narrow, before that scrolls."""
    width = int(picture.split(' width="', 1)[1].split('"', 1)[0])
    return picture.replace("<svg ", f'<svg style="max-width:max(100%,{width * _SHRINK_TO:.0f}px)" ', 1)


def graph_pane(picture: str, title: str = "") -> str:
    """Return the frame around a picture, with its style sheet. ``title`` shows where no script adds the tools."""
    shown = shrinking(picture) if picture else ""
    head = f'<div class="kg-head">{escape(title)}</div>' if title else ""
    return f'<div class="kg"><style>{graph_css()}</style>{head}<div class="kg-canvas">{shown}</div></div>'
