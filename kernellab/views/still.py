"""Widgets with a static picture for pages where they are not alive: a saved notebook, a code host, a terminal."""

from __future__ import annotations

from typing import Any

import anywidget

# Of the picture and the widget, which stand one below the other, one shows: the picture where the widget is not alive.
_BESIDE = """<style>
.jp-OutputArea-child:has(.kl-still):has(+ .jp-OutputArea-child .kl-live),
.jp-OutputArea-child:has(.kl-still) + .jp-OutputArea-child:not(:has(.kl-live)) { display: none; }
</style>"""


class WidgetWithStill(anywidget.AnyWidget):
    """A widget whose page marks itself with the class ``kl-live`` once it is alive."""

    def still(self) -> str:
        """Return the static picture for pages where the widget is not alive."""
        raise NotImplementedError

    def words(self) -> str:
        """Return the text for a terminal."""
        raise NotImplementedError

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        """Give pages without widgets the static picture."""
        data, metadata = self._live()
        return {**data, "text/html": self.still(), "text/plain": self.words()}, metadata

    def _ipython_display_(self) -> None:
        """Show the widget and its static picture, for a notebook without a kernel."""
        from IPython.display import display

        words = {"text/plain": self.words()}
        beside = display({**words, "text/html": f'<div class="kl-still">{_BESIDE}</div>'}, raw=True, display_id=True)
        display({**self._live()[0], **words}, raw=True)
        beside.update({**words, "text/html": f'<div class="kl-still">{_BESIDE}{self.still()}</div>'}, raw=True)

    def _live(self) -> tuple[dict[str, Any], dict[str, Any]]:
        bundle: Any = super()._repr_mimebundle_()
        return bundle if isinstance(bundle, tuple) else (bundle or {}, {})
