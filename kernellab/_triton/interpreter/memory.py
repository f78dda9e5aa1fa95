"""Every load, store and atomic of an interpreted launch: checked first, then done.

The rules: the extent of an argument is the span of its view. An address outside the view but inside its storage is a
finding; one outside the storage, or inside another argument, is a fault, and nothing of that access is done.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from triton._C.libtriton import interpreter as native

from kernellab._triton.interpreter.faults import DeadlinePassed, fault_of, stray_pointer
from kernellab._triton.interpreter.findings import Findings, Program
from kernellab._triton.interpreter.handles import Array, Handle
from kernellab._triton.interpreter.regions import TAG_SHIFT, Region, regions_of
from kernellab._triton.interpreter.shadow import Ordering
from kernellab.packed import FindingKind, Launch, Severity


class Access(StrEnum):
    LOAD = "load"
    STORE = "store"
    ATOMIC = "atomic"


@dataclass(frozen=True, slots=True)
class Located:
    """Where an access goes: the addresses in this process of all lanes, and the active lanes of each region.

    A part is (region, the kernel's addresses, which of the active lanes they are: None for all).
    """

    addresses: Array
    parts: tuple[tuple[Region, Array, Array | None], ...]


class CheckedMemory:
    """The memory of one launch, mapped at ``base_address``, as its programs see it."""

    def __init__(self, launch: Launch, base_address: int) -> None:
        self.storages, self.regions = regions_of(launch, base_address)
        self.findings = Findings()
        self.deadline: float | None = None
        self.program: Program = (0, 0, 0)
        self._grid = launch.grid
        self._number = 0
        self._ordering = Ordering()

    def begin_program(self, number: int, program: Program) -> None:
        self._number = number
        self.program = program
        self._ordering.begin_program()

    def load(self, pointer: Handle, mask: Array | None, other: Array | None, dtype: Any, *, volatile: bool) -> Array:
        """Return the elements behind the active lanes, ``other`` (or zero) in the rest."""
        located = self._locate(pointer, mask, dtype.itemsize, Access.LOAD)
        if other is None:
            other = np.zeros(pointer.data.shape, dtype)
        if located is None:
            return np.array(other, dtype=dtype)
        for region, addresses, _ in located.parts:
            self._before_read(region, addresses, dtype.itemsize, ordered=volatile)
        lanes = np.ones(pointer.data.shape, bool) if mask is None else mask
        result: Array = native.load(located.addresses, lanes, other, dtype)
        return result

    def store(self, pointer: Handle, values: Array, mask: Array | None) -> None:
        """Write ``values`` behind the active lanes."""
        located = self._locate(pointer, mask, values.dtype.itemsize, Access.STORE)
        if located is None:
            return
        active = values if mask is None else values[mask]
        for region, addresses, lanes in located.parts:
            written = active.ravel() if lanes is None else active.ravel()[lanes]
            self._before_write(region, addresses, written)
        native.store(located.addresses, values, np.ones(pointer.data.shape, bool) if mask is None else mask)

    def atomic(
        self, pointer: Handle, mask: Array | None, itemsize: int, *, acquire: bool, release: bool, reads: bool = True
    ) -> Array | None:
        """Check an atomic access; return the addresses in this process of its lanes, None where none is active."""
        located = self._locate(pointer, mask, itemsize, Access.ATOMIC)
        if located is None:
            return None
        if located.addresses.size == 1:
            self._ordering.synchronise(int(located.addresses.item()), self._number, acquire=acquire, release=release)
        for region, addresses, _ in located.parts:
            if reads:
                self._before_read(region, addresses, itemsize, ordered=False)
            region.storage.shadow.touched = True
            unwritten = region.storage.shadow.unwritten
            if unwritten is not None:
                unwritten[self._granules(region, addresses, itemsize)] = False
        return located.addresses

    def _locate(self, pointer: Handle, mask: Array | None, itemsize: int, access: Access) -> Located | None:
        data = pointer.data
        active = data if mask is None else data[mask]
        if active.size == 1:
            low = high = int(active.item())
        elif active.size:
            low, high = int(active.min()), int(active.max())
        else:
            return None
        if self.deadline is not None and time.monotonic() > self.deadline:
            raise DeadlinePassed
        if pointer.wrapped is not None:
            self._report_wrap(pointer, mask, access)
        region = self.regions.get(low >> TAG_SHIFT)
        if region is not None and region.start <= low and high + itemsize <= region.end:
            return Located(data + region.delta, ((region, active.ravel(), None),))
        return self._locate_lanes(data, active.ravel(), mask, itemsize, access)

    def _locate_lanes(self, data: Array, active: Array, mask: Array | None, itemsize: int, access: Access) -> Located:
        """Sort the active lanes by argument, where they do not all lie within the view of one."""
        deltas = np.zeros(active.shape, np.uint64)
        parts = []
        numbers = active >> np.uint64(TAG_SHIFT)
        for number in np.unique(numbers).tolist():
            lanes = numbers == number
            region, addresses = self._region_of(int(number), active[lanes], access)
            self._check_extent(region, addresses, itemsize, access, active.size, mask)
            deltas[lanes] = region.delta + (addresses - active[lanes])
            parts.append((region, addresses, lanes))
        if mask is None:
            return Located(data + deltas.reshape(data.shape), tuple(parts))
        moved = data.copy()
        moved[mask] += deltas
        return Located(moved, tuple(parts))

    def _region_of(self, number: int, addresses: Array, access: Access) -> tuple[Region, Array]:
        """Return the argument of a number, and the addresses in its numbering.

        Addresses of the notebook, such as a table of ``data_ptr()`` holds, are taken for the argument they lie in.
        """
        region = self.regions.get(number)
        if region is not None:
            return region, addresses
        first = int(addresses[0])
        for storage in self.storages:
            start = storage.notebook_address
            if storage.regions and start <= first < start + storage.size_bytes:
                region = _region_at(storage.regions, first - start)
                return region, addresses + np.uint64((region.storage_start - start) % (1 << 64))
        raise stray_pointer(first, addresses.size, access, self.program)

    def _check_extent(
        self, region: Region, addresses: Array, itemsize: int, access: Access, active: int, mask: Array | None
    ) -> None:
        outside = (addresses < np.uint64(region.start)) | (addresses + np.uint64(itemsize) > np.uint64(region.end))
        if not outside.any():
            return
        strays = addresses[outside]
        beyond = (strays < np.uint64(region.storage_start)) | (
            strays + np.uint64(itemsize) > np.uint64(region.storage_end)
        )
        if beyond.any():
            lanes = strays[beyond]
            raise fault_of(region, lanes, access, active, self.program, masked=mask is not None)
        for other in region.storage.regions:
            shift = np.uint64((other.start - other.spec.offset_bytes - region.storage_start) % (1 << 64))
            inside = (strays + shift >= np.uint64(other.start)) & (strays + shift < np.uint64(other.end))
            if other is not region and inside.any():
                masked = mask is not None
                raise fault_of(region, strays[inside], access, active, self.program, masked=masked, inside=other)
        first = int(strays[0])
        self._find(
            FindingKind.OUTSIDE_VIEW,
            Severity.WARNING,
            region,
            f"{access} outside the view of {region.name}, but inside its storage: element {region.element(first)}",
            strays.size,
        )

    def _before_read(self, region: Region, addresses: Array, itemsize: int, *, ordered: bool) -> None:
        shadow = region.storage.shadow
        if shadow.writers is None and shadow.unwritten is None:
            return
        index = self._granules(region, addresses, itemsize)
        if shadow.unwritten is not None and (fresh := shadow.unwritten[index]).any():
            each = shadow.per_element(itemsize)
            first = int(addresses[int(np.argmax(fresh)) // each])
            self._find(
                FindingKind.UNINITIALISED_READ,
                Severity.WARNING,
                region,
                f"element {region.element(first)} of {region.name} is read before anything wrote it",
                int(fresh.sum()) // each,
            )
        if shadow.writers is not None and not ordered:
            self._check_writers(region, addresses, index, itemsize, None)

    def _before_write(self, region: Region, addresses: Array, values: Array) -> None:
        shadow = region.storage.shadow
        shadow.touched = True
        itemsize = values.dtype.itemsize
        index = self._granules(region, addresses, itemsize)
        writers = shadow.ensure_writers()
        self._check_writers(region, addresses, index, itemsize, values)
        writers = shadow.ensure_writers()
        writers[index] = self._number + 1
        if shadow.unwritten is not None:
            shadow.unwritten[index] = False
        if shadow.members is not None:
            self._check_members(region, addresses, index, itemsize)
        elif region.twins:
            names = ", ".join(region.twins)
            self._find(FindingKind.OVERLAP, Severity.NOTE, region, f"{region.name} and {names} are the same memory", 1)

    def _check_writers(
        self, region: Region, addresses: Array, index: Array, itemsize: int, values: Array | None
    ) -> None:
        """Compare the writers of granules with this program; ``values`` is None for a read."""
        shadow = region.storage.shadow
        writers = shadow.ensure_writers()[index]
        foreign = (writers != 0) & (writers != self._number + 1)
        if not foreign.any():
            return
        for writer in np.unique(writers[foreign]).tolist():
            if self._ordering.knows(writer - 1):
                foreign &= writers != writer
        if foreign.any():
            self._report_race(region, addresses, foreign, writers, itemsize, values)

    def _report_race(
        self, region: Region, addresses: Array, foreign: Array, writers: Array, itemsize: int, values: Array | None
    ) -> None:
        each = region.storage.shadow.per_element(itemsize)
        lanes = foreign.reshape(-1, each).any(axis=1)
        severity, difference = Severity.WARNING, ""
        if values is not None:
            held = native.load(
                addresses[lanes] + region.delta,
                np.ones(int(lanes.sum()), bool),
                np.zeros(int(lanes.sum()), values.dtype),
                values.dtype,
            )
            same = held.tobytes() == np.ascontiguousarray(values[lanes]).tobytes()
            severity = Severity.NOTE if same else Severity.WARNING
            difference = " with the same value" if same else " with another value"
        first = int(np.argmax(lanes))
        writer = self._program(int(writers.reshape(-1, each)[first].max()) - 1)
        element = region.element(int(addresses[first]))
        done = "reads" if values is None else "writes"
        detail = (
            f"program {self.program} {done} element {element} of {region.name}{difference}, which program {writer} "
            "wrote in the same launch without an atomic in between"
        )
        self._find(FindingKind.RACE, severity, region, detail, int(lanes.sum()))

    def _check_members(self, region: Region, addresses: Array, index: Array, itemsize: int) -> None:
        members = region.storage.shadow.ensure_members()[index]
        others = members & ~np.uint64(1 << region.bit % 64)
        for other in region.storage.regions:
            hit = others & np.uint64(1 << other.bit % 64) != 0
            if other is region or not hit.any():
                continue
            each = region.storage.shadow.per_element(itemsize)
            first = int(addresses[int(np.argmax(hit)) // each])
            severity = Severity.NOTE if other.name in region.twins else Severity.WARNING
            detail = f"store through {region.name} (element {region.element(first)}) changes {other.name}"
            self._find(FindingKind.OVERLAP, severity, region, detail, int(hit.sum()) // each)

    def _report_wrap(self, pointer: Handle, mask: Array | None, access: Access) -> None:
        wrapped = pointer.wrapped
        assert wrapped is not None
        lanes = wrapped.lanes if mask is None else wrapped.lanes & mask
        if not lanes.any():
            return
        address = int(np.broadcast_to(pointer.data, lanes.shape)[lanes][0])
        region = self.regions.get(address >> TAG_SHIFT)
        name = None if region is None else region.name
        detail = (
            f"a 32-bit offset overflowed before this {access} of {name or 'an unknown pointer'}: compute it in tl.int64"
        )
        self.findings.add(
            FindingKind.ADDRESS_OVERFLOW,
            Severity.WARNING,
            name,
            self.program,
            lambda: detail,
            int(lanes.sum()),
            wrapped.place,
        )

    def _granules(self, region: Region, addresses: Array, itemsize: int) -> Array:
        return region.storage.shadow.granules(addresses - np.uint64(region.storage_start), itemsize)

    def _program(self, number: int) -> Program:
        x, y, _ = self._grid
        return number % x, number // x % y, number // (x * y)

    def _find(self, kind: FindingKind, severity: Severity, region: Region, detail: str, lanes: int) -> None:
        self.findings.add(kind, severity, region.name, self.program, lambda: detail, lanes)


def _region_at(regions: list[Region], offset_bytes: int) -> Region:
    for region in regions:
        if region.spec.offset_bytes <= offset_bytes < region.spec.offset_bytes + region.spec.span_bytes:
            return region
    return regions[0]
