"""Maps of accesses as inline SVG: the lanes of one warp by the sectors that they touch, programs by what they touch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from math import ceil

from kernellab.errors import plural
from kernellab.explain.traffic.accesses import WarpExample
from kernellab.explain.traffic.arithmetic import Array
from kernellab.explain.traffic.result import ArgumentTraffic
from kernellab.target import SECTOR_BYTES
from kernellab.views.graph.drawing import FONT
from kernellab.views.palette import ATOMIC, BAD, GOOD, GREY, READ, WARNING, WRITE

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
    for first, count in _runs(lanes):
        x = _LEFT_PX + first * _LANE_PX
        yield f'<rect x="{x}" y="{y}" width="{count * _LANE_PX - 1}" height="{height - 1}"/>'
    whole = SECTOR_BYTES * _BYTE_PX
    yield f'<rect {_BAND} x="{bytes_at}" y="{y}" width="{whole}" height="{height - 1}"/>'
    for first, count in _runs(sorted(inside)):
        x = bytes_at + first * _BYTE_PX
        yield f'<rect x="{x}" y="{y}" width="{count * _BYTE_PX}" height="{height - 1}"/>'
    yield "</g>"


def _runs(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield start and length of each run of consecutive numbers."""
    start = 0
    for at in range(1, len(numbers) + 1):
        if at == len(numbers) or numbers[at] != numbers[at - 1] + 1:
            yield numbers[start], at - start
            start = at


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
        runs = _runs([at for at, part in enumerate(parts.tolist()) if part == value])
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
