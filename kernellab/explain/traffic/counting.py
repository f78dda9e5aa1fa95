"""Requests, sectors and wavefronts of warps, and the elements of each argument that a launch touches.

A request is one instruction of one warp with at least one active thread. A sector is 32 aligned bytes; a request moves
each touched sector once. Shared memory has 32 banks of 4 bytes; accesses to different words of one bank are serial, and
each turn is a wavefront. Wide accesses are split into parts of the warp.
See the "Memory Tables" of https://docs.nvidia.com/nsight-compute/ProfilingGuide/ and the chapter on shared
memory of the CUDA programming guide.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from kernellab.explain.traffic.arithmetic import Array
from kernellab.explain.traffic.memory import LaunchBuffer
from kernellab.target import SECTOR_BYTES

WARP = 32
_BANKS = 32
_BANK_BYTES = 4
_NONE = np.int64(np.iinfo(np.int64).max)


@dataclass(slots=True)
class Count:
    """The requests, sectors, wavefronts and lanes of one instruction, summed over all its executions.

    ``ideal_sectors`` is the fewest sectors that hold the used bytes, ``bytes_used`` counts a byte once per request.
    ``lanes`` are active threads, ``lanes_off`` the inactive ones of the same requests. ``uneven`` counts atomics that
    update some elements of a sector more often than others.
    """

    requests: int = 0
    sectors: int = 0
    ideal_sectors: int = 0
    wavefronts: int = 0
    ideal_wavefronts: int = 0
    bytes_used: int = 0
    lanes: int = 0
    lanes_off: int = 0
    uneven: int = 0

    def add(self, other: Count, times: int = 1) -> None:
        """Add another count, ``times`` over."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + times * getattr(other, name))

    def scaled_by(self, factor: float) -> Count:
        """Return ``factor`` times the count, rounded."""
        return Count(*(round(getattr(self, name) * factor) for name in self.__slots__))


def global_count(addresses: Array, active: Array | None, size: int) -> Count:
    """Return the requests and sectors of accesses of ``size`` bytes per thread; the last axis has the threads."""
    rows = _rows(addresses, active)
    alive = rows[:, 0] != _NONE
    if not alive.all():
        rows = rows[alive]
    if not rows.size:
        return Count()
    off = rows[:, -1] == _NONE
    used = _distinct_counts(rows, off) * size
    sectors = _distinct_counts(rows >> 5, off) if size <= SECTOR_BYTES else used // SECTOR_BYTES
    lanes = int((rows != _NONE).sum()) if off.any() else rows.size
    return Count(
        requests=len(rows),
        sectors=int(sectors.sum()),
        ideal_sectors=int((-(-used // SECTOR_BYTES)).sum()),
        bytes_used=int(used.sum()),
        lanes=lanes,
        lanes_off=rows.size - lanes,
    )


def atomic_count(addresses: Array, active: Array | None, size: int) -> Count:
    """Return the requests and sectors of atomics; updates of one element are serial, each with its own sector.

    Counters of an H200 agree where a request updates each element of a sector equally often. Else the sectors depend
    on the order of the hardware.
    """
    count = global_count(addresses, active, size)
    order = np.sort(_rows(addresses, active), axis=1)
    places = np.broadcast_to(np.arange(WARP), order.shape)
    first = np.where(_changes(order), places, 0)
    turn = places - np.maximum.accumulate(first, axis=1)  # how many threads came before
    sector = np.cumsum(_changes(order >> 5), axis=1) - 1
    row = np.broadcast_to(np.arange(len(order))[:, None], order.shape)
    alive = order != _NONE
    moved = ((row * WARP + sector) * WARP + turn)[alive]
    elements = np.bincount(moved, minlength=len(order) * WARP * WARP).reshape(-1, WARP, WARP)  # of a sector, by turn
    count.sectors = int(np.count_nonzero(elements))
    count.uneven = int(((elements > 0) & (elements != elements[:, :, :1])).any(axis=(1, 2)).sum())
    return count


def _changes(rows: Array) -> Array:
    """Return True at the start of each ascending row, and where a number differs from the one before."""
    changes = np.ones(rows.shape, bool)
    changes[:, 1:] = rows[:, 1:] != rows[:, :-1]
    return changes


def _rows(addresses: Array, active: Array | None) -> Array:
    """Return one ascending row of addresses per warp, those of inactive threads at its end as `_NONE`."""
    signed = addresses.astype(np.int64, copy=False)
    if active is not None:
        signed = np.where(active, signed, _NONE)
    rows = _by_warp(signed, _NONE)
    if rows.size and not (rows[:, 1:] >= rows[:, :-1]).all():
        rows = np.sort(rows, axis=1)
    return rows


def _by_warp(values: Array, fill: object) -> Array:
    threads = values.shape[-1]
    if threads % WARP:
        padding = [(0, 0)] * (values.ndim - 1) + [(0, WARP - threads % WARP)]
        values = np.pad(values, padding, constant_values=fill)  # type: ignore[call-overload]
    return np.ascontiguousarray(values).reshape(-1, WARP)


def _distinct_counts(rows: Array, off: Array) -> Array:
    """Return the number of distinct values in each ascending row, without those of inactive threads."""
    counts: Array = 1 + (rows[:, 1:] != rows[:, :-1]).sum(axis=1) - off
    return counts


def shared_count(addresses: Array, active: Array | None, size: int, *, stores: bool = False) -> Count:
    """Return the requests and wavefronts of accesses to shared memory of ``size`` bytes per thread.

    A load of 16 bytes per thread is split into halves of the warp; ``stores`` into halves for 8 and quarters for 16.
    This is undocumented: it follows from counters of an H200 for accesses whose threads share words.
    """
    rows = _by_warp(addresses.astype(np.int64, copy=False), 0)
    lanes = np.ones(rows.shape, bool) if active is None else _by_warp(np.broadcast_to(active, addresses.shape), False)
    alive = lanes.any(axis=1)
    rows, lanes = rows[alive], lanes[alive]
    if not rows.size:
        return Count()
    phases = max(1, size // (_BANK_BYTES if stores else 2 * _BANK_BYTES))
    wavefronts, least = _bank_wavefronts(rows, lanes, size, phases)
    ordered = np.sort(np.where(lanes, rows, _NONE), axis=1)
    total = int(lanes.sum())
    return Count(
        requests=len(rows),
        wavefronts=wavefronts,
        ideal_wavefronts=least,
        bytes_used=int((_distinct_counts(ordered, ordered[:, -1] == _NONE) * size).sum()),
        lanes=total,
        lanes_off=lanes.size - total,
    )


def _bank_wavefronts(addresses: Array, lanes: Array, size: int, phases: int) -> tuple[int, int]:
    """Return the wavefronts, in each phase the most words of one bank, and the fewest possible wavefronts.

    The fewest are those of words that are spread evenly over the banks.
    """
    words = (addresses >> 2)[:, :, None] + np.arange(max(1, size // _BANK_BYTES))
    words = np.where(lanes[:, :, None], words, -1).reshape(len(addresses) * phases, -1)
    words = np.sort(words, axis=1)
    first = _changes(words) & (words >= 0)
    row = np.broadcast_to(np.arange(len(words))[:, None], words.shape)
    banks = (row * _BANKS + (words & (_BANKS - 1)))[first]
    per_bank = np.bincount(banks, minlength=len(words) * _BANKS).reshape(-1, _BANKS)
    return int(per_bank.max(axis=1).sum()), int((-(-first.sum(axis=1) // _BANKS)).sum())


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
        touched: Array = np.zeros(-(-self.size_bytes // itemsize), bool)
        for step, flags in self.by_group.items():
            if step >= itemsize:
                touched |= np.repeat(flags, step // itemsize)[: touched.size]
            else:
                padded = np.zeros(touched.size * (itemsize // step), bool)
                padded[: flags.size] = flags[: padded.size]
                touched |= padded.reshape(touched.size, -1).any(axis=1)
        return touched


@dataclass(slots=True)
class Coverage:
    """The touched elements of one argument. ``read_bytes`` and ``written_bytes`` count a byte once per request."""

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
        """Return the empty coverage of a buffer."""
        return cls(buffer, Flags(buffer.storage_bytes), Flags(buffer.storage_bytes))

    def record(self, places: Array, size: int, *, reads: bool, writes: bool) -> None:
        """Record an access of ``size`` bytes at each of the places in the storage."""
        if reads:
            self.read.mark(places, size)
        if writes:
            self.written.mark(places, size)
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

    def mark_map(self, programs: Array, places: Array, size: int, writes: bool) -> None:
        """Mark in the map the parts of the view that the first programs touch: 1 by a load, 2 by a write."""
        span = max(1, self.buffer.span_bytes)
        first = (places - self.buffer.offset_bytes) * MAP_COLUMNS
        columns, last = (
            edge.clip(0, MAP_COLUMNS - 1) for edge in (first // span, (first + size * MAP_COLUMNS - 1) // span)
        )
        for step in range(int((last - columns).max(initial=0)) + 1):
            self.map[programs, np.minimum(columns + step, last)] |= 2 if writes else 1

    def end_wave(self) -> None:
        """End a wave of programs, and count its sectors."""
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

    def untouched_counts(self, *, writes: bool) -> tuple[int, int]:
        """Return the number of elements in the view, and of those that were never read, or never written."""
        buffer = self.buffer
        if 0 in buffer.shape:
            return 0, 0
        flags = (self.written if writes else self.read).per_element(buffer.itemsize)
        steps = tuple(stride * flags.itemsize for stride in buffer.strides)
        start = buffer.offset_bytes // buffer.itemsize
        view = np.lib.stride_tricks.as_strided(flags[start:], buffer.shape, steps, writeable=False)
        once = view[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in buffer.strides)]
        return once.size, int(once.size - np.count_nonzero(once))
