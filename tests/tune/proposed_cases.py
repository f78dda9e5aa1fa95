"""Launches of kernels without configs, with what is to be proposed for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import triton
import triton.language as tl

from benchmarks import truth_kernels, tune_products, tune_rows
from kernellab.tune.proposal import KernelKind
from kernellab.tune.roles import RoleKind
from tests.kernels.attention import attention_case
from tests.kernels.case import Case, random
from tests.kernels.elementwise import add_case, dropout_case
from tests.kernels.histogram import histogram_case
from tests.kernels.layer_norm import layer_norm_backward_case, layer_norm_case
from tests.kernels.matmul import matmul_case
from tests.kernels.scan import cumsum_case, recurrence_case
from tests.kernels.softmax import softmax_case

Grid = Callable[[Mapping[str, Any]], tuple[int, ...]]
PROGRAMS, LOOP, ORDER, FIXED = RoleKind


@dataclass(frozen=True, slots=True)
class ProposedCase:
    """A launch, the kind of its kernel and the roles of its constexprs. ``expected`` are the outputs."""

    kernel: Any
    grid: Any
    arguments: Mapping[str, Any]
    meta: Mapping[str, Any]
    kind: KernelKind
    roles: Mapping[str, RoleKind]
    expected: Mapping[str, torch.Tensor] = field(default_factory=dict)


def of_case(case: Case, grid: Any, kind: KernelKind, **roles: RoleKind) -> ProposedCase:
    return ProposedCase(case.kernel, grid, case.arguments, case.meta, kind, roles, case.expected)


def over(size: str, block: str) -> Grid:
    """Return the grid with a program for each block of a size."""
    return lambda meta: (triton.cdiv(meta[size], meta[block]),)


@triton.jit
def scale(x_ptr, out_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i) if EVEN else tl.load(x_ptr + i, mask=i < n)
    tl.store(out_ptr + i, 2 * x, mask=i < n)


@triton.jit
def row_softmax(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0) * columns
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row + i, mask=i < columns, other=-float("inf"))
    e = tl.exp(x - tl.max(x, 0))
    tl.store(out_ptr + row + i, e / tl.sum(e, 0), mask=i < columns)


@triton.jit
def grid_stride_scale(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    for start in range(tl.program_id(0) * BLOCK, n, tl.num_programs(0) * BLOCK):
        i = start + tl.arange(0, BLOCK)
        tl.store(out_ptr + i, 2 * tl.load(x_ptr + i, mask=i < n), mask=i < n)


@triton.jit
def flat_offset(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Move the pointers first, and leave the index without its start."""
    first = tl.program_id(0) * BLOCK
    i = tl.arange(0, BLOCK)
    tl.store(out_ptr + first + i, tl.load(x_ptr + first + i, mask=i < n - first), mask=i < n - first)


@triton.jit
def sum_of_rows(x_ptr, out_ptr, rows, columns, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """Add the rows of a matrix: each program adds some of them one by one."""
    i = tl.arange(0, WIDTH)
    total = tl.zeros((WIDTH,), dtype=tl.float32)
    first = tl.program_id(0) * ROWS
    for row in range(first, min(first + ROWS, rows)):
        total += tl.load(x_ptr + row * columns + i, mask=i < columns, other=0.0)
    tl.atomic_add(out_ptr + i, total, mask=i < columns)


@triton.jit
def norm_in_rounds(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    """Divide each row by its norm, in two loops over it."""
    row = tl.program_id(0) * columns
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, columns, BLOCK):
        i = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row + i, mask=i < columns, other=0.0)
        squares += x * x
    norm = tl.sqrt(tl.sum(squares))
    for start in range(0, columns, BLOCK):
        i = start + tl.arange(0, BLOCK)
        tl.store(out_ptr + row + i, tl.load(x_ptr + row + i, mask=i < columns) / norm, mask=i < columns)


@triton.jit
def hinted_copy(x_ptr, out_ptr, n, step, UNIT: tl.constexpr, BLOCK: tl.constexpr):
    """Read indices that wrap at ``n``, with hints about them, and about a step that is a multiple of UNIT."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    wrapped = tl.max_contiguous(tl.multiple_of(i % n, BLOCK), BLOCK)
    x = tl.load(x_ptr + wrapped * tl.multiple_of(step, UNIT))
    tl.store(out_ptr + i, x, mask=i < n)


@triton.jit
def set_once(out_ptr):
    tl.store(out_ptr, 1.0)


def _matrix_product(kernel: Any, m: int = 64, n: int = 96, k: int = 128) -> dict[str, Any]:
    a, b = random(m, k, dtype=torch.float16), random(k, n, dtype=torch.float16, seed=1)
    return {"a_ptr": a, "b_ptr": b, "c_ptr": torch.zeros(m, n, dtype=torch.float16), "m": m, "n": n, "k": k}


def _tiles(meta: Mapping[str, Any]) -> tuple[int, ...]:
    return (triton.cdiv(meta["m"], meta["BM"]) * triton.cdiv(meta["n"], meta["BN"]),)


def _vector(n: int = 1000) -> dict[str, Any]:
    return {"x_ptr": random(n), "out_ptr": torch.zeros(n), "n": n}


def _matrix(rows: int = 70, columns: int = 200) -> dict[str, Any]:
    return {"x_ptr": random(rows, columns), "out_ptr": torch.zeros(rows, columns), "rows": rows, "columns": columns}


def _sums(axis: int) -> dict[str, Any]:
    matrix = _matrix()
    return {**matrix, "out_ptr": torch.zeros(matrix["x_ptr"].shape[1 - axis])}


def proposed_cases() -> dict[str, ProposedCase]:
    """Return the launches by name."""
    full = torch.float32
    vector, matrix, product = _vector(), _matrix(), _matrix_product(tune_products.matmul)
    x, rows = vector["x_ptr"], matrix["x_ptr"]
    index = torch.arange(40) * 7 % 50
    table = random(50, 32, dtype=torch.float16)
    twice, exact = {"out_ptr": 2 * x}, product["a_ptr"].float() @ product["b_ptr"].float()
    even = {"x_ptr": random(1024), "out_ptr": torch.zeros(1024), "n": 1024}
    gathered = {"table_ptr": table, "index_ptr": index, "out_ptr": torch.zeros(40, 32, dtype=torch.float16), "rows": 40}
    softmax_rows = {"x_ptr": rows, "out_ptr": torch.zeros_like(rows), "columns": 200}
    return {
        "add": of_case(add_case(full), over("n", "BLOCK"), KernelKind.ELEMENTWISE, BLOCK=PROGRAMS),
        "dropout": of_case(dropout_case(full), over("n", "BLOCK"), KernelKind.ELEMENTWISE, BLOCK=PROGRAMS),
        "histogram": of_case(histogram_case(), over("n", "BLOCK"), KernelKind.ELEMENTWISE, BLOCK=PROGRAMS),
        "moved pointers": ProposedCase(
            flat_offset, over("n", "BLOCK"), vector, {"BLOCK": 128}, KernelKind.ELEMENTWISE, {"BLOCK": PROGRAMS},
            {"out_ptr": x},
        ),
        "flag": ProposedCase(
            scale, over("n", "BLOCK"), even, {"BLOCK": 256, "EVEN": True}, KernelKind.ELEMENTWISE,
            {"BLOCK": PROGRAMS, "EVEN": FIXED}, {"out_ptr": 2 * even["x_ptr"]},
        ),
        "hints about the indices of a block": ProposedCase(
            hinted_copy, over("n", "BLOCK"), {**even, "out_ptr": torch.zeros(512), "n": 512, "step": 2},
            {"UNIT": 2, "BLOCK": 128}, KernelKind.ELEMENTWISE, {"UNIT": FIXED, "BLOCK": PROGRAMS},
            {"out_ptr": even["x_ptr"][::2]},
        ),
        "grid stride": ProposedCase(
            grid_stride_scale, (4,), vector, {"BLOCK": 64}, KernelKind.ELEMENTWISE, {"BLOCK": LOOP}, twice
        ),
        "no constexpr": ProposedCase(set_once, (1,), {"out_ptr": torch.zeros(1)}, {}, KernelKind.OTHER, {}),
        "transpose": ProposedCase(
            truth_kernels.transpose,
            lambda meta: (triton.cdiv(meta["rows"], meta["BM"]), triton.cdiv(meta["columns"], meta["BN"])),
            {**matrix, "out_ptr": torch.zeros(200, 70)}, {"BM": 32, "BN": 32}, KernelKind.ELEMENTWISE,
            {"BM": PROGRAMS, "BN": PROGRAMS}, {"out_ptr": rows.T},
        ),
        "gather": ProposedCase(
            tune_rows.gather.fn, over("rows", "ROWS"), gathered, {"ROWS": 2, "WIDTH": 32}, KernelKind.ELEMENTWISE,
            {"ROWS": PROGRAMS, "WIDTH": FIXED}, {"out_ptr": table[index]},
        ),
        "row sum": ProposedCase(
            truth_kernels.row_sum, over("rows", "ROWS"), _sums(1), {"ROWS": 4, "BLOCK": 64}, KernelKind.REDUCTION,
            {"ROWS": PROGRAMS, "BLOCK": LOOP}, {"out_ptr": rows.sum(1)},
        ),
        "column sum": ProposedCase(
            truth_kernels.column_sum, over("columns", "BLOCK"), _sums(0), {"ROWS": 16, "BLOCK": 32},
            KernelKind.REDUCTION, {"ROWS": LOOP, "BLOCK": PROGRAMS}, {"out_ptr": rows.sum(0)},
        ),
        "total sum": ProposedCase(
            truth_kernels.total_sum, lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"] * meta["ROUNDS"]),),
            {**vector, "out_ptr": torch.zeros(1)}, {"BLOCK": 64, "ROUNDS": 2}, KernelKind.REDUCTION,
            {"BLOCK": PROGRAMS, "ROUNDS": FIXED}, {"out_ptr": x.sum().reshape(1)},
        ),
        "rows one by one": ProposedCase(
            sum_of_rows, over("rows", "ROWS"), _sums(0), {"ROWS": 8, "WIDTH": 256}, KernelKind.ELEMENTWISE,
            {"ROWS": PROGRAMS, "WIDTH": FIXED}, {"out_ptr": rows.sum(0)},
        ),
        "norm in two loops": ProposedCase(
            norm_in_rounds, (70,), softmax_rows, {"BLOCK": 64}, KernelKind.REDUCTION, {"BLOCK": LOOP},
            {"out_ptr": torch.nn.functional.normalize(rows)},
        ),
        "softmax of a row per program": ProposedCase(
            row_softmax, (70,), softmax_rows, {"BLOCK": 256}, KernelKind.PERSISTENT_REDUCTION, {"BLOCK": FIXED},
            {"out_ptr": rows.softmax(1)},
        ),
        "softmax of several rows": of_case(softmax_case(full), (4,), KernelKind.PERSISTENT_REDUCTION, BLOCK=FIXED),
        "layer norm": of_case(layer_norm_case(full), (6,), KernelKind.PERSISTENT_REDUCTION, BLOCK=FIXED),
        "layer norm backward": of_case(
            layer_norm_backward_case(full), (6,), KernelKind.PERSISTENT_REDUCTION, BLOCK=FIXED
        ),
        "running sum": of_case(cumsum_case(full), (3,), KernelKind.SCAN, BLOCK=LOOP),
        "recurrence": of_case(recurrence_case(full), (3,), KernelKind.SCAN, BLOCK=FIXED),
        "grouped matmul": of_case(
            matmul_case(torch.float16),
            lambda meta: (triton.cdiv(meta["m"], meta["BLOCK_M"]) * triton.cdiv(meta["n"], meta["BLOCK_N"]),),
            KernelKind.PRODUCT, BLOCK_M=PROGRAMS, BLOCK_N=PROGRAMS, BLOCK_K=LOOP, GROUP_M=ORDER,
        ),
        "unmasked matmul": ProposedCase(
            tune_products.matmul.fn, _tiles, product, {"BM": 32, "BN": 32, "BK": 32}, KernelKind.PRODUCT,
            {"BM": PROGRAMS, "BN": PROGRAMS, "BK": LOOP}, {"c_ptr": exact.half()},
        ),
        "split-k matmul": ProposedCase(
            tune_products.split_k.fn, lambda meta: (*_tiles(meta), meta["SPLIT"]),
            {**product, "c_ptr": torch.zeros(64, 96)}, {"BM": 32, "BN": 32, "BK": 32, "SPLIT": 2}, KernelKind.PRODUCT,
            {"BM": PROGRAMS, "BN": PROGRAMS, "BK": LOOP, "SPLIT": FIXED}, {"c_ptr": exact},
        ),
        "matmul with descriptors": ProposedCase(
            tune_products.device_descriptors.fn, _tiles, product, {"BM": 32, "BN": 32, "BK": 32}, KernelKind.PRODUCT,
            {"BM": PROGRAMS, "BN": PROGRAMS, "BK": LOOP}, {"c_ptr": exact.half()},
        ),
        "attention": of_case(
            attention_case(torch.float16, causal=True),
            lambda meta: (triton.cdiv(meta["length"], meta["BLOCK_Q"]), 2), KernelKind.ATTENTION,
            HEAD=FIXED, BLOCK_Q=PROGRAMS, BLOCK_K=LOOP, CAUSAL=FIXED,
        ),
    }  # fmt: skip
