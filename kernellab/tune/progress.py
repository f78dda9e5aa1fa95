"""The progress of a tuning: its counts and times so far, as an event for whoever watches."""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import Literal

from kernellab.store.columns import UNMEASURED, Status
from kernellab.timing.config import Config
from kernellab.tune.result import Row

Stage = Literal["start", "screening", "final", "done"]


@dataclass(frozen=True, slots=True)
class TuningProgress:
    """The progress of a tuning.

    Of ``total`` configs, ``known`` have stored rows, ``compiled`` were compiled in this tuning, ``measured`` timed,
    ``failed`` cannot be ranked, and ``ended`` have an outcome from this tuning. ``best`` is the text of the fastest
    config, ``best_ms`` its median; ``times_ms`` are the medians in order, thinned for a long list. ``fastest`` and
    ``latest`` are a few rows; ``left_s`` are the estimated seconds left, None if unknown. The size of an event does not
    grow with the list.
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


def ignore_progress(progress: object) -> None:
    """Ignore the progress."""


_WITHOUT_FAILURE = {Status.OK, Status.DIFFERS, *UNMEASURED}
_MOST_TIMES = 512
_MIN_ENDED = 4  # configs that have ended before their pace says anything
_FASTEST, _LATEST = 8, 3


@dataclass(slots=True)
class _Curve:
    """Times in order; a long series keeps the best and the worst of each stretch."""

    _times_ms: list[float] = field(default_factory=list)
    _stretch: list[float] = field(default_factory=list)  # of a stretch
    _length: int = 1

    def add(self, time_ms: float) -> None:
        """Add the next time."""
        self._stretch.append(time_ms)
        if len(self._stretch) == self._length:
            self._times_ms += _extremes(self._stretch)
            self._stretch.clear()
        if len(self._times_ms) >= _MOST_TIMES:
            fours = [self._times_ms[begin : begin + 4] for begin in range(0, len(self._times_ms), 4)]
            self._times_ms = [time for four in fours for time in _extremes(four)]
            self._length = max(4, 2 * self._length)

    @property
    def times_ms(self) -> tuple[float, ...]:
        """The times of the curve."""
        return (*self._times_ms, *_extremes(self._stretch))


def _extremes(times_ms: Sequence[float]) -> Sequence[float]:
    """Return the best and the worst of some times, in their order."""
    if len(times_ms) <= 2:
        return tuple(times_ms)
    places = min(range(len(times_ms)), key=times_ms.__getitem__), max(range(len(times_ms)), key=times_ms.__getitem__)
    return [times_ms[place] for place in sorted(places)]


@dataclass(slots=True)
class Counts:
    """The counts of `TuningProgress`, and the fastest rows."""

    known: int = 0
    compiled: int = 0
    measured: int = 0
    ended: int = 0
    _failed: int = 0
    _fastest: list[Row] = field(default_factory=list)
    _latest: deque[Row] = field(default_factory=lambda: deque(maxlen=_LATEST))
    _curve: _Curve = field(default_factory=_Curve)
    _first_s: float | None = None  # when the first config ended

    @property
    def best_ms(self) -> float | None:
        """The smallest median so far."""
        return self._fastest[0].time_ms if self._fastest else None

    def add_known(self, row: Row) -> None:
        """Count a config that was measured before."""
        self.known += 1
        self._add_time(row)

    def add(self, row: Row) -> None:
        """Count a config of this tuning that ended."""
        self.ended += 1
        self._latest.append(row)
        self._add_time(row)

    def reopen(self, count: int) -> None:
        """Subtract configs that will be compiled again and then measured."""
        self.compiled -= count
        self.ended -= count

    def _add_time(self, row: Row) -> None:
        self._failed += row.status not in _WITHOUT_FAILURE
        if row.status is Status.OK and row.time_ms is not None:
            self._curve.add(row.time_ms)
            insort(self._fastest, row, key=lambda row: row.time_ms or 0.0)
            del self._fastest[_FASTEST:]

    def recount(self, rows: Mapping[Config, Row], winner: Config | None = None) -> None:
        """Count failures and find the fastest rows again, after rows changed; a winner comes first."""
        good = [row for row in rows.values() if row.status is Status.OK and row.time_ms is not None]
        self._failed = sum(row.status not in _WITHOUT_FAILURE for row in rows.values())
        self._fastest = nsmallest(_FASTEST, good, key=lambda row: (row.config != winner, row.time_ms))
        self._latest = deque((rows[row.config] for row in self._latest), maxlen=_LATEST)

    def seconds_left(self, now_s: float, total: int, end_s: float | None) -> float | None:
        """Return the estimated seconds left, from the pace since the first config ended; None until it is known.

        The budget ends at ``end_s``, if there is one.
        """
        if self.ended == 1 and self._first_s is None:
            self._first_s = now_s
        bounds = [] if end_s is None else [end_s - now_s]
        if self._first_s is not None and self.ended >= _MIN_ENDED:
            bounds.append((now_s - self._first_s) / (self.ended - 1) * (total - self.known - self.ended))
        return max(0.0, min(bounds)) if bounds else None

    def progress(self, kernel: str, stage: Stage, total: int, left_s: float | None = None) -> TuningProgress:
        """Return the counts as an event; ``total`` is the number of requested configs."""
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
