"""How far a tuning has come: what is counted on the way, and frozen events of it for whoever watches."""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import Literal

from kernellab.measure.config import Config
from kernellab.measure.outcomes import UNMEASURED, Status
from kernellab.tune.result import Row

Stage = Literal["start", "screening", "final", "done"]


@dataclass(frozen=True, slots=True)
class TuningProgress:
    """A tuning so far.

    ``total`` configs were asked for: ``known`` of them were measured before, ``compiled`` were compiled since, and
    ``measured`` of those timed. ``failed`` ones cannot be ranked, ``ended`` counts those of this tuning that are
    through. ``best`` is the fastest config in words, with its median ``best_ms``; ``times_ms`` are the medians in the
    order in which they came, of many the best and the worst of each stretch. ``fastest`` are the rows of the fastest
    few, ``latest`` of those that ended last; ``left_s`` is about how many seconds the configs that were asked for will
    still take, None where nothing tells. So an event is no larger for a long list than for a short one.
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
    ended: int = 0
    fastest: tuple[Row, ...] = ()
    latest: tuple[Row, ...] = ()
    left_s: float | None = None


Watch = Callable[[TuningProgress], None]


def unwatched(progress: TuningProgress) -> None:
    """Watch nothing."""


_FINE = {Status.OK, Status.DIFFERS, *UNMEASURED}
_MOST_TIMES = 512
_FASTEST, _LATEST = 8, 3


@dataclass(slots=True)
class _Curve:
    """Times in their order; of many, the best and the worst of each stretch, whose length grows with their number."""

    _times_ms: list[float] = field(default_factory=list)
    _begun: list[float] = field(default_factory=list)  # of a stretch
    _length: int = 1

    def add(self, time_ms: float) -> None:
        """Take the next time."""
        self._begun.append(time_ms)
        if len(self._begun) == self._length:
            self._times_ms += _ends(self._begun)
            self._begun.clear()
        if len(self._times_ms) >= _MOST_TIMES:
            fours = [self._times_ms[begin : begin + 4] for begin in range(0, len(self._times_ms), 4)]
            self._times_ms = [time for four in fours for time in _ends(four)]
            self._length = max(4, 2 * self._length)

    @property
    def times_ms(self) -> tuple[float, ...]:
        """What is kept of them."""
        return (*self._times_ms, *_ends(self._begun))


def _ends(times_ms: Sequence[float]) -> Sequence[float]:
    """Return the best and the worst of some times, in their order."""
    if len(times_ms) <= 2:
        return tuple(times_ms)
    places = min(range(len(times_ms)), key=times_ms.__getitem__), max(range(len(times_ms)), key=times_ms.__getitem__)
    return [times_ms[place] for place in sorted(places)]


@dataclass(slots=True)
class Counts:
    """Counts configs as `TuningProgress` has them, and keeps the fastest row."""

    known: int = 0
    compiled: int = 0
    measured: int = 0
    ended: int = 0
    _failed: int = 0
    _fastest: list[Row] = field(default_factory=list)
    _latest: deque[Row] = field(default_factory=lambda: deque(maxlen=_LATEST))
    _curve: _Curve = field(default_factory=_Curve)

    @property
    def best_ms(self) -> float | None:
        """The smallest median so far."""
        return self._fastest[0].time_ms if self._fastest else None

    def add_known(self, row: Row) -> None:
        """Count a config that was measured before."""
        self.known += 1
        self._enter(row)

    def add(self, row: Row) -> None:
        """Count what became of a config."""
        self.ended += 1
        self._latest.append(row)
        self._enter(row)

    def reopen(self, count: int) -> None:
        """Take back that configs ended, which are compiled once more and then measured."""
        self.compiled -= count
        self.ended -= count

    def _enter(self, row: Row) -> None:
        self._failed += row.status not in _FINE
        if row.status is Status.OK and row.time_ms is not None:
            self._curve.add(row.time_ms)
            insort(self._fastest, row, key=_time_of)
            del self._fastest[_FASTEST:]

    def recount(self, rows: Mapping[Config, Row], winner: Config | None = None) -> None:
        """Count anew what failed, and what is best: a row that was good may be so no longer. A winner is the best."""
        good = [row for row in rows.values() if row.status is Status.OK and row.time_ms is not None]
        self._failed = sum(row.status not in _FINE for row in rows.values())
        self._fastest = nsmallest(_FASTEST, good, key=lambda row: (row.config != winner, row.time_ms))
        self._latest = deque((rows[row.config] for row in self._latest), maxlen=_LATEST)

    def progress(self, kernel: str, stage: Stage, total: int, left_s: float | None = None) -> TuningProgress:
        """Return the event that tells of this; ``total`` configs were asked for."""
        return TuningProgress(
            kernel=kernel,
            stage=stage,
            total=total,
            known=self.known,
            compiled=self.compiled,
            measured=self.measured,
            failed=self._failed,
            best=self._fastest[0].config.text if self._fastest else "",
            best_ms=self.best_ms,
            times_ms=self._curve.times_ms,
            ended=self.ended,
            fastest=tuple(self._fastest),
            latest=tuple(self._latest),
            left_s=left_s,
        )


def _time_of(row: Row) -> float:
    return row.time_ms or 0.0
