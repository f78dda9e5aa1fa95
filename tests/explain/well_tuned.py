"""Kernels that leave little to gain: those of Triton's tutorials, and what training frameworks fuse."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import triton
import triton.language as tl

from tests.explain.planted import KernelCall, WellTuned, cdiv, random
from tests.explain.planted_compute import add_vectors, factors, norms_by_lane, softmax_row, tiled, two_vectors
from tests.explain.planted_memory import over, transpose_by_tile, transposed

HALF, SINGLE = torch.float16, torch.float32


@triton.jit
def swiglu(a_ptr, b_ptr, out_ptr, n, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = index < n
    a = tl.load(a_ptr + index, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(b_ptr + index, mask=inside, other=0.0).to(tl.float32)
    tl.store(out_ptr + index, (a * tl.sigmoid(a) * b).to(tl.float16), mask=inside)


@triton.jit
def dropout(x_ptr, out_ptr, n, p, seed, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = index < n
    x = tl.load(x_ptr + index, mask=inside)
    tl.store(out_ptr + index, tl.where(tl.rand(seed, index) > p, x / (1 - p), 0.0), mask=inside)


@triton.jit
def layer_norm(x_ptr, w_ptr, b_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * columns
    index = tl.arange(0, BLOCK)
    inside = index < columns
    x = tl.load(x_ptr + row + index, mask=inside, other=0.0).to(tl.float32)
    mean = tl.sum(x, 0) / columns
    centred = tl.where(inside, x - mean, 0.0)
    scale = 1 / tl.sqrt(tl.sum(centred * centred, 0) / columns + 1e-5)
    w = tl.load(w_ptr + index, mask=inside)
    b = tl.load(b_ptr + index, mask=inside)
    tl.store(out_ptr + row + index, (centred * scale * w + b).to(tl.float16), mask=inside)


@triton.jit
def rms_norm(x_ptr, w_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * columns
    index = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row + index, mask=index < columns, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x, 0) / columns + 1e-5)
    w = tl.load(w_ptr + index, mask=index < columns).to(tl.float32)
    tl.store(out_ptr + row + index, (x * scale * w).to(tl.float16), mask=index < columns)


@triton.jit
def rotary(x_ptr, cos_ptr, sin_ptr, out_ptr, length, HEADS: tl.constexpr, HALF_DIM: tl.constexpr):
    token = tl.program_id(0)
    place = token % length
    lane = tl.arange(0, HALF_DIM)
    head = tl.arange(0, HEADS)
    start = token.to(tl.int64) * HEADS * HALF_DIM * 2
    left = start + head[:, None] * HALF_DIM * 2 + lane[None, :]
    cos = tl.load(cos_ptr + place * HALF_DIM + lane)[None, :]
    sin = tl.load(sin_ptr + place * HALF_DIM + lane)[None, :]
    x = tl.load(x_ptr + left).to(tl.float32)
    y = tl.load(x_ptr + left + HALF_DIM).to(tl.float32)
    tl.store(out_ptr + left, (x * cos - y * sin).to(tl.float16))
    tl.store(out_ptr + left + HALF_DIM, (y * cos + x * sin).to(tl.float16))


@triton.jit
def cross_entropy(x_ptr, target_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    best, total = float("-inf"), 0.0
    for start in range(0, columns, BLOCK):
        index = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * columns + index, mask=index < columns, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(best, tl.max(x, 0))
        total = total * tl.exp(best - higher) + tl.sum(tl.exp(x - higher), 0)
        best = higher
    chosen = tl.load(x_ptr + row * columns + tl.load(target_ptr + row)).to(tl.float32)
    tl.store(out_ptr + row, tl.log(total) + best - chosen)


@triton.jit
def embedding(table_ptr, ids_ptr, out_ptr, width, BLOCK: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    index = tl.arange(0, BLOCK)
    row = tl.load(ids_ptr + token).to(tl.int64)
    x = tl.load(table_ptr + tl.multiple_of(row * width, 16) + index, mask=index < width)
    tl.store(out_ptr + token * width + index, x, mask=index < width)


@triton.jit
def column_sums(x_ptr, out_ptr, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    first = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    x = tl.load(x_ptr + first[:, None] * columns + column[None, :])
    tl.store(out_ptr + tl.program_id(1) * columns + column, tl.sum(x, 0))


@triton.jit
def quantize(x_ptr, out_ptr, scales_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    index = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + index).to(tl.float32)
    scale = tl.max(tl.abs(x), 0) / 127
    tl.store(scales_ptr + row, scale)
    tl.store(out_ptr + row * columns + index, (x / scale).to(tl.int8))


@triton.jit
def softmax_backward(y_ptr, dy_ptr, dx_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * columns
    index = tl.arange(0, BLOCK)
    y = tl.load(y_ptr + row + index)
    dy = tl.load(dy_ptr + row + index)
    tl.store(dx_ptr + row + index, y * (dy - tl.sum(y * dy, 0)))


@triton.jit
def attention(q_ptr, k_ptr, v_ptr, out_ptr, length, scale, M: tl.constexpr, N: tl.constexpr, D: tl.constexpr):
    base = tl.program_id(1).to(tl.int64) * length * D
    rows = tl.program_id(0) * M + tl.arange(0, M)
    lanes = tl.arange(0, D)
    q = tl.load(q_ptr + base + rows[:, None] * D + lanes[None, :])
    best = tl.full((M,), -float("inf"), tl.float32)
    total = tl.zeros((M,), tl.float32)
    sums = tl.zeros((M, D), tl.float32)
    for start in range(0, length, N):
        keys = start + tl.arange(0, N)
        k = tl.load(k_ptr + base + keys[None, :] * D + lanes[:, None])
        scores = tl.dot(q, k) * (scale * 1.44269504)
        higher = tl.maximum(best, tl.max(scores, 1))
        weights = tl.exp2(scores - higher[:, None])
        shrink = tl.exp2(best - higher)
        total = total * shrink + tl.sum(weights, 1)
        v = tl.load(v_ptr + base + keys[:, None] * D + lanes[None, :])
        sums = tl.dot(weights.to(tl.float16), v, sums * shrink[:, None])
        best = higher
    tl.store(out_ptr + base + rows[:, None] * D + lanes[None, :], (sums / total[:, None]).to(tl.float16))


@triton.jit
def grouped_product(
    a_ptr, b_ptr, c_ptr, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, GROUP: tl.constexpr
):
    across = tl.cdiv(n, N)
    row, column = tl.swizzle2d(tl.program_id(0) // across, tl.program_id(0) % across, tl.cdiv(m, M), across, GROUP)
    rows, columns, inner = row * M + tl.arange(0, M), column * N + tl.arange(0, N), tl.arange(0, K)
    a_at = a_ptr + rows[:, None] * k + inner[None, :]
    b_at = b_ptr + inner[:, None] * n + columns[None, :]
    total = tl.zeros((M, N), tl.float32)
    for _ in range(0, k, K):
        total = tl.dot(tl.load(a_at), tl.load(b_at), total)
        a_at += K
        b_at += K * n
    tl.store(c_ptr + rows[:, None] * n + columns[None, :], total)


@triton.jit
def product_of_rows(a_ptr, b_ptr, c_ptr, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    rows = tl.program_id(0) * M + tl.arange(0, M)
    columns = tl.program_id(1) * N + tl.arange(0, N)
    inner = tl.arange(0, K)
    total = tl.zeros((M, N), tl.float32)
    for start in range(0, k, K):
        a = tl.load(a_ptr + rows[:, None] * k + start + inner[None, :])
        b = tl.load(b_ptr + columns[None, :] * k + start + inner[:, None])
        total = tl.dot(a, b, total, input_precision="tf32")
    tl.store(c_ptr + rows[:, None] * n + columns[None, :], total)


def factors_of_rows(large: bool, device: str) -> dict[str, Any]:
    side, inner = (4096, 2048) if large else (256, 256)
    a, b = (random(side, inner, device=device, seed=s) for s in (0, 1))
    return {"a_ptr": a, "b_ptr": b, "c_ptr": torch.empty(side, side, device=device), "m": side, "n": side, "k": inner}


def flat(n: int, *names: str, dtype: torch.dtype = SINGLE, **more: Any) -> Callable[[bool, str], dict[str, Any]]:
    def inputs(large: bool, device: str) -> dict[str, Any]:
        size = n if large else 3000
        found = {name: random(size, device=device, dtype=dtype, seed=i) for i, name in enumerate(names)}
        return {**found, "out_ptr": torch.empty(size, device=device, dtype=dtype), "n": size, **more}

    return inputs


def by_rows(
    shape: tuple[int, int],
    *names: str,
    dtype: torch.dtype = SINGLE,
    weights: tuple[str, ...] = (),
    out: str = "out_ptr",
) -> Callable[[bool, str], dict[str, Any]]:
    def inputs(large: bool, device: str) -> dict[str, Any]:
        rows, columns = shape if large else (3, min(shape[1], 512))
        found: dict[str, Any] = {
            name: random(rows, columns, device=device, dtype=dtype, seed=i) for i, name in enumerate(names)
        }
        found |= {name: random(columns, device=device, seed=9 + i) for i, name in enumerate(weights)}
        return {**found, out: torch.empty(rows, columns, device=device, dtype=dtype), "columns": columns}

    return inputs


def rows(inputs: Mapping[str, Any]) -> tuple[int, ...]:
    return (int(next(value for value in inputs.values() if getattr(value, "ndim", 0) == 2).shape[0]),)


def whole_row(inputs: Mapping[str, Any]) -> dict[str, Any]:
    return {**inputs, "BLOCK": triton.next_power_of_2(inputs["columns"])}


def by_row(kernel: Any, **meta: Any) -> KernelCall:
    return KernelCall(kernel, rows, meta, whole_row)


def multiplied(inputs: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    return {"c_ptr": inputs["a_ptr"].float() @ inputs["b_ptr"].float()}


def halves(large: bool, device: str) -> dict[str, Any]:
    heads, length, dim = (64, 4096, 64) if large else (2, 128, 64)
    q, k, v = (random(heads, length, dim, device=device, dtype=HALF, seed=s) for s in range(3))
    return {"q_ptr": q, "k_ptr": k, "v_ptr": v, "out_ptr": torch.empty_like(q), "length": length, "scale": 0.125}


def attended(inputs: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    q, k, v = (inputs[name].float() for name in ("q_ptr", "k_ptr", "v_ptr"))
    return {"out_ptr": torch.softmax(q @ k.transpose(1, 2) * inputs["scale"], -1) @ v}


def tokens(large: bool, device: str) -> dict[str, Any]:
    count, length, heads, half = (16384, 4096, 32, 64) if large else (6, 4, 2, 16)
    x = random(count, heads * half * 2, device=device, dtype=HALF)
    angles = torch.outer(torch.arange(length, device=device).float(), torch.rand(half, device=device))
    given = {"x_ptr": x, "cos_ptr": angles.cos(), "sin_ptr": angles.sin(), "out_ptr": torch.empty_like(x)}
    return {**given, "length": length, "HEADS": heads, "HALF_DIM": half}


def rotated(inputs: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    heads, half = inputs["HEADS"], inputs["HALF_DIM"]
    x = inputs["x_ptr"].float().view(-1, heads, 2, half)
    place = torch.arange(x.shape[0], device=x.device) % inputs["length"]
    cos, sin = (inputs[name][place][:, None, :] for name in ("cos_ptr", "sin_ptr"))
    left, right = x[:, :, 0], x[:, :, 1]
    return {"out_ptr": torch.stack([left * cos - right * sin, right * cos + left * sin], 2)}


def logits(large: bool, device: str) -> dict[str, Any]:
    count, classes = (8192, 32768) if large else (4, 3000)
    x = random(count, classes, device=device)
    target = torch.arange(count, device=device) * 7 % classes
    return {"x_ptr": x, "target_ptr": target, "out_ptr": torch.empty(count, device=device), "columns": classes}


def looked_up(large: bool, device: str) -> dict[str, Any]:
    words, width, count = (32768, 4096, 16384) if large else (20, 64, 7)
    table = random(words, width, device=device, dtype=HALF)
    ids = (torch.arange(count, device=device) * 7919) % words
    return {
        "table_ptr": table,
        "ids_ptr": ids,
        "out_ptr": torch.empty(count, width, device=device, dtype=HALF),
        "width": width,
    }


def summed(large: bool, device: str) -> dict[str, Any]:
    count, columns = (16384, 8192) if large else (256, 128)
    out = torch.empty(count // 128, columns, device=device)
    return {"x_ptr": random(count, columns, device=device), "out_ptr": out, "rows": count, "columns": columns}


def to_bytes(large: bool, device: str) -> dict[str, Any]:
    given = by_rows((16384, 8192), "x_ptr", dtype=HALF)(large, device)
    x = given["x_ptr"]
    scales = torch.empty(x.shape[0], device=device)
    return {**given, "out_ptr": torch.empty_like(x, dtype=torch.int8), "scales_ptr": scales}


def normalized(inputs: Mapping[str, Any], *, centred: bool) -> dict[str, torch.Tensor]:
    x = inputs["x_ptr"].float()
    if centred:
        return {"out_ptr": torch.nn.functional.layer_norm(x, x.shape[1:], inputs["w_ptr"], inputs["b_ptr"])}
    return {"out_ptr": x * torch.rsqrt((x * x).mean(1, keepdim=True) + 1e-5) * inputs["w_ptr"]}


def gradient(inputs: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    y, dy = inputs["y_ptr"], inputs["dy_ptr"]
    return {"dx_ptr": y * (dy - (y * dy).sum(1, keepdim=True))}


def gated(inputs: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    a, b = inputs["a_ptr"].float(), inputs["b_ptr"].float()
    return {"out_ptr": a * torch.sigmoid(a) * b}


def many_norms(large: bool, device: str) -> dict[str, Any]:
    count, columns = (16384, 8192) if large else (5, 2048)
    x = random(count, columns, device=device)
    return {"x_ptr": x, "out_ptr": torch.empty(count, device=device), "columns": columns}


def softmaxed(inputs: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    return {"out_ptr": torch.softmax(inputs["x_ptr"], 1)}


def grouped(m: int, n: int, k: int, **meta: Any) -> KernelCall:
    meta = {"M": m, "N": n, "K": k, "GROUP": 8, **meta}
    return KernelCall(grouped_product, lambda i: (cdiv(i["m"], m) * cdiv(i["n"], n),), meta)


FAST = {"PRECISION": "tf32"}
WELL_TUNED = (
    WellTuned(
        "vector add",
        KernelCall(add_vectors, over("x_ptr", 1024), {"BLOCK": 1024}),
        two_vectors(1 << 26),
        lambda i: {"out_ptr": i["x_ptr"] + i["y_ptr"]},
    ),
    WellTuned("softmax, 1,024 columns", by_row(softmax_row, num_warps=4), by_rows((65536, 1024), "x_ptr"), softmaxed),
    WellTuned("softmax, 8,192 columns", by_row(softmax_row, num_warps=8), by_rows((16384, 8192), "x_ptr"), softmaxed),
    WellTuned(
        "softmax backward",
        by_row(softmax_backward, num_warps=8),
        by_rows((16384, 4096), "y_ptr", "dy_ptr", out="dx_ptr"),
        gradient,
    ),
    WellTuned(
        "product, fp16",
        grouped(128, 256, 64, num_warps=8, num_stages=3),
        factors(HALF, 8192, 8192, 4096),
        multiplied,
        2e-2,
    ),
    WellTuned(
        "product, bf16",
        grouped(128, 128, 64, num_warps=8, num_stages=3),
        factors(torch.bfloat16, 8192, 8192, 4096),
        multiplied,
        5e-2,
    ),
    WellTuned(
        "product, tf32",
        tiled(product_of_rows, 128, 128, 32, num_warps=8, num_stages=4),
        factors_of_rows,
        lambda i: {"c_ptr": i["a_ptr"] @ i["b_ptr"].t()},
        2e-2,
    ),
    WellTuned(
        "layer norm",
        by_row(layer_norm, num_warps=8),
        by_rows((16384, 4096), "x_ptr", dtype=HALF, weights=("w_ptr", "b_ptr")),
        lambda i: normalized(i, centred=True),
        1e-2,
    ),
    WellTuned(
        "rms norm",
        by_row(rms_norm, num_warps=8),
        by_rows((16384, 8192), "x_ptr", dtype=HALF, weights=("w_ptr",)),
        lambda i: normalized(i, centred=False),
        1e-2,
    ),
    WellTuned(
        "swiglu",
        KernelCall(swiglu, over("a_ptr", 2048), {"BLOCK": 2048}),
        flat(1 << 26, "a_ptr", "b_ptr", dtype=HALF),
        gated,
        1e-2,
    ),
    WellTuned(
        "dropout",
        KernelCall(dropout, over("x_ptr", 1024), {"BLOCK": 1024}),
        flat(1 << 26, "x_ptr", p=0.0, seed=7),
        lambda i: {"out_ptr": i["x_ptr"]},
    ),
    WellTuned("rotary embedding", KernelCall(rotary, lambda i: (i["x_ptr"].shape[0],)), tokens, rotated, 1e-2),
    WellTuned(
        "cross entropy",
        KernelCall(cross_entropy, lambda i: (i["x_ptr"].shape[0],), {"BLOCK": 8192, "num_warps": 16}),
        logits,
        lambda i: {"out_ptr": torch.nn.functional.cross_entropy(i["x_ptr"], i["target_ptr"], reduction="none")},
    ),
    WellTuned(
        "embedding",
        KernelCall(
            embedding,
            lambda i: (i["ids_ptr"].numel(),),
            {},
            lambda i: {**i, "BLOCK": triton.next_power_of_2(i["width"])},
        ),
        looked_up,
        lambda i: {"out_ptr": i["table_ptr"][i["ids_ptr"]]},
    ),
    WellTuned(
        "column sums",
        KernelCall(
            column_sums,
            lambda i: (i["columns"] // 128, i["rows"] // 128),
            {"ROWS": 128, "COLUMNS": 128, "num_warps": 8},
        ),
        summed,
        lambda i: {"out_ptr": i["x_ptr"].view(-1, 128, i["columns"]).sum(1)},
    ),
    WellTuned(
        "transpose",
        KernelCall(
            transpose_by_tile, lambda i: (cdiv(i["rows"], 64), cdiv(i["columns"], 64)), {"SIDE": 64, "num_warps": 8}
        ),
        transposed,
        lambda i: {"out_ptr": i["x_ptr"].t()},
    ),
    WellTuned(
        "quantize rows",
        by_row(quantize, num_warps=8),
        to_bytes,
        lambda i: {"scales_ptr": i["x_ptr"].float().abs().amax(1) / 127},
        1e-2,
    ),
    WellTuned(
        "norms of rows",
        KernelCall(norms_by_lane, rows, {"BLOCK": 2048, "num_warps": 8}),
        many_norms,
        lambda i: {"out_ptr": (i["x_ptr"] ** 2).sum(1)},
        0.5,
    ),
    WellTuned(
        "attention",
        KernelCall(
            attention,
            lambda i: (cdiv(i["length"], 128), i["q_ptr"].shape[0]),
            {"M": 128, "N": 64, "D": 64, "num_warps": 8, "num_stages": 3},
        ),
        halves,
        attended,
        2e-2,
    ),
    WellTuned(
        "copy of rows, fp16",
        KernelCall(
            embedding,
            lambda i: (i["ids_ptr"].numel(),),
            {"num_warps": 8},
            lambda i: {**i, "BLOCK": triton.next_power_of_2(i["width"])},
        ),
        lambda large, device: {
            **looked_up(large, device),
            "ids_ptr": torch.arange(16384 if large else 7, device=device),
        },
        lambda i: {"out_ptr": i["table_ptr"][i["ids_ptr"]]},
    ),
)
