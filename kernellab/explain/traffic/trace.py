"""The traffic of a launch from its PTX: programs are run in batches, all of them or a sample."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from kernellab.explain.traffic.accesses import Accesses, CountedAccess
from kernellab.explain.traffic.arithmetic import Array
from kernellab.explain.traffic.assembler import assembled
from kernellab.explain.traffic.coverage import Coverage
from kernellab.explain.traffic.machine import Machine, NotFollowed, PtxLaunch
from kernellab.explain.traffic.memory import StaleRead
from kernellab.explain.traffic.parameters import BoundParameters
from kernellab.explain.traffic.relevance import relevance_of
from kernellab.explain.traffic.tensor_maps import TensorMaps
from kernellab.ir.ptx import PtxKernel

_BATCH_LANES = 1 << 14
_PROBED = 32
_MOST_LANE_STEPS = 3 * 10**8
_MOST_SECONDS = 20.0
_SHARED_BYTES = 232448


@dataclass(frozen=True, slots=True)
class Trace:
    """What was counted: ``programs`` of all that the grid has. ``unknown`` holds a line and a reason each.

    ``coverage`` goes by the names of arguments; it is empty unless all programs were run. ``names`` are those of the
    arguments by the top bits of addresses. ``strays`` counts accesses outside all arguments.
    """

    accesses: tuple[CountedAccess, ...]
    programs: int
    grid: tuple[int, int, int]
    coverage: Mapping[str, Coverage]
    unknown: tuple[tuple[int | None, str], ...]
    names: Mapping[int, str]
    strays: int

    @property
    def is_complete(self) -> bool:
        """Whether all programs were run."""
        return self.programs == self.total

    @property
    def total(self) -> int:
        """How many programs the grid has."""
        return self.grid[0] * self.grid[1] * self.grid[2]


def traced(
    kernel: PtxKernel,
    grid: tuple[int, int, int],
    bound: BoundParameters,
    *,
    shared_bytes: int | None = None,
    wave: int = 132,
    most_lane_steps: int = _MOST_LANE_STEPS,
    most_seconds: float = _MOST_SECONDS,
) -> Trace:
    """Return what the programs of a launch touch.

    ``wave`` is how many programs run at a time. Where all programs would take more than ``most_lane_steps`` executed
    instructions of threads, the first, the last and random ones are run, as many as that allows. What takes more than
    ``most_seconds`` is given up, and said to be unknown.
    """
    kernel = assembled(kernel)
    for follows_stores in (False, True):
        try:
            limits = _Limits(most_lane_steps, time.monotonic() + most_seconds)
            return _traced(kernel, grid, bound, shared_bytes, wave, limits, follows_stores=follows_stores)
        except StaleRead:
            bound.memory.forget()
    raise AssertionError


@dataclass(frozen=True, slots=True)
class _Limits:
    """How much is run: steps of threads, and the time of the monotonic clock at which to stop."""

    lane_steps: int
    deadline: float


def _traced(
    kernel: PtxKernel,
    grid: tuple[int, int, int],
    bound: BoundParameters,
    shared_bytes: int | None,
    wave: int,
    limits: _Limits,
    *,
    follows_stores: bool,
) -> Trace:
    relevance = relevance_of(kernel, follows_stores=follows_stores)
    accesses = Accesses(bound.memory, TensorMaps(bound.maps), relevance, shared_bytes or _SHARED_BYTES)
    launched = PtxLaunch(kernel, grid, bound.parameters)
    total = grid[0] * grid[1] * grid[2]
    most = max(1, _BATCH_LANES // kernel.threads)
    if total > most:
        chosen = _chosen(total, _steps_of_some(launched, accesses, total, limits), limits.lane_steps)
        accesses = Accesses(bound.memory, TensorMaps(bound.maps), relevance, shared_bytes or _SHARED_BYTES)
        bound.memory.forget()
    else:
        chosen = np.arange(total)
    accesses.covers = len(chosen) == total
    ran = 0
    try:
        for batch in _batches(chosen, most, wave if accesses.covers else total):
            _run(launched, accesses, batch, limits.deadline)
            ran += len(batch)
            if ran % wave == 0 or ran == total:
                for covered in accesses.coverage.values():
                    covered.end_wave()
    except NotFollowed as stopped:
        accesses.unknown[None, stopped.reason] = None
    return _finished(accesses, grid, ran)


def _run(launched: PtxLaunch, accesses: Accesses, programs: Array, deadline: float) -> int:
    machine = Machine(launched, accesses.relevance, programs, accesses.access)
    accesses.begin(len(programs))
    machine.run(deadline)
    for line, reason in machine.stopped:
        accesses.unknown[line, f"what comes after a branch there depends on {reason}, and is not counted"] = None
    if machine.spins:
        accesses.unknown[None, "programs wait for each other, and how often they look depends on their timing"] = None
    return machine.lane_steps


def _steps_of_some(launched: PtxLaunch, accesses: Accesses, total: int, limits: _Limits) -> float:
    """Return how many steps a program takes, from some of them."""
    some = _sample(total, min(_PROBED, total))
    try:
        return _run(launched, accesses, some, limits.deadline) / len(some)
    except NotFollowed:
        return float(limits.lane_steps)


def _chosen(total: int, steps: float, most_lane_steps: int) -> Array:
    affordable = max(_PROBED, int(most_lane_steps / max(steps, 1.0)))
    return np.arange(total) if affordable >= total else _sample(total, affordable)


def _sample(total: int, count: int) -> Array:
    """Return the first, the last and random programs, the same ones each time."""
    ends = min(count, 8) // 2
    edges = [*range(ends), *range(total - ends, total)]
    middle = random.Random(total).sample(range(ends, total - ends), min(count - 2 * ends, total - 2 * ends))
    return np.array(sorted({*edges, *middle}))


def _batches(chosen: Array, most: int, wave: int) -> Iterator[Array]:
    """Yield batches of programs; the end of a wave is the end of a batch."""
    for begin in range(0, len(chosen), wave):
        together = chosen[begin : begin + wave]
        for start in range(0, len(together), most):
            yield together[start : start + most]


def _finished(accesses: Accesses, grid: tuple[int, int, int], ran: int) -> Trace:
    buffers = accesses.memory.buffers
    names = {number + 1: buffer.name for number, buffer in enumerate(buffers)}
    complete = accesses.covers and ran == grid[0] * grid[1] * grid[2]
    coverage = {buffers[number].name: each for number, each in accesses.coverage.items()} if complete else {}
    found: Sequence[CountedAccess] = [accesses.found[key] for key in sorted(accesses.found)]
    return Trace(tuple(found), ran, grid, coverage, tuple(accesses.unknown), names, accesses.memory.strays)
