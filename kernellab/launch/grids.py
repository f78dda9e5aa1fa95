"""Grids of launches, functions or extents: evaluated and checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernellab._triton.kernel import JitKernel, constexpr_value, is_kernel
from kernellab.errors import LaunchError, UsageError, value_text
from kernellab.target import Target

Grid3 = tuple[int, int, int]
MAX_GRID: Grid3 = (2**31 - 1, 65535, 65535)  # of CUDA


def evaluated_grid(kernel: JitKernel, grid: Any, arguments: Mapping[str, Any]) -> Grid3:
    """The three extents of the user's grid for the arguments of a launch; see `checked_grid`.

    Raises:
        LaunchError: it is not a grid, or a function that cannot be called with the arguments by name.
        Exception: whatever the user's function raises, as it is.
    """
    __tracebackhide__ = True
    if not is_grid_function(grid):
        return checked_grid(grid, kernel.__name__)
    try:
        extents = grid(arguments)
    except TypeError as exc:
        if exc.__traceback__ is not None and exc.__traceback__.tb_next is not None:
            raise
        # Python did not even enter it.
        raise LaunchError(
            f"The grid function of {kernel.__name__} is called with the arguments by name, as one dict, "
            f'and {exc}; write it as lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),).',
            kernel=kernel.__name__,
        ) from exc
    return checked_grid(extents, kernel.__name__)


def checked_grid(grid: Any, name: str) -> Grid3:
    """A grid of one to three extents as three.

    Raises:
        LaunchError: it has another form, or an extent is negative.
    """
    extents = (grid,) if isinstance(grid, int) else grid
    if not isinstance(extents, tuple | list) or not 1 <= len(extents) <= 3:
        raise LaunchError(
            f"The grid of {name} is {value_text(grid)}; expected one to three integers, such as (64,).", kernel=name
        )
    try:
        counts = tuple(extent.__index__() for extent in extents)
    except (AttributeError, TypeError, ValueError, RuntimeError):  # the latter of tensors
        raise LaunchError(
            f"The grid of {name} is {value_text(grid)}; its extents must be integers, as triton.cdiv(n, BLOCK) gives.",
            kernel=name,
        ) from None
    if max(counts) >= 2**63:
        raise LaunchError(f"The grid of {name} has an extent of more than 64 bits; no device has as many.", kernel=name)
    if min(counts) < 0:
        raise LaunchError(f"The grid of {name} is {value_text(grid)}; an extent cannot be negative.", kernel=name)
    return (*counts, 1, 1)[:3]


def require_launchable(grid: Grid3, name: str, target: Target) -> None:
    """Refuse a grid that the interpreter could run and no device of the target can.

    Raises:
        LaunchError: an extent is beyond what CUDA launches.
    """
    if target.backend == "cuda" and any(extent > limit for extent, limit in zip(grid, MAX_GRID, strict=True)):
        at_most = " x ".join(f"{limit:,}" for limit in MAX_GRID)
        raise LaunchError(
            f"The grid of {name} is {grid}, and CUDA launches at most {at_most} programs; "
            "put the largest extent first, or let each program do more.",
            kernel=name,
        )


def require_grid(grid: Any, what: str) -> None:
    """Raise `UsageError` for an impossible grid: mostly the kernel's first argument, where the grid is missing.

    ``what`` is the call: ``lab.tune``.
    """
    if not is_grid_function(grid) and not isinstance(grid, int | tuple | list):
        got = value_text(grid) if grid is None or isinstance(grid, str | float) else f"a {type(grid).__name__}"
        raise UsageError(
            f"The grid is missing: {what} got {got} instead. Pass it after the kernel, "
            f"{what}(kernel, grid, ...), as a tuple such as (64,) or a function of the kernel's parameters by name."
        )


def is_grid_function(grid: object) -> bool:
    """Whether a grid is a function of the arguments, and neither a kernel nor a constant."""
    return callable(grid) and not is_kernel(grid) and constexpr_value(grid) is grid
