"""Launches, compiled results and measurements of the versions in the store."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kernellab.source import from_jsonable, jsonable
from kernellab.store.database import Database
from kernellab.store.records import Argument, Launch, LaunchRow, Measurement, MeasurementRow, Result

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
        text, digest, now = _dumped(_plain(launch)), _launch_digest(launch), self.clock()

        def work(cursor: sqlite3.Cursor) -> None:
            cursor.execute(
                "INSERT INTO launches (version_id, digest, launch, seconds, count, created, last) "
                "VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (version_id, digest) DO UPDATE SET launch = excluded.launch, "
                "seconds = COALESCE(excluded.seconds, seconds), count = count + excluded.count, last = excluded.last",
                (version_id, digest, text, seconds, count, now, now),
            )
            if result is not None:
                _insert_result(cursor, version_id, result, now)

        self.database.write(work)

    def add_measurements(self, version_id: int, measurements: Sequence[Measurement]) -> None:
        """Append measurements in one transaction."""
        now = self.clock()
        self.enter_measurements([(version_id, measurement, now) for measurement in measurements])

    def enter_measurements(self, rows: Sequence[tuple[int, Measurement, float]]) -> None:
        """Enter measurements that were made elsewhere, each with its version and its time, in one transaction."""
        values = [(owner, *_measurement_values(measurement), created) for owner, measurement, created in rows]
        self.database.write(lambda cursor: cursor.executemany(_INSERT_MEASUREMENT, values))

    def launches(self, version_id: int | None = None) -> list[LaunchRow]:
        """Return the launches of one version, or of all, the latest last."""
        rows: list[Any] = self.database.rows(
            "SELECT id, version_id, launch, seconds, count, created, last FROM launches "
            "WHERE ? IS NULL OR version_id = ? ORDER BY last, id",
            (version_id, version_id),
        )
        return [LaunchRow(number, owner, _launch(json.loads(text)), *rest) for number, owner, text, *rest in rows]

    def results(self, version_id: int | None = None) -> list[tuple[int, Result]]:
        """Return (version id, result) of one version, or of all, the latest last."""
        rows: list[Any] = self.database.rows(
            "SELECT version_id, result FROM results WHERE ? IS NULL OR version_id = ? ORDER BY id",
            (version_id, version_id),
        )
        return [(owner, _result(json.loads(text))) for owner, text in rows]

    def measurements(self, version_id: int | None = None, key: str | None = None) -> list[MeasurementRow]:
        """Return measurements in the order in which they were made, of one version and key where these are given."""
        wanted = {name: each for name, each in (("key", key), ("version_id", version_id)) if each is not None}
        condition = " AND ".join(f"{name} = ?" for name in wanted) or "1"  # an index serves no "? IS NULL OR key = ?"
        rows: list[Any] = self.database.rows(
            "SELECT id, version_id, key, config, device, status, time_ms, details, created FROM measurements "
            f"WHERE {condition} ORDER BY id",
            tuple(wanted.values()),
        )
        return [
            MeasurementRow(
                number, owner, Measurement(k, json.loads(config), device, status, ms, json.loads(details)), created
            )
            for number, owner, k, config, device, status, ms, details, created in rows
        ]

    def best(self, version_id: int) -> Measurement | None:
        """Return the fastest good measurement of the newest key, or None."""
        rows = [row for row in self.measurements(version_id) if row.measurement.time_ms is not None]
        good = [row.measurement for row in rows if row.measurement.status == "ok"]
        latest = [m for m in good if m.key == good[-1].key]
        return min(latest, key=lambda m: m.time_ms or 0.0, default=None)

    def trim(self, limit_bytes: int) -> int:
        """Delete the oldest rows, results first and measurements last, until the rest takes less; return how many."""
        removed = 0
        for table, order in (("results", "id"), ("flights", "id"), ("launches", "last"), ("measurements", "id")):
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


_INSERT_MEASUREMENT = (
    "INSERT INTO measurements (version_id, key, config, device, status, time_ms, details, created) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)


def _measurement_values(m: Measurement) -> tuple[Any, ...]:
    return m.key, _dumped(dict(m.config)), m.device, m.status, m.time_ms, _dumped(dict(m.details))


def _insert_result(cursor: sqlite3.Cursor, version_id: int, result: Result, now: float) -> None:
    cursor.execute(
        "INSERT OR REPLACE INTO results (version_id, digest, result, created) VALUES (?, ?, ?, ?)",
        (version_id, result.digest, _dumped(_plain(result)), now),
    )


def launch_to_jsonable(launch: Launch) -> dict[str, Any]:
    return _plain(launch)


def launch_from_jsonable(value: Mapping[str, Any]) -> Launch:
    return _launch(value)


def _plain(record: Launch | Result) -> dict[str, Any]:
    """Return a record by its field names; what may be of any plain type is tagged with it."""
    found = {f.name: getattr(record, f.name) for f in dataclasses.fields(record)}
    if isinstance(record, Launch):
        found["arguments"] = [_plain_argument(argument) for argument in record.arguments]
        if record.by == "launch":
            del found["by"]  # those of an earlier release have none
    return {**found, "options": {name: jsonable(value) for name, value in record.options.items()}}


def _plain_argument(argument: Argument) -> dict[str, Any]:
    """Return the fields that differ from their defaults."""
    found = {}
    for f in dataclasses.fields(argument):
        value = getattr(argument, f.name)
        if f.default is dataclasses.MISSING or value != f.default or type(value) is not type(f.default):
            found[f.name] = value
    found["members"] = [_plain_argument(member) for member in argument.members]
    if argument.source is not None:
        found["source"] = jsonable(argument.source)
    return {**found, "value": jsonable(argument.value)}


def _launch_digest(launch: Launch) -> str:
    def identity(argument: dict[str, Any]) -> dict[str, Any]:
        kept = {name: value for name, value in argument.items() if name not in _NOT_IDENTITY}
        return {**kept, "members": [identity(member) for member in argument["members"]]}

    plain = _plain(launch)
    plain["arguments"] = [identity(argument) for argument in plain["arguments"]]
    return hashlib.sha256(_dumped(plain).encode()).hexdigest()


def _launch(value: Mapping[str, Any]) -> Launch:
    known = _known(Launch, value)
    known["signature"] = tuple((name, kind) for name, kind in value["signature"])
    known["arguments"] = tuple(map(_argument, value["arguments"]))
    known["options"] = {name: from_jsonable(each) for name, each in value["options"].items()}
    known["grid"] = None if value["grid"] is None else tuple(value["grid"])
    return Launch(**known)


def _argument(value: Mapping[str, Any]) -> Argument:
    known: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in _known(Argument, value).items()}
    known["value"] = from_jsonable(value["value"])
    known["members"] = tuple(map(_argument, value["members"]))
    known["source"] = from_jsonable(value.get("source"))
    return Argument(**known)


def _result(value: Mapping[str, Any]) -> Result:
    known: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in _known(Result, value).items()}
    known["options"] = {name: from_jsonable(v) for name, v in value["options"].items()}
    return Result(**known)


def _known(cls: type, value: Mapping[str, Any]) -> dict[str, Any]:
    names = {f.name for f in dataclasses.fields(cls)}
    return {name: each for name, each in value.items() if name in names}


def _dumped(value: object) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
