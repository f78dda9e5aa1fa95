"""Which elements of each argument a launch touched, how much each wave of programs touches anew, and in what order."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from kernellab.explain.traffic.arithmetic import Array
from kernellab.explain.traffic.counting import SECTOR_BYTES
from kernellab.explain.traffic.memory import LaunchBuffer

MAPPED_PROGRAMS = 64
MAP_COLUMNS = 256


@dataclass(slots=True)
class Flags:
    """Bytes of a storage that were touched, as flags per group of 1, 2, 4, 8 or 16 bytes."""

    size_bytes: int
    by_group: dict[int, Array] = field(default_factory=dict)

    def mark(self, places: Array, size: int) -> None:
        """Mark ``size`` bytes at each of the places."""
        step = size
        while step > 1 and (places & (step - 1)).any():
            step //= 2
        flags = self.by_group.get(step)
        if flags is None:
            flags = self.by_group[step] = np.zeros(-(-self.size_bytes // step), bool)
        for part in range(size // step):
            flags[places // step + part] = True

    def per_element(self, itemsize: int) -> Array:
        """Return a flag per element: whether any byte of it was touched."""
        found: Array = np.zeros(-(-self.size_bytes // itemsize), bool)
        for step, flags in self.by_group.items():
            if step >= itemsize:
                found |= np.repeat(flags, step // itemsize)[: found.size]
            else:
                padded = np.zeros(found.size * (itemsize // step), bool)
                padded[: flags.size] = flags[: padded.size]
                found |= padded.reshape(found.size, -1).any(axis=1)
        return found


@dataclass(slots=True)
class Coverage:
    """What of one argument was touched. ``read_bytes`` and ``written_bytes`` count each access of each thread."""

    buffer: LaunchBuffer
    read: Flags
    written: Flags
    read_bytes: int = 0
    written_bytes: int = 0
    map: Array = field(default_factory=lambda: np.zeros((MAPPED_PROGRAMS, MAP_COLUMNS), np.uint8))
    wave_sectors: list[int] = field(default_factory=list)
    _wave: Array | None = None
    _sectors: Array | None = None
    _reach: tuple[int, int] = (1 << 62, 0)

    @classmethod
    def of(cls, buffer: LaunchBuffer) -> Coverage:
        """Return an empty one."""
        return cls(buffer, Flags(buffer.storage_bytes), Flags(buffer.storage_bytes))

    def touch(self, places: Array, size: int, *, reads: bool, writes: bool) -> None:
        """Note an access of ``size`` bytes at each of the places in the storage."""
        if reads:
            self.read.mark(places, size)
            self.read_bytes += size * places.size
        if writes:
            self.written.mark(places, size)
            self.written_bytes += size * places.size
        if self._wave is None:
            self._wave = np.zeros(self.buffer.storage_bytes // SECTOR_BYTES + 2, bool)
            self._sectors = np.zeros(self._wave.shape, bool)
        begin = (self.buffer.address - self.buffer.offset_bytes) % SECTOR_BYTES
        if not places.size:
            return
        sectors = (places + begin) >> 5
        self._wave[sectors] = True
        self._reach = (min(self._reach[0], int(sectors.min())), max(self._reach[1], int(sectors.max()) + 2))
        if (begin | size) & (size - 1) or size > SECTOR_BYTES:
            self._wave[(places + begin + size - 1) >> 5] = True

    def draw(self, programs: Array, places: Array, size: int, writes: bool) -> None:
        """Note in the map which of the first programs touch which parts of the view: 1 by a load, 2 by a write."""
        span = max(1, self.buffer.span_bytes)
        first = (places - self.buffer.offset_bytes) * MAP_COLUMNS
        columns, last = (
            each.clip(0, MAP_COLUMNS - 1) for each in (first // span, (first + size * MAP_COLUMNS - 1) // span)
        )
        for step in range(int((last - columns).max(initial=0)) + 1):
            self.map[programs, np.minimum(columns + step, last)] |= 2 if writes else 1

    def end_wave(self) -> None:
        """Close a wave of programs: count the sectors that it touched."""
        if self._wave is None or self._sectors is None:
            self.wave_sectors.append(0)
            return
        reached = slice(*self._reach)
        self.wave_sectors.append(int(np.count_nonzero(self._wave[reached])))
        self._sectors[reached] |= self._wave[reached]
        self._wave[reached] = False
        self._reach = (1 << 62, 0)

    @property
    def footprint_bytes(self) -> int:
        """The bytes of all sectors that were touched, once each."""
        return 0 if self._sectors is None else int(self._sectors.sum()) * SECTOR_BYTES

    def untouched(self, *, writes: bool) -> tuple[int, int]:
        """Return how many places in memory the view has, and how many of them were never read, or written."""
        buffer = self.buffer
        if 0 in buffer.shape:
            return 0, 0
        flags = (self.written if writes else self.read).per_element(buffer.itemsize)
        steps = tuple(stride * flags.itemsize for stride in buffer.strides)
        start = buffer.offset_bytes // buffer.itemsize
        view = np.lib.stride_tricks.as_strided(flags[start:], buffer.shape, steps, writeable=False)
        once = view[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in buffer.strides)]
        return once.size, int(once.size - np.count_nonzero(once))
