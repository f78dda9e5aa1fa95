"""Figures of what a kernel does to memory: effects by argument, traffic by access, elements changed by a launch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kernellab.errors import plural, share_text, time_text
from kernellab.explain.traffic.result import Traffic, TrafficRow
from kernellab.ir.effects import Effects
from kernellab.ir.operations import Access
from kernellab.launch.run import Run, finding_words
from kernellab.views.elements import PAST, grid_words, lines_words, shorten, size_words, unknown_words
from kernellab.views.figures.access_maps import WASTE_COLOURS, waste_class
from kernellab.views.figures.canvas import (
    BAR_INCHES,
    LINE_CHARACTERS,
    LINE_INCHES,
    label,
    name_bars,
    sentences_figure,
    single_axes,
    stacked_axes,
    theme_of,
    write_below,
    write_beside,
)
from kernellab.views.palette import ATOMIC, BAD, GOOD, READ, WARNING, WRITE, Theme
from kernellab.views.report import lines_by_argument

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_ROWS = 24
_MOST_FINDINGS = 6
_ACCESS_COLOURS = {Access.READ: READ, Access.WRITE: WRITE, Access.ATOMIC: ATOMIC}


def effects_figure(effects: Effects, *, dark: bool = False) -> Figure:
    """Draw a table: a row per argument, with the source lines that read it, write it or update it atomically."""
    theme = theme_of(dark)
    lines_of = lines_by_argument(effects)
    unknown = [shorten(f"unknown: {unknown_words(effect)}", LINE_CHARACTERS) for effect in effects.unknown]
    if not lines_of:
        return sentences_figure("Memory effects", unknown or ["The kernel accesses no memory."], theme)
    figure, axes = single_axes(8.0, 0.75 + BAR_INCHES * (len(lines_of) + 1) + LINE_INCHES * len(unknown), theme)
    _draw_cells(axes, lines_of, theme, is_known=not unknown)
    label(axes, theme, title="Memory effects: arguments by source line")
    write_below(figure, unknown, theme.failed)
    return figure


def _draw_cells(
    axes: Axes, lines_of: Mapping[str, Mapping[Access, tuple[int, ...]]], theme: Theme, *, is_known: bool
) -> None:
    from matplotlib.patches import FancyBboxPatch

    axes.set_axis_off()
    axes.set(xlim=(0, 8), ylim=(len(lines_of) - 0.4, -1.4))
    for column, kind in enumerate(_ACCESS_COLOURS):
        axes.text(3.3 + 1.6 * column, -0.9, PAST[kind], color=theme.text, fontsize=8.5, weight="bold", va="center")
    for row, (name, lines) in enumerate(lines_of.items()):
        axes.axhline(row - 0.5, color=theme.faint, linewidth=0.6)
        axes.text(0.05, row, shorten(name, 42), color=theme.text, fontsize=8.5, family="monospace", va="center")
        for column, (kind, colour) in enumerate(_ACCESS_COLOURS.items()):
            if kind in lines:
                left = 3.25 + 1.6 * column
                style: dict[str, Any] = {"facecolor": colour, "alpha": 0.25, "linewidth": 0}
                axes.add_patch(FancyBboxPatch((left, row - 0.3), 1.4, 0.6, "round,pad=0,rounding_size=0.08", **style))
                words = shorten(lines_words(lines[kind]) or "yes", 20)
                axes.text(left + 0.07, row, words, color=theme.text, fontsize=8, va="center")
        if not lines:
            words = "untouched" if is_known else "not known"
            axes.text(3.32, row, words, color=theme.other, fontsize=8, style="italic", va="center")


def traffic_figure(traffic: Traffic, *, dark: bool = False) -> Figure:
    """Draw the bytes that each access to global memory moves, the useful part solid; then shared memory, if any.

    Shared memory has a bar of wavefronts, those without bank conflicts solid.
    """
    theme = theme_of(dark)
    unknown = [shorten(f"unknown: {reason}", LINE_CHARACTERS) for reason in traffic.unknown]
    global_rows = [row for row in traffic.rows if row.space == "global" and row.bytes]
    shared_rows = [row for row in traffic.rows if row.space == "shared" and row.wavefronts]
    title = f"{traffic.kernel}: memory traffic ({traffic.target}, grid {grid_words(traffic.grid)})"
    if not global_rows and not shared_rows:
        return sentences_figure(title, unknown or ["The launch accesses no memory."], theme)
    parts = [rows for rows in (_largest(global_rows, "bytes"), _largest(shared_rows, "wavefronts")) if rows]
    heights = [0.75 + BAR_INCHES * len(rows) for rows in parts]
    figure, panels = stacked_axes(8.0, heights, theme, 0.2 + LINE_INCHES * len(unknown))
    for axes, rows in zip(panels, parts, strict=True):
        if rows[0].space == "global":
            _draw_bytes(axes, rows, traffic, theme)
        else:
            _draw_wavefronts(axes, rows, theme)
    label(panels[0], theme, title=title)
    write_below(figure, unknown, theme.failed)
    return figure


def _largest(rows: Sequence[TrafficRow], by: str) -> list[TrafficRow]:
    """Return the rows that move most, in their order."""
    kept = sorted(rows, key=lambda row: -getattr(row, by))[:_MOST_ROWS]
    return [row for row in rows if row in kept]


def _draw_bytes(axes: Axes, rows: Sequence[TrafficRow], traffic: Traffic, theme: Theme) -> None:
    most = max(row.bytes for row in rows)
    scale, unit = next((pair for pair in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")) if most >= pair[0]), (1, "B"))
    for place, row in enumerate(rows):
        share = min(1.0, row.bytes_used / row.bytes)
        colour = WASTE_COLOURS[waste_class(share)]
        axes.barh(place, row.bytes / scale, height=0.62, color=colour, alpha=0.3)
        axes.barh(place, min(row.bytes_used, row.bytes) / scale, height=0.62, color=colour)
        words = f"{size_words(row.bytes)}, {share_text(share)} useful"
        write_beside(axes, row.bytes / scale, place, words, theme)
    sample = "" if traffic.share == 1 else f" (extrapolated from {share_text(traffic.share)} of the grid)"
    _name_rows(axes, rows, f"{unit} transferred, the useful part solid{sample}", theme)


def _draw_wavefronts(axes: Axes, rows: Sequence[TrafficRow], theme: Theme) -> None:
    for place, row in enumerate(rows):
        colour = BAD if row.conflicts > row.wavefronts / 2 else WARNING if row.conflicts else GOOD
        axes.barh(place, row.wavefronts, height=0.62, color=colour, alpha=0.3)
        axes.barh(place, row.wavefronts - row.conflicts, height=0.62, color=colour)
        words = f"{row.wavefronts:,}" + (f", {row.conflicts:,} from bank conflicts" if row.conflicts else "")
        write_beside(axes, row.wavefronts, place, words, theme)
    _name_rows(axes, rows, "shared-memory wavefronts, those without bank conflicts solid", theme)


def _name_rows(axes: Axes, rows: Sequence[TrafficRow], words: str, theme: Theme) -> None:
    places = ["" if row.line is None else f"line {row.line}  " for row in rows]
    accesses = [f"{row.operation} {row.argument or 'shared memory'}" for row in rows]
    name_bars(axes, [shorten(place + access, 40) for place, access in zip(places, accesses, strict=True)])
    axes.set_xlim(0, 1.45 * axes.get_xlim()[1])
    label(axes, theme, x=words)


def run_figure(run: Run, *, dark: bool = False) -> Figure:
    """Draw how many elements of each argument a launch changed; findings of the checked run stand below."""
    theme = theme_of(dark)
    where = "CPU interpreter" if run.where == "interpreter" else "GPU"
    title = f"{run.kernel}: elements changed ({where}, grid {grid_words(run.grid)}, {time_text(run.seconds)})"
    findings = [f"{finding.severity}: {finding_words(finding)}" for finding in run.findings[:_MOST_FINDINGS]]
    lines = [shorten(finding, LINE_CHARACTERS) for finding in findings]
    rest = len(run.findings) - _MOST_FINDINGS
    lines += [f"... and {plural(rest, 'more finding')} in .findings"] if rest > 0 else []
    if not run.changed:
        return sentences_figure(title, lines or ["Which elements changed was not recorded."], theme)
    figure, axes = single_axes(8.0, 0.85 + BAR_INCHES * len(run.changed) + LINE_INCHES * len(lines), theme)
    for place, count in enumerate(run.changed.values()):
        axes.barh(place, count, height=0.6, color=WRITE)
        write_beside(axes, count, place, f"{count:,}" if count else "none", theme)
    name_bars(axes, [shorten(name, 40) for name in run.changed])
    axes.set_xlim(0, 1.2 * max(*run.changed.values(), 1))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}" if value == int(value) else "")
    label(axes, theme, x="elements", title=title)
    write_below(figure, lines, theme.failed)
    return figure
