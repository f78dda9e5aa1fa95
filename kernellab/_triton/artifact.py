"""A compiled kernel from its files, in a process that never saw its source; launches of it, and of all others seen."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
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
class _Function:
    arg_names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Source:
    """What Triton's launcher asks of the source of a kernel: types and which arguments are constants."""

    fn: _Function
    signature: dict[str, Any]
    constants: dict[tuple[int, ...], None]


def compiled_from_files(
    files: Mapping[str, str], digest: str, signature: Mapping[str, Any], constants: tuple[tuple[int, ...], ...]
) -> Any:
    """Return Triton's handle of a kernel that another process compiled."""
    source = _Source(_Function(tuple(signature)), dict(signature), dict.fromkeys(constants))
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
def each_launch(seen: Callable[[str], None]) -> Iterator[None]:
    """Call ``seen`` with the name of every kernel that any thread launches inside a with statement.

    Where the user has put a hook of another kind in place of Triton's chain of hooks, nothing is called.
    """
    with around_launches(seen, lambda: None):
        yield


@contextmanager
def around_launches(enter: Callable[[str], None], leave: Callable[[], None]) -> Iterator[None]:
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
