"""The database of kernels and their versions: one SQLite file, shared by all notebooks of a user.

Rows are JSON and text, so that opening a store never executes anything. Writes are committed when a method returns.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
import threading
import time
import uuid
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kernellab.source import Closure, closure_from_jsonable, closure_to_jsonable

SCHEMA = 1
FILE = "kernellab.sqlite"
_BUSY_S = 30.0

_TABLES = """
CREATE TABLE IF NOT EXISTS versions (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    version INTEGER NOT NULL,
    digest TEXT NOT NULL,
    closure TEXT NOT NULL,
    created REAL NOT NULL,
    UNIQUE (name, version),
    UNIQUE (name, digest)
);
"""


@dataclass(frozen=True, slots=True)
class Version:
    """One version of one kernel. ``id`` is its number in the store; ``created`` is seconds since 1970."""

    id: int
    name: str
    version: int
    digest: str
    closure: Closure
    created: float

    @property
    def label(self) -> str:
        return f"{self.name}@{self.version}"


class Store:
    """The store in ``folder``, or in memory where that is None."""

    def __init__(self, folder: Path | None) -> None:
        self.path = None if folder is None else folder / FILE
        self._lock = threading.RLock()
        self._connection = self._opened()

    def add(self, closure: Closure, digest: str, name: str) -> Version:
        """Return the version of ``name`` with this digest, entering it as the next one if it is new."""
        text = json.dumps(closure_to_jsonable(closure), separators=(",", ":"))
        with self._transaction() as cursor:
            cursor.execute(
                "INSERT OR IGNORE INTO versions (name, version, digest, closure, created) "
                "SELECT ?, COALESCE(MAX(version), 0) + 1, ?, ?, ? FROM versions WHERE name = ?",
                (name, digest, text, time.time(), name),
            )
            row = cursor.execute("SELECT * FROM versions WHERE name = ? AND digest = ?", (name, digest)).fetchone()
        return _version(row)

    def find(self, name: str, version: int | None = None) -> Version | None:
        """Return a version by name and number, the newest where no number is given; None where there is none."""
        rows = self._rows(
            "SELECT * FROM versions WHERE name = ? AND (? IS NULL OR version = ?) ORDER BY version DESC LIMIT 1",
            (name, version, version),
        )
        return rows[0] if rows else None

    def by_id(self, number: int) -> Version | None:
        rows = self._rows("SELECT * FROM versions WHERE id = ?", (number,))
        return rows[0] if rows else None

    def versions(self) -> list[Version]:
        """Return all versions, by name and number."""
        return self._rows("SELECT * FROM versions ORDER BY name, version", ())

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    def _rows(self, query: str, values: tuple[object, ...]) -> list[Version]:
        with self._lock:
            return [_version(row) for row in self._connection.execute(query, values).fetchall()]

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Cursor]:
        with self._lock:
            cursor = self._connection.cursor()
            cursor.execute("BEGIN IMMEDIATE")
            try:
                yield cursor
            except BaseException:
                cursor.execute("ROLLBACK")
                raise
            cursor.execute("COMMIT")

    def _opened(self) -> sqlite3.Connection:
        if self.path is None:
            return _connected(":memory:")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            return _connected(str(self.path))
        except (sqlite3.DatabaseError, _NewerSchema) as exc:
            if isinstance(exc, sqlite3.OperationalError):
                return self._in_memory(exc)
            aside = self.path.with_name(f"{FILE}.{uuid.uuid4().hex[:8]}.aside")
            self.path.rename(aside)
            warnings.warn(
                f"The kernel store {self.path} cannot be used ({exc}); it was set aside as {aside}.", stacklevel=3
            )
            return _connected(str(self.path))
        except OSError as exc:
            return self._in_memory(exc)

    def _in_memory(self, exc: Exception) -> sqlite3.Connection:
        warnings.warn(
            f"The kernel store {self.path} cannot be opened ({exc}); kernels are kept in memory.", stacklevel=4
        )
        self.path = None
        return _connected(":memory:")


class _NewerSchema(Exception):
    """The file was written by a later release."""


def _connected(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
    try:
        found = connection.execute("PRAGMA user_version").fetchone()[0]
        if found > SCHEMA:
            raise _NewerSchema(f"its schema is {found}, this release knows {SCHEMA}")
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.executescript(_TABLES)
        connection.execute(f"PRAGMA user_version={SCHEMA}")
    except BaseException:
        connection.close()
        raise
    return connection


def _version(row: tuple[int, str, int, str, str, float]) -> Version:
    number, name, version, digest, closure, created = row
    return Version(number, name, version, digest, closure_from_jsonable(json.loads(closure)), created)
