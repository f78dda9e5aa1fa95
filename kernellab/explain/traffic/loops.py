"""The loops of a kernel's PTX, and the part of the kernel that decides how often each block runs.

A sample of a loop's rounds suffices to know its accesses; how many rounds there are follows from counters alone, which
are a few instructions of each round.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from kernellab.explain.traffic.arithmetic import Array
from kernellab.explain.traffic.relevance import (
    Relevance,
    controlling_positions,
    post_dominators,
    relevance_of,
    steps_by_block,
    successors_by_block,
)
from kernellab.ir.ptx import PtxKernel

_KERNELS_KEPT = 64


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop: its first block, the block that branches back, and the block where all its threads continue."""

    first: int
    last: int
    exit: int


@lru_cache(_KERNELS_KEPT)
def loops_of(kernel: PtxKernel) -> Mapping[int, Loop]:
    """Return the loops of a kernel by the block that branches back; those without a common exit are left out."""
    following = successors_by_block(kernel)
    behind, end = post_dominators(following), len(following)
    loops = {}
    for block, successors in enumerate(following):
        first = min(successors)
        exits = [candidate for candidate in behind[block] if block < candidate < end]
        if first <= block and exits:
            loops[block] = Loop(first, block, min(exits))
    return loops


@lru_cache(_KERNELS_KEPT)
def control_of(kernel: PtxKernel) -> Relevance | None:
    """Return the part of a kernel that decides how often its blocks run; None if loaded values decide it."""
    relevance = relevance_of(kernel)
    if relevance.loads or relevance.follows_shared:
        return None
    positions = controlling_positions(kernel, frozenset(relevance.skipped))
    return replace(relevance, positions=positions, steps=tuple(steps_by_block(kernel, positions)))


_WARP = 32


@dataclass(slots=True)
class BlockRuns:
    """Counts the warps and the programs that run each block of a kernel; a loop ends after ``most_rounds``."""

    kernel: PtxKernel
    most_rounds: float = math.inf
    warps: Array = field(init=False)
    programs: Array = field(init=False)
    loops: Mapping[int, Loop] = field(init=False)
    _entered: dict[int, float] = field(default_factory=dict)
    _rounds: dict[int, int] = field(default_factory=dict)
    _before: int = 0

    def __post_init__(self) -> None:
        self.warps, self.programs = np.zeros((2, len(self.kernel.blocks)))
        self.loops = loops_of(self.kernel)

    def enter(self, block: int, mask: Array | None, shape: tuple[int, int]) -> None:
        """Count a block that the threads of ``mask``, or all of a batch of ``shape`` run."""
        warps = active_warps(mask, shape)
        self.warps[block] += warps
        self.programs[block] += _active_programs(mask, shape[0])
        for loop in self.loops.values():
            if loop.first == block and not loop.first <= self._before <= loop.last:
                self._rounds[loop.last] = 0
                self._entered[loop.last] = self._entered.get(loop.last, 0.0) + warps
        self._before = block

    @property
    def longest_loop(self) -> float:
        """The most rounds of a loop for each time that it is entered, on average."""
        return max((self.warps[last] / max(1.0, entered) for last, entered in self._entered.items()), default=0.0)

    def loop_end(self, block: int) -> int | None:
        """Return the block behind the loop that ends with a block, after its last round; else None."""
        if block not in self.loops:
            return None
        self._rounds[block] = self._rounds.get(block, 0) + 1
        return self.loops[block].exit if self._rounds[block] >= self.most_rounds else None


def active_warps(mask: Array | None, shape: tuple[int, int]) -> int:
    """Return the number of warps with a thread in ``mask``; its axes may be 1 where all are alike."""
    programs, threads = shape
    warps = max(1, threads // _WARP)
    if mask is None:
        return programs * warps
    by_warp = mask.shape[1] == threads and threads >= _WARP
    alive = mask.reshape(len(mask), warps, -1).any(axis=2) if by_warp else mask.any(axis=1)
    return int(np.count_nonzero(alive)) * (programs // len(mask)) * (1 if by_warp else warps)


def _active_programs(mask: Array | None, programs: int) -> int:
    """Return the number of programs with a thread in ``mask``."""
    return programs if mask is None else int(np.count_nonzero(mask.any(axis=1))) * (programs // len(mask))
