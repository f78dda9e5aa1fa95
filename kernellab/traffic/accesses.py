"""Counts the accesses of the programs that a machine runs, and gives loads their values where these matter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from kernellab.ir.ptx import Address, Immediate, Operand, PtxInstruction, Vector
from kernellab.traffic.arithmetic import Array, width_of
from kernellab.traffic.counting import SECTOR_BYTES, WARP, Count, atomic_count, global_count, shared_count
from kernellab.traffic.coverage import MAPPED_PROGRAMS, Coverage
from kernellab.traffic.machine import Machine, NotFollowed, RegisterBits, UnknownValue
from kernellab.traffic.memory import TAG_SHIFT, LaunchMemory
from kernellab.traffic.relevance import Relevance, destination_of, is_shared
from kernellab.traffic.shared import SharedMemory
from kernellab.traffic.tensor_maps import REPLACED_WORDS, TENSOR_MAP_BYTES, Box, TensorMaps

_MATRIX_BYTES = 16
_WORD_BYTES = 4
_MOST_VAIN = 1000


@dataclass(frozen=True, slots=True)
class WarpExample:
    """One request as it was: the bytes from the start of the argument that each thread touches, None of idle ones.

    The argument starts ``begin_bytes`` into a sector.
    """

    offsets: tuple[int | None, ...]
    size_bytes: int
    sectors: int
    ideal_sectors: int
    begin_bytes: int = 0


@dataclass(slots=True)
class CountedAccess:
    """What one instruction did in one space of memory. ``tags`` are the arguments, by the top bits of addresses."""

    instruction: PtxInstruction
    operation: str
    space: str
    size_bytes: int
    count: Count = field(default_factory=Count)
    tags: set[int] = field(default_factory=set)
    example: WarpExample | None = None


@dataclass(slots=True)
class Accesses:
    """All accesses of a launch, by the position of their instruction and their space."""

    memory: LaunchMemory
    maps: TensorMaps
    relevance: Relevance
    shared_bytes: int
    covers: bool = True
    found: dict[tuple[int, str], CountedAccess] = field(default_factory=dict)
    coverage: dict[int, Coverage] = field(default_factory=dict)
    unknown: dict[tuple[int | None, str], None] = field(default_factory=dict)
    shared: SharedMemory | None = None

    def begin(self, programs: int) -> None:
        """Go on with other programs: their shared memory is empty, and none of them made a tensor map."""
        self.shared = SharedMemory(programs, self.shared_bytes) if self.relevance.follows_shared else None
        self.maps.begin()

    def access(self, machine: Machine, number: int, instruction: PtxInstruction, mask: Array | None) -> None:
        """Count one executed instruction, and do to registers and memory what matters of it."""
        if number in self.relevance.dead:
            return
        active = machine.guarded(instruction, mask)
        if isinstance(active, UnknownValue):
            self._give_up(machine, instruction, active.reason)
            return
        if active is not None and not active.any():
            return
        if instruction.name == "call":
            self.unknown[instruction.location.line, "what a function does that is called there is not counted"] = None
        elif instruction.name == "tensormap" or "tensor" in instruction.parts or "bulk" in instruction.parts:
            self._bulk(machine, number, instruction, active)
        elif instruction.name == "cp":
            self._async_copy(machine, number, instruction, active)
        elif is_shared(instruction):
            self._shared(machine, number, instruction, active)
        elif "local" in instruction.parts:
            if instruction.name != "st":
                self._give_up(machine, instruction, "the local memory of a thread")
        else:
            self._global(machine, number, instruction, active)

    def _give_up(self, machine: Machine, instruction: PtxInstruction, reason: str) -> None:
        self.unknown[instruction.location.line, f"it depends on {reason}"] = None
        destination = destination_of(instruction)
        if destination is not None:
            for member in destination.members if isinstance(destination, Vector) else (destination,):
                machine.put(member, UnknownValue(reason), None, "b32")

    def _address(self, machine: Machine, operand: Operand) -> Array | UnknownValue:
        assert isinstance(operand, Address)
        base = machine.value(operand.base)
        if isinstance(base, UnknownValue):
            return base
        return base.astype(np.uint64) + np.uint64(operand.offset_bytes % (1 << 64))

    # global memory

    def _global(self, machine: Machine, number: int, instruction: PtxInstruction, active: Array | None) -> None:
        operand = next(each for each in instruction.operands if isinstance(each, Address))
        addresses = self._address(machine, operand)
        if isinstance(addresses, UnknownValue):
            self._give_up(machine, instruction, addresses.reason)
            return
        size = access_bytes(instruction)
        operation = {"ld": "load", "ldu": "load", "st": "store"}.get(instruction.name, "atomic")
        self._count_global(machine, number, instruction, addresses, active, size, operation)
        if operation == "load":
            if number in self.relevance.loads:
                self._load(machine, instruction, addresses, active)
        elif self.relevance.follows_global:
            self._write(machine, number, instruction, addresses, active)

    def _count_global(
        self,
        machine: Machine,
        number: int,
        instruction: PtxInstruction,
        addresses: Array,
        active: Array | None,
        size: int,
        operation: str,
    ) -> None:
        found = self._entry(number, instruction, operation, "global", size)
        programs, threads = machine.shape
        rows = max(addresses.shape[0], 1 if active is None else active.shape[0])
        spread = np.broadcast_to(addresses, (rows, threads))
        lanes = None if active is None else np.broadcast_to(active, spread.shape)
        counted = atomic_count if operation == "atomic" else global_count
        found.count.add(counted(spread, lanes, size), programs if rows == 1 else 1)
        touched = spread if lanes is None else spread[lanes]
        tags = (touched >> np.uint64(TAG_SHIFT)).astype(np.int64)
        kinds = _kinds(tags)
        found.tags.update(kinds)
        if found.example is None:
            found.example = self._example(spread, lanes, size, kinds[0])
        if self.covers:
            self._cover(machine, addresses, active, tags, kinds, size, operation)

    def _cover(
        self,
        machine: Machine,
        addresses: Array,
        active: Array | None,
        tags: Array,
        kinds: Sequence[int],
        size: int,
        operation: str,
    ) -> None:
        shape = np.broadcast_shapes(addresses.shape, (1, 1) if active is None else active.shape)
        shape = (machine.shape[0], shape[1])
        spread = np.broadcast_to(addresses, shape)
        numbers = np.broadcast_to(machine.programs[:, None], shape)
        if active is not None:
            lanes = np.broadcast_to(active, shape)
            spread, numbers = spread[lanes], numbers[lanes]
        else:
            spread, numbers = spread.ravel(), numbers.ravel()
        for tag in kinds:
            number = self.memory.number_of(tag)
            if number is None:
                continue
            buffer = self.memory.buffers[number]
            places = (spread - np.uint64(self.memory.start(number) - buffer.offset_bytes)).astype(np.int64)
            inside = (places >= 0) & (places + size <= buffer.storage_bytes)
            self.memory.strays += int(places.size - inside.sum()) if len(kinds) == 1 else 0
            places, who = (places, numbers) if inside.all() else (places[inside], numbers[inside])
            covered = self.coverage.setdefault(number, Coverage.of(buffer))
            covered.touch(places, size, reads=operation != "store", writes=operation != "load")
            early = who < MAPPED_PROGRAMS
            if early.any():
                covered.draw(who[early], places[early], size, operation != "load")

    def _example(self, addresses: Array, lanes: Array | None, size: int, tag: int) -> WarpExample | None:
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
                shown = [o if alive is None or on else None for o, on in zip(offsets, _flags(alive), strict=False)]
                worst = WarpExample(tuple(shown), size, count.sectors, count.ideal_sectors, start % SECTOR_BYTES)
        return worst

    def _load(self, machine: Machine, instruction: PtxInstruction, addresses: Array, active: Array | None) -> None:
        destination = destination_of(instruction)
        members = destination.members if isinstance(destination, Vector) else (destination,)
        size = width_of(instruction.type) // 8
        lanes = np.broadcast_to(
            np.True_ if active is None else active,
            np.broadcast_shapes(addresses.shape, (1, 1) if active is None else active.shape),
        )
        spread = np.broadcast_to(addresses, lanes.shape)
        for place, member in enumerate(members):
            bits = self.memory.load(spread + np.uint64(place * size), lanes, size)
            if size == 8:
                bits = self.memory.adopted(bits)
            if member is not None:
                machine.put(member, _extended(bits, instruction.type), active, f"b{max(32, 8 * size)}")

    def _write(
        self, machine: Machine, number: int, instruction: PtxInstruction, addresses: Array, active: Array | None
    ) -> None:
        is_needed = number in self.relevance.positions
        lanes = np.broadcast_to(np.True_ if active is None else active, machine.shape)
        spread = np.broadcast_to(addresses, machine.shape)
        size = width_of(instruction.type) // 8
        operands = [each for each in instruction.operands if not isinstance(each, Address)]
        values = operands if instruction.name in {"st", "red"} else operands[1:]
        if not (self.relevance.follows_stores or is_needed):
            self.memory.store(spread, lanes, None, access_bytes(instruction))
        elif instruction.name == "st":
            members = values[0].members if isinstance(values[0], Vector) else values[:1]
            for place, member in enumerate(members):
                bits = machine.value(member)
                known = None if isinstance(bits, UnknownValue) else _low_part(bits, size)
                self.memory.store(spread + np.uint64(place * size), lanes, known, size)
        else:
            self._update(machine, instruction, spread, lanes, values, is_needed)

    def _update(
        self,
        machine: Machine,
        instruction: PtxInstruction,
        addresses: Array,
        lanes: Array,
        values: Sequence[Operand],
        is_needed: bool,
    ) -> None:
        size = width_of(instruction.type) // 8
        inputs = [machine.value(each) for each in values]
        reason = next((each.reason for each in inputs if isinstance(each, UnknownValue)), None)
        old: RegisterBits
        if reason is not None or any(isinstance(each, Vector) for each in values):
            self.memory.store(addresses, lanes, None, access_bytes(instruction))
            old = UnknownValue(reason or "a vector of atomics")
        else:
            bits = [np.broadcast_to(_low_part(each, size), machine.shape) for each in inputs]  # type: ignore[arg-type]
            old = self.memory.update(addresses, lanes, instruction.parts, bits, size)
            if self.memory.vain > _MOST_VAIN:
                raise NotFollowed(f"programs wait in line {instruction.location.line} for what does not happen")
        if is_needed:
            destination = destination_of(instruction)
            assert destination is not None
            machine.put(destination, old, lanes, f"b{max(32, 8 * size)}")

    # shared memory

    def _shared(self, machine: Machine, number: int, instruction: PtxInstruction, active: Array | None) -> None:
        operand = next(each for each in instruction.operands if isinstance(each, Address))
        addresses = self._address(machine, operand)
        if isinstance(addresses, UnknownValue):
            self._give_up(machine, instruction, addresses.reason)
            return
        size = access_bytes(instruction)
        operation = {"ld": "load", "ldmatrix": "load", "st": "store", "stmatrix": "store"}.get(
            instruction.name, "atomic"
        )
        counted = active
        if instruction.name in {"ldmatrix", "stmatrix"}:
            matrices = int(next(part for part in instruction.parts if part in {"x1", "x2", "x4"})[1:])
            leading = np.arange(machine.shape[1])[None, :] % WARP < 8 * matrices
            counted = leading if active is None else leading & active
        self._count_shared(machine, number, instruction, addresses, counted, size, operation)
        if self.shared is not None:
            self.shared.execute(machine, instruction, addresses, active, number in self.relevance.positions)

    def _count_shared(
        self,
        machine: Machine,
        number: int,
        instruction: PtxInstruction,
        addresses: Array,
        active: Array | None,
        size: int,
        operation: str,
    ) -> None:
        count = self._shared_count(machine, addresses, active, size, operation)
        self._entry(number, instruction, operation, "shared", size).count.add(count)

    @staticmethod
    def _shared_count(machine: Machine, addresses: Array, active: Array | None, size: int, operation: str) -> Count:
        programs, threads = machine.shape
        rows = max(addresses.shape[0], 1 if active is None else active.shape[0])
        spread = np.broadcast_to(addresses, (rows, threads))
        lanes = None if active is None else np.broadcast_to(active, spread.shape)
        found = Count()
        found.add(shared_count(spread, lanes, size, stores=operation == "store"), programs if rows == 1 else 1)
        return found

    def _async_copy(self, machine: Machine, number: int, instruction: PtxInstruction, active: Array | None) -> None:
        """Count a copy from global to shared memory; threads whose source is empty only clear what they write.

        The copy is one access of global memory, whose wavefronts are those of writing to shared memory.
        """
        target, source = (self._address(machine, each) for each in instruction.operands[:2])
        size_operand = instruction.operands[2]
        assert isinstance(size_operand, Immediate)
        size = size_operand.bits
        left = machine.value(instruction.operands[3]) if len(instruction.operands) > 3 else None
        for each in (target, source, left):
            if isinstance(each, UnknownValue):
                self._give_up(machine, instruction, each.reason)
                return
        assert not isinstance(target, UnknownValue)
        assert not isinstance(source, UnknownValue)
        loading = active
        if left is not None and not isinstance(left, UnknownValue):
            full = left != 0
            loading = full if active is None else full & active
        if loading is None or loading.any():
            self._count_global(machine, number, instruction, source, loading, size, "load")
        written = self._shared_count(machine, target, active, size, "store")
        count = Count(wavefronts=written.wavefronts, ideal_wavefronts=written.ideal_wavefronts)
        self._entry(number, instruction, "load", "global", size).count.add(count)
        if self.shared is not None:
            self.shared.forget(machine, target, active, size, "what was copied to shared memory asynchronously")

    # tensor maps

    def _bulk(self, machine: Machine, number: int, instruction: PtxInstruction, active: Array | None) -> None:
        if instruction.name == "tensormap":
            self.maps.replace(machine, instruction)
            self._count_replaced(machine, number, instruction, active)
            return
        boxes = self.maps.boxes(machine, instruction, active)
        if isinstance(boxes, UnknownValue):
            self._give_up(machine, instruction, boxes.reason)
            return
        into_shared = isinstance(instruction.operands[0], Address) and not instruction.operands[0].coordinates
        operation = "load" if into_shared else "atomic" if "reduce" in instruction.parts else "store"
        found = self._entry(number, instruction, operation, "global", boxes.row_bytes)
        found.count.add(boxes.count)
        found.tags.update(boxes.tags)
        if self.covers:
            self._cover_boxes(machine, boxes, operation)
        if operation != "load" and self.relevance.follows_global:
            self.memory.store(boxes.units, np.ones(boxes.units.shape, bool), None, boxes.unit_bytes)
        if operation == "load" and self.shared is not None:
            self.shared.forget_all("what a tensor map brought to shared memory")

    def _count_replaced(self, machine: Machine, number: int, instruction: PtxInstruction, active: Array | None) -> None:
        """Count what setting a field does to shared memory: most are part of a word, which is loaded first."""
        lanes = np.broadcast_to(np.True_ if active is None else active, machine.shape)
        warps = int(lanes.reshape(len(lanes), -1, WARP).any(axis=2).sum()) if lanes.shape[1] >= WARP else len(lanes)
        loads, stores = REPLACED_WORDS.get(instruction.parts[3], (1, 1))
        if instruction.parts[1] == "cp_fenceproxy":
            loads, stores = 1, 0
            copied = Count(warps, warps * TENSOR_MAP_BYTES // SECTOR_BYTES, warps * TENSOR_MAP_BYTES // SECTOR_BYTES)
            copied.bytes_used = warps * TENSOR_MAP_BYTES
            self._entry(number, instruction, "atomic", "global", _WORD_BYTES).count.add(copied)
        for operation, words in (("load", loads), ("store", stores)):
            count = Count(words * warps, wavefronts=words * warps, ideal_wavefronts=words * warps)
            self._entry(number, instruction, operation, "shared", _WORD_BYTES, key=operation).count.add(count)

    def _cover_boxes(self, machine: Machine, boxes: Box, operation: str) -> None:
        for tag in boxes.tags:
            number = self.memory.number_of(tag)
            if number is None:
                continue
            buffer = self.memory.buffers[number]
            places = (boxes.units - np.uint64(self.memory.start(number) - buffer.offset_bytes)).astype(np.int64)
            inside = (places >= 0) & (places + boxes.unit_bytes <= buffer.storage_bytes)
            covered = self.coverage.setdefault(number, Coverage.of(buffer))
            covered.touch(places[inside], boxes.unit_bytes, reads=operation != "store", writes=operation != "load")
            who = machine.programs[boxes.programs]
            early = inside & (who < MAPPED_PROGRAMS)
            covered.draw(who[early], places[early], boxes.unit_bytes, operation != "load")

    def _entry(
        self, number: int, instruction: PtxInstruction, operation: str, space: str, size: int, key: str = ""
    ) -> CountedAccess:
        place = (number, space + key)
        if place not in self.found:
            self.found[place] = CountedAccess(instruction, operation, space, size)
        return self.found[place]


def _kinds(tags: Array) -> list[int]:
    lowest, highest = int(tags.min()), int(tags.max())
    return [lowest] if lowest == highest else np.unique(tags).tolist()


def access_bytes(instruction: PtxInstruction) -> int:
    """Return how many bytes one thread moves by a load, store or atomic."""
    if instruction.name in {"ldmatrix", "stmatrix"}:
        return _MATRIX_BYTES
    vector = next((int(part[1:]) for part in instruction.parts if part in {"v2", "v4", "v8"}), 1)
    return vector * width_of(instruction.type) // 8


def _low_part(bits: Array, size: int) -> Array:
    return bits.astype(f"u{size}") if bits.dtype.itemsize != size else bits


def _extended(bits: Array, kind: str) -> Array:
    if kind[0] == "s" and bits.dtype.itemsize < 4:
        return bits.view(f"i{bits.dtype.itemsize}").astype(np.int32).view(np.uint32)
    return bits


def _flags(alive: Array | None) -> Sequence[bool]:
    return [True] * WARP if alive is None else alive[0].tolist()
