"""Timing launches on the current GPU, in turns and with a flushed L2; and how the device fares meanwhile."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

_LEAST_FLUSH_BYTES = 64 << 20
_WARM_UP_FLUSHES = 200
_MOST_FLUSHES = 64
_NVML = "libnvidia-ml.so.1"
_SM_CLOCK, _GPU_TEMPERATURE = 1, 0  # NVML_CLOCK_SM, NVML_TEMPERATURE_GPU

Timed = tuple[Callable[[], Any], Callable[[], None] | None]
"""What is launched, and what is to happen before each launch, outside of its time."""


@dataclass(frozen=True, slots=True)
class DeviceState:
    """The clock of the multiprocessors and the temperature of the device; None where the driver does not tell."""

    clock_mhz: int | None = None
    temperature_c: int | None = None


@dataclass(slots=True)
class Stopwatch:
    """Times with events of the device. ``state`` is that of the device while the last turns were under way.

    The L2 is flushed before each launch, and as often again as it takes to keep the device busy until the host has
    handed the launch over: what the host takes to do so is no part of the time.
    """

    state: DeviceState = field(default_factory=DeviceState)
    flush: Any = None
    flush_s: float = 0.0

    def __post_init__(self) -> None:
        import torch  # only where there is a GPU

        l2_bytes = torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size
        self.flush = torch.empty(max(2 * l2_bytes, _LEAST_FLUSH_BYTES), dtype=torch.uint8, device="cuda")
        for _ in range(_WARM_UP_FLUSHES):  # some milliseconds of work, so that the clocks are up
            begin, end = _bracketed(self.flush.zero_)
        torch.cuda.synchronize()
        self.flush_s = begin.elapsed_time(end) / 1e3

    def turns(self, work: Sequence[Timed], rounds: int) -> list[list[float]]:
        """Return the milliseconds of each launch of each piece of work; each round starts with another one."""
        import torch

        flushes = [self.flushes_for(launch, before) for launch, before in work]
        torch.cuda.synchronize()
        events: list[list[tuple[Any, Any]]] = [[] for _ in work]
        for number in range(rounds):
            for place in range(len(work)):
                index = (place + number) % len(work)
                launch, before = work[index]
                if before is not None:
                    before()
                for _ in range(flushes[index]):
                    self.flush.zero_()
                events[index].append(_bracketed(launch))
        self.state = device_state()
        torch.cuda.synchronize()
        return [[begin.elapsed_time(end) for begin, end in each] for each in events]

    def flushes_for(self, launch: Callable[[], Any], before: Callable[[], None] | None) -> int:
        """Return how many flushes take longer than the host needs for a launch, which it does once to know."""
        if before is not None:
            before()
        start_s = time.perf_counter()
        _bracketed(launch)
        host_s = time.perf_counter() - start_s
        return 1 + min(int(1.5 * host_s / self.flush_s), _MOST_FLUSHES)


def _bracketed(launch: Callable[[], Any]) -> tuple[Any, Any]:
    import torch

    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    begin.record()
    launch()
    end.record()
    return begin, end


def device_state() -> DeviceState:
    """Ask the driver's management library how the current device fares; what it does not tell is None."""
    import torch

    try:
        nvml = ctypes.CDLL(_NVML)
        identity = f"GPU-{torch.cuda.get_device_properties(torch.cuda.current_device()).uuid}"
        device = ctypes.c_void_p()
        if nvml.nvmlInit_v2() or nvml.nvmlDeviceGetHandleByUUID(identity.encode(), ctypes.byref(device)):
            return DeviceState()
        clock = _asked(nvml.nvmlDeviceGetClockInfo, device, _SM_CLOCK)
        temperature = _asked(nvml.nvmlDeviceGetTemperature, device, _GPU_TEMPERATURE)
    except (OSError, AttributeError):  # another vendor, another driver
        return DeviceState()
    return DeviceState(clock, temperature)


def _asked(function: Any, device: ctypes.c_void_p, what: int) -> int | None:
    value = ctypes.c_uint()
    return None if function(device, ctypes.c_int(what), ctypes.byref(value)) else int(value.value)
