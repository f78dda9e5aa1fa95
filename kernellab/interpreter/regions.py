"""The memory of a launch, and the addresses under which a kernel sees it.

A kernel sees addresses of its own numbering: the top 16 bits are the number of an argument, the rest its position
around the middle of 256 TiB. Whatever a kernel does with a pointer (offsets, casts to integers, selects, stores in
memory), the address tells which argument it was derived from, and an offset that leaves the argument stays
recognisable. The low 16 bits equal those of the address in the notebook, so that alignment is the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from kernellab.interpreter.shadow import Shadow
from kernellab.launch.arguments import Launch, StorageSpec, TensorSpec, tensors_of

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
    regions: list[Region] = field(default_factory=list)


@dataclass(slots=True)
class Region:
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
    twins: tuple[str, ...] = ()

    @property
    def storage_start(self) -> int:
        return self.start - self.spec.offset_bytes

    @property
    def storage_end(self) -> int:
        return self.storage_start + self.storage.size_bytes

    def element(self, address: int) -> int:
        """Return the offset of an address from the pointer, in elements, rounded down."""
        return (address - self.start) // self.spec.itemsize


def regions_of(launch: Launch, base_address: int) -> tuple[tuple[Storage, ...], dict[int, Region]]:
    """Return the storages of a launch whose block is mapped at ``base_address``, and its regions by their number."""
    tensors = [found for name, spec in launch.arguments for found in tensors_of(name, spec)]
    storages = tuple(_storage(spec, base_address, tensors, i) for i, spec in enumerate(launch.storages))
    regions: dict[int, Region] = {}
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


def _region(number: int, name: str, spec: TensorSpec, storage: Storage) -> Region:
    low_bits = (storage.notebook_address + spec.offset_bytes) & _LOW_BITS
    start = (number << TAG_SHIFT) + _MIDDLE + low_bits
    delta = np.uint64((storage.address + spec.offset_bytes - start) % _ADDRESS_SPACE)
    return Region(name, spec, storage, start, start + spec.span_bytes, len(storage.regions), delta)


def _offsets(region: Region) -> tuple[int, int]:
    return region.spec.offset_bytes, region.spec.offset_bytes + region.spec.span_bytes


def _overlap(one: Region, other: Region) -> bool:
    (a, b), (c, d) = _offsets(one), _offsets(other)
    return a < d and c < b


def _same_view(one: Region, other: Region) -> bool:
    a, b = one.spec, other.spec
    return (a.offset_bytes, a.shape, a.strides, a.itemsize) == (b.offset_bytes, b.shape, b.strides, b.itemsize)


def _mark_members(storage: Storage) -> None:
    """Set up which elements belong to which argument, where views of a storage may overlap."""
    overlapping = False
    for region in storage.regions:
        others = [other for other in storage.regions if other is not region and _overlap(region, other)]
        region.twins = tuple(other.name for other in others if _same_view(region, other))
        overlapping = overlapping or len(region.twins) < len(others)
    if not overlapping or len(storage.regions) > _MOST_MEMBERS:
        return
    for region in storage.regions:
        members = storage.shadow.ensure_members()
        spec = region.spec
        if spec.span_bytes:
            view = storage.shadow.view(members, spec.offset_bytes, spec.shape, spec.strides, spec.itemsize)
            view |= np.uint64(1 << region.bit)


def _mark_unwritten(storage: Storage) -> None:
    for region in storage.regions:
        spec = region.spec
        if region.uninitialised and spec.span_bytes:
            unwritten = storage.shadow.ensure_unwritten()
            storage.shadow.view(unwritten, spec.offset_bytes, spec.shape, spec.strides, spec.itemsize)[...] = True
