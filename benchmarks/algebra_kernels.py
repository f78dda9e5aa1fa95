"""Kernels whose right and wrong variants `benchmarks.algebra` compares without a tolerance."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def softmax(x, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    values = tl.load(x + row * n + columns, mask=columns < n, other=-float("inf"))
    parts = tl.exp(values - tl.max(values, 0))
    total = tl.sum(parts, 0)
    tl.store(out + row * n + columns, parts / total, mask=columns < n)


@triton.jit
def online_softmax(x, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    high = -float("inf")
    total = 0.0
    for start in range(0, n, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        values = tl.load(x + row * n + columns, mask=columns < n, other=-float("inf"))
        largest = tl.maximum(high, tl.max(values, 0))
        total = total * tl.exp(high - largest) + tl.sum(tl.exp(values - largest), 0)
        high = largest
    for start in range(0, n, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        values = tl.load(x + row * n + columns, mask=columns < n, other=-float("inf"))
        tl.store(out + row * n + columns, tl.exp(values - high) / total, mask=columns < n)


@triton.jit
def row_sum(x, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = 0.0
    for start in range(0, n, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        values = tl.load(x + row * n + columns, mask=columns < n, other=0.0)
        total += tl.sum(values, 0)
    tl.store(out + row, total)


@triton.jit
def atomic_row_sum(x, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + row * n + columns, mask=columns < n, other=0.0)
    tl.atomic_add(out + row, tl.sum(values, 0))


@triton.jit
def layer_norm(x, weight, bias, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    inside = columns < n
    values = tl.load(x + row * n + columns, mask=inside, other=0.0)
    mean = tl.sum(values, 0) / n
    centred = tl.where(inside, values - mean, 0.0)
    variance = tl.sum(centred * centred, 0) / n
    scale = 1 / tl.sqrt(variance + 1e-5)
    w = tl.load(weight + columns, mask=inside)
    b = tl.load(bias + columns, mask=inside)
    tl.store(out + row * n + columns, centred * scale * w + b, mask=inside)


@triton.jit
def rms_norm(x, weight, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    inside = columns < n
    values = tl.load(x + row * n + columns, mask=inside, other=0.0)
    scale = tl.rsqrt(tl.sum(values * values, 0) / n + 1e-6)
    tl.store(out + row * n + columns, values * scale * tl.load(weight + columns, mask=inside), mask=inside)


@triton.jit
def product(a, b, c, M, N, K, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, K, BLOCK_K):
        inner = start + tl.arange(0, BLOCK_K)
        left = tl.load(a + rows[:, None] * K + inner[None, :], mask=inner[None, :] < K, other=0.0)
        right = tl.load(b + inner[:, None] * N + columns[None, :], mask=inner[:, None] < K, other=0.0)
        acc = tl.dot(left, right, acc)
    tl.store(c + rows[:, None] * N + columns[None, :], acc)


@triton.jit
def split_k_product(a, b, c, M, N, K, BLOCK: tl.constexpr, BLOCK_K: tl.constexpr, SPLIT: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(tl.program_id(2) * BLOCK_K, K, BLOCK_K * SPLIT):
        inner = start + tl.arange(0, BLOCK_K)
        left = tl.load(a + rows[:, None] * K + inner[None, :], mask=inner[None, :] < K, other=0.0)
        right = tl.load(b + inner[:, None] * N + columns[None, :], mask=inner[:, None] < K, other=0.0)
        acc += tl.dot(left, right)
    tl.atomic_add(c + rows[:, None] * N + columns[None, :], acc)


@triton.jit
def update(p, g, m, out, lr, decay, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    value = tl.load(p + offsets, mask=inside)
    gradient = tl.load(g + offsets, mask=inside)
    state = tl.load(m + offsets, mask=inside)
    step = 0.9 * state + gradient
    tl.store(out + offsets, value - lr * step - lr * decay * value, mask=inside)


@triton.jit
def gate(x, y, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    a = tl.load(x + offsets, mask=inside)
    b = tl.load(y + offsets, mask=inside)
    tl.store(out + offsets, a / (1.0 + tl.exp(-a)) * b, mask=inside)


@triton.jit
def rotate(x, y, angle, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    a = tl.load(x + offsets, mask=inside)
    b = tl.load(y + offsets, mask=inside)
    t = tl.load(angle + offsets, mask=inside)
    tl.store(out + offsets, a * tl.cos(t) - b * tl.sin(t), mask=inside)
