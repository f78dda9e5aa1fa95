"""Launching one compiled kernel many times, at the cost of the launcher alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import triton
from triton.runtime.errors import OutOfResources

LAUNCH_ERRORS: tuple[type[Exception], ...] = (OutOfResources, RuntimeError, ValueError, TypeError, OverflowError)


def relauncher(kernel: Any, grid: tuple[int, int, int], arguments: tuple[Any, ...]) -> Callable[[], None]:
    """Return what launches a compiled kernel on the current device and stream; nothing for an empty grid.

    Raises:
        OutOfResources: the device does not have what the kernel needs.
    """
    if 0 in grid:
        return lambda: None
    import torch  # a launch needs it anyway

    run, stream = kernel.run, torch.cuda.current_stream().cuda_stream
    function, packed = kernel.function, kernel.packed_metadata
    return lambda: run(*grid, stream, function, packed, None, None, None, *arguments)


def bring_scratch() -> None:
    """Let kernels that need scratch memory get it from torch, in a process where the user sets no allocator."""
    triton.set_allocator(_scratch)


def _scratch(size_bytes: int, alignment: int, stream: int | None) -> Any:
    import torch

    return torch.empty(size_bytes, dtype=torch.int8, device="cuda")
