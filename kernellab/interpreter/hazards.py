"""The memory of a launch, its shadow state, and hazards of accesses in bounds.

Hazards are races, reads of unwritten memory and overlapping arguments.

A kernel sees addresses of its own numbering: the top 16 bits are the number of an argument, the rest its position
around the middle of 256 TiB. So after offsets, casts to integers, selects and stores in memory, an address still shows
the argument it derives from, even outside of it. The low 16 bits equal those of the address in the notebook, so that
alignment is the same.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Literal

import numpy as np
from triton._C.libtriton import interpreter as native

from kernellab.interpreter.faults import Findings
from kernellab.interpreter.ordering import MANY, Ordering, UpdaterSets
from kernellab.interpreter.values import Array
from kernellab.launch.arguments import Launch, TensorSpec, tensors_of
from kernellab.launch.recorded_values import Program, program_at
from kernellab.launch.run import FindingKind, Severity

ShadowArray = Literal["writers", "readers", "updaters", "unwritten", "members"]
_ENTRIES: dict[ShadowArray, type] = {
    "writers": np.int32,
    "readers": np.int32,
    "updaters": np.int32,
    "unwritten": bool,
    "members": np.uint64,
}


@dataclass(slots=True)
class Shadow:
    """Arrays with one entry per granule of ``1 << shift`` bytes of a storage, from their first use on.

    ``writers`` holds the `Ordering.tag` of the plain store that last wrote the granule, 0 for none; ``readers``
    likewise of the plain load since, `MANY` for several programs; ``updaters`` the number of a set of `UpdaterSets`.
    ``unwritten`` is true where the contents count as never written. ``members`` has bit k set where an element of
    argument k of this storage lies.
    """

    size_bytes: int
    shift: int
    is_written: bool = False
    arrays: dict[ShadowArray, Array] = field(default_factory=dict)

    def granules(self, offsets: Array, itemsize: int) -> Array:
        """Return the granules of elements at byte ``offsets``, in order: 1 or more, equally many, per element."""
        if itemsize < 1 << self.shift:
            self._refine(itemsize.bit_length() - 1)
        index = (offsets >> np.uint64(self.shift)).astype(np.int64)
        per_element = itemsize >> self.shift
        if per_element == 1:
            return index
        expanded: Array = (index[:, None] + np.arange(per_element)).ravel()
        return expanded

    def granules_per_element(self, itemsize: int) -> int:
        """Return the number of granules of an element of ``itemsize`` bytes."""
        return max(1, itemsize >> self.shift)

    def ensure(self, name: ShadowArray) -> Array:
        """Return an array by its name; it starts as zeros."""
        if name not in self.arrays:
            self.arrays[name] = _sparse_zeros(-(-self.size_bytes >> self.shift), _ENTRIES[name])
        return self.arrays[name]

    def view(self, name: ShadowArray, spec: TensorSpec) -> Array:
        """Return the entries of the elements of a tensor, with a last axis for the granules of one element."""
        array, per_element = self.ensure(name), self.granules_per_element(spec.itemsize)
        strides = (*(stride * per_element * array.itemsize for stride in spec.strides), array.itemsize)
        start = array[spec.offset_bytes >> self.shift :]
        return np.lib.stride_tricks.as_strided(start, (*spec.shape, per_element), strides)

    def _refine(self, shift: int) -> None:
        """Repeat the entries of each array; pages of zeros take no memory."""
        factor = 1 << (self.shift - shift)
        self.shift = shift
        for name, array in self.arrays.items():
            places = np.flatnonzero(array)
            self.arrays[name] = finer = _sparse_zeros(array.size * factor, array.dtype)
            for step in range(factor):
                finer[places * factor + step] = array[places]


_LARGE_BYTES = 1 << 24


def _sparse_zeros(length: int, dtype: Any) -> Array:
    """Return zeros; a large array takes memory only for the pages that are written."""
    size_bytes = length * np.dtype(dtype).itemsize
    if size_bytes < _LARGE_BYTES:
        return np.zeros(length, dtype)
    memory = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    zeros: Array = np.frombuffer(memory, dtype)
    return zeros


TAG_SHIFT = 48
_MIDDLE = 1 << (TAG_SHIFT - 1)
_LOW_BITS = 0xFFFF
_ADDRESS_SPACE = 1 << 64
_MOST_MEMBERS = 64


@dataclass(slots=True)
class Storage:
    """One storage in this process: its address here and in the notebook, in bytes; see `StorageSpec`."""

    address: int
    size_bytes: int
    notebook_address: int
    is_whole: bool
    shadow: Shadow
    regions: list[MemoryRegion] = field(default_factory=list)


@dataclass(slots=True)
class MemoryRegion:
    """The view of one argument in the kernel's addresses, from the first to the last element.

    ``delta`` turns such an address into one of this process (modulo 2**64). ``bit`` is its bit in `Shadow.members`.
    ``elements`` is true where an element of the view lies, None where it has no gaps.
    """

    name: str
    spec: TensorSpec
    storage: Storage
    start: int
    end: int
    bit: int
    delta: np.uint64
    elements: Array | None
    same_views: tuple[str, ...] = ()

    @property
    def storage_start(self) -> int:
        """The kernel's address of the first byte of the storage."""
        return self.start - self.spec.offset_bytes

    @property
    def storage_end(self) -> int:
        """The kernel's address after the last byte of the storage."""
        return self.storage_start + self.storage.size_bytes

    def element_index(self, address: int) -> int:
        """Return the offset of an address from the pointer, in elements, rounded down."""
        return (address - self.start) // self.spec.itemsize

    def element_indices(self, addresses: Array) -> Array:
        """Return the offsets of addresses from the pointer, in elements, rounded down."""
        indices: Array = (addresses - np.uint64(self.start)).astype(np.int64) // self.spec.itemsize
        return indices


def regions_of(launch: Launch, base_address: int) -> tuple[tuple[Storage, ...], dict[int, MemoryRegion]]:
    """Return the storages of a launch mapped at ``base_address``, and its regions by number."""
    tensors = [tensor for name, spec in launch.arguments for tensor in tensors_of(name, spec)]
    storages: list[Storage] = []
    for i, place in enumerate(launch.storages):
        itemsizes = [tensor.itemsize for _, tensor in tensors if tensor.storage == i]
        shadow = Shadow(place.size_bytes, shift=min(itemsizes, default=1).bit_length() - 1)
        address = base_address + place.offset_bytes
        storages.append(Storage(address, place.size_bytes, place.address, place.is_whole, shadow))
    regions: dict[int, MemoryRegion] = {}
    for number, (name, spec) in enumerate(tensors, start=1):
        storage = storages[spec.storage]
        start = (number << TAG_SHIFT) + _MIDDLE + ((storage.notebook_address + spec.offset_bytes) & _LOW_BITS)
        delta = np.uint64((storage.address + spec.offset_bytes - start) % _ADDRESS_SPACE)
        end, bit = start + spec.span_bytes, len(storage.regions)
        regions[number] = MemoryRegion(name, spec, storage, start, end, bit, delta, _elements(spec))
        storage.regions.append(regions[number])
    for storage in storages:
        _mark_members(storage)
    for region in regions.values():
        if region.spec.span_bytes and not launch.uninitialised.isdisjoint([region.name, region.name.split("[")[0]]):
            region.storage.shadow.view("unwritten", region.spec)[...] = True
    return tuple(storages), regions


def _elements(spec: TensorSpec) -> Array | None:
    """Mark the places of a view's span that hold an element; None if all do."""
    places = spec.span_bytes // spec.itemsize
    if places <= 1 or _is_dense(spec):
        return None
    elements = _sparse_zeros(places, bool)
    np.lib.stride_tricks.as_strided(elements, spec.shape, spec.strides)[...] = True
    return None if elements.all() else elements


def _is_dense(spec: TensorSpec) -> bool:
    """Whether a view has no gaps: each stride is at most the extent of the axes inside it."""
    extent = 1
    for stride, size in sorted(zip(spec.strides, spec.shape, strict=True)):
        if size > 1 and stride:
            if stride > extent:
                return False
            extent += (size - 1) * stride
    return True


_view_of = attrgetter("offset_bytes", "shape", "strides", "itemsize")


def _overlap(one: TensorSpec, other: TensorSpec) -> bool:
    first, last = sorted((one, other), key=lambda spec: spec.offset_bytes)
    return last.offset_bytes < first.offset_bytes + first.span_bytes and last.span_bytes > 0


def _mark_members(storage: Storage) -> None:
    """Record which elements belong to which argument where views of a storage overlap."""
    overlapping = False
    for region in storage.regions:
        others = [other for other in storage.regions if other is not region and _overlap(region.spec, other.spec)]
        region.same_views = tuple(other.name for other in others if _view_of(region.spec) == _view_of(other.spec))
        overlapping = overlapping or len(region.same_views) < len(others)
    if overlapping and len(storage.regions) <= _MOST_MEMBERS:
        for region in storage.regions:
            if region.spec.span_bytes:
                entries = storage.shadow.view("members", region.spec)
                entries |= np.uint64(1 << region.bit)


@dataclass(slots=True)
class _Access:
    """An access at the kernel's addresses in one argument, with the granules of each element, in order."""

    region: MemoryRegion
    addresses: Array
    shadow: Shadow
    granules: Array
    per_element: int

    def entries(self, name: ShadowArray) -> Array | None:
        """Return the entries of the granules in an array of the shadow, None if all are zero."""
        if name not in self.shadow.arrays:
            return None
        entries = self.shadow.arrays[name][self.granules]
        return entries if entries.any() else None

    def lanes(self, marked: Array) -> Array:
        """Return the lanes with a marked granule."""
        if self.per_element == 1:
            return marked
        lanes: Array = np.logical_or.reduce(marked.reshape(-1, self.per_element), axis=1)
        return lanes

    def element(self, lanes: Array) -> int:
        """Return the index of the element of the first of some lanes."""
        return self.region.element_index(int(self.addresses[int(np.argmax(lanes))]))


def access_of(region: MemoryRegion, addresses: Array, itemsize: int) -> _Access:
    """Return an access with the granules that it touches."""
    shadow = region.storage.shadow
    granules = shadow.granules(addresses - np.uint64(region.storage_start), itemsize)
    return _Access(region, addresses, shadow, granules, shadow.granules_per_element(itemsize))


_CLEARED: tuple[ShadowArray, ...] = ("readers", "updaters", "unwritten")


class Hazards:
    """Finds races, reads of unwritten memory and overlaps, program after program.

    Programs of a launch run in any order on a GPU: a write by one and an access by another are a race unless an atomic
    orders them.
    """

    def __init__(self, findings: Findings, grid: Program) -> None:
        self.findings = findings
        self._grid = grid
        self._ordering = Ordering()
        self._updates = UpdaterSets(self._ordering)

    def begin_program(self) -> None:
        """Start the next program, in running order."""
        self._ordering.begin_program()

    def check_load(self, region: MemoryRegion, addresses: Array, itemsize: int, *, volatile: bool = False) -> None:
        """Check a load at the kernel's ``addresses``, of ``itemsize`` bytes each; a volatile one may race."""
        access = access_of(region, addresses, itemsize)
        self._check_read(access, volatile=volatile)
        if volatile:
            return
        self._check_updaters(access, "reads")
        readers, tag = access.shadow.ensure("readers"), self._ordering.tag
        foreign = self._ordering.unordered_entries(readers[access.granules])
        readers[access.granules] = np.where(foreign, MANY, tag) if foreign.any() else tag

    def check_store(self, region: MemoryRegion, addresses: Array, values: Array) -> None:
        """Check a plain store of ``values`` at the kernel's ``addresses``, and record its program as the writer."""
        access = access_of(region, addresses, values.dtype.itemsize)
        shadow, granules = access.shadow, access.granules
        shadow.is_written = True
        self._check_writers(access, values)
        shadow.ensure("writers")[granules] = self._ordering.tag
        self._check_readers(access, "writes")
        self._check_updaters(access, "writes")
        for name in _CLEARED:
            if name in shadow.arrays:
                shadow.arrays[name][granules] = 0
        self.check_overlaps(access)

    def check_overlaps(self, access: _Access) -> None:
        """Report a store to elements that belong to other arguments, too."""
        region, arrays = access.region, access.shadow.arrays
        if "members" in arrays:
            self._check_members(access, arrays["members"][access.granules])
        elif region.same_views:
            detail = f"{region.name} and {', '.join(region.same_views)} are the same memory"
            self.findings.add(FindingKind.OVERLAP, region.name, detail, 1, severity=Severity.NOTE)

    def check_atomic(
        self,
        region: MemoryRegion,
        addresses: Array,
        itemsize: int,
        acquire: bool,
        release: bool,
        *,
        reads: bool,
        writes: bool,
    ) -> None:
        """Check an atomic access; a scalar one may acquire and release.

        It orders accesses at other addresses. It does not order a plain access to its own element by another program:
        the atomic may run before or after that.
        """
        access = access_of(region, addresses, itemsize)
        shadow, granules = access.shadow, access.granules
        if reads:
            self._check_read(access)
        if writes:
            self._check_readers(access, "updates")
        tag = self._ordering.tag  # taken before the release, which includes this update
        if acquire or release:
            address = int((addresses + region.delta)[0])  # in this process, the same through each argument
            self._ordering.synchronise(address, acquire=acquire, release=release)
        if writes:
            updaters = shadow.ensure("updaters")
            updaters[granules] = self._updates.add_segment(updaters[granules], tag)
            shadow.is_written = True
            if "unwritten" in shadow.arrays:
                shadow.arrays["unwritten"][granules] = False

    def report_collision(self, region: MemoryRegion, addresses: Array, lanes: int) -> None:
        """Report lanes of one store that wrote different values to one element."""
        element = region.element_index(int(addresses[0]))
        detail = f"lanes of one store write different values to element {element} of {region.name}"
        self.findings.add(FindingKind.RACE, region.name, detail, lanes)

    def _check_read(self, access: _Access, *, volatile: bool = False) -> None:
        fresh = access.entries("unwritten")
        if fresh is not None:
            lanes, name = access.lanes(fresh), access.region.name
            detail = f"element {access.element(lanes)} of {name} is read before anything wrote it"
            self.findings.add(FindingKind.UNINITIALISED_READ, name, detail, int(lanes.sum()))
        if not volatile:
            self._check_writers(access, None)

    def _check_writers(self, access: _Access, values: Array | None) -> None:
        """Report elements last written by another program, unordered; ``values`` is None for a read."""
        tags = access.entries("writers")
        if tags is None:
            return
        lanes = access.lanes(self._ordering.unordered_entries(tags))
        if not lanes.any():
            return
        written = f"program {self._program(int(tags.reshape(lanes.size, -1)[int(np.argmax(lanes))].max()))} wrote"
        if values is None:
            self._report_race(access, lanes, "reads", written)
            return
        addresses = access.addresses[lanes] + access.region.delta
        before = native.load(addresses, np.ones(addresses.shape, bool), np.zeros_like(values[lanes]), values.dtype)
        if before.tobytes() == np.ascontiguousarray(values[lanes]).tobytes():
            self._report_race(access, lanes, "writes", f"{written} with the same value", Severity.NOTE)
        else:
            self._report_race(access, lanes, "writes", f"{written} with another value")

    def _check_readers(self, access: _Access, verb: str) -> None:
        """Report a change of an element that another program read: on a GPU it may have read the new value."""
        tags = access.entries("readers")
        if tags is None:
            return
        foreign = self._ordering.unordered_entries(tags)
        if foreign.any():
            reader = int(tags[int(np.argmax(foreign))])
            name = "other programs" if reader == MANY else f"program {self._program(reader)}"
            self._report_race(access, access.lanes(foreign), verb, f"{name} read")

    def _check_updaters(self, access: _Access, verb: str) -> None:
        """Report a plain access to an element that another program updated by an unordered atomic."""
        numbers = access.entries("updaters")
        if numbers is None:
            return
        unordered = self._updates.unordered_segments(numbers)
        if unordered:
            foreign = np.isin(numbers, list(unordered))
            updater = self._program(unordered[int(numbers[int(np.argmax(foreign))])])
            self._report_race(access, access.lanes(foreign), verb, f"program {updater} updated by an atomic")

    def _report_race(
        self, access: _Access, lanes: Array, verb: str, other: str, severity: Severity = Severity.WARNING
    ) -> None:
        name = access.region.name
        place = f"program {self.findings.program} {verb} element {access.element(lanes)} of {name}"
        detail = f"{place}, which {other}; no atomic orders the two"
        self.findings.add(FindingKind.RACE, name, detail, int(lanes.sum()), severity=severity)

    def _check_members(self, access: _Access, members: Array) -> None:
        region = access.region
        for other in region.storage.regions:
            lanes = access.lanes(members & np.uint64(1 << other.bit) != 0)
            if other is not region and lanes.any():
                severity = Severity.NOTE if other.name in region.same_views else Severity.WARNING
                detail = f"store through {region.name} (element {access.element(lanes)}) changes {other.name}"
                self.findings.add(FindingKind.OVERLAP, region.name, detail, int(lanes.sum()), severity=severity)

    def _program(self, tag: int) -> Program:
        return program_at(self._grid, self._ordering.program_of(tag))
