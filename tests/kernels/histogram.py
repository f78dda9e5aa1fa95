"""Histogram of bytes: the address of every atomic comes out of the data."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from tests.kernels.case import Case


@triton.jit
def histogram_kernel(x_ptr, counts_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    bins = tl.load(x_ptr + offsets, mask=inside, other=0).to(tl.int32)
    tl.atomic_add(counts_ptr + bins, 1, mask=inside, sem="relaxed")


def histogram_case(n: int = 1000, bins: int = 32, block: int = 256) -> Case:
    x = torch.randint(0, bins, (n,), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    already = torch.arange(bins, dtype=torch.int32)
    return Case(
        name="histogram-uint8",
        kernel=histogram_kernel,
        grid=(triton.cdiv(n, block),),
        arguments={"x_ptr": x, "counts_ptr": already, "n": n},
        meta={"BLOCK": block},
        expected={"counts_ptr": already + torch.bincount(x.long(), minlength=bins).int()},
        reads=frozenset({"x_ptr"}),
        atomics=frozenset({"counts_ptr"}),
        writes=frozenset(),
    )
