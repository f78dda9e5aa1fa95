"""Matrix product; its programs walk the output in bands of rows, so that neighbours share tiles in the cache."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from tests.kernels.case import Case, dtype_name, random


@triton.jit
def grouped_tile(program, tiles_m, tiles_n, GROUP_M: tl.constexpr):
    """Return the tile of a program: column by column within a band of GROUP_M rows of tiles."""
    band = program // (GROUP_M * tiles_n)
    height = min(tiles_m - band * GROUP_M, GROUP_M)
    within = program % (GROUP_M * tiles_n)
    return band * GROUP_M + within % height, within // height


@triton.jit
def matmul_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    m,
    n,
    k,
    a_stride,
    b_stride,
    c_stride,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    GROUP_M: tl.constexpr,
):
    tile_m, tile_n = grouped_tile(tl.program_id(0), tl.cdiv(m, BLOCK_M), tl.cdiv(n, BLOCK_N), GROUP_M)
    rows = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = tl.arange(0, BLOCK_K)
    a_ptrs = a_ptr + rows[:, None] * a_stride + inner[None, :]
    b_ptrs = b_ptr + inner[:, None] * b_stride + columns[None, :]
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, k, BLOCK_K):
        a = tl.load(a_ptrs, mask=(rows[:, None] < m) & (start + inner[None, :] < k), other=0.0)
        b = tl.load(b_ptrs, mask=(start + inner[:, None] < k) & (columns[None, :] < n), other=0.0)
        total = tl.dot(a, b, total, input_precision="ieee")
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K * b_stride
    c_ptrs = c_ptr + rows[:, None] * c_stride + columns[None, :]
    tl.store(c_ptrs, total.to(c_ptr.dtype.element_ty), mask=(rows[:, None] < m) & (columns[None, :] < n))


def matmul_case(dtype: torch.dtype, m: int = 70, n: int = 90, k: int = 50, block: int = 32) -> Case:
    a, b = random(m, k, dtype=dtype), random(k, n, dtype=dtype, seed=1)
    return Case(
        name=f"matmul-{dtype_name(dtype)}",
        kernel=matmul_kernel,
        grid=(triton.cdiv(m, block) * triton.cdiv(n, block),),
        arguments={
            "a_ptr": a,
            "b_ptr": b,
            "c_ptr": torch.zeros(m, n, dtype=dtype),
            "m": m,
            "n": n,
            "k": k,
            "a_stride": a.stride(0),
            "b_stride": b.stride(0),
            "c_stride": n,
        },
        meta={"BLOCK_M": block, "BLOCK_N": block, "BLOCK_K": 16, "GROUP_M": 2},
        expected={"c_ptr": (a.float() @ b.float()).to(dtype)},
        reads=frozenset({"a_ptr", "b_ptr"}),
        writes=frozenset({"c_ptr"}),
    )


def line_of(text: str, function: triton.JITFunction = matmul_kernel) -> int:
    """The number of the first line of a kernel that contains a text."""
    lines = "".join(function.raw_src).splitlines()
    return int(function.starting_line_number) + next(at for at, line in enumerate(lines) if text in line)
