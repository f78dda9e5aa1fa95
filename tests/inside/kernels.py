"""Twelve kernels whose lines are transcribed in `transcripts`."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def online_softmax(x, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    high = tl.full((), float("-inf"), tl.float32)
    total = tl.zeros((), tl.float32)
    for start in range(0, n, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        part = tl.load(x + row * n + columns, mask=columns < n, other=float("-inf"))
        largest = tl.maximum(high, tl.max(part, 0))
        total = total * tl.exp(high - largest) + tl.sum(tl.exp(part - largest), 0)
        high = largest
    tl.store(out + row, total)


@triton.jit
def combine_moments(mean, spread, count, other_mean, other_spread, other_count):
    both = count + other_count
    delta = other_mean - mean
    mean = mean + delta * other_count / both
    spread = spread + other_spread + delta * delta * count * other_count / both
    return mean, spread, both


@triton.jit
def welford(x, out, n, BLOCK: tl.constexpr):
    lanes = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mean = tl.zeros((BLOCK,), tl.float32)
    spread = tl.zeros((BLOCK,), tl.float32)
    count = 0.0
    for step in range(n):
        value = tl.load(x + lanes * n + step)
        mean, spread, count = combine_moments(mean, spread, count, value, 0.0, 1.0)
    tl.store(out + lanes, spread / count)


@triton.jit
def attention(q, k, v, out, scale, LENGTH: tl.constexpr, BLOCK: tl.constexpr, DIM: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    dims = tl.arange(0, DIM)
    query = tl.load(q + rows[:, None] * DIM + dims[None, :])
    high = tl.full((BLOCK,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    acc = tl.zeros((BLOCK, DIM), tl.float32)
    for start in range(0, LENGTH, BLOCK):
        keys = start + tl.arange(0, BLOCK)
        scores = tl.dot(query, tl.trans(tl.load(k + keys[:, None] * DIM + dims[None, :]))) * scale
        largest = tl.maximum(high, tl.max(scores, 1))
        weights = tl.exp(scores - largest[:, None])
        decay = tl.exp(high - largest)
        total = total * decay + tl.sum(weights, 1)
        acc = acc * decay[:, None] + tl.dot(weights, tl.load(v + keys[:, None] * DIM + dims[None, :]))
        high = largest
    acc /= total[:, None]
    tl.store(out + rows[:, None] * DIM + dims[None, :], acc)


@triton.jit
def product(a, b, c, M, N, K, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inner = tl.arange(0, BLOCK)
    left = a + rows[:, None] * K + inner[None, :]
    right = b + inner[:, None] * N + columns[None, :]
    acc = tl.zeros((BLOCK, BLOCK), tl.float32)
    for step in range(0, K, BLOCK):
        rest = inner < K - step
        x = tl.load(left, mask=(rows[:, None] < M) & rest[None, :], other=0.0)
        y = tl.load(right, mask=rest[:, None] & (columns[None, :] < N), other=0.0)
        acc = tl.dot(x, y, acc)
        left += BLOCK
        right += BLOCK * N
    tl.store(c + rows[:, None] * N + columns[None, :], acc, mask=(rows[:, None] < M) & (columns[None, :] < N))


@triton.jit
def scan(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + offsets, mask=offsets < n, other=0)
    sums = tl.cumsum(values, 0)
    tl.store(out + offsets, sums, mask=offsets < n)


@triton.jit
def sort(x, out, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + offsets)
    ordered = tl.sort(values)
    tl.store(out + offsets, ordered)


@triton.jit
def gather(x, index, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    places = tl.load(index + offsets, mask=inside, other=0)
    picked = tl.load(x + places, mask=inside & (places >= 0), other=-1.0)
    tl.store(out + offsets, picked, mask=inside)


@triton.jit
def histogram(x, bins, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    keys = tl.load(x + offsets, mask=offsets < n, other=0)
    old = tl.atomic_add(bins + keys, 1, mask=offsets < n)
    tl.store(x + offsets, old, mask=offsets < n)


@triton.jit
def scale_and_shift(value, scale, shift):
    scaled = value * scale
    return scaled + shift


@triton.jit
def activate(value, scale, shift):
    inner = scale_and_shift(value, scale, shift)
    return tl.maximum(inner, 0.0)


@triton.jit
def helpers(x, out, scale, shift, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    first = activate(tl.load(x + offsets), scale, shift)
    second = activate(first, scale, -shift)
    tl.store(out + offsets, second)


@triton.jit
def nested(x, out, ROWS: tl.constexpr, COLUMNS: tl.constexpr, BLOCK: tl.constexpr):
    lanes = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), tl.int32)
    for i in range(ROWS):
        for j in range(COLUMNS):
            value = tl.load(x + lanes + i * COLUMNS + j)
            acc += value * (i - j)
        if i == 1:
            acc = -acc
    tl.store(out + lanes, acc)


@triton.jit
def unrolled(x, out, POWER: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + offsets).to(tl.float32)
    result = value
    for step in tl.static_range(1, POWER):
        result = result * value + step
    if POWER > 2:  # noqa: SIM108 - a branch of the compiler
        result = -result
    else:
        result = result * 0.0
    tl.store(out + offsets, result.to(tl.float16))


@triton.jit
def descriptors(source, target, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    row = tl.program_id(0) * BLOCK_M
    column = tl.program_id(1) * BLOCK_N
    tile = source.load([row, column])
    doubled = tile + tile
    target.store([row, column], doubled)
