"""Small charts as inline SVG, in the colours of the page: the points of a slider, and times as they come."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from math import floor, inf, log10

from kernellab.errors import plural
from kernellab.explore.controls import label_of
from kernellab.explore.points import Evaluation, PointHistory

Tip = Callable[[Evaluation], str]

_WIDTH, _HEIGHT = 640.0, 160.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 80.0, 12.0, 30.0, 24.0
_MOST = 48  # the last of them
_BEST, _POINT = "#0f9d75", "#2b83dc"  # read on white and on black alike
_LIVE_WIDTH, _LIVE_HEIGHT, _LABEL, _MARGIN = 420, 72, 64, 8
_MOST_POINTS = 240
_ROW, _CHARACTER, _MOST_NAME = 13.0, 6.3, 10  # of the values below the axis: height and width in pixels, letters

_Position = Callable[[int, float], tuple[float, float]]


@dataclass(frozen=True, slots=True)
class _Scale:
    """Where numbers lie on the vertical axis: ``low`` at ``base`` and ``high`` at ``top``, in pixels."""

    low: float
    high: float
    is_log: bool = False
    top: float = _TOP
    base: float = _HEIGHT - _BOTTOM

    def y(self, value: float) -> float:
        """Return where a number lies."""
        low, high, at = (log10(v) if self.is_log else v for v in (self.low, self.high, value))
        return self.base - (at - low) / ((high - low) or 1.0) * (self.base - self.top)


def history_svg(history: PointHistory, best: Evaluation | None, current: Evaluation | None, tip: Tip) -> str:
    """Return the history as inline SVG in the colours of the page; points that failed stand on the axis as crosses.

    ``tip`` gives what hovering over a point tells. The points have their times with intervals; where none was timed,
    occupancy and registers. Below them stand the values that changed from point to point.
    """
    evaluations = history.evaluations[-_MOST:]
    timed = [evaluation for evaluation in evaluations if evaluation.row.time_ms is not None]
    step = (_WIDTH - _LEFT - _RIGHT) / max(len(evaluations), 8)

    def x(index: int) -> float:
        return _LEFT + (index + 0.5) * step

    if timed:
        body, title, scale = (
            _times(evaluations, timed, best, x, tip),
            "time, ms, with its interval; the best is large",
            _time_scale(timed),
        )
    else:
        body, title, scale = (
            _occupancies(evaluations, x, tip),
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
    rows = _changing(evaluations)
    values = "".join(
        _values(name, words, _HEIGHT - 8 + _ROW * (i + 1), x, step) for i, (name, words) in enumerate(rows)
    )
    return (
        f'<svg viewBox="0 0 {_WIDTH:g} {_HEIGHT + _ROW * len(rows):g}" role="img" aria-label="{escape(label)}">'
        f'<text class="kp-tick" x="4" y="11">{escape(title)}</text>{_axis(scale)}{body}{ring}{numbers}{values}</svg>'
    )


def _changing(evaluations: Sequence[Evaluation]) -> list[tuple[str, list[str]]]:
    """Return the controls whose values differ between points, each with its values in words; the target is one, too."""
    values = [{**each.point.named, "target": each.target.removeprefix("hip:")} for each in evaluations]
    words = {
        name: [label_of(each.get(name, "")) for each in values] for name in dict.fromkeys(n for v in values for n in v)
    }
    return [(name, each) for name, each in words.items() if len(set(each)) > 1]


def _values(name: str, words: Sequence[str], y: float, x: Callable[[int], float], step: float) -> str:
    """Return a row of values below the points, each amid those that share it; what has no room is left out."""
    shown = name if len(name) <= _MOST_NAME else f"{name[: _MOST_NAME - 1]}…"
    parts = [
        f'<text class="kp-tick" x="{_LEFT - 6}" y="{y:.1f}" text-anchor="end">{_title(name)}{escape(shown)}</text>'
    ]
    starts = [i for i, word in enumerate(words) if i == 0 or word != words[i - 1]]
    for i in starts[1:]:
        edge = x(i) - step / 2
        parts.append(f'<line class="kp-grid" x1="{edge:.1f}" x2="{edge:.1f}" y1="{y - 9:.1f}" y2="{y + 1:.1f}"/>')
    for i, end in zip(starts, [*starts[1:], len(words)], strict=True):
        if len(words[i]) * _CHARACTER <= (end - i) * step:
            middle = (x(i) + x(end - 1)) / 2
            parts.append(
                f'<text class="kp-tick" x="{middle:.1f}" y="{y:.1f}" text-anchor="middle">{escape(words[i])}</text>'
            )
    return "".join(parts)


def _times(
    evaluations: Sequence[Evaluation],
    timed: Sequence[Evaluation],
    best: Evaluation | None,
    x: Callable[[int], float],
    tip: Tip,
) -> str:
    scale = _time_scale(timed)
    good = [(i, each.row.time_ms) for i, each in enumerate(evaluations) if each.verdict.equal is not False]
    places = [(x(i), scale.y(time_ms)) for i, time_ms in good if time_ms is not None]
    path = " ".join(f"{px:.1f},{py:.1f}" for px, py in places)
    marks = [f'<polyline class="kp-line" points="{path}"/>']
    for i, each in enumerate(evaluations):
        row = each.row
        if row.time_ms is None:
            marks.append(_cross(tip(each), x(i)))
            continue
        low, high = scale.y(row.low_ms or row.time_ms), scale.y(row.high_ms or row.time_ms)
        style = "kp-best" if best is not None and each.number == best.number else "kp-dot"
        style = "kp-wrong" if each.verdict.equal is False else style
        line = f'<line x1="{x(i):.1f}" x2="{x(i):.1f}" y1="{low:.1f}" y2="{high:.1f}"/>'
        marks.append(
            f'<g class="{style}">{_title(tip(each))}{line}'
            f'<circle cx="{x(i):.1f}" cy="{scale.y(row.time_ms):.1f}" r="4"/></g>'
        )
    return "".join(marks)


def _occupancies(evaluations: Sequence[Evaluation], x: Callable[[int], float], tip: Tip) -> str:
    scale, width = _Scale(0, 100), _width(x(1) - x(0))
    marks = []
    for i, each in enumerate(evaluations):
        share = each.row.occupancy
        if each.has_failed or each.compiled is None:
            marks.append(_cross(tip(each), x(i)))
            continue
        top = scale.y(100 * (share or 0.0))
        style = "kp-wrong" if each.verdict.equal is False else "kp-column"
        registers = "" if each.row.registers is None else str(each.row.registers)
        marks.append(
            f'<g class="{style}">{_title(tip(each))}<rect x="{x(i) - width / 2:.1f}" y="{top:.1f}" width="{width:.1f}" '
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


def _cross(words: str, x: float) -> str:
    y = _HEIGHT - _BOTTOM - 5
    return (
        f'<g class="kp-failed">{_title(words)}<path d="M{x - 4:.1f} {y - 4:.1f}l8 8m0 -8l-8 8"/>'
        f'<rect x="{x - 6:.1f}" y="{y - 6:.1f}" width="12" height="12" opacity="0"/></g>'
    )


def _title(words: str) -> str:
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


def times_svg(times_ms: Sequence[float]) -> str:
    """Return the times as an SVG over their order, on a logarithmic scale; nothing for less than two."""
    if len(times_ms) < 2:
        return ""
    least, most = min(times_ms), max(times_ms)
    scale = _Scale(least, most, is_log=True, top=_MARGIN, base=_LIVE_HEIGHT - _MARGIN)
    width = _LIVE_WIDTH - _LABEL - 6

    def place(index: int, time_ms: float) -> tuple[float, float]:
        x = _LABEL + width * index / (len(times_ms) - 1)
        return round(x, 1), round(scale.y(time_ms), 1)

    dots = [place(index, times_ms[index]) for index in _drawn(times_ms)]
    circles = "".join(f'<circle cx="{x}" cy="{y}" r="1.8"/>' for x, y in dots)
    x, y = place(times_ms.index(least), least)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_LIVE_WIDTH}" height="{_LIVE_HEIGHT}" style="max-width:100%" '
        f'viewBox="0 0 {_LIVE_WIDTH} {_LIVE_HEIGHT}" role="img" '
        f'aria-label="times of the configs as they came, best {least:.4g} ms">'
        f'<g fill="{_POINT}" fill-opacity=".85">{circles}</g>{_steps(times_ms, place)}'
        f'<circle cx="{x}" cy="{y}" r="4" fill="{_BEST}"/>'
        f'<g fill="currentColor" fill-opacity=".75" font-size="10" text-anchor="end">'
        f'<text x="{_LABEL - 8}" y="11">{most:.3g} ms</text>'
        f'<text x="{_LABEL - 8}" y="{_LIVE_HEIGHT - 5}">{least:.3g} ms</text>'
        "</g></svg>"
    )


def _steps(times_ms: Sequence[float], place: _Position) -> str:
    """Return the best so far as a line that steps down."""
    points: list[tuple[float, float]] = []
    best = inf
    for index, time_ms in enumerate(times_ms):
        if time_ms < best:
            if points:
                points.append((place(index, time_ms)[0], points[-1][1]))
            points.append(place(index, time_ms))
            best = time_ms
    points.append((float(_LIVE_WIDTH - 6), points[-1][1]))
    text = " ".join(f"{x},{y}" for x, y in points)
    return f'<polyline points="{text}" fill="none" stroke="{_BEST}" stroke-width="1.5" stroke-opacity=".8"/>'


def _drawn(times_ms: Sequence[float]) -> list[int]:
    """Return which times are drawn: of many, the best and the worst of each stretch."""
    count = len(times_ms)
    if count <= _MOST_POINTS:
        return list(range(count))
    size = -(-2 * count // _MOST_POINTS)
    stretches = [range(start, min(start + size, count)) for start in range(0, count, size)]
    ends = [(min(s, key=times_ms.__getitem__), max(s, key=times_ms.__getitem__)) for s in stretches]
    return sorted({index for pair in ends for index in pair})
