"""Benches on several devices side by side: which of them measure, and whether their times agree."""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import TypeVar

from kernellab.errors import KernellabError, UsageError, value_text
from kernellab.timing.bench import Bench
from kernellab.timing.bench_jobs import LaunchTimes
from kernellab.timing.launches import Implementation
from kernellab.workers.forks_and_interrupts import ProgressCallback, Stop, Work, next_item
from kernellab.workers.parallel import run_in_parallel

AGREEMENT = 0.03
WORTH_S = 2.0
_AGREEMENT_RUNS, _AGREEMENT_S = 16, 0.2
_BUSY = 0.7
_LATEST = 8
_SHARED_BATCH_S = 0.5
_END_S = 300.0  # longer than a bench takes to start its worker and to give a config up

_Task = tuple[Implementation, int, Callable[[], float | None]]


@dataclass(frozen=True, slots=True)
class PoolResult:
    """The times of a candidate, or its error, with the place of its bench in the pool."""

    candidate: Implementation
    result: LaunchTimes | KernellabError
    place: int


@dataclass(slots=True)
class _Pace:
    """The seconds per config of one device, and its share of busy time, over the latest configs.

    The first config is left out, since it includes the setup of the bench.
    """

    count: int = 0
    total_s: float = 0.0
    _end_s: float = 0.0
    _latest: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=_LATEST))  # waited, at work

    def add(self, begin_s: float, end_s: float) -> None:
        """Add one measurement."""
        self.count += 1
        self.total_s += end_s - begin_s
        if self.count > 1:
            self._latest.append((begin_s - self._end_s, end_s - begin_s))
        self._end_s = end_s

    def saves_s(self, left: int, devices: int) -> float:
        """Return the seconds that several devices save on the rest; 0 where compiling is the bottleneck."""
        if not self._latest:
            return 0.0
        waited_s, at_work_s = map(sum, zip(*self._latest, strict=True))
        is_busy = at_work_s >= _BUSY * (waited_s + at_work_s)
        return left * at_work_s / len(self._latest) * (1 - 1 / devices) if is_busy else 0.0


@dataclass(slots=True)
class DevicePool:
    """Measures candidates on benches, each on its own device; ``devices`` are their indices.

    ``makers`` make the benches, each at its first measurement. The first bench is the reference. It measures alone
    until its pace is known; the others join if that saves `WORTH_S` seconds, since a device first needs a worker and
    copies of the arguments. A device that joins times one config of the reference, and is not used if its median is off
    by more than `AGREEMENT`. That threshold is well below `Options.finalist_factor`, the lag with which a config
    still enters the final, so the bias of a device excludes no winner.

    With ``at_once`` above one, a single device measures that many candidates per request; `flush` and
    `remaining_results` measure the candidates that still wait.
    """

    makers: Sequence[Callable[[], Bench]]
    devices: Sequence[int | None] = (None,)
    at_once: int = 1
    loser_factor: float = 1.25
    notes: list[str] = field(default_factory=list)
    clock: Callable[[], float] = time.perf_counter
    _tasks: queue.SimpleQueue[_Task | None] = field(default_factory=queue.SimpleQueue)
    _results: queue.SimpleQueue[PoolResult | BaseException] = field(default_factory=queue.SimpleQueue)
    _threads: list[Work[None]] = field(default_factory=list)
    _stop: Stop = field(default_factory=Stop)
    _running: int = 0
    _ready: list[PoolResult] = field(default_factory=list)
    _waiting: list[_Task] = field(default_factory=list)
    _expected: int = 0
    _pace: _Pace = field(default_factory=_Pace)
    _agreeing: list[int] = field(default_factory=list)  # with the reference
    _failure: BaseException | None = None
    _common_group: int = 0
    _benches: dict[int, Bench] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def reference(self) -> Bench:
        """The bench of the first device; the times of the others are compared with it, and finals run on it."""
        return self.bench(0)

    def bench(self, place: int) -> Bench:
        """Return the bench of a device, by its place in the pool."""
        with self._lock:
            if place not in self._benches:
                self._benches[place] = self.makers[place]()
            return self._benches[place]

    @property
    def is_shared(self) -> bool:
        """Whether several threads measure configs, so that the reference bench may be busy at any time."""
        return bool(self._threads)

    def get_ready(self) -> None:
        """Let the reference bench load its data; an error appears with its first measurement."""
        with suppress(KernellabError):
            self.reference.get_ready()

    def expect(self, count: int) -> None:
        """Set the largest number of candidates that will be submitted."""
        self._expected = count

    def submit(self, candidate: Implementation, runs: int, bound: Callable[[], float | None]) -> None:
        """Measure a candidate: now, or as soon as a device is free. ``bound`` is called when it starts."""
        self._expected -= 1
        if self._threads:
            self._running += 1
            self._tasks.put((candidate, runs, bound))
            return
        if self.at_once > 1 and len(self.makers) == 1:
            self._waiting.append((candidate, runs, bound))
            if len(self._waiting) >= self.at_once:
                self.flush()
            return
        begin_s = self.clock()
        result = self._measure_candidate(0, candidate, runs, bound)
        self._pace.add(begin_s, self.clock())
        self._ready.append(result)
        is_good = isinstance(result.result, LaunchTimes) and bool(result.result.times_ms)
        if is_good and len(self.makers) > 1 and self._pace.saves_s(self._expected, len(self.makers)) >= WORTH_S:
            self._start_others(result)

    def flush(self) -> None:
        """Measure the candidates that wait for a batch to fill."""
        tasks, self._waiting = self._waiting, []
        if not tasks:
            return
        candidates, (_, runs, bound) = [candidate for candidate, _, _ in tasks], tasks[0]
        results: Sequence[LaunchTimes | KernellabError]
        try:
            results = self.reference.measure_all(candidates, runs, bound(), self.loser_factor)
        except KernellabError as exc:
            results = [exc] * len(tasks)
        self._ready += [PoolResult(*pair, 0) for pair in zip(candidates, results, strict=True)]

    def final_bench(self, batch_s: float) -> tuple[Bench | SharedRounds, int]:
        """Return the bench of a final with its number of devices; one batch of rounds takes ``batch_s`` seconds."""
        if not self._agreeing or batch_s < _SHARED_BATCH_S:
            return self.reference, 1
        benches = [self.bench(place) for place in (0, *self._agreeing)]
        return SharedRounds(benches), len(benches)

    def ready_results(self) -> Iterator[PoolResult]:
        """Yield the results that are ready, without waiting."""
        results, self._ready = self._ready, []
        yield from results
        if self._failure is not None:
            raise self._failure
        while not self._results.empty():
            yield self._next()

    def remaining_results(self) -> Iterator[PoolResult]:
        """Yield all other results, waiting for each."""
        self.flush()
        yield from self.ready_results()
        while self._running:
            yield self._next()  # comes for sure, since a bench has a timeout

    def _next(self) -> PoolResult:
        self._running -= 1
        result = next_item(self._results)
        if isinstance(result, BaseException):
            raise result
        return result

    def group_of(self, place: int, group: int) -> tuple[int, int]:
        """Return the place and number of an output group; groups known to be equal have the same.

        Every other bench measures the config that all have in common first, so its group has number 0 there.
        """
        is_common = place > 0 and group == 0 and self._common_group >= 0
        return (0, self._common_group) if is_common else (place, group)

    def close(self) -> None:
        """Start no more measurements, wait for those that run, and close the benches."""
        if self._pace.count and len(self.makers) > 1 and not self._threads:
            self.notes.append(
                f"device {self.devices[0]} measured alone, in {self._pace.total_s:.1f} s: another would have saved "
                f"less than {WORTH_S:g} s"
            )
        self._stop.why = "was interrupted"
        for _ in self._threads:
            self._tasks.put(None)
        for thread in self._threads:
            thread.await_end(_END_S)
        self._threads, self._running = [], 0
        for bench in self._benches.values():
            bench.close()

    def _measure_all(self, index: int, tell: ProgressCallback) -> None:
        """Measure candidates from the queue on one bench, in this thread, until the queue ends."""
        while (task := self._tasks.get()) is not None and not self._stop.why:
            try:
                self._results.put(self._measure_candidate(index, *task))
            except BaseException as exc:  # noqa: BLE001 - raised where results are taken
                self._results.put(exc)

    def _measure_candidate(
        self, index: int, candidate: Implementation, runs: int, bound: Callable[[], float | None]
    ) -> PoolResult:
        try:
            return PoolResult(candidate, self.bench(index).measure(candidate, runs, bound()), index)
        except KernellabError as exc:
            return PoolResult(candidate, exc, index)

    def _start_others(self, result: PoolResult) -> None:
        """Start the other devices; each joins if its time of one config agrees with the reference bench's."""
        assert isinstance(result.result, LaunchTimes)
        try:
            expected_ms = self._median_ms(0, result.candidate, result.result)
        except KernellabError:
            return  # try again after the next config
        self._common_group = result.result.group
        join = partial(self._join, result.candidate, result.result, expected_ms)
        joining = [partial(join, place) for place in range(1, len(self.makers))]
        self._threads = [Work(work, daemon=True) for work in (partial(self._measure_all, 0), *joining)]
        for thread in self._threads:
            thread.begin()

    def _join(
        self, candidate: Implementation, measured: LaunchTimes, expected_ms: float, place: int, tell: ProgressCallback
    ) -> None:
        try:
            if not self._agrees(place, candidate, measured, expected_ms):
                return
        except BaseException as exc:  # noqa: BLE001 - raised where results are taken
            self._failure = exc
            return
        self._agreeing.append(place)
        self._measure_all(place, tell)

    def _agrees(self, index: int, candidate: Implementation, measured: LaunchTimes, expected_ms: float) -> bool:
        names = f"device {self.devices[index]}", f"device {self.devices[0]}"
        try:
            self.bench(index).measure(candidate, 1, None)  # outputs are compared, and the device wakes up
            off = self._median_ms(index, candidate, measured) / expected_ms - 1
        except KernellabError as exc:
            self.notes.append(f"{names[0]} was not used: {exc.message}")
            return False
        if abs(off) > AGREEMENT:
            self.notes.append(
                f"{names[0]} was not used: {candidate.config.text} is {abs(off):.1%} "
                f"{'slower' if off > 0 else 'faster'} there than on {names[1]}; tolerance {AGREEMENT:.0%}"
            )
        return abs(off) <= AGREEMENT

    def _median_ms(self, index: int, candidate: Implementation, measured: LaunchTimes) -> float:
        runs = int(1e3 * _AGREEMENT_S / max(median(measured.times_ms), 1e-6))
        rounds = min(_AGREEMENT_RUNS, max(len(measured.times_ms), runs))
        return median(self.bench(index).interleave([candidate], rounds)[0])


def valid_devices(given: Sequence[int], count: int, names: Sequence[str]) -> tuple[int, ...]:
    """Return the GPU numbers to measure on, each once; there are ``count`` GPUs with these model names.

    Raises:
        UsageError: there is no such device, or they are of different models.
    """
    if isinstance(given, str | bytes) or not isinstance(given, Sequence) or not given:
        raise UsageError(f"devices is {value_text(given)}; expected a list of GPU numbers, such as [0, 1].")
    wrong = [index for index in given if not isinstance(index, int) or isinstance(index, bool)]
    if wrong:
        raise UsageError(f"devices has {value_text(wrong[0])}; expected GPU numbers, such as [0, 1].")
    absent = [index for index in given if not 0 <= index < count]
    if absent:
        known = "there is no GPU" if not count else f"there is GPU 0 to {count - 1}" if count > 1 else "there is GPU 0"
        raise UsageError(f"devices has {absent[0]}, and {known}.")
    devices = tuple(dict.fromkeys(given))
    models = {names[index] for index in devices}
    if len(models) > 1:
        listed = " and ".join(sorted(models))
        raise UsageError(f"devices are of different models, {listed}, whose times cannot be compared; name one model.")
    return devices


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SharedRounds:
    """Divides the rounds of a final among benches on equally fast devices; the first is the reference.

    Standings follow from ratios of times within one round, so they do not depend on its device. All configs have the
    same number of rounds on each device, so their medians are comparable, too.
    """

    benches: Sequence[Bench]

    def interleave(self, implementations: Sequence[Implementation], rounds: int) -> list[tuple[float, ...]]:
        """Return the times of each implementation in ms, one per round; see `Bench.interleave`."""
        count = len(self.benches)
        shares = [rounds // count + (place < rounds % count) for place in range(count)]
        pairs = zip(self.benches, shares, strict=True)
        parts = _in_parallel([partial(bench.interleave, implementations, share) for bench, share in pairs if share])
        return [tuple(time for part in parts for time in part[place]) for place in range(len(implementations))]

    def warm(self, implementations: Sequence[Implementation], runs: int) -> list[float]:
        """Return the median time of each implementation in ms with a warm L2, each on one device."""
        count = len(self.benches)
        hands = ((bench, implementations[place::count]) for place, bench in enumerate(self.benches))
        parts = _in_parallel([partial(bench.warm, hand, runs) for bench, hand in hands if hand])
        return [parts[place % count][place // count] for place in range(len(implementations))]


def _in_parallel(calls: Sequence[Callable[[], T]]) -> list[T]:
    """Run calls in a thread each, and return their results; raise the first error."""

    def source(place: int, stop: Stop) -> Iterator[tuple[int, T]]:
        yield place, calls[place]()

    results = dict(run_in_parallel([partial(source, place) for place in range(len(calls))]))
    return [results[place] for place in range(len(calls))]
