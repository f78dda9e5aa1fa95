"""What a fork of the user's process must not share with it.

``os.fork``, and with it the fork pools of multiprocessing, copies the memory and the descriptors of a process, and of
its threads only the one that forks. A lock that another thread holds stays locked in the child for ever, a socket has
two readers, and a database connection loses its locks on the file. So whoever owns such a thing says here what becomes
of it: before a fork, and after it in the parent and in the child. What is told of forks is told of those of the whole
process, hence one registry; it keeps nothing alive.
"""

from __future__ import annotations

import concurrent.futures.thread
import contextlib
import functools
import logging
import os
import shutil
import socket
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
_IMPORTED_IN_CHILDREN = frozenset({"kernellab", "triton", "torch", "numpy"})
_IMPORTS_S = 10.0
LOCK_S = 5.0
_POLL_S = 0.005


class Closable(Protocol):
    """A socket, a connection, a file."""

    def close(self) -> None:
        """Close this end of it."""


C = TypeVar("C", bound=Closable)


@dataclass(frozen=True, slots=True)
class _Hooks:
    in_child: Callable[[Any], None]
    before: Callable[[Any], bool] | None
    in_parent: Callable[[Any], None] | None


_NO_HOOKS = _Hooks(lambda subject: None, None, None)


class _Registry:
    """Subjects and their hooks. ``_forking`` is held across a fork, ``changing`` while the subjects change."""

    def __init__(self) -> None:
        self._hooks: weakref.WeakKeyDictionary[Any, _Hooks] = weakref.WeakKeyDictionary()
        self._paused: list[tuple[Any, _Hooks]] = []
        self._forking = threading.RLock()
        self.changing = threading.RLock()
        self.maker = os.getpid()

    def add(self, subject: Any, hooks: _Hooks) -> None:
        with self.changing:
            self._hooks[subject] = hooks

    def before(self) -> None:
        _await_imports()
        self._forking.acquire()
        while True:
            self.changing.acquire()
            known = {id(subject) for subject, _ in self._paused}
            waiting = [(s, hooks) for s, hooks in self._hooks.items() if hooks.before and id(s) not in known]
            if not waiting:
                return
            self.changing.release()  # who is waited for may want to add something
            for subject, hooks in waiting:
                assert hooks.before is not None
                self._paused.append((subject, hooks if hooks.before(subject) else _NO_HOOKS))

    def in_parent(self) -> None:
        paused, self._paused = self._paused, []
        try:
            for subject, hooks in paused:
                if hooks.in_parent is not None:
                    hooks.in_parent(subject)
        finally:
            self.changing.release()
            self._forking.release()

    def in_child(self) -> None:
        self._paused = []
        self._forking, self.changing = threading.RLock(), threading.RLock()
        for subject, hooks in list(self._hooks.items()):
            hooks.in_child(subject)


# The hook registered last is called first before a fork. Those of these modules take locks that others may wait for.
_ = logging, concurrent.futures.thread
_REGISTRY = _Registry()
os.register_at_fork(before=_REGISTRY.before, after_in_parent=_REGISTRY.in_parent, after_in_child=_REGISTRY.in_child)


def at_fork(
    subject: T,
    *,
    in_child: Callable[[T], None],
    before: Callable[[T], bool] | None = None,
    in_parent: Callable[[T], None] | None = None,
) -> None:
    """Call functions with ``subject``, which is compared by identity and not kept alive, when this process forks.

    The other threads do not exist in the child, so ``in_child`` may take no lock that they may have held. ``before``
    waits for `LOCK_S` seconds at most, as the user's fork waits with it; where it returns False, ``in_parent`` is not
    called.
    """
    _REGISTRY.add(subject, _Hooks(in_child, before, in_parent))


def is_fork() -> bool:
    """Tell whether this process is a fork of one that had loaded kernellab."""
    return os.getpid() != _REGISTRY.maker


def lock(*, crossing: bool = False) -> threading.Lock:
    """Return a lock that is free in a fork.

    If it is ``crossing``, a fork waits until nobody holds it, so that what it guards is whole in the child as well.
    """
    made = threading.Lock()
    _free_in_child(made, crossing)
    return made


def rlock() -> threading.RLock:
    """Return a re-entrant lock that is free in a fork."""
    made = threading.RLock()
    _free_in_child(made, False)
    return made


def _free_in_child(made: Any, crossing: bool) -> None:
    at_fork(
        made,
        in_child=lambda lock: lock._at_fork_reinit(),  # as logging and concurrent.futures do
        before=(lambda lock: lock.acquire(timeout=LOCK_S)) if crossing else None,
        in_parent=_released if crossing else None,
    )


def _released(lock: Any) -> None:
    lock.release()


def closed_in_child(opened: C) -> C:
    """Return a socket, connection or file after having its copy in a fork closed."""
    at_fork(opened, in_child=lambda copy: copy.close())
    return opened


def socketpair() -> tuple[socket.socket, socket.socket]:
    """Return two connected sockets that a fork has no copies of: else the end of a process that has one goes unseen."""
    with no_fork():
        ours, theirs = (_End(fileno=end.detach()) for end in socket.socketpair())
        return closed_in_child(ours), closed_in_child(theirs)


class _End(socket.socket):
    """One end of a pair. A fork while it is being closed would get an open descriptor that no object knows of."""

    def close(self) -> None:
        with no_fork():
            super().close()


@contextlib.contextmanager
def no_fork() -> Iterator[None]:
    """Let no fork come between opening something and saying what becomes of it; a fork waits until this ends."""
    with _REGISTRY.changing:
        yield


class cached_property(functools.cached_property[T]):  # noqa: N801 - as that of functools
    """That of functools; the lock that it shares between threads before Python 3.12 is free in a fork."""

    def __init__(self, function: Callable[[Any], T]) -> None:
        super().__init__(function)
        if hasattr(self, "lock"):
            _free_in_child(self.lock, False)


class Scratch:
    """A temporary folder. The process that made it deletes it, at its end at the latest, and no fork does."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="kernellab-"))
        self._delete = weakref.finalize(self, _delete, self.path, os.getpid())

    def close(self) -> None:
        """Delete the folder and what is in it."""
        self._delete()

    def __enter__(self) -> Path:
        return self.path

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _delete(folder: Path, maker: int) -> None:
    if os.getpid() == maker:
        shutil.rmtree(folder, ignore_errors=True)


def _await_imports() -> None:
    """Wait until no other thread imports what a child will import, too: it would wait for that thread for ever."""
    deadline = time.monotonic() + _IMPORTS_S
    while _others_import() and time.monotonic() < deadline:
        time.sleep(_POLL_S)


def _others_import() -> bool:
    """Tell whether other threads hold locks of modules, which CPython keeps by name and a fork does not free."""
    locks = getattr(sys.modules["_frozen_importlib"], "_module_locks", {})
    names = [name for name in list(locks) if name.partition(".")[0] in _IMPORTED_IN_CHILDREN]
    found = [locks[name]() for name in names if name in locks]
    return any(getattr(lock, "owner", None) not in {None, threading.get_ident()} for lock in found)
