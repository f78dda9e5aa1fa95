"""The figure of which configs of a tuning left the same outputs: a band per group, and how groups differ in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any

from kernellab.measure.comparison import OutputDifference
from kernellab.views.figures.canvas import DARK, LIGHT, Theme, label, new_axes, new_figure, use_logarithm
from kernellab.views.figures.tuning import config_text, varying
from kernellab.views.wording import plural, shortened

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_BANDS = 8
_MOST_PAIRS = 6
_LINE = 112  # characters of a difference
_LINE_INCHES = 0.17


def agreement_figure(frame: pandas.DataFrame, *, dark: bool = False) -> Figure | None:
    """Return the times of the configs of each group of equal outputs; None where none differ, or nobody compared.

    The band of a group that holds more than half of the configs is marked: the winner is in it. How the outputs of two
    groups differ is said below.
    """
    found = frame.attrs.get("agreement")
    if not found or not found["disagrees"]:
        return None
    theme = DARK if dark else LIGHT
    bands, names = _bands(frame, found), _pair_lines(found)
    figure = new_figure(8.0, 1.1 + 0.42 * len(bands) + _LINE_INCHES * len(names), theme)
    axes = new_axes(figure, theme)
    for place, (_, labels) in enumerate(bands):
        is_majority = place == 0 and found["majority"] == 0
        axes.axhspan(place - 0.4, place + 0.4, color=theme.winner if is_majority else theme.faint, alpha=0.22)
        _draw_configs(axes, frame, labels, place, theme)
    axes.set_yticks(range(len(bands)), [text for text, _ in bands])
    axes.set_ylim(len(bands) - 0.45, -0.55)
    _scale(axes, frame.loc[[each for _, labels in bands for each in labels], "time_ms"], theme)
    most = "the marked group is" if found["majority"] == 0 else "no group is"
    title = f"configs whose outputs are equal; {most} more than half of all"
    label(axes, theme, x="ms, median with cold L2", title=title)
    for place, line in enumerate(reversed(names)):
        bottom = 0.012 + place * _LINE_INCHES / figure.get_figheight()
        figure.text(0.01, bottom, line, color=theme.text, fontsize=7.5)
    bottom = _LINE_INCHES * len(names) / figure.get_figheight()
    figure.set_layout_engine("constrained", rect=(0, bottom, 1, 1 - bottom))
    return figure


def _bands(frame: pandas.DataFrame, found: Mapping[str, Any]) -> list[tuple[str, list[Any]]]:
    """Return the text and the labels of each band: the largest groups, the other ones, what was not compared."""
    groups, names = found["groups"], varying(frame)
    bands = []
    for letter, labels in zip(ascii_uppercase, groups[:_MOST_BANDS], strict=False):
        common = shortened(_common(frame, labels, names), 34)
        bands.append((f"{letter}: {plural(len(labels), 'config')}" + (f"\n{common}" if common else ""), labels))
    rest = groups[_MOST_BANDS:]
    if rest:
        bands.append((plural(len(rest), "other group"), [each for labels in rest for each in labels]))
    if found["not_compared"]:
        bands.append(("not compared", found["not_compared"]))
    return bands


def _common(frame: pandas.DataFrame, labels: Sequence[Any], names: Sequence[str]) -> str:
    """Return the parameters that the configs of a group have in common, of those that vary."""
    rows = frame.loc[labels]
    return config_text(rows.iloc[0], [name for name in names if rows[name].map(str).nunique() == 1])


def _draw_configs(axes: Axes, frame: pandas.DataFrame, labels: Sequence[Any], place: int, theme: Theme) -> None:
    winner = frame.attrs.get("winner")
    for label_, row in frame.loc[labels].iterrows():
        if label_ == winner:
            axes.plot([row["time_ms"]], [place], marker="*", color=theme.winner, markersize=9, zorder=3)
        else:
            colour = theme.differs if row["status"] == "differs" else theme.other
            axes.plot([row["time_ms"]], [place], marker="o", color=colour, markersize=5, alpha=0.8)


def _scale(axes: Axes, times_ms: Any, theme: Theme) -> None:
    if times_ms.max() > 8 * times_ms.min():
        use_logarithm(axes, "x", theme)
    else:
        axes.set_xlim(left=0)


def _pair_lines(found: Mapping[str, Any]) -> list[str]:
    """Return how the groups of each pair differ, a line each; those of the largest first."""
    lines = []
    for pair in found["pairs"]:
        first, second = (ascii_uppercase[place] for place in pair["groups"])
        how = "; ".join(OutputDifference(**each).text for each in pair["differences"])
        lines.append(shortened(f"{first} and {second}: {how}", _LINE))
    rest = len(lines) - _MOST_PAIRS
    more = f'... and {plural(rest, "other pair")} in .frame.attrs["agreement"]'
    return [*lines[:_MOST_PAIRS], more] if rest > 0 else lines
