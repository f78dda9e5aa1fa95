"""What a panel shows of its points: words, figures and a chart, as HTML and as text, for a saved notebook as well."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from math import floor, log10, prod

from kernellab.errors import plural, time_text
from kernellab.explore.controls import Control, label_of
from kernellab.explore.points import FIRST, Evaluation, PointHistory
from kernellab.launch.run import Severity, finding_words
from kernellab.store.columns import Status
from kernellab.tune.result import Row
from kernellab.views.compile_facts import resource_facts
from kernellab.views.elements import Fact, compile_words, grid_words, number, runs_of, shorten, style
from kernellab.views.palette import BAD, BLUE, GOOD, GREY, WARNING


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
        """The point of the figures: the latest, or the last good one where that failed."""
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
        return f"{evaluation.point.text}: {_status_words(evaluation)}: {evaluation.row.reason.rstrip('.')}{stale}."
    if evaluation.row.time_ms is not None:
        parts = [_time_words(evaluation), _comparison(evaluation, shown.history)[1]]
    else:
        predicted = _predicted_fact(evaluation)
        words = "" if predicted is None else f"predicted {predicted.value} ({predicted.detail})"
        parts = [f"compiled for {evaluation.target}", words, *_resource_words(evaluation), _run_words(evaluation)]
    parts += [evaluation.verdict.text, "still running" if evaluation.is_partial else ""]
    return f"{evaluation.point.text}: {'; '.join(filter(None, parts))}."


def _status_words(evaluation: Evaluation) -> str:
    return str(evaluation.row.status).replace("_", " ")


def _time_words(evaluation: Evaluation) -> str:
    """Return ``0.0123 ms (0.0121 to 0.0126)``; "" where nothing was timed."""
    fact = _time_fact(evaluation.row)
    return f"{fact.value} ({fact.detail})" if fact.detail else fact.value


def _time_fact(row: Row) -> Fact:
    """Return the time and its interval in words, "" for an unknown one."""
    interval = "" if row.low_ms is None or row.high_ms is None else f"{row.low_ms:.4g} to {row.high_ms:.4g}"
    return Fact("time", "" if row.time_ms is None else f"{row.time_ms:.4g} ms", interval)


def _predicted_fact(evaluation: Evaluation) -> Fact | None:
    """Return the predicted time with its interval and bound; None where there is none, or the time was measured."""
    prediction = evaluation.prediction
    if prediction is None or evaluation.has_failed or evaluation.row.time_ms is not None:
        return None
    time, low, high = (time_text(ms / 1e3) for ms in (prediction.time_ms, prediction.low_ms, prediction.high_ms))
    return Fact("predicted time", time, f"{low} to {high} on {prediction.device}, limited by {prediction.bound}")


def _comparison(evaluation: Evaluation, history: PointHistory) -> tuple[Fact, str]:
    """Compare a timed point with the best earlier one, as a figure and in words."""
    best, ratio = next((point for point in history if point.number == evaluation.best), None), evaluation.against
    name, title = "vs the best", "the best so far"
    if best is None or ratio is None:
        return Fact(name, "first", "nothing to compare with yet"), "the first that was timed"
    text = best.point.text
    if best.row.config == evaluation.row.config:
        return Fact(name, "the same", f"{text}, timed again"), f"{title}, timed again"
    if ratio.low > 1 or ratio.high < 1:
        factor, how = (ratio.median, "slower") if ratio.low > 1 else (1 / ratio.median, "faster")
        return Fact(name, f"{factor:.3g}x {how}", f"than {text}"), f"{factor:.3g}x {how} than {title} ({text})"
    return Fact(name, "a tie", f"with {text}, within noise"), f"ties with {title} ({text}) within noise"


def _resource_words(evaluation: Evaluation) -> list[str]:
    """Return registers, spills, shared memory and occupancy, those that are known."""
    facts = resource_facts(evaluation.compiled) if evaluation.compiled else ()
    shown = [fact for fact in facts if fact.name not in {"threads", "stack"} and fact.value != "not known"]
    return [f"{fact.name} {fact.value}" + (f" ({fact.detail})" if "limited" in fact.detail else "") for fact in shown]


def _run_words(evaluation: Evaluation) -> str:
    if evaluation.run is None:
        return ""
    count = sum(finding.severity is not Severity.NOTE for finding in evaluation.run.findings)
    findings = plural(count, "finding") if count else "no findings"
    return f"the interpreter ran {plural(prod(evaluation.run.grid), 'program')}, {findings}"


def _facts(evaluation: Evaluation, history: PointHistory) -> list[Fact]:
    """Return the figures of a point, the most wanted first."""
    facts, row, verdict = list[Fact](), evaluation.row, evaluation.verdict
    if row.time_ms is not None:
        facts += [_time_fact(row), _comparison(evaluation, history)[0]]
        if row.gbps is not None:
            facts.append(Fact("throughput", f"{row.gbps:,.4g} GB/s", "of what it reads and writes"))
        if row.tflops is not None:
            facts.append(Fact("arithmetic", f"{row.tflops:.3g} TFLOP/s", "of its dots"))
    if (predicted := _predicted_fact(evaluation)) is not None:
        facts.append(predicted)
    if evaluation.compiled is not None:
        facts += [fact for fact in resource_facts(evaluation.compiled) if fact.name != "stack"]
    if evaluation.is_partial:
        return [*facts, Fact("outputs", "…", "still running")]
    detail = verdict.text or row.reason
    if verdict.equal is False:
        return [*facts, Fact("outputs", str(verdict.status), alarm=verdict.by_reference)]
    if verdict.equal is None:
        value = "not checked" if verdict is FIRST else "not compared"
        return [*facts, Fact("outputs", value, detail.removeprefix(f"{value}: "))]
    return [*facts, Fact("outputs", "match" if verdict.by_reference else "agree", detail)]


def _remarks(shown: PanelView) -> list[str]:
    evaluation, sentences = shown.good, list[str]()
    if evaluation is not None:
        reason = evaluation.row.reason
        if evaluation.run is not None:
            sentences.append(f"{_run_words(evaluation).capitalize()}.")
            sentences += [finding_words(finding) for finding in evaluation.run.findings]
            sentences += evaluation.run.notes
        elif reason and evaluation.row.time_ms is None and not evaluation.is_partial and not evaluation.has_failed:
            sentences.append(reason[:1].upper() + reason[1:] + ("" if reason.endswith((".", "!", "?")) else "."))
        sentences += evaluation.notes
    return [*dict.fromkeys(filter(None, [*sentences, shown.kept]))]


def text(shown: PanelView) -> str:
    """Return the panel for a terminal, or a page without widgets and HTML."""
    lines = [f"Exploring {shown.kernel}, {plural(len(shown.history), 'point')} visited", sentence(shown)]
    if shown.good is not None:
        lines += [f"  figures of {shown.good.point.text}:"] if shown.is_stale else []
        facts = _facts(shown.good, shown.history)
        lines += [f"  {fact.name}: {fact.value}" + (f" ({fact.detail})" if fact.detail else "") for fact in facts]
    lines += [f"  {remark}" for remark in (*shown.notes, *_remarks(shown))]
    ranges = ", ".join(f"{control.name} {control.range_text}" for control in shown.controls)
    return "\n".join([*lines, f"Controls: {ranges}"])


def figures_html(shown: PanelView) -> str:
    """Return the figures of the current point: what failed, the facts, the history, remarks."""
    parts = []
    latest, good = shown.latest, shown.good
    if latest is not None and (latest.has_failed or latest.verdict.equal is False):
        parts.append(_alert(latest))
    parts += [f'<p class="kp-note">{escape(note)}</p>' for note in shown.notes]
    if good is not None:
        stale = " kp-stale" if shown.is_stale else ""
        old = f'<p class="kp-of">Figures of the last good point, {escape(good.point.text)}</p>' if stale else ""
        grid = [] if good.grid is None else [f"grid {grid_words(good.grid)}"]
        where = [good.target, *grid, *([compile_words(good.compiled)] if good.compiled else [])]
        tiles = "".join(map(_tile, _facts(good, shown.history)))
        parts.append(
            f'<div class="kp-good{stale}">{old}<p class="kp-where">{escape(" · ".join(where))}</p>'
            f'<dl class="kp-facts">{tiles}</dl></div>'
        )
    if shown.history.evaluations:
        parts.append(f'<div class="kp-history">{history_svg(shown.history, shown.best, shown.latest)}</div>')
    parts += [f'<p class="kp-note">{escape(remark)}</p>' for remark in _remarks(shown)]
    return "\n".join(parts)


def picture_html(shown: PanelView) -> str:
    """Return the panel without its controls, as one ``<div>`` that needs no script and no network."""
    pairs = shown.latest.point.values if shown.latest else ()
    values = "".join(f"<dt>{escape(name)}</dt><dd>{escape(label_of(value))}</dd>" for name, value in pairs)
    words = f"explored at {plural(len(shown.history), 'point')}; run the cell for its controls"
    return (
        f'<div class="kp kp-static">{style(__package__, "panel.css")}'
        f'<div class="kp-head"><b>{escape(shown.kernel)}</b> <span>{words}</span></div>'
        f'<dl class="kp-values">{values}</dl>{figures_html(shown)}</div>'
    )


def _alert(evaluation: Evaluation) -> str:
    """Return the message of a failed point, or on the differences of its outputs."""
    where, error, message, place = escape(evaluation.point.text), evaluation.error, evaluation.row.reason, ""
    if not evaluation.has_failed:
        css = "kp-alert kp-differs" if evaluation.row.status is Status.DIFFERS else "kp-alert"
        return f'<div class="{css}"><b>{where}</b>: {escape(message)}</div>'
    if error is not None:
        message, lines = error.message, error.lines()[1:] if error.place is not None else []
        place = f"<pre>{escape(chr(10).join(lines))}</pre>" if lines else ""
    status = escape(_status_words(evaluation))
    return f'<div class="kp-alert"><b>{status}</b> at {where}: {escape(message)}{place}</div>'


def _tile(fact: Fact) -> str:
    bar = "" if fact.share is None else f'<i class="kp-bar"><i style="width:{fact.share:.0%}"></i></i>'
    alarm = ' class="kp-alarm"' if fact.alarm else ""
    detail = f"<small>{escape(fact.detail)}</small>" if fact.detail else ""
    name, value = escape(fact.name), escape(fact.value)
    return f'<div{alarm} data-fact="{name}"><dt>{name}</dt><dd>{value}{bar}{detail}</dd></div>'


def _tip(point: Evaluation) -> str:
    predicted = _predicted_fact(point)
    compiled = f"{point.row.registers} registers" if predicted is None else f"predicted {predicted.value}"
    what = _time_words(point) or (point.row.reason if point.has_failed else compiled)
    words = f"{point.number}. {point.point.text}, {point.target}: {_status_words(point)}, {what}"
    return f"<title>{escape(words)}</title>"


_WIDTH, _HEIGHT = 640.0, 160.0
_LEFT, _RIGHT, _TOP, _BASE = 80.0, 12.0, 30.0, 136.0
_MOST = 48  # the last of them
_ROW, _CHARACTER, _MOST_NAME = 13.0, 6.3, 10  # of the values below the axis: height and width in pixels, letters
_COLOURS = {"best": GOOD, "dot": BLUE, "unchecked": BLUE, "column": BLUE, Status.WRONG: BAD, Status.DIFFERS: WARNING}
_GRID = f'stroke="{GREY}" stroke-opacity=".32"'
_HERE = 'class="kp-here" fill="none" stroke="currentColor" stroke-width="1.4" opacity=".85"'


@dataclass(frozen=True, slots=True)
class _Chart:
    """Points side by side, above an axis from ``low`` to ``high``: times, or occupancies in percent.

    The times are the predicted ones if ``is_predicted``.
    """

    evaluations: Sequence[Evaluation]
    low: float
    high: float
    is_predicted: bool = False

    @classmethod
    def of(cls, evaluations: Sequence[Evaluation]) -> _Chart:
        """Return the chart of the times; where none was timed, of the predicted ones, else of the occupancies."""
        chart = cls(evaluations, 0.0, 100.0, all(point.row.time_ms is None for point in evaluations))
        times = [*filter(None, map(chart.time, evaluations))]
        if not times:
            return chart
        low, high = min(low for low, _, _ in times), max(high for _, _, high in times)
        return replace(chart, low=max(low * 0.9, 1e-9), high=max(high * 1.1, 2e-9))

    def time(self, evaluation: Evaluation) -> tuple[float, float, float] | None:
        """Return the bounds of a point's time with the time in their middle; None of one without a time."""
        row = evaluation.row
        low, time, high = row.low_ms, row.time_ms, row.high_ms
        if self.is_predicted and not evaluation.has_failed:
            low, time, high = row.predicted_low_ms, row.predicted_ms, row.predicted_high_ms
        return None if time is None else (low or time, time, high or time)

    @property
    def is_timed(self) -> bool:
        return self.low > 0

    @property
    def is_log(self) -> bool:
        return self.is_timed and self.high > 8 * self.low

    @property
    def step(self) -> float:
        return (_WIDTH - _LEFT - _RIGHT) / max(len(self.evaluations), 8)

    def x(self, index: int) -> float:
        return _LEFT + (index + 0.5) * self.step

    def y(self, value: float) -> float:
        low, high, at = map(log10, (self.low, self.high, value)) if self.is_log else (self.low, self.high, value)
        return _BASE - (at - low) / (high - low) * (_BASE - _TOP)

    def ticks(self) -> list[float]:
        """Return some round numbers of the axis."""
        if self.is_log:
            low, high = floor(log10(self.low)), floor(log10(self.high))
            marks = (1, 2, 5) if high - low < 2 else (1,)
            ticks = [mark * 10.0**power for power in range(low, high + 1) for mark in marks]
        else:
            rough = (self.high - self.low) / 6  # a step is up to 2.5 times as long, so two lie in any range
            power = 10.0 ** floor(log10(rough))
            step = next(mark * power for mark in (1, 2, 5, 10) if mark * power >= rough)
            first = int(self.low / step)
            ticks = [step * i for i in range(first, first + 8)]
        return [value for value in ticks if self.low <= value <= self.high]


def history_svg(history: PointHistory, best: Evaluation | None, current: Evaluation | None) -> str:
    """Return the history as inline SVG in the colours of the page; points that failed stand on the axis as crosses.

    The points have their times with intervals; where none was timed, occupancy and registers. Below them stand the
    values that changed from point to point.
    """
    chart = _Chart.of(history.evaluations[-_MOST:])
    title = "occupancy, % (bars), registers (numbers)"
    if chart.is_timed:
        title = f"{'predicted ' * chart.is_predicted}ms with interval{_best_words(best)}"
    parts = [_axis(chart), _times(chart, best) if chart.is_timed else _occupancies(chart)]
    for i, point in enumerate(chart.evaluations):
        if current is not None and point.number == current.number:
            parts.append(_ring(chart, i))
        if len(chart.evaluations) <= 24 or point.number % 5 == 0:
            parts.append(_label(chart.x(i), _HEIGHT - 8, str(point.number)))
    height = _HEIGHT
    values = [{**point.point.named, "target": point.target.removeprefix("hip:")} for point in chart.evaluations]
    for name in dict.fromkeys(name for row in values for name in row):
        words = [label_of(row.get(name, "")) for row in values]
        if len(set(words)) > 1:  # only what differs between points
            height += _ROW
            parts.append(_values(chart, name, words, height - 8))
    label = f"{plural(len(history), 'point')} visited: {title}"
    return (
        f'<svg viewBox="0 0 {_WIDTH:g} {height:g}" fill="currentColor" font-size="11" role="img" '
        f'aria-label="{escape(label)}">'
        f"{_label(4, 11, title, 'start')}{''.join(parts)}</svg>"
    )


def _values(chart: _Chart, name: str, words: Sequence[str], y: float) -> str:
    """Return a row of values below the points, each amid those that share it; what has no room is left out."""
    parts = [_label(_LEFT - 6, y, shorten(name, _MOST_NAME), "end", f"<title>{escape(name)}</title>")]
    runs = runs_of(words)
    for run in runs[1:]:
        edge = chart.x(run.start) - chart.step / 2
        parts.append(f'<line {_GRID} x1="{edge:.1f}" x2="{edge:.1f}" y1="{y - 9:.1f}" y2="{y + 1:.1f}"/>')
    for run in runs:
        if len(words[run.start]) * _CHARACTER <= len(run) * chart.step:
            parts.append(_label((chart.x(run.start) + chart.x(run.stop - 1)) / 2, y, words[run.start]))
    return "".join(parts)


def _times(chart: _Chart, best: Evaluation | None) -> str:
    """Return a dot with its interval for each point, and a line through those that are not known to be wrong."""
    places, marks = [], []
    for i, point in enumerate(chart.evaluations):
        times = chart.time(point)
        if times is None:
            marks.append(_cross(chart, i))
            continue
        low, time, high = map(chart.y, times)
        x, y = f"{chart.x(i):.1f}", f"{time:.1f}"
        kind = "best" if best is not None and point.number == best.number else "dot"
        if point.verdict.equal is False:
            kind = str(point.verdict.status)
        else:
            places.append(f"{x},{y}")
        line = f'<line stroke-width="2" x1="{x}" x2="{x}" y1="{low:.1f}" y2="{high:.1f}"/>'
        dot = f'<circle stroke-width="{3 if kind == "best" else 0}" cx="{x}" cy="{y}" r="4"/>'
        # Only a reference says that outputs are right, and only then is the fastest green.
        colour = _COLOURS["unchecked" if kind == "best" and not point.verdict.is_right else kind]
        look = f'class="kp-{kind}" fill="{colour}" stroke="{colour}"'
        marks.append(f"<g {look}>{_tip(point)}{line}{dot}</g>")
    return f'<polyline fill="none" {_GRID} stroke-width="1.5" points="{" ".join(places)}"/>{"".join(marks)}'


def _best_words(best: Evaluation | None) -> str:
    if best is None:
        return ""
    return f"; the {'best' if best.verdict.is_right else 'fastest, whose outputs are not checked,'} is large"


def _occupancies(chart: _Chart) -> str:
    marks = []
    for i, point in enumerate(chart.evaluations):
        if point.has_failed or point.compiled is None:
            marks.append(_cross(chart, i))
            continue
        kind = str(point.verdict.status) if point.verdict.equal is False else "column"
        box, top = _column(chart, i)
        marks.append(f'<g class="kp-{kind}" fill="{_COLOURS[kind]}">{_tip(point)}<rect {box} opacity=".75"/></g>')
        marks.append(_label(chart.x(i), top - 5, number(point.row.registers, "d")))
    return "".join(marks)


def _column(chart: _Chart, index: int, margin: float = 0.0) -> tuple[str, float]:
    """Return the place of a column of occupancy, as attributes of a rectangle, and its top."""
    width = min(26.0, 0.6 * chart.step) + 2 * margin
    top = chart.y(100 * (chart.evaluations[index].row.occupancy or 0.0)) - margin
    left = chart.x(index) - width / 2
    return f'x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{_BASE - top:.1f}"', top


def _ring(chart: _Chart, index: int) -> str:
    """Return the mark of the current point: a ring, or a frame around its column."""
    evaluation, x = chart.evaluations[index], chart.x(index)
    if (times := chart.time(evaluation)) is not None:
        return f'<circle {_HERE} cx="{x:.1f}" cy="{chart.y(times[1]):.1f}" r="8"/>'
    if evaluation.has_failed or chart.is_timed:
        return f'<circle {_HERE} cx="{x:.1f}" cy="{_BASE - 5:.1f}" r="9"/>'
    return f'<rect {_HERE} {_column(chart, index, 2.5)[0]} rx="2"/>'


def _cross(chart: _Chart, index: int) -> str:
    x, y = chart.x(index), _BASE - 5
    return (
        f'<g class="kp-failed">{_tip(chart.evaluations[index])}'
        f'<path stroke="{BAD}" stroke-width="2" fill="none" d="M{x - 4:.1f} {y - 4:.1f}l8 8m0 -8l-8 8"/>'
        f'<rect x="{x - 6:.1f}" y="{y - 6:.1f}" width="12" height="12" opacity="0"/></g>'
    )


def _label(x: float, y: float, words: str, anchor: str = "middle", tip: str = "") -> str:
    return f'<text class="kp-tick" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{tip}{escape(words)}</text>'


def _axis(chart: _Chart) -> str:
    across = f'x1="{_LEFT}" x2="{_WIDTH - _RIGHT}"'
    lines = [
        f'<line {_GRID} {across} y1="{chart.y(value):.1f}" y2="{chart.y(value):.1f}"/>'
        + _label(_LEFT - 6, chart.y(value) + 3.5, f"{value:.4g}", "end")
        for value in chart.ticks()
    ]
    return f'{"".join(lines)}<line stroke="currentColor" opacity=".5" {across} y1="{_BASE}" y2="{_BASE}"/>'
