"""How far a benchmark has come, as frozen events that a session hands to whoever watches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal

from kernellab.benchmark.result import Row
from kernellab.benchmark.spec import shown

Stage = Literal["inputs", "compiling", "points", "done"]


@dataclass(frozen=True, slots=True)
class BenchmarkProgress:
    """A benchmark so far.

    Ahead of all, inputs are made and ``compiled`` of ``kernels`` are compiled; then come the points, of which ``done``
    of ``total`` are over. ``point`` is the one at work, in words; ``latest`` says what the one before it gave.
    """

    kernel: str
    stage: Stage
    total: int = 0
    done: int = 0
    compiled: int = 0
    kernels: int = 0
    point: str = ""
    latest: str = ""


Watch = Callable[[BenchmarkProgress], None]
Progress = Callable[[str], AbstractContextManager[Watch]]


def unwatched(progress: BenchmarkProgress) -> None:
    """Watch nothing."""


def point_words(case: Mapping[str, Any]) -> str:
    """Return the values of a point: ``n=1024, dtype=float16``."""
    return ", ".join(f"{name}={shown(value)}" for name, value in case.items())


def outcome_words(case: Mapping[str, Any], rows: Sequence[Row]) -> str:
    """Return the fastest time of each implementation at a point, the fastest first; "" where nothing was timed."""
    best: dict[str, float] = {}
    for row in rows:
        if row.time_ms is not None:
            best[row.implementation] = min(row.time_ms, best.get(row.implementation, row.time_ms))
    times = ", ".join(f"{name} {best[name]:.4g} ms" for name in sorted(best, key=best.__getitem__))
    return ": ".join(filter(None, [point_words(case), times])) if times else ""
