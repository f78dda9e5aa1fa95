"""The memory of a batch: programs of one grid that run at once, each of their accesses as one.

A batch does the first access of all its programs, then the second, and so on. That leaves what the programs leave one
after the other as long as none reads or writes what another one writes. So each granule keeps the program that wrote or
read it, and an access to that of another program ends the batch, as does everything that a finding would be about:
`NotBatchable`. The launch is then run program by program, which finds the words.

Atomics may meet where the order is that of the programs: one atomic operation takes its lanes program by program, so an
element may be updated by one operation of a batch, in batches that run in the order of their programs.
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
from triton._C.libtriton import interpreter as native

from kernellab.interpreter.faults import Findings, ProgramError
from kernellab.interpreter.hazards import Hazards, MemoryRegion, ShadowArray, access_of
from kernellab.interpreter.memory import AccessKind, CheckedMemory, LocatedAccess
from kernellab.interpreter.ordering import MANY
from kernellab.interpreter.promises import Promises
from kernellab.interpreter.values import Array, Handle
from kernellab.launch.arguments import Launch


class NotBatchable(ProgramError):
    """The programs must run one after the other: one reports something, depends on another, or goes its own way."""


class UntrackedReads(ProgramError):
    """A batch writes a storage whose reads it did not track; it is run again with these tracked."""

    def __init__(self, storage: int) -> None:
        super().__init__()
        self.storage = storage


class _NoFindings(Findings):
    def add(self, *finding: Any, **place: Any) -> NoReturn:
        """End the batch: findings are those of programs that run one by one."""
        raise NotBatchable(str(finding))


class BatchMemory(CheckedMemory):
    """The memory of a launch as batches of its programs see it."""

    hazards: BatchHazards

    def __init__(self, launch: Launch, base_address: int) -> None:
        super().__init__(launch, base_address, _NoFindings())
        self.hazards = BatchHazards(self.findings, launch.grid)

    def begin_batch(self, programs: Array, *, is_in_order: bool) -> None:
        """Start a batch of programs by their numbers; ``is_in_order`` says that all before them, and no other, ran."""
        self.hazards.begin_batch(programs, is_in_order=is_in_order)

    def end_batch(self) -> None:
        """Accept the stores of the batch."""
        self.promises.check_multiples()
        self.hazards.end_batch()

    def undo_batch(self) -> None:
        """Restore what the batch has overwritten."""
        self.promises = Promises(self.findings)
        self.hazards.undo_batch()

    def _locate(self, pointer: Handle, mask: Array | None, itemsize: int, access: AccessKind) -> LocatedAccess | None:
        self.hazards.lanes = pointer.data.shape, mask
        return super()._locate(pointer, mask, itemsize, access)

    def _locate_lanes(self, data: Array, *rest: Any) -> NoReturn:
        raise NotBatchable("lanes outside of one argument")


class BatchHazards(Hazards):
    """Keeps the programs of a batch apart.

    The shadow of a storage has 1 + the number of the program that wrote or read a granule, and of ``updaters`` the
    number of the atomic operation. Reads are tracked from the first store to their storage on; most storages have none.
    """

    def __init__(self, findings: Findings, grid: tuple[int, int, int]) -> None:
        super().__init__(findings, grid)
        self.lanes: tuple[tuple[int, ...], Array | None] = (), None
        self.is_changed = False
        self._tags = np.zeros(1, np.int32)
        self._is_in_order = True
        self._first_operation = self._operation = 0
        self._tracked: set[int] = set()
        self._untracked: set[int] = set()
        self._untracked_in_batch: set[int] = set()
        self._overwritten: list[tuple[Array, Array]] = []

    def begin_batch(self, programs: Array, *, is_in_order: bool) -> None:
        """Start a batch of programs by their numbers."""
        self._tags = (programs + 1).astype(np.int32)
        self._is_in_order = is_in_order
        self._first_operation = self._operation + 1

    def end_batch(self) -> None:
        """Forget what the batch has overwritten."""
        self.is_changed = self.is_changed or bool(self._overwritten)
        self._untracked |= self._untracked_in_batch
        self._untracked_in_batch.clear()
        self._overwritten.clear()

    def undo_batch(self) -> None:
        """Write back what the batch has overwritten, the last store first."""
        for addresses, values in reversed(self._overwritten):
            native.store(addresses, values, np.ones(addresses.shape, bool))
        self._untracked_in_batch.clear()
        self._overwritten.clear()

    def track_reads(self, storage: int) -> None:
        """Track reads of a storage from now on.

        Raises:
            NotBatchable: an earlier batch has read it.
        """
        if storage in self._untracked:
            raise NotBatchable("an earlier batch read what this one writes")
        self._tracked.add(storage)

    def check_load(self, region: MemoryRegion, addresses: Array, itemsize: int, *, volatile: bool = False) -> None:
        """Check that no other program of the launch wrote what is read here, and something did."""
        storage = region.spec.storage
        if storage not in self._tracked:
            self._untracked_in_batch.add(storage)
            if "unwritten" not in region.storage.shadow.arrays:
                return
        access = access_of(region, addresses, itemsize)
        _require_none(access.entries("unwritten"))
        if storage not in self._tracked:
            return
        tags, shadow, granules = self._tags_of(access.per_element), access.shadow, access.granules
        _require_none(access.entries("updaters"))
        _require_own(access.entries("writers"), tags)
        readers = shadow.ensure("readers")
        before = readers[granules]
        after = np.where((before == 0) | (before == tags), tags, MANY)
        readers[granules] = after
        readers[granules[readers[granules] != after]] = MANY  # programs of this access that read the same

    def check_store(self, region: MemoryRegion, addresses: Array, values: Array) -> None:
        """Check that no other program of the launch reads or writes what is written here, and keep what was there."""
        self._begin_writing(region)
        access = access_of(region, addresses, values.dtype.itemsize)
        tags, shadow, granules = self._tags_of(access.per_element), access.shadow, access.granules
        _require_none(access.entries("updaters"))
        _require_own(access.entries("readers"), tags)
        writers = shadow.ensure("writers")
        _require_own(writers[granules], tags)
        writers[granules] = tags
        _require_own(writers[granules], tags)
        if "unwritten" in shadow.arrays:
            shadow.arrays["unwritten"][granules] = False
        self.check_overlaps(access)
        self._keep(region, addresses, values.dtype)

    def check_atomic(self, region: MemoryRegion, addresses: Array, itemsize: int, *order: bool, **access: bool) -> None:
        """Check that the lanes of this operation update what no other of the batch touches, in the programs' order."""
        self._begin_writing(region)
        elements = access_of(region, addresses, itemsize)
        kinds: tuple[ShadowArray, ...] = ("unwritten", "writers", "readers")
        for kind in kinds:
            _require_none(elements.entries(kind))
        if not self._is_in_order:
            raise NotBatchable("an atomic of programs that run out of order")
        self._operation += 1
        updaters = elements.shadow.ensure("updaters")
        if (updaters[elements.granules] >= self._first_operation).any():
            raise NotBatchable("several atomics of one element")
        updaters[elements.granules] = self._operation
        self._keep(region, addresses, np.dtype(f"u{itemsize}"))

    def _begin_writing(self, region: MemoryRegion) -> None:
        storage = region.spec.storage
        if storage in self._untracked_in_batch:
            raise UntrackedReads(storage)
        self.track_reads(storage)
        region.storage.shadow.is_written = True

    def _keep(self, region: MemoryRegion, addresses: Array, dtype: Any) -> None:
        places = addresses + region.delta
        lanes, empty = np.ones(places.shape, bool), np.zeros(places.shape, dtype)
        self._overwritten.append((places, native.load(places, lanes, empty, dtype)))

    def _tags_of(self, per_element: int) -> Array:
        """The programs of the active lanes, `MANY` where all programs share an access, for each granule."""
        shape, mask = self.lanes
        tags = self._tags
        if shape[0] != tags.size:
            tags = np.full(1, MANY, np.int32)
        lanes = np.broadcast_to(tags.reshape(-1, *(1,) * (len(shape) - 1)), shape)
        active = lanes.ravel() if mask is None else lanes[mask]
        return active if per_element == 1 else np.repeat(active, per_element)


def _require_none(entries: Array | None) -> None:
    if entries is not None:
        raise NotBatchable("an access that another one has to do with")


def _require_own(entries: Array | None, tags: Array) -> None:
    """Raise `NotBatchable` where an entry is that of another program, or an access is that of several."""
    if entries is not None and ((entries != 0) & ((entries != tags) | (tags == MANY))).any():
        raise NotBatchable("two programs at one element, one of which writes")
