"""A model of a launch's time: the time of each unit if it worked alone, and of all together.

Every unit works at its peak rate. The slowest one sets the pace and hides most of the others' time. This is a roofline
model with more than two units: DRAM, L2, the load units, shared memory, tensor cores, other arithmetic, atomics, and
the latency of a chain of loads that too few programs hide.
Williams, Waterman, Patterson: Roofline, 2009; Volkov: Understanding Latency Hiding on GPUs, 2016.

The speedup of a change is the ratio of the times of the facts without and with it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from kernellab.explain.facts import WARP_THREADS, AccessFacts, Facts

_SCHEDULERS = 4  # of a multiprocessor; each issues one instruction a cycle
_FP64_LANES, _SPECIAL_LANES = 64, 16
_EXPOSED = 0.12  # the part of the other units' times that is not hidden
_ONE_MULTIPROCESSOR_GBPS = 70.0  # of DRAM bandwidth
_KEPT_IN_L1 = 32 << 10
_SPILL_CYCLES = 2.5  # of an access to local memory
_FULL_TILE = 128 * 128  # of a product; larger ones are not faster on tensor cores
ROUND_S = 0.35e-6  # of a barrier and its waiting, per iteration of a loop
_ATOMIC_RATE = 1.4e9  # updates of one address per second
_ATOMICS_RATE = 1.6e11  # of all addresses
_ISSUE_SHARE = 0.8  # of the cycles that schedulers can fill


class Bottleneck(StrEnum):
    """The bottleneck of a launch: its slowest unit, or the reason why that is slow (PROGRAMS, WAVE)."""

    DRAM = "DRAM"
    L2 = "L2"
    LOADS = "load/store units"
    SHARED = "shared memory"
    TENSOR = "tensor cores"
    ARITHMETIC = "arithmetic"
    ATOMICS = "atomics"
    LATENCY = "latency"
    PROGRAMS = "grid size"
    WAVE = "the last wave"
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
        return replace(self, **{unit.name.lower(): 0.0 for unit in units})

    @property
    def total(self) -> float:
        """The time of the launch: overhead, the slowest unit, and a part of the others."""
        return self.launch + (1 - _EXPOSED) * self.longest + _EXPOSED * sum(self.units.values())


def times_of(facts: Facts) -> Times:
    """Return the times of the units for a launch."""
    device, busy = facts.device, facts.busy_multiprocessors
    cycles = device.clock_hz * busy / _unevenness(facts)
    return Times(
        dram=dram_bytes(facts) / (min(device.memory_gbps, _ONE_MULTIPROCESSOR_GBPS * busy) * 1e9),
        l2=sum(_l2_bytes(each, busy) for each in facts.accesses) / (device.l2_gbps * 1e9),
        loads=sum(map(_load_cycles, facts.accesses)) / cycles,
        shared=sum(each.wavefronts for each in facts.shared) / cycles,
        tensor=_tensor_seconds(facts),
        arithmetic=_arithmetic_cycles(facts) / cycles,
        atomics=_atomic_seconds(facts),
        latency=latency_seconds(facts),
        spills=_SPILL_CYCLES * _slow_instructions(facts, "spill") / cycles,
        launch=device.launch_s,
    )


def dram_bytes(facts: Facts) -> float:
    """Return a lower bound of a launch's DRAM bytes: every byte that it touches once, in whole sectors."""
    return max(facts.dram_bytes or 0.0, facts.footprint_bytes)


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
    """Return the cycles of the load units: two per request, or one per sector of a scattered one."""
    if access.is_async and access.width_bytes >= 32:
        return access.sectors / 4  # by boxes, without a request per warp
    return max(2 * access.requests, access.sectors / 3 if access.is_split else access.sectors)


def _tensor_seconds(facts: Facts) -> float:
    """Return the time of the dots on tensor cores; small tiles wait for operands, and do not reach the full rate."""
    spread = facts.device.multiprocessors / facts.busy_multiprocessors * _unevenness(facts)
    rates, seconds = facts.device.tflops, 0.0
    for dot in facts.dots:
        if dot.on_tensor_cores:
            rate = rates.get(dot.kind) or rates.get("fp16", rates.get("fp32", 50.0))
            reached = max(0.2, min(1.0, math.sqrt(dot.tile[0] * dot.tile[1] / _FULL_TILE)))
            seconds += dot.flops / (rate * 1e12) * spread / reached
    return seconds


def _arithmetic_cycles(facts: Facts) -> float:
    """Return the cycles of an SM's schedulers, or of its slow units where these need more.

    A dot without tensor cores is counted by the instructions of its line.
    """
    device = facts.device
    issued = sum(line.instructions for line in facts.lines) / _SCHEDULERS / _ISSUE_SHARE
    fp64_flops = device.tflops.get("fp64", 1.0) * 1e12
    fp64_lanes = max(1.0, min(_FP64_LANES, fp64_flops / 2 / device.clock_hz / device.multiprocessors))
    double = _slow_instructions(facts, "fp64") * WARP_THREADS / fp64_lanes
    special = _slow_instructions(facts, "special") * WARP_THREADS / _SPECIAL_LANES
    return max(issued, double, special)


def _slow_instructions(facts: Facts, kind: str) -> float:
    return sum(line.slow.get(kind, 0.0) for line in facts.lines)


def _atomic_seconds(facts: Facts) -> float:
    """Return the time of atomics: updates of one address are serial."""
    return sum(
        max(atomic.updates_per_address / _ATOMIC_RATE, atomic.updates / _ATOMICS_RATE) for atomic in facts.atomics
    )


def latency_seconds(facts: Facts) -> float:
    """Return the latency of the chain of loads in one slot, one program after the other.

    A program waits for memory once, and once more in every iteration without prefetched loads. Where a loop loads and
    multiplies in turn, with no asynchronous loads, its products start after the loads.
    """
    waves = facts.programs / min(facts.slots, max(facts.programs, 1))
    reductions = sum(each.trips * ROUND_S for each in facts.reductions if each.in_loop)
    waiting = waves * ((1.0 + facts.loop_trips) * facts.device.latency_s + reductions)
    loads = [each for each in facts.accesses if each.operation == "load" and each.in_loop]
    in_turn = any(dot.in_loop for dot in facts.dots) and loads and not any(each.is_async for each in loads)
    return waiting + _tensor_seconds(facts) / facts.resident if in_turn else waiting


def floor_seconds(facts: Facts) -> float:
    """Return the roofline bound: the bytes once, the products on tensor cores, launch overhead."""
    device, products = facts.device, 0.0
    memory = facts.footprint_bytes / (device.memory_gbps * 1e9)
    for dot in facts.dots:
        kind = "tf32" if dot.kind in {"fp32", "tf32x3", "bf16x3", "bf16x6"} else dot.kind
        products += dot.flops / (device.tflops.get(kind, device.tflops.get("fp16", 1.0)) * 1e12)
    return device.launch_s + max(memory, products)


def with_measured_latency(facts: Facts, times: Times) -> Times:
    """Return times in which latency takes the part of a measured time that no unit explains."""
    if facts.time_s is None:
        return times
    others = times.total - _EXPOSED * times.latency
    return replace(times, latency=max(times.latency, facts.time_s - others))


def bound_of(facts: Facts, times: Times) -> Bottleneck:
    """Return the bottleneck of a launch: the longest term, or too few programs, or the last wave."""
    largest = times.largest
    if largest is Bottleneck.LAUNCH:
        return largest
    if facts.programs < 0.75 * facts.device.multiprocessors and largest is not Bottleneck.ATOMICS:
        return Bottleneck.PROGRAMS
    own = {Bottleneck.TENSOR, Bottleneck.ARITHMETIC, Bottleneck.SHARED, Bottleneck.LATENCY}
    if last_wave_loss(facts) > 0.2 and largest in own:
        return Bottleneck.WAVE
    return largest


def last_wave_loss(facts: Facts) -> float:
    """Return the share of time in which SMs idle, since programs do not divide among them.

    A wave is one program per SM, since resident programs share its rates.
    """
    share = facts.programs / facts.device.multiprocessors
    if share <= 1:
        return 0.0
    return 1 - share / math.ceil(share)


def bytes_in_flight(facts: Facts) -> float:
    """Return the bytes of outstanding loads of all resident programs."""
    program_bytes = sum(access.tile_bytes for access in facts.accesses if access.operation == "load")
    return program_bytes * min(facts.slots, facts.programs)


def needed_bytes_in_flight(facts: Facts) -> float:
    """Return the bytes in flight that fill the memory's bandwidth, by Little's law."""
    return facts.device.memory_gbps * 1e9 * facts.device.latency_s


_LOWER, _UPPER = 0.5, 2.0  # of the model's gain: the spread of measured gains in `benchmarks.planted`
_MOST_GAIN = 1000.0
_BOTTLENECK = 0.3  # of the slowest unit's time; a change that saves more is about that unit


def gain_of(facts: Facts, fixed: Facts, *, is_understated: bool = False) -> tuple[float, float]:
    """Return the least and the largest speedup that a change may bring.

    The model has a time before the change and one after it. If the change is about the slowest unit, or
    ``is_understated`` there, a measured time may drop to the second; else its part that the model does not
    explain may stay. Without a measured time, it is at most the speedup with the lowered terms at zero. With one, it is
    at most that of the roofline bound.
    """
    now, then = times_of(facts), times_of(fixed)
    after = then.terms
    lowered = [term for term, seconds in now.terms.items() if after[term] < seconds]
    removed = now.total - now.without_terms(lowered).total
    ratios, limit = [now.total / then.total], now.total / (now.total - removed)
    if facts.time_s is not None:
        saved = max(0.0, now.total - then.total)
        is_about_slowest = now.longest - then.longest > _BOTTLENECK * now.longest
        stays = 0.0 if is_about_slowest or is_understated else facts.time_s
        ratios.append(facts.time_s / max(then.total, stays - saved))
        limit = facts.time_s / min(facts.time_s, max(floor_seconds(fixed), stays - removed))
    low = 1 + (min(ratios) - 1) * _LOWER
    high = min(1 + (max(ratios) - 1) * _UPPER, limit, _MOST_GAIN)
    return max(1.0, min(low, high)), max(1.0, high)
