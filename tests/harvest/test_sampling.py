"""Sampled device times, on a device that is played, with a clock of its own."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from kernellab.harvest.sampling import DeviceClock, DeviceSampler, SampledTimes

_EMPTY_MS = 0.002


@dataclass
class Device:
    """A stream that runs ``ahead_ms`` behind the host, and finishes work when it is told to."""

    now_ms: float = 0.0
    is_done: bool = False
    is_behind: bool = True
    is_capturing: bool = False
    spins: list[int] = field(default_factory=list)
    waits: int = 0
    seconds: float = 0.0

    @property
    def clock(self) -> DeviceClock:
        return DeviceClock(lambda: Event(self), self.spins.append, lambda: self.is_capturing)

    def launch(self, sampler: DeviceSampler, times: SampledTimes, number: int, ms: float = 1.0) -> None:
        """Launch a kernel as the harvest does."""
        if number >= times.next_at:
            sampler.begin(times, number)
        self.now_ms += ms
        if sampler.is_open:
            sampler.end()


@dataclass
class Event:
    """An event of the device: later than the one before by ``_EMPTY_MS``."""

    device: Device
    at_ms: float = 0.0

    def record(self) -> None:
        self.device.now_ms += _EMPTY_MS
        self.at_ms = self.device.now_ms

    def query(self) -> bool:
        return self.device.is_done or not self.device.is_behind

    def synchronize(self) -> None:
        self.device.waits += 1

    def elapsed_time(self, later: Event) -> float:
        return later.at_ms - self.at_ms


@pytest.fixture
def device() -> Device:
    return Device()


def sampler_of(device: Device) -> DeviceSampler:
    return DeviceSampler(device.clock, lambda: device.seconds)


def test_a_sample_is_the_time_of_the_launch_without_that_of_the_events(device: Device) -> None:
    sampler, times = sampler_of(device), SampledTimes()
    device.launch(sampler, times, 1)
    sampler.read(waits=True)
    assert times.sum_ms - times.count * sampler.empty_ms == pytest.approx(1.0)


def test_samples_of_a_case_are_far_apart(device: Device) -> None:
    sampler, times = sampler_of(device), SampledTimes()
    for number in range(1, 101):
        device.seconds += 1.0
        device.launch(sampler, times, number)
        device.is_done = True
        sampler.read()
        device.is_done = False
    assert times.count == 9  # the first three, then each sixteenth


def test_samples_that_the_device_has_not_finished_are_far_apart_too(device: Device) -> None:
    sampler, times = sampler_of(device), SampledTimes()
    for number in range(1, 101):
        device.seconds += 1.0
        device.launch(sampler, times, number)
    sampler.read(waits=True)
    assert times.count == 9


def test_samples_take_less_than_a_hundredth_of_the_programs_time(device: Device) -> None:
    sampler = sampler_of(device)
    cases = [SampledTimes() for _ in range(10)]
    for number in range(1, 10_001):
        device.seconds += 1e-5
        device.launch(sampler, cases[number % 10], number)
        device.is_done = number % 2 == 0
    sampler.read(waits=True)
    assert sum(times.count for times in cases) * 60e-6 < 0.01 * device.seconds + len(cases) * 60e-6


def test_a_launch_that_the_device_has_reached_early_is_sampled_again_behind_a_longer_spin(device: Device) -> None:
    sampler, times = sampler_of(device), SampledTimes()
    device.is_behind = False
    device.launch(sampler, times, 1)
    device.is_behind = True
    device.launch(sampler, times, 2)
    sampler.read(waits=True)
    assert times.count == 1
    assert device.spins[-1] > device.spins[0]


def test_the_program_is_not_waited_for(device: Device) -> None:
    sampler, times = sampler_of(device), SampledTimes()
    for number in range(1, 1000):
        device.seconds += 1.0
        device.launch(sampler, times, number)
        sampler.read()
    assert times.count == 0
    assert device.waits == 0
    sampler.read(waits=True)
    assert times.count > 50
    assert device.waits > 0


def test_samples_in_waiting_are_bounded(device: Device) -> None:
    sampler = sampler_of(device)
    for number in range(1, 2000):
        device.seconds += 1.0
        device.launch(sampler, SampledTimes(), number)
    sampler.read(waits=True)
    assert device.waits < 300


def test_nothing_is_sampled_while_a_graph_is_captured(device: Device) -> None:
    sampler, times = sampler_of(device), SampledTimes()
    device.is_capturing = True
    device.launch(sampler, times, 1)
    assert not device.spins
    assert times.next_at > 1


def test_a_launch_that_failed_leaves_no_sample(device: Device) -> None:
    sampler, failed, times = sampler_of(device), SampledTimes(), SampledTimes()
    sampler.begin(failed, 1)  # its launch raises, so that it has no end
    device.launch(sampler, times, 1)
    sampler.read(waits=True)
    assert (failed.count, times.count) == (0, 1)


def test_without_a_gpu_nothing_is_sampled() -> None:
    sampler, times = DeviceSampler(), SampledTimes()
    sampler.begin(times, 1)
    assert times.next_at > 10**9
    assert not sampler.is_open
