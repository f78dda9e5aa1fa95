"""Configs for reductions with two kept extents, whose blocks are tiles: long where memory accesses coalesce."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from kernellab.errors import UsageError
from kernellab.measure.config import Config
from kernellab.target import DEFAULT_TARGET, Target
from kernellab.tune.workloads.blocks import DeviceRules, Numel, distinct, for_all_hints, generator, rules_of, with_waves
from kernellab.tune.workloads.reductions import (
    MAX_PERSISTENT_NUMEL,
    ReducingKernel,
    looped,
    persistent_row_blocks,
    without_reduced_blocks,
)

_AXES = ("X", "Y", "R0_")
_LEAST_REDUCED = 4


@generator()
def tiled_reduction(
    xnumel: Numel,
    ynumel: Numel,
    rnumel: Numel,
    scores: tuple[float, float, float] = (1, 1, 1),
    *,
    target: Target | str = DEFAULT_TARGET,
    loads: int = 0,
    reductions: int = 0,
    size_arguments: int = 0,
    whole_rows: bool = False,
) -> list[Config]:
    """Return configs with ``XBLOCK``, ``YBLOCK``, ``R0_BLOCK`` for a reduction with two kept extents.

    ``scores`` say how much coalesced memory traffic runs along x, y and the reduced extent: a block gets its doublings
    in that proportion, and an extent without any only those for which the others have no room. The other parameters
    are those of `reduction`.
    """
    rules = rules_of(target)
    kernel = ReducingKernel(loads, reductions, size_arguments, whole_rows)

    def of(*hints: int) -> list[Config]:
        def make(rows: int, part: int, *, num_warps: int | None = None, **more: Any) -> Config:
            shares = shared_out(rules, dict(zip(_AXES, hints, strict=True)), _scored(_AXES, scores), rows * part)
            return _config(rules, hints, shares, **more)

        return looped(rules, kernel, hints[0], hints[2], make)

    return for_all_hints(of, xnumel, ynumel, rnumel)


@generator()
def tiled_persistent_reduction(
    xnumel: Numel,
    ynumel: Numel,
    rnumel: Numel,
    scores: tuple[float, float] = (1, 1),
    *,
    target: Target | str = DEFAULT_TARGET,
) -> list[Config]:
    """Return configs with ``XBLOCK`` and ``YBLOCK`` for a reduction with two kept extents that holds whole rows.

    Raises:
        UsageError: a row is longer than 4096 elements.
    """
    rules = rules_of(target)

    def of(x: int, y: int, r: int) -> list[Config]:
        if r > MAX_PERSISTENT_NUMEL:
            raise UsageError(
                f"rows have {r} elements; a tile holds rows of {MAX_PERSISTENT_NUMEL} at most: loop over them."
            )
        hints = {"X": x, "Y": y}
        found = []
        for block in persistent_row_blocks(rules):
            if block * r <= MAX_PERSISTENT_NUMEL:
                shares = shared_out(rules, hints, _scored(("X", "Y"), scores), block)
                found.append(_config(rules, (x, y, r), {**shares, "R0_": r}))
        return distinct(map(without_reduced_blocks, found))

    return for_all_hints(of, xnumel, ynumel, rnumel)


def shared_out(rules: DeviceRules, hints: Mapping[str, int], scores: Mapping[str, float], numel: int) -> dict[str, int]:
    """Return blocks by axis whose product is ``numel`` where the extents allow it, doubled in proportion to scores."""
    if not any(scores.values()):
        scores = dict.fromkeys(scores, 1.0)
    blocks = {axis: _LEAST_REDUCED if axis == "R0_" else 1 for axis in scores}
    claims = dict(scores)
    while prod(blocks.values()) < numel and claims:
        axis = max(claims, key=claims.__getitem__)
        if blocks[axis] >= min(rules.max_block(axis), hints[axis]):
            del claims[axis]
            continue
        blocks[axis] *= 2
        claims[axis] /= 2
    return blocks


def _scored(axes: tuple[str, ...], scores: tuple[float, ...]) -> dict[str, float]:
    if len(scores) != len(axes) or min(scores) < 0:
        raise UsageError(f"scores is {scores!r}; expected {len(axes)} numbers from 0 on.")
    return dict(zip(axes, scores, strict=True))


def _config(
    rules: DeviceRules,
    hints: tuple[int, ...],
    shares: Mapping[str, int],
    *,
    register_intensive: bool = False,
    waves_per_eu: int | None = None,
) -> Config:
    """Return a tile with a warp for 256 elements, whatever the warps of the block that was shared out."""
    blocks = [(f"{axis}BLOCK", min(shares[axis], hint)) for axis, hint in zip(_AXES, hints, strict=True)]
    least = rules.warps(prod(block for _, block in blocks) // 256, least=1)
    warps = rules.warps(least, most=16, register_intensive=register_intensive)
    return Config(with_waves(blocks, waves_per_eu), num_warps=warps, num_stages=1)
