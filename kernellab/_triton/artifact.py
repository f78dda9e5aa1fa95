"""A compiled kernel: what the tools in Triton's wheel tell of its binary, and its handle out of files, to be launched.

A process that never saw the source gets along with that. Launches of all kernels are seen here, too.
"""

from __future__ import annotations

import re
import subprocess
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import triton
from triton import knobs
from triton.backends.driver import DriverBase
from triton.compiler import CompiledKernel
from triton.runtime.driver import driver
from triton.runtime.errors import OutOfResources
from triton.tools.tensor_descriptor import TensorDescriptor

from kernellab.source import portable_type


@dataclass(frozen=True, slots=True)
class BinaryResources:
    """Registers per thread, and bytes of stack per thread and of static shared memory per block."""

    registers: int
    stack_bytes: int
    static_shared_bytes: int


def read_resources(cubin: Path) -> BinaryResources | None:
    """Return what a cubin declares, by ``cuobjdump --dump-resource-usage``; None where that cannot read it."""
    text = _tool_output([knobs.nvidia.cuobjdump.path, "--dump-resource-usage", str(cubin)])
    match = re.search(r"REG:(\d+)\s+STACK:(\d+)\s+SHARED:(\d+)", text or "")
    return BinaryResources(int(match[1]), int(match[2]), int(match[3])) if match else None


def read_amd_resources(amdgcn: str) -> dict[str, int | None] | None:
    """Return what the metadata at the end of an AMD kernel's assembly declares; None where it has another form.

    That is registers per lane and per wave, and bytes, by the names of `kernellab.compile.types.Resources`. A spill is
    a store to scratch, of four bytes, and several may share their place there: so all of the stack at most.
    https://llvm.org/docs/AMDGPUUsage.html#code-object-v3-metadata
    """
    found = {name: int(value) for name, value in re.findall(r"^\s+(?:- )?\.(\w+):\s+(\d+)\s*$", amdgcn, re.MULTILINE)}
    try:
        stack = found["private_segment_fixed_size"]
        return {
            "registers": found["vgpr_count"],
            "accumulation_registers": found.get("agpr_count"),
            "scalar_registers": found["sgpr_count"],
            "scalar_spills": found["sgpr_spill_count"],
            "stack_bytes": stack,
            "spill_bytes": min(stack, 4 * found.get("vgpr_spill_count", 0)),
            "static_shared_bytes": found["group_segment_fixed_size"],
        }
    except KeyError:
        return None


def spill_bytes(stack_bytes: int, log: str, ptx: str) -> int:
    """Return the bytes of a stack that hold spilled registers.

    Whether any are spilled, ptxas says. What the PTX declares itself lies there as well: the arguments of
    ``tl.device_print``, arrays of libdevice. https://docs.nvidia.com/cuda/cuda-compiler-driver-nvcc/#ptxas-options
    """
    traffic = re.findall(r"(\d+) bytes spill stores, (\d+) bytes spill loads", log)
    if traffic and not any(int(count) for pair in traffic for count in pair):
        return 0
    declared = sum(map(int, re.findall(r"\.local\s+\.align\s+\d+\s+\.b8\s+\S+\[(\d+)\]", ptx)))
    if traffic and declared >= stack_bytes:
        return stack_bytes
    return max(0, stack_bytes - declared)


def disassemble(cubin: Path) -> str | None:
    """Return the SASS of a cubin with source lines, by ``nvdisasm -gi -c``; None where that cannot read it."""
    return _tool_output([knobs.nvidia.nvdisasm.path, "-gi", "-c", str(cubin)])


def _tool_output(command: list[str]) -> str | None:
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    return result.stdout if result.returncode == 0 else None


def compiled_from_files(
    files: Mapping[str, str], digest: str, signature: Mapping[str, Any], constants: tuple[tuple[int, ...], ...]
) -> Any:
    """Return Triton's handle of a kernel that another process compiled."""
    function = SimpleNamespace(arg_names=tuple(signature))
    source = SimpleNamespace(fn=function, signature=dict(signature), constants=dict.fromkeys(constants))
    return CompiledKernel(source, dict(files), digest)


def specialization_of(handle: Any) -> tuple[dict[str, Any], tuple[tuple[int, ...], ...]]:
    """Return the types of a compiled kernel's parameters, and the index paths of those that are constants."""
    names = list(handle.src.fn.arg_names)
    paths = (path if isinstance(path, tuple) else (names.index(path),) for path in handle.src.constants)
    return {name: portable_type(kind) for name, kind in handle.src.signature.items()}, tuple(paths)


def descriptor(base: Any, shape: Any, strides: Any, block_shape: Any, padding: str, **more: bool) -> Any:
    """Return Triton's descriptor of a tensor; ``more`` are the arguments that only newer versions know."""
    return TensorDescriptor(base, list(shape), list(strides), list(block_shape), padding, **more)


def gluon_descriptor(base: Any, block: list[int], layout: Mapping[str, Any]) -> Any:
    """Return a descriptor of Gluon over a tensor; ``layout`` is that of its blocks: ``class``, and its fields.

    Raises:
        ValueError: Gluon has no such layout.
    """
    from triton.experimental.gluon import language
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

    name = str(layout["class"])
    if not name.endswith("Layout") or not hasattr(language, name):
        raise ValueError(f"Gluon has no layout {name!r}")
    fields = {each: value for each, value in layout.items() if each != "class"}
    return TensorDescriptor.from_tensor(base, block, getattr(language, name)(**fields))


LAUNCH_ERRORS: tuple[type[Exception], ...] = (OutOfResources, RuntimeError, ValueError, TypeError, OverflowError)


def relauncher(
    handle: Any, grid: tuple[int, int, int], arguments: tuple[Any, ...], stream: int = 0
) -> Callable[[], None]:
    """Return what launches a compiled kernel on the current device; nothing for an empty grid.

    It holds the handle: newer versions of Triton unload a kernel when nobody does.

    Raises:
        OutOfResources: the device does not have what the kernel needs.
    """
    if 0 in grid:
        return lambda: None
    run = handle.run
    return lambda: run(*grid, stream, handle.function, handle.packed_metadata, None, None, None, *arguments)


def unload_with(handle: Any, unload: Callable[[int], None]) -> None:
    """Have what a handle has loaded unloaded when nobody holds it any more; newer versions of Triton do that."""
    if not hasattr(type(handle), "__del__") and handle.module is not None:
        weakref.finalize(handle, unload, handle.module).atexit = False


def bring_scratch(allocate: Callable[[int], Any]) -> None:
    """Let kernels that need scratch memory get it from ``allocate``, in a process where the user sets no allocator."""
    triton.set_allocator(lambda size_bytes, alignment, stream: allocate(size_bytes))


@lru_cache(maxsize=1)
def _driver_without_torch(
    current_device: Callable[[], int], capability_of: Callable[[int], tuple[int, int]]
) -> DriverBase:
    """Return Triton's driver of NVIDIA's GPUs on the default stream; its constructor would ask torch for all that."""
    from triton.backends.nvidia.driver import CudaDriver, CudaLauncher, CudaUtils  # a build for others has none

    made = CudaDriver.__new__(CudaDriver)
    made.utils, made.launcher_cls = CudaUtils(), CudaLauncher
    made.get_current_device, made.get_device_capability = current_device, capability_of
    made.get_current_stream = lambda device: 0
    return made


def use_driver_without_torch(
    current_device: Callable[[], int], capability_of: Callable[[int], tuple[int, int]]
) -> None:
    """Let Triton launch in a process that has no torch, on the device that ``current_device`` tells."""
    driver.set_active(_driver_without_torch(current_device, capability_of))


@contextmanager
def around_launches(enter: Callable[[str], None], leave: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Call ``enter`` with the name of a kernel before each launch inside a with statement, and ``leave`` after it.

    That is by any thread, and after a launch that failed nothing is called. Where the user has put a hook of another
    kind in place of Triton's chains of hooks, nothing is called at all.
    """
    before: Any = knobs.runtime.launch_enter_hook
    after: Any = knobs.runtime.launch_exit_hook

    def entered(metadata: Any) -> None:
        enter(str(metadata.get().get("name", "a kernel")))

    def left(metadata: Any) -> None:
        leave()

    if not (hasattr(before, "add") and hasattr(after, "add")):
        yield
        return
    before.add(entered)
    after.add(left)
    try:
        yield
    finally:
        before.remove(entered)
        after.remove(left)
