"""Compiled kernels, and the drivers that load and launch them: of a GPU without torch, and where there is no GPU.

Triton asks its active driver for the target, the device and its limits, for `load_binary` and for a launcher. On a
machine without a GPU that is the offline driver: it reads resources from the binary with the tools in Triton's wheel,
limits from a table, and its launcher calls the interpreter. So plain Triton compiles for the chosen target. Each target
has a device number of its own, the same in all labs of a process, because Triton caches kernels and limits by device.

`compiled_from_files` makes a handle without the kernel's source; `hook_launches` hooks into all launches.
"""

from __future__ import annotations

import subprocess
import time
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from types import SimpleNamespace
from typing import Any

import triton
from triton import knobs
from triton.backends import backends
from triton.backends.driver import DriverBase
from triton.compiler import CompiledKernel
from triton.runtime._allocation import set_profile_allocator
from triton.runtime.driver import driver
from triton.runtime.errors import OutOfResources
from triton.tools.tensor_descriptor import TensorDescriptor

from kernellab._triton.binary_tools import read_resources
from kernellab._triton.targets import gpu_target, target_of
from kernellab.errors import warn_user
from kernellab.source import portable_type
from kernellab.target import MULTIPROCESSORS, Target, has_cuda_context, limits_of, shared_bytes_limit
from kernellab.workers.forks_and_interrupts import delayed_forks, run_uninterrupted
from kernellab.workers.scratch import Scratch

Interpret = Callable[[Any, Mapping[str, Any], tuple[int, int, int]], Any]
"""Runs a launch of an `ASTSource` on the CPU, from its arguments by name and its grid; returns the run."""

_UNLIMITED, _WARP_SIZE, _MAX_THREADS = 2**31 - 1, 32, 1024
# Of a kernel without scratch memory: the text of a launcher depends on none of it.
_NO_METADATA = SimpleNamespace(
    **dict.fromkeys(("global_scratch_size", "profile_scratch_size", "launch_cooperative_grid", "launch_pdl"), 0),
    **dict.fromkeys(("global_scratch_align", "profile_scratch_align", "num_ctas"), 1),
)
LAUNCH_ERRORS: tuple[type[Exception], ...] = (OutOfResources, RuntimeError, ValueError, TypeError, OverflowError)
LAUNCHER_ERRORS = RuntimeError, OSError, ImportError, AssertionError, subprocess.SubprocessError
"""Why Triton cannot compile a launcher or its driver: no C compiler or libcuda, their errors, a module that fails."""


def compiled_from_files(
    files: Mapping[str, str], digest: str, signature: Mapping[str, Any], constants: tuple[tuple[int, ...], ...]
) -> Any:
    """Triton's handle of a kernel that another process compiled."""
    function = SimpleNamespace(arg_names=tuple(signature))
    source = SimpleNamespace(fn=function, signature=dict(signature), constants=dict.fromkeys(constants))
    return CompiledKernel(source, dict(files), digest)


def specialization_of(handle: Any) -> tuple[dict[str, Any], tuple[tuple[int, ...], ...]]:
    """The types of a compiled kernel's parameters, and the index paths of its constants."""
    names = list(handle.src.fn.arg_names)
    paths = (path if isinstance(path, tuple) else (names.index(path),) for path in handle.src.constants)
    return {name: portable_type(kind) for name, kind in handle.src.signature.items()}, tuple(paths)


def compiles_launchers() -> bool:
    """Whether Triton compiles a C launcher for each signature, with the machine's compiler, as versions before 3.7."""
    from triton.backends.nvidia import driver as nvidia

    return hasattr(nvidia, "make_launcher")


def build_launcher(signature: Mapping[str, Any], constants: Collection[tuple[int, ...]]) -> None:
    """Compile the C launcher of a signature into Triton's cache; ``constants`` are the index paths of constants.

    That of a tensor descriptor depends on the compiled kernel, and is left out.
    """
    from triton.backends.nvidia.driver import CudaLauncher

    if not any("tensordesc" in str(kind) for kind in signature.values()):
        names = SimpleNamespace(arg_names=tuple(signature))
        CudaLauncher(SimpleNamespace(fn=names, signature=signature, constants=dict.fromkeys(constants)), _NO_METADATA)


def descriptor(base: Any, shape: Any, strides: Any, block_shape: Any, padding: str, **more: bool) -> Any:
    """Triton's descriptor of a tensor; ``more`` are arguments of newer versions only."""
    return TensorDescriptor(base, list(shape), list(strides), list(block_shape), padding, **more)


def gluon_descriptor(base: Any, block: list[int], layout: Mapping[str, Any]) -> Any:
    """A Gluon descriptor over a tensor; `ValueError` where Gluon lacks the ``layout``: its ``class`` and fields."""
    from triton.experimental.gluon import language
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

    name = str(layout["class"])
    if not name.endswith("Layout") or not hasattr(language, name):
        raise ValueError(f"Gluon has no layout {name!r}")
    fields = {field: value for field, value in layout.items() if field != "class"}
    return TensorDescriptor.from_tensor(base, block, getattr(language, name)(**fields))


def relauncher(
    handle: Any, grid: tuple[int, int, int], arguments: tuple[Any, ...], stream: int = 0
) -> Callable[[], None]:
    """A function that launches a compiled kernel on the current device; it does nothing for an empty grid.

    The function holds the handle: newer versions of Triton unload a kernel with its last handle.

    Raises:
        OutOfResources: the kernel exceeds a limit of the device.
    """
    if 0 in grid:
        return lambda: None
    run = handle.run
    return lambda: run(*grid, stream, handle.function, handle.packed_metadata, None, None, None, *arguments)


def unload_with_handle(handle: Any, unload: Callable[[int], None]) -> None:
    """Unload a handle's module when the handle is collected, as newer versions of Triton do."""
    if not hasattr(type(handle), "__del__") and handle.module is not None:
        weakref.finalize(handle, unload, handle.module).atexit = False


def set_scratch_allocators(allocate: Callable[[str, int], Any]) -> None:
    """Set Triton's allocators of scratch memory, in a process where the user sets none.

    ``allocate`` returns memory of a kind and a size in bytes: "global", or "profile" for instrumented kernels, as
    zeros. A kernel may need both at once.
    """
    triton.set_allocator(lambda size_bytes, alignment, stream: allocate("global", size_bytes))
    set_profile_allocator(lambda size_bytes, alignment, stream: allocate("profile", size_bytes))


@lru_cache(maxsize=1)
def _driver_without_torch(
    current_device: Callable[[], int], capability_of: Callable[[int], tuple[int, int]]
) -> DriverBase:
    """Triton's driver of NVIDIA GPUs on the default stream, built without its constructor, which imports torch."""
    from triton.backends.nvidia.driver import CudaDriver, CudaLauncher, CudaUtils  # a build for others has none

    nvidia_driver = CudaDriver.__new__(CudaDriver)
    nvidia_driver.utils, nvidia_driver.launcher_cls = CudaUtils(), CudaLauncher
    nvidia_driver.get_current_device, nvidia_driver.get_device_capability = current_device, capability_of
    nvidia_driver.get_current_stream = lambda device: 0
    return nvidia_driver


def use_driver_without_torch(
    current_device: Callable[[], int], capability_of: Callable[[int], tuple[int, int]]
) -> None:
    """Activate Triton's NVIDIA driver in a process without torch, on the device that ``current_device`` returns."""
    driver.set_active(_driver_without_torch(current_device, capability_of))


@contextmanager
def hook_launches(enter: Callable[[str], None], leave: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Call ``enter`` with the name of a kernel before each launch inside a with statement, and ``leave`` after it.

    Launches of all threads count. A failed launch calls no ``leave``. Nothing is called where the user has replaced
    Triton's chains of hooks.
    """
    before: Any = knobs.runtime.launch_enter_hook
    after: Any = knobs.runtime.launch_exit_hook

    def enter_hook(metadata: Any) -> None:
        enter(str(metadata.get().get("name", "a kernel")))

    def exit_hook(metadata: Any) -> None:
        leave()

    if not (hasattr(before, "add") and hasattr(after, "add")):
        yield
        return
    before.add(enter_hook)
    after.add(exit_hook)
    try:
        yield
    finally:
        before.remove(enter_hook)
        after.remove(exit_hook)


def gpu_target_of_machine() -> Target | None:
    """The target of the GPU that Triton would use by itself; None where there is none, or, with a warning, no driver.

    Where torch uses CUDA, it answers as Triton's driver would, which is compiled by the machine's compiler at first.
    """
    if has_cuda_context():
        import torch

        major, minor = torch.cuda.get_device_capability()
        return Target("cuda", 10 * major + minor, _WARP_SIZE)
    try:
        with delayed_forks():
            return target_of(driver.default.get_current_target())
    except LAUNCHER_ERRORS as exc:
        if any(backend.driver.is_active() for backend in backends.values()):
            warn_user(
                f"Triton's driver of the GPU does not load, so launches run on the CPU: {exc}. Triton compiles it, "
                "once, with the C compiler that CC names, or gcc; correct that, then restart."
            )
        return None


def load_driver() -> None:
    """Load Triton's own driver, which takes half a second while it is not in Triton's cache."""
    with delayed_forks(), suppress(*LAUNCHER_ERRORS):  # its first use raises it
        _ = driver.default


@dataclass(frozen=True, slots=True)
class OfflineLauncher:
    """Launches one kernel on the CPU. Triton calls it, and the run is shown; the runtime calls `run`, and gets it."""

    driver: OfflineDriver
    src: Any

    def __call__(self, *launch_arguments: Any) -> None:
        if (run := self.run(*launch_arguments)) is not None:
            self.driver.show(run)

    def run(self, *launch_arguments: Any) -> Any:
        """Call the interpreter between the launch hooks; return None for an empty grid."""
        x, y, z, _stream, _handle, _packed, info, enter, leave, *args = launch_arguments
        if enter is not None:
            enter(info)
        arguments = dict(zip(self.src.fn.arg_names, args, strict=True))
        run = self.driver.interpret(self.src, arguments, (x, y, z)) if min(x, y, z) > 0 else None
        if leave is not None:
            leave(info)
        return run


class OfflineDriver(DriverBase):  # type: ignore[misc]
    """Stands in for a GPU of any supported target; ``show`` gets the runs of launches that Triton makes."""

    def __init__(self, target: Target, interpret: Interpret, show: Callable[[Any], None] = lambda run: None) -> None:
        super().__init__()
        self.utils = self  # Triton asks `driver.utils` about devices and binaries
        self.interpret, self.show = interpret, show
        self._targets: dict[int, Target] = {}
        self.use(target)

    @classmethod
    def is_active(cls) -> bool:
        """False: Triton's own search for a driver skips this one."""
        return False

    def activate(self) -> None:
        """Become Triton's active driver."""
        driver.set_active(self)

    def deactivate(self) -> None:
        """Reset Triton's active driver, if this is it."""
        if driver._active is self:
            driver.set_active(None)

    @property
    def target(self) -> Target:
        """The current target."""
        return self._targets[self._current]

    def use(self, target: Target) -> None:
        """Make ``target`` the current one."""
        arch = target.arch
        self._current = arch if isinstance(arch, int) else int(arch.removeprefix("gfx"), 16)
        self._targets[self._current] = target

    def target_of_device(self, device: int) -> Target:
        """The target with a device number; the current one for unknown numbers, such as 0."""
        return self._targets.get(device, self.target)

    def launcher_cls(self, src: Any, metadata: Any) -> Callable[..., None]:
        """The launcher of a kernel."""
        return OfflineLauncher(self, src)

    def get_current_target(self) -> Any:
        """Return the current target as Triton's own."""
        return gpu_target(self.target)

    def get_current_device(self) -> int:
        """Return the device number of the current target."""
        return self._current

    def set_current_device(self, device: int) -> None:
        """Make the target with a device number the current one; unknown numbers change nothing."""
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
        """A function that times one call, in milliseconds."""
        return _time_once

    def get_device_interface(self) -> Any:
        """Return torch's interface of the CPU."""
        import torch

        return torch.cpu

    def get_empty_cache_for_benchmark(self) -> None:
        """Return no buffer: there is no L2 cache to flush."""

    def clear_cache(self, cache: object) -> None:
        """Flush nothing."""

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

        As a GPU's driver does, it counts all of the stack as spills. The module is None: Triton would have whichever
        driver is active later unload it.
        """
        is_cuda = self.target_of_device(device).backend == "cuda"
        registers, spills = run_uninterrupted(partial(_binary_usage, binary)) if is_cuda else (0, 0)
        return None, name, registers, spills, _MAX_THREADS


@lru_cache(maxsize=4096)
def _binary_usage(binary: bytes) -> tuple[int, int]:
    with Scratch() as folder:
        path = folder / "kernel.cubin"
        path.write_bytes(binary)
        usage = read_resources(path)
    return (usage.registers, usage.stack_bytes // 4) if usage else (0, 0)


def _time_once(call: Callable[[], object], *, quantiles: Sequence[float] = (0.5,), **_: object) -> list[float]:
    """The milliseconds of one call, for each quantile: repeats on the interpreter say nothing more."""
    begin = time.perf_counter()
    call()
    return [(time.perf_counter() - begin) * 1e3] * len(quantiles)
