"""Configs for kernels that compute each element of a block independently."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import Literal, get_args

from kernellab.errors import UsageError
from kernellab.target import DEFAULT_TARGET, Target
from kernellab.timing.config import Config
from kernellab.tune.workloads.blocks import (
    MAX_GRID,
    DeviceRules,
    Numel,
    for_all_hints,
    generator,
    require_choice,
    rules_of,
    with_waves,
)

Tile = Literal["default", "square"]

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
    min_per_thread: int = 0


@generator
def pointwise(
    *numels: Numel,
    target: Target | str = DEFAULT_TARGET,
    tile: Tile = "default",
    one_per_thread: bool = False,
    min_per_thread: int = 0,
    atomics: bool = False,
) -> list[Config]:
    """Return configs with ``XBLOCK``, ``YBLOCK``, ``ZBLOCK`` for a pointwise kernel over one to three extents.

    ``tile="square"`` is for two extents along each of which some argument is contiguous, as in a transposition: on
    NVIDIA, that leaves one config. ``one_per_thread`` adds blocks with as many threads as elements, for kernels that
    such a layout saves conversions (a search in sorted values, say). No config gives a thread fewer elements than
    ``min_per_thread``, if the extents have them. ``atomics`` says that the kernel adds atomically, which on AMD is
    worth a small block.

    Raises:
        UsageError: there are no extents, or more than three; or one is a range without members.
    """
    if not 1 <= len(numels) <= 3:
        raise UsageError(f"pointwise takes one to three extents, and got {len(numels)}.")
    rules = rules_of(target)
    require_choice("tile", tile, get_args(Tile))

    def of(*hints: int) -> Iterator[Config]:
        wishes = [replace(wish, min_per_thread=min_per_thread) for wish in _wishes(hints, rules, tile)]
        if one_per_thread and len(wishes) > 1:
            wishes[_base_count(hints) : _base_count(hints)] = [
                _Wish(shape, per_warp=rules.warp_size) for shape in _rods(len(hints), _block(hints) // 4)
            ]
        if atomics and rules.is_amd and len(hints) == 1:
            wishes.append(_Wish((64,), num_warps=1, min_per_thread=min_per_thread))
        return (_config(rules, hints, wish) for wish in wishes)

    return for_all_hints(of, *numels)


def _wishes(hints: tuple[int, ...], rules: DeviceRules, tile: Tile) -> list[_Wish]:
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
        if len(hints) == 2 and tile == "square" and not rules.is_amd:
            return [_Wish((32, 32))]
        shapes = [*_FLAT[len(hints)], *_rods(len(hints), block)]
        wishes = [_Wish(shape) for shape in shapes]
        amd = [_Wish(shape) for shape in ((64, 32), (128, 16), (128, 32), (32, 512)) if len(hints) == 2]
    return wishes + amd if rules.is_amd else wishes


def _base_count(hints: tuple[int, ...]) -> int:
    """Return the number of blocks that are tried on every device."""
    return 2 if len(hints) == 1 else len(_FLAT[len(hints)]) + len(hints)


def _block(hints: tuple[int, ...]) -> int:
    return max(256, min(prod(hints) // 128, 1024))


def _rods(axes: int, length: int) -> list[tuple[int, ...]]:
    """Return one block along each axis."""
    return [tuple(length if at == axis else 1 for at in range(axes)) for axis in range(axes)]


def _config(rules: DeviceRules, hints: tuple[int, ...], wish: _Wish) -> Config:
    """Return a config with a block of the wished size, reshaped to fit the extents and the grid."""
    blocks = _fit_blocks(rules, hints, wish.shape)
    warps = wish.num_warps
    if warps is None:
        warps = rules.warps(prod(blocks) // wish.per_warp, least=1)
    if prod(blocks) >= 128 and not rules.is_amd:
        warps = max(warps, 4)
    needed = max(prod(blocks), wish.min_per_thread * rules.warp_size * warps)
    widened = blocks[0] * -(-needed // prod(blocks))
    blocks[0] = min(rules.within_grid(widened, hints[0], warps), hints[0])
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
