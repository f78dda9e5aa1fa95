"""Device times of sampled launches, by CUDA events that are read later: the program never waits for its GPU.

A sampled launch is queued behind a short spin of the device, so that its time does not include the host's; a launch
that the device reached before the host had queued the end of its sample is dropped and tried again.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

_EVERY = 16  # launches of a case between two samples
_SPUN_CYCLES = 60_000  # some 35 microseconds
_LONGEST_SPIN = 480_000
_SECONDS_OF_SAMPLE = 60e-6  # of the program, at most
_MOST_SHARE = 0.004  # of the program's time that samples may take
_MOST_PENDING = 256
_CALIBRATIONS = 8


@dataclass(slots=True, eq=False)
class SampledTimes:
    """The sampled milliseconds of a case: how many, their sum, and the launch from which on the next sample is due.

    ``queued`` counts also the samples that the device has not finished.
    """

    count: int = 0
    queued: int = 0
    sum_ms: float = 0.0
    min_ms: float = float("inf")
    next_at: int = 1
    spin_cycles: int = _SPUN_CYCLES

    def add(self, ms: float) -> None:
        """Add a sample."""
        self.count += 1
        self.sum_ms += ms
        self.min_ms = min(self.min_ms, ms)


@dataclass(frozen=True, slots=True)
class DeviceClock:
    """Events of a device: ``event`` makes one, ``spin`` keeps the device busy, ``is_capturing`` forbids both."""

    event: Callable[[], Any]
    spin: Callable[[int], Any]
    is_capturing: Callable[[], bool]


def cuda_clock() -> DeviceClock | None:
    """The clock of this machine's GPU, or None where torch finds none."""
    import torch

    if not torch.cuda.is_available():
        return None
    event: Any = torch.cuda.Event
    spin: Any = torch.cuda._sleep
    return DeviceClock(lambda: event(enable_timing=True), spin, torch.cuda.is_current_stream_capturing)


@dataclass(slots=True, eq=False)
class DeviceSampler:
    """Times some of the launches, within a share of the program's time; without a clock, none.

    An event that follows another one with nothing between them is later by some time, too, which is measured a few
    times and subtracted from each sample.
    """

    clock: DeviceClock | None = None
    seconds: Callable[[], float] = time.perf_counter
    is_open: int = 0
    _open: dict[int, tuple[SampledTimes, Any]] = field(default_factory=dict)
    _pending: deque[tuple[SampledTimes, Any, Any]] = field(default_factory=deque)
    _empty: SampledTimes = field(default_factory=SampledTimes)
    _begin: float | None = None
    _spent: float = 0.0
    _lock: Any = field(default_factory=threading.RLock)

    def begin(self, times: SampledTimes, number: int) -> None:
        """Begin a sample of the launch ``number`` of a case, if one is affordable now."""
        clock = self.clock
        if clock is None:
            times.next_at = 1 << 62
            return
        with self._lock:
            if not self._is_affordable(times) or clock.is_capturing():
                times.next_at = number + _EVERY
                return
            times.next_at = number + (_EVERY if times.queued >= 2 else 1)
            if self._empty.count < _CALIBRATIONS:
                clock.spin(_SPUN_CYCLES)
                first, second = self._new_event(), self._new_event()
                self._keep(self._empty, first, second)
            clock.spin(times.spin_cycles)
            self._open[threading.get_ident()] = times, self._new_event()
            self.is_open = len(self._open)

    def end(self) -> None:
        """End the sample that this thread has begun, if it has."""
        with self._lock:
            opened = self._open.pop(threading.get_ident(), None)
            self.is_open = len(self._open)
            if opened is not None:
                self._keep(*opened, self._new_event())

    def read(self, *, waits: bool = False) -> None:
        """Add the samples that the device has finished; with ``waits``, all of them, for which it is waited."""
        with self._lock:
            while self._pending:
                times, first, second = self._pending[0]
                if waits:
                    second.synchronize()
                elif not second.query():
                    return
                self._pending.popleft()
                times.add(first.elapsed_time(second))

    @property
    def empty_ms(self) -> float:
        """The milliseconds between two events with nothing between them."""
        return self._empty.sum_ms / self._empty.count if self._empty.count else 0.0

    def _is_affordable(self, times: SampledTimes) -> bool:
        now = self.seconds()
        if self._begin is None:
            self._begin = now
        self.read()
        if len(self._pending) >= _MOST_PENDING:
            return False
        if times.queued and self._spent > _MOST_SHARE * (now - self._begin):
            return False
        self._spent += _SECONDS_OF_SAMPLE
        return True

    def _new_event(self) -> Any:
        assert self.clock is not None
        event = self.clock.event()
        event.record()
        return event

    def _keep(self, times: SampledTimes, first: Any, second: Any) -> None:
        """Keep a sample to be read, unless the device had reached its begin before its end was queued."""
        if first.query():
            times.spin_cycles = min(2 * times.spin_cycles, _LONGEST_SPIN)
        else:
            times.queued += 1
            self._pending.append((times, first, second))


NO_SAMPLER = DeviceSampler()
"""Times nothing."""
