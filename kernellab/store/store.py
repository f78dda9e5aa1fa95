"""The kernels of a user and their versions; their history hangs on them."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from kernellab.source import Closure, closure_of_json, closure_to_jsonable, parsed_json, require, require_type
from kernellab.store.database import Database
from kernellab.store.history import History, TrialLog, identity, insert_launch, insert_measurements, known_measurements
from kernellab.store.records import Entry, Version
from kernellab.store.serial import require_moment

_LAST = 2**63 - 1  # the largest number that SQLite holds
_COLUMNS = "id, name, version, digest, closure, created, cell"


class Store:
    """The store in ``folder``, or in memory where that is None."""

    def __init__(self, folder: Path | None) -> None:
        self.database = Database(folder)
        self.history = History(self.database)
        self.trials = TrialLog(self.database)

    @property
    def path(self) -> Path | None:
        """The file, or None where the store is in memory."""
        return self.database.path

    def add(self, closure: Closure, digest: str, name: str) -> Version:
        """Return the version of ``name`` with this digest, entering it as the next one if it is new."""
        entry = Entry(name, closure, digest)
        return self.database.write(lambda cursor: _added(cursor, entry, time.time()))[0]

    def enter(self, entries: Sequence[Entry]) -> list[tuple[Version, int]]:
        """Enter kernels with their history in one transaction; return versions, and how many measurements are new.

        Launches, notes, and measurements without a time come in with a new version only.
        """
        now = time.time()
        return self.database.write(lambda cursor: [_entered(cursor, entry, now) for entry in entries])

    def find(self, name: str, version: int | None = None) -> Version | None:
        """Return a version by name and number, the newest where no number is given; None where there is none."""
        if version is not None and version > _LAST:
            return None
        rows = self._versions(
            "WHERE name = ? AND (? IS NULL OR version = ?) ORDER BY version DESC", (name, version, version)
        )
        return rows[0] if rows else None

    def by_id(self, number: int) -> Version | None:
        rows = self._versions("WHERE id = ?", (number,)) if abs(number) <= _LAST else []
        return rows[0] if rows else None

    def versions(self, search: str = "") -> list[Version]:
        """Return all versions, by name and number; those whose name, tags, notes or source contain ``search``."""
        pattern = f"%{_escaped(search)}%"
        in_json = f"%{_escaped(json.dumps(search)[1:-1])}%"
        return self._versions(
            r"WHERE name LIKE ? ESCAPE '\' OR closure LIKE ? ESCAPE '\' "
            r"OR id IN (SELECT version_id FROM tags WHERE tag LIKE ? ESCAPE '\') "
            r"OR id IN (SELECT version_id FROM notes WHERE note LIKE ? ESCAPE '\') ORDER BY name, version",
            (pattern, in_json, pattern, pattern),
        )

    def remove(self, number: int) -> None:
        """Delete a version and its history. Its number and its id are not given again."""
        self.database.write(lambda cursor: cursor.execute("DELETE FROM versions WHERE id = ?", (number,)))

    def tag(self, number: int, tags: Iterable[str]) -> None:
        rows = [(number, tag) for tag in tags]
        self.database.write(lambda cursor: cursor.executemany("INSERT OR IGNORE INTO tags VALUES (?, ?)", rows))

    def untag(self, number: int, tags: Iterable[str]) -> None:
        rows = [(number, tag) for tag in tags]
        self.database.write(
            lambda cursor: cursor.executemany("DELETE FROM tags WHERE version_id = ? AND tag = ?", rows)
        )

    def tags(self) -> dict[int, tuple[str, ...]]:
        """Return the tags of every version that has some, by its id."""
        found: dict[int, tuple[str, ...]] = {}
        rows = self.database.rows("SELECT rowid, version_id, tag FROM tags ORDER BY version_id, tag")
        for number, tag in self.database.readable("tags", rows, _owned_text):
            found[number] = (*found.get(number, ()), tag)
        return found

    def note(self, number: int, text: str) -> None:
        """Keep a note on a version."""
        values = (number, text, time.time())
        self.database.write(
            lambda cursor: cursor.execute("INSERT INTO notes (version_id, note, created) VALUES (?, ?, ?)", values)
        )

    def notes(self, number: int) -> list[str]:
        """Return the notes on a version, the oldest first."""
        rows = self.database.rows("SELECT id, version_id, note FROM notes WHERE version_id = ? ORDER BY id", (number,))
        return [text for _, text in self.database.readable("notes", rows, _owned_text)]

    def close(self) -> None:
        self.database.close()

    def _versions(self, condition: str, values: tuple[object, ...]) -> list[Version]:
        rows = self.database.rows(f"SELECT {_COLUMNS} FROM versions {condition}", values)
        return self.database.readable("versions", rows, _version)


def _added(cursor: sqlite3.Cursor, entry: Entry, now: float) -> tuple[Version, bool]:
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
        text = json.dumps(closure_to_jsonable(closure), separators=(",", ":"))
        cursor.execute(
            "INSERT INTO versions (name, version, digest, closure, cell, created) "
            "SELECT name, last_version, ?, ?, ?, ? FROM kernels WHERE name = ?",
            (entry.digest, text, closure.label(closure.functions[0].file), now, name),
        )
        row = _row(cursor, name, entry.digest)
    number, _, version, digest, _, created, cell = row
    return Version(number, name, version, digest, closure, created, cell), is_new


def _entered(cursor: sqlite3.Cursor, entry: Entry, now: float) -> tuple[Version, int]:
    version, is_new = _added(cursor, entry, now)
    cursor.executemany("INSERT OR IGNORE INTO tags VALUES (?, ?)", [(version.id, tag) for tag in entry.tags])
    if is_new:
        notes = [(version.id, note, now) for note in entry.notes]
        cursor.executemany("INSERT INTO notes (version_id, note, created) VALUES (?, ?, ?)", notes)
        for launch, seconds, count in entry.launches:
            insert_launch(cursor, version.id, launch, seconds, count, now)
    known = known_measurements(cursor, version.id)
    fresh = [
        (measurement, now if created is None else created)
        for measurement, created in entry.measurements
        if (is_new if created is None else identity(measurement, created) not in known)
    ]
    insert_measurements(cursor, version.id, fresh)
    return version, len(fresh)


def _row(cursor: sqlite3.Cursor, name: str, digest: str) -> Any:
    query = f"SELECT {_COLUMNS} FROM versions WHERE name = ? AND digest = ?"
    return cursor.execute(query, (name, digest)).fetchone()


def _version(number: int, name: str, version: int, digest: str, closure: str, created: float, cell: str) -> Version:
    found = Version(number, name, version, digest, closure_of_json(parsed_json(closure)), created, cell)
    require_type(found, Version, "the version")
    require_moment(created, "created")
    require(version > 0, "its number", version, "a number from 1 on")
    require(0 < len(name) <= 200 and name.isprintable(), "its name", name, "a short text")
    return found


def _owned_text(_: int, owner: int, text: str) -> tuple[int, str]:
    require_type(text, str, "its text")
    return owner, text


def _escaped(text: str) -> str:
    """Escape what LIKE reads as a wildcard."""
    return text.replace("\\", r"\\").replace("%", r"\%").replace("_", r"\_")
