"""Traffic as a card: the sectors of each access, the source with badges, a warp of each access, maps of programs."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from html import escape
from itertools import pairwise
from math import prod

from kernellab.errors import plural, share_text
from kernellab.explain.traffic.accesses import WarpExample
from kernellab.explain.traffic.result import DESCRIPTOR, ArgumentTraffic, Traffic, TrafficRow
from kernellab.ir.effects import REACHED
from kernellab.ir.graph import short_file
from kernellab.ir.operations import Access
from kernellab.views.blocks import (
    WARNING,
    Block,
    Card,
    Drawing,
    Fold,
    Heading,
    Message,
    Section,
    html_table,
    table_of,
    text_only,
)
from kernellab.views.elements import (
    MARKS,
    badge,
    bytes_words,
    code_line,
    grid_words,
    group_by,
    number,
    share_bar,
    size_words,
    style,
    title,
)
from kernellab.views.figures.memory import mapped_programs, program_map, program_slider, warp_map, waste_class
from kernellab.views.palette import ATOMIC, READ, WRITE


def _operation_word(row: TrafficRow) -> str:
    return "set up" if row.argument == DESCRIPTOR else row.operation


def _kind_of(row: TrafficRow) -> Access:
    return Access.WRITE if row.argument == DESCRIPTOR else _KINDS[row.operation]


def _place_name(row: TrafficRow) -> str:
    """Return the memory of an access: an argument, ``via ptrs`` for the pointers in one, or shared memory."""
    return (row.argument or f"{row.space} memory").replace(REACHED, "via ")


_MAPS_AT_MOST = 12
_KINDS = {"load": Access.READ, "store": Access.WRITE, "atomic": Access.ATOMIC}
_SUMS = ("requests", "sectors", "ideal_sectors", "wavefronts", "conflicts")
_COLUMNS: dict[str, Callable[[TrafficRow], str]] = {
    "line": lambda row: number(row.line, "d"),
    "operation": _operation_word,
    "space": lambda row: str(row.space),
    "argument": lambda row: _place_name(row) if row.argument else "",
    "requests": lambda row: f"{row.requests:,}",
    "sectors": lambda row: f"{row.sectors:,}",
    "ideal": lambda row: f"{row.ideal_sectors:,}",
    "conflicts": lambda row: f"{row.conflicts:,}",
    "bytes": lambda row: f"{row.bytes:,}",
    "efficiency": lambda row: number(row.efficiency, ".0%"),
}
_HEAD = (
    *("line", "access", "requests", "sectors", "ideal"),
    *("useful / transferred bytes", "wavefronts", "conflicts", "lanes off"),
)
_LEGEND = (("kl-well", "ideal, or 7/8 of the sector used"), ("kl-half", "less"), ("kl-poor", "under 3/8"))


def traffic_card(traffic: Traffic) -> Card:
    """Return the traffic of each access and the unknowns; on a page, source and maps, too."""
    blocks: list[Block] = [
        Drawing(lambda: style(__package__, "traffic.css")),
        *_remarks(traffic),
        Drawing(lambda: _rows_html(traffic)),
        Fold("Source, by line", [Drawing(lambda: source_html(shown_rows(traffic)))], "sectors per request", True),
        Fold("One warp of each access", [Drawing(lambda: _warps(traffic))], "the request with most sectors", True),
        Fold("Arguments", [Drawing(lambda: _arguments(traffic))], "which programs touch what", True),
        text_only(_text_lines(traffic)),
    ]
    facts = [traffic.target, f"grid {grid_words(traffic.grid)}"]
    return Card([Section(Heading(traffic.kernel, facts), blocks)])


def _text_lines(traffic: Traffic) -> list[str]:
    """Return a line per access of a launch, then the untouched elements, the unknown, and notes."""
    lines = table_of(_COLUMNS, shown_rows(traffic)).lines()
    lines += [] if traffic.rows or traffic.unknown else ["It accesses no memory."]
    unknown = (f"unknown: {reason}" for reason in traffic.unknown)
    notes = (f"note: {note}" for note in (*_sample_notes(traffic), *traffic.notes))
    return [*lines, *_untouched_sentences(traffic), *unknown, *notes]


def shown_rows(traffic: Traffic) -> list[TrafficRow]:
    """Return the rows of a card; the accesses that set up a descriptor in one line are one row."""
    rows = dict[object, TrafficRow]()
    for row in traffic.rows:
        key = (row.file, row.line) if row.argument == DESCRIPTOR else id(row)
        earlier = rows.setdefault(key, row)
        if earlier is not row:
            rows[key] = replace(earlier, **{name: getattr(earlier, name) + getattr(row, name) for name in _SUMS})
    return list(rows.values())


def _sample_notes(traffic: Traffic) -> Iterator[str]:
    """Yield a sentence on the part of the grid that was counted, if it was not all of it."""
    if traffic.share < 1 and traffic.is_known:
        share = share_text(traffic.share)
        yield f"extrapolated from {share} of the grid; elements never read or written are unknown"


def _remarks(traffic: Traffic) -> Iterator[Message]:
    """Yield the remarks on the figures of a page."""
    for reason in traffic.unknown:
        yield Message(f"Unknown: {reason}.", WARNING, in_text=False)
    if not traffic.rows and not traffic.unknown:
        yield Message("It accesses no memory.", in_text=False)
    for sentence in _untouched_sentences(traffic):
        yield Message(sentence, WARNING, in_text=False)
    for note in (*_sample_notes(traffic), *traffic.notes):
        yield Message(f"{note[:1].upper()}{note[1:]}.", in_text=False)


def _untouched_sentences(traffic: Traffic) -> Iterator[str]:
    """Yield a sentence on each argument with elements that are never read or written."""
    for argument in traffic.arguments:
        if not argument.is_read and not argument.is_written:
            yield f"{argument.argument} was neither read nor written."
            continue
        for missing, done in ((argument.never_read, "read"), (argument.never_written, "written")):
            if missing and (done == "written" or not argument.is_written):
                elements = plural(argument.elements, "element")
                yield f"Of {argument.argument}, {missing:,} of {elements} were never {done}."


def _rows_html(traffic: Traffic) -> str:
    if not traffic.rows:
        return ""
    shown = shown_rows(traffic)
    rows = [_row_cells(row, traffic) for row in shown]
    columns = [at for at in range(len(_HEAD)) if any(row[at] for row in rows)]
    styles = ["" if name in ("access", "useful / transferred bytes") else ' class="kl-count"' for name in _HEAD]
    head = [f'<th scope="col"{styles[at]}>{_HEAD[at]}</th>' for at in columns]
    body = (
        f"<tr{title(totals_words(row))}>{''.join(f'<td{styles[at]}>{cells[at]}</td>' for at in columns)}</tr>"
        for row, cells in zip(shown, rows, strict=True)
    )
    return html_table(body, head, "kl-traffic")


def _row_cells(row: TrafficRow, traffic: Traffic) -> tuple[str, ...]:
    """Return the cells of a row as HTML, "" where one has nothing to say."""
    is_global, useful = row.space == "global", min(1.0, row.bytes_used / row.bytes) if row.bytes else 1.0
    moved = f"{size_words(row.bytes_used)} / {size_words(row.bytes)}, {share_text(useful)}"
    moved += share_bar(useful, waste_class(used_share(row)))
    place = number(row.line, "d")
    if row.file and len({other.file for other in traffic.rows if other.file}) > 1:
        place = escape(f"{short_file(row.file)}:{place}")
    return (
        place,
        badge(_kind_of(row), _place_name(row), word=_operation_word(row)),
        f"{row.requests:,}",
        f"{row.sectors:,}" if is_global else "",
        f"{row.ideal_sectors:,}" if is_global else "",
        moved if is_global else "",
        f"{row.wavefronts:,}" if row.wavefronts else "",
        f"{row.conflicts:,}" if row.conflicts else "",
        share_text(row.lanes_off) if row.lanes_off else "",
    )


def _warps(traffic: Traffic) -> str:
    shown = [(row, row.example) for row in traffic.rows if row.example is not None]
    if not shown:
        return ""
    keys = "".join(f'<span class="kl-key {kind}">{escape(words)}</span>' for kind, words in _LEGEND)
    legend = f'<p class="kl-legend">Lanes by the 32-byte sectors that they touch:{keys}</p>'
    figures = ""
    for row, example in shown[:_MAPS_AT_MOST]:
        place = "" if row.line is None else f"line {row.line}, "
        needed = f", {example.ideal_sectors} ideal" if example.ideal_sectors < example.sectors else ""
        sectors = f"{plural(example.sectors, 'sector')}{needed}{spacing_words(example)}"
        caption = f"{place}{_operation_word(row)} {_place_name(row)}: {sectors}"
        figures += f"<figure><figcaption>{escape(caption)}</figcaption>{warp_map(example, caption)}</figure>"
    more = len(shown) - _MAPS_AT_MOST
    rest = f'<p class="kl-dim">and {plural(more, "access")} more</p>' if more > 0 else ""
    return f'{legend}<div class="kl-maps">{figures}</div>{rest}'


def spacing_words(example: WarpExample) -> str:
    """Return the distance of the lanes where it is constant: ``; lanes 128 bytes apart``."""
    busy = [offset for offset in example.offsets if offset is not None]
    steps = {after - before for before, after in pairwise(busy)}
    if len(steps) != 1 or None in example.offsets:
        return ""
    step = steps.pop()
    return "; all lanes at one address" if step == 0 else f"; lanes {plural(abs(step), 'byte')} apart"


_ARGUMENTS: dict[str, Callable[[ArgumentTraffic], str]] = {
    "argument": lambda row: row.argument,
    "elements": lambda row: f"{row.elements:,}",
    "read": lambda row: size_words(row.read_bytes) if row.is_read else "",
    "written": lambda row: size_words(row.written_bytes) if row.is_written else "",
    "reads per element": lambda row: _reads_text(row.reads_per_element) if row.is_read else "",
    "footprint": lambda row: size_words(row.footprint_bytes),
    "without L2 reuse": lambda row: size_words(row.wave_bytes),
    "waves": lambda row: f"{row.waves:,}",
}


def _reads_text(reads: float | None) -> str:
    return number(reads, ".3g" if reads is None or reads < 1000 else ",.0f")


def _arguments(traffic: Traffic) -> str:
    """Return a row and a map for each argument; "" where only a part of the programs was looked at."""
    shown = [argument for argument in traffic.arguments if argument.is_read or argument.is_written]
    if not shown:
        return ""
    count = mapped_programs(traffic.grid, traffic.wave_programs, len(shown[0].programs))
    wave = min(traffic.wave_programs, prod(traffic.grid))
    which = f"The {plural(count, 'program')}" if count == wave else f"The first {count} of {plural(wave, 'program')}"
    values = {int(value) for argument in shown for value in set(argument.programs.flat)}
    keys = "".join(
        f'<span class="kl-key" style="--kl-key:{colour}">{word}</span>'
        for colour, word, value in ((READ, "read", 1), (WRITE, "written", 2), (ATOMIC, "both", 3))
        if value in values
    )
    figures = "".join(
        f"<figure><figcaption>{escape(argument.argument)}</figcaption>"
        f"{program_map(argument, traffic.grid, traffic.wave_programs)}</figure>"
        for argument in shown
    )
    table = table_of(_ARGUMENTS, shown, left=("argument",)).html()
    legend = f"{which} of the first wave, top to bottom in launch order:{keys}"
    slider, maps = program_slider(traffic.grid, count), f'<div class="kl-maps">{figures}</div>'
    return f'{table}<p class="kl-legend">{legend}</p><form class="kl-programs">{slider}{maps}</form>'


_FUNCTION_LINES = 80


def source_html(rows: Sequence[TrafficRow]) -> str:
    """Return the functions that access memory as a table, up to their last access; "" where no line is known."""
    known = (row for row in rows if row.line is not None and row.file)
    by_place = group_by(known, lambda row: (row.file or "", row.line or 0))
    shown = set[tuple[str, int]]()
    for file, last in by_place:
        before = range(last, max(0, last - _FUNCTION_LINES), -1)
        starts = (line for line in before if linecache.getline(file, line).lstrip().startswith("def "))
        shown |= {(file, line) for line in range(next(starts, last), last + 1)}
    files = {file for file, _ in shown}
    body, earlier = list[str](), ("", 0)
    for file, line in sorted(shown):
        if body and (file, line - 1) != earlier:
            name = escape(short_file(file)) if len(files) > 1 and file != earlier[0] else ""
            body.append(f'<tr><td class="kl-no">⋮</td><td></td><td>{name}</td></tr>')
        text = code_line(linecache.getline(file, line).rstrip()) or " "
        badges = "".join(map(access_badge, by_place.get((file, line), ())))
        body.append(f'<tr><td class="kl-no">{line}</td><td>{text}</td><td class="kl-by">{badges}</td></tr>')
        earlier = file, line
    if not body:
        return ""
    table = "\n".join(body)
    return f'<div class="kl-scroll"><table class="kl-source kl-traffic-source"><tbody>\n{table}\n</tbody></table></div>'


def access_badge(row: TrafficRow) -> str:
    """Return the sectors of an average request, as a badge for its line."""
    name = _place_name(row)
    moved = "set up" if row.argument == DESCRIPTOR else request_words(row)
    label = f"<b>{MARKS[_kind_of(row)]} {escape(name)}</b> {escape(moved)}"
    style = f"kl-badge {waste_class(used_share(row))}"
    return f'<span class="{style}"{title(totals_words(row))}>{label}</span>'


def used_share(row: TrafficRow) -> float:
    """Return the share of useful sectors or wavefronts, from 0 to 1; 1 without traffic."""
    return 1.0 if row.efficiency is None else row.efficiency


def request_words(row: TrafficRow) -> str:
    """Return an average request: ``16 sectors, 4 ideal``, or ``2 wavefronts, 1 ideal``."""
    requests = max(1, row.requests)
    if row.space == "shared":
        moved, needed, word = row.wavefronts / requests, (row.wavefronts - row.conflicts) / requests, "wavefront"
    else:
        moved, needed, word = row.sectors / requests, row.ideal_sectors / requests, "sector"
    ending = "" if f"{moved:.3g}" == "1" else "s"
    needs = "" if f"{moved:.3g}" == f"{needed:.3g}" else f", {needed:.3g} ideal"
    return f"{moved:.3g} {word}{ending}{needs}"


def totals_words(row: TrafficRow) -> str:
    """Return the totals of an access, for a tooltip."""
    words = [f"{row.requests:,} requests", row.instruction]
    if row.space == "global":
        words += [f"{row.sectors:,} sectors, {row.ideal_sectors:,} ideal", f"{bytes_words(row.bytes)} transferred"]
    if row.wavefronts:
        words.append(f"{row.wavefronts:,} wavefronts, {row.conflicts:,} due to bank conflicts")
    return "\n".join(words)
