"""The contents of shared memory, where a kernel takes addresses or conditions from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from kernellab.explain.traffic.arithmetic import Array, width_of
from kernellab.explain.traffic.machine import Machine, UnknownValue
from kernellab.explain.traffic.memory import updated
from kernellab.explain.traffic.relevance import destination_of
from kernellab.ir.ptx import Address, PtxInstruction, Vector


@dataclass(slots=True)
class SharedMemory:
    """The shared memory of some programs, a row of bytes each; ``unknown`` marks those whose value is not known."""

    programs: int
    size_bytes: int
    data: Array = field(init=False)
    unknown: Array = field(init=False)
    reason: str = "shared memory that was never written"

    def __post_init__(self) -> None:
        self.size_bytes = -(-self.size_bytes // 16) * 16
        self.data = np.zeros(self.programs * self.size_bytes, np.uint8)
        self.unknown = np.zeros(self.data.shape, bool)

    def execute(
        self, machine: Machine, instruction: PtxInstruction, addresses: Array, active: Array | None, is_needed: bool
    ) -> None:
        """Do a load, store or atomic."""
        lanes = np.broadcast_to(np.True_ if active is None else active, machine.shape)
        places = self._places(machine, addresses)
        if instruction.name in {"ldmatrix", "stmatrix"}:
            self._matrix(machine, instruction, places, active, is_needed)
        elif instruction.name == "ld":
            if is_needed:
                self._load(machine, instruction, places, lanes, active)
        elif instruction.name == "st":
            self._store(machine, instruction, places, lanes)
        else:
            self._update(machine, instruction, places, lanes, is_needed)

    def forget(self, machine: Machine, addresses: Array, active: Array | None, size: int, reason: str) -> None:
        """Mark bytes as not known."""
        lanes = np.broadcast_to(np.True_ if active is None else active, machine.shape)
        places = self._places(machine, addresses)[lanes]
        self.reason = reason
        for byte in range(size):
            self.unknown[places + byte] = True

    def forget_all(self, reason: str) -> None:
        """Mark everything as not known."""
        self.reason = reason
        self.unknown[:] = True

    def _places(self, machine: Machine, addresses: Array) -> Array:
        inside = np.minimum(addresses.astype(np.int64), self.size_bytes - 16)
        return np.broadcast_to(inside, machine.shape) + np.arange(self.programs)[:, None] * self.size_bytes

    def _load(
        self, machine: Machine, instruction: PtxInstruction, places: Array, lanes: Array, active: Array | None
    ) -> None:
        destination = destination_of(instruction)
        members = destination.members if isinstance(destination, Vector) else (destination,)
        size = width_of(instruction.type) // 8
        for place, member in enumerate(members):
            at = places + place * size
            assert member is not None
            if self.unknown[at[lanes]].any():
                machine.put(member, UnknownValue(self.reason), active, "b32")
                continue
            bits = self._bits(np.where(lanes, at, 0), size)
            if instruction.type[0] == "s" and size < 4:
                bits = bits.view(f"i{size}").astype(np.int32).view(np.uint32)
            machine.put(member, bits, active, f"b{max(32, 8 * size)}")

    def _bits(self, places: Array, size: int) -> Array:
        bytes_of = np.stack([self.data[places + byte] for byte in range(size)], axis=-1)
        return np.ascontiguousarray(bytes_of).view(f"u{size}")[..., 0]

    def _store(self, machine: Machine, instruction: PtxInstruction, places: Array, lanes: Array) -> None:
        size = width_of(instruction.type) // 8
        operand = next(each for each in instruction.operands if not isinstance(each, Address))
        members = operand.members if isinstance(operand, Vector) else (operand,)
        for place, member in enumerate(members):
            value = machine.value(member)
            self._put(places + place * size, lanes, value, size)

    def _put(self, places: Array, lanes: Array, value: Array | UnknownValue, size: int) -> None:
        at = places[lanes]
        if isinstance(value, UnknownValue):
            self.reason = value.reason
        else:
            narrow = value.astype(f"u{size}") if value.dtype.itemsize != size else value
            bits = np.ascontiguousarray(np.broadcast_to(narrow, places.shape)[lanes]).view(np.uint8).reshape(-1, size)
        for byte in range(size):
            self.unknown[at + byte] = isinstance(value, UnknownValue)
            if not isinstance(value, UnknownValue):
                self.data[at + byte] = bits[:, byte]

    def _update(
        self, machine: Machine, instruction: PtxInstruction, places: Array, lanes: Array, is_needed: bool
    ) -> None:
        size = width_of(instruction.type) // 8
        operands = [each for each in instruction.operands if not isinstance(each, Address)]
        values = [machine.value(each) for each in (operands if instruction.name == "red" else operands[1:])]
        destination = destination_of(instruction)
        unknown = next((each for each in values if isinstance(each, UnknownValue)), None)
        if unknown is not None or self.unknown[places[lanes]].any():
            reason = self.reason if unknown is None else unknown.reason
            self._put(places, lanes, UnknownValue(reason), size)
            if is_needed and destination is not None:
                machine.put(destination, UnknownValue(reason), None, "b32")
            return
        given = [
            np.broadcast_to(each, machine.shape)[lanes].astype(f"u{size}")
            for each in values
            if not isinstance(each, UnknownValue)
        ]
        found = updated(self.data, places[lanes], instruction.parts, given, size)
        if is_needed and destination is not None:
            old = np.zeros(machine.shape, found.dtype)
            old[lanes] = found
            machine.put(destination, old, lanes, f"b{max(32, 8 * size)}")

    def _matrix(
        self, machine: Machine, instruction: PtxInstruction, places: Array, active: Array | None, is_needed: bool
    ) -> None:
        """Move 8 by 8 matrices of 16-bit elements. PTX ISA, "ldmatrix" and "stmatrix".

        Thread i of a warp names the row i % 8 of matrix i / 8; it holds two elements of row i / 4 of each, or, of a
        transposed one, of column i / 4.
        """
        loads = instruction.name == "ldmatrix"
        if loads and not is_needed:
            return
        operand = destination_of(instruction) if loads else instruction.operands[1]
        members = operand.members if isinstance(operand, Vector) else (operand,)
        lane = np.arange(machine.shape[1])
        warp = lane // 32 * 32
        for matrix, member in enumerate(members):
            halves = []
            for half in range(2):
                row, column = (lane % 32) // 4, 2 * (lane % 4) + half
                if "trans" in instruction.parts:
                    row, column = column, row
                halves.append(places[:, warp + 8 * matrix + row] + 2 * column)
            assert member is not None
            if not loads:
                self._scatter(machine, machine.value(member), halves)
            elif any(self.unknown[half].any() for half in halves):
                machine.put(member, UnknownValue(self.reason), active, "b32")
            else:
                low, high = (self._bits(half, 2).astype(np.uint32) for half in halves)
                machine.put(member, low | (high << np.uint32(16)), active, "b32")

    def _scatter(self, machine: Machine, value: Array | UnknownValue, halves: Sequence[Array]) -> None:
        everyone = np.ones(machine.shape, bool)
        for half, places in enumerate(halves):
            part = (
                value if isinstance(value, UnknownValue) else (value >> value.dtype.type(16 * half)).astype(np.uint16)
            )
            self._put(places, everyone, part, 2)
