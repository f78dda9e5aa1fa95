"""Executes loads, stores and atomics on values, as far as later accesses depend on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from kernellab.explain.traffic.arithmetic import Array, width_of
from kernellab.explain.traffic.counting import WARP, Count, shared_count
from kernellab.explain.traffic.machine import CannotTrace, Machine, RegisterBits, UnknownOperand, UnknownValue
from kernellab.explain.traffic.memory import LaunchMemory, StaleValueError, TracedMemory
from kernellab.explain.traffic.relevance import destination_of, values_of
from kernellab.ir.ptx import Address, Operand, PtxInstruction, Vector, members_of

_MATRIX_BYTES = 16
_MOST_VAIN_ATOMICS = 1000

AccessOperation = Literal["load", "store", "atomic"]
_OPERATIONS: Mapping[str, AccessOperation] = {
    **dict.fromkeys(("ld", "ldu", "ldmatrix", "cp"), "load"),
    **dict.fromkeys(("st", "stmatrix"), "store"),
}


@dataclass(frozen=True, slots=True)
class Execution:
    """An instruction in execution, its position in the kernel, and the ``active`` threads: None for all."""

    machine: Machine
    number: int
    instruction: PtxInstruction
    active: Array | None

    @property
    def operation(self) -> AccessOperation:
        """Whether it loads, stores, or does both."""
        return _OPERATIONS.get(self.instruction.name, "atomic")

    @property
    def is_needed(self) -> bool:
        """Whether later accesses depend on the result."""
        return self.number in self.machine.relevance.positions

    def must_not_be_stale(self, memory: TracedMemory) -> bool:
        """Whether a read of stored values ends the trace, since stores to a launch's memory are not followed."""
        return isinstance(memory, LaunchMemory) and not self.machine.relevance.follows_stores

    @property
    def lanes(self) -> Array:
        """The active threads, a row per program."""
        return self.lanes_in(self.machine.shape)

    def lanes_in(self, shape: tuple[int, ...]) -> Array:
        """Return the active threads in a shape."""
        return np.broadcast_to(np.True_ if self.active is None else self.active, shape)

    def common_shape(self, addresses: Array) -> tuple[int, ...]:
        """Return the least shape that addresses and active threads have together."""
        return np.broadcast_shapes(addresses.shape, (1, 1) if self.active is None else self.active.shape)

    def address(self, operand: Operand) -> Array:
        """Return the addresses of an operand, one per thread."""
        assert isinstance(operand, Address)
        (base,) = self.machine.values((operand.base,))
        return base.astype(np.uint64) + np.uint64(operand.offset_bytes % (1 << 64))

    def rows(self, addresses: Array) -> tuple[Array, Array | None, int]:
        """Return addresses and active threads, a row per program; or one row, and how many programs share it."""
        programs, threads = self.machine.shape
        rows = max(addresses.shape[0], 1 if self.active is None else self.active.shape[0])
        spread = np.broadcast_to(addresses, (rows, threads))
        lanes = None if self.active is None else np.broadcast_to(self.active, spread.shape)
        return spread, lanes, programs if rows == 1 else 1

    def shared_count(self, addresses: Array, size: int, *, stores: bool) -> Count:
        """Return the wavefronts of an access to shared memory."""
        spread, lanes, times = self.rows(addresses)
        count = Count()
        count.add(shared_count(spread, lanes, size, stores=stores), times)
        return count


def access_bytes(instruction: PtxInstruction) -> int:
    """Return the bytes that one thread moves by a load, store or atomic."""
    if instruction.name in {"ldmatrix", "stmatrix"}:
        return _MATRIX_BYTES
    vector = next((int(part[1:]) for part in instruction.parts if part in {"v2", "v4", "v8"}), 1)
    return vector * width_of(instruction.type) // 8


def execute(execution: Execution, memory: TracedMemory, addresses: Array) -> None:
    """Execute a load, store or atomic on values, as far as later accesses depend on it."""
    instruction, is_needed = execution.instruction, execution.is_needed
    spread = np.broadcast_to(addresses, execution.machine.shape)
    if instruction.name in {"ldmatrix", "stmatrix"}:
        if is_needed or instruction.name == "stmatrix":
            _move_matrices(execution, memory, spread)
    elif execution.operation == "load":
        if is_needed:
            _load(execution, memory, addresses)
    elif instruction.name == "st":
        size = width_of(instruction.type) // 8
        for place, member in enumerate(members_of(values_of(instruction)[0])):
            value = execution.machine.value(member)
            memory.store(spread + np.uint64(place * size), execution.lanes, value, size)
    else:
        old = _update(execution, memory, spread)
        destination = destination_of(instruction)
        if is_needed and destination is not None:
            execution.machine.put(destination, old, execution.lanes, f"b{max(32, width_of(instruction.type))}")


def _load(execution: Execution, memory: TracedMemory, addresses: Array) -> None:
    kind, active = execution.instruction.type, execution.active
    shape = execution.common_shape(addresses) if isinstance(memory, LaunchMemory) else execution.machine.shape
    spread, lanes = np.broadcast_to(addresses, shape), execution.lanes_in(shape)
    size = width_of(kind) // 8
    for place, member in enumerate(members_of(execution.instruction.operands[0])):
        value = _loaded_value(execution, memory, spread + np.uint64(place * size), lanes, size)
        if isinstance(memory, LaunchMemory) and size == 8 and not isinstance(value, UnknownValue):
            value = memory.translate_addresses(value)
        if kind[0] == "s" and size < 4 and not isinstance(value, UnknownValue):
            value = value.view(f"i{size}").astype(np.int32).view(np.uint32)
        execution.machine.put(member, value, active, f"b{max(32, 8 * size)}")


def _loaded_value(
    execution: Execution, memory: TracedMemory, addresses: Array, lanes: Array, size: int
) -> RegisterBits:
    """Return loaded bits; an unknown value for those that were stored before and are not known.

    Raises:
        StaleValueError: stores to global memory were not followed.
    """
    try:
        return memory.load(addresses, lanes, size)
    except StaleValueError as stale:
        if execution.must_not_be_stale(memory):
            raise
        return UnknownValue(str(stale))


def _update(execution: Execution, memory: TracedMemory, addresses: Array) -> RegisterBits:
    """Update values by an atomic; return the old ones."""
    machine, instruction, lanes = execution.machine, execution.instruction, execution.lanes
    size, operands = width_of(instruction.type) // 8, values_of(instruction)
    try:
        if any(isinstance(operand, Vector) for operand in operands):
            raise UnknownOperand("a vector of atomics")
        values = [np.broadcast_to(value, machine.shape) for value in machine.values(operands)]
        old = memory.update(addresses, lanes, instruction.parts, values, size)
    except (UnknownOperand, StaleValueError) as unknown:
        if isinstance(unknown, StaleValueError) and execution.must_not_be_stale(memory):
            raise
        value = UnknownValue(str(unknown))
        memory.store(addresses, lanes, value, access_bytes(instruction))
        return value
    if isinstance(memory, LaunchMemory) and memory.vain_atomics > _MOST_VAIN_ATOMICS:
        raise CannotTrace(f"programs wait in line {instruction.location.line} for what does not happen")
    return old


def _move_matrices(execution: Execution, memory: TracedMemory, addresses: Array) -> None:
    """Move 8 by 8 matrices of 16-bit elements. PTX ISA, "ldmatrix" and "stmatrix".

    Thread i of a warp names the row i % 8 of matrix i / 8; it holds two elements of row i / 4 of each, or, of a
    transposed one, of column i / 4.
    """
    machine, instruction = execution.machine, execution.instruction
    lane, everyone = np.arange(machine.shape[1]), np.ones(machine.shape, bool)
    warp, loads = lane // WARP * WARP, instruction.name == "ldmatrix"
    for matrix, member in enumerate(members_of(instruction.operands[0 if loads else 1])):
        row, column = lane % WARP // 4, 2 * (lane % 4)
        halves: list[RegisterBits] = []
        for half in range(2):
            at = (column + half, row) if "trans" in instruction.parts else (row, column + half)
            places = addresses[:, warp + 8 * matrix + at[0]] + (2 * at[1]).astype(np.uint64)
            if loads:
                halves.append(_loaded_value(execution, memory, places, everyone, 2))
                continue
            value = machine.value(member)
            if not isinstance(value, UnknownValue):
                value = value >> value.dtype.type(16 * half)
            memory.store(places, everyone, value, 2)
        if loads:
            low, high = halves
            if isinstance(low, UnknownValue) or isinstance(high, UnknownValue):
                bits: RegisterBits = low if isinstance(low, UnknownValue) else high
            else:
                bits = low.astype(np.uint32) | (high.astype(np.uint32) << np.uint32(16))
            machine.put(member, bits, execution.active, "b32")
