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

from kernellab.explain.traffic.arithmetic import INTEGER_UFUNCS, Array, bits_of, numbers_of
from kernellab.explain.traffic.machine import RegisterBits, UnknownValue
from kernellab.launch.arguments import span_elements

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
        return span_elements(self.shape, self.strides) * self.itemsize


class StaleValueError(Exception):
    """A read of a stored value that is not known; the text says why."""


@dataclass(slots=True)
class Contents:
    """Bytes of memory; ``stale`` marks those with unknown values, for the ``reason``."""

    data: Array
    stale: Array | None = None
    is_copy: bool = False
    reason: str = ""

    def load(self, places: Array, size: int) -> Array:
        """Return the unsigned integers of ``size`` bytes at the places.

        Raises:
            StaleValueError: one of them is not known.
        """
        self._require_known(places)
        return _words_at(self.data, places, size)

    def store(self, places: Array, values: RegisterBits, size: int) -> None:
        """Store unsigned integers of ``size`` bytes at the places."""
        if isinstance(values, UnknownValue):
            self.reason = values.reason
            if self.stale is None:
                self.stale = np.zeros(self.data.shape, bool)
        if self.stale is not None:
            for byte in range(size):
                self.stale[places + byte] = isinstance(values, UnknownValue)
        if isinstance(values, UnknownValue):
            return
        self._copy_on_write()
        bits = np.ascontiguousarray(_low_part(values, size)).view(np.uint8).reshape(-1, size)
        for byte in range(size):
            self.data[places + byte] = bits[:, byte]

    def update(self, places: Array, parts: Sequence[str], values: Sequence[Array], size: int) -> Array:
        """Update integers by an atomic, one thread after the other; return the old values.

        Raises:
            StaleValueError: one of them is not known.
        """
        self._require_known(places)
        self._copy_on_write()
        return update_words(self.data, places, parts, [_low_part(value, size) for value in values], size)

    def _require_known(self, places: Array) -> None:
        if self.stale is not None and self.stale[places].any():
            raise StaleValueError(self.reason)

    def _copy_on_write(self) -> None:
        if not self.is_copy:
            self.data, self.is_copy = self.data.copy(), True


Part = tuple[Contents, Array, Array]
"""Contents, the threads that access them, and the places of these."""


class TracedMemory:
    """Memory that threads access by addresses: of a launch, or shared by the threads of a program.

    ``vain_atomics`` counts the latest consecutive atomics without any change.
    """

    vain_atomics = 0

    def parts(self, addresses: Array, active: Array, size: int) -> list[Part]:
        """Return the contents that threads access."""
        raise NotImplementedError

    def load(self, addresses: Array, active: Array, size: int) -> Array:
        """Return the unsigned integers of ``size`` bytes at the active addresses, 0 elsewhere and outside all memory.

        Raises:
            StaleValueError: one of them was stored before, and its value is not known.
        """
        result = np.zeros(addresses.shape, f"u{size}")
        for contents, lanes, places in self.parts(addresses, active, size):
            result[lanes] = contents.load(places, size)
        return result

    def store(self, addresses: Array, active: Array, values: RegisterBits, size: int) -> None:
        """Store unsigned integers of ``size`` bytes."""
        self.vain_atomics = 0
        for contents, lanes, places in self.parts(addresses, active, size):
            bits = values if isinstance(values, UnknownValue) else np.broadcast_to(values, addresses.shape)[lanes]
            contents.store(places, bits, size)

    def update(
        self, addresses: Array, active: Array, parts: Sequence[str], values: Sequence[Array], size: int
    ) -> Array:
        """Update integers by an atomic, one thread after the other; return the old values.

        Raises:
            StaleValueError: one of them was stored before, and its value is not known.
        """
        old = np.zeros(addresses.shape, f"u{size}")
        for contents, lanes, places in self.parts(addresses, active, size):
            old[lanes] = contents.update(places, parts, [value[lanes] for value in values], size)
            changed = not np.array_equal(old[lanes], contents.load(places, size))
            self.vain_atomics = 0 if changed else self.vain_atomics + 1
        return old


@dataclass(slots=True)
class LaunchMemory(TracedMemory):
    """The memory of one launch. ``strays`` counts accesses outside of it."""

    buffers: Sequence[LaunchBuffer]
    strays: int = 0
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

    def places_in(self, number: int, addresses: Array, size: int) -> tuple[Array, Array]:
        """Return the places of addresses in the storage of an argument, and which of them lie inside."""
        buffer = self.buffers[number]
        places = (addresses - np.uint64(self.start(number) - buffer.offset_bytes)).astype(np.int64)
        return places, (places >= 0) & (places + size <= buffer.storage_bytes)

    def parts(self, addresses: Array, active: Array, size: int) -> list[Part]:
        """Return the contents of each argument that threads access; count strays."""
        parts: list[Part] = []
        tags = (addresses >> np.uint64(TAG_SHIFT)).astype(np.int64)
        for tag in np.unique(tags[active]).tolist() if active.any() else ():
            number = self.number_of(tag)
            lanes = active & (tags == tag)
            if number is None:
                self.strays += int(lanes.sum()) if tag else 0  # a true address comes from a table of pointers
                continue
            places, inside = self.places_in(number, addresses, size)
            self.strays += int((lanes & ~inside).sum())
            buffer, lanes = self.buffers[number], lanes & inside
            if buffer.key not in self._contents:
                self._contents[buffer.key] = Contents(buffer.read())
            parts.append((self._contents[buffer.key], lanes, places[lanes]))
        return parts


class SharedMemory(TracedMemory):
    """The shared memory of some programs, of so many bytes each."""

    def __init__(self, programs: int, size_bytes: int) -> None:
        self.size_bytes = -(-size_bytes // 16) * 16
        self._contents = Contents(np.zeros(programs * self.size_bytes, np.uint8), is_copy=True)

    def parts(self, addresses: Array, active: Array, size: int) -> list[Part]:
        """Return the contents with the places of the active threads; addresses outside lie at the end."""
        inside = np.minimum(addresses.astype(np.int64), self.size_bytes - size)
        places = inside + np.arange(len(inside))[:, None] * self.size_bytes
        return [(self._contents, active, places[active])]

    def mark_all_unknown(self, reason: str) -> None:
        """Mark all bytes as unknown."""
        self._contents.reason, self._contents.stale = reason, np.ones(self._contents.data.shape, bool)


def _low_part(bits: Array, size: int) -> Array:
    return bits.astype(f"u{size}") if bits.dtype.itemsize != size else bits


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
