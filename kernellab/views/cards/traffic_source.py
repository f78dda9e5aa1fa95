"""The source of a launch with a badge for each access of a line: what a request moves, and what it needs."""

from __future__ import annotations

import linecache
from collections.abc import Iterator, Sequence
from html import escape

from kernellab.ir.effects import Access
from kernellab.ir.lines import short_file
from kernellab.traffic.result import TrafficRow
from kernellab.views.elements import title
from kernellab.views.figures.access_maps import waste_class
from kernellab.views.wording import MARKS, bytes_words

_FUNCTION_LINES = 80
KINDS = {"load": Access.READ, "store": Access.WRITE, "atomic": Access.ATOMIC}


def source_html(rows: Sequence[TrafficRow]) -> str:
    """Return the functions that access memory as a table, up to their last access; "" where no line is known."""
    by_place: dict[tuple[str, int], list[TrafficRow]] = {}
    for row in rows:
        if row.line is not None and row.file:
            by_place.setdefault((row.file, row.line), []).append(row)
    shown = _shown_lines(by_place)
    files = {file for file, _ in shown}
    body = []
    before: tuple[str, int] | None = None
    for file, number in shown:
        if before is not None and (file, number - 1) != before:
            name = escape(short_file(file)) if len(files) > 1 and file != before[0] else ""
            body.append(f'<tr><td class="kl-no">⋮</td><td></td><td>{name}</td></tr>')
        text = escape(linecache.getline(file, number).rstrip()) or " "
        badges = "".join(map(access_badge, by_place.get((file, number), ())))
        body.append(f'<tr><td class="kl-no">{number}</td><td>{text}</td><td class="kl-by">{badges}</td></tr>')
        before = file, number
    if not body:
        return ""
    table = "\n".join(body)
    return f'<div class="kl-scroll"><table class="kl-source kl-traffic-source"><tbody>\n{table}\n</tbody></table></div>'


def _shown_lines(places: dict[tuple[str, int], list[TrafficRow]]) -> list[tuple[str, int]]:
    shown: set[tuple[str, int]] = set()
    for file, number in places:
        shown.update((file, each) for each in _from_its_definition(file, number))
    return sorted(shown)


def _from_its_definition(file: str, number: int) -> Iterator[int]:
    """Yield the lines of a function up to one of them; that line alone where no ``def`` is found before it."""
    for first in range(number, max(0, number - _FUNCTION_LINES), -1):
        if linecache.getline(file, first).lstrip().startswith("def "):
            yield from range(first, number + 1)
            return
    yield number


def access_badge(row: TrafficRow) -> str:
    """Return what a request of an access moves and what it needs, as a mark beside its line."""
    name = row.argument or row.space
    told = f"<b>{MARKS[KINDS[row.operation]]} {escape(name)}</b> {escape(request_words(row))}"
    style = f"kl-badge {waste_class(used_share(row))}"
    return f'<span class="{style}"{title(totals_words(row))}>{told}</span>'


def used_share(row: TrafficRow) -> float:
    """Return which share of the sectors, or of the wavefronts, is needed, from 0 to 1; 1 where nothing moves."""
    if row.space == "shared":
        return 1.0 - row.conflicts / row.wavefronts if row.wavefronts else 1.0
    return min(1.0, row.ideal_sectors / row.sectors) if row.sectors else 1.0


def request_words(row: TrafficRow) -> str:
    """Return what a request moves on average: ``16 sectors, 4 needed``, or ``2 wavefronts, 1 needed``."""
    requests = max(1, row.requests)
    if row.space == "shared":
        moved, needed, word = row.wavefronts / requests, (row.wavefronts - row.conflicts) / requests, "wavefront"
    else:
        moved, needed, word = row.sectors / requests, row.ideal_sectors / requests, "sector"
    ending = "" if f"{moved:.3g}" == "1" else "s"
    needs = "" if f"{moved:.3g}" == f"{needed:.3g}" else f", {needed:.3g} needed"
    return f"{moved:.3g} {word}{ending}{needs}"


def totals_words(row: TrafficRow) -> str:
    """Return what all requests of an access move, for a tooltip."""
    words = [f"{row.requests:,} requests", f"{row.instruction}"]
    if row.space == "global":
        words += [f"{row.sectors:,} sectors, {row.ideal_sectors:,} needed", f"{bytes_words(row.bytes)} moved"]
    if row.wavefronts:
        words.append(f"{row.wavefronts:,} wavefronts, {row.conflicts:,} for conflicts of banks")
    return "\n".join(words)
