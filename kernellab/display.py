"""How results show themselves: the methods that front ends ask any object for, and the hook that answers them.

IPython (so Jupyter, VS Code, Colab and nbclient) asks for ``_repr_mimebundle_`` and ``_repr_html_``
(https://ipython.readthedocs.io/en/stable/config/integrating.html), marimo for ``_mime_``
(https://docs.marimo.io/guides/integrating_with_marimo/displaying_objects/). Results lie in rooms below the views, so
none of them knows how it looks: they ask the hook, and the package tells it once where the views are. These are
imported when the first result shows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Bundle = dict[str, Any]
"""What a result shows, by MIME type; ``text/plain`` is always there."""


class DisplayHook:
    """Knows who draws results. ``find`` returns a function from a result to its bundle, and may import for it."""

    def __init__(self) -> None:
        self._find: Callable[[], Callable[[Any], Bundle]] | None = None

    def install(self, find: Callable[[], Callable[[Any], Bundle]]) -> None:
        """Let a function find who draws results."""
        self._find = find

    def bundle(self, result: object) -> Bundle:
        """Return what a result shows; its `repr` where nobody draws."""
        return {"text/plain": repr(result)} if self._find is None else self._find()(result)


HOOK = DisplayHook()


class Shown:
    """A result that shows as a card wherever it stands last in a cell, whether the extension is loaded or not."""

    __slots__ = ()

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> Bundle:
        """Return what IPython shows."""
        return HOOK.bundle(self)

    def _repr_html_(self) -> str | None:
        """Return what front ends show that ask for HTML alone; None where the result is text."""
        html = HOOK.bundle(self).get("text/html")
        return None if html is None else str(html)

    def _mime_(self) -> tuple[str, str]:
        """Return what marimo shows: a MIME type and the text of that type."""
        bundle = HOOK.bundle(self)
        kind = "text/html" if "text/html" in bundle else "text/plain"
        return kind, str(bundle[kind])
