"""Time launches by device events, in turns, with a flushed L2; and rank the times.

Medians with confidence intervals decide which configs win, tie and lose.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from kernellab.gpu import driver
from kernellab.gpu.device_view import keep_busy

# As in triton.testing.do_bench. A flush leaves the L2 full of dirty lines. If the host launches late, they are already
# written back, and a short kernel is 10 % faster; so the flush takes longer than the host.
_LEAST_FLUSH_BYTES = 256 << 20
_WARM_UP_FLUSHES = 100
_HEAD_START_FLUSHES = 2
_MOST_FLUSHES = 64
_SPUN_CYCLES = 150_000  # some 80 microseconds
_NVML = "libnvidia-ml.so.1"
_SM_CLOCK, _GPU_TEMPERATURE = 1, 0  # NVML_CLOCK_SM, NVML_TEMPERATURE_GPU
CONFIDENCE = 0.99
_RESAMPLES = 400
_FEW = 6


def _do_nothing() -> None: ...


@dataclass(frozen=True, slots=True)
class Turn:
    """A launch to be timed, with untimed work before and after it."""

    launch: Callable[[], Any]
    before: Callable[[], Any] = _do_nothing
    after: Callable[[], Any] = _do_nothing


@dataclass(slots=True)
class Stopwatch:
    """Times launches on one device: ``flush`` fills its L2, ``event`` makes an event, ``synchronize`` waits for it.

    ``spin`` keeps it busy for longer than the host needs for a launch, and leaves the L2 unchanged.
    A launch is late if the device finishes the flush before the host has submitted the launch: its time would include
    waiting for the host. It is repeated after twice as many flushes, up to `_MOST_FLUSHES`; ``late`` counts the
    launches that stayed late.
    """

    flush: Callable[[], Any]
    event: Callable[[], Any]
    synchronize: Callable[[], Any]
    spin: Callable[[], Any]
    late: int = 0

    def turns(self, work: Sequence[Turn], rounds: int, meanwhile: Callable[[], Any] | None = None) -> list[list[float]]:
        """Return the milliseconds of each launch of each piece of work; each round starts with another one.

        ``meanwhile`` is called after the last submission, while the device is still busy.
        """
        events: list[list[tuple[Any, Any]]] = [[] for _ in work]
        flushes = [1] * len(work)
        for _ in range(_HEAD_START_FLUSHES):
            self.flush()
        for number in range(rounds):
            for place in range(len(work)):
                index = (place + number) % len(work)
                begin, end, flushes[index] = self._launch_in_time(work[index], flushes[index])
                events[index].append((begin, end))
        if meanwhile is not None:
            meanwhile()
        self.synchronize()
        return [[begin.elapsed_time(end) for begin, end in pairs] for pairs in events]

    def warm(self, turn: Turn, rounds: int) -> list[float]:
        """Return the milliseconds of launches with a warm L2, each right after an untimed launch of its own."""
        events = []
        for _ in range(rounds):
            for is_timed in (False, True):
                turn.before()
                if is_timed:
                    self.spin()
                pair = self.launch_between_events(turn.launch)
                turn.after()
            events.append(pair)
        self.synchronize()
        return [begin.elapsed_time(end) for begin, end in events]

    def launch_between_events(self, launch: Callable[[], Any]) -> tuple[Any, Any]:
        """Launch between two events, and return the events."""
        begin, end = self.event(), self.event()
        begin.record()
        launch()
        end.record()
        return begin, end

    def _launch_in_time(self, turn: Turn, flushes: int) -> tuple[Any, Any, int]:
        """Repeat a launch until it is not late; return its events and the flushes before it."""
        while True:
            turn.before()
            for _ in range(flushes):
                self.flush()
            begin, end = self.launch_between_events(turn.launch)
            is_late = begin.query()
            turn.after()
            if not is_late or flushes == _MOST_FLUSHES:
                self.late += is_late
                return begin, end, flushes
            flushes = min(2 * flushes, _MOST_FLUSHES)


def gpu_stopwatch() -> Stopwatch:
    """Return a stopwatch of the current GPU, with its clocks ramped up."""
    import torch  # only where there is a GPU

    l2_bytes = torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size
    flushed = torch.empty(max(2 * l2_bytes, _LEAST_FLUSH_BYTES), dtype=torch.uint8, device="cuda")
    for _ in range(_WARM_UP_FLUSHES):  # some milliseconds of work
        flushed.zero_()
    return Stopwatch(
        flush=flushed.zero_,
        event=lambda: torch.cuda.Event(enable_timing=True),  # type: ignore[no-untyped-call]
        synchronize=torch.cuda.synchronize,
        spin=lambda: torch.cuda._sleep(_SPUN_CYCLES),  # type: ignore[no-untyped-call]
    )


def driver_stopwatch() -> Stopwatch:
    """Return a stopwatch of the current GPU, with its clocks ramped up, for a process without torch."""
    flushed = driver.allocate(max(2 * driver.l2_bytes_of(driver.current_device()), _LEAST_FLUSH_BYTES))
    for _ in range(_WARM_UP_FLUSHES):
        flushed.zero_()
    word = driver.allocate(8)
    return Stopwatch(flushed.zero_, driver.DeviceEvent, driver.synchronize, lambda: keep_busy(word))


@dataclass(frozen=True, slots=True)
class DeviceState:
    """The SM clock and the temperature of the device; None where unknown."""

    clock_mhz: int | None = None
    temperature_c: int | None = None


def device_state() -> DeviceState:
    """Query NVML for the state of the current device; unknown fields are None."""
    import torch

    try:
        nvml = ctypes.CDLL(_NVML)
        identity = f"GPU-{torch.cuda.get_device_properties(torch.cuda.current_device()).uuid}"
        device = ctypes.c_void_p()
        if nvml.nvmlInit_v2() or nvml.nvmlDeviceGetHandleByUUID(identity.encode(), ctypes.byref(device)):
            return DeviceState()

        def query(function: Any, what: int) -> int | None:
            value = ctypes.c_uint()
            return None if function(device, ctypes.c_int(what), ctypes.byref(value)) else int(value.value)

        clock = query(nvml.nvmlDeviceGetClockInfo, _SM_CLOCK)
        return DeviceState(clock, query(nvml.nvmlDeviceGetTemperature, _GPU_TEMPERATURE))
    except (OSError, AttributeError):  # another vendor, another driver
        return DeviceState()


@dataclass(frozen=True, slots=True)
class Interval:
    """A median and its confidence interval."""

    median: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Standing:
    """The ranking of finalists: ``leader`` has the smallest median.

    ``tied`` are slower than the leader by less than the margin, ``lost`` by more than half of it, both with
    confidence; ``open`` need more samples. ``level`` are the tied that are slower by less than half of the margin.
    """

    leader: int
    tied: tuple[int, ...]
    lost: tuple[int, ...]
    open: tuple[int, ...]
    level: tuple[int, ...] = ()


def interval(samples: Sequence[float], seed: int = 0, confidence: float = CONFIDENCE) -> Interval:
    """Return the median of samples with its bootstrap percentile interval.

    For six samples or fewer, it is their range at the default confidence: the median of six draws is the least sample
    with a probability of 0.9 %.
    """
    if len(samples) < 3 or (len(samples) <= _FEW and confidence >= CONFIDENCE):
        return Interval(float(median(samples)), float(min(samples)), float(max(samples)))
    import numpy as np  # the GPU worker times without it

    values = np.asarray(samples, dtype=float)
    draws = np.random.default_rng(seed).integers(0, len(values), size=(_RESAMPLES, len(values)))
    tail = (1 - confidence) / 2
    low, high = np.quantile(np.median(values[draws], axis=1), [tail, 1 - tail])
    middle = float(np.median(values))
    return Interval(middle, min(float(low), middle), max(float(high), middle))


def load_statistics() -> None:
    """Load the modules of the bootstrap, which takes a tenth of a second, before the first interval needs them."""
    interval(range(_FEW + 1))


def ratio_interval(
    challenger: Sequence[float], leader: Sequence[float], seed: int = 0, confidence: float = CONFIDENCE
) -> Interval:
    """Return the slowdown of a challenger relative to the leader.

    The samples are pairs of the same round, so a temporary slowdown of the device affects both.
    """
    return interval([a / b for a, b in zip(challenger, leader, strict=True)], seed, confidence)


def standing(rounds: Mapping[int, Sequence[float]], *, seed: int = 0, margin: float = 0.005) -> Standing:
    """Rank finalists after interleaved rounds of equal number.

    One has tied if the interval of its ratio to the leader ends below 1 + ``margin``, and has lost if it begins above
    1 + half of ``margin``; else it is open. So a config that is level in one final does not lose in the next: the ties
    of two finals of the same configs agree.
    """
    medians = {index: float(median(samples)) for index, samples in rounds.items()}
    leader = min(medians, key=lambda index: medians[index])
    tied, lost, undecided, level = [], [], [], []
    for index in rounds:
        if index == leader:
            continue
        ratio = ratio_interval(rounds[index], rounds[leader], seed)
        if ratio.high < 1 + margin:
            tied.append(index)
            level += [index] if ratio.high < 1 + margin / 2 else []
        elif ratio.low > 1 + margin / 2:
            lost.append(index)
        else:
            undecided.append(index)
    return Standing(leader, tuple(tied), tuple(lost), tuple(undecided), tuple(level))


def tie_winner(tied: Sequence[int], resources: Mapping[int, tuple[float, ...]]) -> int:
    """Return the winner among tied configs: the one with the fewest resources, then the earlier in the list."""
    return min(tied, key=lambda index: (resources[index], index))
