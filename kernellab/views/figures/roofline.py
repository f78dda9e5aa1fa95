"""The roofline of a tuning or a benchmark, drawn from its frame alone: what was reached, under what can be reached.

A launch that computes ``i`` flops for each byte it moves is at best as fast as the memory lets it be, ``i`` times the
bandwidth, and never faster than the units that compute (Williams, Waterman, Patterson: Roofline, 2009). Both roofs are
measured ones: a large copy or sum, and products by torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kernellab.benchmark.spec import VARIANTS
from kernellab.views.figures.canvas import (
    DARK,
    LIGHT,
    Theme,
    frame_legend,
    label,
    new_axes,
    new_figure,
    series_style,
    use_logarithm,
)
from kernellab.views.figures.tuning import config_text, varying

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_ROOFS = 4
_SAME = 1.25


def has_roofline(frame: pandas.DataFrame) -> bool:
    """Tell whether the ceilings of the device are known, and what some row moves and computes."""
    return frame.attrs.get("ceilings") is not None and not _points(frame).empty


def roofline_figure(frame: pandas.DataFrame, *, dark: bool = False) -> Figure | None:
    """Return the rows of a frame by flops per byte and TFLOP/s, the fastest marked; None where that is not known."""
    if not has_roofline(frame):
        return None
    theme, ceilings, points = DARK if dark else LIGHT, frame.attrs["ceilings"], _points(frame)
    figure = new_figure(6.4, 3.9, theme)
    axes = new_axes(figure, theme)
    roofs = _roofs(ceilings, points)
    lowest = min(points["intensity"].min() / 4, 1000 * min(roofs.values(), default=1.0) / ceilings["memory_gbps"] / 8)
    highest = max(points["intensity"].max() * 4, 1000 * max(roofs.values(), default=1.0) / ceilings["memory_gbps"] * 8)
    _draw_roofs(axes, ceilings["memory_gbps"], roofs, (lowest, highest), theme)
    _draw_points(axes, frame, points, theme)
    for which in ("x", "y"):
        use_logarithm(axes, which, theme)
    axes.set_xlim(lowest, highest)
    axes.set_ylim(points["tflops"].min() / 3, max(roofs.values(), default=points["tflops"].max()) * 2)
    label(axes, theme, x="flops per byte moved", y="TFLOP/s")
    title = f"{frame.attrs.get('kernel', 'kernel')}: roofline ({frame.attrs.get('device') or 'device'}, roofs measured)"
    label(axes, theme, title=title)
    legend = axes.legend(loc="lower right", fontsize=7.5, labelcolor=theme.text, framealpha=0.6)
    frame_legend(legend, theme)
    return figure


def _points(frame: pandas.DataFrame) -> pandas.DataFrame:
    """Return the rows that were timed and whose bytes and flops are known, with their intensity."""
    known = frame[(frame["rank"].notna()) & (frame["tflops"] > 0) & (frame["gbps"] > 0)].copy()
    known["intensity"] = 1000 * known["tflops"] / known["gbps"]
    if "implementation" not in known:
        known["implementation"] = "configs"
    return known


def _roofs(ceilings: Mapping[str, Any], points: pandas.DataFrame) -> dict[str, float]:
    """Return the roofs of the kinds of number that were multiplied; the highest ones where that is not known."""
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
    axes.annotate(
        f"memory {memory_gbps:,.0f} GB/s",
        (middle, memory_gbps * middle / 1000),
        xytext=(7, -3),
        textcoords="offset points",
        color=theme.text,
        fontsize=7.5,
        va="top",
    )
    for names, rate in _merged(roofs):
        axes.plot([1000 * rate / memory_gbps, span[1]], [rate, rate], color=theme.text, linewidth=1.1)
        text = f"{', '.join(names)} {rate:,.0f} TFLOP/s"
        axes.text(span[1] / 1.1, rate * 1.04, text, color=theme.text, fontsize=7.5, ha="right")


def _merged(roofs: Mapping[str, float]) -> list[tuple[list[str], float]]:
    """Return the roofs from the lowest on; those that would lie on each other are one, at the highest of them."""
    found: list[tuple[list[str], float]] = []
    for kind, rate in sorted(roofs.items(), key=lambda pair: pair[1]):
        if found and rate < _SAME * found[-1][1]:
            found[-1] = ([*found[-1][0], kind], rate)
        else:
            found.append(([kind], rate))
    return found


def _draw_points(axes: Axes, frame: pandas.DataFrame, points: pandas.DataFrame, theme: Theme) -> None:
    for place, (name, group) in enumerate(points.groupby("implementation", sort=False)):
        colour, marker = series_style(theme, place)
        best = _best(frame, group)
        others = group.drop(best.index)
        axes.plot(
            others["intensity"], others["tflops"], marker, color=colour, markersize=3.5, alpha=0.3, linestyle="none"
        )
        if "implementation" in frame:
            axes.plot(
                best["intensity"],
                best["tflops"],
                marker,
                color=colour,
                markersize=6,
                label=name,
                linestyle="none",
                zorder=4 - place / 100,
            )
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
    return (
        group.loc[group.groupby(names, sort=False, dropna=False)["time_ms"].idxmin()]
        if names
        else group.nsmallest(1, "time_ms")
    )
