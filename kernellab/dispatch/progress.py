"""How far tuning over sizes has come, as frozen events for whoever watches."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DispatchProgress:
    """A dispatch so far: ``done`` of ``total`` cases are measured, with ``measured`` configs of a ``budget`` in all.

    ``under_way`` are the cases that are being measured, ``latest`` is the last one that ended, in words; ``failed``
    counts cases that could not be measured. ``left_s`` is about how many seconds the rest takes, None where nothing
    tells.
    """

    kernel: str
    done: int = 0
    total: int = 0
    measured: int = 0
    budget: int = 0
    failed: int = 0
    under_way: tuple[str, ...] = ()
    latest: str = ""
    left_s: float | None = None


Watch = Callable[[DispatchProgress], None]
Progress = Callable[[str], AbstractContextManager[Watch]]


def unwatched(progress: DispatchProgress) -> None:
    """Watch nothing."""
