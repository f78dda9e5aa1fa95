"""Counts the memory accesses of executed programs, and computes loaded values where addresses depend on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from kernellab.explain.traffic.arithmetic import Array, width_of
from kernellab.explain.traffic.counting import (
    MAPPED_PROGRAMS,
    SECTOR_BYTES,
    WARP,
    Count,
    Coverage,
    atomic_count,
    global_count,
    shared_count,
)
from kernellab.explain.traffic.machine import CannotTrace, Machine, RegisterBits, UnknownValue
from kernellab.explain.traffic.memory import TAG_SHIFT, Execution, LaunchMemory, SharedMemory, StaleRead
from kernellab.explain.traffic.parameters import REPLACED_WORDS, TENSOR_MAP_BYTES, TensorMaps
from kernellab.explain.traffic.relevance import Relevance, destination_of, is_shared, values_of
from kernellab.ir.ptx import Address, Immediate, PtxInstruction, Vector, members_of

_MATRIX_BYTES = 16
_WORD_BYTES = 4
_MOST_VAIN_ATOMICS = 1000
_LEFT_OUT = UnknownValue("what the kernel stored")

AccessOperation = Literal["load", "store", "atomic"]
MemorySpace = Literal["global", "shared"]

_GLOBAL: Mapping[str, AccessOperation] = {"ld": "load", "ldu": "load", "st": "store"}
_SHARED: Mapping[str, AccessOperation] = {"ld": "load", "ldmatrix": "load", "st": "store", "stmatrix": "store"}


@dataclass(frozen=True, slots=True)
class WarpExample:
    """One request of a warp: the byte offset of each thread from the start of the argument, None of inactive ones.

    The argument starts ``begin_bytes`` after the start of a sector.
    """

    offsets: tuple[int | None, ...]
    size_bytes: int
    sectors: int
    ideal_sectors: int
    begin_bytes: int = 0


@dataclass(frozen=True, slots=True)
class AddressedMemory:
    """The memory that an instruction touches: ``size_bytes`` at the address of each thread that is ``active``."""

    addresses: Array
    active: Array | None
    size_bytes: int
    operation: AccessOperation

    def rows(self, machine: Machine) -> tuple[Array, Array | None, int]:
        """Return addresses and active threads, a row per program; or one row, and how many programs share it."""
        programs, threads = machine.shape
        rows = max(self.addresses.shape[0], 1 if self.active is None else self.active.shape[0])
        spread = np.broadcast_to(self.addresses, (rows, threads))
        lanes = None if self.active is None else np.broadcast_to(self.active, spread.shape)
        return spread, lanes, programs if rows == 1 else 1

    def shared_count(self, machine: Machine) -> Count:
        """Return the wavefronts of an access to shared memory."""
        spread, lanes, times = self.rows(machine)
        count = Count()
        count.add(shared_count(spread, lanes, self.size_bytes, stores=self.operation == "store"), times)
        return count


@dataclass(slots=True)
class CountedAccess:
    """The accesses of one instruction in one memory space. ``tags`` are the arguments, by the top bits of addresses."""

    instruction: PtxInstruction
    operation: AccessOperation
    space: MemorySpace
    size_bytes: int
    count: Count = field(default_factory=Count)
    tags: set[int] = field(default_factory=set)
    example: WarpExample | None = None


@dataclass(slots=True)
class Accesses:
    """All accesses of a launch, by the position of their instruction and their space.

    ``combined_atomics`` are the positions of atomics that a warp combines into one.
    """

    memory: LaunchMemory
    maps: TensorMaps
    relevance: Relevance
    shared_bytes: int
    tracks_coverage: bool = True
    combined_atomics: frozenset[int] = frozenset()
    by_instruction: dict[tuple[int, str], CountedAccess] = field(default_factory=dict)
    coverage: dict[int, Coverage] = field(default_factory=dict)
    unknown: dict[tuple[int | None, str], None] = field(default_factory=dict)
    shared: SharedMemory | None = None

    def start_batch(self, programs: int) -> None:
        """Start the next programs, with empty shared memory and no tensor maps of their own."""
        self.shared = SharedMemory(programs, self.shared_bytes) if self.relevance.follows_shared else None
        self.maps.drop_built()

    def access(self, machine: Machine, number: int, instruction: PtxInstruction, mask: Array | None) -> None:
        """Count one executed instruction, and update the registers and memory that later addresses depend on."""
        if number in self.relevance.dead:
            return
        active = machine.active_threads(instruction, mask)
        execution = Execution(machine, number, instruction, None if isinstance(active, UnknownValue) else active)
        if isinstance(active, UnknownValue):
            self._mark_unknown(execution, active.reason)
            return
        if active is not None and not active.any():
            return
        if instruction.name == "call":
            self.unknown[instruction.location.line, "what a function does that is called there is not counted"] = None
        elif instruction.name == "tensormap" or "tensor" in instruction.parts or "bulk" in instruction.parts:
            self._access_tensor_map(execution)
        elif instruction.name == "cp":
            self._count_async_copy(execution)
        elif is_shared(instruction):
            self._access_shared(execution)
        elif "local" in instruction.parts:
            if instruction.name != "st":
                self._mark_unknown(execution, "the local memory of a thread")
        else:
            self._access_global(execution)

    def _mark_unknown(self, execution: Execution, reason: str) -> None:
        self.unknown[execution.instruction.location.line, f"it depends on {reason}"] = None
        destination = destination_of(execution.instruction)
        if destination is not None:
            for member in members_of(destination):
                execution.machine.put(member, UnknownValue(reason), None, "b32")

    def _touched_memory(
        self, execution: Execution, operations: Mapping[str, AccessOperation]
    ) -> AddressedMemory | None:
        """Return the memory of a load, store or atomic; None where its address is unknown."""
        instruction = execution.instruction
        addresses = execution.address(next(each for each in instruction.operands if isinstance(each, Address)))
        if isinstance(addresses, UnknownValue):
            self._mark_unknown(execution, addresses.reason)
            return None
        operation = operations.get(instruction.name, "atomic")
        return AddressedMemory(addresses, execution.active, access_bytes(instruction), operation)

    # global memory

    def _access_global(self, execution: Execution) -> None:
        touched = self._touched_memory(execution, _GLOBAL)
        if touched is None:
            return
        self._count_global(execution, touched)
        if touched.operation == "load":
            if execution.number in self.relevance.loads:
                self._load_global(execution, touched.addresses)
        elif self.relevance.follows_global:
            self._write_global(execution, touched.addresses)

    def _count_global(self, execution: Execution, touched: AddressedMemory) -> None:
        entry = self._entry(execution, touched.operation, "global", touched.size_bytes)
        spread, lanes, times = touched.rows(execution.machine)
        takes_turns = touched.operation == "atomic" and execution.number not in self.combined_atomics
        counted = atomic_count if takes_turns else global_count
        entry.count.add(counted(spread, lanes, touched.size_bytes), times)
        tags = ((spread if lanes is None else spread[lanes]) >> np.uint64(TAG_SHIFT)).astype(np.int64)
        argument_tags = _distinct_tags(tags)
        entry.tags.update(argument_tags)
        if entry.example is None:
            entry.example = self._example_request(spread, lanes, touched.size_bytes, argument_tags[0])
        if self.tracks_coverage:
            self._mark_coverage(execution.machine, touched, argument_tags)

    def _mark_coverage(self, machine: Machine, touched: AddressedMemory, tags: Sequence[int]) -> None:
        addresses, active, size = touched.addresses, touched.active, touched.size_bytes
        shape = np.broadcast_shapes(addresses.shape, (1, 1) if active is None else active.shape)
        shape = (machine.shape[0], shape[1])
        spread = np.broadcast_to(addresses, shape)
        numbers = np.broadcast_to(machine.programs[:, None], shape)
        if active is not None:
            lanes = np.broadcast_to(active, shape)
            spread, numbers = spread[lanes], numbers[lanes]
        else:
            spread, numbers = spread.ravel(), numbers.ravel()
        for tag in tags:
            strays = self._mark_places(tag, spread, numbers, size, touched.operation)
            self.memory.strays += strays if len(tags) == 1 else 0

    def _mark_places(self, tag: int, addresses: Array, programs: Array, size: int, operation: AccessOperation) -> int:
        """Mark the touched elements of an argument, in its order; return the number of addresses outside it."""
        number = self.memory.number_of(tag)
        if number is None:
            return 0
        buffer = self.memory.buffers[number]
        places = (addresses - np.uint64(self.memory.start(number) - buffer.offset_bytes)).astype(np.int64)
        inside = (places >= 0) & (places + size <= buffer.storage_bytes)
        strays = int(places.size - inside.sum())
        if strays:
            places, programs = places[inside], programs[inside]
        covered = self.coverage.setdefault(number, Coverage.of(buffer))
        covered.record(places, size, reads=operation != "store", writes=operation != "load")
        early = programs < MAPPED_PROGRAMS
        if early.any():
            covered.mark_map(programs[early], places[early], size, operation != "load")
        return strays

    def _example_request(self, addresses: Array, lanes: Array | None, size: int, tag: int) -> WarpExample | None:
        """Return the request of the first program that moves the most sectors."""
        number = self.memory.number_of(tag)
        if number is None:
            return None
        worst: WarpExample | None = None
        for first in range(0, addresses.shape[1], WARP):
            warp = addresses[:1, first : first + WARP]
            alive = None if lanes is None else lanes[:1, first : first + WARP]
            count = global_count(warp, alive, size)
            if count.requests and (worst is None or count.sectors > worst.sectors):
                start = self.memory.start(number)
                offsets = (int(each) - start for each in warp[0])
                active = [True] * WARP if alive is None else alive[0].tolist()
                shown = [offset if is_on else None for offset, is_on in zip(offsets, active, strict=False)]
                worst = WarpExample(tuple(shown), size, count.sectors, count.ideal_sectors, start % SECTOR_BYTES)
        return worst

    def _load_global(self, execution: Execution, addresses: Array) -> None:
        active, kind = execution.active, execution.instruction.type
        size = width_of(kind) // 8
        lanes = np.broadcast_to(
            np.True_ if active is None else active,
            np.broadcast_shapes(addresses.shape, (1, 1) if active is None else active.shape),
        )
        spread = np.broadcast_to(addresses, lanes.shape)
        for place, member in enumerate(members_of(execution.instruction.operands[0])):
            value: RegisterBits
            try:
                bits = self.memory.load(spread + np.uint64(place * size), lanes, size)
                value = _sign_extend(self.memory.translate_addresses(bits) if size == 8 else bits, kind)
            except StaleRead as stale:
                value = self._unknown_stored_value(stale)
            execution.machine.put(member, value, active, f"b{max(32, 8 * size)}")

    def _unknown_stored_value(self, stale: StaleRead) -> UnknownValue:
        """Return an unknown value for a read of stored memory; without followed stores, raise.

        Raises:
            StaleRead: stores were not followed.
        """
        if not self.relevance.follows_stores:
            raise stale
        return UnknownValue(stale.reason)

    def _write_global(self, execution: Execution, addresses: Array) -> None:
        instruction, lanes = execution.instruction, execution.lanes
        spread = np.broadcast_to(addresses, lanes.shape)
        size = width_of(instruction.type) // 8
        if not (self.relevance.follows_stores or execution.number in self.relevance.positions):
            self.memory.store(spread, lanes, _LEFT_OUT, access_bytes(instruction))
        elif instruction.name == "st":
            for place, member in enumerate(members_of(values_of(instruction)[0])):
                bits = execution.machine.value(member)
                known = bits if isinstance(bits, UnknownValue) else _low_part(bits, size)
                self.memory.store(spread + np.uint64(place * size), lanes, known, size)
        else:
            self._update_global(execution, spread)

    def _update_global(self, execution: Execution, addresses: Array) -> None:
        machine, instruction, lanes = execution.machine, execution.instruction, execution.lanes
        values = values_of(instruction)
        size = width_of(instruction.type) // 8
        inputs = [machine.value(each) for each in values]
        reason = next((each.reason for each in inputs if isinstance(each, UnknownValue)), None)
        old: RegisterBits
        if reason is None and any(isinstance(each, Vector) for each in values):
            reason = "a vector of atomics"
        if reason is None:
            bits = [np.broadcast_to(_low_part(each, size), machine.shape) for each in inputs]  # type: ignore[arg-type]
            try:
                old = self.memory.update(addresses, lanes, instruction.parts, bits, size)
            except StaleRead as stale:
                reason = self._unknown_stored_value(stale).reason
            if self.memory.vain_atomics > _MOST_VAIN_ATOMICS:
                raise CannotTrace(f"programs wait in line {instruction.location.line} for what does not happen")
        if reason is not None:
            old = UnknownValue(reason)
            self.memory.store(addresses, lanes, old, access_bytes(instruction))
        if execution.number in self.relevance.positions:
            destination = destination_of(instruction)
            assert destination is not None
            machine.put(destination, old, lanes, f"b{max(32, 8 * size)}")

    # shared memory

    def _access_shared(self, execution: Execution) -> None:
        touched, instruction = self._touched_memory(execution, _SHARED), execution.instruction
        if touched is None:
            return
        if instruction.name in {"ldmatrix", "stmatrix"}:
            matrices = int(next(part for part in instruction.parts if part in {"x1", "x2", "x4"})[1:])
            leading = np.arange(execution.machine.shape[1])[None, :] % WARP < 8 * matrices
            touched = replace(touched, active=leading if execution.active is None else leading & execution.active)
        count = touched.shared_count(execution.machine)
        self._entry(execution, touched.operation, "shared", touched.size_bytes).count.add(count)
        if self.shared is not None:
            is_needed = execution.number in self.relevance.positions
            self.shared.execute(execution, touched.addresses, is_needed)

    def _count_async_copy(self, execution: Execution) -> None:
        """Count a copy from global to shared memory; threads with an empty source only write zeros.

        It counts as one access to global memory, with the wavefronts of its writes to shared memory.
        """
        machine, operands, active = execution.machine, execution.instruction.operands, execution.active
        target, source = (execution.address(each) for each in operands[:2])
        assert isinstance(operands[2], Immediate)
        size = operands[2].bits
        left = machine.value(operands[3]) if len(operands) > 3 else None
        for value in (target, source, left):
            if isinstance(value, UnknownValue):
                self._mark_unknown(execution, value.reason)
                return
        assert not isinstance(target, UnknownValue)
        assert not isinstance(source, UnknownValue)
        loading = active
        if left is not None and not isinstance(left, UnknownValue):
            full = left != 0
            loading = full if active is None else full & active
        if loading is None or loading.any():
            self._count_global(execution, AddressedMemory(source, loading, size, "load"))
        written = AddressedMemory(target, active, size, "store").shared_count(machine)
        count = Count(wavefronts=written.wavefronts, ideal_wavefronts=written.ideal_wavefronts)
        self._entry(execution, "load", "global", size).count.add(count)
        if self.shared is not None:
            self.shared.mark_unknown(execution, target, size, "what was copied to shared memory asynchronously")

    # tensor maps

    def _access_tensor_map(self, execution: Execution) -> None:
        machine, instruction, active = execution.machine, execution.instruction, execution.active
        if instruction.name == "tensormap":
            self.maps.execute(machine, instruction)
            self._count_map_update(execution)
            return
        boxes = self.maps.boxes(machine, instruction, active)
        if isinstance(boxes, UnknownValue):
            self._mark_unknown(execution, boxes.reason)
            return
        into_shared = isinstance(instruction.operands[0], Address) and not instruction.operands[0].coordinates
        operation: AccessOperation = "load" if into_shared else "atomic" if "reduce" in instruction.parts else "store"
        entry = self._entry(execution, operation, "global", boxes.row_bytes)
        entry.count.add(boxes.count)
        entry.tags.update(boxes.tags)
        if self.tracks_coverage:
            for tag in boxes.tags:
                self._mark_places(tag, boxes.units, machine.programs[boxes.programs], boxes.unit_bytes, operation)
        if operation != "load" and self.relevance.follows_global:
            self.memory.store(boxes.units, np.ones(boxes.units.shape, bool), _LEFT_OUT, boxes.unit_bytes)
        if operation == "load" and self.shared is not None:
            self.shared.mark_all_unknown("what a tensor map brought to shared memory")

    def _count_map_update(self, execution: Execution) -> None:
        """Count the shared memory accesses of ``tensormap.replace``; most fields are part of a word."""
        lanes, parts = execution.lanes, execution.instruction.parts
        warps = int(lanes.reshape(len(lanes), -1, WARP).any(axis=2).sum()) if lanes.shape[1] >= WARP else len(lanes)
        loads, stores = REPLACED_WORDS.get(parts[3], (1, 1))
        if parts[1] == "cp_fenceproxy":
            loads, stores = 1, 0
            copied = Count(warps, warps * TENSOR_MAP_BYTES // SECTOR_BYTES, warps * TENSOR_MAP_BYTES // SECTOR_BYTES)
            copied.bytes_used = warps * TENSOR_MAP_BYTES
            self._entry(execution, "atomic", "global", _WORD_BYTES).count.add(copied)
        word_counts: tuple[tuple[AccessOperation, int], ...] = (("load", loads), ("store", stores))
        for operation, words in word_counts:
            count = Count(words * warps, wavefronts=words * warps, ideal_wavefronts=words * warps)
            self._entry(execution, operation, "shared", _WORD_BYTES, key=operation).count.add(count)

    def _entry(
        self, execution: Execution, operation: AccessOperation, space: MemorySpace, size: int, key: str = ""
    ) -> CountedAccess:
        place = (execution.number, space + key)
        if place not in self.by_instruction:
            self.by_instruction[place] = CountedAccess(execution.instruction, operation, space, size)
        return self.by_instruction[place]


def _distinct_tags(tags: Array) -> list[int]:
    lowest, highest = int(tags.min()), int(tags.max())
    return [lowest] if lowest == highest else np.unique(tags).tolist()


def access_bytes(instruction: PtxInstruction) -> int:
    """Return the bytes that one thread moves by a load, store or atomic."""
    if instruction.name in {"ldmatrix", "stmatrix"}:
        return _MATRIX_BYTES
    vector = next((int(part[1:]) for part in instruction.parts if part in {"v2", "v4", "v8"}), 1)
    return vector * width_of(instruction.type) // 8


def _low_part(bits: Array, size: int) -> Array:
    return bits.astype(f"u{size}") if bits.dtype.itemsize != size else bits


def _sign_extend(bits: Array, kind: str) -> Array:
    if kind[0] == "s" and bits.dtype.itemsize < 4:
        return bits.view(f"i{bits.dtype.itemsize}").astype(np.int32).view(np.uint32)
    return bits
