"""Configs by workload: what is worth trying for a pointwise kernel, a reduction, a product, an attention.

Sizes are rounded up to powers of two and called hints. The rules for pointwise kernels and reductions are those of
Inductor for NVIDIA GPUs (torch/_inductor/runtime/triton_heuristics.py); the tests compare the two. Matmul and
attention are spaces, for a search.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Literal

from kernellab.errors import UsageError
from kernellab.measure.config import Config, Space

Hint = Literal["inner", "outer", "tiny", "default"]

MAX_BLOCK = {"X": 4096, "Y": 1024, "Z": 1024, "R0_": 65536}
MAX_GRID = {"X": 2**31 - 1, "Y": 65535, "Z": 65535}
MAX_RSPLIT = 64
_MAX_PERSISTENT_NUMEL = 4096
_MIN_SPLIT_SCAN_BLOCK = 256


def pointwise(*numels: int) -> list[Config]:
    """Return configs with ``XBLOCK``, ``YBLOCK``, ``ZBLOCK`` for a pointwise kernel over one to three extents.

    Raises:
        UsageError: there are no extents, or more than three.
    """
    if not 1 <= len(numels) <= 3:
        raise UsageError(f"pointwise takes one to three extents, and got {len(numels)}.")
    hints = tuple(map(_power_of_two, numels))
    block = max(256, min(prod(hints) // 128, 1024))
    shapes: dict[int, list[tuple[int, ...]]] = {
        2: [(32, 32), (64, 64), (256, 16), (16, 256), (block, 1), (1, block)],
        3: [(16, 16, 16), (64, 8, 8), (8, 64, 8), (8, 8, 64), (block, 1, 1), (1, block, 1), (1, 1, block)],
    }
    if len(hints) == 1:
        found = [_pointwise(hints, (block,), 256), _pointwise(hints, (block // 2,), 64)]
    else:
        found = [_pointwise(hints, shape, 256) for shape in shapes[len(hints)]]
    return list(dict.fromkeys(found))


def reduction(
    xnumel: int, rnumel: int, hint: Hint = "default", *, loads: int = 0, reductions: int = 0, exhaustive: bool = False
) -> list[Config]:
    """Return configs with ``XBLOCK`` and ``R0_BLOCK`` for a reduction of ``rnumel`` elements into each of ``xnumel``.

    ``hint`` says along what memory runs: ``inner`` is the reduced dimension, ``outer`` the kept one, ``tiny`` the kept
    one with few elements to reduce. ``loads`` and ``reductions`` count those of the kernel: from ten on, it gets half
    the block, for its registers. A hint gives one config; ``exhaustive`` gives all of them regardless.
    """
    x, r = _power_of_two(xnumel), _power_of_two(rnumel)
    is_heavy = x >= 1024 and loads + reductions >= 10
    longest = 1024 if is_heavy else 2048
    inner = _reduction(x, r, 2 if r <= 2048 else 1, min(r, longest), hint, register_intensive=is_heavy)
    tiny = _reduction(x, r, 2 * (256 // r) if r <= 256 else 1, min(r, longest), hint, register_intensive=is_heavy)
    outer = _outer(x, r, loads, hint, register_intensive=is_heavy)
    if hint != "default" and not exhaustive:
        return [{"inner": inner, "outer": outer, "tiny": tiny}[hint]]
    more = [
        _reduction(x, r, 64, 64, hint),
        _reduction(x, r, 8, 512, hint),
        _reduction(x, r, 64, 4, hint, num_warps=8),
    ]
    return list(dict.fromkeys([inner, outer, tiny, *more]))


def persistent_reduction(xnumel: int, rnumel: int, hint: Hint = "default") -> list[Config]:
    """Return configs with ``XBLOCK`` for a reduction that holds whole rows in registers."""
    x, r = _power_of_two(xnumel), _power_of_two(rnumel)
    found = [
        _reduction(x, r, block, r, hint, register_intensive=True)
        for block in (1, 8, 32, 128)
        if block == 1 or (r * block <= _MAX_PERSISTENT_NUMEL and block <= x)
    ]
    if hint == "inner" and r >= 256:
        small = _reduction(
            x, r, min(1024 // r, 8), r, hint, register_intensive=True, num_warps=1, min_warps=1
        ) if r <= 1024 and x // 8 >= 128 else found[0]  # fmt: skip
        found = [small]
    elif hint == "outer":
        found = found[-1:]
    elif hint == "tiny":
        found = [_reduction(x, r, 2 * (256 // r) if r <= 256 else 1, r, "default")]
    return list(dict.fromkeys(_without(config, "R0_BLOCK") for config in found))


def cooperative_reduction(
    xnumel: int, rnumel: int, multiprocessors: int, hint: Hint = "default", *, persistent: bool = False
) -> list[Config]:
    """Return configs with ``RSPLIT``: so many programs share each reduction, and wait for each other.

    There are never more programs than multiprocessors, since programs that wait for one that does not run never end.
    """
    x, r = _power_of_two(xnumel), _power_of_two(rnumel)
    target = 1 << (multiprocessors.bit_length() - 1)
    split = max(1, min(r, target // x, MAX_RSPLIT))
    parts = persistent_reduction(x, r // split, hint) if persistent else reduction(x, r // split, hint)
    return [replace(config, parameters=(*config.parameters, ("RSPLIT", split))) for config in parts]


def split_scan(xnumel: int, rnumel: int, hint: Hint = "default") -> list[Config]:
    """Return configs for a scan whose rows are split over programs: those of a reduction, with blocks from 256 on."""
    found = [
        config.with_values({"R0_BLOCK": max(config.values["R0_BLOCK"], _MIN_SPLIT_SCAN_BLOCK)})
        for config in reduction(xnumel, rnumel, hint)
    ]
    return list(dict.fromkeys(found))


def matmul(m: int, n: int, k: int) -> Space:
    """Return the space of a tiled product: ``BLOCK_M``, ``BLOCK_N``, ``BLOCK_K``, ``GROUP_M``, warps and stages."""
    return Space(
        BLOCK_M=_blocks(m, 16, 256),
        BLOCK_N=_blocks(n, 16, 256),
        BLOCK_K=_blocks(k, 32 if k > 16 else 16, 128),
        GROUP_M=[8],
        num_warps=[4, 8],
        num_stages=[2, 3, 4, 5],
        where="512 * num_warps <= BLOCK_M * BLOCK_N <= 8192 * num_warps and (BLOCK_M + BLOCK_N) * BLOCK_K * num_stages "
        "<= 116736",
    )


def attention(queries: int, keys: int, width: int) -> Space:
    """Return the space of a fused attention: ``BLOCK_M`` queries against ``BLOCK_N`` keys, warps and stages."""
    limit = 116736 // max(_power_of_two(width), 16)
    return Space(
        BLOCK_M=_blocks(queries, 16, 128),
        BLOCK_N=_blocks(keys, 16, 128),
        num_warps=[4, 8],
        num_stages=[1, 2, 3, 4],
        where=f"BLOCK_M >= 4 * num_warps and BLOCK_M + 2 * BLOCK_N * num_stages <= {limit}",
    )


def _pointwise(hints: tuple[int, ...], shape: tuple[int, ...], per_warp: int) -> Config:
    """Return a block of the size of ``shape``, moved to where the extents have room for it and the grid needs it."""
    target = prod(shape)
    if prod(hints) < target:
        target //= 8
    blocks = [min(block, hint) for block, hint in zip(shape, hints, strict=True)]
    for place, (hint, axis) in enumerate(zip(hints, "XYZ", strict=False)):
        while blocks[place] < min(hint, MAX_BLOCK[axis]) and (
            blocks[place] * MAX_GRID[axis] < hint or prod(blocks) < target
        ):
            blocks[place] *= 2
    warps = _warps(prod(blocks) // per_warp, least=1)
    if prod(blocks) >= 128:
        warps = max(warps, 4)
    named = {f"{axis}BLOCK": block for axis, block in zip("XYZ", blocks, strict=False)}
    return Config(tuple(named.items()), num_warps=warps, num_stages=1)


def _reduction(
    x: int,
    r: int,
    x_block: int,
    r_block: int,
    hint: Hint,
    *,
    num_warps: int | None = None,
    min_warps: int = 2,
    register_intensive: bool = False,
) -> Config:
    x_block, r_part = min(x_block, x), min(r_block, r, MAX_BLOCK["R0_"])
    target = x_block * r_part
    if x * r < target:
        target //= 8
    while x_block < x and x_block * r_part < target:
        x_block *= 2
    while r_part < r and x_block * r_part < target:
        r_part *= 2
    if num_warps is None:
        num_warps = r_block // 128 if hint == "inner" else x_block * r_part // 128
    warps = _warps(num_warps, 16 if r_block <= 8192 else 32, min_warps, register_intensive=register_intensive)
    while -(-x // x_block) > MAX_GRID["X"] and x_block < min(x, MAX_BLOCK["X"]):
        x_block *= 2
    while x_block * r_part > target and r_part > 1:
        r_part //= 2
    return Config((("XBLOCK", x_block), ("R0_BLOCK", r_part)), num_warps=warps, num_stages=1)


def _outer(x: int, r: int, loads: int, hint: Hint, *, register_intensive: bool) -> Config:
    """Return the config of a reduction along the slow dimension: enough programs first, then wide loads."""
    warps = None
    if x <= 1024:
        x_block, r_block = max(min(x // 128, 8), 2), min(r, 64)
    elif x // 4096 <= 8:
        x_block, r_block = 16, 32
    else:
        x_block = max(min(256, _power_of_two(x // 4096)), 64)
        if loads < 4 or r <= 128:
            r_block = 512 // x_block
        else:
            r_block, x_block, warps = 64 if r >= 2048 else 32, 32, 4
    return _reduction(x, r, x_block, r_block, hint, num_warps=warps, register_intensive=register_intensive)


def _warps(wanted: int, most: int = 8, least: int = 2, *, register_intensive: bool = False) -> int:
    return _power_of_two(min(max(wanted, least), most // 2 if register_intensive else most))


def _without(config: Config, name: str) -> Config:
    return replace(config, parameters=tuple(pair for pair in config.parameters if pair[0] != name))


def _blocks(numel: int, least: int, most: int) -> list[int]:
    """Return the powers of two from ``least`` up to what the extent needs, ``most`` at most."""
    top = max(least, min(most, _power_of_two(numel)))
    return [1 << i for i in range(least.bit_length() - 1, top.bit_length())]


def _power_of_two(number: int) -> int:
    return 1 << max(number - 1, 0).bit_length()
