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
from typing import Any, Literal

import numpy as np
from triton._C.libtriton import interpreter as native

from kernellab.interpreter.faults import Findings, Program
from kernellab.interpreter.ordering import MANY, Order, Ordering, UpdaterSets
from kernellab.interpreter.values import Array
from kernellab.launch.arguments import Launch, StorageSpec, TensorSpec, tensors_of
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
    """Arrays with one entry per granule of ``1 << shift`` bytes of a storage. Each is None until first used.

    ``writers`` holds the `Ordering.tag` of the plain store that last wrote the granule, 0 for none; ``readers``
    likewise of the plain load since, `MANY` for several programs; ``updaters`` the number of a set of `UpdaterSets`.
    ``unwritten`` is true where the contents count as never written. ``members`` has bit k set where an element of
    argument k of this storage lies.
    """

    size_bytes: int
    shift: int
    writers: Array | None = None
    readers: Array | None = None
    updaters: Array | None = None
    unwritten: Array | None = None
    members: Array | None = None
    is_written: bool = field(default=False)

    @property
    def length(self) -> int:
        """The number of granules of the storage."""
        return -(-self.size_bytes >> self.shift)

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
        array: Array | None = getattr(self, name)
        if array is None:
            array = _sparse_zeros(self.length, _ENTRIES[name])
            setattr(self, name, array)
        return array

    def view(self, array: Array, spec: TensorSpec) -> Array:
        """Return the entries of the elements of a tensor, with a last axis for the granules of one element."""
        per_element, entry = self.granules_per_element(spec.itemsize), array.itemsize
        strides = (*(stride * per_element * entry for stride in spec.strides), entry)
        start = array[spec.offset_bytes >> self.shift :]
        return np.lib.stride_tricks.as_strided(start, (*spec.shape, per_element), strides)

    def _refine(self, shift: int) -> None:
        factor = 1 << (self.shift - shift)
        self.shift = shift
        for name in _ENTRIES:
            array = getattr(self, name)
            if array is not None:
                setattr(self, name, _repeat_entries(array, factor))


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


def _repeat_entries(array: Array, factor: int) -> Array:
    """Repeat each entry ``factor`` times; pages of zeros take no memory."""
    result = _sparse_zeros(array.size * factor, array.dtype)
    places = np.flatnonzero(array)
    for step in range(factor):
        result[places * factor + step] = array[places]
    return result


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
    elements: Array | None = None
    uninitialised: bool = False
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


def regions_of(launch: Launch, base_address: int) -> tuple[tuple[Storage, ...], dict[int, MemoryRegion]]:
    """Return the storages of a launch mapped at ``base_address``, and its regions by number."""
    tensors = [tensor for name, spec in launch.arguments for tensor in tensors_of(name, spec)]
    storages = tuple(_storage(spec, base_address, tensors, i) for i, spec in enumerate(launch.storages))
    regions: dict[int, MemoryRegion] = {}
    for number, (name, spec) in enumerate(tensors, start=1):
        region = _region(number, name, spec, storages[spec.storage])
        region.uninitialised = name in launch.uninitialised or name.split("[")[0] in launch.uninitialised
        regions[number] = region
        region.storage.regions.append(region)
    for storage in storages:
        _mark_members(storage)
        _mark_unwritten(storage)
    return storages, regions


def _storage(spec: StorageSpec, base: int, tensors: list[tuple[str, TensorSpec]], index: int) -> Storage:
    itemsizes = [tensor.itemsize for _, tensor in tensors if tensor.storage == index]
    shift = min(itemsizes, default=1).bit_length() - 1
    shadow = Shadow(spec.size_bytes, shift)
    return Storage(base + spec.offset_bytes, spec.size_bytes, spec.address, spec.is_whole, shadow)


def _region(number: int, name: str, spec: TensorSpec, storage: Storage) -> MemoryRegion:
    low_bits = (storage.notebook_address + spec.offset_bytes) & _LOW_BITS
    start = (number << TAG_SHIFT) + _MIDDLE + low_bits
    delta = np.uint64((storage.address + spec.offset_bytes - start) % _ADDRESS_SPACE)
    end, bit = start + spec.span_bytes, len(storage.regions)
    return MemoryRegion(name, spec, storage, start, end, bit, delta, _elements(spec))


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


def _offsets(region: MemoryRegion) -> tuple[int, int]:
    return region.spec.offset_bytes, region.spec.offset_bytes + region.spec.span_bytes


def _overlap(one: MemoryRegion, other: MemoryRegion) -> bool:
    (a, b), (c, d) = _offsets(one), _offsets(other)
    return a < d and c < b


def _same_view(one: MemoryRegion, other: MemoryRegion) -> bool:
    a, b = one.spec, other.spec
    return (a.offset_bytes, a.shape, a.strides, a.itemsize) == (b.offset_bytes, b.shape, b.strides, b.itemsize)


def _mark_members(storage: Storage) -> None:
    """Record which elements belong to which argument where views of a storage overlap."""
    overlapping = False
    for region in storage.regions:
        others = [other for other in storage.regions if other is not region and _overlap(region, other)]
        region.same_views = tuple(other.name for other in others if _same_view(region, other))
        overlapping = overlapping or len(region.same_views) < len(others)
    if not overlapping or len(storage.regions) > _MOST_MEMBERS:
        return
    for region in storage.regions:
        members = storage.shadow.ensure("members")
        spec = region.spec
        if spec.span_bytes:
            view = storage.shadow.view(members, spec)
            view |= np.uint64(1 << region.bit)


def _mark_unwritten(storage: Storage) -> None:
    for region in storage.regions:
        spec = region.spec
        if region.uninitialised and spec.span_bytes:
            unwritten = storage.shadow.ensure("unwritten")
            storage.shadow.view(unwritten, spec)[...] = True


class Hazards:
    """Finds races, reads of unwritten memory and overlaps, program after program.

    Programs of a launch run in any order on a GPU: a write by one and an access by another are a race unless an atomic
    orders them.
    """

    def __init__(self, findings: Findings, grid: Program) -> None:
        self.findings = findings
        self.program: Program = (0, 0, 0)
        self.number = 0
        self._grid = grid
        self._ordering = Ordering()
        self._updates = UpdaterSets(self._ordering)

    def begin_program(self, number: int, program: Program) -> None:
        """Start the program of this number, in running order."""
        self.number = number
        self.program = program
        self._ordering.begin_program()

    def check_load(self, region: MemoryRegion, addresses: Array, itemsize: int, *, volatile: bool = False) -> None:
        """Check a load at the kernel's ``addresses``, of ``itemsize`` bytes each; a volatile one may race."""
        index = _granules(region, addresses, itemsize)
        self._check_read(region, addresses, index, itemsize, volatile=volatile)
        if not volatile:
            if region.storage.shadow.updaters is not None:
                self._check_updaters(region, addresses, index, itemsize, "reads")
            self._note_reader(region, index)

    def _check_read(
        self, region: MemoryRegion, addresses: Array, index: Array, itemsize: int, *, volatile: bool
    ) -> None:
        shadow = region.storage.shadow
        if shadow.unwritten is not None and (fresh := shadow.unwritten[index]).any():
            per_element = shadow.granules_per_element(itemsize)
            element = region.element_index(int(addresses[int(np.argmax(fresh)) // per_element]))
            detail = f"element {element} of {region.name} is read before anything wrote it"
            self._report(
                FindingKind.UNINITIALISED_READ, Severity.WARNING, region, detail, int(fresh.sum()) // per_element
            )
        if shadow.writers is not None and not volatile:
            self._check_writers(region, addresses, index, itemsize, shadow.writers[index], None)

    def _check_updaters(self, region: MemoryRegion, addresses: Array, index: Array, itemsize: int, verb: str) -> None:
        """Report a plain access to an element that another program updated by an unordered atomic."""
        shadow = region.storage.shadow
        numbers = shadow.ensure("updaters")[index]
        if not numbers.any():
            return
        unordered = self._updates.unordered_segments(numbers)
        if unordered:
            per_element = shadow.granules_per_element(itemsize)
            lanes = np.isin(numbers, list(unordered)).reshape(-1, per_element).any(axis=1)
            first = int(np.argmax(lanes))
            updater = next(unordered[n] for n in numbers.reshape(-1, per_element)[first].tolist() if n in unordered)
            element, other = region.element_index(int(addresses[first])), self._program(updater)
            detail = f"program {self.program} {verb} element {element} of {region.name}, which program {other} updated"
            self._report_race(region, Severity.WARNING, f"{detail} by an atomic", int(lanes.sum()))

    def check_store(self, region: MemoryRegion, addresses: Array, values: Array) -> None:
        """Check a plain store of ``values`` at the kernel's ``addresses``, and record its program as the writer."""
        shadow = region.storage.shadow
        shadow.is_written = True
        itemsize = values.dtype.itemsize
        index = _granules(region, addresses, itemsize)
        writers = shadow.ensure("writers")
        self._check_writers(region, addresses, index, itemsize, writers[index], values)
        writers[index] = self._ordering.tag
        if shadow.readers is not None:
            self._check_readers(region, addresses, index, itemsize, "writes")
            shadow.readers[index] = 0
        if shadow.updaters is not None:
            self._check_updaters(region, addresses, index, itemsize, "writes")
            shadow.updaters[index] = 0
        if shadow.unwritten is not None:
            shadow.unwritten[index] = False
        if shadow.members is not None:
            self._check_members(region, addresses, index, itemsize)
        elif region.same_views:
            names = ", ".join(region.same_views)
            self._report(
                FindingKind.OVERLAP, Severity.NOTE, region, f"{region.name} and {names} are the same memory", 1
            )

    def check_atomic(
        self,
        region: MemoryRegion,
        addresses: Array,
        itemsize: int,
        *,
        reads: bool = True,
        writes: bool = True,
        order: Order | None = None,
    ) -> None:
        """Check an atomic access; a scalar one has an ``order``.

        It orders accesses at other addresses. It does not order a plain access to its own element by another program:
        the atomic may run before or after that.
        """
        shadow = region.storage.shadow
        index = _granules(region, addresses, itemsize)
        if reads:
            self._check_read(region, addresses, index, itemsize, volatile=False)
        if writes and shadow.readers is not None:
            self._check_readers(region, addresses, index, itemsize, "updates")
        tag = self._ordering.tag  # taken before the release, which includes this update
        if order is not None:
            self._ordering.synchronise(order)
        if not writes:
            return
        updaters = shadow.ensure("updaters")
        updaters[index] = self._updates.add_segment(updaters[index], tag)
        shadow.is_written = True
        if shadow.unwritten is not None:
            shadow.unwritten[index] = False

    def report_collision(self, region: MemoryRegion, addresses: Array, lanes: int) -> None:
        """Report lanes of one store that wrote different values to one element."""
        element = region.element_index(int(addresses[0]))
        detail = f"lanes of one store write different values to element {element} of {region.name}"
        self._report(FindingKind.RACE, Severity.WARNING, region, detail, lanes)

    def _note_reader(self, region: MemoryRegion, index: Array) -> None:
        readers = region.storage.shadow.ensure("readers")
        foreign = self._ordering.unordered_entries(readers[index])
        tag = self._ordering.tag
        readers[index] = np.where(foreign, MANY, tag) if foreign.any() else tag

    def _check_readers(self, region: MemoryRegion, addresses: Array, index: Array, itemsize: int, verb: str) -> None:
        """Report a change of an element that another program read: on a GPU it may have read the new value."""
        shadow = region.storage.shadow
        before = shadow.ensure("readers")[index]
        if not before.any():
            return
        foreign = self._ordering.unordered_entries(before)
        if foreign.any():
            first = int(np.argmax(foreign))
            element = region.element_index(int(addresses[first // shadow.granules_per_element(itemsize)]))
            reader = int(before[first])
            reader_names = "other programs" if reader == MANY else f"program {self._program(reader)}"
            detail = f"program {self.program} {verb} element {element} of {region.name}, which {reader_names} read"
            self._report_race(
                region, Severity.WARNING, detail, int(foreign.sum()) // shadow.granules_per_element(itemsize)
            )

    def _check_writers(
        self, region: MemoryRegion, addresses: Array, index: Array, itemsize: int, writers: Array, values: Array | None
    ) -> None:
        """Report granules last written by another program, unordered; ``values`` is None for a read."""
        if not writers.any():
            return
        foreign = self._ordering.unordered_entries(writers)
        if not foreign.any():
            return
        per_element = region.storage.shadow.granules_per_element(itemsize)
        lanes = foreign.reshape(-1, per_element).any(axis=1)
        first = int(np.argmax(lanes))
        writer = self._program(int(writers.reshape(-1, per_element)[first].max()))
        element = region.element_index(int(addresses[first]))
        if values is None:
            detail = f"program {self.program} reads element {element} of {region.name}, which program {writer} wrote"
            self._report_race(region, Severity.WARNING, detail, int(lanes.sum()))
            return
        same = (
            _memory_values(region, addresses[lanes], values.dtype).tobytes()
            == np.ascontiguousarray(values[lanes]).tobytes()
        )
        detail = f"program {self.program} writes element {element} of {region.name}, which program {writer} wrote " + (
            "with the same value" if same else "with another value"
        )
        self._report_race(region, Severity.NOTE if same else Severity.WARNING, detail, int(lanes.sum()))

    def _report_race(self, region: MemoryRegion, severity: Severity, detail: str, lanes: int) -> None:
        self._report(FindingKind.RACE, severity, region, f"{detail}; no atomic orders the two", lanes)

    def _check_members(self, region: MemoryRegion, addresses: Array, index: Array, itemsize: int) -> None:
        shadow = region.storage.shadow
        members = shadow.ensure("members")[index]
        others = members & ~np.uint64(1 << region.bit)
        if not others.any():
            return
        for other in region.storage.regions:
            hit = others & np.uint64(1 << other.bit) != 0
            if other is region or not hit.any():
                continue
            per_element = shadow.granules_per_element(itemsize)
            element = region.element_index(int(addresses[int(np.argmax(hit)) // per_element]))
            severity = Severity.NOTE if other.name in region.same_views else Severity.WARNING
            detail = f"store through {region.name} (element {element}) changes {other.name}"
            self._report(FindingKind.OVERLAP, severity, region, detail, int(hit.sum()) // per_element)

    def _program(self, tag: int) -> Program:
        number = self._ordering.program_of(tag)
        x, y, _ = self._grid
        return number % x, number // x % y, number // (x * y)

    def _report(self, kind: FindingKind, severity: Severity, region: MemoryRegion, detail: str, lanes: int) -> None:
        self.findings.add(kind, severity, region.name, self.program, lambda: detail, lanes)


def _granules(region: MemoryRegion, addresses: Array, itemsize: int) -> Array:
    return region.storage.shadow.granules(addresses - np.uint64(region.storage_start), itemsize)


def _memory_values(region: MemoryRegion, addresses: Array, dtype: Any) -> Array:
    """Return the elements in memory at the kernel's addresses."""
    lanes = np.ones(addresses.shape, bool)
    held: Array = native.load(addresses + region.delta, lanes, np.zeros(addresses.shape, dtype), dtype)
    return held
