"""How the device fares: its clock and temperature, as the driver's management library tells them."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

_NVML = "libnvidia-ml.so.1"
_SM_CLOCK, _GPU_TEMPERATURE = 1, 0  # NVML_CLOCK_SM, NVML_TEMPERATURE_GPU


@dataclass(frozen=True, slots=True)
class DeviceState:
    """The clock of the multiprocessors and the temperature of the device; None where the driver does not tell."""

    clock_mhz: int | None = None
    temperature_c: int | None = None


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
