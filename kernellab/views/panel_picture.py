"""The figures of a panel as HTML, for the live panel and for the static picture that a saved notebook keeps."""

from __future__ import annotations

from functools import cache
from html import escape
from importlib import resources

from kernellab.explore.history import Evaluation
from kernellab.explore.ranges import label_of
from kernellab.views import panel_words as wording
from kernellab.views.panel_points import history_svg
from kernellab.views.panel_words import Shown
from kernellab.views.style import minified
from kernellab.views.wording import Fact, grid_words

# Where the page has the live panel, the static picture steps back; where it has not, the message of the widget manager
# that it found no model does.
_STATIC_CSS = """
.jp-OutputArea:has(.kp-live) .kp-static{display:none}
.jp-OutputArea:not(:has(.kp-live)):has(.kp-static) .jp-OutputArea-output.jupyter-widgets{display:none}
"""


@cache
def panel_css() -> str:
    """Return the style sheet of the panel, minified."""
    return minified(resources.files(__package__).joinpath("panel_screen.css").read_text(encoding="utf-8"))


def figures_html(shown: Shown) -> str:
    """Return the figures of the current point: what failed, the facts, the history, remarks."""
    parts = []
    latest, good = shown.latest, shown.good
    if latest is not None and latest.has_failed:
        parts.append(_failure(latest))
    if good is not None:
        stale = " kp-stale" if shown.is_stale else ""
        old = f'<p class="kp-of">Figures of the last good point, {escape(good.point.text)}</p>' if stale else ""
        tiles = "".join(map(_tile, wording.facts(good, shown.history)))
        parts.append(f'<div class="kp-good{stale}">{old}{_where(good)}<dl class="kp-facts">{tiles}</dl></div>')
    if shown.history.evaluations:
        parts.append(f'<div class="kp-history">{history_svg(shown.history, shown.best, shown.latest)}</div>')
    parts += [f'<p class="kp-note">{escape(remark)}</p>' for remark in wording.remarks(shown)]
    return "\n".join(parts)


def picture_html(shown: Shown) -> str:
    """Return the panel without its controls, as one ``<div>`` that needs no script and no network."""
    values = "".join(
        f"<dt>{escape(name)}</dt><dd>{escape(label_of(value))}</dd>"
        for name, value in (shown.latest.point.values if shown.latest else ())
    )
    return (
        f'<div class="kp kp-static"><style>{panel_css()}{minified(_STATIC_CSS)}</style>'
        f'<div class="kp-head"><b>{escape(shown.kernel)}</b> <span>{_count(shown)}</span></div>'
        f'<dl class="kp-values">{values}</dl>{figures_html(shown)}</div>'
    )


def _count(shown: Shown) -> str:
    count = len(shown.history)
    return f"explored at {count} point{'s' * (count != 1)}; run the cell for its controls"


def _failure(evaluation: Evaluation) -> str:
    lines = (
        "" if evaluation.error is None or evaluation.error.place is None else "\n".join(evaluation.error.lines()[1:])
    )
    place = f"<pre>{escape(lines)}</pre>" if lines else ""
    message = evaluation.error.message if evaluation.error is not None else evaluation.row.reason
    return (
        f'<div class="kp-alert"><b>{escape(wording.status_words(evaluation))}</b> at {escape(evaluation.point.text)}: '
        f"{escape(message)}{place}</div>"
    )


def _where(evaluation: Evaluation) -> str:
    words = [evaluation.target]
    if evaluation.grid is not None:
        words.append(f"grid {grid_words(evaluation.grid)}")
    if evaluation.compiled is not None:
        words.append(
            f"compiled in {evaluation.compiled.seconds:.2f} s"
            if not evaluation.compiled.from_cache
            else "compiled earlier"
        )
    return f'<p class="kp-where">{" · ".join(map(escape, words))}</p>'


def _tile(fact: Fact) -> str:
    bar = ""
    if fact.share is not None:
        bar = f'<i class="kp-bar"><i style="width:{fact.share * 100:.0f}%"></i></i>'
    style = ' class="kp-alarm"' if fact.alarm else ""
    detail = f"<small>{escape(fact.detail)}</small>" if fact.detail else ""
    return (
        f'<div{style} data-fact="{escape(fact.name)}"><dt>{escape(fact.name)}</dt>'
        f"<dd>{escape(fact.value)}{bar}{detail}</dd></div>"
    )
