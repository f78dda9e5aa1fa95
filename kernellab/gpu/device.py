"""Which device it is: what numbers and verdicts of a GPU hold for."""

from __future__ import annotations

from functools import lru_cache


def device_name(device: int | None = None) -> str:
    """Return the model of a GPU, the current one by default."""
    import torch  # only where there is a GPU

    return str(torch.cuda.get_device_name(device))


@lru_cache(maxsize=1)
def driver_version() -> str:
    """Return the version of the GPU driver, as the kernel module tells it, else the CUDA version that it supports."""
    try:
        with open("/proc/driver/nvidia/version", encoding="utf-8") as file:
            words = file.readline().split()
        return next(word for word in words if word[:1].isdigit() and "." in word)
    except (OSError, StopIteration):
        import torch

        return str(torch.version.cuda or torch.version.hip or "")
