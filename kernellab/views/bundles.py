"""What each type of result shows, by MIME type: HTML for notebooks, text for terminals.

The report of a cell is the first that most sessions show, so what the others need is imported with the first of them.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from kernellab.display import Bundle
from kernellab.views.blocks import Card
from kernellab.views.cards.card import cell_card
from kernellab.views.figures.raster import with_fallbacks
from kernellab.views.report import CellReport, summary

SUMMARY_MIME = "application/vnd.kernellab.summary+json"


@runtime_checkable
class OwnView(Protocol):
    """A result of a room above the views, which brings its card, the rows of its table and its JSON."""

    def card(self) -> Card:
        """Return the card."""

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of a ``.csv``, all with the same fields; one at least."""

    def as_json(self) -> str:
        """Return all fields as JSON."""


def bundle_of(result: Any) -> Bundle:
    """Return the display of a result by MIME type; ``text/plain`` is always there."""
    if isinstance(result, CellReport):
        return {**bundle_of_card(cell_card(result)), SUMMARY_MIME: summary(result)}
    if isinstance(result, OwnView):
        return bundle_of_card(result.card())
    from kernellab.views.card_table import BUNDLES

    kind = next((kind for kind in type(result).__mro__ if kind in BUNDLES), None)
    shown = {"text/plain": repr(result)} if kind is None else BUNDLES[kind](result)
    return bundle_of_card(shown) if isinstance(shown, Card) else shown


def bundle_of_card(card: Card) -> Bundle:
    """Return a card as text and as HTML."""
    return {"text/plain": card.text(), "text/html": with_fallbacks(card.html())}
