"""Replaces what the facts of a launch assume by what its traffic counted: executions, lanes, sectors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median

from kernellab.explain.causes import lines_text
from kernellab.explain.code_lines import Line, own_line_among
from kernellab.explain.facts import WARP_THREADS, AccessFacts, AtomicFacts, DotFacts, Facts, LineFacts, ReductionFacts
from kernellab.explain.traffic.result import ArgumentTraffic, Traffic, TrafficRow

_ASSUMED_TRIPS = "Trip counts are assumed to be"

LineRows = Sequence[tuple[Line, TrafficRow]]
"""The rows of a traffic, each with its line of the kernel's own file."""


@dataclass(frozen=True, slots=True)
class LineCount:
    """The counts of a line: PTX instructions, their executions by warps, and runs by programs or None."""

    instructions: int
    executed: float
    runs: float | None


def line_rows(traffic: Traffic, file: str) -> LineRows:
    """Return the rows of a traffic with their lines in the kernel's own file."""
    return [(own_line_among([(row.file, row.line), *row.calls], file), row) for row in traffic.rows]


def line_counts(traffic: Traffic, file: str) -> Mapping[Line, LineCount]:
    """Return the counts of each line of the kernel's own file."""
    counts: dict[Line, LineCount] = {}
    for run in traffic.line_runs:
        line = own_line_among([(run.file, run.line), *run.calls], file)
        before = counts.get(line, LineCount(0, 0.0, 0.0))
        most = None if before.runs is None or run.runs is None else max(before.runs, run.runs)
        counts[line] = LineCount(before.instructions + run.instructions, before.executed + run.executed, most)
    return counts


def with_counted_executions(facts: Facts, traffic: Traffic, file: str) -> Facts:
    """Return facts with accesses, atomics, products and reductions executed as often as was counted.

    What no program executed is left out, unless parts of the traffic are unknown.
    """
    rows, counts = line_rows(traffic, file), line_counts(traffic, file)
    idle = {line for line, count in counts.items() if count.runs == 0} if not traffic.unknown else set[Line]()
    static = [access for access in facts.accesses if access.line not in idle or access.knows_trips]
    accesses = [_counted_access(access, rows, facts) for access in static]
    reductions = [_counted_reduction(r, accesses, counts.get(r.line), facts.programs) for r in facts.reductions]
    parts: tuple[AccessFacts | ReductionFacts, ...] = (*accesses, *reductions)
    lines = {line.line: line for line in facts.lines}
    return replace(
        facts,
        accesses=tuple(accesses),
        atomics=_counted_atomics(facts.atomics, static, rows),
        reductions=tuple(reductions),
        dots=tuple(_counted_dot(dot, lines.get(dot.line), counts.get(dot.line), facts.programs) for dot in facts.dots),
        lines=tuple(_counted_line(line, counts.get(line.line), is_idle=line.line in idle) for line in facts.lines),
        loop_trips=facts.loop_trips * _trips_ratio(static, accesses),
        unknown=_left_unknown(facts.unknown, [part.line for part in parts if not part.knows_trips]),
    )


def _counted_access(access: AccessFacts, rows: LineRows, facts: Facts) -> AccessFacts:
    """Return an access with its counted sectors, bytes and lanes, and with its executions where these were assumed."""
    own = _own_rows(access.line, access.operation, access.argument, rows)
    if not own:
        return access
    used, trips = float(sum(row.bytes_used for row in own)), access.trips
    if not access.knows_trips:
        trips = _counted_trips(access, own, facts)
    full = access.bytes * (trips / access.trips if access.trips else 1.0)
    copies = max(1.0, used / full) if access.is_replicated and full else 1.0
    return replace(
        access,
        sectors=float(sum(row.sectors for row in own)),
        ideal_sectors=float(sum(row.ideal_sectors for row in own)),
        requests=float(sum(row.requests for row in own)),
        bytes=used / copies,
        copies=copies,
        lanes_off=0.0 if access.is_replicated else _masked_share(access, own, used, full),
        lane_step_bytes=_lane_step_bytes(own),
        trips=trips,
        knows_trips=True,
    )


def _own_rows(line: Line, operation: str, argument: str, rows: LineRows) -> list[TrafficRow]:
    """Return the rows of one line's accesses to an argument in global memory."""
    key = (line, "global", operation)
    return [row for at, row in rows if (at, row.space, row.operation) == key and row.argument in {argument, None}]


def _counted_trips(access: AccessFacts, rows: Sequence[TrafficRow], facts: Facts) -> float:
    """Return the executions of an access by a program, on average.

    Its instructions run as often, masked or not; a constant loop that the compiler unrolled has several of them, which
    shows in the bytes of all lanes, if each element has one lane.
    """
    runs = max(row.runs for row in rows)
    has_lane_each = access.tile_bytes >= access.element_bytes * facts.warps * WARP_THREADS
    if access.operation == "load" and has_lane_each:
        runs = max(runs, sum(row.reached_bytes for row in rows) / access.tile_bytes)
    return runs / facts.programs


def _masked_share(access: AccessFacts, rows: Sequence[TrafficRow], used: float, full: float) -> float:
    """Return the share of the lanes that a mask switches off, of the executions that happened.

    ``full`` are the bytes of an access without a mask, ``used`` those that requests of boxes ask for. Of threads that
    hold the same element, one stores it: the others are not masked.
    """
    lanes, reached = (sum(getattr(row, name) for row in rows) for name in ("lane_bytes", "reached_bytes"))
    if not reached:
        return max(0.0, 1 - used / full) if full else 0.0
    whole = reached if access.operation == "load" else min(reached, full)
    return max(0.0, 1 - lanes / whole) if whole else 0.0


def _lane_step_bytes(rows: Iterable[TrafficRow]) -> float | None:
    """Return the median distance in bytes between neighbouring threads in the request with most sectors."""
    examples = [row.example for row in rows if row.example is not None]
    worst = max(examples, key=lambda example: example.sectors, default=None)
    offsets = [] if worst is None else [offset for offset in worst.offsets if offset is not None]
    steps = [abs(after - before) for before, after in pairwise(offsets)]
    return float(median(steps)) if steps else None


def _counted_atomics(
    atomics: Sequence[AtomicFacts], accesses: Iterable[AccessFacts], rows: LineRows
) -> tuple[AtomicFacts, ...]:
    """Return atomics with the updates of their active lanes; several of one line share them as they were assumed to.

    A compare-and-swap keeps its own: how often it is tried in vain depends on the order of the hardware.
    """
    sizes = {(a.line, a.argument): a.element_bytes for a in accesses if a.operation == "atomic"}
    counted = []
    for atomic in atomics:
        own = _own_rows(atomic.line, "atomic", atomic.argument, rows)
        size = sizes.get((atomic.line, atomic.argument))
        if atomic.is_lock or not own or not size or any(".cas" in row.instruction for row in own):
            counted.append(atomic)
            continue
        asked = sum(row.lane_bytes if row.reached_bytes else row.bytes_used for row in own)
        alike = [a.updates for a in atomics if (a.line, a.argument) == (atomic.line, atomic.argument)]
        share = atomic.updates / sum(alike) if sum(alike) else 1 / len(alike)
        counted.append(replace(atomic, updates=asked / size * share, knows_updates=True))
    return tuple(counted)


def with_addresses(atomic: AtomicFacts, by_argument: Mapping[str, ArgumentTraffic]) -> AtomicFacts:
    """Return atomics with the number of their addresses: the elements of the argument that are written."""
    traffic = by_argument.get(atomic.argument)
    if traffic is None or atomic.addresses is not None:
        return atomic
    return replace(atomic, addresses=float(max(1, traffic.elements - (traffic.never_written or 0))))


def _counted_reduction(
    reduction: ReductionFacts, accesses: Iterable[AccessFacts], count: LineCount | None, programs: int
) -> ReductionFacts:
    """Return a reduction that runs as often as its line, or as loads in its block, where that was assumed."""
    if reduction.knows_trips:
        return reduction
    loads = [a for a in accesses if a.operation == "load" and a.knows_trips and a.line in reduction.load_lines]
    if reduction.is_unrolled and loads:
        return replace(reduction, trips=max(load.trips for load in loads), knows_trips=True)
    if reduction.is_unrolled or count is None or count.runs is None:
        return reduction
    return replace(reduction, trips=count.runs / programs, knows_trips=True)


def assumed_trips(lines: Iterable[Line], reason: str) -> str:
    """Return the sentence on lines with assumed trip counts, and why."""
    return f"{_ASSUMED_TRIPS} 8 in {lines_text(lines)}: {reason}."


def _left_unknown(unknown: Iterable[str], guessed: Sequence[Line]) -> tuple[str, ...]:
    """Return sentences on what is unknown, with those lines that still have assumed trip counts."""
    sentences = []
    for sentence in unknown:
        if sentence.startswith(_ASSUMED_TRIPS):
            reason = sentence.split(": ", maxsplit=1)[1].removesuffix(".")
            sentences += [assumed_trips(guessed, reason)] if guessed else []
        else:
            sentences.append(sentence)
    return tuple(sentences)


def _counted_dot(dot: DotFacts, line: LineFacts | None, count: LineCount | None, programs: int) -> DotFacts:
    """Return a product that is executed as often as its line was, where that was assumed."""
    if line is None or line.knows_trips or not line.trips or count is None or count.runs is None:
        return dot
    return replace(dot, flops=dot.flops * count.runs / programs / line.trips)


def _counted_line(line: LineFacts, count: LineCount | None, *, is_idle: bool) -> LineFacts:
    """Return a line with its machine instructions as often as its PTX was run."""
    if count is None or not line.runs or not (count.executed or is_idle):
        return line
    return line.scaled_by(count.executed / count.instructions / line.copies / line.runs)


def _trips_ratio(guessed: Iterable[AccessFacts], accesses: Iterable[AccessFacts]) -> float:
    """Return the executions of the loads in loops over the assumed ones: of those with the most of these."""
    pairs = [
        (before, access)
        for before, access in zip(guessed, accesses, strict=True)
        if before.operation == "load" and before.in_loop and access.knows_trips and not before.knows_trips
    ]
    before, access = max(pairs, key=lambda pair: pair[0].trips, default=(None, None))
    return access.trips / before.trips if before is not None and access is not None else 1.0
