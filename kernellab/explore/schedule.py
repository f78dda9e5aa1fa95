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
from typing import Any, Generic, Protocol, TypeVar

Item = TypeVar("Item")
CLOSE_S = 0.3
REST_S = 0.2


class TimerHandle(Protocol):
    """Something that is to happen later."""

    def cancel(self) -> object:
        """Let it not happen."""


class Pace(Protocol):
    """The threads of a panel: one for moves and display, one for evaluation."""

    def clock(self) -> float:
        """Return seconds that only grow."""

    def later(self, delay_s: float, call: Callable[[], None]) -> TimerHandle:
        """Call a function in the thread of the moves after some seconds."""

    def post(self, call: Callable[[], None]) -> None:
        """Call a function in the thread of the moves soon; from any thread."""

    def submit(self, call: Callable[[], Any]) -> Future[Any]:
        """Start to work on something, after what was submitted before."""


class Superseded:
    """Signals that a newer item waits."""

    def __init__(self) -> None:
        self._is_set = False

    def __bool__(self) -> bool:
        return self._is_set

    def set(self) -> None:
        """Say that a newer item waits."""
        self._is_set = True


@dataclass(slots=True)
class LatestOnly(Generic[Item]):
    """Works on the latest of the items that it is given.

    ``work(item, superseded)`` is called by the pace's executor; what it returns is given to ``show`` in the thread of
    the moves, unless a newer item was given meanwhile. ``jobs`` counts what was started.
    """

    pace: Callable[[], Pace]
    work: Callable[[Item, Superseded], Any]
    show: Callable[[Any], None]
    close_s: float = CLOSE_S
    rest_s: float = REST_S
    jobs: int = 0
    _waiting: list[Item] = field(default_factory=list)
    _timer: TimerHandle | None = None
    _running: Future[Any] | None = None
    _superseded: Superseded = field(default_factory=Superseded)
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
        superseded = self._superseded = Superseded()
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
        if not superseded:
            self.show(result)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


@dataclass(frozen=True, slots=True)
class LoopPace:
    """Moves are made in the thread of an event loop, the work is done by an executor."""

    loop: asyncio.AbstractEventLoop
    executor: ThreadPoolExecutor

    def clock(self) -> float:
        """Return seconds that only grow."""
        return time.monotonic()

    def later(self, delay_s: float, call: Callable[[], None]) -> TimerHandle:
        """Let the loop call a function after some seconds."""
        return self.loop.call_later(delay_s, call)

    def post(self, call: Callable[[], None]) -> None:
        """Let the loop call a function soon; from any thread."""
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(call)

    def submit(self, call: Callable[[], Any]) -> Future[Any]:
        """Start to work in the executor."""
        return self.executor.submit(call)


class NoHandle:
    """Something that has happened already."""

    def cancel(self) -> None:
        """It is too late."""


@dataclass(frozen=True, slots=True)
class InlinePace:
    """There is no event loop to come back to: every move is worked on and shown before it returns."""

    def clock(self) -> float:
        """Return seconds that only grow."""
        return time.monotonic()

    def later(self, delay_s: float, call: Callable[[], None]) -> TimerHandle:
        """Call a function at once."""
        call()
        return NoHandle()

    def post(self, call: Callable[[], None]) -> None:
        """Call a function at once."""
        call()

    def submit(self, call: Callable[[], Any]) -> Future[Any]:
        """Work, and return what came out."""
        done: Future[Any] = Future()
        try:
            done.set_result(call())
        except BaseException as exc:  # noqa: BLE001 - who asks for the result gets it
            done.set_exception(exc)
        return done


def pace_here(executor: ThreadPoolExecutor) -> Pace:
    """Return the pace of the thread that asks."""
    try:
        return LoopPace(asyncio.get_running_loop(), executor)
    except RuntimeError:
        return InlinePace()
