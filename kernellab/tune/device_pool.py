"""Several benches side by side, one per device: which GPUs measure, and whether their times may be compared."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from statistics import median

from kernellab.errors import KernellabError, UsageError
from kernellab.measure.implementations import Bench, Implementation, Measured
from kernellab.workers.uninterrupted import Stop, Told, Work

AGREEMENT = 0.03
_AGREEMENT_RUNS = 16
_END_S = 300.0  # longer than a bench takes to start its worker and to give a config up

_Task = tuple[Implementation, int, Callable[[], float | None]]


@dataclass(frozen=True, slots=True)
class Taken:
    """What became of a candidate on a bench, by its place in the pool: its times, or the error."""

    candidate: Implementation
    result: Measured | KernellabError
    place: int


@dataclass(slots=True)
class DevicePool:
    """Measures candidates on benches, each on a device of its own; ``devices`` are their indices.

    ``makers`` make the benches, each when something is first to be measured there: where every outcome is known, none
    is. The first bench is the reference: finals are held there alone. Before the others take part, all of them time the
    first config that runs, and a device whose median is off by more than `AGREEMENT` measures nothing else. So rows of
    two devices are only compared where these agree. The threshold is well below the share by which a config may be
    behind the best and still reach the final (`Policy.finalist_factor`): a device's bias keeps no winner out.
    """

    makers: Sequence[Callable[[], Bench]]
    devices: Sequence[int | None] = (None,)
    notes: list[str] = field(default_factory=list)
    _tasks: queue.SimpleQueue[_Task | None] = field(default_factory=queue.SimpleQueue)
    _taken: queue.SimpleQueue[Taken | BaseException] = field(default_factory=queue.SimpleQueue)
    _threads: list[Work[None]] = field(default_factory=list)
    _stop: Stop = field(default_factory=Stop)
    _running: int = 0
    _finished: list[Taken] = field(default_factory=list)
    _has_calibrated: bool = False
    _common_group: int = 0
    _benches: dict[int, Bench] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def reference(self) -> Bench:
        """The bench of the first device, which the others are compared with and on which finals are held."""
        return self.bench(0)

    def bench(self, place: int) -> Bench:
        """Return the bench of a device, by its place in the pool."""
        with self._lock:
            if place not in self._benches:
                self._benches[place] = self.makers[place]()
            return self._benches[place]

    @property
    def is_shared(self) -> bool:
        """Whether configs are measured by several threads, so that the reference may be at work at any time."""
        return bool(self._threads)

    def get_ready(self) -> None:
        """Let all benches load what they need. One that fails says so when it is to measure something."""
        for place in range(len(self.makers)):
            with suppress(KernellabError):
                self.bench(place).get_ready()

    def submit(self, candidate: Implementation, runs: int, bound: Callable[[], float | None]) -> None:
        """Measure a candidate: now, or as soon as a device is free. ``bound`` is asked when it starts."""
        if not self._has_calibrated or not self._threads:
            taken = self._measured(0, candidate, runs, bound)
            self._finished.append(taken)
            if not self._has_calibrated and isinstance(taken.result, Measured) and taken.result.times_ms:
                self._calibrate(candidate, taken.result.group)
            return
        self._running += 1
        self._tasks.put((candidate, runs, bound))

    def finished(self) -> Iterator[Taken]:
        """Yield what is there, without waiting."""
        found, self._finished = self._finished, []
        yield from found
        while not self._taken.empty():
            yield self._next()

    def rest(self) -> Iterator[Taken]:
        """Yield everything that is still to come, as it comes."""
        yield from self.finished()
        while self._running:
            yield self._next()  # each that is begun comes, since a bench gives up by itself

    def _next(self) -> Taken:
        self._running -= 1
        taken = self._taken.get()
        if isinstance(taken, BaseException):
            raise taken
        return taken

    def group_of(self, place: int, group: int) -> tuple[int, int]:
        """Return the place and number of a group of outputs, the same for those that are known to be equal.

        Every other bench measured the config by which all are compared before any other, so its group is 0 there.
        """
        is_common = place > 0 and group == 0 and self._common_group >= 0
        return (0, self._common_group) if is_common else (place, group)

    def drop(self) -> None:
        """Start nothing more; what is running ends, and is waited for."""
        self._stop.why = "was interrupted"
        for _ in self._threads:
            self._tasks.put(None)
        for thread in self._threads:
            thread.await_end(_END_S)
        self._threads, self._running = [], 0

    def close(self) -> None:
        """Start nothing more, and close the benches that were made."""
        self.drop()
        for bench in self._benches.values():
            bench.close()

    def _measure_all(self, index: int, tell: Told) -> None:
        """Measure on one bench, in a thread of its own, whatever comes, until there is nothing more."""
        while (task := self._tasks.get()) is not None and not self._stop.why:
            try:
                self._taken.put(self._measured(index, *task))
            except BaseException as exc:  # noqa: BLE001 - whoever takes the results gets it
                self._taken.put(exc)

    def _measured(self, index: int, candidate: Implementation, runs: int, bound: Callable[[], float | None]) -> Taken:
        try:
            return Taken(candidate, self.bench(index).measure(candidate, runs, bound()), index)
        except KernellabError as exc:
            return Taken(candidate, exc, index)

    def _calibrate(self, candidate: Implementation, group: int) -> None:
        """Let every device time one config, and keep those that agree with the first."""
        if len(self.makers) < 2:
            self._has_calibrated = True
            return
        try:
            expected = self._median_ms(0, candidate)
        except KernellabError:
            return  # the next config will do
        self._has_calibrated, self._common_group = True, group
        agreeing = [0, *(i for i in range(1, len(self.makers)) if self._agrees(i, candidate, expected))]
        if len(agreeing) > 1:
            self._threads = [Work(partial(self._measure_all, index), daemon=True) for index in agreeing]
            for thread in self._threads:
                thread.begin()

    def _agrees(self, index: int, candidate: Implementation, expected_ms: float) -> bool:
        names = f"device {self.devices[index]}", f"device {self.devices[0]}"
        try:
            off = self._median_ms(index, candidate, is_new=True) / expected_ms - 1
        except KernellabError as exc:
            self.notes.append(f"{names[0]} took no part: {exc.message}")
            return False
        if abs(off) > AGREEMENT:
            self.notes.append(
                f"{names[0]} took no part: {candidate.config.text} takes {abs(off):.1%} "
                f"{'longer' if off > 0 else 'less'} there than on {names[1]}, and {AGREEMENT:.0%} is allowed"
            )
        return abs(off) <= AGREEMENT

    def _median_ms(self, index: int, candidate: Implementation, *, is_new: bool = False) -> float:
        if is_new:
            self.bench(index).measure(candidate, 1, None)  # outputs are compared, and the device wakes up
        return median(self.bench(index).interleave([candidate], _AGREEMENT_RUNS)[0])


def checked_devices(given: Sequence[int], count: int, names: Sequence[str]) -> tuple[int, ...]:
    """Return the devices to measure on, each once; ``count`` GPUs there are, with these model names.

    Raises:
        UsageError: there is no such device, or they are of different models.
    """
    if isinstance(given, str | bytes) or not isinstance(given, Sequence) or not given:
        raise UsageError(f"devices is {given!r}; expected a list of GPU numbers, such as [0, 1].")
    wrong = [index for index in given if not isinstance(index, int) or isinstance(index, bool)]
    if wrong:
        raise UsageError(f"devices has {wrong[0]!r}; expected GPU numbers, such as [0, 1].")
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
