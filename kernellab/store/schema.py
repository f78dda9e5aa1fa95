"""The tables of the store, and their migration from earlier releases."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from functools import cache
from itertools import chain

Part = tuple[str, tuple[tuple[str, str], ...]]

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

_LAUNCHES_2 = """
CREATE TABLE IF NOT EXISTS launches (
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
"""

# A kernel stores its last version, and ids are never reused: numbers of removed rows stay unused.
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
    _LAUNCHES_2,
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

# The trial launches that went well, and the way from a version to its measurements.
_TRIALS_3 = (
    """
    CREATE TABLE IF NOT EXISTS flights (
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

# The table was renamed; a file without it gets a new one.
_RENAMED_4 = (_TRIALS_3[0], "ALTER TABLE flights RENAME TO trials")

# For kernels with data-dependent addresses, trial launches hold for ranges of the loaded values.
_RANGES_5 = (
    """
    CREATE TABLE bounded_trials (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        digest TEXT NOT NULL,
        device TEXT NOT NULL,
        driver TEXT NOT NULL,
        launch TEXT NOT NULL,
        ranges TEXT NOT NULL,
        created REAL NOT NULL,
        UNIQUE (digest, device, driver, launch)
    )
    """,
)

# A launch whose addresses depend on loaded values is tried in every session: docs/decisions/gpu.md.
_NO_RANGES_6 = ("DROP TABLE bounded_trials",)

# The answers of `kernellab explain`, by a digest of all that they depend on.
_EXPLANATIONS_7 = (
    """
    CREATE TABLE explanations (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        digest TEXT NOT NULL UNIQUE,
        explanation TEXT NOT NULL,
        created REAL NOT NULL
    )
    """,
)

# Versions that did not compile, by their last error.
_FAILURES_8 = (
    """
    CREATE TABLE failures (
        version_id INTEGER PRIMARY KEY REFERENCES versions (id) ON DELETE CASCADE,
        message TEXT NOT NULL,
        created REAL NOT NULL
    )
    """,
)

# What each version of Triton made of a recorded launch, by the digest of the launch.
_SNAPSHOTS_9 = (
    """
    CREATE TABLE snapshots (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        version_id INTEGER NOT NULL REFERENCES versions (id) ON DELETE CASCADE,
        launch TEXT NOT NULL,
        triton TEXT NOT NULL,
        snapshot TEXT NOT NULL,
        created REAL NOT NULL,
        UNIQUE (version_id, launch, triton)
    )
    """,
)

# What SQLite computes of rows from before schema 10, or of an older release that has the file open.
_FILL_KINDS = """
    UPDATE launches SET kind = CASE
        WHEN NOT json_valid(launch) THEN 'compile'
        WHEN json_extract(launch, '$.by') = 'run' THEN 'run'
        WHEN json_extract(launch, '$.by') <> 'launch' OR json_extract(launch, '$.grid') IS NULL THEN 'compile'
        WHEN json_extract(launch, '$.where') = 'gpu' THEN 'gpu'
        ELSE 'launch'
    END WHERE kind = ''
"""
# How a launch came about (`RecordedLaunch.kind`) as a column, so that a listing reads indices and no JSON; a file that
# lost the table gets a new one. It cannot be a generated column: SQLite trusts no JSON function in a file's schema.
_KINDS_10 = (
    _LAUNCHES_2,
    "ALTER TABLE launches ADD COLUMN kind TEXT NOT NULL DEFAULT ''",
    _FILL_KINDS,
    "CREATE INDEX launches_by_time ON launches (version_id, last, kind, count)",
    "CREATE INDEX launches_by_speed ON launches (version_id, seconds) WHERE kind = 'gpu' AND seconds IS NOT NULL",
    "CREATE INDEX launches_without_kind ON launches (id) WHERE kind = ''",
)

# Number i turns a file of schema i into one of schema i + 1; a new file has schema 0.
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    *((_VERSIONS_1,), _HISTORY_2, _TRIALS_3),
    *(_RENAMED_4, _RANGES_5, _NO_RANGES_6, _EXPLANATIONS_7, _FAILURES_8, _SNAPSHOTS_9, _KINDS_10),
)
SCHEMA = len(MIGRATIONS)


# The first new table or index of each schema, by which a file without a number is recognised; the sixth has none.
_MARKS = (
    *("versions", "kernels", "flights", "trials", "bounded_trials", "", "explanations", "failures", "snapshots"),
    "launches_by_time",
)


class ForeignSchema(Exception):
    """The file was written by a later release, or by another program."""


def migrate(connection: sqlite3.Connection) -> None:
    """Migrate a file to the schema of this release, in one transaction; missing tables are created empty.

    Raises:
        ForeignSchema: a later release or another program wrote the file.
        sqlite3.Error: it cannot be read or written.
    """
    if _number(connection) == SCHEMA and _parts(connection) == _parts_of_this_release():
        if connection.execute("SELECT 1 FROM launches WHERE kind = '' LIMIT 1").fetchone():
            with suppress(sqlite3.OperationalError):  # locked, or not to be written: the next opening does it
                connection.execute(_FILL_KINDS)
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        for statement in chain.from_iterable(MIGRATIONS[_schema_of(connection, _parts(connection)) :]):
            connection.execute(statement)
        _complete(connection)
        connection.execute(f"PRAGMA user_version={SCHEMA}")
    except sqlite3.OperationalError as exc:
        connection.execute("ROLLBACK")
        if exc.sqlite_errorcode == sqlite3.SQLITE_ERROR:  # a statement does not fit the tables
            raise ForeignSchema(f"its tables are none of the lab's ({exc})") from exc
        raise
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _number(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _schema_of(connection: sqlite3.Connection, parts: Mapping[str, Part]) -> int:
    number = _number(connection)
    if number > SCHEMA:
        raise ForeignSchema(f"its schema is {number}, this release knows {SCHEMA}")
    return number if number > 0 else max((i for i, table in enumerate(_MARKS, 1) if table in parts), default=0)


def _parts(connection: sqlite3.Connection) -> dict[str, Part]:
    """Return kind and columns of each table, index, view and trigger by name, without SQLite's own."""
    rows = connection.execute("SELECT name, type FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'").fetchall()
    return {name: (kind, tuple(_columns(connection, name)) if kind == "table" else ()) for name, kind in rows}


def _columns(connection: sqlite3.Connection, table: str) -> Iterator[tuple[str, str]]:
    for row in connection.execute("SELECT name, type, hidden FROM pragma_table_xinfo(?)", (table,)):
        yield row[0], row[1] if row[2] == 0 else "generated"


def _complete(connection: sqlite3.Connection) -> None:
    """Create missing tables and indices.

    Raises:
        ForeignSchema: there are other tables, or other columns.
    """
    wanted, existing = _parts_of_this_release(), _parts(connection)
    for name, part in existing.items():
        if part != wanted.get(name):
            raise ForeignSchema(f"its {part[0]} {name} is none of the lab's")
    for name, sql in _statements():
        if name not in existing:
            connection.execute(sql)


@cache
def _statements() -> tuple[tuple[str, str], ...]:
    with _fresh() as connection:
        query = "SELECT name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%' ORDER BY type DESC, rowid"
        return tuple(connection.execute(query).fetchall())


@cache
def _parts_of_this_release() -> Mapping[str, Part]:
    with _fresh() as connection:
        return _parts(connection)


@contextmanager
def _fresh() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        for statement in chain.from_iterable(MIGRATIONS):
            connection.execute(statement)
        yield connection
