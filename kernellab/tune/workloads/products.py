"""Spaces for products of tiles: too many configs for a list, so that a search goes through them."""

from __future__ import annotations

from kernellab.measure.config import Space
from kernellab.tune.workloads.blocks import Numel, hints_of


def matmul(m: Numel, n: Numel, k: Numel) -> Space:
    """Return the space of a tiled product: ``BLOCK_M``, ``BLOCK_N``, ``BLOCK_K``, ``GROUP_M``, warps and stages."""
    return Space(
        BLOCK_M=_blocks(m, 16, 256),
        BLOCK_N=_blocks(n, 16, 256),
        BLOCK_K=_blocks(k, 32 if max(hints_of(k)) > 16 else 16, 128),
        GROUP_M=[8],
        num_warps=[4, 8],
        num_stages=[2, 3, 4, 5],
        where="512 * num_warps <= BLOCK_M * BLOCK_N <= 8192 * num_warps and (BLOCK_M + BLOCK_N) * BLOCK_K * num_stages "
        "<= 116736",
    )


def attention(queries: Numel, keys: Numel, width: int) -> Space:
    """Return the space of a fused attention: ``BLOCK_M`` queries against ``BLOCK_N`` keys, warps and stages."""
    limit = 116736 // max(*hints_of(width), 16)
    return Space(
        BLOCK_M=_blocks(queries, 16, 128),
        BLOCK_N=_blocks(keys, 16, 128),
        num_warps=[4, 8],
        num_stages=[1, 2, 3, 4],
        where=f"BLOCK_M >= 4 * num_warps and BLOCK_M + 2 * BLOCK_N * num_stages <= {limit}",
    )


def _blocks(numel: Numel, least: int, most: int) -> list[int]:
    """Return the powers of two from ``least`` up to what the largest extent needs, ``most`` at most."""
    top = max(least, min(most, max(hints_of(numel))))
    return [1 << i for i in range(least.bit_length() - 1, top.bit_length())]
