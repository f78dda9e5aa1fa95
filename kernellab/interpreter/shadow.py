"""What is known about each piece of a storage: who wrote it, whether anyone did, which arguments it belongs to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

MANY = -1


@dataclass(slots=True)
class Shadow:
    """Arrays with one entry per granule of ``1 << shift`` bytes of a storage. Each is None until it matters.

    ``writers`` holds 1 + the number of the program that last wrote the granule by a plain store, 0 for none;
    ``readers`` likewise of the one that read it since, `MANY` for several. ``unwritten`` is true where the contents
    count as never written. ``members`` has bit k set where an element of argument k of this storage lies.
    """

    size_bytes: int
    shift: int
    writers: Array | None = None
    readers: Array | None = None
    unwritten: Array | None = None
    members: Array | None = None
    touched: bool = field(default=False)

    @property
    def length(self) -> int:
        return -(-self.size_bytes >> self.shift)

    def granules(self, offsets: Array, itemsize: int) -> Array:
        """Return the granules of elements at byte ``offsets``, in order: 1 or more, equally many, per element."""
        if itemsize < 1 << self.shift:
            self._refine(itemsize.bit_length() - 1)
        index = (offsets >> np.uint64(self.shift)).astype(np.int64)
        each = itemsize >> self.shift
        if each == 1:
            return index
        expanded: Array = (index[:, None] + np.arange(each)).ravel()
        return expanded

    def per_element(self, itemsize: int) -> int:
        """Return how many granules an element of this size has."""
        return max(1, itemsize >> self.shift)

    def ensure_writers(self) -> Array:
        if self.writers is None:
            self.writers = np.zeros(self.length, dtype=np.int32)
        return self.writers

    def ensure_readers(self) -> Array:
        if self.readers is None:
            self.readers = np.zeros(self.length, dtype=np.int32)
        return self.readers

    def ensure_unwritten(self) -> Array:
        if self.unwritten is None:
            self.unwritten = np.zeros(self.length, dtype=bool)
        return self.unwritten

    def ensure_members(self) -> Array:
        if self.members is None:
            self.members = np.zeros(self.length, dtype=np.uint64)
        return self.members

    def view(
        self, array: Array, offset_bytes: int, shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int
    ) -> Array:
        """Return the entries of the elements of a tensor, with a last axis for the granules of one element."""
        each = self.per_element(itemsize)
        start = array[offset_bytes >> self.shift :]
        entry = array.itemsize
        return np.lib.stride_tricks.as_strided(
            start, (*shape, each), (*(stride * each * entry for stride in strides), entry)
        )

    def _refine(self, shift: int) -> None:
        factor = 1 << (self.shift - shift)
        self.shift = shift
        for name in ("writers", "readers", "unwritten", "members"):
            array = getattr(self, name)
            if array is not None:
                setattr(self, name, np.repeat(array, factor))


@dataclass(frozen=True, slots=True)
class Order:
    """A scalar atomic at an address of this process, and what it does to the order of programs."""

    address: int
    acquire: bool
    release: bool


class Ordering:
    """Which programs' writes a program may rely on: those released at an address that it acquired from.

    Programs run one after the other, so that a set of programs (a bit each) stands for a moment in each of them.
    Only scalar atomics synchronise: locks, counters and flags.
    """

    def __init__(self) -> None:
        self._released: dict[int, int] = {}
        self._known = 0

    def begin_program(self) -> None:
        self._known = 0

    def synchronise(self, address: int, program: int, *, acquire: bool, release: bool) -> None:
        if acquire:
            self._known |= self._released.get(address, 0)
        if release:
            self._released[address] = self._released.get(address, 0) | self._known | (1 << program)

    def knows(self, program: int) -> bool:
        return bool(self._known >> program & 1)
