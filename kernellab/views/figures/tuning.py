"""Figures of a tuning, drawn from its frame alone: every config with its interval, each parameter, two parameters.

Another one shows which configs left the same outputs: a band per group, with how groups differ in words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isnan
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any

from kernellab.checking.comparison import OutputDifference
from kernellab.errors import UsageError, plural, three_digits
from kernellab.store.columns import UNMEASURED, Status
from kernellab.views.elements import bytes_words, shorten
from kernellab.views.figures.canvas import (
    LINE_CHARACTERS,
    LINE_INCHES,
    add_legend,
    device_words,
    label,
    name_bars,
    new_axes,
    new_figure,
    scale_times,
    sentences_figure,
    single_axes,
    theme_of,
    use_logarithm,
    use_plain_numbers,
    value_text,
    write_below,
)
from kernellab.views.palette import BLACK, WHITE, Theme

if TYPE_CHECKING:
    import pandas
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_MOST_LABELLED = 40
_MOST_INTERVALS = 500
_MOST_UNTIMED = 24
_MOST_FAILURES = 6
_MOST_TICKS = 24
_MOST_CELLS = 144


def timings_figure(frame: pandas.DataFrame, *, dark: bool = False) -> Figure:
    """Return the times of all configs with their intervals, the fastest on top; failures are listed below.

    Configs that cannot win, since their outputs differ from most, follow those that can. Up to 40 configs have a line
    each, with its config; more are a curve over their rank. Predicted times, where none was measured, are bars.
    """
    frame = with_shown_times(frame)
    # Those with a rank, then those that differ from most, by their times.
    ranked = frame[frame["rank"].notna()].sort_values("rank")
    differing = frame[(frame["status"] == Status.DIFFERS) & frame["time_ms"].notna()].sort_values("time_ms")
    timed = frame.loc[[*ranked.index, *differing.index]]
    if timed.empty:
        return resources_figure(frame, dark=dark)
    theme, failures = theme_of(dark), failure_lines(frame)
    has_lines = len(timed) <= _MOST_LABELLED
    height = 1.1 + (0.21 * len(timed) if has_lines else 2.6) + LINE_INCHES * len(failures)
    figure, axes = single_axes(8.0, max(height, 1.6), theme)
    if has_lines:
        _draw_lines(axes, frame, timed, theme)
    else:
        _draw_curve(axes, frame, timed, theme)
    label(axes, theme, title=_title(frame, len(timed)))
    write_below(figure, failures, theme.failed)
    return figure


def parameters_figure(frame: pandas.DataFrame, *, dark: bool = False) -> Figure | None:
    """Return the time by the value of each parameter that varies, a panel each; None where nothing was timed."""
    theme, frame = theme_of(dark), with_shown_times(frame)
    timed = frame[frame["rank"].notna()]
    names = varying(timed)
    if not names:
        return None
    columns = min(len(names), 4)
    rows = -(-len(names) // columns)
    figure, unit = new_figure(2.6 * columns, 2.3 * rows, theme), "predicted ms" if is_predicted(frame) else "ms"
    for place, name in enumerate(names):
        axes = new_axes(figure, theme, (rows, columns, place + 1))
        _draw_parameter(axes, frame, timed, name, theme)
        label(axes, theme, y=unit if place % columns == 0 else "")
    return figure


def heat_map(frame: pandas.DataFrame, across: str = "", down: str = "", *, dark: bool = False) -> Figure:
    """Return the best time for each pair of values of two parameters; pairs that were not timed stay empty.

    ``across`` and ``down`` name the parameters, by default the first two that vary.

    Raises:
        UsageError: the frame has no such parameter, or no config of it was timed.
    """
    from matplotlib.colors import LogNorm, Normalize
    from numpy import nanmax, nanmin, ndenumerate

    theme, frame = theme_of(dark), with_shown_times(frame)
    timed = frame[frame["rank"].notna()]
    free = [name for name in varying(timed) if name not in (across, down)]
    across, down = across or (free.pop(0) if free else ""), down or (free.pop(0) if free else "")
    for name in (across, down):
        if name not in timed.columns or timed.empty:
            known = ", ".join(varying(timed)) or "none that varies"
            raise UsageError(f"heat_map over {name!r}: the parameters that were timed are {known}.")
    table = timed.pivot_table(index=down, columns=across, values="time_ms", aggfunc="min")
    figure, axes = single_axes(1.6 + 0.62 * max(len(table.columns), 4), 1.2 + 0.4 * max(len(table), 3), theme)
    axes.grid(visible=False)
    times = table.to_numpy()
    low, high = float(nanmin(times)), float(nanmax(times))
    norm: Any = LogNorm(low, high) if high > 4 * low > 0 else Normalize(low, high)
    image = axes.imshow(times, cmap="viridis_r", aspect="auto", norm=norm)
    axes.set_xticks(range(len(table.columns)), [value_text(value) for value in table.columns])
    axes.set_yticks(range(len(table)), [value_text(value) for value in table.index])
    label(axes, theme, x=across, y=down)
    for (i, j), value in ndenumerate(times) if table.size <= _MOST_CELLS else ():
        if not isnan(value):
            colour = WHITE if norm(value) > 0.55 else BLACK
            axes.text(j, i, f"{value:.3g}", ha="center", va="center", fontsize=7, color=colour)
    bar = figure.colorbar(image, ax=axes)
    bar.ax.tick_params(which="both", colors=theme.text, labelsize=7)
    use_plain_numbers(bar.ax.yaxis)
    bar.set_label("best ms", color=theme.text, fontsize=8)
    return figure


def with_shown_times(frame: pandas.DataFrame) -> pandas.DataFrame:
    """Return a frame with predicted times in place of measured ones, if it has predicted ones alone.

    ``attrs["is_predicted"]`` says that these are shown.
    """
    if "predicted_ms" not in frame or frame["predicted_ms"].isna().all() or frame["time_ms"].notna().any():
        return frame
    columns = {"time_ms": "predicted_ms", "low_ms": "predicted_low_ms", "high_ms": "predicted_high_ms"}
    shown = frame.assign(**{measured: frame[predicted] for measured, predicted in columns.items()})
    shown.attrs = {**frame.attrs, "is_predicted": True}
    return shown


def is_predicted(frame: pandas.DataFrame) -> bool:
    """Whether the times of a frame of `with_shown_times` are predicted."""
    return bool(frame.attrs.get("is_predicted"))


def varying(frame: pandas.DataFrame) -> list[str]:
    """Return the parameters and options that have more than one value in a frame."""
    names = frame.columns[: list(frame.columns).index("status")]
    return [name for name in names if len({*map(value_text, frame[name].unique())}) > 1]


def config_text(row: Any, names: Sequence[str]) -> str:
    """Return the parameters that differ between rows: ``BLOCK=64 warps=4``."""
    texts = {name.removeprefix("num_"): value_text(row[name]) for name in names}
    return " ".join(f"{name}={text}" for name, text in texts.items() if text != "-")


_PREDICTED_TIMES = "predicted ms, with the 80 % interval"


def _draw_lines(axes: Axes, frame: pandas.DataFrame, timed: pandas.DataFrame, theme: Theme) -> None:
    names, predicted = varying(frame), is_predicted(frame)
    for place, (index, row) in enumerate(timed.iterrows()):
        look = _look(frame, index, theme)
        if predicted:
            axes.barh([place], [row["time_ms"]], height=0.62, color=look["color"], alpha=0.35)
        axes.plot([row["low_ms"], row["high_ms"]], [place, place], color=look["color"], linewidth=2.2, alpha=0.6)
        axes.plot([row["time_ms"]], [place], **look, markersize=5)
    _add_differs_legend(axes, timed, theme)
    name_bars(axes, [config_text(row, names) for _, row in timed.iterrows()])
    for tick, index in zip(axes.get_yticklabels(), timed.index, strict=True):
        tick.set_color(theme.winner if index == frame.attrs.get("winner") else theme.text)
    label(axes, theme, x=_PREDICTED_TIMES if predicted else "ms, median with 99 % interval, cold L2")
    scale_times(axes, "x", timed["high_ms" if predicted else "time_ms"], theme)


def _add_differs_legend(axes: Axes, timed: pandas.DataFrame, theme: Theme) -> None:
    if not timed["status"].eq(Status.DIFFERS).any():
        return
    axes.plot([], [], "s", color=theme.differs, markersize=5, label="outputs differ from most")
    add_legend(axes, theme)


def resources_figure(frame: pandas.DataFrame, *, dark: bool = False) -> Figure:
    """Draw the theoretical occupancy of the first configs, with what each needs: all that is known without times."""
    theme, failures = theme_of(dark), failure_lines(frame)
    compiled = frame[frame["registers"].notna()]
    shown, names = compiled[:_MOST_UNTIMED], varying(compiled)
    title = f"{frame.attrs.get('kernel', 'kernel')} for {frame.attrs.get('target', 'its target')}: occupancy by config"
    if shown.empty:
        return sentences_figure(title, failures or ["No config was compiled."], theme)
    figure, axes = single_axes(8.0, 1.0 + 0.23 * len(shown) + LINE_INCHES * len(failures), theme)
    axes.grid(visible=False)
    axes.vlines([25, 50, 75, 100], *(-0.6, len(shown) - 0.4), color=theme.faint, linewidth=0.6, zorder=0)
    axes.barh(range(len(shown)), 100 * shown["occupancy"].fillna(0.0), height=0.6, color=theme.tied)
    name_bars(axes, [shorten(config_text(row, names), 56) for _, row in shown.iterrows()])
    for place, (_, row) in enumerate(shown.iterrows()):
        axes.text(103, place, _needs_words(row), color=theme.text, fontsize=7, va="center")
    axes.set_xlim(0, 200)  # half of the width for the text
    axes.set_xticks([0, 25, 50, 75, 100])
    part = f"; the first {len(shown)} of {len(compiled)}" if len(shown) < len(compiled) else ""
    label(axes, theme, title=title)
    axes.set_xlabel(f"theoretical occupancy, %{part}", color=theme.text, fontsize=8, loc="left")
    write_below(figure, failures, theme.failed)
    return figure


def _needs_words(row: Any) -> str:
    """Return the registers, shared memory and spills of a config: ``40 registers, 32 KiB shared memory``."""
    needs = [f"{row['registers']:,} registers"]
    if value_text(row["shared_bytes"]) not in ("-", "0"):
        needs.append(f"{bytes_words(int(row['shared_bytes']))} shared memory")
    if value_text(row["spill_bytes"]) not in ("-", "0"):
        needs.append(f"{row['spill_bytes']:,} B spilled")
    return ", ".join(needs)


def _draw_curve(axes: Axes, frame: pandas.DataFrame, timed: pandas.DataFrame, theme: Theme) -> None:
    from numpy import arange

    places = arange(1, len(timed) + 1)
    differs = (timed["status"] == Status.DIFFERS).to_numpy()
    for rows, colour in ((~differs, theme.other), (differs, theme.differs)):
        # Of more configs than there are pixels, the intervals are one band.
        draw: Any = axes.vlines if rows.sum() <= _MOST_INTERVALS else axes.fill_between
        draw(places[rows], timed["low_ms"][rows], timed["high_ms"][rows], color=colour, alpha=0.5, linewidth=1)
        axes.plot(places[rows], timed["time_ms"][rows], ".", color=colour, markersize=3)
    _add_differs_legend(axes, timed, theme)
    winner = frame.attrs.get("winner")
    marked = Status.NOT_TIMED if is_predicted(frame) else Status.OK
    for index in (*frame.attrs.get("tied", ()), winner):  # the winner last, so that it is on top
        if index in frame.index and frame.loc[index, "status"] == marked:
            row = timed.loc[index]
            axes.plot(row["rank"], row["time_ms"], **_look(frame, index, theme), markersize=6)
    if winner in timed.index:
        row = timed.loc[winner]
        config, time_ms = config_text(row, varying(frame)), row["time_ms"]
        time = f"{three_digits(time_ms) if is_predicted(frame) else format(time_ms, '.4g')} ms"
        text = f"{'first by prediction' if is_predicted(frame) else 'best'}: {config}, {time}"
        axes.text(0.02, 0.92, text, transform=axes.transAxes, color=theme.winner, fontsize=8.5)
    use_logarithm(axes, "y", theme)
    label(axes, theme, x="rank", y="predicted ms" if is_predicted(frame) else "ms")


def _draw_parameter(axes: Axes, frame: pandas.DataFrame, timed: pandas.DataFrame, name: str, theme: Theme) -> None:
    values = sorted(timed[name].dropna().unique(), key=lambda value: (isinstance(value, str), value))
    at = timed[name].map({value: place for place, value in enumerate(values)}).astype(float).fillna(-1.0)
    spread = [0.16 * ((i * 7) % 11 / 5 - 1) for i in range(len(timed))]  # beside each other, the same way every time
    axes.plot(at + spread, timed["time_ms"], ".", color=theme.other, markersize=4, alpha=0.7)
    best = timed["time_ms"].groupby(at).min()
    axes.plot(best.index, best.to_numpy(), "-", color=theme.tied, linewidth=1.4)
    winner = frame.attrs.get("winner")
    if winner in timed.index:
        axes.plot(at.loc[winner], timed.loc[winner, "time_ms"], "*", color=theme.winner, markersize=9)
    ticks = range(0, len(values), -(-len(values) // _MOST_TICKS))
    axes.set_xticks(ticks, [value_text(values[tick]) for tick in ticks])
    axes.set_title(name, color=theme.text, fontsize=9)
    if timed["time_ms"].max() > 8 * timed["time_ms"].min():
        use_logarithm(axes, "y", theme)


def _title(frame: pandas.DataFrame, timed: int) -> str:
    attrs = frame.attrs
    kernel, ties = attrs.get("kernel", "kernel"), len(attrs.get("tied", ()))
    if is_predicted(frame):
        overlap = f"; {overlap_words(ties)}" if ties else ""
        return f"{kernel}: predicted for {attrs.get('predicted_for') or attrs.get('target', '')}{overlap}"
    tied = f", {ties} tied" if ties else ""
    return f"{kernel}: {timed} of {plural(len(frame), 'config')} timed{tied} ({device_words(attrs)})"


def overlap_words(count: int) -> str:
    """Return ``the intervals of 2 more overlap``."""
    return f"the interval{'s' * (count > 1)} of {count} more overlap{'s' * (count == 1)}"


def failure_lines(frame: pandas.DataFrame) -> list[str]:
    """Return a line per config that did not run well, or one per status where there are many."""
    failed = frame[~frame["status"].isin([Status.OK, Status.DIFFERS])]
    if frame["rank"].isna().all() or is_predicted(frame):
        failed = failed[~failed["status"].isin([*UNMEASURED])]
    if len(failed) <= _MOST_FAILURES:
        names = varying(frame)
        lines = [f"{row['status']}  {config_text(row, names)}: {row['reason']}" for _, row in failed.iterrows()]
    else:
        lines = [
            f"{status}  {plural(len(group), 'config')}, most often: {group['reason'].value_counts().index[0]}"
            for status, group in failed.groupby("status")
        ]
    return [shorten(line, LINE_CHARACTERS) for line in lines]


def _look(frame: pandas.DataFrame, label: Any, theme: Theme) -> dict[str, Any]:
    """Return colour and marker of a config: of the winner, of one that differs from most, of one that ties."""
    if label == frame.attrs.get("winner"):
        return {"color": theme.winner, "marker": "*"}
    if frame.loc[label, "status"] == Status.DIFFERS:
        return {"color": theme.differs, "marker": "s"}
    is_tied = label in frame.attrs.get("tied", ())
    return {"color": theme.tied, "marker": "D"} if is_tied else {"color": theme.other, "marker": "o"}


_MOST_BANDS = 8
_MOST_PAIRS = 6
_DIFFERENCE_LINE = 112  # characters of a difference


def agreement_figure(frame: pandas.DataFrame, *, dark: bool = False) -> Figure | None:
    """Draw the times of the configs by group of equal outputs; None if there is one group.

    The band of a group that holds more than half of the configs is marked: the winner is in it. How the outputs of two
    groups differ is said below.
    """
    agreement = frame.attrs.get("agreement")
    if not agreement or not agreement["disagrees"]:
        return None
    theme = theme_of(dark)
    bands, names = _bands(frame, agreement), _pair_lines(agreement)
    figure, axes = single_axes(8.0, 1.1 + 0.42 * len(bands) + LINE_INCHES * len(names), theme)
    for place, (_, labels) in enumerate(bands):
        is_majority = place == 0 and agreement["majority"] == 0
        axes.axhspan(place - 0.4, place + 0.4, color=theme.winner if is_majority else theme.faint, alpha=0.22)
        for config, row in frame.loc[labels].iterrows():
            colour = theme.differs if row["status"] == Status.DIFFERS else theme.other
            look: dict[str, Any] = {"marker": "o", "color": colour, "markersize": 5, "alpha": 0.8}
            if config == frame.attrs.get("winner"):
                look = {"marker": "*", "color": theme.winner, "markersize": 9, "zorder": 3}
            axes.plot([row["time_ms"]], [place], **look)
    axes.set_yticks(range(len(bands)), [text for text, _ in bands])
    axes.set_ylim(len(bands) - 0.45, -0.55)
    scale_times(axes, "x", frame.loc[[row for _, labels in bands for row in labels], "time_ms"], theme)
    most = "the marked group is" if agreement["majority"] == 0 else "no group is"
    title = f"configs by equal outputs; {most} more than half of all"
    label(axes, theme, x="ms, median with cold L2", title=title)
    write_below(figure, names, theme.text)
    return figure


def _bands(frame: pandas.DataFrame, agreement: Mapping[str, Any]) -> list[tuple[str, list[Any]]]:
    """Return the text and the labels of each band: the largest groups, the other ones, what was not compared."""
    groups, names = agreement["groups"], varying(frame)
    bands = []
    for letter, labels in zip(ascii_uppercase, groups[:_MOST_BANDS], strict=False):
        rows = frame.loc[labels]
        shared = [name for name in names if rows[name].map(str).nunique() == 1]
        common = shorten(config_text(rows.iloc[0], shared), 34)
        bands.append((f"{letter}: {plural(len(labels), 'config')}" + (f"\n{common}" if common else ""), labels))
    rest = groups[_MOST_BANDS:]
    if rest:
        bands.append((plural(len(rest), "other group"), [row for labels in rest for row in labels]))
    if agreement["not_compared"]:
        bands.append(("not compared", agreement["not_compared"]))
    return bands


def _pair_lines(agreement: Mapping[str, Any]) -> list[str]:
    """Return the differences of each pair of groups, a line each, the largest group first."""
    lines = []
    for pair in agreement["pairs"]:
        first, second = (ascii_uppercase[place] for place in pair["groups"])
        how = "; ".join(OutputDifference(**difference).text for difference in pair["differences"])
        lines.append(shorten(f"{first} and {second}: {how}", _DIFFERENCE_LINE))
    rest = len(lines) - _MOST_PAIRS
    more = f'... and {plural(rest, "other pair")} in .frame.attrs["agreement"]'
    return [*lines[:_MOST_PAIRS], more] if rest > 0 else lines
