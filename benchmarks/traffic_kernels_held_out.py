"""Kernels that no rule of counting was made from: how well the rules hold elsewhere."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def traffic_held_gelu(x, y, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    value = tl.load(x + offs, mask=mask).to(tl.float32)
    value = 0.5 * value * (1 + tl.math.erf(value * 0.70710678))
    tl.store(y + offs, value.to(y.dtype.element_ty), mask=mask)


@triton.jit
def traffic_held_interleave(x, y, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + offs, mask=offs < n)
    even, odd = tl.split(tl.reshape(value, (BLOCK // 2, 2)))
    half = tl.program_id(0) * (BLOCK // 2) + tl.arange(0, BLOCK // 2)
    tl.store(y + half, even + odd, mask=half < n // 2)


@triton.jit
def traffic_held_rotary(x, cosine, sine, y, width, HALF: tl.constexpr):
    row = tl.program_id(0)
    offs = tl.arange(0, HALF)
    mask = offs < width // 2
    first = tl.load(x + row * width + offs, mask=mask)
    second = tl.load(x + row * width + width // 2 + offs, mask=mask)
    c = tl.load(cosine + row * (width // 2) + offs, mask=mask)
    s = tl.load(sine + row * (width // 2) + offs, mask=mask)
    tl.store(y + row * width + offs, first * c - second * s, mask=mask)
    tl.store(y + row * width + width // 2 + offs, second * c + first * s, mask=mask)


@triton.jit
def traffic_held_softmax_rows(x, y, rows, columns, M: tl.constexpr, N: tl.constexpr):
    m = tl.program_id(0) * M + tl.arange(0, M)
    n = tl.arange(0, N)
    offs = m[:, None] * columns + n[None, :]
    mask = (m < rows)[:, None] & (n < columns)[None, :]
    value = tl.load(x + offs, mask=mask, other=-float("inf")).to(tl.float32)
    value = tl.exp(value - tl.max(value, 1)[:, None])
    tl.store(y + offs, (value / tl.sum(value, 1)[:, None]).to(y.dtype.element_ty), mask=mask)


@triton.jit
def traffic_held_norm(x, y, mean_out, weight, columns, N: tl.constexpr):
    row = tl.program_id(0)
    n = tl.arange(0, N)
    mask = n < columns
    value = tl.load(x + row * columns + n, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(value, 0) / columns
    centred = tl.where(mask, value - mean, 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred, 0) / columns + 1e-5)
    tl.store(mean_out + row, mean)
    tl.store(
        y + row * columns + n, (centred * scale * tl.load(weight + n, mask=mask)).to(y.dtype.element_ty), mask=mask
    )


@triton.jit
def traffic_held_column_norm(x, y, rows, columns, M: tl.constexpr, N: tl.constexpr):
    n = tl.program_id(0) * N + tl.arange(0, N)
    total = tl.zeros((M, N), tl.float32)
    for start in range(0, rows, M):
        m = start + tl.arange(0, M)
        mask = (m < rows)[:, None] & (n < columns)[None, :]
        total += tl.load(x + m[:, None] * columns + n[None, :], mask=mask, other=0.0).to(tl.float32)
    tl.store(y + n, tl.sum(total, 0), mask=n < columns)


@triton.jit
def traffic_held_cross_entropy(logits, labels, losses, columns, N: tl.constexpr):
    row = tl.program_id(0)
    label = tl.load(labels + row)
    largest = -float("inf")
    for start in range(0, columns, N):
        n = start + tl.arange(0, N)
        largest = tl.maximum(
            largest, tl.max(tl.load(logits + row * columns + n, mask=n < columns, other=-float("inf")))
        )
    total = tl.zeros((N,), tl.float32)
    for start in range(0, columns, N):
        n = start + tl.arange(0, N)
        total += tl.exp(tl.load(logits + row * columns + n, mask=n < columns, other=-float("inf")) - largest)
    wanted = tl.load(logits + row * columns + label)
    tl.store(losses + row, tl.log(tl.sum(total)) + largest - wanted)


@triton.jit
def traffic_held_embedding_gradient(gradient, index, table, width, N: tl.constexpr):
    row = tl.program_id(0)
    n = tl.arange(0, N)
    mask = n < width
    tl.atomic_add(table + tl.load(index + row) * width + n, tl.load(gradient + row * width + n, mask=mask), mask=mask)


@triton.jit
def traffic_held_split_k(a, b, c, M, N, K, SPLIT: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(tl.program_id(2) * BK, K, SPLIT * BK):
        k = start + tl.arange(0, BK)
        left = tl.load(a + m[:, None] * K + k[None, :])
        right = tl.load(b + k[:, None] * N + n[None, :])
        total = tl.dot(left, right, total)
    tl.atomic_add(c + m[:, None] * N + n[None, :], total)


@triton.jit
def traffic_held_batched(a, b, c, K: tl.constexpr, M: tl.constexpr, N: tl.constexpr):
    batch = tl.program_id(2)
    m, n, k = tl.program_id(0) * M + tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    rows = tl.num_programs(0) * M
    left = tl.load(a + batch * rows * K + m[:, None] * K + k[None, :])
    right = tl.load(b + batch * K * N + k[:, None] * N + n[None, :])
    bias = tl.load(b + n)
    tl.store(c + batch * rows * N + m[:, None] * N + n[None, :], (tl.dot(left, right) + bias[None, :]).to(tl.bfloat16))


@triton.jit
def traffic_held_persistent(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    across = tl.cdiv(N, BN)
    for tile in range(tl.program_id(0), tl.cdiv(M, BM) * across, tl.num_programs(0)):
        m = tile // across * BM + tl.arange(0, BM)
        n = tile % across * BN + tl.arange(0, BN)
        total = tl.zeros((BM, BN), tl.float32)
        for start in range(0, K, BK):
            k = start + tl.arange(0, BK)
            left = tl.load(a + (m % M)[:, None] * K + k[None, :], mask=k[None, :] < K, other=0.0)
            right = tl.load(b + k[:, None] * N + (n % N)[None, :], mask=k[:, None] < K, other=0.0)
            total = tl.dot(left, right, total)
        mask = (m < M)[:, None] & (n < N)[None, :]
        tl.store(c + m[:, None] * N + n[None, :], total.to(tl.float16), mask=mask)


@triton.jit
def traffic_held_first_max(x, values, places, M: tl.constexpr, N: tl.constexpr):
    m = tl.program_id(0) * M + tl.arange(0, M)
    block = tl.load(x + m[:, None] * N + tl.arange(0, N)[None, :])
    best, place = tl.max(block, 1, return_indices=True)
    tl.store(values + m, best)
    tl.store(places + m, place)


@triton.jit
def traffic_held_joined(a, b):
    return a * 2 + b


@triton.jit
def traffic_held_scan(x, y, M: tl.constexpr, N: tl.constexpr, AXIS: tl.constexpr, REVERSE: tl.constexpr):
    offs = tl.program_id(0) * M * N + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(y + offs, tl.associative_scan(tl.load(x + offs), AXIS, traffic_held_joined, reverse=REVERSE))


@triton.jit
def traffic_held_sort(x, y, N: tl.constexpr):
    offs = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(y + offs, tl.sort(tl.load(x + offs), descending=True))


@triton.jit
def traffic_held_flip(x, y, M: tl.constexpr, N: tl.constexpr):
    offs = tl.program_id(0) * M * N + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(y + offs, tl.flip(tl.load(x + offs), 1))


@triton.jit
def traffic_held_permute(x, y, A: tl.constexpr, B: tl.constexpr, C: tl.constexpr):
    a, b, c = tl.arange(0, A)[:, None, None], tl.arange(0, B)[None, :, None], tl.arange(0, C)[None, None, :]
    block = tl.load(x + tl.program_id(0) * A * B * C + a * B * C + b * C + c)
    out = tl.arange(0, C)[:, None, None] * A * B + tl.arange(0, A)[None, :, None] * B + tl.arange(0, B)[None, None, :]
    tl.store(y + tl.program_id(0) * A * B * C + out, tl.permute(block, (2, 0, 1)))


@triton.jit
def traffic_held_stencil(x, y, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inner = (offs > 0) & (offs < n - 1)
    total = tl.load(x + offs - 1, mask=inner, other=0.0) + tl.load(x + offs, mask=inner, other=0.0)
    total += tl.load(x + offs + 1, mask=inner, other=0.0)
    tl.store(y + offs, total, mask=inner)


@triton.jit
def traffic_held_pool(x, y, height, width, M: tl.constexpr, N: tl.constexpr):
    m = tl.program_id(0) * M + tl.arange(0, M)
    n = tl.program_id(1) * N + tl.arange(0, N)
    best = tl.full((M, N), -float("inf"), tl.float32)
    for i in tl.static_range(2):
        for j in tl.static_range(2):
            at = (2 * m + i)[:, None] * width + (2 * n + j)[None, :]
            inside = (2 * m + i < height)[:, None] & (2 * n + j < width)[None, :]
            best = tl.maximum(best, tl.load(x + at, mask=inside, other=-float("inf")))
    inside = (m < height // 2)[:, None] & (n < width // 2)[None, :]
    tl.store(y + m[:, None] * (width // 2) + n[None, :], best, mask=inside)


@triton.jit
def traffic_held_bitwise(x, y, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + offs // 8)
    tl.store(y + offs, ((value >> (offs % 8).to(tl.uint8)) & 1).to(tl.int8))


@triton.jit
def traffic_held_exchange(x, y, old, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(old + offs, tl.atomic_xchg(y + offs, tl.load(x + offs), sem="relaxed"))


@triton.jit
def traffic_held_atomic_rows(x, sums, M: tl.constexpr, N: tl.constexpr):
    m = tl.program_id(0) * M + tl.arange(0, M)
    n = tl.program_id(1) * N + tl.arange(0, N)
    block = tl.load(x + m[:, None] * (tl.num_programs(1) * N) + n[None, :])
    tl.atomic_add(sums + m, tl.sum(block, 1))


@triton.jit
def traffic_held_atomic_minimum(x, lowest, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_min(lowest, tl.min(tl.load(x + offs, mask=offs < n, other=2147483647)))


@triton.jit
def traffic_held_compact(x, y, count, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + offs)
    keep = value > 50
    place = tl.cumsum(keep.to(tl.int32), 0) - 1
    start = tl.atomic_add(count, tl.sum(keep.to(tl.int32), 0))
    tl.store(y + start + place, value, mask=keep)


@triton.jit
def traffic_held_box_reduce(x, y, M: tl.constexpr, N: tl.constexpr):
    row, column = tl.program_id(0) * M, tl.program_id(1) * N
    tl.store(y + row + tl.arange(0, M), tl.sum(x.load([row, column]).to(tl.float32), 1))


@triton.jit
def traffic_held_box_transpose(x, y, M: tl.constexpr, N: tl.constexpr):
    row, column = tl.program_id(0) * M, tl.program_id(1) * N
    y.store([column, row], tl.trans(x.load([row, column])))


@triton.jit
def traffic_held_box_add(x, y, M: tl.constexpr, N: tl.constexpr):
    row, column = tl.program_id(0) * M, tl.program_id(1) * N
    y.atomic_add([row, column], x.load([row, column]))
