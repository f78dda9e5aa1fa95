"""How often each program of a launch runs each block, from one thread of each: programs may differ in length.

Loop bounds that are loaded, or follow from the program id, decide it. Following what decides branches in one thread of
every program costs little, and finds the long programs that a sample would miss.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache, partial

import numpy as np

from kernellab.explain.traffic.arithmetic import Array
from kernellab.explain.traffic.execution import Execution, execute
from kernellab.explain.traffic.loops import BlockRuns
from kernellab.explain.traffic.machine import CannotTrace, Machine, UnknownOperand
from kernellab.explain.traffic.memory import LaunchMemory
from kernellab.explain.traffic.parameters import PtxLaunch
from kernellab.explain.traffic.relevance import (
    Relevance,
    controlling_positions,
    destination_of,
    is_access,
    is_shared,
    read_by,
    relevance_of,
    steps_by_block,
)
from kernellab.ir.ptx import Address, PtxInstruction, PtxKernel

_KERNELS_KEPT = 64
_MOST_LANE_STEPS = 3 * 10**7  # at most some 0.2 s of CPU
_BATCH_PROGRAMS = 1 << 14
_OF_PROGRAMS = ("%ctaid", "%clusterid")


@dataclass(frozen=True, slots=True)
class ProgramLengths:
    """The ``runs`` of blocks by all programs; ``is_complete`` is False where some were not followed to their end."""

    runs: BlockRuns
    is_complete: bool


@lru_cache(_KERNELS_KEPT)
def varying_control(kernel: PtxKernel) -> Relevance | None:
    """Return the part of a kernel that decides how often its blocks run; None if it is the same for all programs."""
    relevance = relevance_of(kernel)
    positions = controlling_positions(kernel, frozenset(relevance.skipped))
    deciding = [ptx for position, ptx in enumerate(kernel.instructions) if position in positions]
    if not any(is_access(ptx) or any(name.startswith(_OF_PROGRAMS) for name in read_by(ptx)) for ptx in deciding):
        return None
    return replace(relevance, positions=positions, steps=tuple(steps_by_block(kernel, positions)))


_OF_THREADS = ("%tid", "%laneid", "%warpid")
_OF_WARPS = frozenset({"shfl", "vote", "elect", "redux", "activemask", "match"})


def _is_by_thread(kernel: PtxKernel, control: Relevance) -> bool:
    """Whether the threads of a program may branch differently, so that one of them does not stand for all."""
    deciding = (ptx for position, ptx in enumerate(kernel.instructions) if position in control.positions)
    return any(ptx.name in _OF_WARPS or any(name.startswith(_OF_THREADS) for name in read_by(ptx)) for ptx in deciding)


def program_lengths(launch: PtxLaunch, control: Relevance, total: int, deadline: float) -> ProgramLengths | None:
    """Return the runs of each block by the programs of a launch; None if one thread does not stand for its program."""
    if _is_by_thread(launch.kernel, control):
        return None
    runs, left, is_complete = BlockRuns(launch.kernel), _MOST_LANE_STEPS, True
    read = partial(_read, launch.memory)
    for start in range(0, total, _BATCH_PROGRAMS):
        programs = np.arange(start, min(start + _BATCH_PROGRAMS, total))
        parameters = (launch.kernel, launch.grid, launch.parameters)
        machine = Machine(*parameters, control, programs, read, runs, threads=1, most_lane_steps=left)
        try:
            machine.run(deadline)
        except CannotTrace:
            is_complete = False
            break
        left, is_complete = left - machine.lane_steps, is_complete and not (machine.stopped or machine.spins)
    return ProgramLengths(runs, is_complete)


def _read(memory: LaunchMemory, machine: Machine, number: int, instruction: PtxInstruction, mask: Array | None) -> None:
    """Load a value that branches depend on; what is in shared memory, or an atomic returns, is unknown."""
    if number not in machine.relevance.positions:
        return
    try:
        active = machine.active_threads(instruction, mask)
        if instruction.name not in {"ld", "ldu"} or is_shared(instruction) or "local" in instruction.parts:
            raise UnknownOperand(f"what {instruction.opcode} returns")
        if active is None or active.any():
            execution = Execution(machine, number, instruction, active)
            execute(
                execution, memory, execution.address(next(o for o in instruction.operands if isinstance(o, Address)))
            )
    except UnknownOperand as unknown:
        machine.put_unknown(destination_of(instruction), str(unknown))
