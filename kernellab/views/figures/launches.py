"""Figures of one launch: what limits occupancy, the time of each unit, samples by line, two kernels side by side."""

from __future__ import annotations

import linecache
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kernellab.benchmark.comparison import Comparison
from kernellab.checking.comparison import Check
from kernellab.compile.types import Compiled
from kernellab.errors import plural, share_text, time_text
from kernellab.explain.causes import PerformanceFinding
from kernellab.explain.explanation import Explanation
from kernellab.explain.model import roofline_seconds
from kernellab.explain.prediction import Prediction
from kernellab.explain.profile import LineSamples, Profile, Stall
from kernellab.ir.graph import short_file
from kernellab.target import block_bounds, limits_of
from kernellab.views.compile_facts import needs_of, resource_facts
from kernellab.views.elements import grid_words, longest_times, shorten
from kernellab.views.figures.canvas import (
    BAR_INCHES,
    LINE_CHARACTERS,
    LINE_INCHES,
    add_legend,
    label,
    name_bars,
    sentences_figure,
    single_axes,
    theme_of,
    write_below,
    write_beside,
)
from kernellab.views.palette import Theme

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_LINES = 16
_MOST_STALLS = 5
_LEAST_SHOWN = 0.01


def occupancy_figure(compiled: Compiled, *, dark: bool = False) -> Figure:
    """Draw how many blocks each resource lets an SM hold; the smallest number limits occupancy."""
    theme, resources, limits = theme_of(dark), compiled.resources, limits_of(compiled.target)
    facts = [fact for fact in resource_facts(compiled) if fact.name != "occupancy"]
    needs = [shorten("; ".join(f"{fact.name} {fact.value} {fact.detail}".strip() for fact in facts), LINE_CHARACTERS)]
    if limits is None or resources.registers is None or not resources.fits:
        why = resources.why_not or "the limits of this target are not known"
        return sentences_figure(f"{compiled.kernel} for {compiled.target}: no occupancy, {why}", needs, theme)
    bounds = block_bounds(limits, needs_of(resources))
    least = min(bounds.values())
    end = 2.5 * max(least, 2)
    figure, axes = single_axes(8.0, 0.9 + BAR_INCHES * len(bounds) + LINE_INCHES * len(needs), theme)
    for place, blocks in enumerate(bounds.values()):
        axes.barh(place, min(blocks, end), height=0.6, color=theme.failed if blocks == least else theme.tied)
        write_beside(axes, min(blocks, end), place, f"{blocks}", theme)
    axes.axvline(least, color=theme.failed, linewidth=1, linestyle="--")
    name_bars(axes, list(bounds))
    axes.set_xlim(0, 1.1 * end)
    share = "" if resources.occupancy is None else f"occupancy {share_text(resources.occupancy)}"
    limiter = f", limited by {resources.limiter}" if resources.limiter and (resources.occupancy or 0) < 1 else ""
    title = f"{compiled.kernel} for {compiled.target}: {share}{limiter}"
    label(axes, theme, x="blocks per SM that each resource allows", title=title)
    write_below(figure, needs, theme.text)
    return figure


def explanation_figure(explanation: Explanation, *, dark: bool = False) -> Figure:
    """Draw the time that each unit would take alone, with the launch's time and its roofline bound.

    The findings stand below with their estimated speedups.
    """
    theme, facts, times = theme_of(dark), explanation.facts, explanation.times
    is_measured, total_s, floor_s = facts.time_s is not None, times.total, roofline_seconds(facts, times)
    lines = [
        shorten(_finding_line(place, finding), LINE_CHARACTERS) for place, finding in enumerate(explanation.findings, 1)
    ] or ["No suggestion."]
    title = f"{explanation.kernel} on {facts.device.name}: limited by {explanation.bound}"
    figure, axes = _units_axes(title, times.terms, total_s, theme, LINE_INCHES * len(lines))
    if facts.has_time:
        took = f"{'measured' if is_measured else 'estimated'} {time_text(total_s)}"
        axes.axvline(total_s * 1e6, color=theme.text, linewidth=1.4, label=took)
    bound = f"roofline bound {time_text(floor_s)}"
    axes.axvline(floor_s * 1e6, color=theme.winner, linewidth=1.4, linestyle="--", label=bound)
    axes.set_xlim(0, 1.15 * max(total_s, floor_s, *times.terms.values()) * 1e6)
    add_legend(figure, theme, loc="outside upper right", ncols=2)
    write_below(figure, lines, theme.text)
    return figure


def prediction_figure(prediction: Prediction, *, dark: bool = False) -> Figure:
    """Draw the predicted time with its interval, and the time that each unit would take alone."""
    theme = theme_of(dark)
    title = f"{prediction.kernel}: predicted for {prediction.device}, limited by {prediction.bound}"
    terms = {name: ms / 1e3 for name, ms in prediction.terms.items()}
    figure, axes = _units_axes(title, terms, prediction.time_ms / 1e3, theme)
    interval = f"{time_text(prediction.low_ms / 1e3)} to {time_text(prediction.high_ms / 1e3)}"
    axes.axvspan(prediction.low_ms * 1e3, prediction.high_ms * 1e3, color=theme.faint, alpha=0.5, label=interval)
    predicted = f"predicted {time_text(prediction.time_ms / 1e3)}"
    axes.axvline(prediction.time_ms * 1e3, color=theme.text, linewidth=1.4, label=predicted)
    axes.set_xlim(0, 1.05 * prediction.high_ms * 1e3)
    add_legend(figure, theme, loc="outside upper right", ncols=2)
    return figure


def _units_axes(
    title: str, terms: Mapping[Any, float], total_s: float, theme: Theme, more_inches: float = 0.0
) -> tuple[Figure, Axes]:
    """Draw the seconds that each unit would take alone as bars, the longest first and in its own colour."""
    units = longest_times(terms, _LEAST_SHOWN * total_s)
    figure, axes = single_axes(8.0, 1.25 + BAR_INCHES * len(units) + more_inches, theme)
    for place, (_, seconds) in enumerate(units):
        axes.barh(place, seconds * 1e6, height=0.62, color=theme.tied if place else theme.failed)
        write_beside(axes, seconds * 1e6, place, time_text(seconds), theme)
    name_bars(axes, [str(unit) for unit, _ in units])
    label(axes, theme, x="us that each unit would take alone", title=title)
    return figure, axes


def _finding_line(place: int, finding: PerformanceFinding) -> str:
    line = "" if finding.line is None else f", line {finding.line}"
    low, high = finding.gain
    speedup = f"up to {high:.3g}" if low < 1.01 else f"{low:.3g} to {high:.3g}"
    return f"{place}. {finding.cause}{line}: estimated speedup {speedup}"


def profile_figure(profile: Profile, *, dark: bool = False) -> Figure:
    """Draw the share of samples of each source line, by stall reason, with 99 % intervals."""
    theme = theme_of(dark)
    where = profile.device or profile.target
    title = f"{profile.kernel}: samples by source line ({where}, grid {grid_words(profile.grid)})"
    if not profile.samples:
        reasons = [profile.refused or "The launch was not sampled.", *profile.notes]
        return sentences_figure(title, [shorten(line, 3 * LINE_CHARACTERS) for line in reasons], theme)
    lines = [line for line in profile.lines if line.samples][:_MOST_LINES]
    stalls = list(profile.reasons)[:_MOST_STALLS]
    notes = [shorten(note, LINE_CHARACTERS) for note in profile.notes]
    figure, axes = single_axes(8.6, 1.3 + BAR_INCHES * len(lines) + LINE_INCHES * len(notes), theme)
    _draw_stalls(axes, profile, lines, stalls, theme)
    name_bars(axes, [_line_name(line) for line in lines], family="monospace")
    axes.set_xlim(0, 115 * max(line.share.high for line in lines))
    counted = f"{profile.samples:,} samples of {plural(profile.launches, 'launch')}"
    label(axes, theme, x=f"% of {counted}, with 99 % interval", title=title)
    add_legend(figure, theme, loc="outside lower center", ncols=3)
    write_below(figure, notes, theme.text)
    return figure


def _draw_stalls(
    axes: Axes, profile: Profile, lines: Sequence[LineSamples], stalls: Sequence[Stall], theme: Theme
) -> None:
    left = [0.0] * len(lines)
    others = [sum(count for stall, count in line.reasons.items() if stall not in stalls) for line in lines]
    series = [(str(stall), [line.reasons.get(stall, 0) for line in lines]) for stall in stalls]
    colours = [*theme.series[: len(stalls)], theme.other]
    for (name, counts), colour in zip([*series, ("all other states", others)], colours, strict=True):
        widths = [100 * count / profile.samples for count in counts]
        if any(widths):
            axes.barh(range(len(lines)), widths, left=left, height=0.62, color=colour, label=name)
        left = [start + width for start, width in zip(left, widths, strict=True)]
    for place, line in enumerate(lines):
        axes.plot([100 * line.share.low, 100 * line.share.high], [place, place], color=theme.text, linewidth=1.2)


def _line_name(line: LineSamples) -> str:
    if line.line is None:
        return "line not known"
    text = linecache.getline(line.file or "", line.line).strip()
    return shorten(f"{short_file(line.file)}:{line.line}  {text}".strip(), 52)


def comparison_figure(comparison: Comparison, *, dark: bool = False) -> Figure:
    """Draw time and resources of two kernels side by side; how their outputs compare stands below."""
    theme = theme_of(dark)
    one, two = comparison.names
    pairs = _number_pairs(comparison)
    lines = [shorten(line, LINE_CHARACTERS) for line in _outcome_lines(comparison)]
    title = f"{shorten(one, 48)} vs {shorten(two, 48)}"
    if not pairs:
        return sentences_figure(title, lines, theme)
    figure, axes = single_axes(8.0, 1.15 + 0.42 * len(pairs) + LINE_INCHES * len(lines), theme)
    for place, (_, left, right, unit) in enumerate(pairs):
        largest = max(left, right) or 1.0
        for side, value in enumerate((left, right)):
            at, name = place - 0.2 + 0.4 * side, shorten(comparison.names[side], 60) if place == 0 else None
            axes.barh(at, value / largest, height=0.36, color=theme.series[side], label=name)
            write_beside(axes, value / largest, at, f"{value:,.4g}{unit}", theme)
    axes.grid(visible=False)
    axes.set_yticks(range(len(pairs)), [name for name, *_ in pairs])
    axes.set_xticks([])
    axes.set(xlim=(0, 1.25), ylim=(len(pairs) - 0.45, -0.55))
    label(axes, theme, title=title)
    add_legend(figure, theme, loc="outside upper right", ncols=2)
    write_below(figure, lines, theme.text)
    return figure


def _number_pairs(comparison: Comparison) -> list[tuple[str, float, float, str]]:
    """Return name, left and right value and unit of each number that both sides have."""
    pairs: list[tuple[str, float, float, str]] = []
    if comparison.timing is not None:
        pairs.append(("time", comparison.timing.left_ms, comparison.timing.right_ms, " ms"))
    left, right = comparison.compiled
    if left is None or right is None:
        return pairs
    for name, unit in (("registers", ""), ("spill_bytes", " B"), ("shared_bytes", " B"), ("occupancy", " %")):
        values = [getattr(side.resources, name) for side in (left, right)]
        if None not in values and any(values):
            scale = 100 if name == "occupancy" else 1
            words = {"spill_bytes": "spills", "shared_bytes": "shared memory"}.get(name, name)
            pairs.append((words, *(scale * float(value) for value in values), unit))  # type: ignore[arg-type]
    return pairs


def _outcome_lines(comparison: Comparison) -> list[str]:
    lines = [_check_words(check) for check in comparison.outputs]
    lines += [f"{comparison.names[1]} {words}." for words in comparison.effects]
    failures = zip(comparison.names, comparison.failures, strict=True)
    lines += [f"{name} failed: {failure}" for name, failure in failures if failure is not None]
    if comparison.timing is None and comparison.why_no_timing:
        lines.append(f"Not timed: {comparison.why_no_timing}.")
    elif comparison.timing is not None:
        timing = comparison.timing
        ratio = f"{timing.ratio:.3f}x the time, 99 % interval {timing.low:.3f} to {timing.high:.3f}"
        lines.append(f"{comparison.names[1]} takes {ratio}: {timing.verdict}.")
    return lines or ["No outputs were compared."]


def _check_words(check: Check) -> str:
    if check.equal:
        return f"{check.argument} matches; max error {check.max_error:.3g}."
    wrong = f"{check.mismatched:,} of {plural(check.elements, 'element')}"
    return f"{check.argument} differs in {wrong}; max error {check.max_error:.3g}."
