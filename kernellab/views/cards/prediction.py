"""The predicted time of a launch as a card: one sentence, the time of each unit alone, and what was assumed."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from kernellab.errors import share_text, time_text
from kernellab.explain.prediction import Prediction
from kernellab.views.blocks import Block, Card, Drawing, Heading, Message, Section, html_table, notes
from kernellab.views.elements import predicted_words, share_bar

_LEAST_SHOWN = 0.02  # of the time of the launch


def prediction_card(prediction: Prediction) -> Card:
    """Return the predicted time of a launch with its terms."""
    terms, total_s = {name: ms / 1e3 for name, ms in prediction.terms.items()}, prediction.time_ms / 1e3
    lines = [f"  {name:<20}{time_text(seconds):>9}" for name, seconds in _longest_terms(terms, total_s)]
    blocks: list[Block] = [
        Message(prediction_sentence(prediction)),
        Drawing(lambda: terms_table(terms, total_s), lambda width: lines),
        *notes(prediction.unknown),
    ]
    return Card([Section(Heading(prediction.kernel, [prediction.device, prediction.target]), blocks)])


def prediction_sentence(prediction: Prediction) -> str:
    """Return ``Predicted 37 us (28 us to 47 us) on H200, limited by HBM; 80 % of the roofline.``"""
    time = predicted_words(prediction.time_ms, prediction.low_ms, prediction.high_ms)
    share = f"; {share_text(prediction.share)} of the roofline"
    return f"Predicted {time} on {prediction.device}, limited by {prediction.bound}{share}."


def terms_table(terms: Mapping[str, float], total_s: float) -> str:
    """Return the seconds that each unit would take alone as a table, with its share of the launch."""
    rows = (
        f'<tr><th scope="row">{escape(name)}</th><td>{time_text(seconds)}</td>'
        f"<td>{share_bar(min(1.0, seconds / total_s))}</td></tr>"
        for name, seconds in _longest_terms(terms, total_s)
    )
    return html_table(rows, [f'<th scope="col">{name}</th>' for name in ("unit", "time alone", "of the launch")])


def _longest_terms(terms: Mapping[str, float], total_s: float) -> list[tuple[str, float]]:
    longest = sorted(terms.items(), key=lambda term: -term[1])
    return [(name, seconds) for name, seconds in longest if seconds > _LEAST_SHOWN * total_s] or longest[:1]
