"""Launches, compiled results and measurements of the versions in the store."""

from __future__ import annotations

import dataclasses
import hashlib
import sqlite3
import time
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from typing import Any

from kernellab.source import parsed_json
from kernellab.store.database import Database
from kernellab.store.records import Launch, LaunchRow, Measurement, MeasurementRow, Result
from kernellab.store.serial import (
    dumped,
    launch_from_jsonable,
    launch_to_jsonable,
    measurement_of,
    require_count,
    require_moment,
    require_seconds,
    result_from_jsonable,
    result_to_jsonable,
)

# A launch is the same as an earlier one if these agree; what its tensors held may differ.
_NOT_IDENTITY = ("low", "high", "values")


@dataclasses.dataclass(frozen=True, slots=True)
class History:
    """What happened to the versions: ids are those of the store."""

    database: Database
    clock: Callable[[], float] = time.time

    def add_launch(
        self,
        version_id: int,
        launch: Launch,
        *,
        seconds: float | None = None,
        count: int = 1,
        result: Result | None = None,
    ) -> None:
        """Count launches of one kind, together with what was compiled for them, in one transaction."""
        now = self.clock()

        def work(cursor: sqlite3.Cursor) -> None:
            insert_launch(cursor, version_id, launch, seconds, count, now)
            if result is not None:
                _insert_result(cursor, version_id, result, now)

        self.database.write(work)

    def add_measurements(self, version_id: int, measurements: Sequence[Measurement]) -> None:
        """Append measurements in one transaction."""
        rows = [(measurement, self.clock()) for measurement in measurements]
        self.database.write(lambda cursor: insert_measurements(cursor, version_id, rows))

    def launches(self, version_id: int | None = None) -> list[LaunchRow]:
        """Return the launches of one version, or of all, the latest last."""
        rows: list[Any] = self.database.rows(
            "SELECT id, version_id, launch, seconds, count, created, last FROM launches "
            "WHERE ? IS NULL OR version_id = ? ORDER BY last, id",
            (version_id, version_id),
        )
        return self.database.readable("launches", rows, _launch_row)

    def results(self, version_id: int | None = None) -> list[tuple[int, Result]]:
        """Return (version id, result) of one version, or of all, the latest last."""
        rows: list[Any] = self.database.rows(
            "SELECT id, version_id, result FROM results WHERE ? IS NULL OR version_id = ? ORDER BY id",
            (version_id, version_id),
        )
        return self.database.readable("results", rows, _result_row)

    def measurements(self, version_id: int | None = None, key: str | None = None) -> list[MeasurementRow]:
        """Return measurements in the order in which they were made, of one version and key where these are given."""
        wanted = {name: each for name, each in (("key", key), ("version_id", version_id)) if each is not None}
        condition = " AND ".join(f"{name} = ?" for name in wanted) or "1"  # an index serves no "? IS NULL OR key = ?"
        rows: list[Any] = self.database.rows(
            "SELECT id, version_id, key, config, device, status, time_ms, details, created FROM measurements "
            f"WHERE {condition} ORDER BY id",
            tuple(wanted.values()),
        )
        return self.database.readable("measurements", rows, _measurement_row)

    def best(self, version_id: int) -> Measurement | None:
        """Return the fastest good measurement of the newest key, or None."""
        rows = [row for row in self.measurements(version_id) if row.measurement.time_ms is not None]
        good = [row.measurement for row in rows if row.measurement.status == "ok"]
        latest = [m for m in good if m.key == good[-1].key]
        return min(latest, key=lambda m: m.time_ms or 0.0, default=None)

    def trim(self, limit_bytes: int) -> int:
        """Delete the oldest rows, results first and measurements last, until the rest takes less; return how many."""
        removed = 0
        for table, order in (("results", "id"), ("trials", "id"), ("launches", "last"), ("measurements", "id")):
            while self._used_bytes() > limit_bytes:
                gone = self.database.write(lambda cursor, t=table, o=order: _delete_oldest(cursor, t, o))  # type: ignore[misc]
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


def _delete_oldest(cursor: sqlite3.Cursor, table: str, order: str) -> int:
    cursor.execute(f"DELETE FROM {table} WHERE id IN (SELECT id FROM {table} ORDER BY {order} LIMIT 200)")
    return cursor.rowcount


def insert_launch(
    cursor: sqlite3.Cursor, version_id: int, launch: Launch, seconds: float | None, count: int, now: float
) -> None:
    """Enter launches of one kind, or count them with those of their kind that are there."""
    text, digest = dumped(launch_to_jsonable(launch)), _launch_digest(launch)
    cursor.execute(
        "INSERT INTO launches (version_id, digest, launch, seconds, count, created, last) "
        "VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (version_id, digest) DO UPDATE SET launch = excluded.launch, "
        "seconds = COALESCE(excluded.seconds, seconds), count = count + excluded.count, last = excluded.last",
        (version_id, digest, text, seconds, count, now, now),
    )


def insert_measurements(cursor: sqlite3.Cursor, version_id: int, rows: Sequence[tuple[Measurement, float]]) -> None:
    """Append measurements, each with the time at which it was made."""
    cursor.executemany(
        "INSERT INTO measurements (version_id, key, config, device, status, time_ms, details, created) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        [(version_id, *_measurement_values(measurement), created) for measurement, created in rows],
    )


def known_measurements(cursor: sqlite3.Cursor, version_id: int) -> set[tuple[Any, ...]]:
    """Return what `identity` gives for each measurement of a version."""
    query = "SELECT key, config, status, time_ms, created FROM measurements WHERE version_id = ?"
    return set(cursor.execute(query, (version_id,)))


def identity(measurement: Measurement, created: float) -> tuple[Any, ...]:
    """Return what two copies of one measurement have in common."""
    return measurement.key, dumped(dict(measurement.config)), measurement.status, measurement.time_ms, created


def _measurement_values(m: Measurement) -> tuple[Any, ...]:
    return m.key, dumped(dict(m.config)), m.device, m.status, m.time_ms, dumped(dict(m.details))


def _insert_result(cursor: sqlite3.Cursor, version_id: int, result: Result, now: float) -> None:
    cursor.execute(
        "INSERT OR REPLACE INTO results (version_id, digest, result, created) VALUES (?, ?, ?, ?)",
        (version_id, result.digest, dumped(result_to_jsonable(result)), now),
    )


def _launch_row(
    number: int, owner: int, text: str, seconds: float | None, count: int, created: float, last: float
) -> LaunchRow:
    launch = launch_from_jsonable(parsed_json(text), keeps_formulas=False)
    require_seconds(seconds, "seconds")
    require_count(count, "count")
    require_moment(created, "created")
    require_moment(last, "last")
    return LaunchRow(number, owner, launch, seconds, count, created, last)


def _result_row(number: int, owner: int, text: str) -> tuple[int, Result]:
    return owner, result_from_jsonable(parsed_json(text))


def _measurement_row(number: int, owner: int, *values: Any) -> MeasurementRow:
    *measured, created = values
    require_moment(created, "created")
    return MeasurementRow(number, owner, measurement_of(*measured), created)


def _launch_digest(launch: Launch) -> str:
    def lasting(argument: dict[str, Any]) -> dict[str, Any]:
        kept = {name: value for name, value in argument.items() if name not in _NOT_IDENTITY}
        return {**kept, "members": [lasting(member) for member in argument["members"]]}

    plain = launch_to_jsonable(launch)
    plain["arguments"] = [lasting(argument) for argument in plain["arguments"]]
    return hashlib.sha256(dumped(plain).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class PassedTrial:
    """What a passed trial launch holds for: the compiled kernel, the model of the GPU and its driver, and the launch.

    ``launch`` is a hash of the grid, and of sizes, layouts and numbers of the arguments.
    """

    digest: str
    device: str
    driver: str
    launch: str


@dataclass(frozen=True, slots=True)
class TrialLog:
    """The trial launches of all sessions that went well."""

    database: Database

    def add(self, trial: PassedTrial) -> None:
        values = (*astuple(trial), time.time())
        self.database.write(
            lambda cursor: cursor.execute(
                "INSERT OR IGNORE INTO trials (digest, device, driver, launch, created) VALUES (?, ?, ?, ?, ?)", values
            )
        )

    def __contains__(self, trial: PassedTrial) -> bool:
        query = "SELECT 1 FROM trials WHERE digest = ? AND device = ? AND driver = ? AND launch = ?"
        return bool(self.database.rows(query, astuple(trial)))
