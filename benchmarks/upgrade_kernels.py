"""Kernels in a good and a worse form, as a compiler may turn the one into the other, which a gate must name.

Each change keeps the grid and the arguments. The worse form is what is compiled after the upgrade; what was kept is the
good form, compiled before it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
import triton
import triton.language as tl

from benchmarks.tune_products import matmul
from kernellab.upgrade.comparison import ReasonKind

_ROWS, _COLUMNS, _N = 4096, 1024, 1 << 22


@triton.jit
def hinted(start_ptr, x_ptr, out_ptr, BLOCK: tl.constexpr, HINT: tl.constexpr):
    start = tl.load(start_ptr + tl.program_id(0))
    if HINT:
        start = tl.multiple_of(start, 16)
    places = start + tl.arange(0, BLOCK)
    tl.store(out_ptr + places, tl.load(x_ptr + places) * 2)


@triton.jit
def wrapped(x_ptr, out_ptr, n, BLOCK: tl.constexpr, WRAP: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    source = places % n if WRAP else places
    tl.store(out_ptr + places, tl.load(x_ptr + source) * 2)


@triton.jit
def scaled(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + places, tl.load(x_ptr + places, mask=places < n) * 2, mask=places < n)


@triton.jit(do_not_specialize=["n"])
def scaled_unspecialized(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + places, tl.load(x_ptr + places, mask=places < n) * 2, mask=places < n)


@triton.jit
def tiles(x_ptr, out_ptr, columns, m, BM: tl.constexpr, BN: tl.constexpr, LOST: tl.constexpr):
    rows, lanes = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    if LOST:
        tile = tl.load(x_ptr + (lanes % m)[:, None] + (rows % m)[None, :] * columns)
        tl.store(out_ptr + (lanes % m)[:, None] + (rows % m)[None, :] * columns, tile * 2)
    else:
        tile = tl.load(x_ptr + rows[:, None] * columns + lanes[None, :])
        tl.store(out_ptr + rows[:, None] * columns + lanes[None, :], tile * 2)


@triton.jit
def product(
    a_ptr, b_ptr, c_ptr, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr,
    WIDENS: tl.constexpr,
):  # fmt: skip
    rows, lanes = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    left, right = a_ptr + rows[:, None] * k + inner[None, :], b_ptr + inner[:, None] * n + lanes[None, :]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(tl.cdiv(k, BK)):
        a, b = tl.load(left), tl.load(right)
        if WIDENS:
            a, b = a.to(tl.float32), b.to(tl.float32)
        total = tl.dot(a, b, total, input_precision=PRECISION)
        left += BK
        right += BK * n
    tl.store(c_ptr + rows[:, None] * n + lanes[None, :], total)


@triton.jit
def polynomial(x_ptr, out_ptr, BLOCK: tl.constexpr, PRECISE: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + places)
    for _ in tl.static_range(16):
        x = tl.sqrt_rn(x * x + 1.5) if PRECISE else tl.sqrt(x * x + 1.5)
    tl.store(out_ptr + places, x)


@triton.jit
def counted(x_ptr, out_ptr, BLOCK: tl.constexpr, EACH: tl.constexpr):
    x = tl.load(x_ptr + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))
    if EACH:
        tl.atomic_add(out_ptr + tl.arange(0, BLOCK) * 0, x)
    else:
        tl.atomic_add(out_ptr, tl.sum(x, axis=0))


@triton.jit
def wide_rows(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    place = tl.program_id(0) * columns + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + place)
    x = x - tl.max(x, axis=0)
    e = tl.exp(x)
    y = e / tl.sum(e, axis=0)
    tl.store(out_ptr + place, y * x + tl.sum(y * y, axis=0))


@triton.jit
def turned(x_ptr, out_ptr, columns, BM: tl.constexpr, BN: tl.constexpr, TURNS: tl.constexpr):
    rows, lanes = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    tile = tl.load(x_ptr + rows[:, None] * columns + lanes[None, :])
    if TURNS:
        tile = tl.trans(tl.reshape(tl.trans(tile), (BN, BM)))
        tile = tl.cumsum(tile, axis=0)
    tl.store(out_ptr + rows[:, None] * columns + lanes[None, :], tile)


@dataclass(frozen=True, slots=True)
class Change:
    """A kernel launched in its good and in its worse form; ``kinds`` are the reasons of which one must be named."""

    name: str
    kernel: Any
    grid: Any
    inputs: Callable[[], dict[str, Any]]
    good: Mapping[str, Any]
    worse: Mapping[str, Any]
    kinds: frozenset[ReasonKind]
    worse_kernel: Any = None
    common: Mapping[str, Any] = field(default_factory=dict)


def _flat() -> dict[str, Any]:
    return {"x_ptr": torch.rand(_N), "out_ptr": torch.empty(_N)}


def _matrix() -> dict[str, Any]:
    return {"x_ptr": torch.rand(_ROWS, _COLUMNS), "out_ptr": torch.empty(_ROWS, _COLUMNS), "columns": _COLUMNS}


def _product(dtype: torch.dtype) -> dict[str, Any]:
    a, b = torch.rand(1024, 1024).to(dtype), torch.rand(1024, 1024).to(dtype)
    return {"a_ptr": a, "b_ptr": b, "c_ptr": torch.empty(1024, 1024), "n": 1024, "k": 1024}


def _square(size: int = 1024) -> dict[str, Any]:
    a, b, c = (torch.rand(size, size).half() for _ in range(3))
    return {"a_ptr": a, "b_ptr": b, "c_ptr": c, "m": size, "n": size, "k": size}


def _heads() -> dict[str, Any]:
    from benchmarks.truth_recipes import RECIPES

    return RECIPES["attention"].inputs("cpu", **RECIPES["attention"].sizes[2])


def _flat_grid(meta: Mapping[str, Any]) -> tuple[int]:
    return (_N // meta["BLOCK"],)


def _tile_grid(meta: Mapping[str, Any]) -> tuple[int, int]:
    return _ROWS // meta["BM"], _COLUMNS // meta["BN"]


def _square_grid(meta: Mapping[str, Any]) -> tuple[int, int]:
    return 1024 // meta["BM"], 1024 // meta["BN"]


def _matmul_grid(meta: Mapping[str, Any]) -> tuple[int]:
    return (triton.cdiv(meta["m"], meta["BM"]) * triton.cdiv(meta["n"], meta["BN"]),)


def _changes() -> list[Change]:
    from benchmarks.truth_recipes import RECIPES

    kind = ReasonKind
    starts = torch.arange(0, _N, 1024, dtype=torch.int32)
    tile = {"BM": 128, "BN": 128, "BK": 64}
    plain = {"PRECISION": "tf32", "WIDENS": False}
    heads = RECIPES["attention"]
    narrow = frozenset({kind.WIDTH})
    return [
        Change("a hint of divisibility removed", hinted, (len(starts),), lambda: {"start_ptr": starts, **_flat()},
               {"HINT": True}, {"HINT": False}, narrow, common={"BLOCK": 1024}),
        Change("contiguity lost by a remainder", wrapped, _flat_grid, lambda: {**_flat(), "n": _N - 1},
               {"WRAP": False}, {"WRAP": True}, narrow, common={"BLOCK": 1024}),
        Change("divisibility of a size not used", scaled, _flat_grid, lambda: {**_flat(), "n": _N},
               {}, {}, narrow, scaled_unspecialized, {"BLOCK": 1024}),
        Change("accesses no longer coalesced", tiles, _tile_grid, lambda: {**_matrix(), "m": _ROWS - 1},
               {"LOST": False}, {"LOST": True}, frozenset({kind.SECTORS}), common={"BM": 32, "BN": 64}),
        Change("registers spilled", heads.kernel, heads.grid, _heads, {}, {"maxnreg": 72},
               frozenset({kind.SPILLS}), common={**heads.configs[0].all_kwargs()}),
        Change("pipeline of a loop dropped", matmul.fn, _matmul_grid, partial(_square, 1280),
               {"num_stages": 3}, {"num_stages": 1},
               frozenset({kind.ASYNC}), common={**tile, "num_warps": 8}),
        Change("more stages, fewer blocks", matmul.fn, _matmul_grid, partial(_square, 2048),
               {"num_stages": 2}, {"num_stages": 6}, frozenset({kind.OCCUPANCY}),
               common={"BM": 64, "BN": 64, "BK": 64, "num_warps": 4}),
        Change("wgmma replaced by mma", matmul.fn, _matmul_grid, partial(_square, 1536),
               {"num_warps": 4}, {"num_warps": 2},
               frozenset({kind.TENSOR}), common={"BM": 64, "BN": 64, "BK": 64, "num_stages": 3}),
        Change("product without tensor cores", product, _square_grid, lambda: _product(torch.float32), plain,
               {**plain, "PRECISION": "ieee"}, frozenset({kind.TENSOR, kind.PRECISION}),
               common={"BM": 64, "BN": 64, "BK": 32}),
        Change("product in a wider type", product, _square_grid, lambda: _product(torch.float16), plain,
               {**plain, "WIDENS": True}, frozenset({kind.PRECISION}), common={"BM": 64, "BN": 64, "BK": 32}),
        Change("precise square roots", polynomial, _flat_grid, _flat, {"PRECISE": False}, {"PRECISE": True},
               frozenset({kind.PREDICTED}), common={"BLOCK": 1024}),
        Change("an atomic of each element", counted, _flat_grid, _flat, {"EACH": False}, {"EACH": True},
               frozenset({kind.REQUESTS, kind.SECTORS}), common={"BLOCK": 1024}),
        Change("a step of registers", wide_rows, (_ROWS,),
               lambda: {**_matrix(), "x_ptr": torch.rand(_ROWS, 8192), "out_ptr": torch.empty(_ROWS, 8192),
                        "columns": 8192},
               {"maxnreg": 64}, {}, frozenset({kind.REGISTERS}), common={"BLOCK": 8192, "num_warps": 8}),
        Change("a tile turned in shared memory", turned, _tile_grid, _matrix, {"TURNS": False}, {"TURNS": True},
               frozenset({kind.WAVEFRONTS}), common={"BM": 64, "BN": 64}),
    ]  # fmt: skip


CHANGES = _changes()
