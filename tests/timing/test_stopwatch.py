"""Timing by events, on a device that is played: launches wait in a queue, and the host may be late with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import pytest

from kernellab.timing.stopwatch import Stopwatch, Turn

FLUSH_S, LAUNCH_S = 75e-6, 40e-6


@dataclass(slots=True)
class Device:
    """A device with a queue: what the host hands over at ``host_s`` begins when all before it is done."""

    host_s: float = 0.0
    busy_until_s: float = 0.0
    log: list[str] = field(default_factory=list)

    def work(self, name: str, device_s: float, host_s: float = 5e-6) -> None:
        self.host_s += host_s
        self.busy_until_s = max(self.busy_until_s, self.host_s) + device_s
        self.log.append(name)

    def launch(self, name: str, *, host_s: float = 10e-6) -> Callable[[], None]:
        return lambda: self.work(name, LAUNCH_S, host_s)

    def watch(self) -> Stopwatch:
        flush, spin = partial(self.work, "flush", FLUSH_S), partial(self.work, "spin", FLUSH_S)
        return Stopwatch(flush, lambda: Event(self), self.synchronize, spin)

    def synchronize(self) -> None:
        self.host_s = max(self.host_s, self.busy_until_s)


@dataclass(slots=True)
class Event:
    """An event: it happens when the device has done what was handed over before it."""

    device: Device
    at_s: float = 0.0

    def record(self) -> None:
        self.at_s = max(self.device.busy_until_s, self.device.host_s)

    def query(self) -> bool:
        return self.device.host_s >= self.at_s

    def elapsed_time(self, end: Event) -> float:
        return (end.at_s - self.at_s) * 1e3


def test_each_round_starts_with_another_one_behind_a_flush() -> None:
    device = Device()
    times = device.watch().turns([Turn(device.launch("a")), Turn(device.launch("b"))], 2)
    assert [each for each in device.log if each != "flush"] == ["a", "b", "b", "a"]
    assert [[round(each, 6) for each in samples] for samples in times] == [[LAUNCH_S * 1e3] * 2] * 2
    assert device.log[0] == "flush"


def test_a_launch_that_was_late_is_made_again() -> None:
    device = Device()
    pauses = iter([2e-3])
    watch = device.watch()

    def hesitant() -> None:
        device.work("a", LAUNCH_S, 10e-6 + next(pauses, 0.0))

    (times,) = watch.turns([Turn(hesitant)], 3)
    assert times == pytest.approx([LAUNCH_S * 1e3] * 3)
    assert device.log.count("a") == 4
    assert watch.late == 0


def test_a_slow_host_gets_as_long_a_flush_as_it_needs() -> None:
    device = Device()
    watch = device.watch()
    quick, slow = watch.turns([Turn(device.launch("a")), Turn(device.launch("b", host_s=1e-3))], 10)
    assert quick + slow == pytest.approx([LAUNCH_S * 1e3] * 20)
    assert watch.late == 0
    assert device.log.count("b") < 16  # it is found out once, and not again in each round


def test_a_launch_that_waits_for_the_device_is_counted_as_late() -> None:
    device = Device()
    watch = device.watch()

    def waiting() -> None:
        device.synchronize()
        device.work("a", LAUNCH_S, 50e-6)

    (times,) = watch.turns([Turn(waiting)], 2)
    assert watch.late == 2
    assert min(times) > LAUNCH_S * 1e3


def test_what_happens_before_and_after_a_launch_is_no_part_of_its_time() -> None:
    device = Device()
    turn = Turn(device.launch("a"), lambda: device.work("before", 1e-3), lambda: device.work("after", 1e-3))
    (times,) = device.watch().turns([turn], 2)
    assert times == pytest.approx([LAUNCH_S * 1e3] * 2)
    assert [each for each in device.log if each != "flush"] == ["before", "a", "after"] * 2


def test_something_may_be_looked_at_while_the_device_is_busy() -> None:
    device = Device()
    seen: list[float] = []
    device.watch().turns([Turn(device.launch("a"))], 3, lambda: seen.append(device.busy_until_s - device.host_s))
    assert seen[0] > 0


def test_a_warm_launch_follows_one_of_its_own_and_waits_for_no_host() -> None:
    device = Device()
    times = device.watch().warm(Turn(device.launch("a", host_s=60e-6)), 3)
    assert times == pytest.approx([LAUNCH_S * 1e3] * 3)
    assert device.log == ["a", "spin", "a"] * 3
