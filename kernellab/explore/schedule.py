"""Latest wins: of moves that come faster than they can be worked on, only the last is.

A move after a pause starts at once. One that follows another closely waits until the hand rests, so that dragging a
slider over ten values works on the first and the last. Nothing here knows of threads or event loops, which are
handed in.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Event
from typing import Any, Generic, Protocol, TypeVar

Item = TypeVar("Item")
CLOSE_S = 0.3
REST_S = 0.2


class TimerHandle(Protocol):
    """Something that is to happen later."""

    def cancel(self) -> object:
        """Let it not happen."""


@dataclass(frozen=True, slots=True)
class Pace:
    """The threads of a panel: one for moves and display, one for evaluation.

    ``later(seconds, call)`` and ``post(call)`` call a function in the thread of the moves, later or soon, ``post`` from
    any thread; ``submit(call)`` starts work after what was submitted before. ``clock`` gives seconds that only grow.
    """

    later: Callable[[float, Callable[[], None]], TimerHandle | None]
    post: Callable[[Callable[[], None]], None]
    submit: Callable[[Callable[[], Any]], Future[Any]]
    clock: Callable[[], float] = time.monotonic


@dataclass(slots=True)
class LatestOnly(Generic[Item]):
    """Works on the latest of the items that it is given.

    ``work(item, superseded)`` is called by the pace's executor; what it returns is given to ``show`` in the thread of
    the moves, unless a newer item was given meanwhile, which sets ``superseded``. ``jobs`` counts what was started.
    """

    pace: Callable[[], Pace]
    work: Callable[[Item, Event], Any]
    show: Callable[[Any], None]
    close_s: float = CLOSE_S
    rest_s: float = REST_S
    jobs: int = 0
    _waiting: list[Item] = field(default_factory=list)
    _timer: TimerHandle | None = None
    _running: Future[Any] | None = None
    _superseded: Event = field(default_factory=Event)
    _last_move_s: float = float("-inf")
    _at: Pace | None = None

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits and nothing is being worked on."""
        return self._running is None and not self._waiting

    def move(self, item: Item) -> None:
        """Take a new item; what was given before and has not begun is dropped."""
        pace = self.pace()
        now = pace.clock()
        follows_closely = now - self._last_move_s < self.close_s
        self._last_move_s = now
        self._waiting = [item]
        self._superseded.set()
        self._stop_timer()
        if follows_closely:
            self._timer = pace.later(self.rest_s, self._start_after_rest)
        else:
            self._start()

    def drain(self) -> None:
        """Work on what waits, in turn, and return when it is shown; called in the thread of the moves.

        What is worked on has limits of its own, so that it ends.
        """
        self._stop_timer()
        while not self.is_idle:
            if self._running is not None:
                self._finish(self._running)
            else:
                self._start()

    def post(self, call: Callable[[], None]) -> None:
        """Call a function in the thread of the moves, before the result of the work that asks for it is shown."""
        if self._at is not None:
            self._at.post(call)

    def drop(self) -> None:
        """Forget what waits, and what is being worked on."""
        self._stop_timer()
        self._waiting = []
        self._superseded.set()

    def _start_after_rest(self) -> None:
        self._timer = None
        self._start()

    def _start(self) -> None:
        """Begin with what waits, unless the hand still moves or something is being worked on."""
        if self._running is not None or self._timer is not None or not self._waiting:
            return
        item = self._waiting.pop()
        pace = self._at = self.pace()
        superseded = self._superseded = Event()
        self.jobs += 1
        running = self._running = pace.submit(lambda: self.work(item, superseded))
        running.add_done_callback(lambda done: pace.post(lambda: self._finish(done)))

    def _finish(self, done: Future[Any]) -> None:
        """Show what came out, and go on with what waits; a result that was shown already is passed over."""
        if done is not self._running:
            return
        superseded = self._superseded
        try:
            result = done.result()
        finally:
            self._running = None
            self._start()
        if not superseded.is_set():
            self.show(result)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def pace_here(executor: ThreadPoolExecutor) -> Pace:
    """Return the pace of the calling thread; without an event loop, every move is done before it returns."""
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return Pace(lambda _, call: call(), lambda call: call(), _run_now)

    def post(call: Callable[[], None]) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(call)

    return Pace(loop.call_later, post, executor.submit)


def _run_now(call: Callable[[], Any]) -> Future[Any]:
    done: Future[Any] = Future()
    try:
        done.set_result(call())
    except BaseException as exc:  # noqa: BLE001 - who asks for the result gets it
        done.set_exception(exc)
    return done
