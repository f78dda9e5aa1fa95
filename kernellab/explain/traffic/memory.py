"""Memory as a kernel sees it while its traffic is counted: arguments, and the shared memory of programs.

Arguments have artificial addresses. The top 16 bits of an address are 1 + the number of an argument, the rest its
position around the middle of 256 TiB. So an address names its argument, wherever it points. Its low 16 bits are those
of the true address, which keeps the alignment. Addresses stored in arguments, as in tables of pointers, are true ones.
The contents of shared memory matter only where a kernel loads addresses or conditions from it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kernellab.explain.traffic.arithmetic import Array, bits_of, numbers_of, width_of
from kernellab.explain.traffic.machine import INTEGER_UFUNCS, Machine, RegisterBits, UnknownValue
from kernellab.explain.traffic.relevance import destination_of, values_of
from kernellab.ir.ptx import Address, Operand, PtxInstruction, members_of

TAG_SHIFT = 48
_MIDDLE = 1 << (TAG_SHIFT - 1)
_LOW_BITS = 0xFFFF


@dataclass(frozen=True, slots=True)
class LaunchBuffer:
    """A tensor of a launch: its view, and the storage that the view lies in.

    ``address`` is that of the first element, ``offset_bytes`` its offset in the storage of ``storage_bytes``; ``key``
    identifies the storage. ``read`` returns the bytes of the storage; it is called on demand.
    """

    name: str
    address: int
    offset_bytes: int
    storage_bytes: int
    itemsize: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    key: Any
    read: Callable[[], Array]

    @property
    def span_bytes(self) -> int:
        """The distance from the first byte of the view to the end of its last."""
        if 0 in self.shape:
            return 0
        reach = sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))
        return (reach + 1) * self.itemsize


@dataclass(slots=True)
class Contents:
    """The bytes of one storage; ``stale`` marks those that the kernel wrote with unknown values."""

    data: Array
    stale: Array | None = None
    is_copy: bool = False
    reason: str = ""

    def require_known(self, places: Array) -> None:
        """Raise StaleRead if a byte at one of the places is unknown."""
        if self.stale is not None and self.stale[places].any():
            raise StaleRead(self.reason)


class StaleRead(Exception):
    """A read of a stored value that is unknown; ``reason`` says why."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(slots=True)
class LaunchMemory:
    """The memory of one launch.

    ``strays`` counts accesses outside of it, ``vain_atomics`` the latest consecutive atomics without any change.
    """

    buffers: Sequence[LaunchBuffer]
    strays: int = 0
    vain_atomics: int = 0
    _contents: dict[Any, Contents] = field(default_factory=dict)

    def reset(self) -> None:
        """Restore the initial contents of the arguments."""
        self._contents.clear()
        self.strays = 0

    def start(self, number: int) -> int:
        """Return the address of the first element of an argument, by its number."""
        return ((number + 1) << TAG_SHIFT) + _MIDDLE + (self.buffers[number].address & _LOW_BITS)

    def number_of(self, tag: int) -> int | None:
        """Return the number of the argument that the top bits of an address name; None outside all."""
        return tag - 1 if 0 < tag <= len(self.buffers) else None

    def translate_addresses(self, addresses: Array) -> Array:
        """Translate true addresses of arguments into this memory's numbering."""
        if (addresses >> np.uint64(TAG_SHIFT)).all():
            return addresses
        result = addresses.copy()
        for number, buffer in enumerate(self.buffers):
            if not buffer.address:
                continue  # scratch memory, whose true address is unknown
            first = np.uint64(max(0, buffer.address - buffer.offset_bytes))
            inside = (addresses >= first) & (addresses < first + np.uint64(buffer.storage_bytes))
            moved = addresses + np.uint64((self.start(number) - buffer.address) % (1 << 64))
            result = np.where(inside & (result == addresses), moved, result)
        return result

    def load(self, addresses: Array, active: Array, size: int) -> Array:
        """Return the unsigned integers of ``size`` bytes at the active addresses, 0 elsewhere and outside all memory.

        Raises:
            StaleRead: one of them was stored before, and its value is not known.
        """
        result = np.zeros(addresses.shape, f"u{size}")
        for number, lanes, places in self._places_by_argument(addresses, active, size):
            contents = self._contents_of(number)
            contents.require_known(places)
            result[lanes] = _words_at(contents.data, places, size)
        return result

    def store(self, addresses: Array, active: Array, values: RegisterBits, size: int) -> None:
        """Store unsigned integers of ``size`` bytes."""
        self.vain_atomics = 0
        for number, lanes, places in self._places_by_argument(addresses, active, size):
            contents = self._contents_of(number)
            if isinstance(values, UnknownValue):
                contents.reason = values.reason
            if contents.stale is None and isinstance(values, UnknownValue):
                contents.stale = np.zeros(contents.data.shape, bool)
            if contents.stale is not None:
                for byte in range(size):
                    contents.stale[places + byte] = isinstance(values, UnknownValue)
            if isinstance(values, UnknownValue):
                continue
            self._copy_on_write(contents)
            bits = np.ascontiguousarray(np.broadcast_to(values, addresses.shape)[lanes]).view(np.uint8)
            for byte in range(size):
                contents.data[places + byte] = bits.reshape(-1, size)[:, byte]

    def update(
        self, addresses: Array, active: Array, parts: Sequence[str], values: Sequence[Array], size: int
    ) -> Array:
        """Update integers by an atomic, one thread after the other; return the old values.

        Raises:
            StaleRead: one of them was stored before, and its value is not known.
        """
        old = np.zeros(addresses.shape, f"u{size}")
        for number, lanes, places in self._places_by_argument(addresses, active, size):
            contents = self._contents_of(number)
            contents.require_known(places)
            self._copy_on_write(contents)
            old[lanes] = update_words(contents.data, places, parts, [value[lanes] for value in values], size)
            changed = not np.array_equal(old[lanes], _words_at(contents.data, places, size))
            self.vain_atomics = 0 if changed else self.vain_atomics + 1
        return old

    def _places_by_argument(self, addresses: Array, active: Array, size: int) -> list[tuple[int, Array, Array]]:
        """Return for each touched argument: its number, the lanes, and their places in its storage."""
        tags = (addresses >> np.uint64(TAG_SHIFT)).astype(np.int64)
        touched = []
        for tag in np.unique(tags[active]).tolist() if active.any() else ():
            number = self.number_of(tag)
            lanes = active & (tags == tag)
            if number is None:
                self.strays += int(lanes.sum())
                continue
            buffer = self.buffers[number]
            begin = np.uint64(self.start(number) - buffer.offset_bytes)
            places = (addresses - begin).astype(np.int64)
            inside = lanes & (places >= 0) & (places + size <= buffer.storage_bytes)
            self.strays += int(lanes.sum() - inside.sum())
            touched.append((number, inside, places[inside]))
        return touched

    def _contents_of(self, number: int) -> Contents:
        buffer = self.buffers[number]
        if buffer.key not in self._contents:
            self._contents[buffer.key] = Contents(buffer.read())
        return self._contents[buffer.key]

    @staticmethod
    def _copy_on_write(contents: Contents) -> None:
        if not contents.is_copy:
            contents.data = contents.data.copy()
            contents.is_copy = True


def _words_at(data: Array, places: Array, size: int) -> Array:
    if not (places & (size - 1)).any() and data.size % size == 0:
        aligned: Array = data.view(f"u{size}")[places >> (size.bit_length() - 1)]
        return aligned
    bytes_of = np.stack([data[places + byte] for byte in range(size)], axis=-1)
    words: Array = np.ascontiguousarray(bytes_of).view(f"u{size}")[..., 0]
    return words


_UPDATES: dict[str, Callable[[Array, Array], Array]] = {**INTEGER_UFUNCS, "exch": lambda old, new: new}


def update_words(data: Array, places: Array, parts: Sequence[str], values: Sequence[Array], size: int) -> Array:
    """Update integers of ``size`` bytes at ``places`` of ``data`` one after the other; return the old values.

    ``parts`` name the operation and its type, as ``atom.global.add.u32`` does; ``values`` are its operands as bits.
    """
    kind = parts[-1]
    name = next(part for part in parts if part in _UPDATES or part in {"cas", "inc", "dec"})
    old = np.zeros(places.shape, f"u{size}")
    words = data.view(f"u{size}") if data.size % size == 0 else data[: data.size // size * size].view(f"u{size}")
    for index, place in enumerate((places // size).tolist()):
        before = words[place : place + 1]
        old[index] = before[0]
        operands = [value[index : index + 1] for value in values]
        if name == "cas":
            words[place] = operands[1][0] if before[0] == operands[0][0] else before[0]
        elif name in {"inc", "dec"}:
            words[place] = _wrapping(name, int(before[0]), int(operands[0][0]))
        else:
            words[place] = bits_of(_UPDATES[name](numbers_of(before, kind), numbers_of(operands[0], kind)), kind)[0]
    return old


def _wrapping(name: str, before: int, limit: int) -> int:
    if name == "inc":
        return 0 if before >= limit else before + 1
    return limit if before == 0 or before > limit else before - 1


@dataclass(frozen=True, slots=True)
class Execution:
    """An instruction in execution, its position in the kernel, and the ``active`` threads: None for all."""

    machine: Machine
    number: int
    instruction: PtxInstruction
    active: Array | None

    @property
    def lanes(self) -> Array:
        """The active threads, a row per program."""
        return np.broadcast_to(np.True_ if self.active is None else self.active, self.machine.shape)

    def address(self, operand: Operand) -> Array | UnknownValue:
        """Return the addresses of an operand, one per thread."""
        assert isinstance(operand, Address)
        base = self.machine.value(operand.base)
        if isinstance(base, UnknownValue):
            return base
        return base.astype(np.uint64) + np.uint64(operand.offset_bytes % (1 << 64))


@dataclass(slots=True)
class SharedMemory:
    """The shared memory of some programs, a row of bytes each; ``unknown`` marks bytes with unknown values."""

    programs: int
    size_bytes: int
    data: Array = field(init=False)
    unknown: Array = field(init=False)
    reason: str = "shared memory that was never written"

    def __post_init__(self) -> None:
        self.size_bytes = -(-self.size_bytes // 16) * 16
        self.data = np.zeros(self.programs * self.size_bytes, np.uint8)
        self.unknown = np.zeros(self.data.shape, bool)

    def execute(self, execution: Execution, addresses: Array, is_needed: bool) -> None:
        """Execute a load, store or atomic."""
        places = self._places(execution.machine, addresses)
        if execution.instruction.name in {"ldmatrix", "stmatrix"}:
            self._matrix(execution, places, is_needed)
        elif execution.instruction.name == "ld":
            if is_needed:
                self._load(execution, places)
        elif execution.instruction.name == "st":
            self._store(execution, places)
        else:
            self._update(execution, places, is_needed)

    def mark_unknown(self, execution: Execution, addresses: Array, size: int, reason: str) -> None:
        """Mark bytes as unknown."""
        places = self._places(execution.machine, addresses)[execution.lanes]
        self.reason = reason
        for byte in range(size):
            self.unknown[places + byte] = True

    def mark_all_unknown(self, reason: str) -> None:
        """Mark all bytes as unknown."""
        self.reason = reason
        self.unknown[:] = True

    def _places(self, machine: Machine, addresses: Array) -> Array:
        inside = np.minimum(addresses.astype(np.int64), self.size_bytes - 16)
        return np.broadcast_to(inside, machine.shape) + np.arange(self.programs)[:, None] * self.size_bytes

    def _load(self, execution: Execution, places: Array) -> None:
        machine, instruction = execution.machine, execution.instruction
        active, lanes = execution.active, execution.lanes
        size = width_of(instruction.type) // 8
        for place, member in enumerate(members_of(instruction.operands[0])):
            at = places + place * size
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

    def _store(self, execution: Execution, places: Array) -> None:
        size = width_of(execution.instruction.type) // 8
        for place, member in enumerate(members_of(values_of(execution.instruction)[0])):
            self._put(places + place * size, execution.lanes, execution.machine.value(member), size)

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

    def _update(self, execution: Execution, places: Array, is_needed: bool) -> None:
        machine, instruction, lanes = execution.machine, execution.instruction, execution.lanes
        size = width_of(instruction.type) // 8
        values = [machine.value(each) for each in values_of(instruction)]
        destination = destination_of(instruction)
        unknown = next((each for each in values if isinstance(each, UnknownValue)), None)
        if unknown is not None or self.unknown[places[lanes]].any():
            reason = self.reason if unknown is None else unknown.reason
            self._put(places, lanes, UnknownValue(reason), size)
            if is_needed and destination is not None:
                machine.put(destination, UnknownValue(reason), None, "b32")
            return
        operands = [
            np.broadcast_to(value, machine.shape)[lanes].astype(f"u{size}")
            for value in values
            if not isinstance(value, UnknownValue)
        ]
        old_words = update_words(self.data, places[lanes], instruction.parts, operands, size)
        if is_needed and destination is not None:
            old = np.zeros(machine.shape, old_words.dtype)
            old[lanes] = old_words
            machine.put(destination, old, lanes, f"b{max(32, 8 * size)}")

    def _matrix(self, execution: Execution, places: Array, is_needed: bool) -> None:
        """Move 8 by 8 matrices of 16-bit elements. PTX ISA, "ldmatrix" and "stmatrix".

        Thread i of a warp names the row i % 8 of matrix i / 8; it holds two elements of row i / 4 of each, or, of a
        transposed one, of column i / 4.
        """
        machine, instruction, active = execution.machine, execution.instruction, execution.active
        loads = instruction.name == "ldmatrix"
        if loads and not is_needed:
            return
        lane = np.arange(machine.shape[1])
        warp = lane // 32 * 32
        for matrix, member in enumerate(members_of(instruction.operands[0 if loads else 1])):
            halves = []
            for half in range(2):
                row, column = (lane % 32) // 4, 2 * (lane % 4) + half
                if "trans" in instruction.parts:
                    row, column = column, row
                halves.append(places[:, warp + 8 * matrix + row] + 2 * column)
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
