"""Grids for blocked kernels: functions of a config's values, for ``kernel[grid]``.

Names follow Inductor's: extents ``xnumel``, ``ynumel``, ``znumel``, ``r0_numel``, blocks ``XBLOCK`` and so on
(torch/_inductor/runtime/triton_heuristics.py, the ``Grid...`` classes).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Grid = Callable[[Mapping[str, Any]], tuple[int, int, int]]

MAX_GRID_Y = 65535


def blocked(xnumel: int, ynumel: int | None = None, znumel: int | None = None) -> Grid:
    """Return the grid with one program per block of one to three extents."""

    def grid(meta: Mapping[str, Any]) -> tuple[int, int, int]:
        y = 1 if ynumel is None else ceil_div(ynumel, meta["YBLOCK"])
        z = 1 if znumel is None else ceil_div(znumel, meta["ZBLOCK"])
        return ceil_div(xnumel, meta["XBLOCK"]), y, z

    return grid


def overflowing(xnumel: int, ynumel: int, max_y: int = MAX_GRID_Y) -> Grid:
    """Return the two-dimensional grid whose y extent runs over into z where it exceeds the limit of the device.

    A program's block along y is ``program_id(1) + program_id(2) * num_programs(1)``; the last ones may lie beyond.
    """

    def grid(meta: Mapping[str, Any]) -> tuple[int, int, int]:
        blocks = ceil_div(ynumel, meta["YBLOCK"])
        layers = ceil_div(blocks, max_y)
        return ceil_div(xnumel, meta["XBLOCK"]), ceil_div(blocks, layers) if layers else 0, layers

    return grid


def cooperative(xnumel: int) -> Grid:
    """Return the grid of a cooperative reduction: ``RSPLIT`` programs share each block of rows."""
    return lambda meta: (meta["RSPLIT"], ceil_div(xnumel, meta.get("XBLOCK", 1)), 1)


def split_scan(xnumel: int, r0_numel: int) -> Grid:
    """Return the grid of a split scan: the blocks of each row side by side, one row per program."""
    return lambda meta: (ceil_div(r0_numel, meta["R0_BLOCK"]), xnumel, 1)


def fixed(x: int, y: int = 1, z: int = 1) -> Grid:
    """Return a grid that no config changes."""
    return lambda meta: (x, y, z)


def ceil_div(numerator: int, denominator: int) -> int:
    """Return the quotient, rounded up."""
    return -(-numerator // denominator)
