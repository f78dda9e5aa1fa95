"""Jobs for the compile workers, taken from both ends of a queue and made shortly before."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from kernellab.compile.types import CompileJob
from kernellab.errors import KernellabError
from kernellab.workers.forks_and_interrupts import TICK_S, Stop

_AHEAD = 4

JobSource = CompileJob | KernellabError | Callable[[], CompileJob]
"""A job, a function that makes it or raises its error, or that error."""

_IndexedJob = tuple[int, CompileJob | KernellabError]


class JobQueue:
    """A queue of indexed jobs that is taken from both ends.

    A worker takes the last job while fewer than ``shortest`` workers hold such a job, else the first. With the longest
    jobs in front, no long one is left alone at the end; and since some workers take the shortest, jobs that take almost
    forever do not block all workers. With ``shortest`` 0, it is a plain queue.

    Making a job runs the user's functions and takes a good part of a millisecond. So one thread makes them, the caller
    of `advance`, a few for each of ``workers`` ahead: the first is taken as soon as it is made, however many there are.
    """

    def __init__(self, sources: Sequence[JobSource], shortest: int, workers: int) -> None:
        self._sources = sources
        self._left = deque(range(len(sources)))
        self._unclaimed = len(sources)
        self._free = shortest
        self._room = (_AHEAD * (workers - shortest), _AHEAD * shortest)
        self._ready: tuple[deque[_IndexedJob], deque[_IndexedJob]] = (deque(), deque())  # from front and back
        self._is_there = threading.Condition()

    def advance(self) -> bool:
        """Make one more job if there is room for it; return whether there was."""
        with self._is_there:
            shares = [len(jobs) / room if room else 1.0 for jobs, room in zip(self._ready, self._room, strict=True)]
            place = int(shares[1] <= shares[0])  # the end that lacks more jobs, 0 for the front
            if not self._left or shares[place] >= 1.0:
                return False
            index = self._left.pop() if place else self._left.popleft()
        job = index, resolve_job(self._sources[index])
        with self._is_there:
            self._ready[place].append(job)
            self._is_there.notify()
        return True

    def claim(self) -> bool:
        """Claim a job; return whether one was left. The caller must then take it."""
        with self._is_there:
            self._unclaimed -= 1
            return self._unclaimed >= 0

    @contextlib.contextmanager
    def take(self, stop: Stop) -> Iterator[_IndexedJob]:
        """Take the next job, or the error of making it, for the time of a with statement. One must be left.

        Raises:
            WorkerDied: a stop was requested before the job was made.
        """
        with self._is_there:
            while not any(self._ready):
                stop.check("A compile")
                self._is_there.wait(TICK_S)
            is_short = self._free > 0
            wanted, other = reversed(self._ready) if is_short else self._ready
            job = wanted.popleft() if wanted else other.pop()
            self._free -= is_short
        try:
            yield job
        finally:
            with self._is_there:
                self._free += is_short


def resolve_job(source: JobSource) -> CompileJob | KernellabError:
    """Return a job, or the error of making it."""
    if isinstance(source, CompileJob | KernellabError):
        return source
    try:
        return source()
    except KernellabError as exc:
        return exc
