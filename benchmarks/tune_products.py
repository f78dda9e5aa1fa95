"""The autotuned kernels that tuning is measured on: products and an attention.

Five ways to write a product: a program per tile, persistent programs, programs that share a tile along k and add up by
atomics, and tiles by descriptors, which the kernel makes or the host.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from benchmarks.tune_workload import Build, Workload

_TILES = [(64, 64), (64, 128), (128, 64), (128, 128), (128, 256), (256, 128), (64, 256), (256, 64)]
_FEW_TILES = [(64, 128), (128, 64), (128, 128), (128, 256)]


def _tiled(tiles: list[tuple[int, int]], depths: Any, pipelines: Any, **more: Any) -> list[triton.Config]:
    return [
        triton.Config({"BM": bm, "BN": bn, "BK": bk}, num_stages=stages, num_warps=warps, **more)
        for (bm, bn), bk, (stages, warps) in itertools.product(tiles, depths, pipelines)
    ]


@triton.autotune(configs=_tiled(_TILES, (32, 64), ((3, 4), (3, 8), (4, 8))), key=["m", "n", "k"])
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


@triton.autotune(configs=_tiled(_FEW_TILES, (32, 64), ((3, 4), (3, 8), (4, 4), (4, 8))), key=["m", "n", "k"])
@triton.jit
def persistent(a_ptr, b_ptr, c_ptr, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    tiles_m, tiles_n = tl.cdiv(m, BM), tl.cdiv(n, BN)
    inner = tl.arange(0, BK)
    for tile in range(tl.program_id(0), tiles_m * tiles_n, tl.num_programs(0)):
        band = tile // (8 * tiles_n)
        height = min(tiles_m - band * 8, 8)
        within = tile % (8 * tiles_n)
        rows = (band * 8 + within % height) * BM + tl.arange(0, BM)
        columns = (within // height) * BN + tl.arange(0, BN)
        left = a_ptr + (rows % m)[:, None] * k + inner[None, :]
        right = b_ptr + inner[:, None] * n + (columns % n)[None, :]
        total = tl.zeros((BM, BN), dtype=tl.float32)
        for _ in range(tl.cdiv(k, BK)):
            total = tl.dot(tl.load(left), tl.load(right), total)
            left += BK
            right += BK * n
        mask = (rows[:, None] < m) & (columns[None, :] < n)
        tl.store(c_ptr + rows[:, None] * n + columns[None, :], total.to(tl.float16), mask=mask)


_SPLIT = [
    triton.Config({"BM": bm, "BN": bn, "BK": bk, "SPLIT": split}, num_stages=stages, num_warps=4)
    for (bm, bn), bk, split, stages in itertools.product(
        [(64, 64), (64, 128), (128, 128)], (32, 64), (1, 4, 16), (3, 4)
    )
]


@triton.autotune(configs=_SPLIT, key=["m", "n", "k"], reset_to_zero=["c_ptr"])
@triton.jit
def split_k(
    a_ptr, b_ptr, c_ptr, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SPLIT: tl.constexpr
):  # fmt: skip
    tiles_n = tl.cdiv(n, BN)
    rows = tl.program_id(0) // tiles_n * BM + tl.arange(0, BM)
    columns = tl.program_id(0) % tiles_n * BN + tl.arange(0, BN)
    inner = tl.program_id(1) * BK + tl.arange(0, BK)
    left = a_ptr + (rows % m)[:, None] * k + inner[None, :]
    right = b_ptr + inner[:, None] * n + (columns % n)[None, :]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(tl.cdiv(k, BK * SPLIT)):
        total = tl.dot(tl.load(left), tl.load(right), total)
        left += BK * SPLIT
        right += BK * SPLIT * n
    mask = (rows[:, None] < m) & (columns[None, :] < n)
    tl.atomic_add(c_ptr + rows[:, None] * n + columns[None, :], total, mask=mask, sem="relaxed")


@triton.autotune(configs=_tiled(_FEW_TILES, (32, 64), ((3, 4), (3, 8), (4, 4), (4, 8))), key=["m", "n", "k"])
@triton.jit
def device_descriptors(a_ptr, b_ptr, c_ptr, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    left = tl.make_tensor_descriptor(a_ptr, shape=[m, k], strides=[k, 1], block_shape=[BM, BK])
    right = tl.make_tensor_descriptor(b_ptr, shape=[k, n], strides=[n, 1], block_shape=[BK, BN])
    out = tl.make_tensor_descriptor(c_ptr, shape=[m, n], strides=[n, 1], block_shape=[BM, BN])
    tiles_m = tl.cdiv(m, BM)
    row = tl.program_id(0) % tiles_m * BM
    column = tl.program_id(0) // tiles_m * BN
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(tl.cdiv(k, BK)):
        total = tl.dot(left.load([row, step * BK]), right.load([step * BK, column]), total)
    out.store([row, column], total.to(tl.float16))


def set_blocks(named: dict[str, Any]) -> None:
    bm, bn, bk = (named[name] for name in ("BM", "BN", "BK"))
    named["a"].block_shape, named["b"].block_shape, named["c"].block_shape = [bm, bk], [bk, bn], [bm, bn]


_HOOKED = _tiled(_FEW_TILES, (32, 64), ((3, 4), (3, 8), (4, 4), (4, 8)), pre_hook=set_blocks)


@triton.autotune(configs=_HOOKED, key=["m", "n", "k"])
@triton.jit
def host_descriptors(a, b, c, m, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    tiles_m = tl.cdiv(m, BM)
    row = tl.program_id(0) % tiles_m * BM
    column = tl.program_id(0) // tiles_m * BN
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for step in range(tl.cdiv(k, BK)):
        total = tl.dot(a.load([row, step * BK]), b.load([step * BK, column]), total)
    c.store([row, column], total.to(tl.float16))


_ATTENTION = [
    triton.Config({"BM": bm, "BN": bn}, num_stages=stages, num_warps=warps)
    for bm, bn, stages, warps in itertools.product((64, 128), (32, 64, 128), (2, 3, 4), (4, 8))
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


def _tiles(m: int, n: int) -> Any:
    return lambda meta: (triton.cdiv(m, meta["BM"]) * triton.cdiv(n, meta["BN"]),)


def _product(kernel: Any, device: str, is_small: bool) -> Workload:
    m = n = k = 256 if is_small else 4096
    a, b = (torch.randn(m, m, device=device, dtype=torch.float16) for _ in range(2))
    c = torch.zeros(m, n, device=device, dtype=torch.float16)
    return Workload(kernel, (a, b, c, m, n, k), _tiles(m, n), lambda: {"c_ptr": a @ b})


def _matmul(device: str, is_small: bool) -> Workload:
    return _product(matmul, device, is_small)


def _persistent(device: str, is_small: bool) -> Workload:
    work = _product(persistent, device, is_small)
    programs = torch.cuda.get_device_properties(0).multi_processor_count if device == "cuda" else 3
    return Workload(work.kernel, work.arguments, lambda meta: (min(programs, *work.grid(meta)),), work.expected)


def _split_k(device: str, is_small: bool) -> Workload:
    m, n, k = (128, 128, 1024) if is_small else (512, 1024, 16384)
    a = torch.randn(m, k, device=device, dtype=torch.float16)
    b = torch.randn(k, n, device=device, dtype=torch.float16)
    tiles = _tiles(m, n)

    def expected() -> Mapping[str, torch.Tensor]:
        return {"c_ptr": a.float() @ b.float()}

    arguments = (a, b, torch.zeros(m, n, device=device), m, n, k)
    return Workload(split_k, arguments, lambda meta: (*tiles(meta), meta["SPLIT"]), expected)


def _device_descriptors(device: str, is_small: bool) -> Workload:
    if device == "cuda":  # descriptors that a kernel makes lie in memory that somebody must allocate
        triton.set_allocator(lambda size, align, stream: torch.empty(size, device="cuda", dtype=torch.int8))
    return _product(device_descriptors, device, is_small)


def _host_descriptors(device: str, is_small: bool) -> Workload:
    work = _product(host_descriptors, device, is_small)
    a, b, c, m, n, k = work.arguments
    given = (TensorDescriptor.from_tensor(each, [64, 64]) for each in (a, b, c))
    return Workload(host_descriptors, (*given, m, n, k), work.grid, lambda: {"c": a @ b})


def _attention(device: str, is_small: bool) -> Workload:
    heads, length, width = (2, 128, 64) if is_small else (64, 2048, 64)
    q, k, v = (torch.randn(heads, length, width, device=device, dtype=torch.float16) for _ in range(3))
    arguments = (q, k, v, torch.zeros_like(q), length, width**-0.5, width)

    def expected() -> Mapping[str, torch.Tensor]:
        score = torch.softmax(q.float() @ k.float().transpose(1, 2) * width**-0.5, dim=-1)
        return {"out_ptr": score @ v.float()}

    return Workload(attention, arguments, lambda meta: (triton.cdiv(length, meta["BM"]), heads), expected)


PRODUCTS: dict[str, Build] = {
    "matmul": _matmul,
    "persistent": _persistent,
    "split-k": _split_k,
    "device-descriptors": _device_descriptors,
    "host-descriptors": _host_descriptors,
    "attention": _attention,
}
