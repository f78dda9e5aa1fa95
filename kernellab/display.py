"""How results show themselves in any front end, are drawn as figures, and are saved.

IPython (so Jupyter, VS Code, Colab and nbclient) asks an object for ``_repr_mimebundle_`` and ``_repr_html_``
(https://ipython.readthedocs.io/en/stable/config/integrating.html), marimo for ``_mime_``
(https://docs.marimo.io/guides/integrating_with_marimo/displaying_objects/). Results lie in rooms below the views, so
they ask a hook, which the package points to the views; these are imported when the first result shows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Bundle = dict[str, Any]
"""What a result shows, by MIME type; ``text/plain`` is always there."""


class Bundles(Protocol):
    """The displays of results: `kernellab.views.bundles`."""

    def bundle_of(self, result: Any, /) -> Bundle:
        """Return the display of a result."""


class Views(Protocol):
    """The figures, pages and files of results: `kernellab.views.rendering`."""

    def figure_of(self, result: Any, kind: str | None, /, *, dark: bool, **options: Any) -> Figure:
        """Return a figure of a result."""

    def page_of(self, result: Any, /) -> str:
        """Return a result as an HTML page."""

    def save_result(self, result: Any, path: str | Path, /, **options: Any) -> Path:
        """Write a result as a file."""


class DisplayHook:
    """Finds the views of results. ``on_show`` is called before a result shows."""

    def __init__(self) -> None:
        self._find_bundles: Callable[[], Bundles] | None = None
        self._find_views: Callable[[], Views] | None = None
        self.on_show: Callable[[object], None] | None = None

    def install(self, find_bundles: Callable[[], Bundles], find_views: Callable[[], Views]) -> None:
        """Set the functions that find the displays, and the other views."""
        self._find_bundles, self._find_views = cache(find_bundles), cache(find_views)

    @property
    def views(self) -> Views:
        """The figures, pages and files; the package installs them."""
        assert self._find_views is not None, "import kernellab installs the views"
        return self._find_views()

    def bundle(self, result: object) -> Bundle:
        """Return the display of a result; its `repr` where nothing is installed."""
        if self.on_show is not None:
            self.on_show(result)
        return {"text/plain": repr(result)} if self._find_bundles is None else self._find_bundles().bundle_of(result)


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


class Savable(Displayable):
    """A result that can be saved as a page, a table or JSON."""

    __slots__ = ()

    def to_html(self) -> str:
        """Return the result as one HTML page, light or dark as its reader's system, which needs no network."""
        return HOOK.views.page_of(self)

    def save(self, path: str | Path) -> Path:
        """Write the result as a file and return its path: ``.html``, ``.csv`` or ``.json`` by its suffix.

        ``.html`` is the page of `to_html`, ``.csv`` the rows as a table, ``.json`` all fields as ``--json`` prints
        them. A file that exists is replaced as a whole.

        Raises:
            UsageError: the suffix is another one, or the file cannot be written.
        """
        return HOOK.views.save_result(self, path)


class Drawable(Savable):
    """A result that can also be drawn as a figure, and saved as one."""

    __slots__ = ()

    def plot(self, kind: str | None = None, *, dark: bool = False, **options: Any) -> Figure:
        """Draw the result as a matplotlib figure, on white or, with ``dark``, on black.

        ``kind`` names one of several figures, and ``options`` are those of that figure; the page of results lists both.
        The first kind is the default. It can always be drawn: where there is nothing to draw, it says why.

        Raises:
            UsageError: there is no such kind or option, or a figure that was named has nothing to show.
        """
        return HOOK.views.figure_of(self, kind, dark=dark, **options)

    def save(self, path: str | Path, kind: str | None = None, *, dark: bool = False, **options: Any) -> Path:
        """Write the result as a file and return its path; the suffix decides what is written.

        ``.html`` is the page of `to_html`, ``.png`` and ``.svg`` the figure of `plot` with its options, ``.csv`` the
        rows as a table, ``.json`` all fields as ``--json`` prints them. A file that exists is replaced as a whole.

        Raises:
            UsageError: the suffix is another one, the figure cannot be drawn, or the file cannot be written.
        """
        return HOOK.views.save_result(self, path, kind=kind, dark=dark, **options)
