"""The autotuned kernels that tuning is measured on: those that go over rows.

In the cross entropy, the segment sum and the gather, and in the norm with a lock, values that the kernel loads decide
what it touches.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import triton
import triton.language as tl

from benchmarks.tune_workload import Build, Workload

_WARPS = (2, 4, 8, 16)
_SOFTMAX = [
    triton.Config({"ROWS": rows, "STREAMS": streams}, num_warps=warps)
    for rows in (1, 2, 4, 8)
    for warps in _WARPS
    for streams in (False, True)
]


@triton.autotune(configs=_SOFTMAX, key=["rows", "columns"])
@triton.jit
def softmax(x_ptr, out_ptr, rows, columns, WIDTH: tl.constexpr, ROWS: tl.constexpr, STREAMS: tl.constexpr):
    lines = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    lanes = tl.arange(0, WIDTH)
    mask = (lines[:, None] < rows) & (lanes[None, :] < columns)
    place = lines[:, None] * columns + lanes[None, :]
    if STREAMS:
        x = tl.load(x_ptr + place, mask=mask, other=float("-inf"), eviction_policy="evict_first")
    else:
        x = tl.load(x_ptr + place, mask=mask, other=float("-inf"))
    weight = tl.exp(x - tl.max(x, axis=1)[:, None])
    tl.store(out_ptr + place, weight / tl.sum(weight, axis=1)[:, None], mask=mask)


def _by_rows(rows: tuple[int, ...], warps: tuple[int, ...]) -> list[triton.Config]:
    return [triton.Config({"ROWS": each}, num_warps=count) for each in rows for count in warps]


@triton.autotune(configs=_by_rows((1, 2, 4, 8), (1, 2, 4, 8, 16)), key=["rows", "columns"])
@triton.jit
def norm_forward(
    x_ptr, w_ptr, b_ptr, out_ptr, mean_ptr, rstd_ptr, rows, columns, WIDTH: tl.constexpr, ROWS: tl.constexpr
):  # fmt: skip
    lines = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    lanes = tl.arange(0, WIDTH)
    inside = lines < rows
    mask = inside[:, None] & (lanes[None, :] < columns)
    place = lines[:, None] * columns + lanes[None, :]
    x = tl.load(x_ptr + place, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=1) / columns
    centred = tl.where(mask, x - mean[:, None], 0.0)
    rstd = 1 / tl.sqrt(tl.sum(centred * centred, axis=1) / columns + 1e-5)
    tl.store(mean_ptr + lines, mean, mask=inside)
    tl.store(rstd_ptr + lines, rstd, mask=inside)
    weight = tl.load(w_ptr + lanes, mask=lanes < columns, other=0.0)
    bias = tl.load(b_ptr + lanes, mask=lanes < columns, other=0.0)
    result = centred * rstd[:, None] * weight[None, :] + bias[None, :]
    tl.store(out_ptr + place, result.to(tl.float16), mask=mask)


@triton.jit
def _row_backward(dy_ptr, x_ptr, mean_ptr, rstd_ptr, dx_ptr, weight, row, columns, lanes, mask):
    dy = tl.load(dy_ptr + row * columns + lanes, mask=mask, other=0.0).to(tl.float32)
    x = tl.load(x_ptr + row * columns + lanes, mask=mask, other=0.0).to(tl.float32)
    rstd = tl.load(rstd_ptr + row)
    normal = tl.where(mask, (x - tl.load(mean_ptr + row)) * rstd, 0.0)
    scaled = weight * dy
    along = tl.sum(normal * scaled, axis=0) / columns
    dx = (scaled - (normal * along + tl.sum(scaled, axis=0) / columns)) * rstd
    tl.store(dx_ptr + row * columns + lanes, dx, mask=mask)
    return dy * normal, dy


@triton.autotune(
    configs=_by_rows((4, 16, 64, 256), _WARPS), key=["rows", "columns"], reset_to_zero=["dw_ptr", "db_ptr"]
)
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
        own_dw, own_db = _row_backward(
            dy_ptr, x_ptr, mean_ptr, rstd_ptr, dx_ptr, weight, row, columns, lanes, mask
        )  # fmt: skip
        dw += own_dw
        db += own_db
    tl.atomic_add(dw_ptr + lanes, dw, mask=mask)
    tl.atomic_add(db_ptr + lanes, db, mask=mask)


@triton.autotune(configs=_by_rows((4, 8, 16, 32, 64), _WARPS), key=["rows", "columns"], reset_to_zero=["lock_ptr"])
@triton.jit
def norm_backward_lock(
    dy_ptr, x_ptr, w_ptr, mean_ptr, rstd_ptr, dx_ptr, dw_ptr, db_ptr, lock_ptr, rows, columns, GROUPS: tl.constexpr,
    WIDTH: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    lanes = tl.arange(0, WIDTH)
    mask = lanes < columns
    weight = tl.load(w_ptr + lanes, mask=mask, other=0.0)
    dw = tl.zeros((WIDTH,), dtype=tl.float32)
    db = tl.zeros((WIDTH,), dtype=tl.float32)
    first = tl.program_id(0) * ROWS
    for row in range(first, min(first + ROWS, rows)):
        own_dw, own_db = _row_backward(
            dy_ptr, x_ptr, mean_ptr, rstd_ptr, dx_ptr, weight, row, columns, lanes, mask
        )  # fmt: skip
        dw += own_dw
        db += own_db
    group = tl.program_id(0) % GROUPS
    here = group * columns + lanes
    while tl.atomic_cas(lock_ptr + group, 0, 1) == 1:
        pass
    if tl.load(lock_ptr + GROUPS + group) == 0:
        tl.atomic_xchg(lock_ptr + GROUPS + group, 1)
    else:
        dw += tl.load(dw_ptr + here, mask=mask)
        db += tl.load(db_ptr + here, mask=mask)
    tl.store(dw_ptr + here, dw, mask=mask)
    tl.store(db_ptr + here, db, mask=mask)
    tl.debug_barrier()
    tl.atomic_xchg(lock_ptr + group, 0)


@triton.autotune(configs=_by_rows((1, 2), _WARPS), key=["rows", "columns"], restore_value=["x_ptr"])
@triton.jit
def norm_in_place(x_ptr, w_ptr, rows, columns, WIDTH: tl.constexpr, ROWS: tl.constexpr):
    lines = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    lanes = tl.arange(0, WIDTH)
    mask = (lines[:, None] < rows) & (lanes[None, :] < columns)
    place = lines[:, None] * columns + lanes[None, :]
    x = tl.load(x_ptr + place, mask=mask, other=0.0).to(tl.float32)
    rstd = 1 / tl.sqrt(tl.sum(x * x, axis=1) / columns + 1e-5)
    weight = tl.load(w_ptr + lanes, mask=lanes < columns, other=0.0)
    tl.store(x_ptr + place, (x * rstd[:, None] * weight[None, :]).to(tl.float16), mask=mask)


_ENTROPY = [
    triton.Config({"BLOCK": block}, num_warps=warps) for block in (1024, 2048, 4096, 8192) for warps in (4, 8, 16, 32)
]


@triton.autotune(configs=_ENTROPY, key=["columns"])
@triton.jit
def cross_entropy(logits_ptr, labels_ptr, loss_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    top, total = -float("inf"), 0.0
    for start in range(0, columns, BLOCK):
        lanes = start + tl.arange(0, BLOCK)
        x = tl.load(logits_ptr + row * columns + lanes, mask=lanes < columns, other=float("-inf")).to(tl.float32)
        highest = tl.maximum(top, tl.max(x, axis=0))
        total = total * tl.exp(top - highest) + tl.sum(tl.exp(x - highest), axis=0)
        top = highest
    chosen = tl.load(logits_ptr + row * columns + tl.load(labels_ptr + row)).to(tl.float32)
    tl.store(loss_ptr + row, tl.log(total) + top - chosen)


_SEGMENTS = [triton.Config({"BLOCK": block}, num_warps=warps) for block in (8, 16, 32, 64) for warps in (1, 2, 4, 8)]


@triton.autotune(configs=_SEGMENTS, key=["segments"])
@triton.jit
def segment_sum(x_ptr, bounds_ptr, out_ptr, segments, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    segment = tl.program_id(0)
    lanes = tl.arange(0, WIDTH)
    total = tl.zeros((WIDTH,), dtype=tl.float32)
    end = tl.load(bounds_ptr + segment + 1)
    for start in range(tl.load(bounds_ptr + segment), end, BLOCK):
        rows = start + tl.arange(0, BLOCK)
        total += tl.sum(tl.load(x_ptr + rows[:, None] * WIDTH + lanes[None, :], mask=rows[:, None] < end, other=0.0), 0)
    tl.store(out_ptr + segment * WIDTH + lanes, total)


@triton.autotune(configs=_by_rows((1, 2, 4, 8), (1, 2, 4, 8)), key=["rows"])
@triton.jit
def gather(table_ptr, index_ptr, out_ptr, rows, WIDTH: tl.constexpr, ROWS: tl.constexpr):
    lines = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    lanes = tl.arange(0, WIDTH)
    index = tl.load(index_ptr + lines, mask=lines < rows, other=0)
    mask = (lines < rows)[:, None]
    values = tl.load(table_ptr + index[:, None] * WIDTH + lanes[None, :], mask=mask)
    tl.store(out_ptr + lines[:, None].to(tl.int64) * WIDTH + lanes[None, :], values, mask=mask)


def _softmax(device: str, is_small: bool) -> Workload:
    rows, columns = (9, 128) if is_small else (8192, 2048)
    x = torch.randn(rows, columns, device=device)
    arguments = (x, torch.zeros_like(x), rows, columns, columns)
    return Workload(
        softmax, arguments, lambda meta: (triton.cdiv(rows, meta["ROWS"]),), lambda: {"out_ptr": x.softmax(1)}
    )


def _rows_of(device: str, is_small: bool) -> tuple[torch.Tensor, int, int]:
    rows, columns = (40, 128) if is_small else (16384, 2048)
    return torch.randn(rows, columns, device=device, dtype=torch.float16), rows, columns


def _norm_forward(device: str, is_small: bool) -> Workload:
    x, rows, columns = _rows_of(device, is_small)
    weight, bias = (torch.rand(columns, device=device) for _ in range(2))
    sums = [torch.zeros(rows, device=device) for _ in range(2)]
    arguments = (x, weight, bias, torch.zeros_like(x), *sums, rows, columns, columns)

    def expected() -> Mapping[str, torch.Tensor]:
        return {"out_ptr": torch.nn.functional.layer_norm(x.float(), (columns,), weight, bias, 1e-5)}

    return Workload(norm_forward, arguments, lambda meta: (triton.cdiv(rows, meta["ROWS"]),), expected)


def _gradients(x: torch.Tensor, dy: torch.Tensor, weight: torch.Tensor) -> dict[str, torch.Tensor]:
    wide, scale = x.float().requires_grad_(), weight.clone().requires_grad_()
    bias = torch.zeros_like(weight).requires_grad_()
    out = torch.nn.functional.layer_norm(wide, weight.shape, scale, bias, 1e-5)
    found = torch.autograd.grad(out, (wide, scale, bias), dy.float())
    return dict(zip(("dx_ptr", "dw_ptr", "db_ptr"), found, strict=True))


def _norm_backward(device: str, is_small: bool) -> Workload:
    x, rows, columns = _rows_of(device, is_small)
    dy, weight = torch.randn_like(x), torch.rand(columns, device=device)
    mean, rstd = x.float().mean(1), x.float().var(1, unbiased=False).add(1e-5).rsqrt()
    sums = [torch.zeros(columns, device=device) for _ in range(2)]
    arguments = (dy, x, weight, mean, rstd, torch.zeros_like(x), *sums, rows, columns, columns)
    grid = lambda meta: (triton.cdiv(rows, meta["ROWS"]),)  # noqa: E731
    return Workload(norm_backward, arguments, grid, lambda: _gradients(x, dy, weight))


def _norm_backward_lock(device: str, is_small: bool) -> Workload:
    work = _norm_backward(device, is_small)
    *given, dx, dw, db, rows, columns, width = work.arguments
    groups = 4 if is_small else 64
    partial = [torch.zeros(groups, columns, device=device) for _ in (dw, db)]
    locks = torch.zeros(2 * groups, device=device, dtype=torch.int32)
    arguments = (*given, dx, *partial, locks, rows, columns, groups, width)
    return Workload(norm_backward_lock, arguments, work.grid, lambda: {"dx_ptr": work.expected()["dx_ptr"]})


def _norm_in_place(device: str, is_small: bool) -> Workload:
    x, rows, columns = _rows_of(device, is_small)
    before, weight = x.clone(), torch.rand(columns, device=device)

    def expected() -> Mapping[str, torch.Tensor]:
        wide = before.float()
        return {"x_ptr": wide * wide.square().mean(1, keepdim=True).add(1e-5).rsqrt() * weight}

    arguments = (x, weight, rows, columns, columns)
    return Workload(norm_in_place, arguments, lambda meta: (triton.cdiv(rows, meta["ROWS"]),), expected)


def _cross_entropy(device: str, is_small: bool) -> Workload:
    rows, columns = (5, 1500) if is_small else (4096, 32768)
    logits = torch.randn(rows, columns, device=device, dtype=torch.float16)
    labels = torch.randint(columns, (rows,), device=device)

    def expected() -> Mapping[str, torch.Tensor]:
        return {"loss_ptr": torch.nn.functional.cross_entropy(logits.float(), labels, reduction="none")}

    arguments = (logits, labels, torch.zeros(rows, device=device), columns)
    return Workload(cross_entropy, arguments, lambda meta: (rows,), expected)


def _segment_sum(device: str, is_small: bool) -> Workload:
    segments, longest, width = (6, 40, 64) if is_small else (8192, 256, 128)
    lengths = torch.randint(1, longest, (segments,), device=device)
    bounds = torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).to(torch.int32)
    x = torch.randn(int(bounds[-1]), width, device=device)

    def expected() -> Mapping[str, torch.Tensor]:
        owner = torch.repeat_interleave(torch.arange(segments, device=device), lengths)
        return {"out_ptr": torch.zeros(segments, width, device=device).index_add_(0, owner, x)}

    arguments = (x, bounds, torch.zeros(segments, width, device=device), segments, width)
    return Workload(segment_sum, arguments, lambda meta: (segments,), expected)


def _gather(device: str, is_small: bool) -> Workload:
    entries, rows, width = (50, 33, 64) if is_small else (65536, 131072, 512)
    table = torch.randn(entries, width, device=device, dtype=torch.float16)
    index = torch.randint(entries, (rows,), device=device)
    arguments = (table, index, torch.zeros(rows, width, device=device, dtype=torch.float16), rows, width)
    grid = lambda meta: (triton.cdiv(rows, meta["ROWS"]),)  # noqa: E731
    return Workload(gather, arguments, grid, lambda: {"out_ptr": table[index]})


ROWS: dict[str, Build] = {
    "softmax": _softmax,
    "norm-forward": _norm_forward,
    "norm-backward-lock": _norm_backward_lock,
    "norm-backward": _norm_backward,
    "norm-in-place": _norm_in_place,
    "cross-entropy": _cross_entropy,
    "segment-sum": _segment_sum,
    "gather": _gather,
}
