"""What a panel shows of its points: words, figures and a chart, as HTML and as text, for a saved notebook as well."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import floor, log10

from kernellab.errors import plural
from kernellab.explore.controls import Control, label_of
from kernellab.explore.points import Evaluation, PointHistory
from kernellab.launch.run import Severity, finding_words
from kernellab.timing.stopwatch import Interval
from kernellab.views.elements import (
    Fact,
    compile_words,
    grid_words,
    minify,
    resource_facts,
    shorten,
    style_sheet,
)

_TIE = 0.01


@dataclass(frozen=True, slots=True)
class PanelView:
    """All that a panel shows. ``latest`` is where the controls stand; where it failed, the last good figures show."""

    kernel: str
    controls: tuple[Control, ...]
    history: PointHistory
    latest: Evaluation | None = None
    notes: tuple[str, ...] = ()
    kept: str = ""

    @property
    def good(self) -> Evaluation | None:
        """The point whose figures show: the latest, or the last good one where that failed."""
        latest = self.latest
        if latest is None or not latest.has_failed:
            return latest
        return self.history.last_good() or (latest if latest.compiled is not None else None)

    @property
    def is_stale(self) -> bool:
        """Whether the figures are those of an earlier point, since the latest failed."""
        return self.good is not None and self.good is not self.latest

    @property
    def best(self) -> Evaluation | None:
        """The fastest right point among those with the same outputs as the shown one."""
        good = self.good
        return None if good is None else self.history.best_of(good.sizes, good.target)


def sentence(shown: PanelView) -> str:
    """Describe changed figures for a screen reader."""
    evaluation = shown.latest
    if evaluation is None:
        return "No point yet."
    if evaluation.has_failed:
        stale = "; the figures are those of the last good point" if shown.is_stale else ""
        return f"{evaluation.point.text}: {status_words(evaluation)}: {evaluation.row.reason.rstrip('.')}{stale}."
    if evaluation.row.time_ms is not None:
        parts = [time_words(evaluation), against_words(evaluation, shown.history)]
    else:
        parts = [f"compiled for {evaluation.target}", *resource_words(evaluation), run_words(evaluation)]
    parts.append(evaluation.verdict.text)
    if evaluation.is_partial:
        parts.append("still running")
    return f"{evaluation.point.text}: {'; '.join(part for part in parts if part)}."


def status_words(evaluation: Evaluation) -> str:
    """Return the status of a point: ``ok``, ``compile error``."""
    return str(evaluation.row.status).replace("_", " ")


def time_words(evaluation: Evaluation) -> str:
    """Return ``0.0123 ms (0.0121 to 0.0126)``; "" where nothing was timed."""
    value, interval = _time_parts(evaluation)
    return f"{value} ({interval})" if interval else value


def _time_parts(evaluation: Evaluation) -> tuple[str, str]:
    """Return the time and its interval in words, "" for what is not known."""
    row = evaluation.row
    value = "" if row.time_ms is None else f"{row.time_ms:.4g} ms"
    return value, "" if row.low_ms is None or row.high_ms is None else f"{row.low_ms:.4g} to {row.high_ms:.4g}"


def against_words(evaluation: Evaluation, history: PointHistory) -> str:
    """Compare a timed point with the best earlier one."""
    best, ratio = _best_before(evaluation, history), evaluation.against
    if best is None or ratio is None:
        return "the first that was timed"
    if best.row.config == evaluation.row.config:
        return "the best so far, timed again"
    return f"{_ratio_words(ratio)} the best so far ({best.point.text})"


def _best_before(evaluation: Evaluation, history: PointHistory) -> Evaluation | None:
    return next((each for each in history if each.number == evaluation.best), None)


def _ratio_words(ratio: Interval) -> str:
    if ratio.low > 1:
        return f"{ratio.median:.3g} times as long as"
    if ratio.high < 1:
        return f"{1 / ratio.median:.3g} times as fast as"
    return "cannot be told from" if abs(ratio.median - 1) < _TIE else "within the noise of"


def resource_words(evaluation: Evaluation) -> list[str]:
    """Return registers, spills, shared memory and occupancy, those that are known."""
    if evaluation.compiled is None:
        return []
    facts = [fact for fact in resource_facts(evaluation.compiled.resources) if fact.name != "threads"]
    shown = [f for f in facts if f.value not in {"not known", "none"} and f.name != "stack"]
    return [f"{fact.name} {fact.value}" + (f" ({fact.detail})" if "limited" in fact.detail else "") for fact in shown]


def run_words(evaluation: Evaluation) -> str:
    """Describe the run on the interpreter; "" without one."""
    if evaluation.run is None:
        return ""
    programs = evaluation.run.grid[0] * evaluation.run.grid[1] * evaluation.run.grid[2]
    findings = [finding for finding in evaluation.run.findings if finding.severity is not Severity.NOTE]
    words = plural(len(findings), "finding") if findings else "no findings"
    return f"the interpreter ran {plural(programs, 'program')}, {words}"


def facts(evaluation: Evaluation, history: PointHistory) -> list[Fact]:
    """Return the figures of a point, the most wanted first."""
    items = []
    row = evaluation.row
    if row.time_ms is not None:
        items.append(Fact("time", *_time_parts(evaluation)))
        items.append(Fact("against the best", *_against_fact(evaluation, history)))
        if row.gbps is not None:
            items.append(Fact("throughput", f"{row.gbps:,.4g} GB/s", "of what it reads and writes"))
        if row.tflops is not None:
            items.append(Fact("arithmetic", f"{row.tflops:.3g} TFLOP/s", "of its dots"))
    if evaluation.compiled is not None:
        items += [fact for fact in resource_facts(evaluation.compiled.resources) if fact.name != "stack"]
    items.append(_correctness(evaluation))
    return items


def _against_fact(evaluation: Evaluation, history: PointHistory) -> tuple[str, str]:
    best, ratio = _best_before(evaluation, history), evaluation.against
    if best is None or ratio is None:
        return "first", "nothing to compare with yet"
    name = best.point.text
    if best.row.config == evaluation.row.config:
        return "the same", f"{name}, timed again"
    if ratio.low > 1:
        return f"{ratio.median:.3g} x", f"as long as {name}"
    if ratio.high < 1:
        return f"{1 / ratio.median:.3g} x", f"as fast as {name}"
    return "no difference", f"to {name}"


def _correctness(evaluation: Evaluation) -> Fact:
    verdict = evaluation.verdict
    if evaluation.is_partial:
        return Fact("outputs", "…", "still running")
    equal, other = ("right", "wrong") if verdict.by_reference else ("agree", "differ")
    value = {True: equal, False: other, None: "not compared"}[verdict.equal]
    return Fact("outputs", value, verdict.text or evaluation.row.reason, alarm=verdict.equal is False)


def remarks(shown: PanelView) -> list[str]:
    """Return findings, notes of run and kernel, and the saved row."""
    evaluation = shown.good
    sentences = list(shown.notes)
    if evaluation is not None:
        if evaluation.run is not None:
            sentences.append(f"Without a GPU nothing is timed: {run_words(evaluation)}.")
            sentences += [finding_words(finding) for finding in evaluation.run.findings]
            sentences += evaluation.run.notes
        elif evaluation.row.time_ms is None and not evaluation.is_partial and not evaluation.has_failed:
            sentences.append(_sentence_end(evaluation.row.reason[:1].upper() + evaluation.row.reason[1:]))
        sentences += evaluation.notes
    return [*dict.fromkeys(each for each in [*sentences, shown.kept] if each)]


def text(shown: PanelView) -> str:
    """Return the panel for a terminal, or a page without widgets and HTML."""
    lines = [f"Exploring {shown.kernel}, {plural(len(shown.history), 'point')} visited", sentence(shown)]
    if shown.good is not None:
        lines += [
            f"  {fact.name}: {fact.value}" + (f" ({fact.detail})" if fact.detail else "")
            for fact in facts(shown.good, shown.history)
        ]
        if shown.is_stale:
            lines[2:2] = [f"  figures of {shown.good.point.text}:"]
    lines += [f"  {remark}" for remark in remarks(shown)]
    ranges = ", ".join(f"{control.name} {_range_text(control)}" for control in shown.controls)
    return "\n".join([*lines, f"Controls: {ranges}"])


def _range_text(control: Control) -> str:
    labels = [label_of(choice) for choice in control.choices]
    is_ordered = all(isinstance(choice, int) and not isinstance(choice, bool) for choice in control.choices)
    return f"{labels[0]} to {labels[-1]}" if is_ordered and len(labels) > 2 else " or ".join(labels)


def _sentence_end(reason: str) -> str:
    return reason if not reason or reason.endswith((".", "!", "?")) else f"{reason}."


# Where the page has the live panel, the static picture steps back; where it has not, the message of the widget manager
# that it found no model does.
_STATIC_CSS = """
.jp-OutputArea:has(.kp-live) .kp-static{display:none}
.jp-OutputArea:not(:has(.kp-live)):has(.kp-static) .jp-OutputArea-output.jupyter-widgets{display:none}
"""


def figures_html(shown: PanelView) -> str:
    """Return the figures of the current point: what failed, the facts, the history, remarks."""
    parts = []
    latest, good = shown.latest, shown.good
    if latest is not None and latest.has_failed:
        parts.append(_failure(latest))
    if good is not None:
        stale = " kp-stale" if shown.is_stale else ""
        old = f'<p class="kp-of">Figures of the last good point, {escape(good.point.text)}</p>' if stale else ""
        tiles = "".join(map(_tile, facts(good, shown.history)))
        parts.append(f'<div class="kp-good{stale}">{old}{_where(good)}<dl class="kp-facts">{tiles}</dl></div>')
    if shown.history.evaluations:
        parts.append(f'<div class="kp-history">{history_svg(shown.history, shown.best, shown.latest)}</div>')
    parts += [f'<p class="kp-note">{escape(remark)}</p>' for remark in remarks(shown)]
    return "\n".join(parts)


def picture_html(shown: PanelView) -> str:
    """Return the panel without its controls, as one ``<div>`` that needs no script and no network."""
    values = "".join(
        f"<dt>{escape(name)}</dt><dd>{escape(label_of(value))}</dd>"
        for name, value in (shown.latest.point.values if shown.latest else ())
    )
    sheets = style_sheet(__package__, "panel.css") + minify(_STATIC_CSS)
    points = plural(len(shown.history), "point")
    return (
        f'<div class="kp kp-static"><style>{sheets}</style>'
        f'<div class="kp-head"><b>{escape(shown.kernel)}</b> <span>explored at {points}; run the cell for its '
        "controls</span></div>"
        f'<dl class="kp-values">{values}</dl>{figures_html(shown)}</div>'
    )


def _failure(evaluation: Evaluation) -> str:
    lines = (
        "" if evaluation.error is None or evaluation.error.place is None else "\n".join(evaluation.error.lines()[1:])
    )
    place = f"<pre>{escape(lines)}</pre>" if lines else ""
    message = evaluation.error.message if evaluation.error is not None else evaluation.row.reason
    return (
        f'<div class="kp-alert"><b>{escape(status_words(evaluation))}</b> at {escape(evaluation.point.text)}: '
        f"{escape(message)}{place}</div>"
    )


def _where(evaluation: Evaluation) -> str:
    words = [evaluation.target]
    if evaluation.grid is not None:
        words.append(f"grid {grid_words(evaluation.grid)}")
    if evaluation.compiled is not None:
        words.append(compile_words(evaluation.compiled))
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


def point_words(each: Evaluation) -> str:
    """Return the tooltip of a point of the chart."""
    what = time_words(each) or (each.row.reason if each.has_failed else f"{each.row.registers} registers")
    return f"{each.number}. {each.point.text}, {each.target}: {status_words(each)}, {what}"


_WIDTH, _HEIGHT = 640.0, 160.0
_LEFT, _RIGHT, _TOP, _BASE = 80.0, 12.0, 30.0, 136.0
_MOST = 48  # the last of them
_ROW, _CHARACTER, _MOST_NAME = 13.0, 6.3, 10  # of the values below the axis: height and width in pixels, letters


@dataclass(frozen=True, slots=True)
class _Chart:
    """Points side by side, above an axis from ``low`` to ``high``: times, or occupancies in percent."""

    evaluations: Sequence[Evaluation]
    low: float
    high: float

    @classmethod
    def of(cls, evaluations: Sequence[Evaluation]) -> _Chart:
        """Return the chart of the times; where none was timed, of the occupancies."""
        rows = [each.row for each in evaluations if each.row.time_ms is not None]
        if not rows:
            return cls(evaluations, 0.0, 100.0)
        low = min(row.low_ms or row.time_ms or 0.0 for row in rows)
        high = max(row.high_ms or row.time_ms or 0.0 for row in rows)
        return cls(evaluations, max(low * 0.9, 1e-9), max(high * 1.1, 2e-9))

    @property
    def is_timed(self) -> bool:
        """Whether the axis has times."""
        return self.low > 0

    @property
    def is_log(self) -> bool:
        """Whether the axis is logarithmic, since times differ much."""
        return self.is_timed and self.high > 8 * self.low

    @property
    def step(self) -> float:
        """The width of a point, in pixels."""
        return (_WIDTH - _LEFT - _RIGHT) / max(len(self.evaluations), 8)

    @property
    def column(self) -> float:
        """The width of a column of occupancy, in pixels."""
        return min(26.0, 0.6 * self.step)

    def x(self, index: int) -> float:
        """Return the horizontal centre of a point."""
        return _LEFT + (index + 0.5) * self.step

    def y(self, value: float) -> float:
        """Return the vertical position of a number."""
        low, high, at = (log10(each) if self.is_log else each for each in (self.low, self.high, value))
        return _BASE - (at - low) / (high - low) * (_BASE - _TOP)

    def ticks(self) -> list[float]:
        """Return some round numbers of the axis."""
        if self.is_log:
            low, high = floor(log10(self.low)), floor(log10(self.high))
            marks = (1, 2, 5) if high - low < 2 else (1,)
            ticks = [mark * 10.0**power for power in range(low, high + 1) for mark in marks]
        else:
            rough = (self.high - self.low) / 4
            power = 10.0 ** floor(log10(rough))
            step = next(mark * power for mark in (1, 2, 5, 10) if mark * power >= rough)
            first = int(self.low / step)
            ticks = [step * i for i in range(first, first + 6)]
        return [value for value in ticks if self.low <= value <= self.high]


def history_svg(history: PointHistory, best: Evaluation | None, current: Evaluation | None) -> str:
    """Return the history as inline SVG in the colours of the page; points that failed stand on the axis as crosses.

    The points have their times with intervals; where none was timed, occupancy and registers. Below them stand the
    values that changed from point to point.
    """
    chart = _Chart.of(history.evaluations[-_MOST:])
    title = "occupancy, % (bars) and registers per thread (numbers)"
    if chart.is_timed:
        title = "time, ms, with its interval; the best is large"
    parts = [_axis(chart), _times(chart, best) if chart.is_timed else _occupancies(chart)]
    for i, each in enumerate(chart.evaluations):
        if current is not None and each.number == current.number:
            parts.append(_ring(chart, i))
        if len(chart.evaluations) <= 24 or each.number % 5 == 0:
            parts.append(_label(chart.x(i), _HEIGHT - 8, str(each.number)))
    height = _HEIGHT
    for name, words in _changing(chart.evaluations):
        height += _ROW
        parts.append(_values(chart, name, words, height - 8))
    label = f"{plural(len(history), 'point')} visited: {title}"
    return (
        f'<svg viewBox="0 0 {_WIDTH:g} {height:g}" role="img" aria-label="{escape(label)}">'
        f'<text class="kp-tick" x="4" y="11">{escape(title)}</text>{"".join(parts)}</svg>'
    )


def _changing(evaluations: Sequence[Evaluation]) -> list[tuple[str, list[str]]]:
    """Return the controls, and the target, whose values differ between points, with their words."""
    values = [
        {**evaluation.point.named, "target": evaluation.target.removeprefix("hip:")} for evaluation in evaluations
    ]
    names = dict.fromkeys(name for row in values for name in row)
    words = {name: [label_of(row.get(name, "")) for row in values] for name in names}
    return [(name, labels) for name, labels in words.items() if len(set(labels)) > 1]


def _values(chart: _Chart, name: str, words: Sequence[str], y: float) -> str:
    """Return a row of values below the points, each amid those that share it; what has no room is left out."""
    parts = [_label(_LEFT - 6, y, shorten(name, _MOST_NAME), "end", _title(name))]
    starts = [i for i, word in enumerate(words) if i == 0 or word != words[i - 1]]
    for i in starts[1:]:
        edge = chart.x(i) - chart.step / 2
        parts.append(f'<line class="kp-grid" x1="{edge:.1f}" x2="{edge:.1f}" y1="{y - 9:.1f}" y2="{y + 1:.1f}"/>')
    for i, end in zip(starts, [*starts[1:], len(words)], strict=True):
        if len(words[i]) * _CHARACTER <= (end - i) * chart.step:
            parts.append(_label((chart.x(i) + chart.x(end - 1)) / 2, y, words[i]))
    return "".join(parts)


def _times(chart: _Chart, best: Evaluation | None) -> str:
    """Return a dot with its interval for each point, and a line through those that are right."""
    places, marks = [], []
    for i, each in enumerate(chart.evaluations):
        row = each.row
        if row.time_ms is None:
            marks.append(_cross(chart, i))
            continue
        x, y = f"{chart.x(i):.1f}", f"{chart.y(row.time_ms):.1f}"
        style = "kp-best" if best is not None and each.number == best.number else "kp-dot"
        if each.verdict.is_right is False:
            style = "kp-wrong"
        elif each.verdict.equal is not False:
            places.append(f"{x},{y}")
        low, high = chart.y(row.low_ms or row.time_ms), chart.y(row.high_ms or row.time_ms)
        line = f'<line x1="{x}" x2="{x}" y1="{low:.1f}" y2="{high:.1f}"/>'
        marks.append(f'<g class="{style}">{_title(point_words(each))}{line}<circle cx="{x}" cy="{y}" r="4"/></g>')
    return f'<polyline class="kp-line" points="{" ".join(places)}"/>{"".join(marks)}'


def _occupancies(chart: _Chart) -> str:
    """Return a column for each point, with its registers above."""
    width, marks = chart.column, []
    for i, each in enumerate(chart.evaluations):
        if each.has_failed or each.compiled is None:
            marks.append(_cross(chart, i))
            continue
        x, top = chart.x(i), chart.y(100 * (each.row.occupancy or 0.0))
        style = "kp-wrong" if each.verdict.is_right is False else "kp-column"
        box = f'x="{x - width / 2:.1f}" y="{top:.1f}" width="{width:.1f}" height="{_BASE - top:.1f}"'
        registers = "" if each.row.registers is None else str(each.row.registers)
        marks.append(f'<g class="{style}">{_title(point_words(each))}<rect {box}/></g>')
        marks.append(_label(x, top - 5, registers))
    return "".join(marks)


def _ring(chart: _Chart, index: int) -> str:
    """Return the mark of the current point: a ring, or a frame around its column."""
    evaluation, x = chart.evaluations[index], chart.x(index)
    if evaluation.row.time_ms is not None:
        return f'<circle class="kp-here" cx="{x:.1f}" cy="{chart.y(evaluation.row.time_ms):.1f}" r="8"/>'
    if evaluation.has_failed or chart.is_timed:
        return f'<circle class="kp-here" cx="{x:.1f}" cy="{_BASE - 5:.1f}" r="9"/>'
    width, top = chart.column + 5, chart.y(100 * (evaluation.row.occupancy or 0.0)) - 2.5
    box = f'x="{x - width / 2:.1f}" y="{top:.1f}" width="{width:.1f}" height="{_BASE - top:.1f}"'
    return f'<rect class="kp-here" {box} rx="2"/>'


def _cross(chart: _Chart, index: int) -> str:
    x, y = chart.x(index), _BASE - 5
    return (
        f'<g class="kp-failed">{_title(point_words(chart.evaluations[index]))}'
        f'<path d="M{x - 4:.1f} {y - 4:.1f}l8 8m0 -8l-8 8"/>'
        f'<rect x="{x - 6:.1f}" y="{y - 6:.1f}" width="12" height="12" opacity="0"/></g>'
    )


def _title(words: str) -> str:
    return f"<title>{escape(words)}</title>"


def _label(x: float, y: float, words: str, anchor: str = "middle", tip: str = "") -> str:
    return f'<text class="kp-tick" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{tip}{escape(words)}</text>'


def _axis(chart: _Chart) -> str:
    lines = [
        f'<line class="kp-grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{chart.y(v):.1f}" y2="{chart.y(v):.1f}"/>'
        + _label(_LEFT - 6, chart.y(v) + 3.5, f"{v:.4g}", "end")
        for v in chart.ticks()
    ]
    return f'{"".join(lines)}<line class="kp-axis" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{_BASE}" y2="{_BASE}"/>'
