"""The tables of the store, and how those of an earlier release become those of this one."""

from __future__ import annotations

import sqlite3

_VERSIONS_1 = """
CREATE TABLE versions (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    version INTEGER NOT NULL,
    digest TEXT NOT NULL,
    closure TEXT NOT NULL,
    created REAL NOT NULL,
    UNIQUE (name, version),
    UNIQUE (name, digest)
)
"""

# A kernel remembers its last version, and ids are never given twice: what was removed keeps its number for itself.
_HISTORY_2 = (
    "CREATE TABLE kernels (name TEXT PRIMARY KEY, last_version INTEGER NOT NULL, created REAL NOT NULL)",
    "INSERT INTO kernels SELECT name, MAX(version), MIN(created) FROM versions GROUP BY name",
    "ALTER TABLE versions RENAME TO versions_1",
    """
    CREATE TABLE versions (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        name TEXT NOT NULL,
        version INTEGER NOT NULL,
        digest TEXT NOT NULL,
        closure TEXT NOT NULL,
        cell TEXT NOT NULL DEFAULT '',
        created REAL NOT NULL,
        UNIQUE (name, version),
        UNIQUE (name, digest)
    )
    """,
    "INSERT INTO versions SELECT id, name, version, digest, closure, '', created FROM versions_1",
    "DROP TABLE versions_1",
    """
    CREATE TABLE tags (
        version_id INTEGER NOT NULL REFERENCES versions (id) ON DELETE CASCADE,
        tag TEXT NOT NULL,
        PRIMARY KEY (version_id, tag)
    )
    """,
    """
    CREATE TABLE notes (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        version_id INTEGER NOT NULL REFERENCES versions (id) ON DELETE CASCADE,
        note TEXT NOT NULL,
        created REAL NOT NULL
    )
    """,
    """
    CREATE TABLE launches (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        version_id INTEGER NOT NULL REFERENCES versions (id) ON DELETE CASCADE,
        digest TEXT NOT NULL,
        launch TEXT NOT NULL,
        seconds REAL,
        count INTEGER NOT NULL,
        created REAL NOT NULL,
        last REAL NOT NULL,
        UNIQUE (version_id, digest)
    )
    """,
    """
    CREATE TABLE results (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        version_id INTEGER NOT NULL REFERENCES versions (id) ON DELETE CASCADE,
        digest TEXT NOT NULL,
        result TEXT NOT NULL,
        created REAL NOT NULL,
        UNIQUE (version_id, digest)
    )
    """,
    """
    CREATE TABLE measurements (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        version_id INTEGER NOT NULL REFERENCES versions (id) ON DELETE CASCADE,
        key TEXT NOT NULL,
        config TEXT NOT NULL,
        device TEXT NOT NULL,
        status TEXT NOT NULL,
        time_ms REAL,
        details TEXT NOT NULL,
        created REAL NOT NULL
    )
    """,
    "CREATE INDEX measurements_by_key ON measurements (key, version_id)",
)

# A verdict of a first flight, and the way from a version to its measurements.
_FLIGHTS_3 = (
    """
    CREATE TABLE flights (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        digest TEXT NOT NULL,
        device TEXT NOT NULL,
        driver TEXT NOT NULL,
        launch TEXT NOT NULL,
        created REAL NOT NULL,
        UNIQUE (digest, device, driver, launch)
    )
    """,
    "CREATE INDEX measurements_by_version ON measurements (version_id)",
)

# Number i turns a file of schema i into one of schema i + 1; a new file has schema 0.
MIGRATIONS: tuple[tuple[str, ...], ...] = ((_VERSIONS_1,), _HISTORY_2, _FLIGHTS_3)
SCHEMA = len(MIGRATIONS)


class NewerSchema(Exception):
    """The file was written by a later release."""


def migrate(connection: sqlite3.Connection) -> None:
    """Bring a file to the schema of this release, in one transaction.

    Raises:
        NewerSchema: a later release wrote it.
        sqlite3.Error: it cannot be read or written.
    """
    if _schema_of(connection) == SCHEMA:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        for statements in MIGRATIONS[_schema_of(connection) :]:
            for statement in statements:
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version={SCHEMA}")
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _schema_of(connection: sqlite3.Connection) -> int:
    found = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if found > SCHEMA:
        raise NewerSchema(f"its schema is {found}, this release knows {SCHEMA}")
    return found
