"""How results show themselves, in any front end.

IPython (so Jupyter, VS Code, Colab and nbclient) asks an object for ``_repr_mimebundle_`` and ``_repr_html_``
(https://ipython.readthedocs.io/en/stable/config/integrating.html), marimo for ``_mime_``
(https://docs.marimo.io/guides/integrating_with_marimo/displaying_objects/). Results lie in rooms below the views, so
they ask a hook, which the package points to the views; these are imported when the first result shows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

Bundle = dict[str, Any]
"""What a result shows, by MIME type; ``text/plain`` is always there."""


class DisplayHook:
    """Finds the renderer of a result. ``find`` returns a function from a result to its bundle.

    ``on_show`` is told of each result that is about to be shown.
    """

    def __init__(self) -> None:
        self._find: Callable[[], Callable[[Any], Bundle]] | None = None
        self.on_show: Callable[[object], None] | None = None

    def install(self, find: Callable[[], Callable[[Any], Bundle]]) -> None:
        """Set the function that finds renderers."""
        self._find = cache(find)

    def bundle(self, result: object) -> Bundle:
        """Return the display of a result; its `repr` where nothing is installed."""
        if self.on_show is not None:
            self.on_show(result)
        return {"text/plain": repr(result)} if self._find is None else self._find()(result)


HOOK = DisplayHook()


class Displayable:
    """A result that shows as a card wherever it stands last in a cell, whether the extension is loaded or not."""

    __slots__ = ()

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> Bundle:
        """Return the display for IPython."""
        return HOOK.bundle(self)

    def _repr_html_(self) -> str | None:
        """Return HTML for front ends that ask for nothing else; None where the result is text."""
        html = HOOK.bundle(self).get("text/html")
        return None if html is None else str(html)

    def _mime_(self) -> tuple[str, str]:
        """Return the display for marimo: a MIME type and the text of that type."""
        bundle = HOOK.bundle(self)
        kind = "text/html" if "text/html" in bundle else "text/plain"
        return kind, str(bundle[kind])
