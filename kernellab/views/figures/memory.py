"""What a kernel does to memory, drawn: effects, traffic and changed elements; a warp's request; a wave's programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from math import ceil
from typing import TYPE_CHECKING, Any

from kernellab.errors import plural, share_text, time_text
from kernellab.explain.traffic.accesses import WarpExample
from kernellab.explain.traffic.arithmetic import Array
from kernellab.explain.traffic.result import ArgumentTraffic, Traffic, TrafficRow
from kernellab.ir.effects import Effects
from kernellab.ir.operations import Access
from kernellab.launch.run import Run, finding_words
from kernellab.target import SECTOR_BYTES
from kernellab.views.elements import PAST, grid_words, lines_words, runs_of, shorten, size_words, unknown_words
from kernellab.views.figures.canvas import (
    BAR_INCHES,
    LINE_CHARACTERS,
    LINE_INCHES,
    label,
    name_bars,
    new_axes,
    new_figure,
    sentences_figure,
    single_axes,
    theme_of,
    write_below,
    write_beside,
)
from kernellab.views.graph.drawing import FONT
from kernellab.views.palette import ATOMIC, BAD, GOOD, GREY, READ, WARNING, WRITE, Theme
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
    figure = new_figure(8.0, sum(heights) + 0.2 + LINE_INCHES * len(unknown), theme)
    grid = figure.add_gridspec(len(parts), 1, height_ratios=heights)
    for place, rows in enumerate(parts):
        axes = new_axes(figure, theme, grid[place, 0])
        if rows[0].space == "global":
            _draw_bytes(axes, rows, traffic, theme)
        else:
            _draw_wavefronts(axes, rows, theme)
    label(figure.axes[0], theme, title=title)
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


_LANE_PX = 9
_LEFT_PX, _TOP_PX, _GAP_PX = 62, 18, 10
_BYTE_PX = 2
_SECTORS_AT_MOST = 64
_ROW_HEIGHTS_PX = ((8, 13), (16, 11), (32, 7), (64, 5))
_LABEL_PX = 11
_PART_PX = 2
_WELL, _POORLY = 7 / 8, 3 / 8  # shares of a sector from which it counts as used, and below which as wasted
WASTE_COLOURS = {"kl-well": GOOD, "kl-half": WARNING, "kl-poor": BAD}  # by `waste_class`
_TOUCHED = {1: (READ, "reads"), 2: (WRITE, "writes"), 3: (ATOMIC, "reads and writes")}
_BAND = 'class="kl-band" fill-opacity=".15"'


def touched_bytes(example: WarpExample) -> dict[int, frozenset[int]]:
    """Return the requested bytes of each 32-byte sector, by sector number from the argument on."""
    sectors: dict[int, set[int]] = {}
    for offset in example.offsets:
        if offset is not None:
            first = offset + example.begin_bytes
            for byte in range(first, first + example.size_bytes):
                sectors.setdefault(byte // SECTOR_BYTES, set()).add(byte % SECTOR_BYTES)
    return {sector: frozenset(sectors[sector]) for sector in sorted(sectors)}


def waste_class(share: float) -> str:
    """Return the class that colours what uses a share of what it moves, from 0 to 1."""
    return "kl-well" if share >= _WELL else "kl-poor" if share < _POORLY else "kl-half"


def warp_map(example: WarpExample, title: str) -> str:
    """Return the lanes of a warp, from left to right, by the sectors that they touch, from the lowest address on.

    At the right stand the bytes of each sector, those that are used filled. Colours show the share that is used.
    """
    used = touched_bytes(example)
    shown = list(used.items())[:_SECTORS_AT_MOST]
    height = _row_height(len(shown))
    bytes_at = _LEFT_PX + len(example.offsets) * _LANE_PX + _GAP_PX
    lanes = len(example.offsets)
    body = [
        f'<text x="{_LEFT_PX + (lane + 0.5) * _LANE_PX:g}" y="{_TOP_PX - 6}" text-anchor="middle">{lane}</text>'
        for lane in sorted({*range(0, lanes, 8), lanes - 1})
    ]
    body.append(f'<text x="{_LEFT_PX - 6}" y="{_TOP_PX - 6}" text-anchor="end">lane</text>')
    body += _idle_lanes(example, len(shown) * height)
    body.append(f'<text x="{bytes_at}" y="{_TOP_PX - 6}">bytes used</text>')
    step = ceil(_LABEL_PX / height)
    for row, (sector, inside) in enumerate(shown):
        y = _TOP_PX + row * height
        body += _sector(example, sector, inside, y, height, bytes_at)
        if row % step == 0:
            offset = max(0, sector * SECTOR_BYTES - example.begin_bytes)
            body.append(f'<text x="{_LEFT_PX - 6}" y="{y + height / 2 + 3.5:g}" text-anchor="end">+{offset:,}</text>')
    width = bytes_at + SECTOR_BYTES * _BYTE_PX + 4
    return _svg(title, width, _TOP_PX + len(shown) * height + 2, body)


def _row_height(rows: int) -> int:
    return next((height for most, height in _ROW_HEIGHTS_PX if rows <= most), _ROW_HEIGHTS_PX[-1][1])


def _idle_lanes(example: WarpExample, height: int) -> Iterator[str]:
    for lane, offset in enumerate(example.offsets):
        if offset is None:
            x = _LEFT_PX + lane * _LANE_PX
            tip = f"<title>lane {lane} accesses nothing</title>"
            look = f'fill="{GREY}" fill-opacity=".3"'
            yield f'<rect {look} x="{x}" y="{_TOP_PX}" width="{_LANE_PX}" height="{height}">{tip}</rect>'


def _sector(
    example: WarpExample, sector: int, inside: frozenset[int], y: int, height: int, bytes_at: int
) -> Iterator[str]:
    begin = sector * SECTOR_BYTES - example.begin_bytes
    touched = range(begin - example.size_bytes + 1, begin + SECTOR_BYTES)
    lanes = [lane for lane, offset in enumerate(example.offsets) if offset in touched]
    is_ideal = example.sectors <= example.ideal_sectors  # as few sectors as hold the bytes, such as one of a scalar
    kind = waste_class(1.0 if is_ideal else len(inside) / SECTOR_BYTES)
    names = f"lane {lanes[0]}" if len(lanes) == 1 else f"{len(lanes)} lanes from {lanes[0]} to {lanes[-1]}"
    tip = f"sector from byte {begin:,} of the argument: {len(inside)} of {SECTOR_BYTES} bytes used, by {names}"
    yield f'<g class="{kind}" fill="{WASTE_COLOURS[kind]}" fill-opacity="1"><title>{escape(tip)}</title>'
    width = len(example.offsets) * _LANE_PX
    yield f'<rect {_BAND} x="{_LEFT_PX}" y="{y}" width="{width}" height="{height - 1}"/>'
    for first, count in _consecutive(lanes):
        x = _LEFT_PX + first * _LANE_PX
        yield f'<rect x="{x}" y="{y}" width="{count * _LANE_PX - 1}" height="{height - 1}"/>'
    whole = SECTOR_BYTES * _BYTE_PX
    yield f'<rect {_BAND} x="{bytes_at}" y="{y}" width="{whole}" height="{height - 1}"/>'
    for first, count in _consecutive(sorted(inside)):
        x = bytes_at + first * _BYTE_PX
        yield f'<rect x="{x}" y="{y}" width="{count * _BYTE_PX}" height="{height - 1}"/>'
    yield "</g>"


def _consecutive(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Return start and length of each run of consecutive numbers."""
    runs = runs_of([number - at for at, number in enumerate(numbers)])
    return [(numbers[run.start], len(run)) for run in runs]


def mapped_programs(grid: tuple[int, int, int], wave_programs: int, rows: int) -> int:
    """Return the number of programs on a map: those of the first wave that are drawn."""
    return min(rows, max(1, wave_programs), grid[0] * grid[1] * grid[2])


def program_map(traffic: ArgumentTraffic, grid: tuple[int, int, int], wave_programs: int) -> str:
    """Return the programs of the first wave, in their order from above, by the elements that each touches."""
    count = mapped_programs(grid, wave_programs, len(traffic.programs))
    parts = traffic.programs.shape[1]
    height, width = _row_height(count), parts * _PART_PX
    step = ceil(_LABEL_PX / height)
    last = f"{max(0, traffic.elements - 1):,}"
    body = [
        f'<text x="{_LEFT_PX}" y="{_TOP_PX - 6}">element 0</text>',
        f'<text x="{_LEFT_PX + width}" y="{_TOP_PX - 6}" text-anchor="end">{last}</text>',
    ]
    for program in range(count):
        y = _TOP_PX + program * height
        body += _program(traffic.programs[program], y, height, _program_tip(traffic, program, grid))
        if program % step == 0:
            name = program_name(program, grid)
            body.append(f'<text x="{_LEFT_PX - 6}" y="{y + height / 2 + 3.5:g}" text-anchor="end">{name}</text>')
    title = f"{traffic.argument}: what {plural(count, 'program')} touch"
    return _svg(title, _LEFT_PX + width + 2, _TOP_PX + count * height + 2, body)


def _program(parts: Array, y: int, height: int, tip: str) -> Iterator[str]:
    """Yield the row of a program; its accesses show above the map when it is chosen."""
    yield "<g>"
    width = len(parts) * _PART_PX
    yield f'<rect {_BAND} fill="{GREY}" x="{_LEFT_PX}" y="{y}" width="{width}" height="{height - 1}"/>'
    for value, (colour, _) in _TOUCHED.items():
        runs = _consecutive([at for at, part in enumerate(parts.tolist()) if part == value])
        path = "".join(f"M{_LEFT_PX + first * _PART_PX} {y + (height - 1) / 2:g}h{n * _PART_PX}" for first, n in runs)
        if path:
            yield f'<path stroke="{colour}" stroke-width="{height - 1}" d="{path}"/>'
    place = f'x="{_LEFT_PX + width / 2:g}" y="{_TOP_PX - 6}" text-anchor="middle"'
    yield f'<text visibility="hidden" {place}>{escape(tip)}</text></g>'  # a style sheet shows that of the chosen one


def _program_tip(traffic: ArgumentTraffic, program: int, grid: tuple[int, int, int]) -> str:
    row = traffic.programs[program].tolist()
    touched = [at for at, value in enumerate(row) if value]
    name = f"program {program_name(program, grid)}"
    if not touched:
        return f"{name} touches nothing"
    first = touched[0] * traffic.elements // len(row)
    last = max(first, -(-(touched[-1] + 1) * traffic.elements // len(row)) - 1)
    words = " and ".join(dict.fromkeys(_TOUCHED[value][1] for value in row if value))
    return f"{name} {words} about {first:,} to {last:,}"


def program_slider(grid: tuple[int, int, int], count: int) -> str:
    """Return a slider over the programs of maps that stand in the same ``<form class="kl-programs">``, without script.

    It is a button for each program, and a first one for all of them; arrow keys go from one to the next. The form keeps
    its choice apart from that of other cards. "" where there is one program.
    """
    if count < 2:
        return ""
    names = ["all programs", *(f"program {program_name(program, grid)}" for program in range(count))]
    buttons = "".join(
        f'<input type="radio" name="program"{"" if at else " checked"} aria-label="{name}" title="{name}">'
        for at, name in enumerate(names)
    )
    chosen = "".join(
        f".kl-card .kl-programs:has(input:nth-of-type({at + 2}):checked) .kl-map g:nth-of-type({at + 1})"
        "{opacity:1;--kl-named:visible}"
        for at in range(count)
    )
    return f'<style>{chosen}</style><div class="kl-slider" role="radiogroup" aria-label="program">{buttons}</div>'


def program_name(program: int, grid: tuple[int, int, int]) -> str:
    """Return the place of a program in the grid: ``3``, or ``1, 0``; along the first axis first."""
    rest, x = divmod(program, grid[0])
    if grid[1:] == (1, 1):
        return str(program)
    return f"{x}, {rest}" if grid[2] == 1 else f"{x}, {rest % grid[1]}, {rest // grid[1]}"


def _svg(title: str, width: float, height: float, body: Sequence[str]) -> str:
    label = escape(title)
    head = f'<svg class="kl-map" viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}" role="img"'
    text = f'font-family="{FONT}" font-size="10" fill="currentColor" fill-opacity=".78"'
    return f'{head} {text} aria-label="{label}"><title>{label}</title>{"".join(body)}</svg>'
