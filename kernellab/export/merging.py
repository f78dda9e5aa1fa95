"""Stores merge: measurements of others join one's own, with all of them in one table that shows where they disagree.

What is merged is another store or a file that `Lab.export_measurements` wrote. It is only read, its kernels and rows
are checked as those of a bundle are, and all of it enters or nothing. A row keeps the key that it was measured under,
which names device, driver and Triton, so a tuning takes for its own what was measured under its own conditions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernellab.errors import Shown, UsageError, value_text
from kernellab.export.exchange import entry_of, measurement_entries
from kernellab.measure.config import Status
from kernellab.measure.timing import Interval
from kernellab.registry import Registry
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
from kernellab.workers.forks_and_interrupts import cached_property, imported_whole

if TYPE_CHECKING:
    import pandas

_SQLITE = b"SQLite format 3\0"


class RowOrigin(StrEnum):
    """Whose measurements a row is made of."""

    HERE = "here"
    THERE = "there"
    BOTH = "both"


class Disagreement(StrEnum):
    """In what measurements from here and there disagree.

    ``time``: one config under the same conditions, whose intervals lie apart. ``status``: it ran well for one alone.
    ``choice``: each has another fastest config, under conditions or on a device that differ.
    """

    TIME = "time"
    STATUS = "status"
    CHOICE = "choice"


@dataclass(frozen=True, slots=True)
class MergedRow:
    """What is known of one launch on one device under one set of conditions: its fastest config of ``configs``."""

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
    """Two measurements that disagree. ``changes`` are what differs between their conditions, the device included."""

    launch: str
    kind: Disagreement
    here: KeptTime
    there: KeptTime
    changes: tuple[ConditionChange, ...]
    ratio: Interval | None

    @property
    def by(self) -> str:
        """What differs, in words; "" where the conditions are the same."""
        return ", ".join(change.text for change in self.changes)


@dataclass(frozen=True, repr=False)
class Merged(Shown):
    """What a merge brought: how many measurements are ``new``, how many were ``known``, and the table of all of them.

    ``rows`` are those of the kernels that came, whoever measured them; ``versions`` are the labels of these here.
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
        imported_whole("pandas")
        import pandas as pd  # keeps this module light

        columns = list(MergedRow.__slots__)
        records = [{name: getattr(row, name) for name in columns} for row in self.rows]
        frame = pd.DataFrame(records, columns=columns).astype({"origin": str})
        frame.attrs.update({"source": self.source, "new": self.new, "known": self.known})
        return frame


def merge(kernels: Registry, path: Path) -> Merged:
    """Enter the kernels and measurements of another store, or of a file of measurements; return them with one's own.

    Raises:
        StoreError: the file is broken, or of a later release; then nothing is entered.
        UsageError: it cannot be read.
    """
    entries = _entries(path)
    before = {kept.id for kept in kept_times(kernels.store)}
    entered = kernels.store.enter(entries)
    versions = [version for version, _ in entered]
    names = {version.name for version in versions}
    times = [kept for kept in kept_times(kernels.store) if kept.launch.kernel in names]
    new = sum(count for _, count in entered)
    return Merged(
        source=str(path),
        versions=tuple(version.label for version in versions),
        new=new,
        known=sum(len(entry.measurements) for entry in entries) - new,
        **_table(times, before),
    )


def _entries(path: Path) -> list[Entry]:
    """Return the kernels of a store or of a file of measurements with their history."""
    try:
        file = path / FILE if path.is_dir() else path
        is_file = file.is_file()
    except OSError as exc:  # a name may be too long
        raise UsageError(f"{value_text(str(path))} cannot be read: {exc.strerror}.") from exc
    if not is_file:
        what = f"it has no {FILE}" if path.is_dir() else "it is no file"
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
    """Return the kernels of a store with their history; those whose text cannot be read are left out with a warning.

    Raises:
        StoreError: the file is no store, or one of a later release.
    """
    store = Store.copy_of(path)
    try:
        tags = store.tags()
        return [entry_of(store, version, tags.get(version.id, ())) for version in store.versions()]
    finally:
        store.close()


Place = tuple[LaunchKind, Conditions]


def _table(times: Sequence[KeptTime], own: Collection[int]) -> dict[str, Any]:
    """Return rows and conflicts; ``own`` are the ids of what was here before."""
    places: dict[Place, list[KeptTime]] = {}
    for kept in times:
        places.setdefault((kept.launch, kept.conditions), []).append(kept)
    words = launch_words({launch for launch, _ in places})
    conflicts = [*_contradictions(places, own, words), *_choices(places, own, words)]
    told: dict[Place, str] = {}
    for each in conflicts:
        for kept in (each.here, each.there):
            told.setdefault((kept.launch, kept.conditions), str(each.kind))
    rows = [_row(place, found, own, words, told.get(place, "")) for place, found in places.items()]
    rows.sort(key=lambda row: (row.kernel, row.launch, row.device, row.driver, row.triton, row.version))
    return {"rows": tuple(rows), "conflicts": tuple(conflicts)}


def _row(
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


def _sides(times: Sequence[KeptTime], own: Collection[int]) -> tuple[dict[str, KeptTime], dict[str, KeptTime]]:
    """Return the latest measurements from here and those from there, by config."""
    here = [kept for kept in times if kept.id in own]
    return latest(here), latest([kept for kept in times if kept.id not in own])


def _contradictions(
    places: dict[Place, list[KeptTime]], own: Collection[int], words: dict[LaunchKind, str]
) -> Iterator[Conflict]:
    """Yield configs that were measured here and there under the same conditions, and came out otherwise."""
    for (launch, _), times in places.items():
        here, there = _sides(times, own)
        for config in here.keys() & there.keys():
            mine, theirs = here[config], there[config]
            ratio = ratio_of(mine, theirs)
            if ratio is not None and is_apart(ratio, MARGIN):
                yield Conflict(words[launch], Disagreement.TIME, mine, theirs, (), ratio)
            elif _ran_for_one(mine, theirs):
                yield Conflict(words[launch], Disagreement.STATUS, mine, theirs, (), None)


def _ran_for_one(mine: KeptTime, theirs: KeptTime) -> bool:
    statuses = {mine.status, theirs.status}
    return Status.OK in statuses and bool(statuses & FAILED)


def _choices(
    places: dict[Place, list[KeptTime]], own: Collection[int], words: dict[LaunchKind, str]
) -> Iterator[Conflict]:
    """Yield launches whose fastest config there is another than here, under the conditions nearest to theirs."""
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
                nearest = min(others, key=lambda other: len(_changes(places, other, place)))
                yield from _choice(places, nearest, place, words[place[0]])


def _choice(places: dict[Place, list[KeptTime]], mine: Place, theirs: Place, launch: str) -> Iterator[Conflict]:
    here, there = latest(places[mine]), latest(places[theirs])
    first, second = fastest(here.values()), fastest(there.values())
    if first is None or second is None or first.config == second.config:
        return
    if _ties(here, first, second.config) or _ties(there, second, first.config):
        return
    yield Conflict(launch, Disagreement.CHOICE, first, second, _changes(places, mine, theirs), None)


def _ties(times: dict[str, KeptTime], best: KeptTime, config: str) -> bool:
    """Tell whether the fastest config of the others is as fast here."""
    other = times.get(config)
    ratio = None if other is None else ratio_of(best, other)
    return ratio is not None and is_within(ratio, MARGIN)


def _changes(places: dict[Place, list[KeptTime]], mine: Place, theirs: Place) -> tuple[ConditionChange, ...]:
    """Return in what two places differ, the device included."""
    here, there = places[mine][-1], places[theirs][-1]
    device = (ConditionChange("device", mine[0].device, theirs[0].device),)
    return (*(device if mine[0].device != theirs[0].device else ()), *changes_between(here, there))
