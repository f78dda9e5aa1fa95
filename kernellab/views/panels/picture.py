"""The figures of a panel as HTML, for the live panel and for the static picture that a saved notebook keeps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from math import floor, log10

from kernellab.explore.controls import label_of
from kernellab.explore.history import Evaluation, History
from kernellab.views.elements import minified, style_sheet
from kernellab.views.panels import words as wording
from kernellab.views.panels.words import Shown, status_words, time_words
from kernellab.views.wording import Fact, grid_words, plural

# Where the page has the live panel, the static picture steps back; where it has not, the message of the widget manager
# that it found no model does.
_STATIC_CSS = """
.jp-OutputArea:has(.kp-live) .kp-static{display:none}
.jp-OutputArea:not(:has(.kp-live)):has(.kp-static) .jp-OutputArea-output.jupyter-widgets{display:none}
"""


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
    sheets = style_sheet(__package__, "panel.css") + minified(_STATIC_CSS)
    return (
        f'<div class="kp kp-static"><style>{sheets}</style>'
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


_WIDTH, _HEIGHT = 640.0, 160.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 62.0, 12.0, 30.0, 24.0
_MOST = 48  # the last of them


@dataclass(frozen=True, slots=True)
class _Scale:
    """Where numbers lie on the vertical axis; ``low`` and ``high`` are those at its ends."""

    low: float
    high: float
    is_log: bool = False

    def y(self, value: float) -> float:
        low, high, at = (log10(v) if self.is_log else v for v in (self.low, self.high, value))
        return _HEIGHT - _BOTTOM - (at - low) / (high - low) * (_HEIGHT - _TOP - _BOTTOM)


def history_svg(history: History, best: Evaluation | None, current: Evaluation | None) -> str:
    """Return the history as inline SVG in the colours of the page; points that failed stand on the axis as crosses."""
    evaluations = history.evaluations[-_MOST:]
    timed = [evaluation for evaluation in evaluations if evaluation.row.time_ms is not None]
    step = (_WIDTH - _LEFT - _RIGHT) / max(len(evaluations), 8)

    def x(index: int) -> float:
        return _LEFT + (index + 0.5) * step

    if timed:
        body, title, scale = (
            _times(evaluations, timed, best, x),
            "time, ms, with its interval; the best is large",
            _time_scale(timed),
        )
    else:
        body, title, scale = (
            _occupancies(evaluations, x),
            "occupancy, % (bars) and registers per thread (numbers)",
            _Scale(0, 100),
        )
    here = next(
        (i for i, evaluation in enumerate(evaluations) if current is not None and evaluation.number == current.number),
        None,
    )
    ring = "" if here is None else _ring(evaluations[here], x(here), scale, step)
    numbers = "".join(
        f'<text class="kp-tick" x="{x(i):.1f}" y="{_HEIGHT - 8}" text-anchor="middle">{evaluation.number}</text>'
        for i, evaluation in enumerate(evaluations)
        if len(evaluations) <= 24 or evaluation.number % 5 == 0
    )
    label = f"{plural(len(history), 'point')} visited: {title}"
    return (
        f'<svg viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}" role="img" aria-label="{escape(label)}">'
        f'<text class="kp-tick" x="4" y="11">{escape(title)}</text>{_axis(scale)}{body}{ring}{numbers}</svg>'
    )


def _times(
    evaluations: Sequence[Evaluation], timed: Sequence[Evaluation], best: Evaluation | None, x: Callable[[int], float]
) -> str:
    scale = _time_scale(timed)
    good = [(i, each.row.time_ms) for i, each in enumerate(evaluations) if each.verdict.equal is not False]
    places = [(x(i), scale.y(time_ms)) for i, time_ms in good if time_ms is not None]
    line = " ".join(f"{px:.1f},{py:.1f}" for px, py in places)
    marks = [f'<polyline class="kp-line" points="{line}"/>']
    for i, each in enumerate(evaluations):
        row = each.row
        if row.time_ms is None:
            marks.append(_cross(each, x(i)))
            continue
        low, high = scale.y(row.low_ms or row.time_ms), scale.y(row.high_ms or row.time_ms)
        style = "kp-best" if best is not None and each.number == best.number else "kp-dot"
        style = "kp-wrong" if each.verdict.equal is False else style
        marks.append(
            f'<g class="{style}">{_tip(each)}<line x1="{x(i):.1f}" x2="{x(i):.1f}" y1="{low:.1f}" y2="{high:.1f}"/>'
            f'<circle cx="{x(i):.1f}" cy="{scale.y(row.time_ms):.1f}" r="4"/></g>'
        )
    return "".join(marks)


def _occupancies(evaluations: Sequence[Evaluation], x: Callable[[int], float]) -> str:
    scale, width = _Scale(0, 100), _width(x(1) - x(0))
    marks = []
    for i, each in enumerate(evaluations):
        share = each.row.occupancy
        if each.has_failed or each.compiled is None:
            marks.append(_cross(each, x(i)))
            continue
        top = scale.y(100 * (share or 0.0))
        style = "kp-wrong" if each.verdict.equal is False else "kp-column"
        registers = "" if each.row.registers is None else str(each.row.registers)
        marks.append(
            f'<g class="{style}">{_tip(each)}<rect x="{x(i) - width / 2:.1f}" y="{top:.1f}" width="{width:.1f}" '
            f'height="{_HEIGHT - _BOTTOM - top:.1f}"/></g>'
            f'<text class="kp-tick" x="{x(i):.1f}" y="{top - 5:.1f}" text-anchor="middle">{registers}</text>'
        )
    return "".join(marks)


def _ring(evaluation: Evaluation, x: float, scale: _Scale, step: float) -> str:
    """Return what marks the current point: a ring, or a frame around its column."""
    base = _HEIGHT - _BOTTOM
    if evaluation.row.time_ms is not None:
        return f'<circle class="kp-here" cx="{x:.1f}" cy="{scale.y(evaluation.row.time_ms):.1f}" r="8"/>'
    if evaluation.has_failed or scale.low > 0:
        return f'<circle class="kp-here" cx="{x:.1f}" cy="{base - 5:.1f}" r="9"/>'
    width, top = _width(step) + 5, scale.y(100 * (evaluation.row.occupancy or 0.0)) - 2.5
    return (
        f'<rect class="kp-here" x="{x - width / 2:.1f}" y="{top:.1f}" width="{width:.1f}" height="{base - top:.1f}" '
        'rx="2"/>'
    )


def _width(step: float) -> float:
    return min(26.0, 0.6 * step)


def _cross(evaluation: Evaluation, x: float) -> str:
    y = _HEIGHT - _BOTTOM - 5
    return (
        f'<g class="kp-failed">{_tip(evaluation)}<path d="M{x - 4:.1f} {y - 4:.1f}l8 8m0 -8l-8 8"/>'
        f'<rect x="{x - 6:.1f}" y="{y - 6:.1f}" width="12" height="12" opacity="0"/></g>'
    )


def _tip(each: Evaluation) -> str:
    what = time_words(each) or (each.row.reason if each.has_failed else f"{each.row.registers} registers")
    words = f"{each.number}. {each.point.text}, {each.target}: {status_words(each)}, {what}"
    return f"<title>{escape(words)}</title>"


def _time_scale(timed: Sequence[Evaluation]) -> _Scale:
    low = min(evaluation.row.low_ms or evaluation.row.time_ms or 0.0 for evaluation in timed)
    high = max(evaluation.row.high_ms or evaluation.row.time_ms or 0.0 for evaluation in timed)
    low, high = max(low * 0.9, 1e-9), max(high * 1.1, 2e-9)
    return _Scale(low, high, is_log=high > 8 * low)


def _axis(scale: _Scale) -> str:
    ticks = [value for value in _ticks(scale) if scale.low <= value <= scale.high]
    lines = "".join(
        f'<line class="kp-grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{scale.y(v):.1f}" y2="{scale.y(v):.1f}"/>'
        f'<text class="kp-tick" x="{_LEFT - 6}" y="{scale.y(v) + 3.5:.1f}" text-anchor="end">{v:.4g}</text>'
        for v in ticks
    )
    base = _HEIGHT - _BOTTOM
    return f'{lines}<line class="kp-axis" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{base}" y2="{base}"/>'


def _ticks(scale: _Scale) -> list[float]:
    if scale.is_log:
        low, high = floor(log10(scale.low)), floor(log10(scale.high))
        marks = (1, 2, 5) if high - low < 2 else (1,)
        return [mark * 10.0**power for power in range(low, high + 1) for mark in marks]
    rough = (scale.high - scale.low) / 4
    power = 10.0 ** floor(log10(rough))
    step = next(mark * power for mark in (1, 2, 5, 10) if mark * power >= rough)
    first = int(scale.low / step)
    return [step * i for i in range(first, first + 6)]
