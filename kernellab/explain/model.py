"""A model of a launch's time: the time of each unit if it worked alone, and of all together.

The units are HBM, L2, the load units, shared memory, tensor cores, the issue of instructions, atomics, register
spills, and the latency of one program after another in a slot. Each works at its peak rate; the slowest sets the pace
and hides most of the others' time: together they take the norm of their times, as a roofline with a rounded knee.
Williams, Waterman, Patterson: Roofline, 2009; Volkov: Understanding Latency Hiding on GPUs, 2016.

The constants below were fitted to recorded times of an H200, on half of the cases of `benchmarks.predict`, which
prints how well they hold on the other half and on an H100.

The speedup of a change is the ratio of the times of the facts without and with it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise

from kernellab.explain.facts import WARP_THREADS, AccessFacts, Facts, LineFacts
from kernellab.explain.hbm import hbm_seconds

_SCHEDULERS = 4  # of a multiprocessor; each issues one instruction a cycle
_FP64_LANES = 64
_OVERLAP = 2.09  # the norm of the units' times; infinity would be a roofline, 1 no overlap at all
_MERGED = 3  # requests of neighbouring SMs for one sector that reach the L2 as one
_KEPT_IN_L1 = 32 << 10
_LINE_BYTES = 128
_REQUEST_CYCLES = 0.5  # of the load units, for a coalesced request
_SECTOR_CYCLES = 0.6  # for a sector of a scattered one
_WAVEFRONT_CYCLES = 1.02
_ISSUE = 0.493  # slots of a scheduler's cycle per counted instruction; not every path is executed
_SPECIAL_SLOTS, _CONVERSION_SLOTS, _BARRIER_SLOTS = 2.54, 8.35, 3.79  # in addition, as these units are narrower
_BLOCK_CYCLES = 104  # of an SM, to start a program
_WGMMA_REACHED, _MMA_REACHED = 1.39, 1.1  # of a large product's rate
_WARP_GROUP, _SHARED_COLUMNS = 4, 0.4
_NARROW_TILE = 59.5  # columns; a tile of so many reaches half of a very wide one's rate
_WAITS_OF_A_LOCK = 3  # for memory, while a program holds one
_ATOMIC_SECTORS_RATE = 60.7e9  # of atomics per second: the updates of a warp in one sector go together
# Measured on an H100 by updates of 1 to 2**22 addresses, `benchmarks.atomics`.
_ADDRESS_S = 1.76e-9  # of an update of one address
_SECTOR_S = 0.596e-9  # of a sector in one slice of the L2
_SLICES, _PIECE_BYTES = 96, 256  # of the L2, and neighbouring bytes in one of them
_SLICES_OF_PIECES = ((1, 1.0), (2, 1.98), (4, 3.84), (16, 5.95), (64, 19.4))  # that work at a time
_WAIT, _FIRST_WAIT = 0.666, 0.242  # of the latency of memory: loads that wait together, in loops and outside of them
_ATOMIC_WAIT = 0.367  # of the latency of memory: the result of an atomic
_LINE_S = 2.15e-9  # of a warp, for each line of 128 bytes that it loads
_STALL_CYCLES = 1.37  # of a warp, for each that its machine code says
_BARRIER_CYCLES = 10.9  # of a warp, for a barrier
_SPILL_CYCLES, _SPILL_WAITS = 41.7, 0.673  # of a warp, for an access to local memory, and for its cycles of waiting
_SPILL_SLOT_CYCLES = 1.89  # of the load units, for the same
_SPILL_AT_WGMMA = 1.72  # times as long
_PRODUCT_WAIT = 0.472  # of a program's products that nothing else of it hides
ROUND_S = 0.35e-6  # of a barrier and its waiting, per iteration of a loop


class Bottleneck(StrEnum):
    """The terms of a launch's time: its units, and launch overhead. The largest is the bottleneck of the launch."""

    DRAM = "HBM"
    L2 = "L2"
    LOADS = "load/store units"
    SHARED = "shared memory"
    TENSOR = "tensor cores"
    ARITHMETIC = "arithmetic"
    ATOMICS = "atomics"
    LATENCY = "latency"
    SPILLS = "register spills"
    LAUNCH = "launch overhead"


@dataclass(frozen=True, slots=True)
class Times:
    """The seconds of each unit of `Bottleneck` if it worked alone. ``launch`` is what an empty launch takes."""

    dram: float
    l2: float
    loads: float
    shared: float
    tensor: float
    arithmetic: float
    atomics: float
    latency: float
    spills: float
    launch: float

    @property
    def units(self) -> dict[Bottleneck, float]:
        """The times of the units, without launch overhead."""
        return {unit: seconds for unit, seconds in self.terms.items() if unit is not Bottleneck.LAUNCH}

    @property
    def terms(self) -> dict[Bottleneck, float]:
        """The times of all units and the launch overhead."""
        return {Bottleneck[name.upper()]: getattr(self, name) for name in self.__slots__}

    @property
    def longest(self) -> float:
        """The time of the slowest unit."""
        return max(self.units.values())

    @property
    def largest(self) -> Bottleneck:
        """The term that takes longest: a unit, or launch overhead."""
        return max(self.terms, key=lambda term: self.terms[term])

    def without_terms(self, units: Iterable[Bottleneck]) -> Times:
        """Return the times with some terms at zero."""
        return self.with_terms(dict.fromkeys(units, 0.0))

    def with_terms(self, terms: Mapping[Bottleneck, float]) -> Times:
        """Return the times with other seconds for some terms."""
        return replace(self, **{term.name.lower(): seconds for term, seconds in terms.items()})

    def with_units_times(self, factor: float) -> Times:
        """Return the times with ``factor`` times the seconds of each unit."""
        return self.with_terms({unit: seconds * factor for unit, seconds in self.units.items()})

    @property
    def total(self) -> float:
        """The time of the launch: overhead, and the norm of the units' times."""
        return self.launch + float(sum(seconds**_OVERLAP for seconds in self.units.values()) ** (1 / _OVERLAP))


_OF_MULTIPROCESSOR = (
    *(Bottleneck.LOADS, Bottleneck.SHARED, Bottleneck.TENSOR, Bottleneck.ARITHMETIC, Bottleneck.LATENCY),
    Bottleneck.SPILLS,
)  # units that an SM has for itself, so that those of others are no help to its programs


def times_of(facts: Facts) -> Times:
    """Return the times of the units for a launch; those of an SM take no less than for the longest program alone."""
    times = _times_of_alike(facts)
    if not facts.longest:
        return times
    alone = _times_of_alike(longest_program(facts)).units
    return times.with_terms({unit: max(times.units[unit], alone[unit]) for unit in _OF_MULTIPROCESSOR})


def longest_program(facts: Facts) -> Facts:
    """Return the facts of a launch of the longest program alone, without its atomics."""
    in_loop, single = _load_waits(facts.lines)
    rounds = facts.loop_trips - in_loop / _warps(facts)  # that wait for no load of a line
    longest = max((facts.longest.get(line.line, 1.0) for line in facts.lines if line.in_loop), default=1.0)

    def share(line: int | None) -> float:
        return facts.longest.get(line, 1.0) / facts.programs

    own = tuple(line.scaled_by(share(line.line)) for line in facts.lines)
    own_in_loop, own_single = _load_waits(own)
    return replace(
        facts,
        programs=1,
        grid=(1, 1, 1),
        accesses=tuple(access.scaled_by(share(access.line)) for access in facts.accesses),
        shared=tuple(access.scaled_by(share(access.line)) for access in facts.shared),
        dots=tuple(replace(dot, flops=dot.flops * share(dot.line)) for dot in facts.dots),
        lines=own,
        atomics=(),
        loop_trips=rounds * longest + own_in_loop / facts.warps,
        single_waits=facts.single_waits - single / _warps(facts) + own_single / facts.warps,
    )


def _load_waits(lines: Sequence[LineFacts]) -> tuple[float, float]:
    """Return the waits for loads of lines in loops, and of the others."""
    in_loop = sum(line.load_waits for line in lines if line.in_loop)
    return in_loop, sum(line.load_waits for line in lines) - in_loop


def _times_of_alike(facts: Facts) -> Times:
    """Return the times of the units for a launch of programs that are alike."""
    device, busy = facts.device, facts.busy_multiprocessors
    cycles = device.clock_hz * busy / _unevenness(facts)
    return Times(
        dram=hbm_seconds(facts),
        l2=_l2_seconds(facts),
        loads=sum(map(_load_cycles, facts.accesses)) / cycles,
        shared=_WAVEFRONT_CYCLES * sum(access.wavefronts for access in facts.shared) / cycles,
        tensor=_tensor_seconds(facts),
        arithmetic=_arithmetic_cycles(facts) / cycles,
        atomics=_atomic_seconds(facts),
        latency=latency_seconds(facts),
        spills=_spill_seconds(facts, cycles),
        launch=device.launch_s,
    )


def _spill_seconds(facts: Facts, cycles: float) -> float:
    """Return the time of the accesses to local memory; asynchronous products wait for theirs."""
    spilled, waiting = _slow_instructions(facts, "spill"), sum(line.spill_cycles for line in facts.lines)
    waits = _SPILL_AT_WGMMA if any(dot.unit == "wgmma" and dot.in_loop for dot in facts.dots) else 1.0
    return waits * (
        _SPILL_SLOT_CYCLES * spilled / cycles
        + _seconds_per_warp(facts, _SPILL_CYCLES * spilled + _SPILL_WAITS * waiting)
    )


def _l2_seconds(facts: Facts) -> float:
    """Return the time of the bytes from the L2; two thirds of the SMs reach its full rate."""
    busy = facts.busy_multiprocessors
    reached = _MERGED * facts.device.l2_gbps * min(1.0, 1.5 * busy / facts.device.multiprocessors)
    return sum(_l2_bytes(access, busy) for access in facts.accesses) / (reached * 1e9)


def _unevenness(facts: Facts) -> float:
    """Return the programs of the busiest SM over the average."""
    share = facts.programs / facts.busy_multiprocessors
    return math.ceil(share) / share


def _l2_bytes(access: AccessFacts, multiprocessors: int) -> float:
    """Return the bytes that an access reads from the L2; the L1 of each SM keeps a small argument."""
    touched = access.touched_bytes
    if access.operation == "load" and touched is not None and touched <= _KEPT_IN_L1:
        return min(access.moved_bytes, touched * multiprocessors)
    return access.moved_bytes


def _load_cycles(access: AccessFacts) -> float:
    """Return the cycles of the load units: two per request, or those of the sectors of a scattered one."""
    if access.is_async and access.width_bytes >= WARP_THREADS:
        return access.sectors / 4  # by boxes, without a request per warp
    if access.is_split:
        return _REQUEST_CYCLES * max(2 * access.requests, access.sectors / 3)
    return _SECTOR_CYCLES * max(2 * access.requests, access.sectors)


def _product_seconds(facts: Facts) -> float:
    """Return the time of the dots on all tensor cores; narrow tiles wait for operands."""
    rates, seconds = facts.device.tflops, 0.0
    for dot in facts.dots:
        if dot.on_tensor_cores:
            rate = rates.get(dot.kind) or rates.get("fp16", rates.get("fp32", 50.0))
            rows, columns, _ = dot.tile
            reached, own_columns = _MMA_REACHED, float(columns)
            if dot.unit == "wgmma":  # four warps compute together; others share their columns where rows do not suffice
                reached = _WGMMA_REACHED
                own_columns *= min(1.0, _WARP_GROUP * math.ceil(rows / 64) / facts.warps) ** _SHARED_COLUMNS
            narrow = (1 + _NARROW_TILE / max(8, own_columns)) / (1 + _NARROW_TILE / 128)
            seconds += dot.flops / (rate * 1e12 * reached) * narrow
    return seconds


def _tensor_seconds(facts: Facts) -> float:
    """Return the time of the dots: on the tensor cores of the busy SMs, and, in part, one program after the other.

    A warp uses a quarter of an SM's tensor cores. Where a loop loads and multiplies in turn, with no asynchronous
    loads, products start after the loads.
    """
    seconds, multiprocessors = _product_seconds(facts), facts.device.multiprocessors
    spread = multiprocessors / facts.busy_multiprocessors * _unevenness(facts)
    loops = [access for access in facts.accesses if access.operation == "load" and access.in_loop]
    in_turn = any(dot.in_loop for dot in facts.dots) and loops and not any(load.is_async for load in loops)
    exposed = _PRODUCT_WAIT * (2 if in_turn else 1) * _waves(facts) * multiprocessors / facts.programs
    together = spread / min(1.0, facts.resident * facts.warps / _SCHEDULERS)
    return seconds * (together + exposed / min(1.0, facts.warps / _SCHEDULERS))


def _arithmetic_cycles(facts: Facts) -> float:
    """Return the cycles of an SM's schedulers and of its slow units, and those to start programs.

    A dot without tensor cores is counted by the instructions of its line.
    """
    device = facts.device
    slots = _ISSUE * sum(line.instructions for line in facts.lines)
    slots += _SPECIAL_SLOTS * _slow_instructions(facts, "special")
    slots += _CONVERSION_SLOTS * _slow_instructions(facts, "conversion")
    slots += _BARRIER_SLOTS * _slow_instructions(facts, "barrier")
    fp64_flops = device.tflops.get("fp64", 1.0) * 1e12
    fp64_lanes = max(1.0, min(_FP64_LANES, fp64_flops / 2 / device.clock_hz / device.multiprocessors))
    double = _slow_instructions(facts, "fp64") * WARP_THREADS / fp64_lanes
    return max(slots / _SCHEDULERS, double) + _BLOCK_CYCLES * facts.programs / _unevenness(facts)


def _slow_instructions(facts: Facts, kind: str) -> float:
    return sum(line.slow.get(kind, 0.0) for line in facts.lines)


def _atomic_seconds(facts: Facts) -> float:
    """Return the time of atomics: in turns of an address, of a slice of the L2, and of all slices together."""
    counted = [access for access in facts.accesses if access.operation == "atomic"]
    by_address = [atomic.updates_per_address * _ADDRESS_S for atomic in facts.atomics]
    by_slice = [_SECTOR_S * _busiest_sectors(accesses) for accesses in (*((access,) for access in counted), counted)]
    together = sum(access.sectors for access in counted) / _ATOMIC_SECTORS_RATE
    return max([*by_address, *by_slice, together, _lock_seconds(facts)])


def _lock_seconds(facts: Facts) -> float:
    """Return the least time of the programs that hold one lock in turns; an argument has at most a lock per element.

    Each takes the lock, loads, and stores before it gives the lock back.
    """
    elements = {access.argument: (access.argument_bytes or 0.0) / access.element_bytes for access in facts.accesses}
    holders = [
        atomic.updates / max(1.0, atomic.addresses or elements.get(atomic.argument, 1.0))
        for atomic in facts.atomics
        if atomic.is_lock
    ]
    return max(holders, default=0.0) * _WAITS_OF_A_LOCK * facts.device.latency_s


def _busiest_sectors(accesses: Sequence[AccessFacts]) -> float:
    """Return the sectors of atomics in the busiest slice of the L2, on which pieces of all arguments fall.

    Few pieces share slices as was measured; many fall as balls in bins, of whose largest number Raab and Steger wrote
    in "Balls into Bins", 1998.
    """
    sectors = sum(access.sectors for access in accesses)
    pieces = sum(max(1.0, (access.touched_bytes or access.bytes) / _PIECE_BYTES) for access in accesses) or 1.0
    for (few, slow), (many, quick) in pairwise(_SLICES_OF_PIECES):
        if pieces <= many:
            return sectors / slow * math.pow(slow / quick, math.log(pieces / few) / math.log(many / few))
    mean = pieces / _SLICES
    return (mean + math.sqrt(2 * mean * math.log(_SLICES))) * sectors / pieces


def latency_seconds(facts: Facts) -> float:
    """Return the latency of the programs of one slot, one after the other.

    A warp waits for memory where its machine code does, and in each round of a pipeline; it takes time for each line
    that it loads, and for its instructions.
    """
    loads = [access for access in facts.accesses if access.operation == "load"]
    waits = _WAIT * facts.loop_trips + (_FIRST_WAIT * facts.single_waits if loads else 0.0)
    waits += _ATOMIC_WAIT * facts.atomic_waits
    lines = sum(_l2_bytes(load, facts.busy_multiprocessors) for load in loads if not load.is_async) / _LINE_BYTES
    cycles = _STALL_CYCLES * sum(line.cycles for line in facts.lines)
    cycles += _BARRIER_CYCLES * _slow_instructions(facts, "barrier")
    waiting = _waves(facts) * (waits * facts.device.latency_s + lines * _LINE_S / _warps(facts))
    return waiting + _seconds_per_warp(facts, cycles)


def _seconds_per_warp(facts: Facts, cycles: float) -> float:
    """Return the seconds that cycles of all warps take in the warps of one slot, one after the other."""
    return _waves(facts) * cycles / _warps(facts) / facts.device.clock_hz


def _warps(facts: Facts) -> float:
    return max(1.0, facts.programs * facts.warps)


def _waves(facts: Facts) -> int:
    """Return the programs of the busiest slot."""
    return math.ceil(facts.programs / min(facts.slots, max(facts.programs, 1)))


def floor_seconds(facts: Facts) -> float:
    """Return the roofline bound: the bytes once, the products on tensor cores, launch overhead.

    Products have the kind that both operands were stored in.
    """
    device, products = facts.device, 0.0
    memory = facts.footprint_bytes / (device.memory_gbps * 1e9)
    for dot in facts.dots:
        kind = dot.was_narrower or ("tf32" if dot.kind in {"fp32", "tf32x3", "bf16x3", "bf16x6"} else dot.kind)
        products += dot.flops / (device.tflops.get(kind, device.tflops.get("fp16", 1.0)) * 1e12)
    return device.launch_s + max(memory, products)


def with_measured_time(facts: Facts, times: Times) -> Times:
    """Scale times to a total of the measured time.

    Latency takes the part that no unit explains. Where the model takes longer, all units shrink alike.
    """
    if facts.time_s is None:
        return times
    times = times.with_terms({Bottleneck.LAUNCH: min(times.launch, facts.time_s)})
    if times.total > facts.time_s:
        return times.with_units_times(_overestimate(facts, times))
    others = sum(seconds**_OVERLAP for unit, seconds in times.units.items() if unit is not Bottleneck.LATENCY)
    left = (facts.time_s - times.launch) ** _OVERLAP - others
    return replace(times, latency=float(max(0.0, left) ** (1 / _OVERLAP)))


def _overestimate(facts: Facts, times: Times) -> float:
    """Return the factor, 1 at most, by which the units have to shrink for a total that was measured."""
    if facts.time_s is None or times.total <= facts.time_s:
        return 1.0
    return max(0.0, facts.time_s - times.launch) / (times.total - times.launch)


def roofline_seconds(facts: Facts, times: Times) -> float:
    """Return the roofline bound of a launch as shown: its own time where that is shorter, as rates are rounded."""
    return min(floor_seconds(facts), times.total)


def leaves_idle(facts: Facts) -> bool:
    """Whether a launch has so few programs that a quarter of the SMs or more idle."""
    return facts.programs <= 0.75 * facts.device.multiprocessors


def bytes_in_flight(facts: Facts) -> float:
    """Return the bytes of outstanding loads of all resident programs."""
    program_bytes = sum(access.tile_bytes for access in facts.accesses if access.operation == "load")
    return program_bytes * min(facts.slots, facts.programs)


def needed_bytes_in_flight(facts: Facts) -> float:
    """Return the bytes in flight that fill the memory's bandwidth, by Little's law."""
    return facts.device.memory_gbps * 1e9 * facts.device.latency_s


_LOWER, _UPPER = 0.5, 2.0  # of the model's gain: the spread of measured gains in `benchmarks.planted`
_MOST_GAIN = 1000.0
_BOTTLENECK = 0.25  # of a slow unit's time; a change that saves more is about that unit
_SLOW = 0.7  # of the slowest unit's time, from which a unit may be the slowest in truth
_ROUNDED = 0.85  # of a unit's modelled time, which a measured launch may take at least


def _is_about_slowest(now: Times, then: Times) -> bool:
    """Whether a change saves much of a unit that is, or may be, the slowest."""
    after = then.units
    return any(
        seconds >= _SLOW * now.longest and seconds - after[unit] > _BOTTLENECK * seconds
        for unit, seconds in now.units.items()
    )


def gain_of(facts: Facts, fixed: Facts, *, is_understated: bool = False) -> tuple[float, float]:
    """Return the least and the largest speedup that a change may bring.

    The model has a time before the change and one after it. If the change is about the slowest unit, or
    ``is_understated`` there, a measured time may drop to the second; else its part that the model does not
    explain may stay. The speedup is at most that with the lowered terms at zero, and that of the roofline bound.
    """
    now, then = times_of(facts), times_of(fixed)
    shown, factor = with_measured_time(facts, now), _overestimate(facts, now)
    shortest = shown.total / _MOST_GAIN
    roofline = roofline_seconds(facts, shown) + floor_seconds(fixed) - floor_seconds(facts)
    ratios, least = [now.total / then.total], max(roofline, shortest)
    lowered = {term for term, seconds in now.terms.items() if then.terms[term] < seconds}
    if facts.time_s is not None:
        after = then.total
        if is_understated or _is_about_slowest(now, then):
            lowered.add(Bottleneck.LATENCY)  # which holds the time that no unit explains
        else:
            least = max(least, facts.time_s - now.total + now.without_terms(lowered).total)
            after = max(after, facts.time_s - max(0.0, now.total - then.total))
        ratios += [facts.time_s / after, facts.time_s / max(then.with_units_times(factor).total, shortest)]
    left = shown.without_terms(lowered)
    by_terms = left.total if facts.time_s is None else left.launch + _ROUNDED * left.longest
    low = 1 + (min(ratios) - 1) * _LOWER
    high = max(1.0, min(1 + (max(ratios) - 1) * _UPPER, shown.total / max(least, by_terms)))
    return max(1.0, min(low, high)), high
