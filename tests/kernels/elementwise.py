"""Vector addition, and dropout that is reproducible from its seed."""

from __future__ import annotations

import numpy as np
import torch
import triton
import triton.language as tl

from tests.kernels.case import Case, dtype_name, random


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    x = tl.load(x_ptr + offsets, mask=inside)
    y = tl.load(y_ptr + offsets, mask=inside)
    tl.store(out_ptr + offsets, x + y, mask=inside)


@triton.jit
def dropout_kernel(x_ptr, out_ptr, n, rate, seed, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    x = tl.load(x_ptr + offsets, mask=inside)
    kept = tl.rand(seed, offsets) > rate
    tl.store(out_ptr + offsets, tl.where(kept, x / (1 - rate), 0.0), mask=inside)


def add_case(dtype: torch.dtype, n: int = 1000, block: int = 256) -> Case:
    x, y = random(n, dtype=dtype), random(n, dtype=dtype, seed=1)
    return Case(
        name=f"add-{dtype_name(dtype)}",
        kernel=add_kernel,
        grid=(triton.cdiv(n, block),),
        arguments={"x_ptr": x, "y_ptr": y, "out_ptr": torch.zeros_like(x), "n": n},
        meta={"BLOCK": block},
        expected={"out_ptr": x + y},
        reads=frozenset({"x_ptr", "y_ptr"}),
        writes=frozenset({"out_ptr"}),
    )


def dropout_case(dtype: torch.dtype, n: int = 1000, block: int = 256, rate: float = 0.25, seed: int = 7) -> Case:
    x = random(n, dtype=dtype)
    kept = torch.from_numpy(philox_uniform(seed, n) > np.float32(rate))
    scaled = (x.float() / (1 - rate)).to(dtype)
    return Case(
        name=f"dropout-{dtype_name(dtype)}",
        kernel=dropout_kernel,
        grid=(triton.cdiv(n, block),),
        arguments={"x_ptr": x, "out_ptr": torch.zeros_like(x), "n": n, "rate": rate, "seed": seed},
        meta={"BLOCK": block},
        expected={"out_ptr": torch.where(kept, scaled, torch.zeros_like(scaled))},
        reads=frozenset({"x_ptr"}),
        writes=frozenset({"out_ptr"}),
    )


def philox_uniform(seed: int, count: int) -> np.ndarray:
    """Return what ``tl.rand(seed, arange(count))`` gives, float32 in [0, 1).

    Philox-4x32-10 of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011), with the offset as the
    first word of the counter, and the first word of its output folded to 31 bits.
    """
    low = np.uint64(0xFFFFFFFF)
    counter = [np.arange(count, dtype=np.uint64), *(np.zeros(count, np.uint64) for _ in range(3))]
    key = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        first, third = counter[0] * np.uint64(0xD2511F53), counter[2] * np.uint64(0xCD9E8D57)
        counter = [
            (third >> np.uint64(32)) ^ counter[1] ^ np.uint64(key[0]),
            third & low,
            (first >> np.uint64(32)) ^ counter[3] ^ np.uint64(key[1]),
            first & low,
        ]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    signed = counter[0].astype(np.uint32).view(np.int32).astype(np.int64)
    folded = np.where(signed < 0, -signed - 1, signed)
    return folded.astype(np.float32) * np.float32(4.6566127342e-10)
