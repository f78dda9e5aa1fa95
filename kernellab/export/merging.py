"""Merge the measurements of other stores into one table, which shows where they disagree.

The source is another store, or a file of `Lab.export_measurements`. It is only read, its kernels and rows are checked
like those of a bundle, and all of it enters or nothing. A row keeps its measurement key, which names device, driver and
Triton, so a tuning uses only rows of its own conditions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from kernellab.display import Displayable
from kernellab.errors import UsageError, value_text
from kernellab.export.exchange import entry_of, measurement_entries
from kernellab.registry.kept_times import (
    FAILED,
    MARGIN,
    ConditionChange,
    Conditions,
    KeptTime,
    LaunchKind,
    changes_between,
    fastest,
    is_apart,
    is_within,
    kept_times,
    latest,
    launch_words,
    ratio_of,
)
from kernellab.store import FILE, Entry, Store
from kernellab.store.columns import Status
from kernellab.timing.stopwatch import Interval
from kernellab.workers.forks_and_interrupts import cached_property, import_uninterrupted

if TYPE_CHECKING:
    import pandas

    from kernellab.registry.kernels import Registry

_SQLITE = b"SQLite format 3\0"


class RowOrigin(StrEnum):
    """The stores that a row's measurements come from."""

    HERE = "here"
    THERE = "there"
    BOTH = "both"


class ConflictKind(StrEnum):
    """The kind of conflict between measurements from here and there.

    ``time``: one config under the same conditions, with disjoint intervals. ``status``: it ran on one side only.
    ``choice``: the fastest configs differ, and so do the conditions or the device.
    """

    TIME = "time"
    STATUS = "status"
    CHOICE = "choice"


@dataclass(frozen=True, slots=True)
class MergedRow:
    """One launch on one device under one set of conditions: the fastest of its ``configs`` measured configs."""

    kernel: str
    launch: str
    device: str
    version: str
    triton: str
    driver: str
    config: str
    status: str
    time_ms: float | None
    low_ms: float | None
    high_ms: float | None
    configs: int
    origin: RowOrigin
    conflict: str = ""


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two measurements that disagree. ``changes`` are the differences between their conditions, the device included."""

    launch: str
    kind: ConflictKind
    here: KeptTime
    there: KeptTime
    changes: tuple[ConditionChange, ...]
    ratio: Interval | None

    @property
    def by(self) -> str:
        """The differences between the conditions, in words; "" where there are none."""
        return ", ".join(change.text for change in self.changes)


@dataclass(frozen=True, repr=False)
class Merged(Displayable):
    """The result of a merge: how many measurements are ``new`` or ``known``, and the table of all of them.

    ``rows`` are all measurements of the merged kernels, old and new; ``versions`` are the labels of these kernels here.
    """

    source: str
    versions: tuple[str, ...]
    new: int
    known: int
    rows: tuple[MergedRow, ...]
    conflicts: tuple[Conflict, ...]

    def __repr__(self) -> str:
        """One line; the rows are in `frame`."""
        return f"<Merged {self.source}: {self.new} measurements are new, {len(self.conflicts)} conflicts>"

    @cached_property
    def frame(self) -> pandas.DataFrame:
        """One row per launch, device and conditions, with the fields of `MergedRow`."""
        pd = import_uninterrupted("pandas")

        columns = list(MergedRow.__slots__)
        records = [{name: getattr(row, name) for name in columns} for row in self.rows]
        frame = pd.DataFrame(records, columns=columns).astype({"origin": str})
        frame.attrs.update({"source": self.source, "new": self.new, "known": self.known})
        return frame


def merge(kernels: Registry, path: Path) -> Merged:
    """Add the kernels and measurements of another store, or of a file of measurements, to this store.

    Raises:
        StoreError: the file is broken, or of a later release; then nothing is entered.
        UsageError: it cannot be read.
    """
    entries = _entries(path)
    before = {kept.id for kept in kept_times(kernels.store)}
    versions_and_counts = kernels.store.enter(entries)
    names = {version.name for version, _ in versions_and_counts}
    times = [kept for kept in kept_times(kernels.store) if kept.launch.kernel in names]
    new = sum(count for _, count in versions_and_counts)
    labels = tuple(version.label for version, _ in versions_and_counts)
    known = sum(len(entry.measurements) for entry in entries) - new
    return Merged(str(path), labels, new, known, *_table(times, before))


def _entries(path: Path) -> list[Entry]:
    try:
        file = path / FILE if path.is_dir() else path
        is_file = file.is_file()
    except OSError as exc:  # a name may be too long
        raise UsageError(f"{value_text(str(path))} cannot be read: {exc.strerror}.") from exc
    if not is_file:
        what = f"it has no {FILE}" if path.is_dir() else "it is not a file"
        raise UsageError(f"{str(path)!r} cannot be read: {what}; expected a store, or exported measurements.")
    try:
        with file.open("rb") as opened:
            start = opened.read(len(_SQLITE))
    except OSError as exc:
        raise UsageError(f"{str(path)!r} cannot be read: {exc}.") from exc
    if start.startswith(b"PK"):
        raise UsageError(f"{str(path)!r} is a bundle: %triton_load {file.name} enters its kernel, with its history.")
    return store_entries(file) if start == _SQLITE else measurement_entries(file)


def store_entries(path: Path) -> list[Entry]:
    """Return the kernels of a store with their history; unreadable ones are left out with a warning.

    Raises:
        StoreError: the file is not a store, or one of a later release.
    """
    store = Store.copy_of(path)
    try:
        tags = store.tags()
        return [entry_of(store, version, tags.get(version.id, ())) for version in store.versions()]
    finally:
        store.close()


Place = tuple[LaunchKind, Conditions]


def _table(times: Sequence[KeptTime], own: Collection[int]) -> tuple[tuple[MergedRow, ...], tuple[Conflict, ...]]:
    """Return rows and conflicts; ``own`` are the ids of measurements from before the merge."""
    places: dict[Place, list[KeptTime]] = {}
    for kept in times:
        places.setdefault((kept.launch, kept.conditions), []).append(kept)
    words = launch_words({launch for launch, _ in places})
    conflicts = (*_measurement_conflicts(places, own, words), *_choice_conflicts(places, own, words))
    kinds: dict[Place, str] = {}
    for conflict in conflicts:
        for kept in (conflict.here, conflict.there):
            kinds.setdefault((kept.launch, kept.conditions), str(conflict.kind))
    rows = [_merged_row(place, group, own, words, kinds.get(place, "")) for place, group in places.items()]
    rows.sort(key=lambda row: (row.kernel, row.launch, row.device, row.driver, row.triton, row.version))
    return tuple(rows), conflicts


def _merged_row(
    place: Place, times: Sequence[KeptTime], own: Collection[int], words: dict[LaunchKind, str], conflict: str
) -> MergedRow:
    launch, conditions = place
    known = latest(times)
    best = fastest(known.values()) or times[-1]
    mine = {kept.id in own for kept in times}
    origin = RowOrigin.BOTH if len(mine) == 2 else RowOrigin.HERE if True in mine else RowOrigin.THERE
    return MergedRow(
        kernel=launch.kernel,
        launch=words[launch],
        device=launch.device,
        version=best.version,
        triton=conditions.triton,
        driver=conditions.driver,
        config=best.words,
        status=str(best.status),
        time_ms=best.time_ms,
        low_ms=best.low_ms,
        high_ms=best.high_ms,
        configs=len(known),
        origin=origin,
        conflict=conflict,
    )


def _measurement_conflicts(
    places: dict[Place, list[KeptTime]], own: Collection[int], words: dict[LaunchKind, str]
) -> Iterator[Conflict]:
    """Yield configs with different results here and there under the same conditions."""
    for (launch, _), times in places.items():
        here = latest([kept for kept in times if kept.id in own])
        there = latest([kept for kept in times if kept.id not in own])
        for config in here.keys() & there.keys():
            mine, theirs = here[config], there[config]
            ratio = ratio_of(mine, theirs)
            if ratio is not None and is_apart(ratio, MARGIN):
                yield Conflict(words[launch], ConflictKind.TIME, mine, theirs, (), ratio)
            elif Status.OK in {mine.status, theirs.status} and {mine.status, theirs.status} & FAILED:
                yield Conflict(words[launch], ConflictKind.STATUS, mine, theirs, (), None)


def _choice_conflicts(
    places: dict[Place, list[KeptTime]], own: Collection[int], words: dict[LaunchKind, str]
) -> Iterator[Conflict]:
    """Yield launches with different fastest configs here and there, under the nearest conditions."""
    alike: dict[LaunchKind, list[Place]] = {}
    for place in places:
        alike.setdefault(replace(place[0], device="", target=""), []).append(place)
    for group in alike.values():
        mine = [place for place in group if any(kept.id in own for kept in places[place])]
        for place in group:
            if all(kept.id in own for kept in places[place]):
                continue
            others = [other for other in mine if other != place]
            if others:
                nearest = min(others, key=lambda other: len(_condition_changes(places, other, place)))
                yield from _choice_conflict(places, nearest, place, words[place[0]])


def _choice_conflict(
    places: dict[Place, list[KeptTime]], mine: Place, theirs: Place, launch: str
) -> Iterator[Conflict]:
    here, there = latest(places[mine]), latest(places[theirs])
    first, second = fastest(here.values()), fastest(there.values())
    if first is None or second is None or first.config == second.config:
        return
    if _is_tied(here, first, second.config) or _is_tied(there, second, first.config):
        return
    yield Conflict(launch, ConflictKind.CHOICE, first, second, _condition_changes(places, mine, theirs), None)


def _is_tied(times: dict[str, KeptTime], best: KeptTime, config: str) -> bool:
    """Whether the fastest config of the other side is as fast here."""
    other = times.get(config)
    ratio = None if other is None else ratio_of(best, other)
    return ratio is not None and is_within(ratio, MARGIN)


def _condition_changes(places: dict[Place, list[KeptTime]], mine: Place, theirs: Place) -> tuple[ConditionChange, ...]:
    here, there = places[mine][-1], places[theirs][-1]
    device = (ConditionChange("device", mine[0].device, theirs[0].device),)
    return (*(device if mine[0].device != theirs[0].device else ()), *changes_between(here, there))
