"""The predicted time of a launch as a card: one sentence, the time of each unit alone, and what was assumed."""

from __future__ import annotations

from html import escape

from kernellab.explain.prediction import Prediction
from kernellab.views.blocks import Block, Card, Drawing, Heading, Message, Section, html_table, notes
from kernellab.views.elements import percent, seconds_words, share_bar

_LEAST_SHOWN = 0.02  # of the predicted time


def prediction_card(prediction: Prediction) -> Card:
    """Return the predicted time of a launch with its terms."""
    blocks: list[Block] = [
        Message(prediction_sentence(prediction)),
        Drawing(lambda: _terms_html(prediction), lambda width: _term_lines(prediction)),
        *notes(prediction.unknown),
    ]
    return Card([Section(Heading(prediction.kernel, [prediction.device, prediction.target]), blocks)])


def prediction_sentence(prediction: Prediction) -> str:
    """Return ``Predicted 37 us (28 us to 47 us) on H200, limited by DRAM; 80 % of the roofline.``"""
    low, time, high = (seconds_words(ms / 1e3) for ms in (prediction.low_ms, prediction.time_ms, prediction.high_ms))
    share = f"; {percent(prediction.share)} of the roofline"
    return f"Predicted {time} ({low} to {high}) on {prediction.device}, limited by {prediction.bound}{share}."


def shown_terms(prediction: Prediction) -> list[tuple[str, float]]:
    """Return the terms that matter, in milliseconds, the longest first."""
    terms = sorted(prediction.terms.items(), key=lambda term: -term[1])
    return [(name, ms) for name, ms in terms if ms > _LEAST_SHOWN * prediction.time_ms] or terms[:1]


def _term_lines(prediction: Prediction) -> list[str]:
    return [f"  {name:<20}{seconds_words(ms / 1e3):>9}" for name, ms in shown_terms(prediction)]


def _terms_html(prediction: Prediction) -> str:
    rows = (
        f'<tr><th scope="row">{escape(name)}</th><td>{seconds_words(ms / 1e3)}</td>'
        f"<td>{share_bar(min(1.0, ms / prediction.time_ms))}</td></tr>"
        for name, ms in shown_terms(prediction)
    )
    return html_table(rows, [f'<th scope="col">{name}</th>' for name in ("unit", "time alone", "of the launch")])
