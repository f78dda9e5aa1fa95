"""More kernels whose traffic is compared with hardware counters: products, descriptors, atomics."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def traffic_matmul(
    a, b, c, M, N, K, a_m, a_k, b_k, b_n, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr
):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    a_at = a + m[:, None] * a_m + k[None, :] * a_k
    b_at = b + k[:, None] * b_k + n[None, :] * b_n
    total = tl.zeros((BM, BN), c.dtype.element_ty if c.dtype.element_ty == tl.int32 else tl.float32)
    for start in range(0, K, BK):
        left = tl.load(a_at, mask=k[None, :] < K - start, other=0)
        right = tl.load(b_at, mask=k[:, None] < K - start, other=0)
        total = tl.dot(left, right, total, input_precision=PRECISION, out_dtype=total.dtype)
        a_at += BK * a_k
        b_at += BK * b_k
    mask = (m < M)[:, None] & (n < N)[None, :]
    tl.store(c + m[:, None] * N + n[None, :], total.to(c.dtype.element_ty), mask=mask)


@triton.jit
def traffic_matmul_even(a, b, c, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    a_at = a + m[:, None] * K + k[None, :]
    b_at = b + k[:, None] * N + n[None, :]
    total = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, K, BK):
        total = tl.dot(tl.load(a_at), tl.load(b_at), total)
        a_at += BK
        b_at += BK * N
    tl.store(c + m[:, None] * N + n[None, :], total.to(tl.float16))


@triton.jit
def traffic_dot_once(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, PRECISION: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    a += tl.program_id(0) * M * K
    left = tl.load(a + m[:, None] * K + k[None, :])
    right = tl.load(b + n[:, None] * K + k[None, :])
    product = tl.dot(left, tl.trans(right), input_precision=PRECISION)
    tl.store(c + tl.program_id(0) * M * N + m[:, None] * N + n[None, :], product)


@triton.jit
def traffic_attention(q, k, v, out, length, scale, BM: tl.constexpr, BN: tl.constexpr, D: tl.constexpr):
    m, n, d = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, D)
    head = tl.program_id(1) * length * D
    rows = head + (tl.program_id(0) * BM + m)[:, None] * D + d[None, :]
    query = tl.load(q + rows)
    largest = tl.full((BM,), -float("inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    result = tl.zeros((BM, D), tl.float32)
    for start in range(0, length, BN):
        columns = head + (start + n)[:, None] * D + d[None, :]
        scores = tl.dot(query, tl.trans(tl.load(k + columns))) * scale
        highest = tl.maximum(largest, tl.max(scores, 1))
        weights = tl.exp(scores - highest[:, None])
        shrink = tl.exp(largest - highest)
        total = total * shrink + tl.sum(weights, 1)
        result = tl.dot(weights.to(tl.float16), tl.load(v + columns), result * shrink[:, None])
        largest = highest
    tl.store(out + rows, (result / total[:, None]).to(tl.float16))


@triton.jit
def traffic_descriptor_copy(x, y, M: tl.constexpr, N: tl.constexpr):
    row, column = tl.program_id(0) * M, tl.program_id(1) * N
    y.store([row, column], x.load([row, column]))


@triton.jit
def traffic_device_descriptor(x, y, rows, columns, M: tl.constexpr, N: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [rows, columns], [columns, 1], [M, N])
    row, column = tl.program_id(0) * M, tl.program_id(1) * N
    offs = (row + tl.arange(0, M))[:, None] * columns + (column + tl.arange(0, N))[None, :]
    tl.store(y + offs, source.load([row, column]) * 2)


@triton.jit
def traffic_descriptor_matmul(a, b, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    total = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        total = tl.dot(a.load([row, k]), b.load([k, column]), total)
    c.store([row, column], total.to(tl.float16))


@triton.jit
def traffic_atomic_scalar(x, total, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(total, tl.sum(tl.load(x + offs)))


@triton.jit
def traffic_atomic_lanes(x, y, n, STRIDE: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    tl.atomic_add(y + offs * STRIDE, tl.load(x + offs, mask=mask), mask=mask, sem="relaxed")


@triton.jit
def traffic_atomic_wrap(x, y, SLOTS: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(y + offs % SLOTS, tl.load(x + offs), sem="relaxed")


@triton.jit
def traffic_atomic_result(x, y, old, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(old + offs, tl.atomic_max(y + offs, tl.load(x + offs)))


@triton.jit
def traffic_atomic_scalar_result(counter, y):
    ticket = tl.atomic_add(counter, 1)
    tl.store(y + ticket, tl.program_id(0))


@triton.jit
def traffic_atomic_histogram(x, counts, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    tl.atomic_add(counts + tl.load(x + offs, mask=mask, other=0), 1, mask=mask)


@triton.jit
def traffic_atomic_cas(x, y, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_cas(y + offs, tl.full((BLOCK,), 0, tl.int32), tl.load(x + offs))


@triton.jit
def traffic_histogram(x, counts, BINS: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    found = tl.histogram(tl.load(x + offs), BINS)
    tl.store(counts + tl.program_id(0) * BINS + tl.arange(0, BINS), found)
