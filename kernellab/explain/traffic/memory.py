"""Memory as a kernel sees it while its traffic is worked out: the arguments under addresses of their own numbering.

The top 16 bits of an address are 1 + the number of an argument, the rest its position around the middle of 256 TiB. So
an address tells which argument it belongs to, wherever it points. Its low 16 bits are those of the true address, and so
alignment is the same. Addresses that arguments hold, as tables of pointers do, are true ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kernellab.explain.traffic.arithmetic import Array, raw, typed

TAG_SHIFT = 48
_MIDDLE = 1 << (TAG_SHIFT - 1)
_LOW_BITS = 0xFFFF


@dataclass(frozen=True, slots=True)
class LaunchBuffer:
    """A tensor of a launch: its view, and the storage that the view lies in.

    ``address`` is where the first element lies, ``offset_bytes`` how far that is into the storage of ``storage_bytes``;
    ``key`` tells storages apart. ``read`` returns the bytes of the storage; it is called only if they matter.
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
        """How far the view reaches, from its first byte to after its last."""
        if 0 in self.shape:
            return 0
        reach = sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))
        return (reach + 1) * self.itemsize


@dataclass(slots=True)
class Contents:
    """The bytes of one storage; ``stale`` marks those that the kernel wrote with values that were not computed."""

    data: Array
    stale: Array | None = None
    is_copy: bool = False


class StaleRead(Exception):
    """A value is read that the kernel stored and that was not computed."""


@dataclass(slots=True)
class LaunchMemory:
    """The memory of one launch.

    ``strays`` counts accesses outside of it, ``vain`` the last atomics in a row that changed nothing.
    """

    buffers: Sequence[LaunchBuffer]
    strays: int = 0
    vain: int = 0
    _contents: dict[Any, Contents] = field(default_factory=dict)

    def forget(self) -> None:
        """Go back to what the arguments hold."""
        self._contents.clear()
        self.strays = 0

    def start(self, number: int) -> int:
        """Return the address of the first element of an argument, by its number."""
        return ((number + 1) << TAG_SHIFT) + _MIDDLE + (self.buffers[number].address & _LOW_BITS)

    def number_of(self, tag: int) -> int | None:
        """Return the number of the argument that the top bits of an address name."""
        return tag - 1 if 0 < tag <= len(self.buffers) else None

    def adopted(self, addresses: Array) -> Array:
        """Return addresses with true ones of an argument in the numbering of this memory."""
        if (addresses >> np.uint64(TAG_SHIFT)).all():
            return addresses
        result = addresses.copy()
        for number, buffer in enumerate(self.buffers):
            if not buffer.address:
                continue  # scratch memory, whose address nobody knows
            first = np.uint64(max(0, buffer.address - buffer.offset_bytes))
            inside = (addresses >= first) & (addresses < first + np.uint64(buffer.storage_bytes))
            moved = addresses + np.uint64((self.start(number) - buffer.address) % (1 << 64))
            result = np.where(inside & (result == addresses), moved, result)
        return result

    def load(self, addresses: Array, active: Array, size: int) -> Array:
        """Return the unsigned integers of ``size`` bytes at the active addresses, 0 elsewhere and outside all memory.

        Raises:
            StaleRead: one of them was stored before, and its value not computed.
        """
        result = np.zeros(addresses.shape, f"u{size}")
        for number, lanes, places in self._parts(addresses, active, size):
            contents = self._of(number)
            if contents.stale is not None and contents.stale[places].any():
                raise StaleRead
            result[lanes] = _gathered(contents.data, places, size)
        return result

    def store(self, addresses: Array, active: Array, values: Array | None, size: int) -> None:
        """Store unsigned integers of ``size`` bytes; None where they were not computed."""
        self.vain = 0
        for number, lanes, places in self._parts(addresses, active, size):
            contents = self._of(number)
            if values is None:
                if contents.stale is None:
                    contents.stale = np.zeros(contents.data.shape, bool)
                for byte in range(size):
                    contents.stale[places + byte] = True
                continue
            self._own(contents)
            bits = np.ascontiguousarray(np.broadcast_to(values, addresses.shape)[lanes]).view(np.uint8)
            for byte in range(size):
                contents.data[places + byte] = bits.reshape(-1, size)[:, byte]

    def update(
        self, addresses: Array, active: Array, parts: Sequence[str], values: Sequence[Array], size: int
    ) -> Array:
        """Update integers by an atomic, one thread after the other; return what each found.

        Raises:
            StaleRead: one of them was stored before, and its value not computed.
        """
        old = np.zeros(addresses.shape, f"u{size}")
        for number, lanes, places in self._parts(addresses, active, size):
            contents = self._of(number)
            if contents.stale is not None and contents.stale[places].any():
                raise StaleRead
            self._own(contents)
            old[lanes] = updated(contents.data, places, parts, [value[lanes] for value in values], size)
            changed = not np.array_equal(old[lanes], _gathered(contents.data, places, size))
            self.vain = 0 if changed else self.vain + 1
        return old

    def _parts(self, addresses: Array, active: Array, size: int) -> list[tuple[int, Array, Array]]:
        """Return, for each argument that is reached: its number, the lanes, and their places in its storage."""
        tags = (addresses >> np.uint64(TAG_SHIFT)).astype(np.int64)
        found = []
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
            found.append((number, inside, places[inside]))
        return found

    def _of(self, number: int) -> Contents:
        buffer = self.buffers[number]
        if buffer.key not in self._contents:
            self._contents[buffer.key] = Contents(buffer.read())
        return self._contents[buffer.key]

    @staticmethod
    def _own(contents: Contents) -> None:
        if not contents.is_copy:
            contents.data = contents.data.copy()
            contents.is_copy = True


def _gathered(data: Array, places: Array, size: int) -> Array:
    if not (places & (size - 1)).any() and data.size % size == 0:
        found: Array = data.view(f"u{size}")[places >> (size.bit_length() - 1)]
        return found
    bytes_of = np.stack([data[places + byte] for byte in range(size)], axis=-1)
    words: Array = np.ascontiguousarray(bytes_of).view(f"u{size}")[..., 0]
    return words


_COMBINED: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "exch": lambda old, new: new,
}


def updated(data: Array, places: Array, parts: Sequence[str], values: Sequence[Array], size: int) -> Array:
    """Update the integers of ``size`` bytes at ``places`` of ``data`` one after the other; return what they were.

    ``parts`` name the operation and its type, as ``atom.global.add.u32`` does; ``values`` are its operands as bits.
    """
    kind = parts[-1]
    name = next(part for part in parts if part in _COMBINED or part in {"cas", "inc", "dec"})
    old = np.zeros(places.shape, f"u{size}")
    words = data.view(f"u{size}") if data.size % size == 0 else data[: data.size // size * size].view(f"u{size}")
    for index, place in enumerate((places // size).tolist()):
        before = words[place : place + 1]
        old[index] = before[0]
        given = [value[index : index + 1] for value in values]
        if name == "cas":
            words[place] = given[1][0] if before[0] == given[0][0] else before[0]
        elif name in {"inc", "dec"}:
            words[place] = _wrapping(name, int(before[0]), int(given[0][0]))
        else:
            words[place] = raw(_COMBINED[name](typed(before, kind), typed(given[0], kind)), kind)[0]
    return old


def _wrapping(name: str, before: int, limit: int) -> int:
    if name == "inc":
        return 0 if before >= limit else before + 1
    return limit if before == 0 or before > limit else before - 1
