"""Puts the facts of a launch together: from the compiled kernel, its traffic, the device, the clock, a profile."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import median
from typing import Any

from kernellab.explain.facts import AccessFacts, AtomicFacts, DeviceRates, Facts, SharedFacts, is_repeated
from kernellab.explain.profile import Profile
from kernellab.explain.reading import (
    Line,
    accesses_of,
    atomics_of,
    code_of,
    dots_of,
    lines_of,
    loop_rounds,
    reductions_of,
    runs_of,
)
from kernellab.explain.traffic.launch import resident_programs, traffic_of
from kernellab.explain.traffic.result import ArgumentTraffic, Traffic, TrafficRow
from kernellab.ir.graph import Graph, main_file, short_file
from kernellab.launch.arguments import memory_of
from kernellab.timing.launches import Implementation, moved_bytes


def facts_of(
    implementation: Implementation,
    device: DeviceRates,
    traffic: Traffic | None = None,
    time_s: float | None = None,
    profile: Profile | None = None,
) -> Facts:
    """Return the facts of a launch; without ``traffic``, every access counts as ideal.

    ``time_s`` is its measured time with a flushed L2.
    """
    facts = replace(static_facts(implementation, device), time_s=time_s)
    if traffic is not None:
        sizes = sizes_of(implementation.kernel_launch.arguments)
        facts = with_traffic(facts, traffic, implementation.kernel.graph, sizes)
    if profile is not None and profile.samples:
        facts = with_profile(facts, profile, implementation.kernel.graph)
    return facts


def static_facts(implementation: Implementation, device: DeviceRates) -> Facts:
    """Return the facts that follow from the compiled kernel and its arguments alone."""
    compiled, launch = implementation.kernel, implementation.kernel_launch
    warps, stages = int(compiled.options["num_warps"]), int(compiled.options["num_stages"])
    threads = compiled.resources.threads
    runs, code = runs_of(compiled.graph, launch.arguments, launch.grid), code_of(compiled)
    accesses = accesses_of(compiled, runs, code, threads, launch.arguments)
    sizes = sizes_of(launch.arguments)
    moved = moved_bytes(launch.arguments, compiled)
    reasons = runs.guess_reasons
    unknown = [f"How often some lines run is not known: {next(iter(reasons.values()))}."] if reasons else []
    return Facts(
        kernel=compiled.kernel,
        target=str(compiled.target),
        device=device,
        programs=max(1, math.prod(launch.grid)),
        warps=warps,
        resident=resident_programs(compiled),
        grid=launch.grid,
        limiter=compiled.resources.limiter or "",
        stages=stages,
        registers=compiled.resources.registers,
        spill_bytes=compiled.resources.spill_bytes or 0,
        accesses=with_touched_bytes(accesses, sizes),
        dots=dots_of(compiled, runs, code),
        lines=lines_of(compiled, runs, code, warps),
        reductions=reductions_of(compiled, runs),
        atomics=atomics_of(compiled, runs),
        footprint_bytes=_footprint_bytes(accesses, sizes, moved),
        loop_trips=loop_rounds(compiled, runs, accesses, stages),
        unknown=tuple(unknown),
    )


def sizes_of(arguments: Mapping[str, Any]) -> Mapping[str, int]:
    """Return the bytes of the elements of each argument that is memory."""
    return {name: tensor.numel() * tensor.element_size() for name, tensor in memory_of(arguments).items()}


def with_touched_bytes(accesses: Sequence[AccessFacts], sizes: Mapping[str, int]) -> tuple[AccessFacts, ...]:
    """Return accesses with the bytes that they touch of each argument, at most its size."""
    asked: dict[tuple[str, bool], float] = {}
    for access in accesses:
        key = (access.argument, access.operation == "load")
        asked[key] = asked.get(key, 0.0) + access.bytes
    touched = {key: min(total, float(sizes.get(key[0], total))) for key, total in asked.items()}
    return tuple(
        replace(
            access,
            touched_bytes=touched[access.argument, access.operation == "load"],
            argument_bytes=float(sizes[access.argument]) if access.argument in sizes else None,
        )
        for access in accesses
    )


def _footprint_bytes(accesses: Iterable[AccessFacts], sizes: Mapping[str, int], moved: int | None) -> float:
    """Return the bytes to read and write once: those asked for of each argument, at most its size."""
    bytes_asked: dict[tuple[str, bool], float] = {}
    for access in accesses:
        for writes in (False, True) if access.operation == "atomic" else (access.operation == "store",):
            key = (access.argument, writes)
            bytes_asked[key] = bytes_asked.get(key, 0.0) + access.bytes
    total = sum(min(asked, float(sizes.get(name, asked))) for (name, _), asked in bytes_asked.items())
    return total if moved is None else min(total, float(moved))


def traffic_of_launch(implementation: Implementation) -> Traffic:
    """Return the traffic of a launch.

    Raises:
        UsageError: its arguments are not those that it was compiled for.
    """
    launch = implementation.kernel_launch
    return traffic_of(implementation.kernel, launch.grid, launch.job.signature, launch.arguments)


def with_traffic(facts: Facts, traffic: Traffic, graph: Graph, sizes: Mapping[str, int]) -> Facts:
    """Return facts with the counted traffic in place of ideal accesses.

    ``sizes`` are the bytes of the arguments.
    """
    file = short_file(main_file(graph))
    rows = [(own_line_among([(row.file, row.line), *row.calls], file), row) for row in traffic.rows]
    by_argument = {each.argument: each for each in traffic.arguments}
    counted = tuple(_with_traffic_rows(each, rows) for each in facts.accesses)
    accesses = tuple(_with_counted_bytes(each, by_argument, sizes) for each in with_touched_bytes(counted, sizes))
    atomics = tuple(_with_addresses(each, by_argument) for each in facts.atomics)
    unknown = list(_unknown_sentences(traffic))
    if traffic.share < 1:
        unknown.append(f"Traffic is that of {traffic.share:.1%} of the programs, scaled.".replace("%", " %"))
    footprint = facts.footprint_bytes
    if traffic.arguments:
        footprint = sum(_touched_bytes(each, sizes, reads=True, writes=True) for each in traffic.arguments)
        fetched = float(
            sum((each.is_read + each.is_written) * _argument_dram_bytes(each, facts) for each in traffic.arguments)
        )
    else:
        fetched = _least_dram_bytes(replace(facts, accesses=accesses), sizes)
    fetched += _repeated_dram_bytes(replace(facts, accesses=accesses))
    return replace(
        facts,
        accesses=accesses,
        atomics=atomics,
        shared=_shared_facts(rows),
        footprint_bytes=footprint,
        dram_bytes=fetched,
        has_traffic=True,
        unknown=(*facts.unknown, *unknown),
    )


def _unknown_sentences(traffic: Traffic) -> Iterator[str]:
    """Yield a sentence for each reason why some traffic is unknown, with all its lines."""
    lines: dict[str, list[int]] = {}
    for unknown in traffic.unknown:
        lines.setdefault(unknown.reason, []).extend([] if unknown.line is None else [unknown.line])
    for reason, line_numbers in lines.items():
        where = (
            f", line{'s' * (len(line_numbers) > 1)} {', '.join(map(str, sorted(line_numbers)))}" if line_numbers else ""
        )
        yield f"Traffic{where}: {reason}."


def own_line_among(places: Sequence[tuple[str | None, Line]], file: str) -> Line:
    """Return the line in the kernel's own file among a place and its callers; else the line of the place."""
    own = (line for name, line in places if line is not None and short_file(name) == file)
    return next(own, places[0][1])


def _with_counted_bytes(
    access: AccessFacts, by_argument: Mapping[str, ArgumentTraffic], sizes: Mapping[str, int]
) -> AccessFacts:
    """Return an access with the touched bytes of its argument, where every program was counted."""
    traffic = by_argument.get(access.argument)
    if traffic is None:
        return access
    reads = access.operation == "load"
    touched = _touched_bytes(traffic, sizes, reads=reads, writes=not reads)
    return replace(access, touched_bytes=touched, sector_bytes=float(traffic.footprint_bytes))


def _with_traffic_rows(access: AccessFacts, rows: list[tuple[Line, TrafficRow]]) -> AccessFacts:
    own = [
        row
        for line, row in rows
        if line == access.line
        and row.space == "global"
        and str(row.operation) == access.operation
        and row.argument in {access.argument, None}
    ]
    if not own:
        return access
    used = float(sum(row.bytes_used for row in own))
    return replace(
        access,
        sectors=float(sum(row.sectors for row in own)),
        ideal_sectors=float(sum(row.ideal_sectors for row in own)),
        requests=float(sum(row.requests for row in own)),
        bytes=used,
        lanes_off=max(0.0, 1 - used / access.bytes) if access.bytes and not access.is_replicated else 0.0,
        lane_step_bytes=_lane_step_bytes(own),
    )


def _lane_step_bytes(rows: Iterable[TrafficRow]) -> float | None:
    """Return the median distance in bytes between neighbouring threads in the request with most sectors."""
    examples = [row.example for row in rows if row.example is not None]
    worst = max(examples, key=lambda each: each.sectors, default=None)
    offsets = [] if worst is None else [offset for offset in worst.offsets if offset is not None]
    steps = [abs(after - before) for before, after in pairwise(offsets)]
    return float(median(steps)) if steps else None


def _with_addresses(atomic: AtomicFacts, by_argument: Mapping[str, ArgumentTraffic]) -> AtomicFacts:
    """Return atomics with the number of their addresses: the elements of the argument that are written."""
    traffic = by_argument.get(atomic.argument)
    if traffic is None or atomic.addresses is not None:
        return atomic
    return replace(atomic, addresses=float(max(1, traffic.elements - (traffic.never_written or 0))))


def _shared_facts(rows: Iterable[tuple[Line, TrafficRow]]) -> tuple[SharedFacts, ...]:
    shared: dict[tuple[Line, str], SharedFacts] = {}
    for line, row in rows:
        if row.wavefronts:
            key = (line, str(row.operation))
            before = shared.get(key, SharedFacts(line, row.operation, 0.0, 0.0))
            ideal = max(row.wavefronts - row.conflicts, 1)
            shared[key] = replace(
                before,
                wavefronts=before.wavefronts + row.wavefronts,
                ideal_wavefronts=before.ideal_wavefronts + ideal,
            )
    return tuple(shared.values())


def _touched_bytes(argument: ArgumentTraffic, sizes: Mapping[str, int], *, reads: bool, writes: bool) -> float:
    """Return the bytes of the elements that are read, plus of those that are written."""
    element_bytes = sizes.get(argument.argument, argument.footprint_bytes) / max(1, argument.elements)
    read = argument.elements - (argument.never_read or 0) if reads and argument.is_read else 0
    written = argument.elements - (argument.never_written or 0) if writes and argument.is_written else 0
    return float(element_bytes * (read + written))


def _least_dram_bytes(facts: Facts, sizes: Mapping[str, int]) -> float:
    """Return a lower bound of the DRAM bytes of a sample of programs: mostly, each argument once."""
    bytes_moved: dict[tuple[str, bool], float] = {}
    swept: set[tuple[str, bool]] = set()
    for access in facts.accesses:
        key = (access.argument, access.operation != "load")
        bytes_moved[key] = bytes_moved.get(key, 0.0) + _access_dram_bytes(access, facts)
        if is_swept(access, facts):
            swept.add(key)
    return sum(
        moved if key in swept else min(moved, float(sizes.get(key[0], moved))) for key, moved in bytes_moved.items()
    )


def _repeated_dram_bytes(facts: Facts) -> float:
    """Return the DRAM bytes of repeated passes over arguments that the L2 cannot keep meanwhile."""
    loads_by_argument: dict[str, list[AccessFacts]] = {}
    for access in facts.accesses:
        if access.operation == "load" and access.in_loop:
            loads_by_argument.setdefault(access.argument, []).append(access)
    again = 0.0
    for group in loads_by_argument.values():
        touched = max(access.touched_bytes or 0.0 for access in group)
        at_work = touched / facts.programs * min(facts.slots, facts.programs)
        if is_repeated(group) and at_work > 0.7 * facts.device.l2_bytes:
            again += sum(access.moved_bytes for access in group) - touched
    return max(0.0, again)


def is_swept(access: AccessFacts, facts: Facts) -> bool:
    """Whether programs sweep more of an argument than the L2 holds before any of it is used again.

    Its addresses then depend on the fast axis of the grid, and not on a slower one.
    """
    slower = [axis for axis in (1, 2) if facts.grid[axis] > 1 and axis not in access.axes]
    is_large = (access.touched_bytes or 0.0) > 0.8 * facts.device.l2_bytes
    return is_large and 0 in access.axes and bool(slower) and facts.grid[0] > 1


def _access_dram_bytes(access: AccessFacts, facts: Facts) -> float:
    if not is_swept(access, facts):
        return access.moved_bytes
    rounds_at_a_time = max(1.0, min(facts.slots, facts.programs) / facts.grid[0])
    return max(access.touched_bytes or 0.0, access.moved_bytes / rounds_at_a_time)


def _argument_dram_bytes(argument: ArgumentTraffic, facts: Facts) -> float:
    """Return the DRAM bytes of an argument: each sector once where the L2 keeps it, else once per wave."""
    kept = facts.device.l2_bytes * 0.6
    return float(argument.footprint_bytes if argument.footprint_bytes < kept else argument.wave_bytes)


def with_profile(facts: Facts, profile: Profile, graph: Graph) -> Facts:
    """Return facts with the shares of samples, by stall reason and by line of the kernel's own file."""
    file, total = short_file(main_file(graph)), profile.samples
    shares: dict[int, float] = {}
    for line in profile.lines:
        own = own_line_among([(line.file, line.line), *line.calls], file)
        if own is not None:
            shares[own] = shares.get(own, 0.0) + line.samples / total
    stalls = {str(stall): count / total for stall, count in profile.reasons.items()}
    return replace(facts, stalls=stalls, line_shares=shares)
