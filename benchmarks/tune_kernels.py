"""The autotuned kernels that tuning is measured on: a product, a softmax, a layer norm backward, an attention."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

Grid = Callable[[dict[str, Any]], tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Workload:
    """An autotuned kernel with its arguments; ``outputs`` names what it writes."""

    kernel: Any
    arguments: tuple[Any, ...]
    grid: Grid


_TILES = [(64, 64), (64, 128), (128, 64), (128, 128), (128, 256), (256, 128), (64, 256), (256, 64)]
_MATMUL = [
    triton.Config({"BM": bm, "BN": bn, "BK": bk}, num_stages=stages, num_warps=warps)
    for (bm, bn), bk, (stages, warps) in itertools.product(_TILES, (32, 64), ((3, 4), (3, 8), (4, 8)))
]


@triton.autotune(configs=_MATMUL, key=["m", "n", "k"])
@triton.jit
def matmul(a_ptr, b_ptr, c_ptr, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    tiles_m, tiles_n = tl.cdiv(m, BM), tl.cdiv(n, BN)
    program = tl.program_id(0)
    band = program // (8 * tiles_n)
    height = min(tiles_m - band * 8, 8)
    within = program % (8 * tiles_n)
    rows = (band * 8 + within % height) * BM + tl.arange(0, BM)
    columns = (within // height) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    left = a_ptr + (rows % m)[:, None] * k + inner[None, :]
    right = b_ptr + inner[:, None] * n + (columns % n)[None, :]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(tl.cdiv(k, BK)):
        total = tl.dot(tl.load(left), tl.load(right), total)
        left += BK
        right += BK * n
    mask = (rows[:, None] < m) & (columns[None, :] < n)
    tl.store(c_ptr + rows[:, None] * n + columns[None, :], total.to(tl.float16), mask=mask)


_SOFTMAX = [triton.Config({"ROWS": rows}, num_warps=warps) for rows in (1, 2, 4, 8) for warps in (2, 4, 8, 16)]


@triton.autotune(configs=_SOFTMAX, key=["rows", "columns"])
@triton.jit
def softmax(x_ptr, out_ptr, rows, columns, WIDTH: tl.constexpr, ROWS: tl.constexpr):
    lines = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    lanes = tl.arange(0, WIDTH)
    mask = (lines[:, None] < rows) & (lanes[None, :] < columns)
    x = tl.load(x_ptr + lines[:, None] * columns + lanes[None, :], mask=mask, other=float("-inf"))
    weight = tl.exp(x - tl.max(x, axis=1)[:, None])
    result = weight / tl.sum(weight, axis=1)[:, None]
    tl.store(out_ptr + lines[:, None] * columns + lanes[None, :], result, mask=mask)


_NORM = [triton.Config({"ROWS": rows}, num_warps=warps) for rows in (4, 16, 64, 256) for warps in (2, 4, 8, 16)]


@triton.autotune(configs=_NORM, key=["rows", "columns"], reset_to_zero=["dw_ptr", "db_ptr"])
@triton.jit
def norm_backward(
    dy_ptr, x_ptr, w_ptr, mean_ptr, rstd_ptr, dx_ptr, dw_ptr, db_ptr, rows, columns, WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
):  # fmt: skip
    lanes = tl.arange(0, WIDTH)
    mask = lanes < columns
    weight = tl.load(w_ptr + lanes, mask=mask, other=0.0)
    dw = tl.zeros((WIDTH,), dtype=tl.float32)
    db = tl.zeros((WIDTH,), dtype=tl.float32)
    first = tl.program_id(0) * ROWS
    for row in range(first, min(first + ROWS, rows)):
        dy = tl.load(dy_ptr + row * columns + lanes, mask=mask, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + row * columns + lanes, mask=mask, other=0.0).to(tl.float32)
        rstd = tl.load(rstd_ptr + row)
        normal = tl.where(mask, (x - tl.load(mean_ptr + row)) * rstd, 0.0)
        scaled = weight * dy
        along = tl.sum(normal * scaled, axis=0) / columns
        dx = (scaled - (normal * along + tl.sum(scaled, axis=0) / columns)) * rstd
        tl.store(dx_ptr + row * columns + lanes, dx, mask=mask)
        dw += dy * normal
        db += dy
    tl.atomic_add(dw_ptr + lanes, dw, mask=mask)
    tl.atomic_add(db_ptr + lanes, db, mask=mask)


_ATTENTION = [
    triton.Config({"BM": bm, "BN": bn}, num_stages=stages, num_warps=warps)
    for bm, bn, stages, warps in itertools.product((64, 128), (64, 128), (2, 3), (4, 8))
]


@triton.autotune(configs=_ATTENTION, key=["length"])
@triton.jit
def attention(q_ptr, k_ptr, v_ptr, out_ptr, length, scale, WIDTH: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr):
    base = tl.program_id(1).to(tl.int64) * length * WIDTH
    rows, lanes = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, WIDTH)
    q = tl.load(q_ptr + base + rows[:, None] * WIDTH + lanes[None, :])
    top = tl.full((BM,), float("-inf"), dtype=tl.float32)
    norm = tl.zeros((BM,), dtype=tl.float32)
    total = tl.zeros((BM, WIDTH), dtype=tl.float32)
    for start in range(0, length, BN):
        keys = start + tl.arange(0, BN)
        k = tl.load(k_ptr + base + keys[None, :] * WIDTH + lanes[:, None])
        score = (tl.dot(q, k) * (scale * 1.44269504)).to(tl.float32)  # torch.compile takes scale for a float64
        highest = tl.maximum(top, tl.max(score, axis=1))
        weight = tl.exp2(score - highest[:, None])
        fade = tl.exp2(top - highest)
        v = tl.load(v_ptr + base + keys[:, None] * WIDTH + lanes[None, :])
        total = tl.dot(weight.to(tl.float16), v, total * fade[:, None])
        norm, top = norm * fade + tl.sum(weight, axis=1), highest
    tl.store(out_ptr + base + rows[:, None] * WIDTH + lanes[None, :], (total / norm[:, None]).to(tl.float16))


def workload(name: str) -> Workload:
    """Return a workload with fresh arguments on the GPU."""
    return {"matmul": _matmul, "softmax": _softmax, "norm": _norm, "attention": _attention}[name]()


def _matmul() -> Workload:
    m = n = k = 4096
    a, b = (torch.randn(4096, 4096, device="cuda", dtype=torch.float16) for _ in range(2))
    out = torch.empty(m, n, device="cuda", dtype=torch.float16)
    return Workload(
        matmul, (a, b, out, m, n, k), lambda meta: (triton.cdiv(m, meta["BM"]) * triton.cdiv(n, meta["BN"]),)
    )


def _softmax() -> Workload:
    rows, columns = 8192, 2048
    x = torch.randn(rows, columns, device="cuda")
    return Workload(
        softmax, (x, torch.empty_like(x), rows, columns, columns), lambda meta: (triton.cdiv(rows, meta["ROWS"]),)
    )


def _norm() -> Workload:
    rows, columns = 16384, 2048
    x, dy = (torch.randn(rows, columns, device="cuda", dtype=torch.float16) for _ in range(2))
    weight = torch.rand(columns, device="cuda")
    mean, rstd = x.float().mean(1), x.float().var(1, unbiased=False).add(1e-5).rsqrt()
    sums = [torch.zeros(columns, device="cuda") for _ in range(2)]
    arguments = (dy, x, weight, mean, rstd, torch.empty_like(x), *sums, rows, columns, columns)
    return Workload(norm_backward, arguments, lambda meta: (triton.cdiv(rows, meta["ROWS"]),))


def _attention() -> Workload:
    heads, length, width = 64, 2048, 64
    q, k, v = (torch.randn(heads, length, width, device="cuda", dtype=torch.float16) for _ in range(3))
    arguments = (q, k, v, torch.empty_like(q), length, width**-0.5, width)
    return Workload(attention, arguments, lambda meta: (triton.cdiv(length, meta["BM"]), heads))
