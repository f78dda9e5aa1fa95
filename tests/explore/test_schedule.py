from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from threading import Event
from typing import Any

import pytest

from kernellab.explore.schedule import LatestOnly, Pace


@dataclass
class Timer:
    due_s: float
    call: Callable[[], None]
    cancelled: bool = False

    def cancel(self) -> None:
        self.cancelled = True


@dataclass
class ByHand:
    """A pace whose clock and executor are moved by the test."""

    now_s: float = 100.0
    timers: list[Timer] = field(default_factory=list)
    submitted: list[tuple[Future[Any], Callable[[], Any]]] = field(default_factory=list)

    def pace(self) -> Pace:
        return Pace(self.later, self.post, self.submit, lambda: self.now_s)

    def later(self, delay_s: float, call: Callable[[], None]) -> Timer:
        self.timers.append(Timer(self.now_s + delay_s, call))
        return self.timers[-1]

    def post(self, call: Callable[[], None]) -> None:
        call()

    def submit(self, call: Callable[[], Any]) -> Future[Any]:
        future: Future[Any] = Future()
        self.submitted.append((future, call))
        return future

    def pass_time(self, seconds: float) -> None:
        self.now_s += seconds
        due = [timer for timer in self.timers if timer.due_s <= self.now_s]
        self.timers = [timer for timer in self.timers if timer.due_s > self.now_s]
        for timer in due:
            if not timer.cancelled:
                timer.call()

    def work(self) -> None:
        """Let the executor finish what it was given first."""
        future, call = self.submitted.pop(0)
        try:
            future.set_result(call())
        except Exception as exc:  # noqa: BLE001 - as an executor does
            future.set_exception(exc)


@dataclass
class Bench:
    pace: ByHand = field(default_factory=ByHand)
    worked: list[int] = field(default_factory=list)
    shown: list[int] = field(default_factory=list)

    def moves(self) -> LatestOnly[int]:
        return LatestOnly(self.pace.pace, self._work, self.shown.append)

    def _work(self, item: int, superseded: Event) -> int:
        self.worked.append(item)
        return item


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_move_after_a_pause_starts_at_once(bench: Bench) -> None:
    moves = bench.moves()
    for item in (1, 2):
        moves.move(item)
        bench.pace.work()
        bench.pace.pass_time(1.0)
    assert bench.worked == bench.shown == [1, 2]


def test_a_drag_over_ten_values_works_on_the_first_and_the_last(bench: Bench) -> None:
    moves = bench.moves()
    for item in range(10):
        moves.move(item)
        bench.pace.pass_time(0.05)
    bench.pace.pass_time(1.0)
    while bench.pace.submitted:
        bench.pace.work()
    assert bench.worked == [0, 9]
    assert bench.shown == [9]
    assert moves.jobs == 2
    assert moves.is_idle


def test_what_comes_while_something_is_worked_on_waits_and_only_the_latest_is_done(bench: Bench) -> None:
    moves = bench.moves()
    for item in (1, 2, 3):
        moves.move(item)
        bench.pace.pass_time(1.0)
    assert moves.jobs == 1
    bench.pace.work()
    bench.pace.work()
    assert bench.worked == [1, 3]
    assert bench.shown == [3]


def test_work_is_told_that_it_is_superseded() -> None:
    pace, told = ByHand(), list[bool]()
    moves: LatestOnly[int] = LatestOnly(
        pace.pace, lambda item, superseded: told.append(superseded.is_set()), lambda r: None
    )
    moves.move(1)
    moves.move(2)
    pace.work()
    assert told == [True]


def test_draining_finishes_what_waits_and_shows_each_result_once(bench: Bench) -> None:
    class Eager(ByHand):
        def submit(self, call: Callable[[], Any]) -> Future[Any]:
            future: Future[Any] = Future()
            future.set_result(call())
            return future

    bench.pace = Eager()
    moves = bench.moves()
    moves.move(1)
    moves.move(2)
    assert bench.shown == [1]
    moves.drain()
    assert bench.shown == [1, 2]
    bench.pace.pass_time(1.0)
    assert bench.worked == [1, 2]


def test_what_is_dropped_does_not_show(bench: Bench) -> None:
    moves = bench.moves()
    moves.move(1)
    moves.move(2)
    moves.drop()
    bench.pace.work()
    bench.pace.pass_time(1.0)
    assert bench.worked == [1]
    assert bench.shown == []


def test_work_that_raises_leaves_the_next_move_free(bench: Bench) -> None:
    moves = LatestOnly(bench.pace.pace, lambda item, superseded: 1 // item, bench.shown.append)
    moves.move(0)
    future, call = bench.pace.submitted.pop()
    future.set_running_or_notify_cancel()
    with pytest.raises(ZeroDivisionError):
        call()
    future.set_exception(ZeroDivisionError())
    bench.pace.pass_time(1.0)
    moves.move(1)
    bench.pace.work()
    assert bench.shown == [1]
