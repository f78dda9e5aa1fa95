"""Puts the facts of a launch together: from the compiled kernel, its traffic, the device, the clock, a profile."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kernellab.errors import KernellabError, share_text
from kernellab.explain.code_lines import Line, code_of, own_line_among
from kernellab.explain.compiled_facts import (
    accesses_of,
    atomics_of,
    dots_of,
    lines_of,
    loop_rounds,
    loop_stages,
    reductions_of,
    runs_of,
)
from kernellab.explain.counted_facts import assumed_trips, line_rows, with_addresses, with_counted_executions
from kernellab.explain.facts import (
    MAY_MISS_LONGEST,
    AccessFacts,
    DeviceRates,
    Facts,
    ReductionFacts,
    SharedFacts,
    is_repeated,
)
from kernellab.explain.traffic.launch import resident_programs, traffic_of
from kernellab.explain.traffic.result import ArgumentTraffic, Traffic, TrafficRow
from kernellab.ir.graph import Graph, main_file, short_file
from kernellab.launch.arguments import memory_of
from kernellab.timing.launches import Implementation, moved_bytes

if TYPE_CHECKING:
    from kernellab.explain.profile import Profile

_ALIKE = 1.001  # times the instructions of the mean program, up to which the longest is like it


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
    graph = implementation.kernel.graph
    if traffic is not None:
        facts = with_traffic(facts, traffic, graph, sizes_of(implementation.kernel_launch.arguments))
    if profile is not None and profile.samples:
        facts = with_profile(facts, profile, graph)
    return with_memory_waits(facts)


def with_memory_waits(facts: Facts) -> Facts:
    """Return facts with the waits for loads and atomics that the machine code has."""
    if not facts.lines:
        return facts
    warps = facts.programs * facts.warps
    is_async = any(access.is_async for access in facts.accesses if access.operation == "load")
    return replace(
        facts,
        loop_trips=facts.loop_trips + sum(line.load_waits for line in facts.lines if line.in_loop) / warps,
        single_waits=is_async + sum(line.load_waits for line in facts.lines if not line.in_loop) / warps,
        atomic_waits=sum(line.atomic_waits for line in facts.lines) / warps,
    )


def static_facts(implementation: Implementation, device: DeviceRates) -> Facts:
    """Return the facts that follow from the compiled kernel and its arguments alone."""
    compiled, launch = implementation.kernel, implementation.kernel_launch
    warps, stages = int(compiled.options["num_warps"]), int(compiled.options["num_stages"])
    runs, code = runs_of(compiled.graph, launch.arguments, launch.grid), code_of(compiled)
    accesses = accesses_of(compiled, runs, code, launch.arguments)
    sizes = sizes_of(launch.arguments)
    moved = moved_bytes(launch.arguments, compiled)
    footprint = sum(_asked_bytes(accesses, sizes, splits_atomics=True).values())
    reductions = reductions_of(compiled, runs, code)
    parts: tuple[AccessFacts | ReductionFacts, ...] = (*accesses, *reductions)
    guessed = [part.line for part in parts if not part.knows_trips]
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
        loop_stages=loop_stages(compiled),
        registers=compiled.resources.registers,
        spill_bytes=compiled.resources.spill_bytes or 0,
        accesses=with_touched_bytes(accesses, sizes),
        dots=dots_of(compiled, runs, code),
        lines=lines_of(compiled, runs, code, warps),
        reductions=reductions,
        atomics=atomics_of(compiled, runs),
        footprint_bytes=footprint if moved is None else min(footprint, float(moved)),
        loop_trips=loop_rounds(compiled, runs, accesses, stages, code),
        unknown=tuple(assumed_trips(guessed, reason) for reason in [*runs.guess_reasons.values()][:1]),
    )


def sizes_of(arguments: Mapping[str, Any]) -> Mapping[str, int]:
    """Return the bytes of the elements of each argument that is memory."""
    return {name: tensor.numel() * tensor.element_size() for name, tensor in memory_of(arguments).items()}


_ByArgument = dict[tuple[str, bool], float]
"""Bytes by argument, and whether they are written."""


def _asked_bytes(
    accesses: Iterable[AccessFacts], sizes: Mapping[str, int], *, splits_atomics: bool = False
) -> _ByArgument:
    """Return the bytes that accesses ask for of each argument, at most its size; atomics write, or read and write."""
    asked: _ByArgument = {}
    for access in accesses:
        both = splits_atomics and access.operation == "atomic"
        for writes in (False, True) if both else (access.operation != "load",):
            asked[access.argument, writes] = asked.get((access.argument, writes), 0.0) + access.bytes
    return {key: min(total, float(sizes.get(key[0], total))) for key, total in asked.items()}


def with_touched_bytes(accesses: Sequence[AccessFacts], sizes: Mapping[str, int]) -> tuple[AccessFacts, ...]:
    """Return accesses with the bytes that they touch of each argument."""
    touched = _asked_bytes(accesses, sizes)
    return tuple(
        replace(
            access,
            touched_bytes=touched[access.argument, access.operation != "load"],
            argument_bytes=float(sizes[access.argument]) if access.argument in sizes else None,
        )
        for access in accesses
    )


def traffic_of_launch(implementation: Implementation, **limits: int) -> Traffic:
    """Return the traffic of a launch; ``limits`` are those of `traffic_of`.

    Raises:
        UsageError: its arguments are not those that it was compiled for.
    """
    launch = implementation.kernel_launch
    return traffic_of(implementation.kernel, launch.grid, launch.job.signature, launch.arguments, **limits)


def traffic_or_reason(implementation: Implementation, **limits: int) -> tuple[Traffic | None, str]:
    """Return the traffic of a launch, or why there is none; ``limits`` are those of `traffic_of`."""
    try:
        traffic = traffic_of_launch(implementation, **limits)
    except KernellabError as exc:
        return None, exc.message.removesuffix(".")
    if not traffic.rows and traffic.unknown:
        return None, traffic.unknown[0].reason
    return traffic, ""


def with_traffic(facts: Facts, traffic: Traffic, graph: Graph, sizes: Mapping[str, int]) -> Facts:
    """Return facts with the counted traffic in place of ideal accesses; ``sizes`` are the bytes of the arguments."""
    file = short_file(main_file(graph))
    by_argument = {argument.argument: argument for argument in traffic.arguments}
    counted = with_counted_executions(facts, traffic, file)
    touched = with_touched_bytes(counted.accesses, sizes)
    known = replace(counted, accesses=tuple(_with_counted_bytes(access, by_argument, sizes) for access in touched))
    footprint = facts.footprint_bytes
    if traffic.arguments:
        footprint = sum(_touched_bytes(argument, sizes, reads=True, writes=True) for argument in traffic.arguments)
        fetched = float(sum(_argument_dram_bytes(argument, facts) for argument in traffic.arguments))
    else:
        fetched = _least_dram_bytes(known, sizes)
    return replace(
        known,
        atomics=tuple(with_addresses(atomic, by_argument) for atomic in known.atomics),
        shared=_shared_facts(line_rows(traffic, file)),
        footprint_bytes=footprint,
        dram_bytes=fetched + _repeated_dram_bytes(known),
        has_traffic=True,
        longest=_runs_of_longest(traffic, facts.programs, file),
        unknown=(*known.unknown, *_unknown_sentences(traffic)),
    )


def _runs_of_longest(traffic: Traffic, programs: int, file: str) -> Mapping[Line, float]:
    """Return the executions of each line by the longest program, over the mean; empty where all are alike."""
    mean, longest = defaultdict[Line, float](float), defaultdict[Line, float](float)
    for run in traffic.line_runs:
        line = own_line_among([(run.file, run.line), *run.calls], file)
        mean[line] += run.executed / programs
        longest[line] += run.of_longest
    if sum(longest.values()) <= _ALIKE * sum(mean.values()):
        return {}
    return {line: longest[line] / mean[line] for line in mean if mean[line]}


def _unknown_sentences(traffic: Traffic) -> Iterator[str]:
    """Yield a sentence for each reason why some traffic is unknown, with all its lines, and one for a sample."""
    lines: dict[str, list[int]] = {}
    for unknown in traffic.unknown:
        lines.setdefault(unknown.reason, []).extend([] if unknown.line is None else [unknown.line])
    for reason, numbers in lines.items():
        where = f", line{'s' * (len(numbers) > 1)} {', '.join(map(str, sorted(numbers)))}" if numbers else ""
        yield f"Traffic{where}: {reason}."
    if traffic.may_miss_longest:
        yield MAY_MISS_LONGEST
    if traffic.share < 1:
        yield f"Traffic extrapolated from {share_text(traffic.share)} of the grid."


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


def _shared_facts(rows: Iterable[tuple[Line, TrafficRow]]) -> tuple[SharedFacts, ...]:
    shared: dict[tuple[Line, str], SharedFacts] = {}
    for line, row in rows:
        if row.wavefronts:
            before = shared.get((line, row.operation), SharedFacts(line, row.operation, 0.0, 0.0))
            ideal = before.ideal_wavefronts + max(row.wavefronts - row.conflicts, 1)
            wavefronts, requests = before.wavefronts + row.wavefronts, before.requests + row.requests
            shared[line, row.operation] = SharedFacts(line, row.operation, wavefronts, ideal, requests)
    return tuple(shared.values())


def _touched_bytes(argument: ArgumentTraffic, sizes: Mapping[str, int], *, reads: bool, writes: bool) -> float:
    """Return the bytes of the elements that are read, plus of those that are written."""
    element_bytes = sizes.get(argument.argument, argument.footprint_bytes) / max(1, argument.elements)
    read = argument.elements - (argument.never_read or 0) if reads and argument.is_read else 0
    written = argument.elements - (argument.never_written or 0) if writes and argument.is_written else 0
    return float(element_bytes * (read + written))


def _argument_dram_bytes(argument: ArgumentTraffic, facts: Facts) -> float:
    """Return the HBM bytes of an argument: each sector once where the L2 keeps it, else once per wave."""
    is_kept = argument.footprint_bytes < facts.device.l2_bytes * 0.6
    moved = float(argument.footprint_bytes if is_kept else argument.wave_bytes)
    return (argument.is_read + argument.is_written) * moved


def _least_dram_bytes(facts: Facts, sizes: Mapping[str, int]) -> float:
    """Return a lower bound of the HBM bytes of a sample of programs: mostly, each argument once."""
    moved: _ByArgument = {}
    swept: set[tuple[str, bool]] = set()
    for access in facts.accesses:
        key, fetched = (access.argument, access.operation != "load"), access.fetched_bytes
        if is_swept(access, facts):
            swept.add(key)
            rounds_at_a_time = max(1.0, min(facts.slots, facts.programs) / facts.grid[0])
            fetched = max(access.touched_bytes or 0.0, fetched / rounds_at_a_time)
        moved[key] = moved.get(key, 0.0) + fetched
    return sum(total if key in swept else min(total, float(sizes.get(key[0], total))) for key, total in moved.items())


def _repeated_dram_bytes(facts: Facts) -> float:
    """Return the HBM bytes of repeated passes over arguments that the L2 cannot keep meanwhile."""
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
