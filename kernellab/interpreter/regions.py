"""The memory of a launch: the addresses under which a kernel sees it, and what is known about each piece of it.

A kernel sees addresses of its own numbering: the top 16 bits are the number of an argument, the rest its position
around the middle of 256 TiB. Whatever a kernel does with a pointer (offsets, casts to integers, selects, stores in
memory), the address tells which argument it was derived from, and an offset that leaves the argument stays
recognisable. The low 16 bits equal those of the address in the notebook, so that alignment is the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from kernellab.interpreter.values import Array
from kernellab.launch.arguments import Launch, StorageSpec, TensorSpec, tensors_of

MANY = -1

Granular = Literal["writers", "readers", "unwritten", "members"]
_ENTRIES: dict[Granular, type] = {"writers": np.int32, "readers": np.int32, "unwritten": bool, "members": np.uint64}


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
            found = np.zeros(self.length, dtype=_ENTRIES[name])
            setattr(self, name, found)
        return found

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
        for name in _ENTRIES:
            array = getattr(self, name)
            if array is not None:
                setattr(self, name, np.repeat(array, factor))


TAG_SHIFT = 48
_MIDDLE = 1 << (TAG_SHIFT - 1)
_LOW_BITS = 0xFFFF
_ADDRESS_SPACE = 1 << 64
_MOST_MEMBERS = 64


@dataclass(slots=True)
class Storage:
    """One storage in this process: its address here and in the notebook, in bytes."""

    address: int
    size_bytes: int
    notebook_address: int
    shadow: Shadow
    regions: list[MemoryRegion] = field(default_factory=list)


@dataclass(slots=True)
class MemoryRegion:
    """The view of one argument, in the kernel's addresses: ``start`` to ``end`` spans first to last element.

    ``delta`` turns such an address into one of this process (modulo 2**64). ``bit`` is its bit in `Shadow.members`.
    """

    name: str
    spec: TensorSpec
    storage: Storage
    start: int
    end: int
    bit: int
    delta: np.uint64
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
    return Storage(base + spec.offset_bytes, spec.size_bytes, spec.address, Shadow(spec.size_bytes, shift))


def _region(number: int, name: str, spec: TensorSpec, storage: Storage) -> MemoryRegion:
    low_bits = (storage.notebook_address + spec.offset_bytes) & _LOW_BITS
    start = (number << TAG_SHIFT) + _MIDDLE + low_bits
    delta = np.uint64((storage.address + spec.offset_bytes - start) % _ADDRESS_SPACE)
    return MemoryRegion(name, spec, storage, start, start + spec.span_bytes, len(storage.regions), delta)


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
            view = storage.shadow.view(members, spec.offset_bytes, spec.shape, spec.strides, spec.itemsize)
            view |= np.uint64(1 << region.bit)


def _mark_unwritten(storage: Storage) -> None:
    for region in storage.regions:
        spec = region.spec
        if region.uninitialised and spec.span_bytes:
            unwritten = storage.shadow.ensure("unwritten")
            storage.shadow.view(unwritten, spec.offset_bytes, spec.shape, spec.strides, spec.itemsize)[...] = True
