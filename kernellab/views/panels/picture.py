"""What a panel shows of its points, as HTML for the live panel and for a saved notebook, and as text."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from kernellab.errors import plural
from kernellab.explore.controls import Control, label_of
from kernellab.explore.points import Evaluation, PointHistory
from kernellab.launch.run import Severity
from kernellab.measure.timing import Interval
from kernellab.views.elements import (
    Fact,
    compile_words,
    finding_words,
    grid_words,
    minified,
    resource_facts,
    style_sheet,
)
from kernellab.views.figures.charts import history_svg

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
        """The point whose figures show: the latest, or where that failed, the last one that did not."""
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
        """The fastest right point among those that compute the same as the one whose figures show."""
        good = self.good
        return None if good is None else self.history.best_of(good.sizes, good.target)


def sentence(shown: PanelView) -> str:
    """Return what a screen reader is told when the figures change."""
    evaluation = shown.latest
    if evaluation is None:
        return "No point yet."
    if evaluation.has_failed:
        stale = "; the figures are those of the last good point" if shown.is_stale else ""
        return f"{evaluation.point.text}: {status_words(evaluation)}: {evaluation.row.reason.rstrip('.')}{stale}."
    parts = (
        [time_words(evaluation), against_words(evaluation, shown.history)] if evaluation.row.time_ms is not None else []
    )
    if not parts:
        parts = [f"compiled for {evaluation.target}", *resource_words(evaluation), run_words(evaluation)]
    parts.append(evaluation.verdict.text)
    if evaluation.is_partial:
        parts.append("still running")
    return f"{evaluation.point.text}: {'; '.join(part for part in parts if part)}."


def status_words(evaluation: Evaluation) -> str:
    """Return what became of a point: ``ok``, ``compile error``."""
    return str(evaluation.row.status).replace("_", " ")


def time_words(evaluation: Evaluation) -> str:
    """Return ``0.0123 ms (0.0121 to 0.0126)``; "" where nothing was timed."""
    row = evaluation.row
    if row.time_ms is None:
        return ""
    if row.low_ms is None or row.high_ms is None:
        return f"{row.time_ms:.4g} ms"
    return f"{row.time_ms:.4g} ms ({row.low_ms:.4g} to {row.high_ms:.4g})"


def against_words(evaluation: Evaluation, history: PointHistory) -> str:
    """Return how a point compares with the best before it."""
    if evaluation.row.time_ms is None:
        return ""
    best = next((each for each in history if each.number == evaluation.best), None)
    if best is None or evaluation.against is None:
        return "the first that was timed"
    if best.row.config == evaluation.row.config:
        return "the best so far, timed again"
    return f"{_ratio_words(evaluation.against)} the best so far ({best.point.text})"


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
    """Return what the interpreter did, or ""."""
    if evaluation.run is None:
        return ""
    programs = evaluation.run.grid[0] * evaluation.run.grid[1] * evaluation.run.grid[2]
    findings = [finding for finding in evaluation.run.findings if finding.severity is not Severity.NOTE]
    found = plural(len(findings), "finding") if findings else "no findings"
    return f"the interpreter ran {plural(programs, 'program')}, {found}"


def facts(evaluation: Evaluation, history: PointHistory) -> list[Fact]:
    """Return the figures of a point, the most wanted first."""
    found = []
    row = evaluation.row
    if row.time_ms is not None:
        interval = "" if row.low_ms is None else f"{row.low_ms:.4g} to {row.high_ms:.4g}"
        found.append(Fact("time", f"{row.time_ms:.4g} ms", interval))
        found.append(Fact("against the best", *_against_fact(evaluation, history)))
        if row.gbps is not None:
            found.append(Fact("throughput", f"{row.gbps:,.4g} GB/s", "of what it reads and writes"))
        if row.tflops is not None:
            found.append(Fact("arithmetic", f"{row.tflops:.3g} TFLOP/s", "of its dots"))
    if evaluation.compiled is not None:
        found += [fact for fact in resource_facts(evaluation.compiled.resources) if fact.name != "stack"]
    found.append(_correctness(evaluation))
    return found


def _against_fact(evaluation: Evaluation, history: PointHistory) -> tuple[str, str]:
    best = next((each for each in history if each.number == evaluation.best), None)
    if best is None or evaluation.against is None:
        return "first", "nothing to compare with yet"
    ratio = evaluation.against
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
    value = {True: "right", False: "wrong", None: "not compared"}[verdict.equal]
    if verdict.equal is True and verdict.text.startswith("agrees"):
        value = "agree"
    if verdict.equal is False and verdict.text.startswith("differs"):
        value = "differ"
    return Fact("outputs", value, verdict.text or evaluation.row.reason, alarm=verdict.equal is False)


def remarks(shown: PanelView) -> list[str]:
    """Return what else there is to say: what the interpreter found, notes of the run and the kernel, what was kept."""
    evaluation = shown.good
    found = list(shown.notes)
    if evaluation is not None:
        if evaluation.run is not None:
            found.append(f"Without a GPU nothing is timed: {run_words(evaluation)}.")
            found += [finding_words(finding) for finding in evaluation.run.findings]
            found += evaluation.run.notes
        elif evaluation.row.time_ms is None and not evaluation.is_partial and not evaluation.has_failed:
            found.append(_ended(evaluation.row.reason[:1].upper() + evaluation.row.reason[1:]))
        found += evaluation.notes
    return [*dict.fromkeys(each for each in [*found, shown.kept] if each)]


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


def _ended(reason: str) -> str:
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
        parts.append(
            f'<div class="kp-history">{history_svg(shown.history, shown.best, shown.latest, point_words)}</div>'
        )
    parts += [f'<p class="kp-note">{escape(remark)}</p>' for remark in remarks(shown)]
    return "\n".join(parts)


def picture_html(shown: PanelView) -> str:
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


def _count(shown: PanelView) -> str:
    return f"explored at {plural(len(shown.history), 'point')}; run the cell for its controls"


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
    """Return what hovering over a point of the chart tells."""
    what = time_words(each) or (each.row.reason if each.has_failed else f"{each.row.registers} registers")
    return f"{each.number}. {each.point.text}, {each.target}: {status_words(each)}, {what}"
