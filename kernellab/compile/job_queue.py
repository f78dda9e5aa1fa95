"""A queue of jobs, the longest first, that workers take from at both ends."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager


class JobQueue:
    """The indices of jobs. Who takes one takes the last that is left while fewer than ``shortest`` such are held, else
    the first.

    With the longest jobs in front, nobody waits for a long one alone at the end; and as some workers take the shortest,
    jobs that take almost forever do not keep all of them from the rest. With 0, it is a queue.
    """

    def __init__(self, count: int, shortest: int) -> None:
        self._left = deque(range(count))
        self._free = shortest
        self._lock = threading.Lock()

    @contextmanager
    def taken(self) -> Iterator[int]:
        """Take the next job, which is held inside the with statement; there must be one left."""
        with self._lock:
            is_short = self._free > 0
            index = self._left.pop() if is_short else self._left.popleft()
            self._free -= is_short
        try:
            yield index
        finally:
            with self._lock:
                self._free += is_short
