"""Figures of tiles: one value of a launch, and the two of a first difference side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kernellab.errors import plural
from kernellab.inside.first_difference import FirstDifference
from kernellab.inside.values import Values
from kernellab.launch.recorded_values import Program, RecordedValue
from kernellab.views.figures.canvas import label, new_axes, new_figure, sentences_figure, single_axes, theme_of
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
    name = value.name or f"{value.kind.value} {value.argument or ''}".strip()
    iteration = f", iteration {', '.join(map(str, value.iteration))}" if value.iteration else ""
    shape = "x".join(map(str, value.shape)) or "scalar"
    return f"{name} in line {value.line}{iteration}: {shape} {value.dtype}"


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
        _draw_number(axes, value, theme)
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


def _draw_number(axes: Axes, value: RecordedValue, theme: Theme) -> None:
    axes.set_axis_off()
    axes.text(0.5, 0.5, f"{value.data.item():.6g}", color=theme.text, fontsize=22, ha="center", va="center")


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
        legend = axes.legend(handles=handles, fontsize=7, labelcolor=theme.text, loc="upper right")
        legend.get_frame().set(facecolor=theme.background, edgecolor=theme.faint)
