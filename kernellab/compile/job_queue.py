"""In which order jobs compile, and how far ahead of the workers they are made."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from kernellab.compile.types import CompileJob
from kernellab.errors import KernellabError
from kernellab.workers.forks_and_interrupts import TICK_S, Stop

JobSource = CompileJob | KernellabError | Callable[[], CompileJob]
"""A job, or what makes it; that may raise a `KernellabError`, which then stands for its result, as one here does."""

_AHEAD = 4


class JobQueue:
    """Jobs in their order, with their indices. Who takes one takes the last that is left while fewer than ``shortest``
    such are held, else the first.

    With the longest jobs in front, nobody waits for a long one alone at the end; and as some workers take the shortest,
    jobs that take almost forever do not keep all of them from the rest. With 0, it is a queue.

    Making a job runs the user's functions and takes a good part of a millisecond. So one thread makes them, that which
    calls `advance`, a few for each of ``workers`` ahead of those who take them: the first is taken as soon as it is
    made, however many there are.
    """

    def __init__(self, sources: Sequence[JobSource], shortest: int, workers: int) -> None:
        self._sources = sources
        self._left = deque(range(len(sources)))
        self._free = shortest
        self._room = (_AHEAD * (workers - shortest), _AHEAD * shortest)
        self._made: tuple[deque[_Made], deque[_Made]] = (deque(), deque())  # from the front, and from the back
        self._is_there = threading.Condition()

    def advance(self) -> bool:
        """Make one more job, if there is room for it; tell whether that is so."""
        with self._is_there:
            place = self._emptier()
            if place is None:
                return False
            index = self._left.pop() if place else self._left.popleft()
        job = index, made(self._sources[index])
        with self._is_there:
            self._made[place].append(job)
            self._is_there.notify()
        return True

    def _emptier(self) -> int | None:
        """Return the end where more is missing, 0 for the front; None where nothing is."""
        shares = [len(made) / room if room else 1.0 for made, room in zip(self._made, self._room, strict=True)]
        place = int(shares[1] <= shares[0])
        return place if self._left and shares[place] < 1.0 else None

    @contextmanager
    def taken(self, stop: Stop) -> Iterator[_Made]:
        """Take the next job, or the error of making it; it is held inside the with statement. One must be left.

        Raises:
            WorkerDied: somebody asked to stop before it was made.
        """
        with self._is_there:
            while not any(self._made):
                stop.check("A compile")
                self._is_there.wait(TICK_S)
            is_short = self._free > 0
            wanted, other = reversed(self._made) if is_short else self._made
            taken = wanted.popleft() if wanted else other.pop()
            self._free -= is_short
        try:
            yield taken
        finally:
            with self._is_there:
                self._free += is_short


_Made = tuple[int, CompileJob | KernellabError]


def made(source: JobSource) -> CompileJob | KernellabError:
    """Return a job, or the error of making it."""
    if isinstance(source, CompileJob | KernellabError):
        return source
    try:
        return source()
    except KernellabError as exc:
        return exc
