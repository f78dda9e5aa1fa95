"""Attention from parts: kernels that a captured program launches one after the other, with torch in between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl

import kernellab

ROWS, COLUMNS, HEAD, HEADS = 48, 40, 16, 3


@triton.jit
def row_of(ptr, row, columns, offsets):
    return tl.load(ptr + row * columns + offsets, mask=offsets < columns, other=-float("inf"))


@triton.jit
def scores_kernel(
    q_ptr, k_ptr, out_ptr, rows, columns, scale, HEAD: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr
):
    head = tl.program_id(1)
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.arange(0, BLOCK_N)
    inner = tl.arange(0, HEAD)
    q = tl.load(q_ptr + (head * rows + m[:, None]) * HEAD + inner[None, :], mask=m[:, None] < rows, other=0.0)
    k = tl.load(k_ptr + (head * columns + n[:, None]) * HEAD + inner[None, :], mask=n[:, None] < columns, other=0.0)
    scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
    mask = (m[:, None] < rows) & (n[None, :] < columns)
    tl.store(out_ptr + (head * rows + m[:, None]) * columns + n[None, :], scores, mask=mask)


@triton.jit
def row_max_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    tl.store(out_ptr + row, tl.max(row_of(x_ptr, row, columns, tl.arange(0, BLOCK)), axis=0))


@triton.jit
def exponent_kernel(x_ptr, max_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    x = row_of(x_ptr, row, columns, offsets)
    tl.store(out_ptr + row * columns + offsets, tl.exp(x - tl.load(max_ptr + row)), mask=offsets < columns)


@triton.jit
def values_kernel(
    p_ptr, v_ptr, out_ptr, rows, columns, HEAD: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr
):
    head = tl.program_id(1)
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.arange(0, BLOCK_N)
    inner = tl.arange(0, HEAD)
    mask = (m[:, None] < rows) & (n[None, :] < columns)
    p = tl.load(p_ptr + (head * rows + m[:, None]) * columns + n[None, :], mask=mask, other=0.0)
    v = tl.load(v_ptr + (head * columns + n[:, None]) * HEAD + inner[None, :], mask=n[:, None] < columns, other=0.0)
    out = tl.dot(p, v, input_precision="ieee")
    tl.store(out_ptr + (head * rows + m[:, None]) * HEAD + inner[None, :], out, mask=m[:, None] < rows)


@triton.jit
def add_bias_kernel(x_ptr, bias_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=mask)
    tl.store(x_ptr + row * columns + offsets, x + tl.load(bias_ptr + offsets, mask=mask), mask=mask)


def inputs(device: str = "cpu") -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    return {
        "q": torch.randn(HEADS, ROWS, HEAD, device=device),
        "k": torch.randn(HEADS, COLUMNS, HEAD, device=device),
        "v": torch.randn(HEADS, COLUMNS, HEAD, device=device),
        "weight": torch.randn(HEADS * HEAD, 24, device=device),
        "bias": torch.randn(24, device=device),
    }


def attention(lab: kernellab.Lab) -> Callable[..., torch.Tensor]:
    """Return attention from parts: five launches, bound to a lab, with operations of torch between them."""
    names = (scores_kernel, row_max_kernel, exponent_kernel, values_kernel, add_bias_kernel)
    scores_of, row_max, exponent, values_of, add_bias = map(lab.bind, names)

    def attend(q: Any, k: Any, v: Any, weight: Any, bias: Any) -> Any:
        scores = torch.empty(HEADS, ROWS, COLUMNS, device=q.device)
        scores_of[(3, HEADS)](q, k, scores, ROWS, COLUMNS, HEAD**-0.5, HEAD=HEAD, BLOCK_M=16, BLOCK_N=64)
        largest = q.new_empty(HEADS, ROWS)
        row_max[(HEADS * ROWS,)](scores, largest, COLUMNS, BLOCK=64)
        powers = torch.empty_like(scores)
        exponent[(HEADS * ROWS,)](scores, largest, powers, COLUMNS, BLOCK=64)
        weights = powers / powers.sum(-1, keepdim=True)
        heads = torch.empty_like(q)
        values_of[(3, HEADS)](weights, v, heads, ROWS, COLUMNS, HEAD=HEAD, BLOCK_M=16, BLOCK_N=64)
        joined = heads.transpose(0, 1).reshape(ROWS, HEADS * HEAD)
        out = joined @ weight
        add_bias[(ROWS,)](out, bias, 24, BLOCK=32)
        return out

    return attend


def reference(q: Any, k: Any, v: Any, weight: Any, bias: Any) -> Any:
    weights = torch.softmax(q @ k.transpose(1, 2) * HEAD**-0.5, -1)
    return (weights @ v).transpose(0, 1).reshape(ROWS, HEADS * HEAD) @ weight + bias
