"""Runs sources of items in a thread each: compiles, predictions and proposals side by side, stopped by an interrupt."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from kernellab.workers.forks_and_interrupts import PATIENCE_S, ProgressCallback, Stop, Work, next_item

T = TypeVar("T")
Source = Callable[[Stop], Iterator[T]]


def run_in_parallel(sources: Sequence[Source[T]], idle: Callable[[], bool] | None = None) -> Iterator[T]:
    """Run sources in a thread each, and yield their items as they come.

    ``idle`` is called while there is nothing to yield, repeatedly as long as it returns True. Leaving the loop early,
    or an interrupt, asks the sources to stop and waits for them: each must end soon after that.
    """
    stop = Stop()
    items: queue.SimpleQueue[tuple[T] | BaseException | None] = queue.SimpleQueue()

    def drain(source: Source[T], report: ProgressCallback) -> None:
        try:
            for item in source(stop):
                items.put((item,))
        except BaseException as exc:  # noqa: BLE001 - whoever takes the items gets it
            items.put(exc)
        items.put(None)

    threads = [Work(partial(drain, source)) for source in sources]
    running, busy = len(threads), idle is not None
    try:
        for thread in threads:
            thread.begin()
        while running:
            try:
                item = items.get_nowait() if busy else next_item(items)  # every thread says when it ends
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
            thread.await_end(PATIENCE_S)
