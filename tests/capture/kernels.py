"""Attention from parts: kernels that a captured program launches one after the other, with torch in between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl

import kernellab
from tests import samples

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


def inputs(device: str = "cpu", rows: int = ROWS, columns: int = COLUMNS, width: int = 24) -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    return {
        "q": torch.randn(HEADS, rows, HEAD, device=device),
        "k": torch.randn(HEADS, columns, HEAD, device=device),
        "v": torch.randn(HEADS, columns, HEAD, device=device),
        "weight": torch.randn(HEADS * HEAD, width, device=device),
        "bias": torch.randn(width, device=device),
    }


def attention(lab: kernellab.Lab) -> Callable[..., torch.Tensor]:
    """Return attention from parts: five launches, bound to a lab, with operations of torch between them."""
    names = (scores_kernel, row_max_kernel, exponent_kernel, values_kernel, add_bias_kernel)
    scores_of, row_max, exponent, values_of, add_bias = map(lab.bind, names)

    def attend(q: Any, k: Any, v: Any, weight: Any, bias: Any) -> Any:
        (heads, rows, _), columns, width = q.shape, k.shape[1], bias.shape[0]
        grid, block = (triton.cdiv(rows, 16), heads), triton.next_power_of_2(columns)
        scores = torch.empty(heads, rows, columns, device=q.device)
        scores_of[grid](q, k, scores, rows, columns, HEAD**-0.5, HEAD=HEAD, BLOCK_M=16, BLOCK_N=block)
        largest = q.new_empty(heads, rows)
        row_max[(heads * rows,)](scores, largest, columns, BLOCK=block)
        powers = torch.empty_like(scores)
        exponent[(heads * rows,)](scores, largest, powers, columns, BLOCK=block)
        weights = powers / powers.sum(-1, keepdim=True)
        parts = torch.empty_like(q)
        values_of[grid](weights, v, parts, rows, columns, HEAD=HEAD, BLOCK_M=16, BLOCK_N=block)
        joined = parts.transpose(0, 1).reshape(rows, heads * HEAD)
        out = joined @ weight
        add_bias[(rows,)](out, bias, width, BLOCK=32)
        return out

    return attend


def reference(q: Any, k: Any, v: Any, weight: Any, bias: Any) -> Any:
    weights = torch.softmax(q @ k.transpose(1, 2) * HEAD**-0.5, -1)
    return (weights @ v).transpose(0, 1).reshape(q.shape[1], HEADS * HEAD) @ weight + bias


def scaled(lab: kernellab.Lab, x: Any, out: Any = None) -> Any:
    """Write 3 x + 3 into ``out``, or into a new tensor, by a kernel."""
    out = torch.empty_like(x) if out is None else out
    lab.bind(samples.scale_kernel)[(triton.cdiv(x.numel(), 128),)](x, out, x.numel(), BLOCK=128)
    return out
