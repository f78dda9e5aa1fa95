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
    """Counts the warps and the programs that run each block of a kernel; a loop ends after ``most_rounds``.

    ``warps`` are those of all programs, ``longest`` those of the program that runs the most instructions.
    """

    kernel: PtxKernel
    most_rounds: float = math.inf
    warps: Array = field(init=False)
    longest: Array = field(init=False)
    longest_program: int = 0
    programs: Array = field(init=False)
    loops: Mapping[int, Loop] = field(init=False)
    _entered: dict[int, float] = field(default_factory=dict)
    _rounds: dict[int, int] = field(default_factory=dict)
    _before: int = 0
    _by_program: Array = field(init=False)

    def __post_init__(self) -> None:
        self.warps, self.longest, self.programs = np.zeros((3, len(self.kernel.blocks)))
        self._by_program = np.zeros((len(self.kernel.blocks), 0))
        self.loops = loops_of(self.kernel)

    def start(self, programs: int) -> None:
        """Start the next programs."""
        self._by_program = np.zeros((len(self.kernel.blocks), programs), np.int32)

    def end(self, programs: Array) -> None:
        """End the programs that were started, and keep the runs of the longest."""
        lengths = np.array([len(block) for block in self.kernel.blocks], np.int64)
        longest = int((lengths @ self._by_program).argmax())
        if lengths @ self._by_program[:, longest] > lengths @ self.longest:
            self.longest, self.longest_program = self._by_program[:, longest].astype(float), int(programs[longest])

    def enter(self, block: int, mask: Array | None, shape: tuple[int, int]) -> None:
        """Count a block that the threads of ``mask``, or all of a batch of ``shape`` run."""
        warps_by_program = active_warps(mask, shape)
        warps = int(warps_by_program.sum())
        self._by_program[block] += warps_by_program
        self.warps[block] += warps
        self.programs[block] += np.count_nonzero(warps_by_program)
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


def active_warps(mask: Array | None, shape: tuple[int, int]) -> Array:
    """Return the number of warps with a thread in ``mask`` of each program; its axes may be 1 where all are alike."""
    programs, threads = shape
    warps = max(1, threads // _WARP)
    if mask is None:
        return np.full(programs, warps)
    is_whole = mask.shape[1] == threads and threads >= _WARP
    by_warp = mask.reshape(len(mask), warps, -1) if is_whole else mask[:, None, :]
    active = np.count_nonzero(by_warp.any(axis=2), axis=1) * (1 if is_whole else warps)
    return np.broadcast_to(active, programs)
