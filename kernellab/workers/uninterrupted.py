"""Calls that no interrupt can land in, and how to stop them.

Python runs signal handlers in the main thread alone, between any two bytecodes, and the one of Ctrl-C raises there.
Code that holds processes, sockets, locks and files would have to be right at each of these places, and no ``with``
statement is. So it runs in another thread, and what was interrupted is only the waiting for it.
"""

from __future__ import annotations

import contextlib
import contextvars
import importlib
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from kernellab.errors import WorkerDied

T = TypeVar("T")
TICK_S = 0.05
_PATIENCE_S = 15.0

Told = Callable[[Any], None]


class Interrupted(KeyboardInterrupt):
    """The user stopped what a worker did. Where the process stood in waiting for it tells nobody anything."""

    def _render_traceback_(self) -> list[str]:
        """Let IPython show one line."""
        return [f"KeyboardInterrupt: {self}"]


class Stop:
    """Asks work in other threads to end. ``why`` is empty until somebody does, then the end of a sentence about it."""

    __slots__ = ("why",)

    def __init__(self) -> None:
        self.why = ""

    def ask(self, why: str = "was interrupted") -> None:
        """Ask to stop; the first reason counts."""
        self.why = self.why or why

    def check(self, subject: str) -> None:
        """Go on, unless somebody asked to stop.

        Raises:
            WorkerDied: somebody did.
        """
        if self.why:
            raise WorkerDied(f"{subject} {self.why}.")


class AtWork:
    """The work that is under way or waits for its turn, as what stops it."""

    def __init__(self) -> None:
        self._stops: set[Stop] = set()

    @contextlib.contextmanager
    def on(self, stop: Stop) -> Iterator[None]:
        """Count what is at work inside a with statement, which ``stop`` ends."""
        self._stops.add(stop)
        try:
            yield
        finally:
            self._stops.discard(stop)

    def ask(self, why: str = "was interrupted") -> None:
        """Ask all that is at work to stop."""
        for stop in tuple(self._stops):
            stop.ask(why)


def uninterrupted(call: Callable[[], T], stop: Stop | None = None, subject: str = "") -> T:
    """Return ``call()``, which goes on to its end whatever is raised in this thread meanwhile.

    It has to end by itself: soon, or, if it takes longer, soon after ``stop`` was asked, which an interrupt does.

    Raises:
        Interrupted: in the place of a KeyboardInterrupt, if there is a ``subject`` to tell of.
    """
    return uninterrupted_with_progress(lambda tell: call(), stop, subject)


def imported_whole(library: str) -> None:
    """Import a library that an interrupt would leave imported in part, so that no later import of it succeeds."""
    if library not in sys.modules:
        uninterrupted(partial(importlib.import_module, library))


def uninterrupted_with_progress(
    call: Callable[[Told], T], stop: Stop | None = None, subject: str = "", progress: Told | None = None
) -> T:
    """Do the same with a call that tells of its progress, which ``progress`` takes in the thread of the caller."""
    taken = progress or _nothing
    if threading.current_thread() is not threading.main_thread():
        return call(taken)  # no signal comes here
    work = Work(call)
    try:
        work.begin()
        while (told := work.told.get()) is not None:  # ends with the call
            taken(*told)
    except BaseException as exc:
        if stop is not None:
            stop.why = stop.why or "was interrupted"  # nothing is called, so nothing is raised before this is done
        work.await_end(_PATIENCE_S)
        if subject and isinstance(exc, KeyboardInterrupt):
            raise Interrupted(f"{subject} was interrupted.") from None
        raise
    return work.result()


Source = Callable[[Stop], Iterator[T]]


def side_by_side(sources: Sequence[Source[T]], idle: Callable[[], bool] | None = None) -> Iterator[T]:
    """Yield what some sources yield, each in a thread of its own, as it comes.

    ``idle`` is called while there is nothing to yield, again and again as long as it returns True. Leaving the loop
    early, or an interrupt, asks the sources to stop, and waits until they have: each has to end soon after that.
    """
    stop = Stop()
    found: queue.SimpleQueue[tuple[T] | BaseException | None] = queue.SimpleQueue()
    threads = [Work(partial(_drained, source, stop, found)) for source in sources]
    running, busy = len(threads), idle is not None
    try:
        for thread in threads:
            thread.begin()
        while running:
            try:
                item = found.get(block=not busy)  # every thread says when it ends
            except queue.Empty:
                busy = idle is not None and idle()
                continue
            busy = idle is not None
            if item is None:
                running -= 1
            elif isinstance(item, BaseException):
                raise item
            else:
                yield item[0]
    finally:
        stop.why = stop.why or "was interrupted"
        for thread in threads:
            thread.await_end(_PATIENCE_S)


def _drained(
    source: Source[T], stop: Stop, found: queue.SimpleQueue[tuple[T] | BaseException | None], tell: Told
) -> None:
    try:
        for item in source(stop):
            found.put((item,))
    except BaseException as exc:  # noqa: BLE001 - whoever takes the items gets it
        found.put(exc)
    found.put(None)


@contextlib.contextmanager
def held(lock: threading.Lock, stop: Stop, subject: str) -> Iterator[None]:
    """Hold a lock, unless asked to stop before it is free.

    Raises:
        WorkerDied: somebody asked.
    """
    while not lock.acquire(timeout=TICK_S):
        stop.check(subject)
    try:
        yield
    finally:
        lock.release()


class Work(Generic[T]):
    """A call in a thread of its own. What it tells comes through ``told``, with None at the end.

    The process ends only after it, unless it is a ``daemon``, which may wait for ever.
    """

    def __init__(self, call: Callable[[Told], T], *, daemon: bool = False) -> None:
        self._daemon = daemon
        self.told: queue.SimpleQueue[tuple[Any] | None] = queue.SimpleQueue()
        self._call = call
        self._context = contextvars.copy_context()
        self._has_begun = False
        self._is_over = False
        self._value: T
        self._error: BaseException | None = None

    def begin(self) -> None:
        """Begin the work, in a thread of its own where there may be one."""
        thread = threading.Thread(target=self._run, name="kernellab-uninterrupted", daemon=self._daemon)
        try:
            thread.start()
        except RuntimeError:  # no more threads, or the interpreter is ending
            self._run()

    def result(self) -> T:
        """Return what came of the work, or raise what it raised."""
        if self._error is not None:
            try:
                raise self._error
            finally:
                self._error = None  # else the traceback refers to itself
        return self._value

    def await_end(self, timeout_s: float) -> None:
        """Return when the call is over; soon if it never began."""
        now_s = begin_s = time.monotonic()
        while not self._is_over and now_s < begin_s + (timeout_s if self._has_begun else 4 * TICK_S):
            with contextlib.suppress(queue.Empty):
                self.told.get(timeout=TICK_S)
            now_s = time.monotonic()

    def _run(self) -> None:
        self._has_begun = True
        try:
            self._value = self._context.run(self._call, lambda value: self.told.put((value,)))
        except BaseException as exc:  # noqa: BLE001 - whoever asked gets it
            self._error = exc
        self._is_over = True
        self.told.put(None)


def _nothing(told: Any) -> None:
    """Show no progress."""
