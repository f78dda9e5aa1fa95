"""Results of looking inside launches as figures: tiles of values, a timeline, an equivalence."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

import numpy as np

from kernellab.errors import plural, share_text, time_text
from kernellab.inside.equivalence import Equivalence
from kernellab.inside.first_difference import FirstDifference
from kernellab.inside.timeline import Timeline
from kernellab.inside.values import Values
from kernellab.launch.recorded_values import Program, RecordedValue
from kernellab.views.elements import grid_words, shorten, value_name
from kernellab.views.figures.canvas import (
    LINE_CHARACTERS,
    LINE_INCHES,
    add_legend,
    label,
    new_axes,
    new_figure,
    sentences_figure,
    single_axes,
    theme_of,
    write_below,
)
from kernellab.views.palette import MAGENTA, ORANGE, Theme

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

_MOST_BARS = 512


def values_figure(
    values: Values,
    *,
    name: str | None = None,
    line: int | None = None,
    iteration: int | Sequence[int] | None = None,
    program: Program | None = None,
    dark: bool = False,
) -> Figure:
    """Draw the tile of a value; without a name, the last one with axes.

    Raises:
        UsageError: there is no such value.
    """
    theme = theme_of(dark)
    value = values.find(name, line, iteration, program) if name is not None else last_tile(values)
    if value is None:
        return sentences_figure(f"{values.kernel}: no value was recorded", list(values.notes), theme)
    figure, axes = single_axes(5.2, 4.2 if len(value.shape) > 1 else 2.8, theme)
    draw_tile(axes, value, theme, tile_title(value))
    return figure


def last_tile(values: Values) -> RecordedValue | None:
    """The last value with axes, or else the last."""
    with_axes = (value for value in reversed(values.values) if value.shape)
    return next(with_axes, values.values[-1] if values.values else None)


def tile_title(value: RecordedValue) -> str:
    """The name, line, iteration and type of a value."""
    iteration = f", iteration {', '.join(map(str, value.iteration))}" if value.iteration else ""
    shape = "x".join(map(str, value.shape)) or "scalar"
    return f"{value_name(value)} in line {value.line}{iteration}: {shape} {value.dtype}"


def difference_figure(difference: FirstDifference, *, dark: bool = False) -> Figure:
    """Draw both tiles of a first difference side by side, on one scale, with the element that differs marked."""
    theme = theme_of(dark)
    sides = [side for side in (difference.left, difference.right) if side is not None]
    if not sides:
        return sentences_figure(difference.summary, [], theme)
    figure = new_figure(4.4 * len(sides), 4.0 if len(sides[0].shape) > 1 else 2.8, theme)
    limits = _limits([side.data for side in sides])
    for place, (name, side) in enumerate(zip(difference.names, sides, strict=False)):
        axes = new_axes(figure, theme, (1, len(sides), place + 1))
        draw_tile(axes, side, theme, f"{name}, line {side.line}: {side.name or side.argument}", limits)
        if len(difference.element) == 2 and side.data.ndim == 2:
            row, column = difference.element
            axes.plot([column], [row], marker="s", markersize=9, markerfacecolor="none", markeredgecolor=theme.failed)
        elif len(difference.element) == 1:
            axes.axvline(difference.element[0], color=theme.failed, linewidth=1)
    return figure


def draw_tile(
    axes: Axes, value: RecordedValue, theme: Theme, title: str, limits: tuple[float, float] | None = None
) -> None:
    """Draw a tile: a heat map, bars, or a number; masked lanes are hatched, NaN and infinities have colours."""
    data = value.data.astype(np.float64) if value.data.dtype.kind in "bfiu" else value.data
    if data.ndim > 2:
        data = data.reshape(-1, data.shape[-1])
    mask = None if value.mask is None else np.broadcast_to(value.mask, value.data.shape).reshape(data.shape)
    label(axes, theme, title=title)
    axes.title.set_fontsize(8.5)
    if data.ndim == 0:
        axes.set_axis_off()
        axes.text(0.5, 0.5, f"{value.data.item():.6g}", color=theme.text, fontsize=22, ha="center", va="center")
    elif data.ndim == 1:
        _draw_bars(axes, data, mask, theme)
    else:
        _draw_heat_map(axes, data, mask, theme, limits or _limits([data]))
    if value.is_sampled:
        steps = " x ".join(map(str, value.steps))
        label(axes, theme, x=f"every {steps}-th element; {plural(value.data.size, 'element')} of {value.shape}")


def _limits(tiles: Sequence[NDArray[Any]]) -> tuple[float, float]:
    """The least and the largest finite number of tiles."""
    numbers = [tile[np.isfinite(tile)] for tile in (tile.astype(np.float64) for tile in tiles)]
    finite = np.concatenate([number.ravel() for number in numbers]) if numbers else np.zeros(0)
    return (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)


def _draw_bars(axes: Axes, data: NDArray[Any], mask: NDArray[np.bool_] | None, theme: Theme) -> None:
    active = np.ones(data.shape, bool) if mask is None else mask
    places, finite = np.arange(data.size), np.isfinite(data) & active
    if data.size > _MOST_BARS:
        axes.plot(places, np.where(finite, data, np.nan), color=theme.series[0], linewidth=0.8)
    else:
        axes.bar(places[finite], data[finite], color=theme.series[0], width=0.9)
    for lanes, colour, name in ((np.isnan(data) & active, MAGENTA, "NaN"), (np.isinf(data) & active, ORANGE, "inf")):
        for place in places[lanes][:_MOST_BARS]:
            axes.axvspan(place - 0.5, place + 0.5, color=colour, alpha=0.5, linewidth=0)
        if lanes.any():
            axes.plot([], [], color=colour, linewidth=5, label=f"{int(lanes.sum())} {name}")
    if mask is not None:
        for place in places[~mask][:_MOST_BARS]:
            axes.axvspan(place - 0.5, place + 0.5, facecolor="none", edgecolor=theme.other, hatch="////", linewidth=0)
    _add_key(axes, mask, theme)


def _draw_heat_map(
    axes: Axes, data: NDArray[Any], mask: NDArray[np.bool_] | None, theme: Theme, limits: tuple[float, float]
) -> None:
    from matplotlib.colors import to_rgba

    shown = np.isfinite(data) if mask is None else np.isfinite(data) & mask
    numbers = np.where(shown, data, np.nan)
    image = axes.imshow(numbers, cmap="viridis", vmin=limits[0], vmax=limits[1], aspect="auto")
    axes.patch.set(hatch="////", edgecolor=theme.other, linewidth=0)  # shows where nothing is drawn: in masked lanes
    axes.grid(visible=False)
    active = np.ones(data.shape, bool) if mask is None else mask
    for lanes, colour, name in ((np.isnan(data) & active, MAGENTA, "NaN"), (np.isinf(data) & active, ORANGE, "inf")):
        if lanes.any():
            overlay = np.zeros((*data.shape, 4))
            overlay[lanes] = to_rgba(colour)
            axes.imshow(overlay, aspect="auto")
            axes.plot([], [], color=colour, linewidth=5, label=f"{int(lanes.sum())} {name}")
    colours = axes.figure.colorbar(image, ax=axes, shrink=0.85)
    colours.ax.tick_params(colors=theme.text, labelsize=7)
    _add_key(axes, mask, theme)


def _add_key(axes: Axes, mask: NDArray[np.bool_] | None, theme: Theme) -> None:
    from matplotlib.patches import Patch

    handles, _ = axes.get_legend_handles_labels()
    if mask is not None and not mask.all():
        masked = f"{int((~mask).sum())} masked"
        handles = [*handles, Patch(facecolor="none", edgecolor=theme.other, hatch="////", label=masked)]
    if handles:
        add_legend(axes, theme, handles=handles, fontsize=7, loc="upper right")


_MOST_TIME_BARS = 6000
_LATER_WAVES = 9  # the first of those that share a name
_HEIGHT = 0.86  # of the row of an SM that its bars fill

Bar = tuple[float, float, float, float]
"""Start and length in us, lower edge and height in rows."""


def timeline_figure(timeline: Timeline, *, dark: bool = False) -> Figure:
    """Draw each program as a bar on the row of its SM, in the colour of its wave or, with lines, of its parts.

    A grid of many programs is drawn merged: one bar for the programs of a wave on an SM.
    """
    from matplotlib.collections import PolyCollection
    from matplotlib.ticker import MaxNLocator

    theme = theme_of(dark)
    title = f"{timeline.kernel}: SMs over time ({timeline.device or 'no GPU'}, grid {grid_words(timeline.grid)})"
    if not len(timeline.sm):
        return sentences_figure(title, ["The grid is empty."], theme)
    is_merged = len(timeline.sm) > _MOST_TIME_BARS
    sentences = _explanations(timeline, is_merged=is_merged)
    rows = int(timeline.sm.max()) + 1
    height = min(5.6, 1.6 + 0.05 * max(rows, 20))
    figure, axes = single_axes(8.0, height + LINE_INCHES * len(sentences), theme)
    series = merged_bars(timeline) if is_merged else part_bars(timeline) if timeline.lines else wave_bars(timeline)
    for place, (name, bars) in enumerate(series.items()):
        colour = theme.series[place % len(theme.series)]
        corners: list[Any] = [
            [(left, bottom), (left + width, bottom), (left + width, bottom + height), (left, bottom + height)]
            for left, width, bottom, height in bars
        ]
        axes.add_collection(PolyCollection(corners, facecolors=colour, edgecolors="none", label=name))
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
    bars: dict[int, list[Bar]] = {}
    lanes, height = lanes_of(timeline), _HEIGHT / max(timeline.places_per_sm, 1)
    for number, wave in enumerate(timeline.wave):
        start, end = float(timeline.start_us[number]), float(timeline.end_us[number])
        bottom = int(timeline.sm[number]) + lanes[number] * height
        bars.setdefault(min(int(wave), _LATER_WAVES), []).append((start, end - start, bottom, height))
    return _by_wave_name(bars)


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
    spans: dict[tuple[int, int], tuple[float, float]] = {}
    for sm, wave, start, end in zip(timeline.sm, timeline.wave, timeline.start_us, timeline.end_us, strict=True):
        key = min(int(wave), _LATER_WAVES), int(sm)
        first, last = spans.get(key, (float(start), float(end)))
        spans[key] = min(first, float(start)), max(last, float(end))
    bars: dict[int, list[Bar]] = {}
    for (wave, sm), (first, last) in spans.items():
        bars.setdefault(wave, []).append((first, last - first, sm, _HEIGHT))
    return _by_wave_name(bars)


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


def _by_wave_name(bars: dict[int, list[Bar]]) -> dict[str, list[Bar]]:
    names = {wave: f"wave {wave}" if wave < _LATER_WAVES else f"later waves ({wave} on)" for wave in sorted(bars)}
    return {name: bars[wave] for wave, name in names.items()}


def equivalence_figure(equivalence: Equivalence, *, dark: bool = False) -> Figure:
    """Draw the answer, with a line per output and per warning of the checked runs."""
    lines = [
        f"{output.name}: {output.different:,} of {output.elements:,} elements differ"
        + ("" if output.first is None else f", the first is [{', '.join(map(str, output.first))}]")
        for output in equivalence.outputs
    ]
    return sentences_figure(equivalence.summary, [*lines, *equivalence.warnings], theme_of(dark))
