"""Those who are told of launches: each of its own thread, and of nothing that the lab does for itself."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from kernellab.compile import Compiled
from kernellab.grid import Grid3


@dataclass(frozen=True, slots=True)
class Launched:
    """A launch that ended well: the jit function, its arguments by name, the options it was given, and its grid."""

    kernel: Any
    compiled: Compiled
    arguments: Mapping[str, Any]
    options: Mapping[str, Any]
    grid: Grid3


Observe = Callable[[Launched], None]


class Observers:
    """The observers of each thread, in the order in which they came."""

    def __init__(self) -> None:
        self._local = threading.local()
        self._followers: tuple[tuple[Observe, Callable[[], bool]], ...] = ()

    @contextmanager
    def added(self, observe: Observe, follows: Callable[[], bool] = lambda: False) -> Iterator[None]:
        """Tell ``observe`` of the launches of this thread inside a with statement.

        Also of those of another thread in which ``follows`` holds: torch runs the backward pass of a GPU in such.
        """
        before, followers = self._of_thread(), self._followers
        self._local.observers = (*before, observe)
        self._followers = (*followers, (observe, follows))
        try:
            yield
        finally:
            self._local.observers = before
            self._followers = tuple(each for each in self._followers if each[0] is not observe)

    @contextmanager
    def withheld(self) -> Iterator[None]:
        """Mark what this thread does inside a with statement as the lab's own doing."""
        self._local.withheld = self.is_withheld + 1
        try:
            yield
        finally:
            self._local.withheld -= 1

    @property
    def is_withheld(self) -> int:
        """How many with statements of `withheld` this thread is in."""
        return getattr(self._local, "withheld", 0)

    @property
    def are_there(self) -> bool:
        """Whether this thread has any."""
        return bool(self._listening())

    def tell(self, launched: Launched) -> None:
        """Tell the observers of this thread of a launch."""
        for observe in self._listening():
            observe(launched)

    def _listening(self) -> tuple[Observe, ...]:
        own = self._of_thread()
        if not self._followers:
            return own
        return (*own, *(observe for observe, follows in self._followers if observe not in own and follows()))

    def _of_thread(self) -> tuple[Observe, ...]:
        return getattr(self._local, "observers", ())
