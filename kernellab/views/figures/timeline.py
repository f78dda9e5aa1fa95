"""The figure of a timeline: the SMs of a device over time, with a bar for each program."""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from kernellab.errors import plural, share_text, time_text
from kernellab.inside.timeline import Timeline
from kernellab.views.elements import grid_words, shorten
from kernellab.views.figures.canvas import (
    LINE_CHARACTERS,
    LINE_INCHES,
    add_legend,
    label,
    sentences_figure,
    single_axes,
    theme_of,
    write_below,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_BARS = 6000
_MOST_WAVES_NAMED = 8
_HEIGHT = 0.86  # of the row of an SM that its bars fill

Bar = tuple[float, float, float, float]
"""Start and length in us, lower edge and height in rows."""


def timeline_figure(timeline: Timeline, *, dark: bool = False) -> Figure:
    """Draw each program as a bar on the row of its SM, in the colour of its wave or, with lines, of its parts.

    A grid of many programs is drawn merged: one bar for the programs of a wave on an SM.
    """
    from matplotlib.ticker import MaxNLocator

    theme = theme_of(dark)
    title = f"{timeline.kernel}: SMs over time ({timeline.device or 'no GPU'}, grid {grid_words(timeline.grid)})"
    if not len(timeline.sm):
        return sentences_figure(title, ["The grid is empty."], theme)
    is_merged = len(timeline.sm) > _MOST_BARS
    sentences = _explanations(timeline, is_merged=is_merged)
    rows = int(timeline.sm.max()) + 1
    height = min(5.6, 1.6 + 0.05 * max(rows, 20))
    figure, axes = single_axes(8.0, height + LINE_INCHES * len(sentences), theme)
    series = merged_bars(timeline) if is_merged else part_bars(timeline) if timeline.lines else wave_bars(timeline)
    for place, (name, bars) in enumerate(series.items()):
        _draw_bars(axes, bars, theme.series[place % len(theme.series)], name)
    axes.set(xlim=(0, timeline.span_us * 1.01 or 1), ylim=(rows - 1 + _HEIGHT, 0))  # no tick beyond the last SM
    axes.yaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    label(axes, theme, x="us from the start of the first program", y="SM", title=title)
    add_legend(axes, theme, loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=7)
    lines = [shorten(sentence, LINE_CHARACTERS) for sentence in sentences]
    write_below(figure, lines, theme.failed if timeline.has_high_overhead else theme.other)
    return figure


def overhead_sentence(timeline: Timeline) -> str:
    """Return the cost of the time stamps; where it is high, that the picture is not that of the plain kernel."""
    stamped, plain = (time_text(time / 1e6) for time in (timeline.stamped_us, timeline.plain_us))
    cost = f"The time stamps cost {share_text(max(0.0, timeline.overhead))} ({stamped} vs {plain} without)"
    return f"{cost}, so the times of the plain kernel differ." if timeline.has_high_overhead else f"{cost}."


def _explanations(timeline: Timeline, *, is_merged: bool) -> list[str]:
    cautions = [overhead_sentence(timeline)] if timeline.has_high_overhead else []
    if is_merged:
        return [*cautions, f"{plural(len(timeline.sm), 'program')}: those of a wave on an SM are drawn as one bar."]
    if timeline.lines:
        return [*cautions, "The parts of a program stand in the order of its lines, whatever the order in time."]
    return cautions


def wave_bars(timeline: Timeline) -> dict[str, list[Bar]]:
    """The bars of the programs by wave."""
    bars: dict[str, list[Bar]] = {}
    lanes, height = lanes_of(timeline), _HEIGHT / max(timeline.places_per_sm, 1)
    for number, wave in enumerate(timeline.wave):
        start, end = float(timeline.start_us[number]), float(timeline.end_us[number])
        bottom = int(timeline.sm[number]) + lanes[number] * height
        bars.setdefault(_wave_name(int(wave)), []).append((start, end - start, bottom, height))
    return dict(sorted(bars.items(), key=lambda item: _wave_order(item[0])))


def part_bars(timeline: Timeline) -> dict[str, list[Bar]]:
    """The bars of the parts of the programs, by part."""
    assert timeline.parts_us is not None, "lines were chosen"
    bars: dict[str, list[Bar]] = {name: [] for name in timeline.part_names}
    lanes, height = lanes_of(timeline), _HEIGHT / max(timeline.places_per_sm, 1)
    for number, parts in enumerate(timeline.parts_us):
        at, bottom = float(timeline.start_us[number]), int(timeline.sm[number]) + lanes[number] * height
        for name, part in zip(timeline.part_names, parts, strict=True):
            if part > 0:
                bars[name].append((at, float(part), bottom, height))
            at += float(part)
    return bars


def merged_bars(timeline: Timeline) -> dict[str, list[Bar]]:
    """A bar for each SM and wave, from the first start to the last end; waves over each other share the row."""
    spans: dict[tuple[str, int], tuple[float, float]] = {}
    for sm, wave, start, end in zip(timeline.sm, timeline.wave, timeline.start_us, timeline.end_us, strict=True):
        key = _wave_name(int(wave)), int(sm)
        first, last = spans.get(key, (float(start), float(end)))
        spans[key] = min(first, float(start)), max(last, float(end))
    bars: dict[str, list[Bar]] = {}
    for (name, sm), (first, last) in sorted(spans.items(), key=lambda item: _wave_order(item[0][0])):
        bars.setdefault(name, []).append((first, last - first, sm, _HEIGHT))
    return bars


def lanes_of(timeline: Timeline) -> list[int]:
    """The place of each program on its SM, from 0: the lowest that is free when it starts."""
    lanes = [0] * len(timeline.sm)
    running: dict[int, list[tuple[float, int]]] = {}
    free: dict[int, list[int]] = {}
    for number in sorted(range(len(lanes)), key=lambda at: float(timeline.start_us[at])):
        sm, start = int(timeline.sm[number]), float(timeline.start_us[number])
        busy, places = running.setdefault(sm, []), free.setdefault(sm, [])
        while busy and busy[0][0] <= start:
            heappush(places, heappop(busy)[1])
        lanes[number] = heappop(places) if places else len(busy)
        heappush(busy, (float(timeline.end_us[number]), lanes[number]))
    return lanes


def _wave_name(wave: int) -> str:
    return f"wave {wave}" if wave <= _MOST_WAVES_NAMED else f"later waves ({_MOST_WAVES_NAMED + 1} on)"


def _wave_order(name: str) -> int:
    return int(name.removeprefix("wave ")) if name.startswith("wave ") else _MOST_WAVES_NAMED + 1


def _draw_bars(axes: Axes, bars: list[Bar], colour: str, name: str) -> None:
    from matplotlib.collections import PolyCollection

    corners: list[Any] = [
        [(left, bottom), (left + width, bottom), (left + width, bottom + height), (left, bottom + height)]
        for left, width, bottom, height in bars
    ]
    axes.add_collection(PolyCollection(corners, facecolors=colour, edgecolors="none", label=name))
