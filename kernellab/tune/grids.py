"""Grids for blocked kernels: functions of a config's values, for ``kernel[grid]``.

Names follow Inductor's: extents ``xnumel``, ``ynumel``, ``znumel``, ``r0_numel``, blocks ``XBLOCK`` and so on
(torch/_inductor/runtime/triton_heuristics.py, the ``Grid...`` classes). A kernel without a block has one of 1.

A grid raises `UsageError` where it has more programs along an axis than CUDA launches, or where a config lacks a block
that the grid needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernellab.errors import UsageError
from kernellab.launch.calls import MAX_GRID, Grid3
from kernellab.launch.verbs import CallRule
from kernellab.tune.workloads.blocks import COUNT, REDUCED_BLOCKS, generator, list_of

Grid = Callable[[Mapping[str, Any]], Grid3]

MAX_GRID_Y = MAX_GRID[1]


@dataclass(frozen=True, slots=True)
class BlockedExtents:
    """The extents of one of several kernels in a launch; without ``has_x_block``, its ``XBLOCK`` is 1."""

    xnumel: int
    ynumel: int | None = None
    has_x_block: bool = True


def _has_pairs(value: object) -> bool:
    return isinstance(value, list | tuple) and all(
        isinstance(each, tuple) and len(each) == 2 and isinstance(each[0], Mapping) for each in value
    )


_KERNELS = list_of(BlockedExtents, "a list of BlockedExtents, one at least", least=1)
_EXTENTS = dict.fromkeys(("xnumel", "ynumel", "znumel", "r0_numel", "max_y", "x", "y", "z"), COUNT)
_GRIDS = CallRule("a list of pairs: values of a config, and the extents of its grid", _has_pairs)


@generator(**_EXTENTS)
def blocked(xnumel: int, ynumel: int | None = None, znumel: int | None = None) -> Grid:
    """Return the grid with one program per block of one to three extents."""

    def grid(meta: Mapping[str, Any]) -> Grid3:
        y = 1 if ynumel is None else ceil_div(ynumel, meta.get("YBLOCK", 1))
        z = 1 if znumel is None else ceil_div(znumel, meta.get("ZBLOCK", 1))
        remedy = "a larger block" if znumel is not None else "a larger block, or grids.overflowing"
        return _within_limits("grids.blocked", (ceil_div(xnumel, meta.get("XBLOCK", 1)), y, z), remedy)

    return grid


@generator(**_EXTENTS)
def batched(xnumel: int, ynumel: int, znumel: int) -> Grid:
    """Return the grid of batched matrix products, with the batches along z."""

    def grid(meta: Mapping[str, Any]) -> Grid3:
        x, y = ceil_div(xnumel, meta.get("XBLOCK", 1)), ceil_div(ynumel, meta.get("YBLOCK", 1))
        return _within_limits("grids.batched", (ceil_div(znumel, meta.get("ZBLOCK", 1)), y, x))

    return grid


@generator(**_EXTENTS)
def overflowing(xnumel: int, ynumel: int, max_y: int = MAX_GRID_Y) -> Grid:
    """Return a two-dimensional grid; a y extent beyond the device limit overflows into z.

    A program's block along y is ``program_id(1) + program_id(2) * num_programs(1)``; the last ones may lie beyond.
    """

    def grid(meta: Mapping[str, Any]) -> Grid3:
        extents = ceil_div(xnumel, meta.get("XBLOCK", 1)), *_overflow(ynumel, meta, max_y)
        return _within_limits("grids.overflowing", extents)

    return grid


@generator(**_EXTENTS)
def cooperative(xnumel: int) -> Grid:
    """Return the grid of a cooperative reduction: ``RSPLIT`` programs share each block of rows."""

    def grid(meta: Mapping[str, Any]) -> Grid3:
        extents = _block("grids.cooperative", meta, "RSPLIT"), ceil_div(xnumel, meta.get("XBLOCK", 1)), 1
        return _within_limits("grids.cooperative", extents)

    return grid


@generator(**_EXTENTS)
def mixed_order(xnumel: int) -> Grid:
    """Return the grid of a kernel with ``RSPLIT_SIZE`` rows per program, taken in steps of ``XBLOCK``.

    The grid raises:
        UsageError: its rows are not a multiple of that block.
    """

    def grid(meta: Mapping[str, Any]) -> Grid3:
        rows, block = _block("grids.mixed_order", meta, "RSPLIT_SIZE"), meta.get("XBLOCK", 1)
        if rows % block:
            raise UsageError(f"RSPLIT_SIZE is {rows}; expected a multiple of XBLOCK, which is {block}.")
        return _within_limits("grids.mixed_order", (ceil_div(xnumel, rows), 1, 1))

    return grid


@generator(**_EXTENTS)
def split_scan(xnumel: int, r0_numel: int) -> Grid:
    """Return the grid of a split scan: blocks of a row (``R0_BLOCK`` or ``RBLOCK``) along x, rows along y."""

    def grid(meta: Mapping[str, Any]) -> Grid3:
        x = ceil_div(r0_numel, _block("grids.split_scan", meta, *REDUCED_BLOCKS))
        return _within_limits("grids.split_scan", (x, ceil_div(xnumel, meta.get("XBLOCK", 1)), 1))

    return grid


@generator(kernels=_KERNELS, least=COUNT)
def sequential(kernels: Sequence[BlockedExtents], least: int = 0) -> Grid:
    """Return the grid of several kernels with consecutive programs along x, at least ``least`` in all.

    All have the same ``XBLOCK`` and ``YBLOCK``, and as many programs along y as the one with the most.
    """

    def grid(meta: Mapping[str, Any]) -> Grid3:
        x = max(sum(_x_blocks(kernel, meta) for kernel in kernels), least)
        return _within_limits("grids.sequential", (x, *_shared_y(kernels, meta)))

    return grid


@generator(kernels=_KERNELS, least=COUNT)
def round_robin(kernels: Sequence[BlockedExtents], least: int = 0) -> Grid:
    """Return the grid of several kernels that take programs in turn, all as many as the largest one."""

    def grid(meta: Mapping[str, Any]) -> Grid3:
        most = max(_x_blocks(kernel, meta) for kernel in kernels)
        return _within_limits("grids.round_robin", (max(most * len(kernels), least), *_shared_y(kernels, meta)))

    return grid


@generator(kernels=_KERNELS, least=COUNT)
def flattened(kernels: Sequence[BlockedExtents], least: int = 0) -> Grid:
    """Return the one-dimensional grid of several kernels, each with its own blocks (``XBLOCK_0``)."""

    def grid(meta: Mapping[str, Any]) -> Grid3:
        tiles = 0
        for place, kernel in enumerate(kernels):
            blocks = {axis: meta.get(f"{axis}_{place}", 1) for axis in ("XBLOCK", "YBLOCK")}
            tiles += _x_blocks(kernel, blocks) * ceil_div(
                1 if kernel.ynumel is None else kernel.ynumel, blocks["YBLOCK"]
            )
        return _within_limits("grids.flattened", (max(tiles, least), 1, 1))

    return grid


@generator(**_EXTENTS)
def fixed(x: int, y: int = 1, z: int = 1) -> Grid:
    """Return a grid that is the same for all configs."""
    extents = _within_limits("grids.fixed", (x, y, z), "a smaller grid")
    return lambda meta: extents


@generator(grids=_GRIDS)
def per_config(grids: Sequence[tuple[Mapping[str, Any], Grid3]]) -> Grid:
    """Return a grid with listed extents: those of the first entry with the values of the config.

    The grid raises:
        UsageError: no entry has the values of the config.
    """

    def grid(meta: Mapping[str, Any]) -> Grid3:
        for values, extents in grids:
            if all(meta.get(name) == value for name, value in values.items()):
                return _within_limits("grids.per_config", extents, "a smaller grid")
        listed = "; ".join(", ".join(f"{name}={value}" for name, value in values.items()) for values, _ in grids)
        raise UsageError(f"no grid is listed for the config {dict(meta)}; there are grids for {listed}.")

    return grid


def ceil_div(numerator: int, denominator: int) -> int:
    """Return the quotient, rounded up."""
    return -(-numerator // denominator)


def _within_limits(label: str, extents: Grid3, remedy: str = "a larger block") -> Grid3:
    """Return the extents of a grid that CUDA can launch.

    Raises:
        UsageError: one of them exceeds `MAX_GRID`.
    """
    for axis, extent, limit in zip("xyz", extents, MAX_GRID, strict=True):
        if extent > limit:
            raise UsageError(
                f"{label} has {extent:,} programs along {axis}; expected at most {limit:,}: take {remedy}."
            )
    return extents


def _block(label: str, meta: Mapping[str, Any], *names: str) -> int:
    """Return the value of a config under the first of these names that it has.

    Raises:
        UsageError: it has none of them.
    """
    for name in names:
        if name in meta:
            return int(meta[name])
    raise UsageError(
        f"{label} needs {' or '.join(names)}, which the config lacks; it has {', '.join(meta) or 'nothing'}."
    )


def _x_blocks(kernel: BlockedExtents, meta: Mapping[str, Any]) -> int:
    return ceil_div(kernel.xnumel, meta.get("XBLOCK", 1) if kernel.has_x_block else 1)


def _shared_y(kernels: Sequence[BlockedExtents], meta: Mapping[str, Any]) -> tuple[int, int]:
    extents = [kernel.ynumel for kernel in kernels if kernel.ynumel is not None]
    return _overflow(max(extents), meta, MAX_GRID_Y) if extents else (1, 1)


def _overflow(ynumel: int, meta: Mapping[str, Any], max_y: int) -> tuple[int, int]:
    blocks = ceil_div(ynumel, meta.get("YBLOCK", 1))
    layers = ceil_div(blocks, max_y)
    return (ceil_div(blocks, layers), layers) if layers else (0, 0)
