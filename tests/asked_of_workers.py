"""What tests ask a worker; importing this imports no torch there."""

from __future__ import annotations

import sys

from kernellab.gpu import driver


def free_bytes_there(payload: None, progress: object) -> int:
    """Return the free bytes of the worker's device."""
    return driver.free_bytes()


def has_torch(payload: None, progress: object) -> bool:
    """Return whether the worker's process has imported torch."""
    return "torch" in sys.modules
