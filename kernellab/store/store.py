"""The kernels of a user, their versions, and what happened to these: launches, compiled results, measurements."""

from __future__ import annotations

import dataclasses
import json
import sqlite3
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from kernellab.source import Closure, closure_of_json, closure_to_jsonable, parse_json, require_type
from kernellab.store.content import Entry, LaunchRow, Measurement, MeasurementRow, RecordedLaunch, Result, Version
from kernellab.store.database import Database
from kernellab.store.decoding import (
    canonical_json,
    launch_digest,
    launch_row_of,
    launch_to_jsonable,
    measurement_of,
    require_moment,
    result_from_jsonable,
    result_to_jsonable,
)
from kernellab.store.overview import Ids, Overview, among, require_outline
from kernellab.store.snapshots import Explanations, Snapshots

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True)
class History:
    """Launches, results and measurements of the versions; ids are those of the store."""

    database: Database

    def add_launch(
        self,
        version_id: int,
        launch: RecordedLaunch,
        *,
        seconds: float | None = None,
        count: int = 1,
        result: Result | None = None,
    ) -> int:
        """Count launches of one kind and store their compile result, in one transaction; return the id of the kind."""
        now = time.time()

        def work(cursor: sqlite3.Cursor) -> int:
            launch_id = insert_launch(cursor, version_id, launch, seconds, count, now)
            if result is not None:
                row = (version_id, result.digest, canonical_json(result_to_jsonable(result)), now)
                columns = "(version_id, digest, result, created)"
                cursor.execute(f"INSERT OR REPLACE INTO results {columns} VALUES (?, ?, ?, ?)", row)
            return launch_id

        return self.database.write(work)

    def add_measurements(self, version_id: int, measurements: Sequence[Measurement]) -> None:
        """Append measurements in one transaction."""
        rows = [(measurement, time.time()) for measurement in measurements]
        self.database.write(lambda cursor: _insert_measurements(cursor, version_id, rows))

    def launches(self, version_id: int | None = None, *, most: int | None = None) -> list[LaunchRow]:
        """Return the launches of one version, or of all, the latest last; of more than ``most``, the latest."""
        columns = "id, version_id, launch, seconds, count, created, last"
        limit = "" if most is None else f" LIMIT {most:d}"
        rows = self._rows("launches", columns, f"last DESC, id DESC{limit}", version_id=version_id)
        return self.database.read_rows("launches", reversed(rows), launch_row_of)

    def results(self, version_id: int | None = None, digest: str | None = None) -> list[tuple[int, Result]]:
        """Return (version id, result) of one version, or of all, the latest last; ``digest`` is that of a result."""
        rows = self._rows("results", "id, version_id, result", "id", version_id=version_id, digest=digest)
        return self.database.read_rows(
            "results", rows, lambda _, owner, text: (owner, result_from_jsonable(parse_json(text)))
        )

    def measurements(self, version_id: int | None = None, key: str | None = None) -> list[MeasurementRow]:
        """Return measurements in order of creation, optionally of one version and key."""
        return self._read_measurements(key=key, version_id=version_id)

    def _read_measurements(self, **wanted: object) -> list[MeasurementRow]:
        columns = "id, version_id, key, config, device, status, time_ms, details, created"
        rows = self._rows("measurements", columns, "created, id", **wanted)
        return self.database.read_rows("measurements", rows, _measurement_row)

    def _rows(self, table: str, columns: str, order: str, **wanted: object) -> list[Any]:
        """Return the rows with the wanted values; None takes any. No index serves ``? IS NULL OR key = ?``."""
        values = {name: value for name, value in wanted.items() if value is not None}
        condition = " AND ".join(f"{name} = ?" for name in values) or "1"
        return self.database.rows(
            f"SELECT {columns} FROM {table} WHERE {condition} ORDER BY {order}", tuple(values.values())
        )

    def outcomes(self, version_ids: Sequence[int], record: Callable[..., T]) -> list[T]:
        """Return ``record(*columns)`` for the measurements of some versions, in order of creation.

        ``record`` gets the columns, whether the details are JSON, and their reason, low_ms, high_ms and samples, or
        None. That takes a third of the time of `measurements`; `MalformedData` is skipped, as there.
        """
        details = ", ".join(
            f"CASE WHEN json_valid(details) THEN json_extract(details, '$.{name}') END"
            for name in ("reason", "low_ms", "high_ms", "samples")
        )
        condition, values = among("version_id", version_ids)
        rows = self.database.rows(
            f"SELECT id, version_id, key, config, device, status, time_ms, created, json_valid(details), {details} "
            f"FROM measurements WHERE {condition} ORDER BY created, id",
            values,
        )
        return self.database.read_rows("measurements", rows, record)

    def measured(self, version_ids: Ids = None) -> set[int]:
        """Return the versions, or those of some versions, that have measurements."""
        condition, values = among("id", version_ids)
        has_some = "EXISTS (SELECT 1 FROM measurements WHERE version_id = versions.id)"
        rows = self.database.rows(f"SELECT id FROM versions WHERE {condition} AND {has_some}", values)
        return {number for (number,) in rows if isinstance(number, int)}

    def best(self, version_id: int) -> Measurement | None:
        """Return the fastest good measurement of the newest key, or None; later outcomes override earlier ones.

        Only the measurement that is returned is decoded.
        """
        rows = self._rows("measurements", "id, key, config, status, time_ms", "created, id", version_id=version_id)
        last = {(key, config): status for _, key, config, status, _ in rows}
        good = [row for row in rows if row[3] == last[row[1:3]] == "ok" and isinstance(row[4], float)]
        latest = sorted((row for row in good if row[1] == good[-1][1]), key=lambda row: float(row[4]))
        return next((row.measurement for number, *_ in latest for row in self._read_measurements(id=number)), None)

    def trim(self, limit_bytes: int) -> int:
        """Delete the oldest rows, measurements last, until the store takes less; return their number."""
        removed = 0
        by_id = [(table, "id") for table in ("explanations", "snapshots", "results", "trials")]
        for table, order in (*by_id, ("launches", "last"), ("measurements", "id")):
            while self._used_bytes() > limit_bytes:
                gone = self.database.write(partial(_delete_oldest, table=table, order=order))
                removed += gone
                if not gone:
                    break
        if removed:
            self.database.compact()
        return removed

    def _used_bytes(self) -> int:
        values = [self.database.rows(f"PRAGMA {name}")[0][0] for name in ("page_count", "freelist_count", "page_size")]
        pages, free, page_bytes = (int(str(value)) for value in values)
        return (pages - free) * page_bytes


def _measurement_subject(measurement: Measurement) -> tuple[str, str]:
    return measurement.key, canonical_json(dict(measurement.config))


def _delete_oldest(cursor: sqlite3.Cursor, table: str, order: str) -> int:
    cursor.execute(f"DELETE FROM {table} WHERE id IN (SELECT id FROM {table} ORDER BY {order} LIMIT 200)")
    return cursor.rowcount


def insert_launch(
    cursor: sqlite3.Cursor, version_id: int, launch: RecordedLaunch, seconds: float | None, count: int, now: float
) -> int:
    """Insert launches of one kind, or add to their count; return the id of the row."""
    text, digest = canonical_json(launch_to_jsonable(launch)), launch_digest(launch)
    cursor.execute(
        "INSERT INTO launches (version_id, digest, launch, seconds, count, created, last, kind) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (version_id, digest) DO UPDATE SET launch = excluded.launch, "
        "seconds = COALESCE(excluded.seconds, seconds), count = count + excluded.count, last = excluded.last, "
        "kind = excluded.kind",
        (version_id, digest, text, seconds, count, now, now, launch.kind),
    )
    cursor.execute("SELECT id FROM launches WHERE version_id = ? AND digest = ?", (version_id, digest))
    return int(cursor.fetchone()[0])


def _insert_measurements(cursor: sqlite3.Cursor, version_id: int, rows: Sequence[tuple[Measurement, float]]) -> None:
    """Append measurements, each with its time of creation."""
    cursor.executemany(
        "INSERT INTO measurements (version_id, key, config, device, status, time_ms, details, created) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        [
            (
                version_id,
                *_measurement_subject(m),
                m.device,
                m.status,
                m.time_ms,
                canonical_json(dict(m.details)),
                created,
            )
            for m, created in rows
        ],
    )


def _measurement_row(number: int, owner: int, *values: Any) -> MeasurementRow:
    *measured, created = values
    require_moment(created, "created")
    return MeasurementRow(number, owner, measurement_of(*measured), created)


@dataclass(frozen=True, slots=True)
class PassedTrial:
    """The key of a passed trial launch: compiled kernel, GPU model, driver and launch.

    ``launch`` is a hash of the grid, and of sizes, layouts and numbers of the arguments.
    """

    digest: str
    device: str
    driver: str
    launch: str


@dataclass(frozen=True, slots=True)
class TrialLog:
    """The passed trial launches of all sessions, each valid for any values of its arguments."""

    database: Database

    def add(self, trial: PassedTrial) -> None:
        """Store a passed trial launch, once."""
        insert = "INSERT OR IGNORE INTO trials (digest, device, driver, launch, created) VALUES (?, ?, ?, ?, ?)"
        self.database.execute(insert, *astuple(trial), time.time())

    def __contains__(self, trial: PassedTrial) -> bool:
        query = "SELECT 1 FROM trials WHERE digest = ? AND device = ? AND driver = ? AND launch = ?"
        return bool(self.database.rows(query, astuple(trial)))


_LAST = 2**63 - 1  # the largest number that SQLite holds
_COLUMNS = "id, name, version, digest, closure, created, cell"


class Store:
    """The store in ``folder``, or in memory if that is None."""

    def __init__(self, folder: Path | None) -> None:
        self.database = Database(folder)
        self.history = History(self.database)
        self.overview = Overview(self.database)
        self.trials = TrialLog(self.database)
        self.explanations = Explanations(self.database)
        self.snapshots = Snapshots(self.database)

    @classmethod
    def copy_of(cls, path: Path) -> Store:
        """Return a copy in memory of the store in a file; the file is only read.

        Raises:
            StoreError: the file is not a store, or one of a later release.
        """
        store = cls(None)
        store.database.fill_from(path)
        return store

    @property
    def path(self) -> Path | None:
        """The file, or None if the store is in memory."""
        return self.database.path

    def add(self, closure: Closure, digest: str, name: str, notebook: str = "") -> Version:
        """Return the version of ``name`` with this digest, added as the next one if it is new."""
        entry = Entry(name, closure, digest, notebook=notebook)
        return self.database.write(lambda cursor: _add_version(cursor, entry, time.time()))[0]

    def enter(self, entries: Sequence[Entry]) -> list[tuple[Version, int]]:
        """Add kernels with their history in one transaction; return versions and counts of new measurements.

        Launches, notes, and measurements without a time come in with a new version only.
        """
        now = time.time()
        return self.database.write(lambda cursor: [_enter_kernel(cursor, entry, now) for entry in entries])

    def find(self, name: str, version: int | None = None) -> Version | None:
        """Return a version by name and number, the newest without a number; None if there is none."""
        if version is not None:
            rows = self._versions("WHERE name = ? AND version = ?", (name, version)) if version <= _LAST else []
            return rows[0] if rows else None
        numbers = self.database.rows("SELECT id FROM versions WHERE name = ? ORDER BY version DESC", (name,))
        known = (self.by_id(number) for (number,) in numbers if isinstance(number, int))
        return next((kept for kept in known if kept is not None), None)  # past one that cannot be read

    def by_id(self, number: int) -> Version | None:
        """Return the version with this id, or None."""
        rows = self._versions("WHERE id = ?", (number,)) if abs(number) <= _LAST else []
        return rows[0] if rows else None

    def versions(self, ids: Ids = None) -> list[Version]:
        """Return versions with their source, by name and number; `Overview.outlines` has them without."""
        condition, values = among("id", ids)
        return self._versions(f"WHERE {condition} ORDER BY name, version", values)

    def remove(self, number: int) -> None:
        """Delete a version and its history. Its number and its id are not given again."""
        self.database.execute("DELETE FROM versions WHERE id = ?", number)

    def tag(self, number: int, tags: Iterable[str]) -> None:
        """Put tags on a version."""
        rows = [(number, tag) for tag in tags]
        self.database.write(lambda cursor: cursor.executemany("INSERT OR IGNORE INTO tags VALUES (?, ?)", rows))

    def untag(self, number: int, tags: Iterable[str]) -> None:
        """Take tags off a version."""
        rows = [(number, tag) for tag in tags]
        delete = "DELETE FROM tags WHERE version_id = ? AND tag = ?"
        self.database.write(lambda cursor: cursor.executemany(delete, rows))

    def tags(self, ids: Ids = None) -> dict[int, tuple[str, ...]]:
        """Return the tags of every version that has some, or of some versions, by its id."""
        return self._texts("tags", "rowid, version_id, tag", "version_id, tag", ids)

    def set_failure(self, number: int, message: str) -> None:
        """Keep the error of a version that does not compile, or failed as it ran, instead of an earlier one."""
        self.database.execute("INSERT OR REPLACE INTO failures VALUES (?, ?, ?)", number, message, time.time())

    def failures(self, ids: Ids = None) -> dict[int, tuple[str, float]]:
        """Return the error and its time for each version with a failed compile or launch, by its id."""
        condition, values = among("version_id", ids)
        query = f"SELECT rowid, version_id, message, created FROM failures WHERE {condition}"
        return dict(self.database.read_rows("failures", self.database.rows(query, values), _failure))

    def note(self, number: int, text: str) -> None:
        """Keep a note on a version, once."""
        insert = "INSERT INTO notes (version_id, note, created) SELECT ?, ?, ?"
        is_new = "NOT EXISTS (SELECT 1 FROM notes WHERE version_id = ? AND note = ?)"
        self.database.execute(f"{insert} WHERE {is_new}", number, text, time.time(), number, text)

    def notes(self, number: int) -> list[str]:
        """Return the notes on a version, the oldest first."""
        return list(self.notes_by_version([number]).get(number, ()))

    def notes_by_version(self, ids: Ids = None) -> dict[int, tuple[str, ...]]:
        """Return the notes of every version that has some, or of some versions, by its id, the oldest first."""
        return self._texts("notes", "id, version_id, note", "id", ids)

    def _texts(self, table: str, columns: str, order: str, ids: Ids) -> dict[int, tuple[str, ...]]:
        condition, values = among("version_id", ids)
        rows = self.database.rows(f"SELECT {columns} FROM {table} WHERE {condition} ORDER BY {order}", values)
        texts: dict[int, tuple[str, ...]] = {}
        for number, text in self.database.read_rows(table, rows, _owned_text):
            texts[number] = (*texts.get(number, ()), text)
        return texts

    def close(self) -> None:
        """Close the database."""
        self.database.close()

    def _versions(self, condition: str, values: tuple[object, ...]) -> list[Version]:
        rows = self.database.rows(f"SELECT {_COLUMNS} FROM versions {condition}", values)
        return self.database.read_rows("versions", rows, _version)


def _add_version(cursor: sqlite3.Cursor, entry: Entry, now: float) -> tuple[Version, bool]:
    """Return the version of an entry, and whether it is new."""
    closure, name = entry.closure, entry.name
    row = _row(cursor, name, entry.digest)
    is_new = row is None
    if is_new:
        cursor.execute(
            "INSERT INTO kernels (name, last_version, created) VALUES (?, 1, ?) "
            "ON CONFLICT (name) DO UPDATE SET last_version = last_version + 1",
            (name, now),
        )
        text, entry_file = json.dumps(closure_to_jsonable(closure), separators=(",", ":")), closure.functions[0].file
        cursor.execute(
            "INSERT INTO versions (name, version, digest, closure, cell, created) "
            "SELECT name, last_version, ?, ?, ?, ? FROM kernels WHERE name = ?",
            (entry.digest, text, ", ".join(filter(None, (entry.notebook, closure.label(entry_file)))), now, name),
        )
        row = _row(cursor, name, entry.digest)
    number, _, version, digest, _, created, cell = row
    return Version(number, name, version, digest, closure, created, cell), is_new


def _enter_kernel(cursor: sqlite3.Cursor, entry: Entry, now: float) -> tuple[Version, int]:
    version, is_new = _add_version(cursor, entry, now)
    cursor.executemany("INSERT OR IGNORE INTO tags VALUES (?, ?)", [(version.id, tag) for tag in entry.tags])
    if is_new:
        notes = [(version.id, note, now) for note in entry.notes]
        cursor.executemany("INSERT INTO notes (version_id, note, created) VALUES (?, ?, ?)", notes)
        for launch, seconds, count in entry.launches:
            insert_launch(cursor, version.id, launch, seconds, count, now)
    query = "SELECT key, config, status, time_ms, created FROM measurements WHERE version_id = ?"
    known = set(cursor.execute(query, (version.id,)))
    fresh = [
        (m, now if created is None else created)
        for m, created in entry.measurements
        if (is_new if created is None else (*_measurement_subject(m), m.status, m.time_ms, created) not in known)
    ]
    _insert_measurements(cursor, version.id, fresh)
    return version, len(fresh)


def _row(cursor: sqlite3.Cursor, name: str, digest: str) -> Any:
    query = f"SELECT {_COLUMNS} FROM versions WHERE name = ? AND digest = ?"
    return cursor.execute(query, (name, digest)).fetchone()


def _version(number: int, name: str, version: int, digest: str, closure: str, created: float, cell: str) -> Version:
    entry = Version(number, name, version, digest, closure_of_json(parse_json(closure)), created, cell)
    require_type(entry, Version, "the version")
    require_outline(name, version, created)
    return entry


def _owned_text(_: int, owner: int, text: str) -> tuple[int, str]:
    require_type(text, str, "its text")
    return owner, text


def _failure(_: int, owner: int, message: str, created: float) -> tuple[int, tuple[str, float]]:
    require_type(message, str, "its message")
    require_moment(created, "created")
    return owner, (message, created)
