"""A driver for a machine without a GPU: plain Triton compiles for the chosen target and launches on the interpreter.

Triton asks its active driver for the target, the device and its limits, for `load_binary` and for a launcher; this one
answers from the binary, from the table of limits, and with a launcher that calls back. Each target has a device number
of its own, the same in all labs of a process, because Triton keeps compiled kernels and limits by device.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

from triton.backends.driver import DriverBase
from triton.runtime.driver import driver

from kernellab._triton.artifact import read_resources
from kernellab._triton.specialize import gpu_target, target_of
from kernellab.target import MULTIPROCESSORS, Target, limits_of, shared_bytes_limit
from kernellab.workers.forks_and_interrupts import Scratch, uninterrupted

Interpret = Callable[[Any, Mapping[str, Any], tuple[int, int, int]], None]

_UNLIMITED = 2**31 - 1
_MAX_THREADS = 1024


def gpu_target_of_machine() -> Target | None:
    """Return the target of the GPU that Triton would use by itself, or None where there is none."""
    try:
        return target_of(driver.default.get_current_target())
    except RuntimeError:
        return None


class OfflineDriver(DriverBase):  # type: ignore[misc]
    """Stands in for a GPU of any supported target."""

    def __init__(self, target: Target, interpret: Interpret) -> None:
        super().__init__()
        self.utils = self  # Triton asks another object for what is said of devices and binaries
        self._interpret = interpret
        self._targets: dict[int, Target] = {}
        self.use(target)

    @classmethod
    def is_active(cls) -> bool:
        """Tell Triton, which looks for a driver by itself, that this is none to be found."""
        return False

    def activate(self) -> None:
        """Become the driver that Triton asks."""
        driver.set_active(self)

    def deactivate(self) -> None:
        """Give the place of the active driver back, if this one holds it."""
        if driver._active is self:
            driver.set_active(None)

    @property
    def target(self) -> Target:
        """The current target."""
        return self._targets[self._current]

    def use(self, target: Target) -> None:
        """Make ``target`` the current one."""
        self._current = _device_number(target)
        self._targets[self._current] = target

    def target_of_device(self, device: int) -> Target:
        """Return the target with a device number; for any other, as code that asks for device 0, the current one."""
        return self._targets.get(device, self.target)

    def launcher_cls(self, src: Any, metadata: Any) -> Callable[..., None]:
        """Return what launches a kernel: launch hooks, and the interpreter between them."""
        names = src.fn.arg_names

        def launch(*given: Any) -> None:
            x, y, z, _stream, _handle, _packed, info, enter, leave, *args = given
            if enter is not None:
                enter(info)
            if min(x, y, z) > 0:
                self._interpret(src, dict(zip(names, args, strict=True)), (x, y, z))
            if leave is not None:
                leave(info)

        return launch

    def get_current_target(self) -> Any:
        """Return the current target as Triton's own."""
        return gpu_target(self.target)

    def get_current_device(self) -> int:
        """Return the device number of the current target."""
        return self._current

    def set_current_device(self, device: int) -> None:
        """Make the target with a device number the current one; a number that stands for none changes nothing."""
        if device in self._targets:
            self._current = device

    def get_current_stream(self, device: int | None = None) -> int:
        """Return the default stream, the only one."""
        return 0

    def get_active_torch_device(self) -> Any:
        """Return the CPU, where the tensors of a launch lie."""
        import torch  # most sessions never ask

        return torch.device("cpu")

    def map_python_to_cpp_type(self, ty: str) -> str:
        """Refuse: launchers are not compiled here."""
        raise NotImplementedError("the offline driver compiles no launchers")

    def get_benchmarker(self) -> Callable[..., Sequence[float]]:
        """Return what times a call: once, in milliseconds."""
        return _time_once

    def get_device_interface(self) -> Any:
        """Return torch's interface of the CPU."""
        import torch

        return torch.cpu

    def get_empty_cache_for_benchmark(self) -> None:
        """Return no buffer: there is no L2 cache to flush."""
        return

    def clear_cache(self, cache: object) -> None:
        """Flush nothing."""
        return

    def get_device_properties(self, device: int) -> dict[str, int]:
        """Return the limits of the target with a device number, by the names that Triton asks for."""
        target = self.target_of_device(device)
        limits = limits_of(target)
        return {
            "max_shared_mem": shared_bytes_limit(target) or _UNLIMITED,
            "max_num_regs": limits.registers_per_multiprocessor if limits else 65536,
            # Code that sizes a persistent grid by these gets the numbers of an H100.
            "multiprocessor_count": MULTIPROCESSORS,
            "warpSize": target.warp_size,
            "sm_clock_rate": 1_000_000,
            "mem_clock_rate": 1_000_000,
            "mem_bus_width": 1024,
        }

    def load_binary(self, name: str, binary: bytes, shared: int, device: int) -> tuple[None, str, int, int, int]:
        """Return module, function, registers, spills in 32-bit words, and the most threads per block.

        As a GPU's driver does, it counts all of the stack as spills.

        There is no module: Triton would ask the driver that is active when the kernel is collected to unload it.
        """
        registers, spills = _binary_usage(binary) if self.target_of_device(device).backend == "cuda" else (0, 0)
        return None, name, registers, spills, _MAX_THREADS


def _device_number(target: Target) -> int:
    return target.arch if isinstance(target.arch, int) else int(target.arch.removeprefix("gfx"), 16)


@lru_cache(maxsize=4096)
def _binary_usage(binary: bytes) -> tuple[int, int]:
    return uninterrupted(partial(_read_usage, binary))


def _read_usage(binary: bytes) -> tuple[int, int]:
    with Scratch() as folder:
        path = folder / "kernel.cubin"
        path.write_bytes(binary)
        usage = read_resources(path)
    return (usage.registers, usage.stack_bytes // 4) if usage else (0, 0)


def _time_once(call: Callable[[], object], *, quantiles: Sequence[float] = (0.5,), **_: object) -> list[float]:
    """Return the milliseconds of one call for each quantile: on the interpreter a repeat says nothing more."""
    begin = time.perf_counter()
    call()
    return [(time.perf_counter() - begin) * 1e3] * len(quantiles)
