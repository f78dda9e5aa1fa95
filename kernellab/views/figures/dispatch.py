"""Figures of a dispatch: configs over the plane of two sizes, loss of the rule, loss by number of configs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from kernellab.errors import UsageError, choice_message
from kernellab.tune.dispatch.result import Dispatch, Regret
from kernellab.tune.dispatch.rule import Rule
from kernellab.views.elements import shorten
from kernellab.views.figures.canvas import (
    add_legend,
    label,
    new_axes,
    new_figure,
    series_style,
    single_axes,
    theme_of,
    use_logarithm,
)
from kernellab.views.figures.tuning import resources_figure
from kernellab.views.palette import Theme

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MESH = 64
_MOST_PANELS = 3
_NAMES = 64
_MANY = 1e4  # between the least and the most: beyond, only powers of ten have numbers


def dispatch_figure(dispatch: Dispatch, *, dark: bool = False) -> Figure:
    """Draw the rule's config over two sizes; over one size, what it loses; without times, what each config needs."""
    figure = plane_figure(dispatch, dark=dark) or regret_figure(dispatch, dark=dark)
    if figure is not None:
        return figure
    frame = dispatch.frame.drop(columns=[*dispatch.rule.names]).assign(rank=None)
    return resources_figure(frame.drop_duplicates([*frame.columns[: frame.columns.get_loc("status")]]), dark=dark)


def plane_figure(dispatch: Dispatch, *, across: str = "", down: str = "", dark: bool = False) -> Figure | None:
    """Draw the rule's config over two sizes, and the measured best ones.

    ``across`` and ``down`` name the sizes, the first two that vary if they are not given. Of a third one, small, middle
    and large values have a panel each, and others are at their middle. None where fewer than two sizes vary, or nothing
    was timed.

    Raises:
        UsageError: there is no such size.
    """
    varying = [name for name in dispatch.rule.names if len({case.sizes[name] for case in dispatch.cases}) > 1]
    for option, name in (("across", across), ("down", down)):
        if name and name not in varying:
            raise UsageError(choice_message(option, name, tuple(varying)))
    timed = [regret for regret in dispatch.regrets if regret.best is not None]
    if len(varying) < 2 or not timed:
        return None
    theme = theme_of(dark)
    others = [name for name in varying if name not in (across, down)]
    across = across or others.pop(0)
    down = others.pop(0) if down in ("", across) else down
    values: list[int | None] = [None]
    if others:
        known = sorted({regret.sizes[others[0]] for regret in timed})
        values = [*known] if len(known) <= _MOST_PANELS else [known[0], known[len(known) // 2], known[-1]]
    columns = min(2, len(values))
    rows = -(-(len(dispatch.rule.costs) + 1) // columns)
    figure = new_figure(1.4 + 2.9 * len(values), 3.6 + 0.15 * rows, theme)
    middle = {name: int(median(regret.sizes[name] for regret in timed)) for name in others}
    for place, value in enumerate(values):
        axes = new_axes(figure, theme, (1, len(values), place + 1))
        fixed, near, title = middle, timed, f"config of the rule{_predicted_words(dispatch)}"
        if value is not None:
            fixed, title = {**middle, others[0]: value}, f"{others[0]} = {value}"
            near = [regret for regret in timed if _nearest(regret.sizes[others[0]], values) == value]
        _draw_plane(axes, dispatch, near, (across, down), fixed, theme)
        label(axes, theme, x=across, y=down if place == 0 else None, title=title)
    _legend_of_configs(figure, dispatch, columns, theme)
    return figure


def regret_figure(dispatch: Dispatch, *, dark: bool = False) -> Figure | None:
    """Draw the loss of the rule on each case, known and left out, over its work.

    None where nothing was timed.
    """
    timed = [regret for regret in dispatch.regrets if regret.regret is not None or regret.estimated is not None]
    if not timed:
        return None
    theme = theme_of(dark)
    figure, axes = single_axes(7.2, 3.0, theme)
    work = [prod(regret.sizes.values()) for regret in timed]
    kind = "predicted" if dispatch.is_predicted else "measured"
    for name, values, marker, colour in (
        (f"not {kind} (estimated)", [regret.estimated for regret in timed], "x", theme.other),
        (f"as {kind}", [regret.regret for regret in timed], "o", theme.winner),
    ):
        points = np.array([(x, y) for x, y in zip(work, values, strict=True) if y is not None]).reshape(-1, 2)
        axes.scatter(points[:, 0], points[:, 1], s=22, marker=marker, color=colour, label=name)
    axes.axhline(1.05, color=theme.faint, linewidth=1, linestyle="--")
    use_logarithm(axes, "x", theme)
    if max(work) > _MANY * min(work):
        axes.xaxis.set_minor_formatter("")
    title = f"loss of the rule{_predicted_words(dispatch)}"
    label(axes, theme, x=" x ".join(dispatch.rule.names), y="x the best", title=title)
    add_legend(axes, theme)
    return figure


def cover_figure(dispatch: Dispatch, *, dark: bool = False) -> Figure | None:
    """Draw the loss with one config, two, and so on; None without times or with one config."""
    if len(dispatch.cover) < 2:
        return None
    theme = theme_of(dark)
    figure, axes = single_axes(4.6, 2.8, theme)
    counts = [step.configs for step in dispatch.cover]
    series = {
        "worst case": [step.worst for step in dispatch.cover],
        "mean of the cases": [step.mean for step in dispatch.cover],
        "mean between them (expected)": [step.between for step in dispatch.cover],
    }
    for place, (name, values) in enumerate(series.items()):
        colour, marker = series_style(theme, place)
        axes.plot(counts, values, color=colour, marker=marker, markersize=4, linewidth=1.2, label=name)
    axes.set_xticks(counts)
    label(axes, theme, x="configs", y="x the best", title=f"loss by number of configs{_predicted_words(dispatch)}")
    add_legend(axes, theme)
    return figure


def _predicted_words(dispatch: Dispatch) -> str:
    return f", predicted for {dispatch.provenance['predicted_for']}" if dispatch.is_predicted else ""


def _nearest(value: int, values: Sequence[int | None]) -> int | None:
    return min(values, key=lambda other: abs(float(np.log2(value / (other or 1)))))


def _draw_plane(
    axes: Axes,
    dispatch: Dispatch,
    timed: Sequence[Regret],
    plane: tuple[str, str],
    fixed: Mapping[str, int],
    theme: Theme,
) -> None:
    """Colour the plane by what the rule picks, and draw the cases near it with their best configs."""
    from matplotlib.colors import ListedColormap

    across, down = plane
    sizes = {name: [case.sizes[name] for case in dispatch.cases] for name in plane}
    steps = {name: np.geomspace(min(known), max(known), _MESH) for name, known in sizes.items()}
    grid = {name: np.unique(values.round().astype(int)) for name, values in steps.items()}
    base = {name: dispatch.cases[0].sizes[name] for name in dispatch.rule.names} | dict(fixed)
    wide, high_up = np.meshgrid(grid[across], grid[down])
    picked = _cheapest(dispatch.rule, {**base, across: wide, down: high_up})
    colours = [_colour(theme, place) for place in range(len(dispatch.rule.costs))]
    colours_of: dict[str, Any] = {"cmap": ListedColormap(colours), "vmin": -0.5, "vmax": len(colours) - 0.5}
    axes.pcolormesh(*(grid[across], grid[down], picked), **colours_of, alpha=0.35, shading="nearest", rasterized=True)
    places = {config: place for place, config in enumerate(dispatch.rule.configs)}
    for case in timed:
        place = None if case.best is None else places.get(case.best)
        colour = theme.background if place is None else _colour(theme, place)
        axes.scatter(case.sizes[across], case.sizes[down], s=34, color=colour, edgecolors=theme.text, linewidths=0.8)
    use_logarithm(axes, "x", theme)
    use_logarithm(axes, "y", theme)


def _cheapest(rule: Rule, sizes: Mapping[str, Any]) -> NDArray[np.int64]:
    """Vectorise `Rule.cheapest` over arrays of sizes; a loop takes seconds."""
    times_ms = [cost.time_ms(rule.terms, sizes, rule.multiprocessors) for cost in rule.costs]
    cheapest: NDArray[np.int64] = np.argmin(np.stack(np.broadcast_arrays(*times_ms)), axis=0)
    return np.broadcast_to(cheapest, np.broadcast_shapes(*(np.shape(value) for value in sizes.values())))


def _colour(theme: Theme, place: int) -> str:
    """Return a colour of a config: those of series, then further ones of the same lightness."""
    own = (*theme.series, theme.tied, theme.other, theme.failed, theme.differs)
    return own[place % len(own)]


def _legend_of_configs(figure: Figure, dispatch: Dispatch, columns: int, theme: Theme) -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], marker="o", linestyle="", color=_colour(theme, place), label=shorten(config.text, _NAMES))
        for place, config in enumerate(dispatch.rule.configs)
    ]
    handles.append(Line2D([], [], marker="o", linestyle="", color=theme.background, markeredgecolor=theme.text))
    handles[-1].set_label("the best is not in the rule")
    add_legend(figure, theme, handles=handles, loc="outside lower center", ncols=columns, fontsize=7)
