"""The points that were visited, in turn: their times with intervals, or without a GPU, occupancy and registers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from math import floor, log10

from kernellab.explore.history import Trail, Visit
from kernellab.views.panel_words import status_words, time_words
from kernellab.views.wording import plural

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


def trail_svg(trail: Trail, best: Visit | None, current: Visit | None) -> str:
    """Return the trail as inline SVG in the colours of the page; points that failed stand on the axis as crosses."""
    visits = trail.visits[-_MOST:]
    timed = [visit for visit in visits if visit.row.time_ms is not None]
    step = (_WIDTH - _LEFT - _RIGHT) / max(len(visits), 8)

    def x(index: int) -> float:
        return _LEFT + (index + 0.5) * step

    if timed:
        body, title, scale = (
            _times(visits, timed, best, x),
            "time, ms, with its interval; the best is large",
            _time_scale(timed),
        )
    else:
        body, title, scale = (
            _occupancies(visits, x),
            "occupancy, % (bars) and registers per thread (numbers)",
            _Scale(0, 100),
        )
    here = next((i for i, visit in enumerate(visits) if current is not None and visit.number == current.number), None)
    ring = "" if here is None else _ring(visits[here], x(here), scale, step)
    numbers = "".join(
        f'<text class="kp-tick" x="{x(i):.1f}" y="{_HEIGHT - 8}" text-anchor="middle">{visit.number}</text>'
        for i, visit in enumerate(visits)
        if len(visits) <= 24 or visit.number % 5 == 0
    )
    label = f"{plural(len(trail), 'point')} visited: {title}"
    return (
        f'<svg viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}" role="img" aria-label="{escape(label)}">'
        f'<text class="kp-tick" x="4" y="11">{escape(title)}</text>{_axis(scale)}{body}{ring}{numbers}</svg>'
    )


def _times(visits: Sequence[Visit], timed: Sequence[Visit], best: Visit | None, x: Callable[[int], float]) -> str:
    scale = _time_scale(timed)
    good = [(i, visit.row.time_ms) for i, visit in enumerate(visits) if visit.verdict.equal is not False]
    places = [(x(i), scale.y(time_ms)) for i, time_ms in good if time_ms is not None]
    line = " ".join(f"{px:.1f},{py:.1f}" for px, py in places)
    marks = [f'<polyline class="kp-line" points="{line}"/>']
    for i, visit in enumerate(visits):
        row = visit.row
        if row.time_ms is None:
            marks.append(_cross(visit, x(i)))
            continue
        low, high = scale.y(row.low_ms or row.time_ms), scale.y(row.high_ms or row.time_ms)
        style = "kp-best" if best is not None and visit.number == best.number else "kp-dot"
        style = "kp-wrong" if visit.verdict.equal is False else style
        marks.append(
            f'<g class="{style}">{_tip(visit)}<line x1="{x(i):.1f}" x2="{x(i):.1f}" y1="{low:.1f}" y2="{high:.1f}"/>'
            f'<circle cx="{x(i):.1f}" cy="{scale.y(row.time_ms):.1f}" r="4"/></g>'
        )
    return "".join(marks)


def _occupancies(visits: Sequence[Visit], x: Callable[[int], float]) -> str:
    scale, width = _Scale(0, 100), _width(x(1) - x(0))
    marks = []
    for i, visit in enumerate(visits):
        share = visit.row.occupancy
        if visit.has_failed or visit.compiled is None:
            marks.append(_cross(visit, x(i)))
            continue
        top = scale.y(100 * (share or 0.0))
        style = "kp-wrong" if visit.verdict.equal is False else "kp-column"
        registers = "" if visit.row.registers is None else str(visit.row.registers)
        marks.append(
            f'<g class="{style}">{_tip(visit)}<rect x="{x(i) - width / 2:.1f}" y="{top:.1f}" width="{width:.1f}" '
            f'height="{_HEIGHT - _BOTTOM - top:.1f}"/></g>'
            f'<text class="kp-tick" x="{x(i):.1f}" y="{top - 5:.1f}" text-anchor="middle">{registers}</text>'
        )
    return "".join(marks)


def _ring(visit: Visit, x: float, scale: _Scale, step: float) -> str:
    """Return what marks the current point: a ring, or a frame around its column."""
    base = _HEIGHT - _BOTTOM
    if visit.row.time_ms is not None:
        return f'<circle class="kp-here" cx="{x:.1f}" cy="{scale.y(visit.row.time_ms):.1f}" r="8"/>'
    if visit.has_failed or scale.low > 0:
        return f'<circle class="kp-here" cx="{x:.1f}" cy="{base - 5:.1f}" r="9"/>'
    width, top = _width(step) + 5, scale.y(100 * (visit.row.occupancy or 0.0)) - 2.5
    return (
        f'<rect class="kp-here" x="{x - width / 2:.1f}" y="{top:.1f}" width="{width:.1f}" height="{base - top:.1f}" '
        'rx="2"/>'
    )


def _width(step: float) -> float:
    return min(26.0, 0.6 * step)


def _cross(visit: Visit, x: float) -> str:
    y = _HEIGHT - _BOTTOM - 5
    return (
        f'<g class="kp-failed">{_tip(visit)}<path d="M{x - 4:.1f} {y - 4:.1f}l8 8m0 -8l-8 8"/>'
        f'<rect x="{x - 6:.1f}" y="{y - 6:.1f}" width="12" height="12" opacity="0"/></g>'
    )


def _tip(visit: Visit) -> str:
    what = time_words(visit) or (visit.row.reason if visit.has_failed else f"{visit.row.registers} registers")
    return (
        f"<title>{escape(f'{visit.number}. {visit.point.text}, {visit.target}: {status_words(visit)}, {what}')}</title>"
    )


def _time_scale(timed: Sequence[Visit]) -> _Scale:
    low = min(visit.row.low_ms or visit.row.time_ms or 0.0 for visit in timed)
    high = max(visit.row.high_ms or visit.row.time_ms or 0.0 for visit in timed)
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
