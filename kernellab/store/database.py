"""One SQLite file written by several processes, with fallbacks when it cannot be used."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import sqlite3
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import IO, TypeVar

from kernellab.errors import StoreError, warn_user
from kernellab.source import MalformedData, reading
from kernellab.store.schema import ForeignSchema, migrate
from kernellab.workers.forks_and_interrupts import LOCK_S, at_fork, close_in_child, no_fork

FILE = "kernellab.sqlite"
_BUSY_MS = 30_000
_LOCK_S, _LOOK_S = 30.0, 0.02
_SHOWN = 300
_QUICK_CHECK_BYTES = 64 * 2**20

# https://www.sqlite.org/rescode.html: a file that is broken, and one that cannot be used as things are.
_BROKEN = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_UNUSABLE = {
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
}

Row = tuple[object, ...]
T = TypeVar("T")


class Database:
    """The file in ``folder``, or a database in memory if that is None.

    A broken file, or one of a later release, is set aside and a new one opened. If the file cannot be written
    (read-only, full disk), its content is copied to memory and the work continues there. If it is deleted or moved
    while open, it is written again; if another file replaced it, that one is used, and the former content is kept
    next to it. Each case gives one warning.

    No connection to a file crosses a fork (https://www.sqlite.org/howtocorrupt.html, 2.6): it is closed before the fork
    and reopened on demand in parent and child. A database in memory is copied by the fork.
    """

    def __init__(self, folder: Path | None) -> None:
        self.path = None if folder is None else folder / FILE
        self._lock = threading.RLock()
        self._skipped: set[tuple[str, object]] = set()
        self._epoch = 0
        self._connection = self._open()
        self._is_closed = self._is_shut = self._crosses = False
        at_fork(self, before=Database._before_fork, in_parent=Database._after_fork, in_child=Database._start_in_child)

    def write(self, work: Callable[[sqlite3.Cursor], T]) -> T:
        """Run ``work`` as one transaction; what it wrote is committed when this returns.

        Raises:
            StoreError: the database refused it, in memory too.
        """
        return self._run_with_recovery(lambda: self._transaction(work))

    def execute(self, statement: str, *values: object) -> None:
        """Run one statement as a transaction; see `write`."""
        self.write(lambda cursor: cursor.execute(statement, values))

    def rows(self, query: str, values: tuple[object, ...] = ()) -> list[Row]:
        """Return the rows of a query.

        Raises:
            StoreError: the database cannot be read.
        """
        return self._run_with_recovery(lambda: self._connection.execute(query, values).fetchall())

    def read_rows(self, table: str, rows: Iterable[Row], record: Callable[..., T]) -> list[T]:
        """Return ``record(*row)`` for each row; the first value of a row is its id.

        Rows with `MalformedData` are skipped, with one warning each.
        """
        rows = list(rows)
        with contextlib.suppress(MalformedData), reading("it"):
            return [record(*row) for row in rows]
        records: list[T] = []
        for row in rows:
            try:
                with reading("it"):
                    records.append(record(*row))
            except MalformedData as exc:
                self.skip(table, row[0], str(exc))
        return records

    def skip(self, table: str, number: object, reason: str) -> None:
        """Warn once about an unreadable row."""
        if (table, number) not in self._skipped:
            self._skipped.add((table, number))
            place = self.path or "in memory"
            warn_user(f"Row {number} of {table} in the kernel store {place} cannot be read, and is skipped: {reason}.")

    def compact(self) -> None:
        """Return the space of deleted rows to the file system."""
        self._run_with_recovery(lambda: self._connection.execute("VACUUM"))

    def fill_from(self, path: Path) -> None:
        """Replace a database in memory by a copy of a file, which is only read, even while others write it.

        Raises:
            StoreError: the file is not a store, is broken, or a later release wrote it; what there was is lost.
        """
        assert self.path is None
        with self._lock:
            try:
                _copy(path, self._connection)
                _prepare(self._connection)
                _require_sound(self._connection)
            except (sqlite3.Error, ForeignSchema) as exc:
                self._connection.close()
                self._connection = _connect(":memory:")
                raise StoreError(f"{str(path)!r} cannot be read as a kernel store: {_reason(exc)}.") from exc

    def close(self) -> None:
        """Close the connection for good."""
        with self._lock:
            self._is_closed = True
            self._connection.close()

    def _before_fork(self) -> bool:
        """Hold the lock over a fork and close a file's connection; False if it is in use for too long."""
        self._crosses = self._lock.acquire(timeout=LOCK_S)
        if self._crosses and self.path is not None and not self._is_closed:
            self._connection.close()
            self._is_shut = True
        return self._crosses

    def _after_fork(self) -> None:
        self._lock.release()

    def _start_in_child(self) -> None:
        self._lock = threading.RLock()
        if not self._crosses:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._connection))  # it must not be closed here either, ever
            self.path, self._connection = None, _connect(":memory:")
            warn_user("The kernel store was in use while this process forked; the fork keeps its kernels in memory.")

    def _run_with_recovery(self, work: Callable[[], T]) -> T:
        with self._lock:
            if self._is_closed:
                raise StoreError("The lab is closed, and its store with it; open another lab.")
            self._reopen_if_moved()
            try:
                return work()
            except sqlite3.DatabaseError as exc:
                if not self._recover_from(exc):
                    raise StoreError(f"The kernel store failed: {_reason(exc)}.") from exc
            return work()

    def epoch(self) -> int:
        """Return the number of times that another file, without the earlier entries, replaced the open one."""
        with self._lock:
            if not self._is_closed:
                self._reopen_if_moved()
            return self._epoch

    def go_on_in_memory(self, exc: OSError) -> None:
        """Continue in memory after the file became unwritable by ``exc``."""
        with self._lock:
            if self.path is not None and not self._is_closed:
                self._reopen_if_moved()
                self._connection = self._continue_in_memory(exc, self._connection)

    def _reopen_if_moved(self) -> None:
        """Reopen the file after a fork, or after it was set aside, replaced or deleted."""
        is_moved = self._was_moved()
        if is_moved and not self._is_shut:
            self._replace_moved()
        elif self._is_shut or is_moved:
            self._connection.close()
            self._connection, self._is_shut = self._open(), False
            self._epoch += is_moved

    def _replace_moved(self) -> None:
        former, inode = self._connection, self._inode
        former_kernels = _kernels(former)
        try:
            is_written = self._restore_file(former)
        except OSError as exc:
            self._connection = self._continue_in_memory(exc, former)
            return
        self._connection = self._open(former)
        missing = former_kernels - _kernels(self._connection)
        if missing and self.path is not None and not self._was_set_aside(inode):
            aside = self.path.with_name(f"{FILE}.{uuid.uuid4().hex[:8]}.aside")
            with contextlib.suppress(OSError):
                _write_copy(former, aside)
            warn_user(
                f"The kernel store {self.path} was replaced by another one while it was open. That lacks "
                f"{len(missing)} versions of kernels, and gives their numbers to others. The former store was kept as "
                f"{aside}."
            )
        self._epoch += not is_written
        former.close()

    def _was_set_aside(self, inode: int) -> bool:
        """Whether the formerly open file is one that another session set aside, with a warning."""
        assert self.path is not None
        return any(path.stat().st_ino == inode for path in self.path.parent.glob(f"{FILE}.*.aside"))

    def _restore_file(self, former: sqlite3.Connection) -> bool:
        """Write a connection's content to the path if no file is there; return whether it was written."""
        assert self.path is not None
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with _lock_file(self.path.with_suffix(".lock")):
            if self.path.exists():  # a session that had it open as well was faster, or it was replaced
                return False
            scratch = self.path.with_name(f".{FILE}.{uuid.uuid4().hex[:8]}")
            if not _write_copy(former, scratch):
                return False
            scratch.rename(self.path)
        warn_user(
            f"The kernel store {self.path} was deleted or moved while it was open. Its kernels and their history were "
            "written there again; to leave them out, close the lab first."
        )
        return True

    def _transaction(self, work: Callable[[sqlite3.Cursor], T]) -> T:
        cursor = self._connection.cursor()
        try:
            cursor.execute("BEGIN IMMEDIATE")  # an interrupt may come as soon as it has begun
            result = work(cursor)
            cursor.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                cursor.execute("ROLLBACK")
            raise
        return result

    def _was_moved(self) -> bool:
        """Whether the file was set aside or deleted by another process while it was open."""
        if self.path is None:
            return False
        try:
            return self.path.stat().st_ino != self._inode
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError:
            return False

    def _recover_from(self, exc: sqlite3.DatabaseError) -> bool:
        """Open another database if the failure is the file's; return whether it was."""
        if self.path is None or _code(exc) not in _BROKEN | _UNUSABLE:
            return False
        if _code(exc) in _BROKEN:
            self._connection.close()
            self._connection = self._open()
            self._epoch += 1
        else:
            self._connection = self._continue_in_memory(exc, self._connection)
        return True

    def _open(self, former: sqlite3.Connection | None = None) -> sqlite3.Connection:
        if self.path is None:
            return _connect(":memory:")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with _lock_file(self.path.with_suffix(".lock")):
                connection = self._connect_or_set_aside(self.path)
                self._inode = self.path.stat().st_ino
                return connection
        except (sqlite3.DatabaseError, OSError) as exc:
            return self._continue_in_memory(exc, former)

    def _connect_or_set_aside(self, path: Path) -> sqlite3.Connection:
        try:
            return _connect(str(path))
        except ForeignSchema as exc:
            reason: Exception = exc
        except sqlite3.DatabaseError as exc:
            if _code(exc) not in _BROKEN:
                raise
            reason = exc
        aside = _set_aside(path)
        warn_user(f"The kernel store {path} cannot be used ({_reason(reason)}); it was set aside as {aside}.")
        return _connect(str(path))

    def _continue_in_memory(self, exc: Exception, opened: sqlite3.Connection | None) -> sqlite3.Connection:
        path, self.path = self.path, None
        assert path is not None
        memory = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        with contextlib.suppress(sqlite3.Error):
            source = opened or sqlite3.connect(f"{path.absolute().as_uri()}?immutable=1", uri=True)
            source.backup(memory)
            source.close()
        _prepare(memory)
        shown = str(path) if len(str(path)) < _SHOWN else f"{str(path)[:_SHOWN]}..."
        warn_user(f"The kernel store {shown} cannot be written ({_reason(exc)}). {_remedy(path)}")
        return memory


def _kernels(connection: sqlite3.Connection) -> set[Row]:
    """Return the versions of a database by name, number and digest; none if it cannot be read."""
    with contextlib.suppress(sqlite3.Error):
        return set(connection.execute("SELECT name, version, digest FROM versions"))
    return set()


def _write_copy(source: sqlite3.Connection, path: Path) -> bool:
    """Write the content of a database to a new file; False if it cannot be read.

    Raises:
        OSError: the file cannot be written.
    """
    try:
        with contextlib.closing(sqlite3.connect(path)) as copy:
            source.backup(copy)
    except sqlite3.DatabaseError as exc:
        path.unlink(missing_ok=True)
        if _code(exc) not in _BROKEN:
            raise OSError(str(exc)) from exc
        return False
    return True


def _copy(path: Path, into: sqlite3.Connection) -> None:
    """Copy a file without writing to it; in a read-only folder, as it is on disk."""
    uri = path.absolute().as_uri()
    try:
        with contextlib.closing(sqlite3.connect(f"{uri}?mode=ro", uri=True)) as source:
            source.backup(into)
    except sqlite3.OperationalError as exc:
        if _code(exc) not in {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY}:
            raise
        with contextlib.closing(sqlite3.connect(f"{uri}?immutable=1", uri=True)) as source:
            source.backup(into)


def _connect(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=_BUSY_MS / 1000, isolation_level=None, check_same_thread=False)
    try:
        _prepare(connection)
        if path != ":memory:" and os.stat(path).st_size < _QUICK_CHECK_BYTES:
            _require_sound(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(connection: sqlite3.Connection) -> None:
    connection.execute(f"PRAGMA busy_timeout={_BUSY_MS}")
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute("PRAGMA foreign_keys=ON")
    connection.execute("PRAGMA trusted_schema=OFF")
    connection.text_factory = partial(str, encoding="utf-8", errors="replace")  # a broken text costs no other row
    migrate(connection)


def _require_sound(connection: sqlite3.Connection) -> None:
    (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        error = sqlite3.DatabaseError(verdict)
        error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise error


def _set_aside(path: Path) -> Path:
    aside = path.with_name(f"{path.name}.{uuid.uuid4().hex[:8]}.aside")
    for suffix in ("-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            os.rename(f"{path}{suffix}", f"{aside}{suffix}")
    path.rename(aside)
    return aside


@contextlib.contextmanager
def _lock_file(path: Path) -> Iterator[None]:
    """Lock the opening of a store: two processes must not migrate it, or set it aside, at once.

    Raises:
        TimeoutError: another process has been at it for too long; it may be stopped.
    """
    with contextlib.ExitStack() as stack:
        file = None
        with contextlib.suppress(OSError), no_fork():  # a copy would hold the lock as well
            file = close_in_child(stack.enter_context(path.open("a")))
        end_s = time.monotonic() + _LOCK_S
        while file is not None and not _try_lock(file):
            if time.monotonic() > end_s:
                raise TimeoutError(f"another process has kept {path} locked for {_LOCK_S:g} s")
            time.sleep(_LOOK_S)
        yield


def _try_lock(file: IO[str]) -> bool:
    """Try to lock a file; return False only if another process holds the lock."""
    with contextlib.suppress(OSError):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def _code(exc: sqlite3.DatabaseError) -> int:
    """Return the primary result code, without the extension in the upper bits."""
    return getattr(exc, "sqlite_errorcode", 0) & 0xFF


def _reason(exc: Exception) -> str:
    text = (exc.strerror if isinstance(exc, OSError) else None) or str(exc)
    return " ".join(text.split()).rstrip(".")


def _remedy(path: Path) -> str:
    folder = path.parent
    if os.path.isdir(path):  # which is not an error where a name is too long
        wrong = f"{FILE} is a folder there: move it away"
    elif folder.name == FILE and os.path.isfile(folder):
        wrong = f"A store is a folder: name {str(folder.parent)!r}"
    elif any(os.path.exists(path) and not os.path.isdir(path) for path in (folder, *folder.parents)):
        wrong = "A store is a folder, and this is none: name another one"
    else:
        wrong = "Free space there, let it be written, or name another folder"
    return f"{wrong} (store=..., or KERNELLAB_STORE). From now on kernels are kept in memory."
