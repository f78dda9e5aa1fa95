"""Checks every load, store and atomic of an interpreted launch, then performs it.

The rules: the extent of an argument is the span of its view. An address outside the view but inside its storage is a
finding; one outside the storage, or inside another argument, is a fault, and the access is not performed.
"""

from __future__ import annotations

import ctypes
import math
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from triton._C.libtriton import interpreter as native

from kernellab.errors import plural
from kernellab.interpreter.faults import (
    AccessFault,
    Findings,
    InterpretedCheckError,
    ProgramDeadline,
    StorageIncomplete,
    current_line,
)
from kernellab.interpreter.hazards import TAG_SHIFT, Hazards, MemoryRegion, regions_of
from kernellab.interpreter.promises import Promises, PromiseTaint
from kernellab.interpreter.values import Array, Handle, Taint
from kernellab.launch.arguments import Launch
from kernellab.launch.recorded_values import Program
from kernellab.launch.run import ElementAccesses, FindingKind, MaskedLoad, Watch


@dataclass(slots=True)
class AccessRecorder:
    """Records the `ElementAccesses` of one launch."""

    watch: Watch
    _read: dict[str, Array] = field(default_factory=dict)
    _writers: dict[str, Array] = field(default_factory=dict)
    _masked: dict[MaskedLoad, None] = field(default_factory=dict)

    def note(self, region: MemoryRegion, addresses: Array, itemsize: int, *, writer: int | None = None) -> None:
        """Record a load at the kernel's addresses, or a store by the program of the number ``writer``."""
        arrays, entry = (self._read, 1) if writer is None else (self._writers, writer + 1)
        first = region.element_indices(addresses)
        places: Array = (first[:, None] + np.arange(max(1, itemsize // region.spec.itemsize))).ravel()
        entries = _entries_of(arrays, region, np.uint8 if writer is None else np.int32)
        entries[places[(places >= 0) & (places < entries.size)]] = entry

    def note_masked_load(self, region: MemoryRegion | None, *, has_other: bool) -> float | None:
        """Record a masked load of the running line; return the fill of its masked lanes, None for the kernel's own."""
        place = current_line()
        if region is None or place is None:
            return None
        self._masked[MaskedLoad(region.name, *place, has_other)] = None
        fill = self.watch.fill
        return fill.value if fill is not None and (fill.file, fill.line) == place else None

    def accesses(self, regions: Iterable[MemoryRegion]) -> ElementAccesses:
        """Return the recorded accesses of ``regions``."""
        viewed = [region for region in regions if region.spec.span_bytes]
        read = {region.name: _in_order(region, self._read, np.uint8) for region in viewed}
        writers = {region.name: _in_order(region, self._writers, np.int32) for region in viewed}
        return ElementAccesses(read, writers, tuple(self._masked))


def _entries_of(arrays: dict[str, Array], region: MemoryRegion, dtype: type) -> Array:
    """Return an array with an entry for each element of the span of an argument; it starts as zeros."""
    if region.name not in arrays:
        arrays[region.name] = np.zeros(region.spec.span_bytes // region.spec.itemsize, dtype)
    return arrays[region.name]


def _in_order(region: MemoryRegion, arrays: dict[str, Array], dtype: type) -> bytes:
    """Return the entries of an argument's elements in index order."""
    entries, spec = _entries_of(arrays, region, dtype), region.spec
    strides = tuple(stride * entries.itemsize for stride in spec.strides)
    return np.ascontiguousarray(np.lib.stride_tricks.as_strided(entries, spec.shape, strides)).tobytes()


_MOST_STRAYS = 1 << 12
AccessKind = Literal["load", "store", "atomic"]


@dataclass(frozen=True, slots=True)
class LocatedAccess:
    """An access resolved to memory: the addresses of all lanes in this process, and the active lanes by region.

    A part is (region, the kernel's addresses, the mask of its lanes among the active ones or None for all).
    """

    addresses: Array
    parts: tuple[tuple[MemoryRegion, Array, Array | None], ...]


class CheckedMemory:
    """The memory of one launch, mapped at ``base_address``, as its programs see it."""

    def __init__(self, launch: Launch, base_address: int, findings: Findings | None = None) -> None:
        self.storages, self.regions = regions_of(launch, base_address)
        self.findings = findings or Findings()
        self.hazards = Hazards(self.findings, launch.grid)
        self.promises = Promises(self.findings)
        self.number = 0
        self.deadline: float | None = None
        self.strays: set[int] = set()
        self.exposes_addresses = False
        self.watcher: AccessRecorder | None = None
        self._starts = np.array([storage.notebook_address for storage in self.storages], np.uint64)
        self._ends = np.array([storage.notebook_address + storage.size_bytes for storage in self.storages], np.uint64)

    def begin_program(self, number: int, program: Program) -> None:
        """Start the program of this number, in running order."""
        self.promises.check_multiples()
        self.findings.program = program
        self.number = number
        self.hazards.begin_program()

    def to_kernel_addresses(self, addresses: Array) -> Array:
        """Map notebook addresses to the kernel's numbering.

        An address is assigned to the argument that contains it; one outside all arguments stays unchanged.
        """
        places = np.searchsorted(self._starts, addresses, side="right").astype(np.int64) - 1
        inside = (places >= 0) & (addresses < self._ends[places]) if places.size and self._starts.size else np.False_
        if not np.any(inside):
            return addresses
        result = addresses.astype(np.int64)
        for place in np.unique(places[inside]).tolist():
            storage = self.storages[place]
            offsets = (addresses - self._starts[place]).astype(np.int64)
            result = np.where(inside & (places == place), offsets + storage.regions[0].storage_start, result)
            for region in reversed(storage.regions):  # the first whose view holds an address counts
                begin = region.spec.offset_bytes
                lanes = inside & (places == place) & (offsets >= begin) & (offsets < begin + region.spec.span_bytes)
                result = np.where(lanes, offsets + region.storage_start, result)
        return result.astype(np.uint64)

    def restore_addresses(self) -> None:
        """Map addresses that the kernel stored back to the notebook's memory."""
        if not self.exposes_addresses:
            return
        for storage in self.storages:
            if not storage.shadow.is_written:
                continue
            skipped = -storage.address % 8
            count = max(0, storage.size_bytes - skipped) // 8
            memory = (ctypes.c_uint64 * count).from_address(storage.address + skipped)
            words = np.ctypeslib.as_array(memory)
            for number in np.unique(words >> np.uint64(TAG_SHIFT)).tolist():
                region = self.regions.get(number)
                if region is not None:
                    held = (words >= np.uint64(region.storage_start)) & (words <= np.uint64(region.storage_end))
                    words[held] += np.uint64((region.storage.notebook_address - region.storage_start) % (1 << 64))

    def load(self, pointer: Handle, mask: Array | None, other: Array | None, dtype: Any, *, volatile: bool) -> Array:
        """Return the elements of the active lanes, ``other`` (or zero) in the rest."""
        located = self._locate(pointer, mask, dtype.itemsize, "load")
        if other is None:
            other = np.zeros(pointer.data.shape, dtype)
        if located is None:
            return np.array(other, dtype=dtype)
        for region, addresses, _ in located.parts:
            self.hazards.check_load(region, addresses, dtype.itemsize, volatile=volatile)
            if self.watcher is not None:
                self.watcher.note(region, addresses, dtype.itemsize)
        lanes = np.ones(pointer.data.shape, bool) if mask is None else mask
        result: Array = native.load(located.addresses, lanes, other, dtype)
        return result

    def store(self, pointer: Handle, values: Array, mask: Array | None) -> None:
        """Write ``values`` in the active lanes."""
        located = self._locate(pointer, mask, values.dtype.itemsize, "store")
        if located is None:
            return
        active = (values if mask is None else values[mask]).ravel()
        for region, addresses, lanes in located.parts:
            self.hazards.check_store(region, addresses, active if lanes is None else active[lanes])
            if self.watcher is not None:
                self.watcher.note(region, addresses, values.dtype.itemsize, writer=self.number)
        everything = np.ones(pointer.data.shape, bool) if mask is None else mask
        native.store(located.addresses, values, everything)
        if active.size > 1:
            self._check_collisions(located, values, everything)

    def masked_fill(self, pointer: Handle, *, has_other: bool) -> float | None:
        """Return the fill of a watched load's masked lanes, None for the kernel's own."""
        if self.watcher is None:
            return None
        return self.watcher.note_masked_load(self.region_of(pointer.data), has_other=has_other)

    def _check_collisions(self, located: LocatedAccess, values: Array, lanes: Array) -> None:
        """Read a store back: a lane with another value than it wrote shares its element with another lane."""
        held = native.load(located.addresses, lanes, values, values.dtype)
        if held.tobytes() == values.tobytes():
            return
        bits = f"u{values.dtype.itemsize}"
        lost = (held.view(bits) != values.view(bits))[lanes].ravel()
        for region, addresses, part in located.parts:
            colliding = lost if part is None else lost[part]
            if colliding.any():
                self.hazards.report_collision(region, addresses[colliding], int(colliding.sum()))

    def atomic(
        self,
        pointer: Handle,
        mask: Array | None,
        itemsize: int,
        *,
        acquire: bool,
        release: bool,
        reads: bool = True,
        writes: bool = True,
    ) -> Array | None:
        """Check an atomic access; return its addresses in this process, None if no lane is active."""
        located = self._locate(pointer, mask, itemsize, "atomic")
        if located is None:
            return None
        order = (acquire, release) if located.addresses.size == 1 else (False, False)
        for region, addresses, _ in located.parts:
            self.hazards.check_atomic(region, addresses, itemsize, *order, reads=reads, writes=writes)
            if self.watcher is not None and reads:
                self.watcher.note(region, addresses, itemsize)
            if self.watcher is not None and writes:
                self.watcher.note(region, addresses, itemsize, writer=self.number)
        return located.addresses

    def _locate(self, pointer: Handle, mask: Array | None, itemsize: int, access: AccessKind) -> LocatedAccess | None:
        data = pointer.data
        active = data if mask is None else data[mask]
        if active.size == 1:
            low = high = int(active.item())
        elif active.size:
            low, high = int(active.min()), int(active.max())
        else:
            return None
        if self.deadline is not None and time.monotonic() > self.deadline:
            raise ProgramDeadline
        if pointer.wrapped is not None:
            self._report_wrap(pointer, pointer.wrapped, mask, access)
        is_promised_load = access == "load" and isinstance(pointer.undefined, PromiseTaint)  # what it loads is tainted
        if pointer.undefined is not None and not is_promised_load:
            self.report_undefined(pointer, mask, f"the address of the {access}", pointer)
        region = self.regions.get(low >> TAG_SHIFT)
        if (low | high) & (itemsize - 1):
            address = low if low & (itemsize - 1) else high
            where = f"address {address:#x}" if region is None else f"{region.name}, byte {address - region.start},"
            raise InterpretedCheckError(
                f"{access} of {where} is not aligned to its {itemsize} bytes, which a GPU does not allow"
            )
        if region is not None and region.start <= low and high + itemsize <= region.end:
            if region.elements is not None:
                self._check_gaps(region, active.ravel(), itemsize, access)
            return LocatedAccess(data + region.delta, ((region, active.ravel(), None),))
        return self._locate_lanes(data, active.ravel(), mask, itemsize, access)

    def _locate_lanes(
        self, data: Array, active: Array, mask: Array | None, itemsize: int, access: AccessKind
    ) -> LocatedAccess:
        """Group the active lanes by argument, where they do not all lie in one view."""
        deltas = np.zeros(active.shape, np.uint64)
        parts = []
        numbers = active >> np.uint64(TAG_SHIFT)
        for number in np.unique(numbers).tolist():
            lanes = numbers == number
            addresses = active[lanes]
            region = self.regions.get(number)
            if region is None:
                self.strays.update(np.unique(addresses)[:_MOST_STRAYS].tolist())
                raise self._stray_pointer_fault(addresses, access)
            self._check_extent(region, addresses, itemsize, access, active.size, mask is not None)
            deltas[lanes] = region.delta
            parts.append((region, addresses, lanes))
        if mask is None:
            return LocatedAccess(data + deltas.reshape(data.shape), tuple(parts))
        moved = data.copy()
        moved[mask] += deltas
        return LocatedAccess(moved, tuple(parts))

    def _stray_pointer_fault(self, addresses: Array, access: AccessKind) -> AccessFault:
        text = (
            f"{access} at address {int(addresses[0]):#x}, which lies in no argument of the launch. Program "
            f"{self.findings.program}, {plural(addresses.size, 'active lane')}. A tensor whose address the kernel "
            "computes or reads must be alive, or an argument"
        )
        return AccessFault(None, addresses.size, text)

    def _check_extent(
        self, region: MemoryRegion, addresses: Array, itemsize: int, access: AccessKind, active: int, masked: bool
    ) -> None:
        """Report the lanes outside a view; ``active`` is the number of unmasked lanes of the whole access.

        Raises:
            AccessFault: a lane is outside the storage, or inside another argument.
        """
        outside = (addresses < np.uint64(region.start)) | (addresses + np.uint64(itemsize) > np.uint64(region.end))
        if region.elements is not None:
            self._check_gaps(region, addresses[~outside], itemsize, access)
        if not outside.any():
            return
        strays, storage_start = addresses[outside], np.uint64(region.storage_start)
        beyond = (strays < storage_start) | (strays + np.uint64(itemsize) > np.uint64(region.storage_end))
        hits = [(strays[beyond], "")]
        for other in region.storage.regions:
            offsets = strays - storage_start  # of strays in the storage; those beyond have raised
            first = other.spec.offset_bytes
            inside = (offsets >= first) & (offsets < first + other.spec.span_bytes)
            if other is not region:
                hits.append((strays[inside], f" inside {other.name}"))
        for lanes, where in hits:
            if lanes.size:
                raise self._out_of_bounds_fault(region, lanes, where, access, active, masked)
        self._report_outside(region, strays, f"{access} outside the view of {region.name}, but inside its storage")

    def _out_of_bounds_fault(
        self, region: MemoryRegion, strays: Array, where: str, access: AccessKind, active: int, masked: bool
    ) -> AccessFault:
        spec, first = region.spec, int(strays[0])
        size = spec.span_bytes // spec.itemsize
        layout = "" if size == math.prod(spec.shape) else f"; shape {spec.shape}, strides {spec.strides}"
        extent = f"elements 0 to {size - 1} ({spec.span_bytes} bytes{layout})" if size else "no elements"
        text = (
            f"{access} of {region.name} out of bounds: element {region.element_index(first)} "
            f"(byte {first - region.start}){where}; {region.name} has {extent}. Program {self.findings.program}, "
            f"{strays.size} of {plural(active, 'active lane')}"
        )
        return AccessFault(region.name, strays.size, text, access, masked=masked)

    def _check_gaps(self, region: MemoryRegion, addresses: Array, itemsize: int, access: AccessKind) -> None:
        """Report accesses between the elements of a view, all inside its span."""
        elements = region.elements
        assert elements is not None
        places = region.element_indices(addresses)
        held = elements[places]
        for step in range(1, itemsize // region.spec.itemsize):
            held &= elements[places + step]
        if not held.all():
            self._report_outside(region, addresses[~held], f"{access} in a gap of the view of {region.name}")

    def _report_outside(self, region: MemoryRegion, strays: Array, what: str) -> None:
        if not region.storage.is_whole:
            raise StorageIncomplete
        detail = f"{what}: element {region.element_index(int(strays[0]))}"
        self.findings.add(FindingKind.OUTSIDE_VIEW, region.name, detail, strays.size)

    def _report_wrap(self, pointer: Handle, taint: Taint, mask: Array | None, access: AccessKind) -> None:
        lanes = taint.lanes if mask is None else taint.lanes & mask
        if lanes.any():
            name = self.argument_of(pointer)
            what = f"this {access} of {name or 'an unknown pointer'}"
            detail = f"a 32-bit offset overflowed before {what}: compute it in tl.int64"
            self.findings.add(FindingKind.ADDRESS_OVERFLOW, name, detail, int(lanes.sum()), line=taint.place)

    def region_of(self, addresses: Array) -> MemoryRegion | None:
        """Return the view that the kernel's addresses derive from, by the first of them."""
        return self.regions.get(int(addresses.flat[0]) >> TAG_SHIFT) if addresses.size else None

    def argument_of(self, pointer: Handle) -> str | None:
        """Return the name of the argument that pointers derive from."""
        region = self.region_of(pointer.data)
        return None if region is None else region.name

    def report_undefined(self, value: Handle, mask: Array | None, use: str, pointer: Handle | None = None) -> None:
        """Report a use of lanes that are undefined on a GPU, or not as promised; ``pointer`` gives the argument."""
        taint = value.undefined
        if taint is None:
            return
        lanes = taint.lanes if mask is None else taint.lanes & mask
        if lanes.any():
            name = None if pointer is None else self.argument_of(pointer)
            is_promise = isinstance(taint, PromiseTaint)
            cause = taint.cause if is_promise else f"{taint.cause} is undefined on a GPU"
            detail = f"{cause}; {use}{f' of {name}' if name else ''} depends on it"
            kind = FindingKind.FALSE_PROMISE if is_promise else FindingKind.UNDEFINED_VALUE
            argument = None if is_promise else name  # a promise is about a value
            self.findings.add(kind, argument, detail, int(lanes.sum()), line=taint.place)
