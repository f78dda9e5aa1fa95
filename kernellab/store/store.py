"""The kernels of a user and their versions; their history hangs on them."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from kernellab.source import Closure, closure_from_jsonable, closure_to_jsonable
from kernellab.store.database import Database
from kernellab.store.flights import FlightLog
from kernellab.store.history import History
from kernellab.store.records import Version

_COLUMNS = "id, name, version, digest, closure, created, cell"


class Store:
    """The store in ``folder``, or in memory where that is None."""

    def __init__(self, folder: Path | None) -> None:
        self.database = Database(folder)
        self.history = History(self.database)
        self.flights = FlightLog(self.database)

    @property
    def path(self) -> Path | None:
        """The file, or None where the store is in memory."""
        return self.database.path

    def add(self, closure: Closure, digest: str, name: str) -> Version:
        """Return the version of ``name`` with this digest, entering it as the next one if it is new."""
        text = json.dumps(closure_to_jsonable(closure), separators=(",", ":"))
        cell = closure.label(closure.functions[0].file)

        def work(cursor: sqlite3.Cursor) -> Any:
            known = _row(cursor, name, digest)
            if known is not None:
                return known
            now = time.time()
            cursor.execute(
                "INSERT INTO kernels (name, last_version, created) VALUES (?, 1, ?) "
                "ON CONFLICT (name) DO UPDATE SET last_version = last_version + 1",
                (name, now),
            )
            cursor.execute(
                "INSERT INTO versions (name, version, digest, closure, cell, created) "
                "SELECT name, last_version, ?, ?, ?, ? FROM kernels WHERE name = ?",
                (digest, text, cell, now, name),
            )
            return _row(cursor, name, digest)

        return _version(self.database.write(work))

    def find(self, name: str, version: int | None = None) -> Version | None:
        """Return a version by name and number, the newest where no number is given; None where there is none."""
        rows = self._versions(
            "WHERE name = ? AND (? IS NULL OR version = ?) ORDER BY version DESC LIMIT 1", (name, version, version)
        )
        return rows[0] if rows else None

    def by_id(self, number: int) -> Version | None:
        rows = self._versions("WHERE id = ?", (number,))
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
        rows: list[Any] = self.database.rows("SELECT version_id, tag FROM tags ORDER BY version_id, tag")
        for number, tag in rows:
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
        return [
            str(row[0])
            for row in self.database.rows("SELECT note FROM notes WHERE version_id = ? ORDER BY id", (number,))
        ]

    def close(self) -> None:
        self.database.close()

    def _versions(self, condition: str, values: tuple[object, ...]) -> list[Version]:
        rows: list[Any] = self.database.rows(f"SELECT {_COLUMNS} FROM versions {condition}", values)
        return list(map(_version, rows))


def _row(cursor: sqlite3.Cursor, name: str, digest: str) -> Any:
    query = f"SELECT {_COLUMNS} FROM versions WHERE name = ? AND digest = ?"
    return cursor.execute(query, (name, digest)).fetchone()


def _version(row: Any) -> Version:
    number, name, version, digest, closure, created, cell = row
    return Version(number, name, version, digest, closure_from_jsonable(json.loads(closure)), created, cell)


def _escaped(text: str) -> str:
    """Escape what LIKE reads as a wildcard."""
    return text.replace("\\", r"\\").replace("%", r"\%").replace("_", r"\_")
