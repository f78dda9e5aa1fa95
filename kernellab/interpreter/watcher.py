"""Notes which elements a launch reads, which program writes each, and which loads have masked lanes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from kernellab.interpreter.faults import current_line
from kernellab.interpreter.regions import MemoryRegion
from kernellab.interpreter.values import Array
from kernellab.launch.watch import ElementAccesses, MaskedLoad, Watch


@dataclass(slots=True)
class Watcher:
    """Collects what `ElementAccesses` tells, of one launch."""

    watch: Watch
    _read: dict[str, Array] = field(default_factory=dict)
    _writers: dict[str, Array] = field(default_factory=dict)
    _masked: dict[MaskedLoad, None] = field(default_factory=dict)

    def note_read(self, region: MemoryRegion, addresses: Array, itemsize: int) -> None:
        """Note a load of elements of ``itemsize`` bytes at the kernel's addresses."""
        _held(self._read, region, np.uint8)[_elements(region, addresses, itemsize)] = 1

    def note_write(self, region: MemoryRegion, addresses: Array, itemsize: int, number: int) -> None:
        """Note a store by the program of a number."""
        _held(self._writers, region, np.int32)[_elements(region, addresses, itemsize)] = number + 1

    def fill_of(self, region: MemoryRegion | None, *, has_other: bool) -> float | None:
        """Note a load with masked lanes in the line that runs; return what these are to hold, None for as it is."""
        place = current_line()
        if region is None or place is None:
            return None
        self._masked[MaskedLoad(region.name, *place, has_other)] = None
        fill = self.watch.fill
        return fill.value if fill is not None and (fill.file, fill.line) == place else None

    def accesses(self, regions: Iterable[MemoryRegion]) -> ElementAccesses:
        """Return what was noted."""
        known = [region for region in regions if region.spec.span_bytes]
        read = {each.name: _in_order(each, self._read, np.uint8) for each in known}
        writers = {each.name: _in_order(each, self._writers, np.int32) for each in known}
        return ElementAccesses(read, writers, tuple(self._masked))


def _held(arrays: dict[str, Array], region: MemoryRegion, dtype: type) -> Array:
    if region.name not in arrays:
        arrays[region.name] = np.zeros(region.spec.span_bytes // region.spec.itemsize, dtype)
    return arrays[region.name]


def _elements(region: MemoryRegion, addresses: Array, itemsize: int) -> Array:
    """Return the elements of an argument's own size that lie at some addresses, those outside its view left out."""
    first = (addresses - np.uint64(region.start)).astype(np.int64) // region.spec.itemsize
    each = max(1, itemsize // region.spec.itemsize)
    places: Array = (first[:, None] + np.arange(each)).ravel() if each > 1 else first
    return places[(places >= 0) & (places < region.spec.span_bytes // region.spec.itemsize)]


def _in_order(region: MemoryRegion, arrays: dict[str, Array], dtype: type) -> bytes:
    """Return the entries of the elements of an argument in the order of its indices."""
    held, spec = _held(arrays, region, dtype), region.spec
    strides = tuple(stride * held.itemsize for stride in spec.strides)
    return np.ascontiguousarray(np.lib.stride_tricks.as_strided(held, spec.shape, strides)).tobytes()
