"""What a kernel can ask the device for beyond its program id: the options of the launch, and special registers.

A program is said to run on the multiprocessor of its number, in turns. Clocks tell nanoseconds of this machine: they
only grow, and what they measure is the interpreter.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass

from triton.runtime import interpreter as upstream

from kernellab.interpreter.faults import Unsupported
from kernellab.target import MULTIPROCESSORS

# The registers of PTX, https://docs.nvidia.com/cuda/parallel-thread-execution/#special-registers, and AMD's counter.
_MOVE = re.compile(r"mov\.[ub](?:32|64)\s+\$0\s*,\s*%(\w+)\s*;?")
_AMD_COUNTERS = ("s_memrealtime", "MSG_RTN_GET_REALTIME")
_CLOCKS = frozenset({"globaltimer", "globaltimer_lo", "clock", "clock64"})


@dataclass(frozen=True, slots=True)
class Device:
    """What is told of the device. ``warps`` of a program are None where nobody knows."""

    warps: int | None = None
    multiprocessors: int = MULTIPROCESSORS


class Options(upstream.InterpreterOptions):  # type: ignore[misc]
    """The options of a launch, as Triton's language asks the builder for them."""

    def __init__(self, device: Device) -> None:
        # device_assert is checked; overflow is found here, at a fraction of the cost of Triton's 64-bit shadow sums.
        super().__init__(debug=True, sanitize_overflow=False, arch="")
        object.__setattr__(self, "device", device)

    @property
    def num_warps(self) -> int:
        device: Device = self.device
        if device.warps is None:
            raise Unsupported("num_warps and num_threads here, where the options of the launch are not known")
        return device.warps


def register_value(assembly: str, program: int, device: Device) -> int:
    """Return what inline assembly gives that reads a special register, in the program of a number.

    Raises:
        Unsupported: it does anything else.
    """
    found = _MOVE.fullmatch(assembly.strip())
    register = found[1] if found else ""
    if register in _CLOCKS or any(word in assembly for word in _AMD_COUNTERS):
        return time.monotonic_ns()
    if register in {"smid", "nsmid"}:
        return program % device.multiprocessors if register == "smid" else device.multiprocessors
    raise Unsupported("inline assembly")
