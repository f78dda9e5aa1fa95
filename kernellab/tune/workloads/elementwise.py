"""Configs for kernels that compute each element of a block independently."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from kernellab.errors import UsageError
from kernellab.target import DEFAULT_TARGET, Target
from kernellab.timing.config import Config
from kernellab.tune.workloads.blocks import (
    MAX_GRID,
    DeviceRules,
    Numel,
    for_all_hints,
    generator,
    rules_of,
    with_waves,
)

_FLAT: dict[int, list[tuple[int, ...]]] = {
    2: [(32, 32), (64, 64), (256, 16), (16, 256)],
    3: [(16, 16, 16), (64, 8, 8), (8, 64, 8), (8, 8, 64)],
}


@dataclass(frozen=True, slots=True)
class _Wish:
    """A block to start from; ``per_warp`` is in elements, ``num_warps`` overrides it."""

    shape: tuple[int, ...]
    per_warp: int = 256
    num_warps: int | None = None
    num_stages: int = 1
    waves_per_eu: int | None = None


@generator
def pointwise(*numels: Numel, target: Target | str = DEFAULT_TARGET) -> list[Config]:
    """Return configs with ``XBLOCK``, ``YBLOCK``, ``ZBLOCK`` for a pointwise kernel over one to three extents.

    Raises:
        UsageError: there are no extents, or more than three; or one is a range without members.
    """
    if not 1 <= len(numels) <= 3:
        raise UsageError(f"pointwise takes one to three extents, and got {len(numels)}.")
    rules = rules_of(target)

    def of(*hints: int) -> Iterator[Config]:
        return (_config(rules, hints, wish) for wish in _wishes(hints, rules))

    return for_all_hints(of, *numels)


def _wishes(hints: tuple[int, ...], rules: DeviceRules) -> list[_Wish]:
    """Return the starting blocks for a device: the common ones, then those for AMD only."""
    block = _block(hints)
    if len(hints) == 1:
        wishes = [_Wish((block,)), _Wish((block // 2,), per_warp=64)]
        amd = [
            _Wish((rules.max_block("X"),), waves_per_eu=2),
            _Wish((4096,)),
            _Wish((2048,), num_warps=8, num_stages=2, waves_per_eu=1),
        ]
    else:
        rods = [tuple(block if at == axis else 1 for at in range(len(hints))) for axis in range(len(hints))]
        wishes = [_Wish(shape) for shape in (*_FLAT[len(hints)], *rods)]
        amd = [_Wish(shape) for shape in ((64, 32), (128, 16), (128, 32), (32, 512)) if len(hints) == 2]
    return wishes + amd if rules.is_amd else wishes


def _block(hints: tuple[int, ...]) -> int:
    return max(256, min(prod(hints) // 128, 1024))


def _config(rules: DeviceRules, hints: tuple[int, ...], wish: _Wish) -> Config:
    """Return a config with a block of the wished size, reshaped to fit the extents and the grid."""
    blocks = _fit_blocks(rules, hints, wish.shape)
    warps = wish.num_warps
    if warps is None:
        warps = rules.warps(prod(blocks) // wish.per_warp, least=1)
    if prod(blocks) >= 128 and not rules.is_amd:
        warps = max(warps, 4)
    blocks[0] = min(rules.within_grid(blocks[0], hints[0], warps), hints[0])
    named = [(f"{axis}BLOCK", block) for axis, block in zip("XYZ", blocks, strict=False)]
    return Config(with_waves(named, wish.waves_per_eu), num_warps=warps, num_stages=wish.num_stages)


def _fit_blocks(rules: DeviceRules, hints: tuple[int, ...], shape: tuple[int, ...]) -> list[int]:
    goal = prod(shape)
    if prod(hints) < goal:
        goal //= 8
    blocks = [min(block, hint) for block, hint in zip(shape, hints, strict=True)]
    for place, (hint, axis) in enumerate(zip(hints, "XYZ", strict=False)):
        while blocks[place] < min(hint, rules.max_block(axis)) and (
            blocks[place] * MAX_GRID[axis] < hint or prod(blocks) < goal
        ):
            blocks[place] *= 2
    return blocks
