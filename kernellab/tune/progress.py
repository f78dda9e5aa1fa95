"""How far a tuning has come: what is counted on the way, and frozen events of it for whoever watches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from kernellab.measure.config import Config
from kernellab.measure.outcomes import UNMEASURED, Status
from kernellab.tune.result import Row

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


_FINE = {Status.OK, Status.DIFFERS, *UNMEASURED}


@dataclass(slots=True)
class Counts:
    """Counts configs as `TuningProgress` has them, and keeps the fastest row."""

    known: int = 0
    compiled: int = 0
    measured: int = 0
    _failed: int = 0
    _best: Row | None = None
    _times_ms: list[float] = field(default_factory=list)

    @property
    def best_ms(self) -> float | None:
        """The smallest median so far."""
        return None if self._best is None else self._best.time_ms

    def add(self, row: Row) -> None:
        """Count what became of a config."""
        self._failed += row.status not in _FINE
        if row.status is not Status.OK or row.time_ms is None:
            return
        self._times_ms.append(row.time_ms)
        if self.best_ms is None or row.time_ms < self.best_ms:
            self._best = row

    def recount(self, rows: Mapping[Config, Row], winner: Config | None = None) -> None:
        """Count anew what failed, and what is best: a row that was good may be so no longer. A winner is the best."""
        good = [row for row in rows.values() if row.status is Status.OK and row.time_ms is not None]
        self._failed = sum(row.status not in _FINE for row in rows.values())
        self._best = min(good, key=lambda row: (row.config != winner, row.time_ms), default=None)

    def progress(self, kernel: str, stage: Stage, total: int) -> TuningProgress:
        """Return the event that tells of this; ``total`` configs were asked for."""
        return TuningProgress(
            kernel=kernel,
            stage=stage,
            total=total,
            known=self.known,
            compiled=self.compiled,
            measured=self.measured,
            failed=self._failed,
            best="" if self._best is None else self._best.config.text,
            best_ms=self.best_ms,
            times_ms=tuple(self._times_ms),
        )
