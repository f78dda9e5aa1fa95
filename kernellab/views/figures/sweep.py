"""Figures of a benchmark, from its frame alone: a sweep with its peers, speedups, bars where nothing is a number.

And the roofline, of a tuning as well: what was reached, under what can be reached. A launch that computes ``i`` flops
for each byte it moves is at best as fast as the memory lets it be, ``i`` times the bandwidth, and never faster than the
units that compute (Williams, Waterman, Patterson: Roofline, 2009). Both peaks are measured: a large copy or sum,
and products by torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from kernellab.benchmark.spec import VARIANTS
from kernellab.errors import UsageError, choice_message
from kernellab.views.elements import shorten
from kernellab.views.figures.canvas import (
    add_legend,
    device_words,
    label,
    name_bars,
    new_axes,
    new_figure,
    scale_times,
    series_style,
    single_axes,
    theme_of,
    use_logarithm,
    value_text,
)
from kernellab.views.figures.tuning import config_text, heat_map, resources_figure, varying
from kernellab.views.palette import Theme

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Metric = Literal["gbps", "tflops", "time_ms", "speedup"]
METRICS = ("gbps", "tflops", "time_ms", "speedup")
_UNITS = {"gbps": "GB/s", "tflops": "TFLOP/s", "time_ms": "ms", "speedup": "speedup"}
_MOST_PANELS = 8
_MOST_BARS = 40
_FARTHEST = 4.0


def main_metric(timed: pandas.DataFrame) -> Metric:
    """Return the metric of the timed rows of a sweep: TFLOP/s where dots are counted, else GB/s, else ms."""
    if timed["tflops"].notna().any():
        return "tflops"
    return "gbps" if timed["gbps"].notna().any() else "time_ms"


def benchmark_figure(frame: pandas.DataFrame, *, metric: Metric | None = None, dark: bool = False) -> Figure:
    """Return `sweep_figure`; where nothing was timed, what each row needs.

    Raises:
        UsageError: there is no such metric.
    """
    return sweep_figure(frame, metric=metric, dark=dark) or resources_figure(frame, dark=dark)


def speedup_figure(frame: pandas.DataFrame, *, dark: bool = False) -> Figure | None:
    """Return the speedup over the reference; None without times or without a reference."""
    return sweep_figure(frame, metric="speedup", dark=dark) if frame.attrs.get("reference") else None


def sweep_figure(frame: pandas.DataFrame, *, metric: Metric | None = None, dark: bool = False) -> Figure | None:
    """Return a metric over the first swept number, a line per implementation, with intervals and the ceiling.

    Other swept values have a panel each. Of several configs at a point, the line is that of the fastest, the others
    are dots. Where no number is swept, there is a bar per row. None where nothing was timed.

    Raises:
        UsageError: there is no such metric.
    """
    if metric is not None and metric not in METRICS:
        raise UsageError(choice_message("metric", metric, METRICS))
    timed = frame[frame["rank"].notna()]
    metric = metric or main_metric(timed)
    if timed.empty or timed[metric].isna().all():
        return None
    theme = theme_of(dark)
    # Along the first swept number that changes what is computed.
    sizes = [name for name in frame.attrs["swept"] if name not in VARIANTS and _is_number(timed[name])]
    across = next((name for name in sizes if timed[name].nunique() > 1), None)
    if across is None:
        return _bars(frame, timed, metric, theme)
    names = [name for name in frame.attrs["swept"] if name != across and name not in VARIANTS]
    groups = [(values, group) for values, group in timed.groupby(names, sort=False, dropna=False)] if names else []
    panels = (groups or [((), timed)])[:_MOST_PANELS]
    columns = min(len(panels), 2 if len(panels) == 4 else 3)
    rows = -(-len(panels) // columns)
    width, height = (7.2, 3.6) if len(panels) == 1 else (1.2 + 3.3 * columns, 0.5 + 2.6 * rows)
    figure = new_figure(width, height, theme)
    for place, (values, group) in enumerate(panels):
        axes = new_axes(figure, theme, (rows, columns, place + 1))
        _draw_sweep(axes, frame, group, across, metric, theme)
        if names:
            pairs = zip(names, values if isinstance(values, tuple) else (values,), strict=True)
            title = shorten(", ".join(f"{name}={value_text(value)}" for name, value in pairs), 48)
            axes.set_title(title, color=theme.text, fontsize=8.5)
        is_lowest, is_leftmost = place >= len(panels) - columns, place % columns == 0
        label(axes, theme, x=across if is_lowest else "", y=_UNITS[metric] if is_leftmost else "")
    limits = [limit for axes in figure.axes for limit in axes.get_ylim()]
    for axes in figure.axes:  # the same scale, so that they can be compared
        axes.set_ylim(min(limits), max(limits))
    _legend(figure, theme)
    left_out = f", {len(panels)} of {len(groups)} panels" if len(panels) < len(groups) else ""
    figure.suptitle(_title(frame, metric) + left_out, color=theme.text, fontsize=10, x=0.01, ha="left")
    return figure


def sweep_heat_map(frame: pandas.DataFrame, *, dark: bool = False) -> Figure | None:
    """Return the best time of the kernel over the first two swept numbers; None where fewer vary, or nothing ran."""
    timed = frame[frame["rank"].notna()]
    own = timed[timed["implementation"] == frame.attrs["implementations"][0]] if not timed.empty else timed
    varied = [name for name in frame.attrs["swept"] if _is_number(own[name]) and own[name].nunique() > 2]
    if len(varied) < 2:
        return None
    return heat_map(own, varied[0], varied[1], dark=dark)


def _is_number(column: pandas.Series[Any]) -> bool:
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    return bool(is_numeric_dtype(column)) and not bool(is_bool_dtype(column))


def _draw_sweep(
    axes: Axes, frame: pandas.DataFrame, group: pandas.DataFrame, across: str, metric: Metric, theme: Theme
) -> None:
    for place, name in enumerate(frame.attrs["implementations"]):
        if metric == "speedup" and name == frame.attrs.get("reference"):
            continue  # it is the line at 1
        rows = group[(group["implementation"] == name) & group[metric].notna()]
        if rows.empty:
            continue
        best = rows.loc[rows.groupby(across)["time_ms"].idxmin()].sort_values(across)
        colour, marker = series_style(theme, place)
        at = best[across].astype(float)
        low, high = _bounds(best, metric)
        if len(rows) > len(best):
            others = rows.drop(best.index)
            axes.plot(others[across].astype(float), others[metric], ".", color=colour, markersize=4, alpha=0.5)
        axes.fill_between(at, low, high, color=colour, alpha=0.22, linewidth=0)
        style: dict[str, Any] = {"color": colour, "marker": marker, "markersize": 4, "linewidth": 1.5}
        axes.plot(at, best[metric], **style, label=str(name), zorder=4 - place / 100)
    _draw_ceiling(axes, frame, group, metric, theme)
    values = sorted(group[across].astype(float).unique())
    if values[0] > 0 and values[-1] >= 16 * values[0]:
        axes.set_xscale("log", base=2)
        shown = values[:: max(1, -(-len(values) // 8))]
        axes.set_xticks(shown, [_size_text(value) for value in shown])
        axes.set_xticks([], minor=True)
        axes.tick_params(axis="x", labelcolor=theme.text)
    if metric == "time_ms":
        scale_times(axes, "y", group[metric], theme)
    else:
        axes.set_ylim(bottom=0)


def _size_text(value: float) -> str:
    """Return a size with K, M and G for powers of 1024."""
    for unit, factor in (("G", 2**30), ("M", 2**20), ("K", 2**10)):
        if value >= factor and value % (factor / 4) == 0:
            return f"{value / factor:g}{unit}"
    return f"{value:g}"


def _bounds(rows: pandas.DataFrame, metric: Metric) -> tuple[Any, Any]:
    """Return the bounds of a metric, which follow from those of the time."""
    if metric == "speedup":
        return rows["speedup_low"], rows["speedup_high"]
    if metric == "time_ms":
        return rows["low_ms"], rows["high_ms"]
    return rows[metric] * rows["time_ms"] / rows["high_ms"], rows[metric] * rows["time_ms"] / rows["low_ms"]


def _draw_ceiling(axes: Axes, frame: pandas.DataFrame, group: pandas.DataFrame, metric: Metric, theme: Theme) -> None:
    ceilings = frame.attrs.get("ceilings")
    levels: dict[str, float] = {}
    if metric == "speedup":
        levels = {str(frame.attrs.get("reference") or ""): 1.0}
    elif ceilings and metric == "gbps":
        levels = {"memory": ceilings["memory_gbps"]}
    elif ceilings and metric == "tflops":
        kinds = group["dot_dtype"].dropna().unique()
        levels = {f"torch {kind}": ceilings["tflops"][kind] for kind in kinds if kind in ceilings["tflops"]}
    for name, level in levels.items():
        if level > _FARTHEST * group[metric].max():
            continue  # it would press all else to the ground
        axes.axhline(level, color=theme.other, linestyle="--", linewidth=1)
        text = f"{name} {level:,.0f} {_UNITS[metric]}" if metric != "speedup" else f"{name} = 1"
        at, side = (0.99, "right") if metric == "speedup" else (0.01, "left")
        place: dict[str, Any] = {"xytext": (0, -2), "textcoords": "offset points", "ha": side, "va": "top"}
        axes.annotate(text, (at, level), xycoords=axes.get_yaxis_transform(), **place, color=theme.other, fontsize=7)


def _bars(frame: pandas.DataFrame, timed: pandas.DataFrame, metric: Metric, theme: Theme) -> Figure:
    """Draw a bar per row; where there are more than fit, the fastest first, and those of all peers."""
    is_peer = timed["implementation"] != frame.attrs["implementations"][0]
    fastest = timed.nsmallest(_MOST_BARS, "time_ms").index.union(timed[is_peer].index[:_MOST_BARS])
    shown = timed if len(timed) <= _MOST_BARS else timed.loc[fastest].sort_values("time_ms")
    figure, axes = single_axes(7.6, 1.0 + 0.24 * len(shown), theme)
    names = list(frame.attrs["implementations"])
    low, high = _bounds(shown, metric)
    for place, (index, row) in enumerate(shown.iterrows()):
        colour, _ = series_style(theme, names.index(row["implementation"]))
        axes.barh(place, row[metric], height=0.66, color=colour, alpha=0.85)
        axes.plot([low[index], high[index]], [place, place], color=theme.text, linewidth=1.2)
        axes.text(high[index], place, f"  {row[metric]:.4g}", color=theme.text, fontsize=7, va="center")
    names_of = [
        [str(row["implementation"]), *(text for name in frame.attrs["swept"] if (text := value_text(row[name])) != "-")]
        for _, row in shown.iterrows()
    ]
    name_bars(axes, [shorten(" ".join(words), 60) for words in names_of])
    axes.set_xlim(0, high.max() * 1.12)
    left_out = f", {len(shown)} of {len(timed)} rows" if len(shown) < len(timed) else ""
    label(axes, theme, x=_UNITS[metric], title=_title(frame, metric) + left_out)
    return figure


def _legend(figure: Figure, theme: Theme) -> None:
    handles_of: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, name in zip(*axes.get_legend_handles_labels(), strict=True):
            handles_of.setdefault(name, handle)
    place = {"loc": "outside lower center", "ncols": min(len(handles_of), 5), "fontsize": 8}
    add_legend(figure, theme, handles=list(handles_of.values()), labels=list(handles_of), **place)


def _title(frame: pandas.DataFrame, metric: Metric) -> str:
    what = f"speedup over {frame.attrs['reference']}" if metric == "speedup" else _UNITS[metric]
    return f"{frame.attrs.get('kernel', 'kernel')}: {what} ({device_words(frame.attrs)})"


_MOST_ROOFS = 4
_SAME = 1.25


def roofline_figure(frame: pandas.DataFrame, *, dark: bool = False) -> Figure | None:
    """Return the rows of a frame by flops per byte and TFLOP/s, the fastest marked; None where that is not known."""
    ceilings = frame.attrs.get("ceilings")
    if ceilings is None or (points := _points(frame)).empty:
        return None
    theme = theme_of(dark)
    figure, axes = single_axes(6.4, 3.9, theme)
    roofs = _roofs(ceilings, points)
    ridges = [1000 * rate / ceilings["memory_gbps"] for rate in roofs.values()] or [1000 / ceilings["memory_gbps"]]
    lowest = min(points["intensity"].min() / 4, min(ridges) / 8)
    highest = max(points["intensity"].max() * 4, max(ridges) * 8)
    _draw_roofs(axes, ceilings["memory_gbps"], roofs, (lowest, highest), theme)
    _draw_points(axes, frame, points, theme)
    for which in ("x", "y"):
        use_logarithm(axes, which, theme)
    axes.set_xlim(lowest, highest)
    axes.set_ylim(points["tflops"].min() / 3, max(roofs.values(), default=points["tflops"].max()) * 2)
    title = f"{frame.attrs.get('kernel', 'kernel')}: roofline ({frame.attrs.get('device') or 'device'}, measured peaks)"
    label(axes, theme, x="flops per byte moved", y="TFLOP/s", title=title)
    add_legend(axes, theme, loc="lower right", framealpha=0.6)
    return figure


def _points(frame: pandas.DataFrame) -> pandas.DataFrame:
    known = frame[(frame["rank"].notna()) & (frame["tflops"] > 0) & (frame["gbps"] > 0)].copy()
    known["intensity"] = 1000 * known["tflops"] / known["gbps"]
    if "implementation" not in known:
        known["implementation"] = "configs"
    return known


def _roofs(ceilings: Mapping[str, Any], points: pandas.DataFrame) -> dict[str, float]:
    """Return the peaks of the kinds of number that were multiplied; the highest ones where that is not known."""
    roofs: dict[str, float] = dict(ceilings["tflops"])
    used = {str(kind) for kind in points["dot_dtype"].dropna()} if "dot_dtype" in points else set()
    chosen = {kind: rate for kind, rate in roofs.items() if kind in used}
    highest = sorted(roofs, key=lambda kind: -roofs[kind])[:_MOST_ROOFS]
    return chosen or {kind: roofs[kind] for kind in highest}


def _draw_roofs(
    axes: Axes, memory_gbps: float, roofs: Mapping[str, float], span: tuple[float, float], theme: Theme
) -> None:
    top = max(roofs.values(), default=memory_gbps * span[1] / 1000)
    ridge = 1000 * top / memory_gbps
    axes.plot([span[0], ridge], [memory_gbps * span[0] / 1000, top], color=theme.text, linewidth=1.3)
    first = max(1000 * min(roofs.values(), default=top) / memory_gbps, span[0])
    middle = span[0] * (first / span[0]) ** 0.4
    place: dict[str, Any] = {"xytext": (7, -3), "textcoords": "offset points"}
    text, at = f"memory {memory_gbps:,.0f} GB/s", (middle, memory_gbps * middle / 1000)
    axes.annotate(text, at, **place, color=theme.text, fontsize=7.5, va="top")
    for names, rate in _merge_roofs(roofs):
        axes.plot([1000 * rate / memory_gbps, span[1]], [rate, rate], color=theme.text, linewidth=1.1)
        text = f"{', '.join(names)} {rate:,.0f} TFLOP/s"
        axes.text(span[1] / 1.1, rate * 1.04, text, color=theme.text, fontsize=7.5, ha="right")


def _merge_roofs(roofs: Mapping[str, float]) -> list[tuple[list[str], float]]:
    """Return the peaks from the lowest on; overlapping ones are one, at the highest of them."""
    merged: list[tuple[list[str], float]] = []
    for kind, rate in sorted(roofs.items(), key=lambda pair: pair[1]):
        if merged and rate < _SAME * merged[-1][1]:
            merged[-1] = ([*merged[-1][0], kind], rate)
        else:
            merged.append(([kind], rate))
    return merged


def _draw_points(axes: Axes, frame: pandas.DataFrame, points: pandas.DataFrame, theme: Theme) -> None:
    for place, (name, group) in enumerate(points.groupby("implementation", sort=False)):
        colour, marker = series_style(theme, place)
        best = _best(frame, group)
        others = group.drop(best.index)
        style: dict[str, Any] = {"marker": marker, "color": colour, "linestyle": "none"}
        axes.plot(others["intensity"], others["tflops"], **style, markersize=3.5, alpha=0.3)
        if "implementation" in frame:
            axes.plot(best["intensity"], best["tflops"], **style, markersize=6, label=name, zorder=4 - place / 100)
    winner = frame.attrs.get("winner")
    if winner in points.index:
        row = points.loc[winner]
        text = f"best of {len(points)}: {config_text(row, varying(frame))}"
        axes.plot(row["intensity"], row["tflops"], "*", color=theme.winner, markersize=11, label=text, linestyle="none")


def _best(frame: pandas.DataFrame, group: pandas.DataFrame) -> pandas.DataFrame:
    """Return the fastest row at each point, whatever its config; of a tuning, none: its winner stands out by itself."""
    if "implementation" not in frame:
        return group[:0]
    names = [name for name in frame.attrs["swept"] if name not in VARIANTS]
    if not names:
        return group.nsmallest(1, "time_ms")
    return group.loc[group.groupby(names, sort=False, dropna=False)["time_ms"].idxmin()]
