"""Grids as users give them: functions or extents, evaluated and checked at launch."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

from kernellab._triton.kernel import JitKernel
from kernellab.errors import LaunchError, value_text
from kernellab.target import Target

Grid3 = tuple[int, int, int]
MAX_GRID: Grid3 = (2**31 - 1, 65535, 65535)  # of CUDA


class GridFailed(Exception):
    """Carries an exception of the user's own grid function through Triton. ``trace`` begins in the user's code."""

    def __init__(self, error: Exception, trace: TracebackType | None) -> None:
        super().__init__(str(error))
        self.error = error
        self.trace = trace


class CheckedGrid:
    """A grid as the user gave it, evaluated and checked at launch, together with the arguments that Triton bound.

    ``grid`` is what is evaluated: what was ``given``, or the extents that came of that.
    """

    def __init__(self, kernel: JitKernel, grid: Any) -> None:
        self.kernel = kernel
        self.given = self.grid = grid
        self.value: Grid3 | None = None
        self.has_failed = False
        self.arguments: Mapping[str, Any] = {}

    def __call__(self, bound: Mapping[str, Any]) -> Grid3:
        """Return the extents for arguments that Triton bound, which are kept; see `checked_grid`."""
        self.arguments = bound
        try:
            given = self.grid(bound) if callable(self.grid) else self.grid
        except Exception as exc:
            self.has_failed = True
            raise GridFailed(exc, exc.__traceback__ and exc.__traceback__.tb_next) from exc
        self.value = checked_grid(given, self.kernel.__name__)
        return self.value


_LARGEST = 2**63 - 1


def checked_grid(grid: Any, name: str) -> Grid3:
    """Return a grid of one to three extents as three.

    Raises:
        LaunchError: it has another form, or an extent is negative.
    """
    extents = (grid,) if isinstance(grid, int) else grid
    if not isinstance(extents, tuple | list) or not 1 <= len(extents) <= 3:
        raise LaunchError(
            f"The grid of {name} is {value_text(grid)}; expected one to three integers, such as (64,).", kernel=name
        )
    try:
        numbers = tuple(extent.__index__() for extent in extents)
    except AttributeError:
        raise LaunchError(
            f"The grid of {name} is {value_text(grid)}; its extents must be integers, as triton.cdiv(n, BLOCK) gives.",
            kernel=name,
        ) from None
    if max(numbers) > _LARGEST:
        raise LaunchError(f"The grid of {name} has an extent of more than 64 bits; no device has as many.", kernel=name)
    if min(numbers) < 0:
        raise LaunchError(f"The grid of {name} is {grid!r}; an extent cannot be negative.", kernel=name)
    return (*numbers, 1, 1)[:3]


def require_launchable(grid: Grid3, name: str, target: Target) -> None:
    """Refuse a grid that the CPU would take and no device of the target does.

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


class _GridErrors(AbstractContextManager[None]):
    """No generator: frames of contextlib would show in the user's trace."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        __tracebackhide__ = True
        if isinstance(error, GridFailed):
            raise error.error.with_traceback(error.trace) from None


def grid_errors() -> AbstractContextManager[None]:
    """Let an exception of the user's own grid function out as itself, its trace beginning in the user's code."""
    return _GridErrors()
