"""Where a panel's moves are made: in the event loop of a Jupyter kernel, or, without one, right where they are made."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from kernellab.explore.schedule import Handle, Pace


@dataclass(frozen=True, slots=True)
class LoopPace:
    """Moves are made in the thread of an event loop, the work is done by an executor."""

    loop: asyncio.AbstractEventLoop
    executor: ThreadPoolExecutor

    def clock(self) -> float:
        return time.monotonic()

    def later(self, delay_s: float, call: Callable[[], None]) -> Handle:
        return self.loop.call_later(delay_s, call)

    def post(self, call: Callable[[], None]) -> None:
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(call)

    def submit(self, call: Callable[[], Any]) -> Future[Any]:
        return self.executor.submit(call)


class NoHandle:
    """Something that has happened already."""

    def cancel(self) -> None:
        """It is too late."""


@dataclass(frozen=True, slots=True)
class InlinePace:
    """There is no event loop to come back to: every move is worked on and shown before it returns."""

    def clock(self) -> float:
        return time.monotonic()

    def later(self, delay_s: float, call: Callable[[], None]) -> Handle:
        call()
        return NoHandle()

    def post(self, call: Callable[[], None]) -> None:
        call()

    def submit(self, call: Callable[[], Any]) -> Future[Any]:
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
