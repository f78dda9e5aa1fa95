"""Search spaces for products of tiles, which have too many configs for a list.

What bounds them is the shared memory of the target, which holds the tiles in flight: what Triton compiles for NVIDIA
has there as many as stages, and for AMD one less.
"""

from __future__ import annotations

from kernellab.target import DEFAULT_TARGET, Target, parse_target, shared_bytes_limit
from kernellab.timing.config import Space
from kernellab.tune.workloads.blocks import Numel, generator, hints_of, rules_of

_SHARED_BYTES = shared_bytes_limit(parse_target(DEFAULT_TARGET)) or 0


@generator
def matmul(m: Numel, n: Numel, k: Numel, *, target: Target | str = DEFAULT_TARGET, element_bytes: int = 2) -> Space:
    """Return the space of a tiled product: ``BLOCK_M``, ``BLOCK_N``, ``BLOCK_K``, ``GROUP_M``, warps and stages.

    The tiles of elements of ``element_bytes`` fit into the shared memory of the target, and a thread accumulates 16 to
    256 elements. On AMD, ``waves_per_eu`` is searched, too.
    """
    rules = rules_of(target)
    warp, limit = rules.warp_size, _shared_elements(target, element_bytes)
    return Space(
        BLOCK_M=_blocks(m, 16, 256),
        BLOCK_N=_blocks(n, 16, 256),
        BLOCK_K=_blocks(k, 32 if max(hints_of(k)) > 16 else 16, 128),
        GROUP_M=[8],
        num_warps=[4, 8],
        num_stages=[2, 3] if rules.is_amd else [2, 3, 4, 5],
        **({"waves_per_eu": [0, 2]} if rules.is_amd else {}),
        where=f"{16 * warp} * num_warps <= BLOCK_M * BLOCK_N <= {256 * warp} * num_warps and "
        f"(BLOCK_M + BLOCK_N) * BLOCK_K * {_buffers(rules.is_amd)} <= {limit}",
    )


@generator
def attention(
    queries: Numel, keys: Numel, width: int, *, target: Target | str = DEFAULT_TARGET, element_bytes: int = 2
) -> Space:
    """Return the space of a fused attention: ``BLOCK_M`` queries against ``BLOCK_N`` keys, warps and stages.

    The queries and the keys and values in flight, of ``width`` elements each, fit into the shared memory of the target.
    """
    rules = rules_of(target)
    limit = _shared_elements(target, element_bytes) // max(*hints_of(width), 16)
    return Space(
        BLOCK_M=_blocks(queries, 16, 128),
        BLOCK_N=_blocks(keys, 16, 128),
        num_warps=[4, 8],
        num_stages=[2, 3] if rules.is_amd else [1, 2, 3, 4],
        **({"waves_per_eu": [0, 2]} if rules.is_amd else {}),
        where=f"BLOCK_M >= 4 * num_warps and BLOCK_M + 2 * BLOCK_N * {_buffers(rules.is_amd)} <= {limit}",
    )


def _shared_elements(target: Target | str, element_bytes: int) -> int:
    """Return the elements that fit into a program's shared memory; H100's if the target has no data sheet."""
    parsed = parse_target(target) if isinstance(target, str) else target
    return (shared_bytes_limit(parsed) or _SHARED_BYTES) // element_bytes


def _buffers(is_amd: bool) -> str:
    return "(num_stages - 1)" if is_amd else "num_stages"


def _blocks(numel: Numel, least: int, most: int) -> list[int]:
    """Return the powers of two from ``least`` to the largest extent, at most ``most``."""
    top = max(least, min(most, max(hints_of(numel))))
    return [1 << i for i in range(least.bit_length() - 1, top.bit_length())]
