"""Executes the part of a kernel's PTX that decides its traffic, for many programs at a time.

A register is an array of shape (programs, threads), or 1 along an axis that its values do not depend on. Threads that
took different branches wait for each other: of all pending blocks, the first in the text runs next. Compiled code has
its joins below its branches, so this order brings threads together again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from kernellab.explain.traffic.arithmetic import Array, bits_of, bits_type, numbers_of, operation_of, width_of
from kernellab.explain.traffic.relevance import Relevance, calls_out, destination_of, is_access, sources_of, target_of
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


@dataclass(frozen=True, slots=True)
class UnknownValue:
    """A value that is not known, and why."""

    reason: str


RegisterBits = Array | UnknownValue


class CannotTrace(Exception):
    """The programs cannot be run to their end; ``reason`` says why."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class PtxLaunch:
    """The common data of all programs: grid, kernel, and parameter values as bytes."""

    kernel: PtxKernel
    grid: tuple[int, int, int]
    parameters: tuple[bytes, ...]


def parameter_address(index: int) -> int:
    """Return the address of a parameter of the kernel, for instructions that take a parameter by address."""
    return _PARAMETER_SPACE + (index << _PARAMETER_SHIFT)


Handler = Callable[["Machine", int, PtxInstruction, Array | None], None]


@dataclass(slots=True)
class Machine:
    """The registers of some programs. ``access`` is called for every executed access to memory.

    Threads stop at a branch with an unknown condition; ``stopped`` has its line and the reason.
    """

    launch: PtxLaunch
    relevance: Relevance
    programs: Array
    access: Handler
    registers: dict[str, RegisterBits] = field(default_factory=dict)
    lane_steps: int = 0
    spins: bool = False
    stopped: dict[tuple[int | None, str], None] = field(default_factory=dict)
    _special: dict[str, RegisterBits] = field(default_factory=dict)
    _pending: dict[int, tuple[Array | None, int]] = field(default_factory=dict)
    _shape: tuple[int, int] = (1, 1)

    def __post_init__(self) -> None:
        kernel, grid = self.launch.kernel, self.launch.grid
        self._shape = (len(self.programs), kernel.threads)
        numbers = self.programs.astype(np.int64)[:, None]
        threads = np.arange(kernel.threads, dtype=np.uint32)[None, :]
        places = (numbers % grid[0], numbers // grid[0] % grid[1], numbers // (grid[0] * grid[1]))
        zero = np.zeros((1, 1), np.uint32)
        self._special = {
            "%tid.x": threads,
            "%tid.y": zero,
            "%tid.z": zero,
            "%laneid": threads & np.uint32(31),
            "%warpid": threads >> np.uint32(5),
            "%ntid.x": zero + np.uint32(kernel.threads),
            "%ntid.y": zero + np.uint32(1),
            "%ntid.z": zero + np.uint32(1),
            "%cluster_ctarank": zero,
            "%cluster_nctarank": zero + np.uint32(1),
        }
        for axis, place, extent in zip("xyz", places, grid, strict=True):
            self._special[f"%ctaid.{axis}"] = place.astype(np.uint32)
            self._special[f"%nctaid.{axis}"] = zero + np.uint32(extent)
            self._special[f"%clusterid.{axis}"] = place.astype(np.uint32)
            self._special[f"%cluster_ctaid.{axis}"] = zero

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of programs and threads."""
        return self._shape

    def run(self, deadline: float) -> None:
        """Run all programs to their end; ``deadline`` is a time of the clock of this thread.

        Raises:
            NotFollowed: it takes too long.
        """
        blocks = self.launch.kernel.blocks
        first = np.cumsum([0, *map(len, blocks)])
        self._pending = {0: (None, 0)}
        steps = 0
        while self._pending:
            steps += 1
            block = self._next_block(steps)
            mask, _ = self._pending.pop(block)
            with np.errstate(all="ignore"):  # a GPU raises nothing
                self._run_block(blocks[block], int(first[block]), block, mask, steps)
            if time.thread_time() > deadline:
                raise CannotTrace("it runs for longer than is followed")

    def _next_block(self, steps: int) -> int:
        """Return the first block in the text; where that spins on a flag in vain, the longest waiting one."""
        lowest = min(self._pending)
        oldest = min(self._pending, key=lambda block: self._pending[block][1])
        if oldest == lowest or steps - self._pending[oldest][1] <= _SPIN_BLOCKS:
            return lowest
        if not any(_SPIN_PARTS & set(each.parts) for each in self.launch.kernel.blocks[lowest]):
            return lowest
        self.spins = True
        return oldest

    def _run_block(
        self, block: Sequence[PtxInstruction], position: int, index: int, mask: Array | None, steps: int
    ) -> None:
        for offset, instruction in enumerate(block):
            number = position + offset
            if instruction.name in {"bra", "ret", "exit", "trap"}:
                if index in self.relevance.skipped:
                    self._wait_at(self.relevance.skipped[index], mask, steps)
                    return
                mask = self._branch(instruction, mask, steps)
                if mask is not None and not mask.any():
                    return
                continue
            if is_access(instruction) or instruction.name == "tensormap" or calls_out(instruction):
                self._count_steps()
                self.access(self, number, instruction, mask)
            elif number in self.relevance.positions:
                self._count_steps()
                self._compute(instruction, mask)
        if index + 1 < len(self.launch.kernel.blocks):
            self._wait_at(index + 1, mask, steps)

    def _count_steps(self) -> None:
        self.lane_steps += max(_LEAST_STEPS, self._shape[0] * self._shape[1])

    def _wait_at(self, block: int, mask: Array | None, steps: int) -> None:
        waiting = self._pending.get(block)
        if waiting is None:
            self._pending[block] = (mask, steps)
        elif waiting[0] is not None and mask is not None:
            joined = waiting[0] | mask
            self._pending[block] = (None if joined.shape == self._shape and joined.all() else joined, waiting[1])
        else:
            self._pending[block] = (None, waiting[1])

    def _branch(self, instruction: PtxInstruction, mask: Array | None, steps: int) -> Array | None:
        """Execute a branch or an end; return the mask of the threads that continue below it."""
        branching = self.active_threads(instruction, mask)
        if isinstance(branching, UnknownValue):
            self.stopped[instruction.location.line, branching.reason] = None
            return np.zeros((1, 1), bool)
        if branching is not None and not branching.any():
            return mask
        if instruction.name == "bra":
            self._wait_at(target_of(self.launch.kernel, instruction), branching, steps)
        if branching is None or branching.all():
            return np.zeros((1, 1), bool)
        rest = ~branching if mask is None else mask & ~branching
        return np.broadcast_to(rest, self._shape)

    def active_threads(self, instruction: PtxInstruction, mask: Array | None) -> Array | UnknownValue | None:
        """Return the threads among ``mask`` that execute an instruction; None where all do."""
        if instruction.guard is None:
            return mask
        value = self.value(instruction.guard)
        if isinstance(value, UnknownValue):
            return value
        active = ~value if instruction.negated else value
        if active.all():
            return mask
        return active if mask is None else active & mask

    def value(self, operand: Operand) -> RegisterBits:
        """Return the bits of an operand."""
        match operand:
            case Register(name):
                return self._register(name)
            case Immediate(bits):
                return _constant(bits & _BITS_64)
            case Symbol(name):
                return self._symbol(name)
        return UnknownValue(f"the operand {operand}")

    def values(self, operands: Sequence[Operand]) -> list[Array] | UnknownValue:
        """Return the bits of operands, or the first unknown value."""
        bits = []
        for operand in operands:
            value = self.value(operand)
            if isinstance(value, UnknownValue):
                return value
            bits.append(value)
        return bits

    def _register(self, name: str) -> RegisterBits:
        bits = self.registers.get(name)
        if bits is not None:
            return bits
        special = self._special.get(name)
        if special is not None:
            return special
        if "." in name or name.startswith(("%clock", "%globaltimer", "%smid", "%nsmid", "%warpid", "%nwarpid")):
            return UnknownValue(f"the register {name}")
        return UnknownValue("a register that was never written")

    def _symbol(self, name: str) -> RegisterBits:
        kernel = self.launch.kernel
        for index, parameter in enumerate(kernel.parameters):
            if parameter.name == name:
                return _constant(parameter_address(index))
        base = 0
        for variable, size_bytes in kernel.variables:
            if variable == name:
                return _constant(base)
            base += -(-size_bytes // 128) * 128
        return UnknownValue(f"{name}, which is no parameter")

    def put(self, destination: Operand, value: RegisterBits, mask: Array | None, kind: str) -> None:
        """Write bits to a register of a PTX type, in the threads of ``mask``."""
        if not isinstance(destination, Register):
            return
        old = self.registers.get(destination.name)
        if not isinstance(value, UnknownValue):
            value = bits_of(value, "pred" if kind == "pred" else f"b{width_of(kind)}")
        if mask is None or old is None:
            self.registers[destination.name] = value
        elif isinstance(value, UnknownValue) or isinstance(old, UnknownValue):
            self.registers[destination.name] = value if isinstance(value, UnknownValue) else old
        else:
            self.registers[destination.name] = np.where(mask, value, old)

    def _compute(self, instruction: PtxInstruction, mask: Array | None) -> None:
        active = self.active_threads(instruction, mask)
        destination = destination_of(instruction)
        assert destination is not None
        if isinstance(active, UnknownValue):
            self._set_unknown(destination, active)
            return
        special = _INSTRUCTIONS.get(instruction.name)
        if special is not None:
            special(self, instruction, destination, active)
            return
        operation = operation_of(instruction.parts)
        if operation is None:
            line = instruction.location.line
            self._set_unknown(destination, UnknownValue(f"what {instruction.opcode} computes in line {line}"))
            return
        values = self.values(sources_of(instruction))
        result = values if isinstance(values, UnknownValue) else operation(*values)
        self._write_result(instruction, destination, result, active)

    def _write_result(
        self, instruction: PtxInstruction, destination: Operand, result: RegisterBits, mask: Array | None
    ) -> None:
        if isinstance(destination, Vector):  # setp with two predicates: the second is the opposite
            opposite = result if isinstance(result, UnknownValue) else ~result
            for member, bits in zip(destination.members, (result, opposite), strict=False):
                self.put(member, bits, mask, "pred")
            return
        self.put(destination, result, mask, result_type(instruction))

    def _set_unknown(self, destination: Operand, unknown: UnknownValue) -> None:
        for member in members_of(destination):
            self.put(member, unknown, None, "b32")


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
    source = instruction.operands[1]
    kind = instruction.type
    if isinstance(destination, Vector):
        value = machine.value(source)
        width = width_of(kind) // len(destination.members)
        for place, member in enumerate(destination.members):
            part = value if isinstance(value, UnknownValue) else value >> value.dtype.type(place * width)
            machine.put(member, part, mask, f"b{width}")
        return
    if not isinstance(source, Vector):
        value = machine.value(source)
        kind = "pred" if kind == "pred" else f"b{width_of(kind)}"
        machine.put(destination, value, mask, kind)
        return
    values = machine.values(source.members)
    if isinstance(values, UnknownValue):
        machine.put(destination, values, mask, kind)
        return
    width = width_of(kind) // len(values)
    low = np.uint64((1 << width) - 1)
    packed: Any = np.uint64(0)
    for place, bits in enumerate(values):
        packed = packed | ((bits.astype(np.uint64) & low) << np.uint64(place * width))
    machine.put(destination, packed, mask, kind)


def _load_parameter(machine: Machine, instruction: PtxInstruction, destination: Operand, mask: Array | None) -> None:
    """Load a parameter of the kernel; its address may differ between threads."""
    address = instruction.operands[1]
    assert isinstance(address, Address)
    members = members_of(destination)
    base = machine.value(address.base)
    if isinstance(base, UnknownValue) and isinstance(address.base, Symbol):
        base = UnknownValue("what a called function returns, or a table of constants")
    if isinstance(base, UnknownValue):
        for member in members:
            machine.put(member, base, mask, "b32")
        return
    starts, which = np.unique(base.astype(np.int64) + address.offset_bytes, return_inverse=True)
    size = width_of(instruction.type) // 8
    for place, member in enumerate(members):
        bits = [_parameter_bytes(machine.launch, int(start) + place * size, size) for start in starts]
        values = np.frombuffer(b"".join(bits), bits_type(instruction.type))
        machine.put(member, values[which].reshape(base.shape), mask, instruction.type)


def _parameter_bytes(launch: PtxLaunch, address: int, size: int) -> bytes:
    """Return ``size`` bytes of the parameters at an address; bytes after the end of one are zero."""
    index, begin = divmod(address - _PARAMETER_SPACE, 1 << _PARAMETER_SHIFT)
    return launch.parameters[index][begin : begin + size].ljust(size, b"\0")


def _shuffle(machine: Machine, instruction: PtxInstruction, destination: Operand, mask: Array | None) -> None:
    """Exchange registers within each warp. PTX ISA, "shfl.sync"."""
    values = machine.values(instruction.operands[1:4])
    members = members_of(destination)
    if isinstance(values, UnknownValue):
        for member in members:
            machine.put(member, values, mask, "b32")
        return
    data, by, control = (np.broadcast_to(each, machine.shape).astype(np.int64) for each in values)
    lane = np.broadcast_to(np.arange(machine.shape[1]) % 32, machine.shape)
    segment = (control >> 8) & 31
    low, high = lane & segment, (lane & segment) | (control & 31 & ~segment)
    by = by & 31
    mode = instruction.parts[2]
    source = {"up": lane - by, "down": lane + by, "bfly": lane ^ by, "idx": low | (by & ~segment)}[mode]
    valid = source >= high if mode == "up" else source <= high
    index = np.arange(machine.shape[1]) // 32 * 32 + np.where(valid, source, lane)
    moved = np.take_along_axis(data, np.minimum(index, machine.shape[1] - 1), axis=1)
    machine.put(members[0], moved.astype(np.uint32), mask, "b32")
    if len(members) > 1:
        machine.put(members[1], valid, mask, "pred")


def _elect(machine: Machine, instruction: PtxInstruction, destination: Operand, mask: Array | None) -> None:
    """Choose the first thread of each warp."""
    assert isinstance(destination, Vector)
    first = np.arange(machine.shape[1])[None, :] % 32 == 0
    machine.put(destination.members[0], _constant(0), mask, "b32")
    machine.put(destination.members[1], first, mask, "pred")


def _complete_barrier(machine: Machine, instruction: PtxInstruction, destination: Operand, mask: Array | None) -> None:
    """Report a memory barrier as completed."""
    if instruction.parts[1] in {"try_wait", "test_wait"}:
        machine.put(destination, _TRUE, mask, "pred")
    else:
        machine.put(destination, UnknownValue("the state of a barrier"), mask, "b64")


def _vote(machine: Machine, instruction: PtxInstruction, destination: Operand, mask: Array | None) -> None:
    """Combine a predicate over each warp."""
    value = machine.value(instruction.operands[1])
    if isinstance(value, UnknownValue):
        machine.put(destination, value, mask, "b32")
        return
    active = np.broadcast_to(_TRUE if mask is None else mask, machine.shape)
    warps = (value & active).reshape(machine.shape[0], -1, min(32, machine.shape[1]))
    alive = active.reshape(warps.shape)
    mode = next(part for part in instruction.parts if part in {"any", "all", "uni", "ballot"})
    if mode == "ballot":
        votes = (warps.astype(np.uint64) << np.arange(warps.shape[2], dtype=np.uint64)).sum(axis=2, keepdims=True)
    elif mode == "any":
        votes = warps.any(axis=2, keepdims=True)
    else:
        every = (warps | ~alive).all(axis=2, keepdims=True)
        votes = every if mode == "all" else every | ~warps.any(axis=2, keepdims=True)
    spread = np.broadcast_to(votes, warps.shape).reshape(machine.shape)
    machine.put(destination, spread.astype(np.uint32) if mode == "ballot" else spread, mask, instruction.type)


def _reduce_warp(machine: Machine, instruction: PtxInstruction, destination: Operand, mask: Array | None) -> None:
    """Combine integers over each warp; threads that are off take no part. PTX ISA, "redux.sync"."""
    value = machine.value(instruction.operands[1])
    combine = INTEGER_UFUNCS.get(instruction.parts[2])
    if isinstance(value, UnknownValue) or combine is None:
        reason = value.reason if isinstance(value, UnknownValue) else f"what {instruction.opcode} computes"
        machine.put(destination, UnknownValue(reason), mask, "b32")
        return
    active = np.broadcast_to(_TRUE if mask is None else mask, machine.shape)
    numbers = np.broadcast_to(numbers_of(value, instruction.type), machine.shape)
    warps = numbers.reshape(machine.shape[0], -1, min(32, machine.shape[1]))
    alive = active.reshape(warps.shape)
    first = np.take_along_axis(warps, alive.argmax(axis=2)[:, :, None], axis=2)  # of a warp that is off, anything
    totals = combine.reduce(np.where(alive, warps, first), axis=2, keepdims=True)
    if combine in {np.add, np.bitwise_xor}:
        totals = combine.reduce(np.where(alive, warps, warps.dtype.type(0)), axis=2, keepdims=True)
    spread = np.broadcast_to(totals, warps.shape).reshape(machine.shape)
    machine.put(destination, bits_of(spread.astype(warps.dtype), instruction.type), mask, "b32")


INTEGER_UFUNCS: dict[str, np.ufunc] = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
_INSTRUCTIONS: dict[str, Callable[[Machine, PtxInstruction, Operand, Array | None], None]] = {
    "mov": _move,
    "ld": _load_parameter,
    "shfl": _shuffle,
    "elect": _elect,
    "mbarrier": _complete_barrier,
    "vote": _vote,
    "redux": _reduce_warp,
}
