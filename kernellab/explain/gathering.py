"""The facts of a launch, put together: from the compiled kernel, its traffic, the device, the clock, a profile."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from kernellab.compile.types import occupancy
from kernellab.explain.facts import AccessFacts, AtomicFacts, Device, Facts, SharedFacts
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
from kernellab.ir.graph import Graph
from kernellab.ir.lines import short_file
from kernellab.ir.slices import main_file
from kernellab.launch.memory import memory_of
from kernellab.measure.implementations import Implementation
from kernellab.measure.launches import moved_bytes
from kernellab.profile.result import Profile
from kernellab.target import limits_of


@dataclass(frozen=True, slots=True)
class Measured:
    """What was found by running: seconds of a launch with a flushed L2, and a profile; None without a GPU."""

    time_s: float | None = None
    profile: Profile | None = None


def facts_of(
    implementation: Implementation, device: Device, traffic: Any = None, measured: Measured | None = None
) -> Facts:
    """Return the facts of a launch; without ``traffic``, every access counts as ideal, and that is said."""
    facts = static_facts(implementation, device)
    if traffic is not None:
        facts = with_traffic(facts, traffic, implementation.kernel.graph)
    if measured is not None:
        facts = replace(facts, time_s=measured.time_s)
        if measured.profile is not None and measured.profile.samples:
            facts = with_profile(facts, measured.profile, implementation.kernel.graph)
    return facts


def static_facts(implementation: Implementation, device: Device) -> Facts:
    """Return what the compiled kernel and its arguments tell by themselves."""
    compiled, launch = implementation.kernel, implementation.launch
    assert launch is not None, "a function of the user is no kernel"
    warps, stages = int(compiled.options["num_warps"]), int(compiled.options["num_stages"])
    threads = compiled.resources.threads
    runs, code = runs_of(compiled.graph, launch.arguments, launch.grid), code_of(compiled)
    accesses = accesses_of(compiled, runs, code, threads)
    sizes = sizes_of(launch.arguments)
    moved = moved_bytes(launch.arguments, compiled)
    unknown = [f"How often some lines run is not known: {next(iter(runs.guessed.values()))}."] if runs.guessed else []
    return Facts(
        kernel=compiled.kernel,
        target=str(compiled.target),
        device=device,
        programs=max(1, math.prod(launch.grid)),
        warps=warps,
        resident=_resident(implementation),
        limiter=compiled.resources.limiter or "",
        stages=stages,
        registers=compiled.resources.registers,
        spill_bytes=compiled.resources.spill_bytes or 0,
        shared_bytes=compiled.resources.shared_bytes,
        accesses=tuple(_touched(each, sizes) for each in accesses),
        dots=dots_of(compiled, runs, code),
        lines=lines_of(compiled, runs, code, warps),
        reductions=reductions_of(compiled, runs, warps),
        atomics=atomics_of(compiled, runs),
        footprint_bytes=_footprint(accesses, sizes, moved),
        loop_trips=loop_rounds(compiled, runs, accesses, stages),
        unknown=tuple(unknown),
    )


def sizes_of(arguments: Mapping[str, Any]) -> Mapping[str, int]:
    """Return the bytes of the elements of each argument that is memory."""
    return {name: tensor.numel() * tensor.element_size() for name, tensor in memory_of(arguments).items()}


def _touched(access: AccessFacts, sizes: Mapping[str, int]) -> AccessFacts:
    size = sizes.get(access.argument)
    return access if size is None else replace(access, touched_bytes=min(access.bytes, float(size)))


def _footprint(accesses: Iterable[AccessFacts], sizes: Mapping[str, int], moved: int | None) -> float:
    """Return the bytes that have to be read and written once: what is asked for of each argument, its size at most."""
    found: dict[tuple[str, bool], float] = {}
    for each in accesses:
        for writes in (False, True) if each.operation == "atomic" else (each.operation == "store",):
            key = (each.argument, writes)
            found[key] = found.get(key, 0.0) + each.bytes
    total = sum(min(asked, float(sizes.get(name, asked))) for (name, _), asked in found.items())
    return total if moved is None else min(total, float(moved))


def _resident(implementation: Implementation) -> int:
    """Return how many programs a multiprocessor holds at a time."""
    resources, target = implementation.kernel.resources, implementation.kernel.target
    limits = limits_of(target)
    if limits is None or resources.registers is None or not resources.fits:
        return 4
    found = occupancy(
        limits, threads=resources.threads, registers=resources.registers, shared_bytes=resources.shared_bytes
    )
    return max(1, found.blocks)


def with_traffic(facts: Facts, traffic: Any, graph: Graph) -> Facts:
    """Return facts with what the memory system does, in place of what it would do at best."""
    file = short_file(main_file(graph))
    rows = [(row_line(row, file), row) for row in traffic.rows]
    by_argument = {each.argument: each for each in traffic.arguments}
    accesses = tuple(_with_rows(each, rows, by_argument) for each in facts.accesses)
    atomics = tuple(_with_addresses(each, by_argument) for each in facts.atomics)
    unknown = [f"Traffic: {each.reason}." for each in traffic.unknown]
    if traffic.share < 1:
        unknown.append(f"Traffic is that of {traffic.share:.1%} of the programs, scaled.".replace("%", " %"))
    footprint, fetched = facts.footprint_bytes, None
    if traffic.arguments:
        footprint = float(sum(_both_ways(each) * each.footprint_bytes for each in traffic.arguments))
        fetched = float(sum(_both_ways(each) * _fetched(each, facts) for each in traffic.arguments))
    return replace(
        facts,
        accesses=accesses,
        atomics=atomics,
        shared=_shared(rows),
        footprint_bytes=footprint,
        dram_bytes=fetched,
        has_traffic=True,
        unknown=(*facts.unknown, *unknown),
    )


def row_line(row: Any, file: str) -> Line:
    """Return the line of the kernel's own file that a row of a traffic belongs to."""
    for name, line in ((row.file, row.line), *row.calls):
        if line is not None and short_file(name) == file:
            return int(line)
    return None if row.line is None else int(row.line)


def _with_rows(access: AccessFacts, rows: list[tuple[Line, Any]], by_argument: Mapping[str, Any]) -> AccessFacts:
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
    lanes = sum(row.requests for row in own) or 1
    whole = by_argument.get(access.argument)
    touched = access.touched_bytes if whole is None else float(whole.footprint_bytes)
    used = float(sum(row.bytes_used for row in own))
    return replace(
        access,
        sectors=float(sum(row.sectors for row in own)),
        ideal_sectors=float(sum(row.ideal_sectors for row in own)),
        requests=float(sum(row.requests for row in own)),
        bytes=used,
        lanes_off=sum(row.lanes_off * row.requests for row in own) / lanes,
        touched_bytes=touched if touched is None else min(touched, used),
    )


def _with_addresses(atomic: AtomicFacts, by_argument: Mapping[str, Any]) -> AtomicFacts:
    """Return atomics with the number of addresses: the elements of the argument, those never written left out."""
    found = by_argument.get(atomic.argument)
    if found is None or atomic.addresses is not None:
        return atomic
    return replace(atomic, addresses=float(max(1, found.elements - (found.never_written or 0))))


def _shared(rows: Iterable[tuple[Line, Any]]) -> tuple[SharedFacts, ...]:
    found: dict[tuple[Line, str], SharedFacts] = {}
    for line, row in rows:
        if row.wavefronts:
            key = (line, str(row.operation))
            before = found.get(key, SharedFacts(line, row.operation, 0.0, 0.0))
            ideal = max(row.wavefronts - row.conflicts, 1)
            found[key] = replace(
                before,
                wavefronts=before.wavefronts + row.wavefronts,
                ideal_wavefronts=before.ideal_wavefronts + ideal,
            )
    return tuple(found.values())


def _both_ways(argument: Any) -> int:
    return int(argument.is_read) + int(argument.is_written)


def _fetched(argument: Any, facts: Facts) -> float:
    """Return what memory moves of an argument: each sector once where the L2 keeps it, else once per wave."""
    kept = facts.device.l2_bytes * 0.6
    return float(argument.footprint_bytes if argument.footprint_bytes < kept else argument.wave_bytes)


def with_profile(facts: Facts, profile: Profile, graph: Graph) -> Facts:
    """Return facts with the shares of the samples, by reason and by line of the kernel's own file."""
    file, total = short_file(main_file(graph)), profile.samples
    shares: dict[int, float] = {}
    for line in profile.lines:
        places = ((line.file, line.line), *line.calls)
        own = next((number for name, number in places if number is not None and short_file(name) == file), line.line)
        if own is not None:
            shares[own] = shares.get(own, 0.0) + line.samples / total
    stalls = {str(stall): count / total for stall, count in profile.reasons.items()}
    return replace(facts, stalls=stalls, line_shares=shares)
