"""The timeline of a launch: where each program ran, from when to when, and what its parts took."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from kernellab.display import Drawable
from kernellab.errors import plural
from kernellab.launch.recorded_values import program_at
from kernellab.workers.forks_and_interrupts import import_uninterrupted

if TYPE_CHECKING:
    import numpy as np
    import pandas
    from numpy.typing import NDArray

FIXED_COLUMNS = 3  # of the table that a kernel with time stamps fills
SM, START, END = range(FIXED_COLUMNS)
HIGH_OVERHEAD = 0.10
_LONG = 1.5  # times the median, from which on a program takes long
_LONG_AT_LEAST = 3  # times the resolution of the clock


@dataclass(frozen=True, slots=True)
class Wave:
    """The programs that ran as the n-th of their places, with first start and last end; ``share`` is that of all."""

    number: int
    programs: int
    share: float
    start_us: float
    end_us: float


@dataclass(frozen=True)
class Timeline(Drawable):
    """The programs of one launch in their order in the grid, times in us from the start of the first.

    ``sm``, ``start_us`` and ``end_us`` have an element per program; ``parts_us`` a row per program and a column per
    part, of ``part_names``: from a chosen line to the next one that is reached, or to the end. ``launch_us`` is this
    launch's time in its stream, ``plain_us`` and ``stamped_us`` are the medians of launches without and with time
    stamps. ``resolution_ns`` is the smallest step of the clock that the stamps show, ``multiprocessors`` the SMs of
    the device.
    """

    kernel: str
    grid: tuple[int, int, int]
    device: str
    multiprocessors: int
    sm: NDArray[np.int64]
    start_us: NDArray[np.float64]
    end_us: NDArray[np.float64]
    launch_us: float
    plain_us: float
    stamped_us: float
    resolution_ns: int
    lines: tuple[int, ...] = ()
    parts_us: NDArray[np.float64] | None = None
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"<Timeline of {self.kernel}: {plural(len(self.sm), 'program')} in {self.span_us:.4g} us>"

    @property
    def span_us(self) -> float:
        """The time from the start of the first program to the end of the last."""
        return float(self.end_us.max() - self.start_us.min()) if len(self.sm) else 0.0

    @property
    def gap_us(self) -> float:
        """The time of the launch outside its programs: before the first starts, and after the last ends."""
        return max(0.0, self.launch_us - self.span_us)

    @property
    def overhead(self) -> float:
        """The share by which the time stamps make the launch longer; 0.1 is 10 %."""
        return self.stamped_us / self.plain_us - 1 if self.plain_us else 0.0

    @property
    def has_high_overhead(self) -> bool:
        """Whether the time stamps cost so much that the timeline differs from that of the plain kernel."""
        return self.overhead > HIGH_OVERHEAD

    @cached_property
    def places_per_sm(self) -> int:
        """The most programs that ran on one SM at the same time; one that waits for its first turn does not run yet."""
        np = import_uninterrupted("numpy")
        most = 0
        for number in np.unique(self.sm):
            here = self.sm == number
            # An end at the time of a start frees the place first.
            times = np.concatenate([self.end_us[here], self.start_us[here]])
            steps = np.concatenate([np.full(here.sum(), -1), np.full(here.sum(), 1)])
            most = max(most, int(steps[np.lexsort((steps, times))].cumsum().max()))
        return most

    @cached_property
    def wave(self) -> NDArray[np.int64]:
        """The wave of each program, from 1: the programs of an SM by start, in groups as large as run at a time."""
        np = import_uninterrupted("numpy")
        order = np.lexsort((self.start_us, self.sm))
        ordered = self.sm[order]
        first = np.searchsorted(ordered, ordered, side="left")
        wave: NDArray[Any] = np.empty(len(order), np.int64)
        wave[order] = (np.arange(len(order)) - first) // max(self.places_per_sm, 1) + 1
        return wave

    @cached_property
    def waves(self) -> tuple[Wave, ...]:
        """The waves of the launch, in order."""
        np = import_uninterrupted("numpy")
        found = []
        for number in np.unique(self.wave):
            here = self.wave == number
            count = int(here.sum())
            start, end = float(self.start_us[here].min()), float(self.end_us[here].max())
            found.append(Wave(int(number), count, count / len(self.sm), start, end))
        return tuple(found)

    @cached_property
    def tail_us(self) -> float:
        """The time from when the first SM has nothing left to do until the last program ends."""
        np = import_uninterrupted("numpy")
        ends = [float(self.end_us[self.sm == number].max()) for number in np.unique(self.sm)]
        if len(ends) < self.multiprocessors:
            return self.span_us
        return max(ends) - min(ends) if ends else 0.0

    @cached_property
    def idle_share(self) -> float:
        """The share of the SMs' time, from first start to last end, in which an SM runs no program."""
        busy = sum(end - start for _, start, end in self.busy_intervals)
        total = self.span_us * max(self.multiprocessors, 1)
        return max(0.0, 1 - busy / total) if total else 0.0

    @cached_property
    def busy_intervals(self) -> tuple[tuple[int, float, float], ...]:
        """The times in which an SM runs some program: SM, start and end in us."""
        np = import_uninterrupted("numpy")
        order = np.lexsort((self.start_us, self.sm))
        intervals: list[tuple[int, float, float]] = []
        for row in order:
            sm, start, end = int(self.sm[row]), float(self.start_us[row]), float(self.end_us[row])
            if intervals and intervals[-1][0] == sm and start <= intervals[-1][2]:
                intervals[-1] = sm, intervals[-1][1], max(end, intervals[-1][2])
            else:
                intervals.append((sm, start, end))
        return tuple(intervals)

    @cached_property
    def long_programs(self) -> tuple[int, ...]:
        """The numbers of the programs that take 1.5 times the median or more, the longest first."""
        np = import_uninterrupted("numpy")
        durations = self.end_us - self.start_us
        if not len(durations):
            return ()
        median = float(np.median(durations))
        limit = max(_LONG * median, median + _LONG_AT_LEAST * self.resolution_ns / 1e3)
        order = np.argsort(-durations, kind="stable")
        return tuple(int(number) for number in order if durations[number] >= limit)

    @property
    def part_names(self) -> tuple[str, ...]:
        """The names of the parts: what precedes the chosen lines, then each line with what follows it."""
        return ("start", *(f"line {line}" for line in self.lines)) if self.lines else ()

    @property
    def shares(self) -> dict[str, float]:
        """The share of each part in the time of all programs, by name; empty without lines."""
        if self.parts_us is None:
            return {}
        total = float(self.parts_us.sum())
        sums = self.parts_us.sum(axis=0)
        return {name: float(part) / total if total else 0.0 for name, part in zip(self.part_names, sums, strict=True)}

    def program(self, number: int) -> tuple[int, int, int]:
        """The program id of a number in the grid."""
        return program_at(self.grid, number)

    @cached_property
    def frame(self) -> pandas.DataFrame:
        """A row per program: its id, SM, start, end and wave, and the time of each part in us."""
        pd = import_uninterrupted("pandas")
        columns: dict[str, Any] = {
            "program": [self.program(number) for number in range(len(self.sm))],
            "sm": self.sm,
            "start_us": self.start_us,
            "end_us": self.end_us,
            "wave": self.wave,
        }
        if self.parts_us is not None:
            columns |= {f"{name} us": self.parts_us[:, place] for place, name in enumerate(self.part_names)}
        return pd.DataFrame(columns)


@dataclass(frozen=True, slots=True)
class StampTimes:
    """The stamps of a launch in us, as a timeline has them; see `Timeline`."""

    sm: NDArray[np.int64]
    start_us: NDArray[np.float64]
    end_us: NDArray[np.float64]
    parts_us: NDArray[np.float64] | None
    resolution_ns: int


def times_of_table(table: NDArray[np.int64]) -> StampTimes:
    """The times of a table of stamps, with a row per program.

    The cycles of the parts become us by the program's own time, since SMs change their clock.
    """
    np = import_uninterrupted("numpy")
    starts, ends = table[:, START], table[:, END]
    first = int(starts.min()) if len(table) else 0
    start_us, end_us = (starts - first) / 1e3, (ends - first) / 1e3
    parts_us = None
    if table.shape[1] > FIXED_COLUMNS:
        cycles = table[:, FIXED_COLUMNS:].astype(np.float64)
        totals = cycles.sum(axis=1, keepdims=True)
        parts_us = np.divide(cycles, totals, out=np.zeros_like(cycles), where=totals > 0) * (end_us - start_us)[:, None]
    return StampTimes(table[:, SM].copy(), start_us, end_us, parts_us, _resolution_ns(starts, ends))


def _resolution_ns(starts: NDArray[np.int64], ends: NDArray[np.int64]) -> int:
    """The greatest common divisor of the differences between stamps."""
    np = import_uninterrupted("numpy")
    stamps = np.unique(np.concatenate([starts, ends]))
    return int(np.gcd.reduce(np.diff(stamps))) if len(stamps) > 1 else 0
