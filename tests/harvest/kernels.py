"""Kernels as a program that knows nothing of the lab has them."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, alpha, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    total = tl.load(x_ptr + offsets, mask=mask) + alpha * tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, total, mask=mask)


@triton.autotune(configs=[triton.Config({"BLOCK": 64}, num_warps=2)], key=["n"])
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def scale_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, 2 * tl.load(x_ptr + offsets, mask=mask), mask=mask)


@triton.jit
def copy_from_kernel(x_ptr, out_ptr, first, n, BLOCK: tl.constexpr):
    offsets = first + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask), mask=mask)


def add(n: int, alpha: float = 0.5, kernel: Any = add_kernel, device: str = "cpu") -> torch.Tensor:
    x, y, out = torch.rand(n, device=device), torch.rand(n, device=device), torch.empty(n, device=device)
    kernel[(triton.cdiv(n, 64),)](x, y, out, n, alpha, BLOCK=64)
    return out


def scale(n: int, device: str = "cpu") -> torch.Tensor:
    x, out = torch.rand(n, device=device), torch.empty(n, device=device)
    scale_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, out, n)
    return out
