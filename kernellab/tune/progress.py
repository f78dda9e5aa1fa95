"""How far a tuning has come, as frozen events that a tuner hands to whoever watches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Stage = Literal["start", "screening", "final", "done"]


@dataclass(frozen=True, slots=True)
class TuningProgress:
    """A tuning so far.

    ``total`` configs were asked for: ``known`` of them were measured before, ``compiled`` were compiled since, and
    ``measured`` of those timed. ``failed`` ones cannot be ranked. ``best`` is the fastest config in words, with its
    median ``best_ms``; ``times_ms`` are the medians in the order in which they came.
    """

    kernel: str
    stage: Stage
    total: int = 0
    known: int = 0
    compiled: int = 0
    measured: int = 0
    failed: int = 0
    best: str = ""
    best_ms: float | None = None
    times_ms: tuple[float, ...] = ()


Watch = Callable[[TuningProgress], None]


def unwatched(progress: TuningProgress) -> None:
    """Watch nothing."""
