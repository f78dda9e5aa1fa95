"""Executes the part of a kernel's PTX that decides its traffic, for many programs at a time.

A register is an array of shape (programs, threads), or 1 along an axis that its values do not depend on. Threads that
took different branches wait for each other: of all pending blocks, the first in the text runs next. Compiled code has
its joins below its branches, so this order brings threads together again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from kernellab.explain.traffic.arithmetic import (
    INTEGER_UFUNCS,
    Array,
    bits_of,
    bits_type,
    numbers_of,
    operation_of,
    width_of,
)
from kernellab.explain.traffic.loops import BlockRuns
from kernellab.explain.traffic.relevance import Relevance, destination_of, sources_of, target_of
from kernellab.ir.ptx import (
    Address,
    Immediate,
    Operand,
    PtxInstruction,
    PtxKernel,
    Register,
    Symbol,
    Vector,
    members_of,
)

_PARAMETER_SPACE = 0x7F << 24
_PARAMETER_SHIFT = 12
_BITS_64 = (1 << 64) - 1
_SPIN_BLOCKS = 64
_LEAST_STEPS = 1 << 12  # a numpy function on a few elements takes as long as on thousands
_SPIN_PARTS = frozenset({"atom", "volatile", "acquire"})
_TRUE = np.ones((1, 1), bool)
_UNKNOWN_REGISTERS = ("%clock", "%globaltimer", "%smid", "%nsmid", "%nwarpid")


@dataclass(frozen=True, slots=True)
class UnknownValue:
    """A value that is not known, and why."""

    reason: str


RegisterBits = Array | UnknownValue


class UnknownOperand(Exception):
    """An instruction reads a value that is not known; the text says why."""


class CannotTrace(Exception):
    """The programs cannot be run to their end; the text says why."""


def parameter_address(index: int) -> int:
    """Return the address of a parameter of the kernel, for instructions that take a parameter by address."""
    return _PARAMETER_SPACE + (index << _PARAMETER_SHIFT)


Handler = Callable[["Machine", int, PtxInstruction, Array | None], None]


@dataclass(slots=True)
class Machine:
    """The registers of some programs of a grid. ``access`` is called for every executed access to memory.

    ``parameters`` are the values of the kernel's parameters as bytes. Threads stop at a branch with an unknown
    condition; ``stopped`` has its line and the reason. ``shape`` are the numbers of programs and threads. ``runs``
    counts how often blocks run, and ends loops. ``threads`` are the first ones of each program that are followed, all
    without it. After ``most_lane_steps`` instructions of threads it gives up.
    """

    kernel: PtxKernel
    grid: tuple[int, int, int]
    parameters: tuple[bytes, ...]
    relevance: Relevance
    programs: Array
    access: Handler
    runs: BlockRuns
    threads: int | None = None
    most_lane_steps: float = math.inf
    registers: dict[str, RegisterBits] = field(default_factory=dict)
    lane_steps: int = 0
    spins: bool = False
    stopped: dict[tuple[int | None, str], None] = field(default_factory=dict)
    shape: tuple[int, int] = (1, 1)
    _pending: dict[int, tuple[Array | None, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        kernel, grid = self.kernel, self.grid
        self.shape = (len(self.programs), self.threads or kernel.threads)
        numbers = self.programs.astype(np.int64)[:, None]
        threads = np.arange(self.shape[1], dtype=np.uint32)[None, :]
        self.registers = {"%tid.x": threads, "%laneid": threads & np.uint32(31), "%warpid": threads >> np.uint32(5)}
        fixed = {"%tid.y": 0, "%tid.z": 0, "%ntid.x": kernel.threads, "%ntid.y": 1, "%ntid.z": 1}
        fixed |= {"%cluster_ctarank": 0, "%cluster_nctarank": 1}
        places = (numbers % grid[0], numbers // grid[0] % grid[1], numbers // (grid[0] * grid[1]))
        for axis, place, extent in zip("xyz", places, grid, strict=True):
            self.registers |= dict.fromkeys((f"%ctaid.{axis}", f"%clusterid.{axis}"), place.astype(np.uint32))
            fixed |= {f"%nctaid.{axis}": extent, f"%cluster_ctaid.{axis}": 0}
        self.registers |= {name: np.full((1, 1), value, np.uint32) for name, value in fixed.items()}
        offset_bytes = 0
        for variable, size_bytes in kernel.variables:
            self.registers[variable] = _constant(offset_bytes)
            offset_bytes += -(-size_bytes // 128) * 128
        for index, parameter in enumerate(kernel.parameters):
            self.registers[parameter.name] = _constant(parameter_address(index))

    def run(self, deadline: float) -> None:
        """Run all programs to their end; ``deadline`` is a time of the clock of this thread.

        Raises:
            CannotTrace: it takes too long.
        """
        self._pending = {0: (None, 0)}
        self.runs.start(len(self.programs))
        try:
            self._run_blocks(deadline)
        finally:
            self.runs.end(self.programs)

    def _run_blocks(self, deadline: float) -> None:
        steps = 0
        while self._pending:
            steps += 1
            block = self._next_block(steps)
            mask, _ = self._pending.pop(block)
            self.runs.enter(block, mask, (self.shape[0], self.kernel.threads))
            with np.errstate(all="ignore"):  # a GPU raises nothing
                self._run_block(block, mask, steps)
            if time.thread_time() > deadline or self.lane_steps > self.most_lane_steps:
                raise CannotTrace("it runs for longer than is followed")

    def _next_block(self, steps: int) -> int:
        """Return the first block in the text; where that spins on a flag in vain, the longest waiting one."""
        lowest = min(self._pending)
        oldest = min(self._pending, key=lambda block: self._pending[block][1])
        if oldest == lowest or steps - self._pending[oldest][1] <= _SPIN_BLOCKS:
            return lowest
        if not any(_SPIN_PARTS & set(instruction.parts) for instruction in self.kernel.blocks[lowest]):
            return lowest
        self.spins = True
        return oldest

    def _run_block(self, index: int, mask: Array | None, steps: int) -> None:
        for number, instruction, is_access, ends_block in self.relevance.steps[index]:
            if ends_block:
                if index in self.relevance.skipped:
                    self._wait_at(self.relevance.skipped[index], mask, steps)
                    return
                if (end := self.runs.loop_end(index)) is not None:
                    self._wait_at(end, mask, steps)
                    return
                mask = self._branch(instruction, mask, steps)
                if mask is not None and not mask.any():
                    return
                continue
            self.lane_steps += max(_LEAST_STEPS, self.shape[0] * self.shape[1])
            if is_access:
                self.access(self, number, instruction, mask)
            else:
                self._compute(instruction, mask)
        if index + 1 < len(self.kernel.blocks):
            self._wait_at(index + 1, mask, steps)

    def _wait_at(self, block: int, mask: Array | None, steps: int) -> None:
        waiting = self._pending.get(block)
        if waiting is None:
            self._pending[block] = (mask, steps)
        elif waiting[0] is not None and mask is not None:
            joined = waiting[0] | mask
            self._pending[block] = (None if joined.shape == self.shape and joined.all() else joined, waiting[1])
        else:
            self._pending[block] = (None, waiting[1])

    def _branch(self, instruction: PtxInstruction, mask: Array | None, steps: int) -> Array | None:
        """Execute a branch or an end; return the mask of the threads that continue below it."""
        try:
            branching = self.active_threads(instruction, mask)
        except UnknownOperand as unknown:
            self.stopped[instruction.location.line, str(unknown)] = None
            return np.zeros((1, 1), bool)
        if branching is not None and not branching.any():
            return mask
        if instruction.name == "bra":
            self._wait_at(target_of(self.kernel, instruction), branching, steps)
        if branching is None or branching.all():
            return np.zeros((1, 1), bool)
        rest = ~branching if mask is None else mask & ~branching
        return np.broadcast_to(rest, self.shape)

    def active_threads(self, instruction: PtxInstruction, mask: Array | None) -> Array | None:
        """Return the threads among ``mask`` that execute an instruction; None where all do.

        Raises:
            UnknownOperand: its predicate is not known.
        """
        if instruction.guard is None:
            return mask
        (value,) = self.values((instruction.guard,))
        active = ~value if instruction.negated else value
        if active.all():
            return mask
        return active if mask is None else active & mask

    def value(self, operand: Operand) -> RegisterBits:
        """Return the bits of an operand."""
        if isinstance(operand, Immediate):
            return _constant(operand.bits & _BITS_64)
        if not isinstance(operand, Register | Symbol):
            return UnknownValue(f"the operand {operand}")
        bits, name = self.registers.get(operand.name), operand.name
        if bits is not None:
            return bits
        if isinstance(operand, Symbol):
            return UnknownValue(f"{name}, which is not a parameter")
        is_special = "." in name or name.startswith(_UNKNOWN_REGISTERS)
        return UnknownValue(f"the register {name}" if is_special else "a register that was never written")

    def values(self, operands: Sequence[Operand]) -> list[Array]:
        """Return the bits of operands.

        Raises:
            UnknownOperand: one of them is not known.
        """
        values = []
        for operand in operands:
            value = self.value(operand)
            if isinstance(value, UnknownValue):
                raise UnknownOperand(value.reason)
            values.append(value)
        return values

    def put(self, destination: Operand, value: RegisterBits, mask: Array | None, kind: str) -> None:
        """Write bits to a register of a PTX type, in the threads of ``mask``; an unknown value, in all threads."""
        if not isinstance(destination, Register):
            return
        old = self.registers.get(destination.name)
        if not isinstance(value, UnknownValue):
            value = bits_of(value, "pred" if kind == "pred" else f"b{width_of(kind)}")
            if mask is not None and old is not None:
                value = old if isinstance(old, UnknownValue) else np.where(mask, value, old)
        self.registers[destination.name] = value

    def put_unknown(self, destination: Operand | None, reason: str) -> None:
        """Mark the registers that an instruction writes as unknown."""
        for member in () if destination is None else members_of(destination):
            self.put(member, UnknownValue(reason), None, "b32")

    def _compute(self, instruction: PtxInstruction, mask: Array | None) -> None:
        destination = destination_of(instruction)
        assert destination is not None
        try:
            active = self.active_threads(instruction, mask)
            _INSTRUCTIONS.get(instruction.name, _compute_numbers)(self, instruction, destination, active)
        except UnknownOperand as unknown:
            self.put_unknown(destination, str(unknown))


def _compute_numbers(machine: Machine, instruction: PtxInstruction, destination: Operand, mask: Array | None) -> None:
    operation = operation_of(instruction.parts)
    if operation is None:
        raise UnknownOperand(f"what {instruction.opcode} computes in line {instruction.location.line}")
    result = operation(*machine.values(sources_of(instruction)))
    if isinstance(destination, Vector):  # setp with two predicates: the second is the opposite
        for member, bits in zip(destination.members, (result, ~result), strict=False):
            machine.put(member, bits, mask, "pred")
    else:
        machine.put(destination, result, mask, result_type(instruction))


def result_type(instruction: PtxInstruction) -> str:
    """Return the PTX type of an instruction's result."""
    name, parts = instruction.name, instruction.parts
    if name == "setp":
        return "pred"
    if name == "cvt":
        return parts[-2]
    if name in {"popc", "clz"}:
        return "u32"
    if "wide" in parts:
        return f"{parts[-1][0]}{2 * width_of(parts[-1])}"
    return parts[-1]


@cache
def _constant(bits: int) -> Array:
    return np.full((1, 1), bits, np.uint64)


def _move(machine: Machine, instruction: PtxInstruction, destination: Operand, mask: Array | None) -> None:
    """Copy a register; pack a vector of registers into one, or unpack."""
    kind, members = instruction.type, members_of(destination)
    values = machine.values(members_of(instruction.operands[1]))
    if len(members) > 1:
        width = width_of(kind) // len(members)
        for place, member in enumerate(members):
            machine.put(member, values[0] >> values[0].dtype.type(place * width), mask, f"b{width}")
        return
    packed: Any = values[0]
    if len(values) > 1:
        width = width_of(kind) // len(values)
        low, packed = np.uint64((1 << width) - 1), np.uint64(0)
        for place, bits in enumerate(values):
            packed = packed | ((bits.astype(np.uint64) & low) << np.uint64(place * width))
    machine.put(members[0], packed, mask, kind)


def _load_parameter(machine: Machine, instruction: PtxInstruction, destination: Operand, mask: Array | None) -> None:
    """Load a parameter of the kernel; its address may differ between threads."""
    address = instruction.operands[1]
    assert isinstance(address, Address)
    if isinstance(address.base, Symbol) and address.base.name not in machine.registers:
        raise UnknownOperand("what a called function returns, or a table of constants")
    (base,) = machine.values((address.base,))
    starts, which = np.unique(base.astype(np.int64) + address.offset_bytes, return_inverse=True)
    size = width_of(instruction.type) // 8
    for place, member in enumerate(members_of(destination)):
        bits = [_parameter_bytes(machine.parameters, int(start) + place * size, size) for start in starts]
        values = np.frombuffer(b"".join(bits), bits_type(instruction.type))
        machine.put(member, values[which].reshape(base.shape), mask, instruction.type)


def _parameter_bytes(parameters: Sequence[bytes], address: int, size: int) -> bytes:
    """Return ``size`` bytes of the parameters at an address; bytes after the end of one are zero."""
    index, begin = divmod(address - _PARAMETER_SPACE, 1 << _PARAMETER_SHIFT)
    return parameters[index][begin : begin + size].ljust(size, b"\0")


def _shuffle(machine: Machine, instruction: PtxInstruction, destination: Operand, mask: Array | None) -> None:
    """Exchange registers within each warp. PTX ISA, "shfl.sync"."""
    values = machine.values(instruction.operands[1:4])
    data, by, control = (np.broadcast_to(value, machine.shape).astype(np.int64) for value in values)
    lane = np.broadcast_to(np.arange(machine.shape[1]) % 32, machine.shape)
    segment = (control >> 8) & 31
    low, high = lane & segment, (lane & segment) | (control & 31 & ~segment)
    by = by & 31
    mode = instruction.parts[2]
    source = {"up": lane - by, "down": lane + by, "bfly": lane ^ by, "idx": low | (by & ~segment)}[mode]
    valid = source >= high if mode == "up" else source <= high
    index = np.arange(machine.shape[1]) // 32 * 32 + np.where(valid, source, lane)
    moved = np.take_along_axis(data, np.minimum(index, machine.shape[1] - 1), axis=1)
    for member, bits, kind in zip(members_of(destination), (moved, valid), ("b32", "pred"), strict=False):
        machine.put(member, bits, mask, kind)


def _elect(machine: Machine, instruction: PtxInstruction, destination: Operand, mask: Array | None) -> None:
    """Choose the first thread of each warp."""
    lane, is_chosen = members_of(destination)
    machine.put(lane, _constant(0), mask, "b32")
    machine.put(is_chosen, np.arange(machine.shape[1])[None, :] % 32 == 0, mask, "pred")


def _complete_barrier(machine: Machine, instruction: PtxInstruction, destination: Operand, mask: Array | None) -> None:
    """Report a memory barrier as completed."""
    if instruction.parts[1] not in {"try_wait", "test_wait"}:
        raise UnknownOperand("the state of a barrier")
    machine.put(destination, _TRUE, mask, "pred")


def _by_warp(machine: Machine, values: Array) -> Array:
    """Return values of threads as an array of programs, warps and lanes."""
    spread = np.broadcast_to(values, machine.shape)
    return spread.reshape(machine.shape[0], -1, min(32, machine.shape[1]))


def _vote(machine: Machine, instruction: PtxInstruction, destination: Operand, mask: Array | None) -> None:
    """Combine a predicate over each warp."""
    (value,) = machine.values(instruction.operands[1:2])
    alive = _by_warp(machine, _TRUE if mask is None else mask)
    warps = _by_warp(machine, value) & alive
    if "ballot" in instruction.parts:
        votes = (warps.astype(np.uint64) << np.arange(warps.shape[2], dtype=np.uint64)).sum(axis=2, keepdims=True)
    else:
        votes = warps.any(axis=2, keepdims=True)
        every = (warps | ~alive).all(axis=2, keepdims=True)
        if "any" not in instruction.parts:
            votes = every if "all" in instruction.parts else every | ~votes
    machine.put(destination, np.broadcast_to(votes, warps.shape).reshape(machine.shape), mask, instruction.type)


def _reduce_warp(machine: Machine, instruction: PtxInstruction, destination: Operand, mask: Array | None) -> None:
    """Combine integers over each warp; threads that are off take no part. PTX ISA, "redux.sync"."""
    (value,) = machine.values(instruction.operands[1:2])
    combine = INTEGER_UFUNCS.get(instruction.parts[2])
    if combine is None:
        raise UnknownOperand(f"what {instruction.opcode} computes")
    alive = _by_warp(machine, _TRUE if mask is None else mask)
    warps = _by_warp(machine, numbers_of(value, instruction.type))
    neutral: Any = warps.dtype.type(0)
    if combine not in {np.add, np.bitwise_xor}:  # any active thread's value again
        neutral = np.take_along_axis(warps, alive.argmax(axis=2)[:, :, None], axis=2)
    totals = combine.reduce(np.where(alive, warps, neutral), axis=2, keepdims=True)
    spread = np.broadcast_to(totals, warps.shape).reshape(machine.shape)
    machine.put(destination, bits_of(spread.astype(warps.dtype), instruction.type), mask, "b32")


_INSTRUCTIONS: dict[str, Callable[[Machine, PtxInstruction, Operand, Array | None], None]] = {
    "mov": _move,
    "ld": _load_parameter,
    "shfl": _shuffle,
    "elect": _elect,
    "mbarrier": _complete_barrier,
    "vote": _vote,
    "redux": _reduce_warp,
}
