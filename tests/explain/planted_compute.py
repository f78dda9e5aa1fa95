"""Pairs whose slow half computes too much, in the wrong place, or with too few programs."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

from kernellab.explain.causes import Cause
from tests.explain.planted import KernelCall, Planted, cdiv, random
from tests.explain.planted_memory import over


@triton.jit
def product(a_ptr, b_ptr, c_ptr, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, PRECISION: tl.constexpr):
    rows = tl.program_id(0) * M + tl.arange(0, M)
    columns = tl.program_id(1) * N + tl.arange(0, N)
    inner = tl.arange(0, K)
    total = tl.zeros((M, N), tl.float32)
    for start in range(0, k, K):
        a = tl.load(a_ptr + rows[:, None] * k + start + inner[None, :])  # planted
        b = tl.load(b_ptr + (start + inner[:, None]) * n + columns[None, :])  # planted
        total = tl.dot(a, b, total, input_precision=PRECISION)  # planted
    tl.store(c_ptr + rows[:, None] * n + columns[None, :], total)


@triton.jit
def product_of_wide(a_ptr, b_ptr, c_ptr, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows = tl.program_id(0) * M + tl.arange(0, M)
    columns = tl.program_id(1) * N + tl.arange(0, N)
    inner = tl.arange(0, K)
    total = tl.zeros((M, N), tl.float32)
    for start in range(0, k, K):
        a = tl.load(a_ptr + rows[:, None] * k + start + inner[None, :]).to(tl.float32)
        b = tl.load(b_ptr + (start + inner[:, None]) * n + columns[None, :]).to(tl.float32)
        total = tl.dot(a, b, total, input_precision="tf32")  # planted
    tl.store(c_ptr + rows[:, None] * n + columns[None, :], total)


@triton.jit
def product_by_sum(a_ptr, b_ptr, c_ptr, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows = tl.program_id(0) * M + tl.arange(0, M)
    columns = tl.program_id(1) * N + tl.arange(0, N)
    inner = tl.arange(0, K)
    total = tl.zeros((M, N), tl.float32)
    for start in range(0, k, K):
        a = tl.load(a_ptr + rows[:, None] * k + start + inner[None, :])
        b = tl.load(b_ptr + (start + inner[:, None]) * n + columns[None, :])
        total += tl.sum((a[:, :, None] * b[None, :, :]).to(tl.float32), 1)  # planted
    tl.store(c_ptr + rows[:, None] * n + columns[None, :], total)


@triton.jit
def product_split(a_ptr, b_ptr, c_ptr, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, SPLIT: tl.constexpr):
    rows = tl.program_id(0) * M + tl.arange(0, M)
    columns = tl.program_id(1) * N + tl.arange(0, N)
    inner = tl.program_id(2) * K + tl.arange(0, K)
    total = tl.zeros((M, N), tl.float32)
    for start in range(0, k, K * SPLIT):
        a = tl.load(a_ptr + rows[:, None] * k + start + inner[None, :])
        b = tl.load(b_ptr + (start + inner[:, None]) * n + columns[None, :])
        total = tl.dot(a, b, total)
    tl.atomic_add(c_ptr + rows[:, None] * n + columns[None, :], total)


def factors(dtype: torch.dtype, m: int, n: int, k: int) -> Any:
    def inputs(large: bool, device: str) -> dict[str, Any]:
        sides = (m, n, k) if large else (256, 256, 256)
        a = random(sides[0], sides[2], device=device, dtype=dtype)
        b = random(sides[2], sides[1], device=device, dtype=dtype, seed=1)
        c = torch.zeros(sides[0], sides[1], device=device)
        return {"a_ptr": a, "b_ptr": b, "c_ptr": c, "m": sides[0], "n": sides[1], "k": sides[2]}

    return inputs


def by_tiles(m: int, n: int) -> Any:
    return lambda inputs: (cdiv(inputs["m"], m), cdiv(inputs["n"], n))


def tiled(kernel: Any, m: int, n: int, k: int, **meta: Any) -> KernelCall:
    return KernelCall(kernel, by_tiles(m, n), {"M": m, "N": n, "K": k, **meta})


@triton.jit
def scaled_in_double(x_ptr, out_ptr, n, factor, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + index, mask=index < n)
    y = x.to(tl.float64)
    for _ in range(4):
        y = tl.exp(y * factor) - 1  # planted
    tl.store(out_ptr + index, y.to(tl.float32), mask=index < n)


@triton.jit
def scaled_in_single(x_ptr, out_ptr, n, factor, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    y = tl.load(x_ptr + index, mask=index < n)
    for _ in range(4):
        y = tl.exp(y * factor) - 1
    tl.store(out_ptr + index, y, mask=index < n)


@triton.jit
def cubed_by_power(x_ptr, out_ptr, n, factor, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + index, mask=index < n)
    y = x
    for _ in range(4):
        y = libdevice.pow(y * factor, 3.0)  # planted
    tl.store(out_ptr + index, y, mask=index < n)


@triton.jit
def cubed_by_product(x_ptr, out_ptr, n, factor, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    y = tl.load(x_ptr + index, mask=index < n)
    for _ in range(4):
        z = y * factor
        y = z * z * z
    tl.store(out_ptr + index, y, mask=index < n)


@triton.jit
def permuted_by_sizes(x_ptr, out_ptr, n, a, b, c, d, BLOCK: tl.constexpr):
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + index, mask=index < n)
    parity = index % a + index // a % b + index // a // b % c + index // a // b // c % d  # planted
    tl.store(out_ptr + index, tl.where(parity % 2 == 0, x, -x), mask=index < n)


@triton.jit
def permuted_by_constants(
    x_ptr, out_ptr, n, a: tl.constexpr, b: tl.constexpr, c: tl.constexpr, d: tl.constexpr, BLOCK: tl.constexpr
):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + index, mask=index < n)
    parity = index % a + index // a % b + index // a // b % c + index // a // b // c % d
    tl.store(out_ptr + index, tl.where(parity % 2 == 0, x, -x), mask=index < n)


def elements(large: bool, device: str) -> dict[str, Any]:
    n = 1 << 26 if large else 3000
    x = random(n, device=device)
    return {"x_ptr": x, "out_ptr": torch.empty_like(x), "n": n, "factor": 0.9}


def image(large: bool, device: str) -> dict[str, Any]:
    n = 1 << 26 if large else 3000
    x = random(n, device=device, dtype=torch.float16)
    return {"x_ptr": x, "out_ptr": torch.empty_like(x), "n": n, "a": 48, "b": 36, "c": 28, "d": 12}


@triton.jit
def decayed_in_turn(x_ptr, out_ptr, BLOCK: tl.constexpr, ROUNDS):
    x = tl.load(x_ptr + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))
    total = 0.0
    for _ in range(ROUNDS):
        x = x * 0.99 + 0.01
        total += tl.sum(x, 0)  # planted
    tl.store(out_ptr + tl.program_id(0), total)


@triton.jit
def decayed_by_lane(x_ptr, out_ptr, BLOCK: tl.constexpr, ROUNDS):
    x = tl.load(x_ptr + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))
    total = tl.zeros((BLOCK,), tl.float32)
    for _ in range(ROUNDS):
        x = x * 0.99 + 0.01
        total += x
    tl.store(out_ptr + tl.program_id(0), tl.sum(total, 0))


def decaying(large: bool, device: str) -> dict[str, Any]:
    programs = 4096 if large else 3
    x = random(programs * 512, device=device)
    return {"x_ptr": x, "out_ptr": torch.empty(programs, device=device), "ROUNDS": 256 if large else 9}


def programs_of(inputs: Any) -> tuple[int, ...]:
    return (int(inputs["out_ptr"].numel()),)


@triton.jit
def norms_by_lane(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * columns
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        x = tl.load(x_ptr + row + start + tl.arange(0, BLOCK))
        total += x * x
    tl.store(out_ptr + tl.program_id(0), tl.sum(total, 0))


def rows(inputs: Any) -> tuple[int, ...]:
    return (int(inputs["x_ptr"].shape[0]),)


@triton.jit
def softmax_row(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * columns
    index = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row + index, mask=index < columns, other=-float("inf"))  # planted
    e = tl.exp(x - tl.max(x, 0))
    tl.store(out_ptr + row + index, e / tl.sum(e, 0), mask=index < columns)  # planted


def row_matrix(many: int, wide: int) -> Any:
    def inputs(large: bool, device: str) -> dict[str, Any]:
        shape = (many, wide) if large else (3, min(wide, 528))
        x = random(*shape, device=device)
        return {"x_ptr": x, "out_ptr": torch.empty_like(x), "columns": shape[1]}

    return inputs


@triton.jit
def iterated(x_ptr, out_ptr, BLOCK: tl.constexpr, ROUNDS: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + index)
    y = x * 0.5
    for _ in range(ROUNDS):
        y = y * x * 0.999 + 0.25 * y + x
        x = x * 0.5 + y * 0.125
    tl.store(out_ptr + index, y)


def iterations(n: int, rounds: int) -> Any:
    def inputs(large: bool, device: str) -> dict[str, Any]:
        x = random(n if large else 8192, device=device)
        return {"x_ptr": x, "out_ptr": torch.empty_like(x), "ROUNDS": rounds if large else 20}

    return inputs


@triton.jit
def total_by_few(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    share = tl.cdiv(n, tl.num_programs(0))
    begin = tl.program_id(0) * share
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(begin, begin + share, BLOCK):
        index = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + index, mask=index < min(begin + share, n), other=0.0)
    tl.atomic_add(out_ptr, tl.sum(total, 0))


def one_total(large: bool, device: str) -> dict[str, Any]:
    n = 1 << 25 if large else 8192
    return {"x_ptr": random(n, device=device), "out_ptr": torch.zeros(1, device=device), "n": n}


@triton.jit
def add_vectors(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + index, mask=index < n)  # planted
    y = tl.load(y_ptr + index, mask=index < n)  # planted
    tl.store(out_ptr + index, x + y, mask=index < n)  # planted


def two_vectors(n: int) -> Any:
    def inputs(large: bool, device: str) -> dict[str, Any]:
        size = n if large else min(n, 2000)
        x, y = (random(size, device=device, seed=s) for s in (0, 1))
        return {"x_ptr": x, "y_ptr": y, "out_ptr": torch.empty_like(x), "n": size}

    return inputs


def many_at_once(inputs: Any) -> dict[str, Any]:
    """Return the same work 64 times over, as one launch takes it."""
    named = {name: inputs[name].repeat(64) for name in ("x_ptr", "y_ptr", "out_ptr")}
    return {**named, "n": 64 * inputs["n"]}


def one_block(inputs: Any) -> tuple[int, ...]:
    return (cdiv(inputs["n"], 1024),)


HALF, SINGLE = torch.float16, torch.float32
EXACT, FAST = {"PRECISION": "ieee"}, {"PRECISION": "tf32"}
COMPUTE_PAIRS = (
    Planted(
        "fp32 product, exact",
        (Cause.NO_TENSOR_CORES,),
        tiled(product, 64, 64, 32, **EXACT),
        tiled(product, 128, 128, 32, num_warps=8, **FAST),
        factors(SINGLE, 2048, 2048, 2048),
        ("c_ptr",),
        tolerance=2e-2,
    ),
    Planted(
        "product by sums",
        (Cause.NO_TENSOR_CORES,),
        tiled(product_by_sum, 32, 32, 16),
        tiled(product, 64, 64, 32, **FAST),
        factors(HALF, 1024, 1024, 1024),
        ("c_ptr",),
        tolerance=2e-2,
    ),
    Planted(
        "operands widened to fp32",
        (Cause.WIDE_OPERANDS,),
        tiled(product_of_wide, 128, 128, 32, num_warps=8),
        tiled(product, 128, 128, 64, num_warps=8, **FAST),
        factors(HALF, 4096, 4096, 4096),
        ("c_ptr",),
        tolerance=2e-2,
    ),
    Planted(
        "tiles of 32",
        (Cause.TILES,),
        tiled(product, 32, 32, 32, **FAST),
        tiled(product, 128, 128, 64, num_warps=8, **FAST),
        factors(HALF, 4096, 4096, 2048),
        ("c_ptr",),
        tolerance=2e-2,
    ),
    Planted(
        "product without stages",
        (Cause.NO_PIPELINE,),
        tiled(product, 128, 128, 64, num_warps=8, num_stages=1, **FAST),
        tiled(product, 128, 128, 64, num_warps=8, num_stages=3, **FAST),
        factors(HALF, 4096, 4096, 4096),
        ("c_ptr",),
        tolerance=2e-2,
    ),
    Planted(
        "four programs for a long product",
        (Cause.FEW_PROGRAMS,),
        tiled(product, 128, 128, 64, num_warps=8, **FAST),
        KernelCall(
            product_split,
            lambda i: (cdiv(i["m"], 128), cdiv(i["n"], 128), 2 if i["k"] < 4096 else 32),
            {"M": 128, "N": 128, "K": 64, "num_warps": 8},
            lambda i: {**i, "SPLIT": 2 if i["k"] < 4096 else 32},
        ),
        factors(HALF, 256, 256, 32768),
        ("c_ptr",),
        tolerance=5e-2,
    ),
    Planted(
        "eight programs for a sum",
        (Cause.FEW_PROGRAMS,),
        KernelCall(total_by_few, lambda i: (8,), {"BLOCK": 1024}),
        KernelCall(total_by_few, lambda i: (2048 if i["n"] > 1 << 20 else 4,), {"BLOCK": 1024}),
        one_total,
        ("out_ptr",),
        tolerance=0.5,
    ),
    Planted(
        "one program more than multiprocessors",
        (Cause.LAST_WAVE,),
        KernelCall(iterated, over("x_ptr", 4096), {"BLOCK": 4096, "num_warps": 32}),
        KernelCall(iterated, over("x_ptr", 256), {"BLOCK": 256, "num_warps": 2}),
        iterations(140 * 4096, 2000),
        (),
    ),
    Planted(
        "144 tiles",
        (Cause.LAST_WAVE,),
        tiled(product, 128, 128, 64, num_warps=8, num_stages=5, **FAST),
        tiled(product, 64, 128, 64, num_warps=4, num_stages=4, **FAST),
        factors(HALF, 1536, 1536, 8192),
        ("c_ptr",),
        tolerance=5e-2,
    ),
    Planted(
        "a long row in four warps",
        (Cause.SPILLS,),
        KernelCall(softmax_row, rows, {"BLOCK": 32768, "num_warps": 4}),
        KernelCall(softmax_row, rows, {"BLOCK": 32768, "num_warps": 16}),
        row_matrix(4096, 32768),
        ("out_ptr",),
    ),
    Planted(
        "a wide tile in four warps",
        (Cause.SPILLS,),
        tiled(product, 256, 256, 32, num_warps=4, **FAST),
        tiled(product, 128, 256, 64, num_warps=8, **FAST),
        factors(HALF, 4096, 4096, 4096),
        ("c_ptr",),
        tolerance=2e-2,
    ),
    Planted(
        "an exponential in fp64",
        (Cause.ARITHMETIC,),
        KernelCall(scaled_in_double, over("x_ptr", 1024), {"BLOCK": 1024}),
        KernelCall(scaled_in_single, over("x_ptr", 1024), {"BLOCK": 1024}),
        elements,
        ("out_ptr",),
    ),
    Planted(
        "powers by libdevice",
        (Cause.ARITHMETIC,),
        KernelCall(cubed_by_power, over("x_ptr", 1024), {"BLOCK": 1024}),
        KernelCall(cubed_by_product, over("x_ptr", 1024), {"BLOCK": 1024}),
        elements,
        ("out_ptr",),
    ),
    Planted(
        "64-bit divisions",
        (Cause.ARITHMETIC,),
        KernelCall(permuted_by_sizes, over("x_ptr", 1024), {"BLOCK": 1024}),
        KernelCall(permuted_by_constants, over("x_ptr", 1024), {"BLOCK": 1024}),
        image,
        ("out_ptr",),
    ),
    Planted(
        "a reduction in every round",
        (Cause.REDUCTION,),
        KernelCall(decayed_in_turn, programs_of, {"BLOCK": 512}),
        KernelCall(decayed_by_lane, programs_of, {"BLOCK": 512}),
        decaying,
        ("out_ptr",),
        tolerance=0.05,
    ),
    Planted(
        "32 elements for 128 threads",
        (Cause.SMALL_BLOCK,),
        KernelCall(add_vectors, over("x_ptr", 32), {"BLOCK": 32}),
        KernelCall(add_vectors, over("x_ptr", 1024), {"BLOCK": 1024}),
        two_vectors(1 << 24),
        ("out_ptr",),
    ),
    Planted(
        "128 elements for 256 threads",
        (Cause.SMALL_BLOCK,),
        KernelCall(add_vectors, over("x_ptr", 128), {"BLOCK": 128, "num_warps": 8}),
        KernelCall(add_vectors, over("x_ptr", 2048), {"BLOCK": 2048}),
        two_vectors(1 << 25),
        ("out_ptr",),
    ),
    Planted(
        "a block eight times the row",
        (Cause.MASKED,),
        KernelCall(softmax_row, rows, {"BLOCK": 4096, "num_warps": 4}),
        KernelCall(softmax_row, rows, {"BLOCK": 1024, "num_warps": 4}),
        row_matrix(65536, 528),
        ("out_ptr",),
    ),
    Planted(
        "a thousand elements a launch",
        (Cause.LAUNCH,),
        KernelCall(add_vectors, one_block, {"BLOCK": 1024}),
        KernelCall(add_vectors, one_block, {"BLOCK": 1024}, many_at_once),
        two_vectors(1 << 14),
        (),
        work=lambda inputs: 64.0,
    ),
    Planted(
        "a few rows a launch",
        (Cause.LAUNCH,),
        KernelCall(softmax_row, rows, {"BLOCK": 512}),
        KernelCall(
            softmax_row,
            rows,
            {"BLOCK": 512},
            lambda i: {**i, "x_ptr": i["x_ptr"].repeat(64, 1), "out_ptr": i["out_ptr"].repeat(64, 1)},
        ),
        row_matrix(64, 512),
        (),
        work=lambda inputs: 64.0,
    ),
)
