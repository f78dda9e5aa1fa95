"""The memory of a launch, what is known about each piece of it, and what is suspicious about an access in bounds.

Suspicious are races, reads of what nothing wrote, overlapping arguments.

A kernel sees addresses of its own numbering: the top 16 bits are the number of an argument, the rest its position
around the middle of 256 TiB. Whatever a kernel does with a pointer (offsets, casts to integers, selects, stores in
memory), the address tells which argument it was derived from, and an offset that leaves the argument stays
recognisable. The low 16 bits equal those of the address in the notebook, so that alignment is the same.
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

Granular = Literal["writers", "readers", "updaters", "unwritten", "members"]
_ENTRIES: dict[Granular, type] = {
    "writers": np.int32,
    "readers": np.int32,
    "updaters": np.int32,
    "unwritten": bool,
    "members": np.uint64,
}


@dataclass(slots=True)
class Shadow:
    """Arrays with one entry per granule of ``1 << shift`` bytes of a storage. Each is None until it matters.

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
    touched: bool = field(default=False)

    @property
    def length(self) -> int:
        """How many granules the storage has."""
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

    def ensure(self, name: Granular) -> Array:
        """Return an array by its name, made of zeros where it did not matter before."""
        found: Array | None = getattr(self, name)
        if found is None:
            found = _sparse_zeros(self.length, _ENTRIES[name])
            setattr(self, name, found)
        return found

    def view(self, array: Array, spec: TensorSpec) -> Array:
        """Return the entries of the elements of a tensor, with a last axis for the granules of one element."""
        each, entry = self.per_element(spec.itemsize), array.itemsize
        strides = (*(stride * each * entry for stride in spec.strides), entry)
        start = array[spec.offset_bytes >> self.shift :]
        return np.lib.stride_tricks.as_strided(start, (*spec.shape, each), strides)

    def _refine(self, shift: int) -> None:
        factor = 1 << (self.shift - shift)
        self.shift = shift
        for name in _ENTRIES:
            array = getattr(self, name)
            if array is not None:
                setattr(self, name, _repeated(array, factor))


_LARGE_BYTES = 1 << 24


def _sparse_zeros(length: int, dtype: Any) -> Array:
    """Return zeros; of a large array, only the pages that are written to take memory, and small ones."""
    size_bytes = length * np.dtype(dtype).itemsize
    if size_bytes < _LARGE_BYTES:
        return np.zeros(length, dtype)
    memory = mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    zeros: Array = np.frombuffer(memory, dtype)
    return zeros


def _repeated(array: Array, factor: int) -> Array:
    """Return each entry several times; pages of zeros take no memory."""
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
    """The view of one argument, in the kernel's addresses: ``start`` to ``end`` spans first to last element.

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

    def element(self, address: int) -> int:
        """Return the offset of an address from the pointer, in elements, rounded down."""
        return (address - self.start) // self.spec.itemsize


def regions_of(launch: Launch, base_address: int) -> tuple[tuple[Storage, ...], dict[int, MemoryRegion]]:
    """Return the storages of a launch whose block is mapped at ``base_address``, and its regions by their number."""
    tensors = [found for name, spec in launch.arguments for found in tensors_of(name, spec)]
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
    """Return for each place in the span of a view whether an element lies there; None where all do."""
    places = spec.span_bytes // spec.itemsize
    if places <= 1 or _is_dense(spec):
        return None
    elements = _sparse_zeros(places, bool)
    np.lib.stride_tricks.as_strided(elements, spec.shape, spec.strides)[...] = True
    return None if elements.all() else elements


def _is_dense(spec: TensorSpec) -> bool:
    """Tell whether each stride is the extent of the axes inside of it, so that a view has no gaps."""
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
    """Set up which elements belong to which argument, where views of a storage may overlap."""
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
    """Watches the accesses of one program after the other.

    Programs of a launch run in any order on a GPU, so that what one writes and another reads or writes is a race,
    unless an atomic orders the two.
    """

    def __init__(self, findings: Findings, grid: Program) -> None:
        self.findings = findings
        self.program: Program = (0, 0, 0)
        self.number = 0
        self._grid = grid
        self._ordering = Ordering()
        self._updates = UpdaterSets(self._ordering)

    def begin_program(self, number: int, program: Program) -> None:
        """Go on with the program of this number, in the order in which programs run."""
        self.number = number
        self.program = program
        self._ordering.begin_program()

    def before_read(self, region: MemoryRegion, addresses: Array, itemsize: int, *, volatile: bool = False) -> None:
        """Check a load at the kernel's ``addresses``, of ``itemsize`` bytes each; a volatile one is meant to race."""
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
            each = shadow.per_element(itemsize)
            element = region.element(int(addresses[int(np.argmax(fresh)) // each]))
            detail = f"element {element} of {region.name} is read before anything wrote it"
            self._find(FindingKind.UNINITIALISED_READ, Severity.WARNING, region, detail, int(fresh.sum()) // each)
        if shadow.writers is not None and not volatile:
            self._check_others(region, addresses, index, itemsize, shadow.writers[index], None)

    def _check_updaters(self, region: MemoryRegion, addresses: Array, index: Array, itemsize: int, verb: str) -> None:
        """Report a plain access to what another program updated by an atomic: that may come before it or after."""
        shadow = region.storage.shadow
        numbers = shadow.ensure("updaters")[index]
        if not numbers.any():
            return
        unordered = self._updates.unordered(numbers)
        if unordered:
            each = shadow.per_element(itemsize)
            lanes = np.isin(numbers, list(unordered)).reshape(-1, each).any(axis=1)
            first = int(np.argmax(lanes))
            updater = next(unordered[n] for n in numbers.reshape(-1, each)[first].tolist() if n in unordered)
            element, other = region.element(int(addresses[first])), self._program(updater)
            detail = f"program {self.program} {verb} element {element} of {region.name}, which program {other} updated"
            self._race(region, Severity.WARNING, f"{detail} by an atomic", int(lanes.sum()))

    def before_write(self, region: MemoryRegion, addresses: Array, values: Array) -> None:
        """Check a plain store of ``values`` at the kernel's ``addresses``, and note its program as the writer."""
        shadow = region.storage.shadow
        shadow.touched = True
        itemsize = values.dtype.itemsize
        index = _granules(region, addresses, itemsize)
        writers = shadow.ensure("writers")
        self._check_others(region, addresses, index, itemsize, writers[index], values)
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
            self._find(FindingKind.OVERLAP, Severity.NOTE, region, f"{region.name} and {names} are the same memory", 1)

    def before_atomic(
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

        That orders what programs do at other addresses. What one of them plainly did to the very element, another's
        atomic may have met in either state: which came first is what the atomic is to tell.
        """
        shadow = region.storage.shadow
        index = _granules(region, addresses, itemsize)
        if reads:
            self._check_read(region, addresses, index, itemsize, volatile=False)
        if writes and shadow.readers is not None:
            self._check_readers(region, addresses, index, itemsize, "updates")
        tag = self._ordering.tag  # what it updates is part of what it releases
        if order is not None:
            self._ordering.synchronise(order)
        if not writes:
            return
        updaters = shadow.ensure("updaters")
        updaters[index] = self._updates.added(updaters[index], tag)
        shadow.touched = True
        if shadow.unwritten is not None:
            shadow.unwritten[index] = False

    def colliding_lanes(self, region: MemoryRegion, addresses: Array, lanes: int) -> None:
        """Report a store whose own lanes wrote different values to one element."""
        element = region.element(int(addresses[0]))
        detail = f"lanes of one store write different values to element {element} of {region.name}"
        self._find(FindingKind.RACE, Severity.WARNING, region, detail, lanes)

    def _note_reader(self, region: MemoryRegion, index: Array) -> None:
        readers = region.storage.shadow.ensure("readers")
        foreign = self._ordering.unordered(readers[index])
        tag = self._ordering.tag
        readers[index] = np.where(foreign, MANY, tag) if foreign.any() else tag

    def _check_readers(self, region: MemoryRegion, addresses: Array, index: Array, itemsize: int, verb: str) -> None:
        """Report a change of what another program has read: on a GPU that might have seen the new value."""
        shadow = region.storage.shadow
        before = shadow.ensure("readers")[index]
        if not before.any():
            return
        foreign = self._ordering.unordered(before)
        if foreign.any():
            first = int(np.argmax(foreign))
            element = region.element(int(addresses[first // shadow.per_element(itemsize)]))
            reader = int(before[first])
            who = "other programs" if reader == MANY else f"program {self._program(reader)}"
            detail = f"program {self.program} {verb} element {element} of {region.name}, which {who} read"
            self._race(region, Severity.WARNING, detail, int(foreign.sum()) // shadow.per_element(itemsize))

    def _check_others(
        self, region: MemoryRegion, addresses: Array, index: Array, itemsize: int, writers: Array, values: Array | None
    ) -> None:
        """Compare the last writers of granules with this program; ``values`` is None for a read."""
        if not writers.any():
            return
        foreign = self._ordering.unordered(writers)
        if not foreign.any():
            return
        each = region.storage.shadow.per_element(itemsize)
        lanes = foreign.reshape(-1, each).any(axis=1)
        first = int(np.argmax(lanes))
        writer = self._program(int(writers.reshape(-1, each)[first].max()))
        element = region.element(int(addresses[first]))
        if values is None:
            detail = f"program {self.program} reads element {element} of {region.name}, which program {writer} wrote"
            self._race(region, Severity.WARNING, detail, int(lanes.sum()))
            return
        same = _held(region, addresses[lanes], values.dtype).tobytes() == np.ascontiguousarray(values[lanes]).tobytes()
        detail = f"program {self.program} writes element {element} of {region.name}, which program {writer} wrote " + (
            "with the same value" if same else "with another value"
        )
        self._race(region, Severity.NOTE if same else Severity.WARNING, detail, int(lanes.sum()))

    def _race(self, region: MemoryRegion, severity: Severity, detail: str, lanes: int) -> None:
        self._find(FindingKind.RACE, severity, region, f"{detail}; no atomic orders the two", lanes)

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
            each = shadow.per_element(itemsize)
            element = region.element(int(addresses[int(np.argmax(hit)) // each]))
            severity = Severity.NOTE if other.name in region.same_views else Severity.WARNING
            detail = f"store through {region.name} (element {element}) changes {other.name}"
            self._find(FindingKind.OVERLAP, severity, region, detail, int(hit.sum()) // each)

    def _program(self, tag: int) -> Program:
        number = self._ordering.program_of(tag)
        x, y, _ = self._grid
        return number % x, number // x % y, number // (x * y)

    def _find(self, kind: FindingKind, severity: Severity, region: MemoryRegion, detail: str, lanes: int) -> None:
        self.findings.add(kind, severity, region.name, self.program, lambda: detail, lanes)


def _granules(region: MemoryRegion, addresses: Array, itemsize: int) -> Array:
    return region.storage.shadow.granules(addresses - np.uint64(region.storage_start), itemsize)


def _held(region: MemoryRegion, addresses: Array, dtype: Any) -> Array:
    """Return what the memory holds at the kernel's addresses."""
    lanes = np.ones(addresses.shape, bool)
    held: Array = native.load(addresses + region.delta, lanes, np.zeros(addresses.shape, dtype), dtype)
    return held
