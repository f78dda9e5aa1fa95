"""The traffic of a launch from its PTX: batches of programs, all or a sample, are run and summed by line."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from kernellab.compile.types import Compiled
from kernellab.errors import plural
from kernellab.explain.traffic.accesses import CountedAccess, MemorySpace, Trace
from kernellab.explain.traffic.arithmetic import Array
from kernellab.explain.traffic.counting import WARP, Count, Coverage
from kernellab.explain.traffic.execution import AccessOperation
from kernellab.explain.traffic.loops import BlockRuns, control_of, loops_of
from kernellab.explain.traffic.machine import CannotTrace, Handler, Machine
from kernellab.explain.traffic.machine_code import combined_atomics, differences, machine_code_of
from kernellab.explain.traffic.memory import StaleValueError
from kernellab.explain.traffic.parameters import SCRATCH, PtxLaunch, bind_arguments, runtime_arguments
from kernellab.explain.traffic.program_lengths import program_lengths, varying_control
from kernellab.explain.traffic.relevance import Relevance, is_shared, pointer_loads, relevance_of, skipped_blocks
from kernellab.explain.traffic.result import DESCRIPTOR, ArgumentTraffic, LineRuns, Traffic, TrafficRow, UnknownTraffic
from kernellab.ir.effects import REACHED
from kernellab.ir.graph import Location, calls_of, place_of
from kernellab.ir.ptx import ptx_kernel
from kernellab.target import SECTOR_BYTES, limits_of, multiprocessors

_BATCH_LANES = 1 << 14
_PROBED = 32
_MOST_LANE_STEPS = 3 * 10**8
_MOST_SECONDS = 20.0  # of CPU time
_LONG = 1.5  # of the rounds that are counted, from which a loop is not run to its end
_SHARED_BYTES = 232448


def trace_launch(
    launch: PtxLaunch,
    *,
    shared_bytes: int | None = None,
    combined: frozenset[int] = frozenset(),
    wave: int = 132,
    most_lane_steps: int = _MOST_LANE_STEPS,
    most_rounds: int | None = None,
) -> Trace:
    """Run the programs of a launch, or a sample of them, and count their memory accesses.

    ``combined`` are the atomics that a warp combines into one, and ``wave`` is the number of programs that run at a
    time. If all programs would execute more than ``most_lane_steps`` instructions of threads, a sample is run: the
    first, the last and random ones, and the longest where programs may differ in length. Of a longer loop, the accesses
    of ``most_rounds`` are counted and scaled, if counters alone decide how often it runs. After `_MOST_SECONDS` the
    rest is unknown.
    """

    def follow(*, follows_stores: bool) -> Trace:
        relevance = relevance_of(launch.kernel, follows_stores=follows_stores)
        empty = partial(Trace, launch, relevance, shared_bytes or _SHARED_BYTES, combined)
        deadline = time.thread_time() + _MOST_SECONDS
        chosen = _programs_to_run(empty(), most_lane_steps, deadline, most_rounds)
        launch.memory.reset()
        trace = empty()
        if len(chosen) < trace.total and (control := varying_control(launch.kernel)) is not None:
            chosen = _look_at_all(trace, chosen, None if follows_stores else control, deadline)
        if most_rounds is not None and (runs := _counted_runs(trace, chosen, most_rounds, deadline)) is not None:
            trace.all_runs, trace.runs.most_rounds = runs, most_rounds
        return _trace_programs(trace, chosen, wave, deadline)

    try:
        return follow(follows_stores=False)
    except StaleValueError:
        launch.memory.reset()
    return follow(follows_stores=True)


def _look_at_all(trace: Trace, chosen: Array, control: Relevance | None, deadline: float) -> Array:
    """Count the runs of each block by all programs, if that is cheap; return the chosen programs and the longest.

    Without ``control`` it is not: memory that the kernel writes may decide it.
    """
    lengths = None if control is None else program_lengths(trace.launch, control, trace.total, deadline)
    trace.launch.memory.reset()
    if lengths is not None and lengths.is_complete:
        trace.all_runs, trace.counts_all_runs = lengths.runs, True
    else:
        trace.may_miss_longest = True
    return chosen if lengths is None else np.union1d(chosen, [lengths.runs.longest_program])


def _counted_runs(trace: Trace, chosen: Array, most_rounds: int, deadline: float) -> BlockRuns | None:
    """Return the runs of each block by the chosen programs; None if no loop has many rounds, or values decide it."""
    control = control_of(trace.launch.kernel)
    if control is None or not loops_of(trace.launch.kernel):
        return None
    runs, most = trace.all_runs or BlockRuns(trace.launch.kernel), _batch_programs(trace)
    try:
        for start in range(0, 0 if trace.counts_all_runs else len(chosen), most):
            machine = _machine(trace, chosen[start : start + most], control, runs, lambda *_: None)
            machine.run(deadline)
            if machine.stopped:
                return None
    except CannotTrace:
        return None
    return runs if runs.longest_loop > _LONG * most_rounds else None


def _trace_programs(trace: Trace, chosen: Array, wave: int, deadline: float) -> Trace:
    """Count the accesses of the chosen programs, up to the deadline."""
    trace.tracks_coverage = len(chosen) == trace.total and trace.all_runs is None
    most = _batch_programs(trace)
    together = wave if trace.tracks_coverage else trace.total
    try:
        for first in range(0, len(chosen), together):
            end = min(first + together, len(chosen))
            for start in range(first, end, most):
                batch = chosen[start : min(start + most, end)]
                _run_batch(trace, batch, deadline)
                trace.programs += len(batch)
            for covered in trace.coverage.values():
                covered.end_wave()
    except CannotTrace as stopped:
        trace.unknown[None, str(stopped)] = None
    return trace


def _batch_programs(trace: Trace) -> int:
    return max(1, _BATCH_LANES // trace.launch.kernel.threads)


def _machine(trace: Trace, programs: Array, relevance: Relevance, runs: BlockRuns, access: Handler) -> Machine:
    launch = trace.launch
    return Machine(launch.kernel, launch.grid, launch.parameters, relevance, programs, access, runs)


def _run_batch(trace: Trace, programs: Array, deadline: float) -> int:
    machine = _machine(trace, programs, trace.relevance, trace.runs, trace.access)
    trace.start_batch(len(programs))
    machine.run(deadline)
    for line, reason in machine.stopped:
        trace.unknown[line, f"a branch there depends on {reason}; the code after it is not counted"] = None
    if machine.spins:
        trace.unknown[None, "programs spin until another one is done, and how often depends on timing"] = None
    return machine.lane_steps


def _programs_to_run(trace: Trace, most_lane_steps: int, deadline: float, most_rounds: int | None) -> Array:
    """Return the programs to run: all, or as many as a probe says ``most_lane_steps`` allow."""
    total = trace.total
    if most_rounds is not None and control_of(trace.launch.kernel) is not None:
        trace.runs.most_rounds = most_rounds
    if total <= _batch_programs(trace):
        return np.arange(total)
    probed = max(8, min(_PROBED, most_lane_steps // 10**6))
    some = _sample_programs(total, min(probed, total))
    try:
        steps = _run_batch(trace, some, deadline) / len(some)
    except CannotTrace:
        steps = float(most_lane_steps)
    affordable = max(probed, int(most_lane_steps / max(steps, 1.0)))
    return np.arange(total) if affordable >= total else _sample_programs(total, affordable)


def _sample_programs(total: int, count: int) -> Array:
    """Return the first, the last and random programs, the same ones each time."""
    ends = min(count, 8) // 2
    edges = [*range(ends), *range(total - ends, total)]
    middle = random.Random(total).sample(range(ends, total - ends), min(count - 2 * ends, total - 2 * ends))
    return np.array(sorted({*edges, *middle}))


_WAVEFRONT_BYTES = 128


def traffic_of(
    compiled: Compiled,
    grid: tuple[int, int, int],
    signature: Iterable[tuple[str, Any]],
    arguments: Mapping[str, Any],
    most_lane_steps: int = _MOST_LANE_STEPS,
    most_rounds: int | None = None,
) -> Traffic:
    """Return the traffic of a launch by its signature and arguments; for a target without PTX, unknown traffic.

    ``most_lane_steps`` and ``most_rounds`` bound the work: see `trace_launch`.

    Raises:
        UsageError: the arguments are not those that the kernel was compiled for.
    """
    if compiled.target.backend != "cuda":
        reason = f"the machine code of {compiled.target} is not followed, only that of cuda targets"
        return Traffic(compiled.kernel, str(compiled.target), grid, (), (), (UnknownTraffic(None, reason),), 0.0, 0)
    types = [(name, kind) for name, kind in signature if kind != "constexpr"]
    runtime = [argument for name, kind in types for argument in runtime_arguments(name, kind, arguments[name])]
    launch = bind_arguments(ptx_kernel(compiled.ptx), grid, runtime)
    resources, wave = compiled.resources, multiprocessors() * resident_programs(compiled)
    code = machine_code_of(compiled)
    combined = combined_atomics(launch.kernel, code)
    trace = trace_launch(
        launch,
        shared_bytes=resources.shared_bytes,
        combined=combined,
        wave=wave,
        most_lane_steps=most_lane_steps,
        most_rounds=most_rounds,
    )
    uneven = [(place_of(access.instruction.location).line, _UNEVEN) for access in trace.accesses if access.count.uneven]
    reasons = (*trace.unknown, *uneven, *differences(launch.kernel, trace.executed_positions, code))
    unknown = [UnknownTraffic(line, reason) for line, reason in dict.fromkeys(reasons)]
    if resources.spill_bytes:
        reason = f"the traffic of {resources.spill_bytes} B of spilled registers per thread is not counted"
        unknown.append(UnknownTraffic(None, reason))
    return Traffic(
        kernel=compiled.kernel,
        target=str(compiled.target),
        grid=grid,
        rows=rows_of(trace),
        arguments=_traffic_by_argument(trace),
        unknown=tuple(unknown),
        share=trace.programs / trace.total if trace.total else 1.0,
        wave_programs=wave,
        notes=tuple(_notes(trace)),
        line_runs=_line_runs(trace),
        may_miss_longest=trace.may_miss_longest,
    )


def resident_programs(compiled: Compiled) -> int:
    """Return the number of resident programs per SM.

    Where the occupancy is not known it is 1, the least with which a kernel runs at all.
    """
    limits, share = limits_of(compiled.target), compiled.resources.occupancy
    if limits is None or not share:
        return 1
    return max(1, round(share * limits.threads_per_multiprocessor / compiled.resources.threads))


_UNEVEN = (
    "threads of a warp update some elements more often than others, in an unknown order: the sectors of these atomics "
    "may be off by a few per cent"
)


def _notes(trace: Trace) -> Iterator[str]:
    if not trace.programs and trace.total:
        yield "no program was followed to its end; counts are those up to there"
    if trace.memory.strays:
        yield f"{plural(trace.memory.strays, 'access')} of threads outside all arguments"
    tables: dict[str, set[str]] = {"reads": set(), "writes": set()}
    for access in trace.accesses:
        tables["reads"] |= _tables_behind(access, trace) if access.operation != "store" else set()
        tables["writes"] |= _tables_behind(access, trace) if access.operation != "load" else set()
    parts = [
        f"{verb} through the pointers stored in {' and '.join(f'`{name}`' for name in sorted(names))}"
        for verb, names in tables.items()
        if names
    ]
    if parts:
        yield f"{' and '.join(parts)}; their targets are resolved at launch"


def _tables_behind(access: CountedAccess, trace: Trace) -> frozenset[str]:
    """Return the arguments that an access outside of all arguments takes its address from."""
    if access.space == "shared" or all(trace.memory.number_of(tag) is not None for tag in access.tags):
        return frozenset()
    loads = pointer_loads(trace.launch.kernel, access.instruction)
    numbers = {
        trace.memory.number_of(tag)
        for position in loads
        if (load := trace.by_instruction.get((position, "global"))) is not None
        for tag in load.tags
    }
    return frozenset(trace.memory.buffers[number].name for number in numbers if number is not None)


_Key = tuple[int, str | None, AccessOperation, MemorySpace, str | None]


def rows_of(trace: Trace) -> tuple[TrafficRow, ...]:
    """Return a row per source line, operation, space and argument, in the order of lines."""
    groups: dict[_Key, list[CountedAccess]] = {}
    with_maps = {i.location for i in trace.launch.kernel.instructions if i.name == "tensormap"}
    for access in trace.accesses:
        place = place_of(access.instruction.location)
        is_setup = access.instruction.name == "tensormap" or (
            access.space == "shared" and access.instruction.location in with_maps
        )
        argument = DESCRIPTOR if is_setup else _argument_of(access, trace)
        key = (place.line or 0, place.file, access.operation, access.space, argument)
        groups.setdefault(key, []).append(access)
    order = sorted(groups, key=lambda key: (key[1] or "", key[0], key[3], key[2], key[4] or ""))
    reached = _reached_warps(trace)
    return tuple(_traffic_row(key, groups[key], trace, reached) for key in order)


def _reached_warps(trace: Trace) -> Mapping[int, int]:
    """Return the warps that came to each counted access, by its position.

    What a mask always switched off has no count of its own: it is a part of the nearest access of its source.
    """
    reached = {access.position: 0 for access in trace.accesses if access.space == "global"}
    instructions = tuple(trace.launch.kernel.instructions)
    by_source: dict[tuple[Location, str], list[int]] = {}
    for position in reached:
        by_source.setdefault((instructions[position].location, instructions[position].name), []).append(position)
    for position, warps in trace.reached_warps.items():
        own = by_source.get((instructions[position].location, instructions[position].name), ())
        if position in reached or (own and not is_shared(instructions[position])):
            nearest = min(own, key=lambda other: abs(other - position))
            reached[nearest] += warps
    return reached


def _argument_of(access: CountedAccess, trace: Trace) -> str | None:
    numbers = {trace.memory.number_of(tag) for tag in access.tags}
    names = {trace.memory.buffers[number].name for number in numbers if number is not None}
    if None in numbers:
        tables = _tables_behind(access, trace)
        names |= {f"{REACHED}{table}" for table in tables} or {"an unknown address"}
    return " or ".join(sorted(names)) or None


def _traffic_row(key: _Key, accesses: Sequence[CountedAccess], trace: Trace, reached: Mapping[int, int]) -> TrafficRow:
    line, file, operation, space, argument = key
    scale = trace.scale
    count = Count()
    for access in accesses:
        count.add(access.count.scaled_by(trace.rounds_of(access.instruction.block)))
    is_shared = space == "shared"
    moved = count.wavefronts * _WAVEFRONT_BYTES if is_shared else count.sectors * SECTOR_BYTES
    useful = (count.ideal_wavefronts, count.wavefronts) if is_shared else (count.ideal_sectors, count.sectors)
    examples = [access.example for access in accesses if access.example is not None]
    location, runs = accesses[0].instruction.location, trace.all_runs or trace.runs
    lane_bytes, reached_bytes = zip(*(_lane_bytes(access, trace, reached) for access in accesses), strict=True)
    return TrafficRow(
        line=line or None,
        file=file,
        operation=operation,
        space=space,
        argument=argument,
        requests=round(count.requests * scale),
        sectors=round(count.sectors * scale),
        ideal_sectors=round(count.ideal_sectors * scale),
        wavefronts=round(count.wavefronts * scale),
        conflicts=round((count.wavefronts - count.ideal_wavefronts) * scale),
        bytes=round(moved * scale),
        bytes_used=round(count.bytes_used * scale),
        efficiency=min(1.0, useful[0] / useful[1]) if useful[1] else None,
        lanes_off=count.lanes_off / max(1, count.lanes + count.lanes_off),
        instruction=", ".join(dict.fromkeys(access.instruction.opcode for access in accesses)),
        calls=tuple((call.file, call.line) for call in calls_of(place_of(location))),
        example=max(examples, key=lambda example: example.sectors, default=None),
        lane_bytes=sum(lane_bytes) * scale,
        reached_bytes=sum(reached_bytes) * scale,
        runs=max(float(runs.programs[access.instruction.block]) for access in accesses) * scale,
    )


def _lane_bytes(access: CountedAccess, trace: Trace, reached: Mapping[int, int]) -> tuple[float, float]:
    """Return the bytes of the active lanes of an access, and with those of masked ones; 0 of boxes, which have none."""
    if {"tensor", "bulk"} & set(access.instruction.parts):
        return 0.0, 0.0
    bytes_counted = access.size_bytes * trace.rounds_of(access.instruction.block)
    return access.count.lanes * bytes_counted, reached.get(access.position, 0) * WARP * bytes_counted


def _line_runs(trace: Trace) -> tuple[LineRuns, ...]:
    """Return the number of instructions of each line that the warps of a launch run, as far as they were followed."""
    kernel, runs = trace.launch.kernel, trace.all_runs or trace.runs
    skipped = skipped_blocks(kernel, trace.relevance)
    by_block = [*zip(runs.warps.tolist(), runs.longest.tolist(), strict=True)]
    blocks: dict[Location, list[int]] = {}
    for instruction in kernel.instructions:
        blocks.setdefault(instruction.location, []).append(instruction.block)
    lines = []
    for location, own in blocks.items():
        place, followed = place_of(location), [block for block in own if block not in skipped]
        calls = tuple((call.file, call.line) for call in calls_of(place))
        executed, of_longest = (sum(by_block[block][part] for block in followed) for part in (0, 1))
        most = max(float(runs.programs[block]) for block in own) * trace.scale if len(followed) == len(own) else None
        executed *= trace.scale
        lines.append(LineRuns(place.line, place.file, calls, len(followed), executed, of_longest, most))
    return tuple(lines)


def _traffic_by_argument(trace: Trace) -> tuple[ArgumentTraffic, ...]:
    """Return the traffic by argument; empty unless all programs were run."""
    if not trace.is_complete:
        return ()
    shown = [buffer for buffer in trace.memory.buffers if not buffer.name.startswith(SCRATCH) and buffer.storage_bytes]
    return tuple(_argument_traffic(a.name, trace.coverage.get(a.name, Coverage.of(a))) for a in shown)


def _argument_traffic(name: str, coverage: Coverage) -> ArgumentTraffic:
    is_read, is_written = coverage.read_bytes > 0, coverage.written_bytes > 0
    elements, never_read = coverage.untouched_counts(writes=False)
    read = elements - never_read
    return ArgumentTraffic(
        argument=name,
        elements=elements,
        is_read=is_read,
        is_written=is_written,
        never_read=None if is_written and not is_read else never_read,
        never_written=coverage.untouched_counts(writes=True)[1] if is_written else None,
        read_bytes=coverage.read_bytes,
        written_bytes=coverage.written_bytes,
        reads_per_element=coverage.read_bytes / (read * coverage.buffer.itemsize) if read else None,
        footprint_bytes=coverage.footprint_bytes,
        wave_bytes=sum(coverage.wave_sectors) * SECTOR_BYTES,
        waves=len(coverage.wave_sectors),
        programs=coverage.map,
    )
