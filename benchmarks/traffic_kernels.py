"""The kernels whose traffic is compared with hardware counters: one way to touch memory each."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def traffic_copy(x, y, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    tl.store(y + offs, tl.load(x + offs, mask=mask), mask=mask)


@triton.jit
def traffic_copy_unmasked(x, y, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + offs, tl.load(x + offs))


@triton.jit
def traffic_copy_hints(x, y, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    value = tl.load(x + offs, mask=mask, other=1.0, eviction_policy="evict_first")
    tl.store(y + offs, value + tl.load(x + offs, mask=mask, volatile=True), mask=mask, cache_modifier=".cs")


@triton.jit
def traffic_add(x, y, out, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    tl.store(out + offs, tl.load(x + offs, mask=mask) + tl.load(y + offs, mask=mask), mask=mask)


@triton.jit
def traffic_strided(x, y, n, stride, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    tl.store(y + offs, tl.load(x + offs * stride, mask=mask), mask=mask)


@triton.jit
def traffic_strided_store(x, y, n, STRIDE: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    tl.store(y + offs * STRIDE, tl.load(x + offs, mask=mask), mask=mask)


@triton.jit
def traffic_interleaved(x, y, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    real = tl.load(x + 2 * offs, mask=mask)
    imaginary = tl.load(x + 2 * offs + 1, mask=mask)
    tl.store(y + offs, real * real + imaginary * imaginary, mask=mask)


@triton.jit
def traffic_tile(x, y, rows, columns, x_row, x_column, y_row, y_column, M: tl.constexpr, N: tl.constexpr):
    m = tl.program_id(0) * M + tl.arange(0, M)
    n = tl.program_id(1) * N + tl.arange(0, N)
    mask = (m < rows)[:, None] & (n < columns)[None, :]
    value = tl.load(x + m[:, None] * x_row + n[None, :] * x_column, mask=mask)
    tl.store(y + m[:, None] * y_row + n[None, :] * y_column, value, mask=mask)


@triton.jit
def traffic_row_mask(x, y, keep, columns, N: tl.constexpr):
    row = tl.program_id(0)
    n = tl.arange(0, N)
    mask = (n < columns) & (tl.load(keep + row) > 0)
    tl.store(y + row * columns + n, tl.load(x + row * columns + n, mask=mask, other=0.0), mask=mask)


@triton.jit
def traffic_data_mask(x, y, keep, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = tl.load(keep + offs, mask=offs < n, other=0) != 0
    tl.store(y + offs, tl.load(x + offs, mask=mask, other=0.0), mask=mask)


@triton.jit
def traffic_parity_mask(x, y, BLOCK: tl.constexpr, EVERY: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs % EVERY == 0
    tl.store(y + offs, tl.load(x + offs, mask=mask, other=0.0), mask=mask)


@triton.jit
def traffic_gather(x, index, y, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    tl.store(y + offs, tl.load(x + tl.load(index + offs, mask=mask, other=0), mask=mask), mask=mask)


@triton.jit
def traffic_scatter(x, index, y, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    tl.store(y + tl.load(index + offs, mask=mask, other=0), tl.load(x + offs, mask=mask), mask=mask)


@triton.jit
def traffic_gather_rows(table, index, y, width, M: tl.constexpr, N: tl.constexpr):
    m = tl.program_id(0) * M + tl.arange(0, M)
    n = tl.arange(0, N)
    rows = tl.load(index + m)
    mask = n[None, :] < width
    tl.store(
        y + m[:, None] * width + n[None, :], tl.load(table + rows[:, None] * width + n[None, :], mask=mask), mask=mask
    )


@triton.jit
def traffic_scalar(x, y, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + offs, offs.to(tl.float32) * tl.load(x + pid))
    tl.store(x + pid, 1.0)


@triton.jit
def traffic_broadcast(x, row, column, y, M: tl.constexpr, N: tl.constexpr):
    m = tl.program_id(0) * M + tl.arange(0, M)
    n = tl.arange(0, N)
    offs = m[:, None] * N + n[None, :]
    value = tl.load(x + offs) + tl.load(row + n)[None, :] + tl.load(column + m)[:, None]
    tl.store(y + offs, value)


@triton.jit
def traffic_same_address(x, y, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + offs, tl.load(x + offs * 0 + tl.program_id(0)))


@triton.jit
def traffic_sum_rows(x, y, M: tl.constexpr, N: tl.constexpr):
    m = tl.program_id(0) * M + tl.arange(0, M)
    n = tl.arange(0, N)
    tl.store(y + m, tl.sum(tl.load(x + m[:, None] * N + n[None, :]), axis=1))


@triton.jit
def traffic_sum_columns(x, y, M: tl.constexpr, N: tl.constexpr):
    m = tl.arange(0, M)
    n = tl.program_id(0) * N + tl.arange(0, N)
    width = tl.num_programs(0) * N
    tl.store(y + n, tl.sum(tl.load(x + m[:, None] * width + n[None, :]), axis=0))


@triton.jit
def traffic_sum_all(x, y, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + tl.program_id(0), tl.sum(tl.load(x + offs)))


@triton.jit
def traffic_argmax(x, y, M: tl.constexpr, N: tl.constexpr):
    m = tl.program_id(0) * M + tl.arange(0, M)
    n = tl.arange(0, N)
    tl.store(y + m, tl.argmax(tl.load(x + m[:, None] * N + n[None, :]), axis=1))


@triton.jit
def traffic_softmax(x, y, columns, N: tl.constexpr):
    row = tl.program_id(0)
    n = tl.arange(0, N)
    value = tl.load(x + row * columns + n, mask=n < columns, other=-float("inf"))
    value = tl.exp(value - tl.max(value, axis=0))
    tl.store(y + row * columns + n, value / tl.sum(value, axis=0), mask=n < columns)


@triton.jit
def traffic_layer_norm(x, y, weight, bias, columns, eps, N: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((N,), tl.float32)
    for start in range(0, columns, N):
        n = start + tl.arange(0, N)
        total += tl.load(x + row * columns + n, mask=n < columns, other=0.0).to(tl.float32)
    mean = tl.sum(total) / columns
    for start in range(0, columns, N):
        n = start + tl.arange(0, N)
        mask = n < columns
        value = tl.load(x + row * columns + n, mask=mask, other=0.0).to(tl.float32) - mean
        scaled = value * tl.load(weight + n, mask=mask) + tl.load(bias + n, mask=mask)
        tl.store(y + row * columns + n, scaled / tl.sqrt(mean * mean + eps), mask=mask)


@triton.jit
def traffic_cumsum(x, y, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + offs, tl.cumsum(tl.load(x + offs), axis=0))


@triton.jit
def traffic_cumsum_columns(x, y, M: tl.constexpr, N: tl.constexpr):
    offs = tl.program_id(0) * M * N + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(y + offs, tl.cumsum(tl.load(x + offs), axis=0))


@triton.jit
def traffic_sort(x, y, M: tl.constexpr, N: tl.constexpr):
    offs = tl.program_id(0) * M * N + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(y + offs, tl.sort(tl.load(x + offs)))


@triton.jit
def traffic_flip(x, y, N: tl.constexpr):
    offs = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(y + offs, tl.load(x + tl.program_id(0) * N + N - 1 - tl.arange(0, N)))


@triton.jit
def traffic_tile_gather(x, index, y, M: tl.constexpr, N: tl.constexpr):
    offs = tl.program_id(0) * M * N + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(y + offs, tl.gather(tl.load(x + offs), tl.load(index + offs), axis=0))


@triton.jit
def traffic_reshape(x, y, M: tl.constexpr, N: tl.constexpr):
    offs = tl.arange(0, M * N) + tl.program_id(0) * M * N
    value = tl.trans(tl.reshape(tl.load(x + offs), (M, N)))
    tl.store(y + offs, tl.reshape(value, (M * N,)))


@triton.jit
def traffic_join(x, y, out, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    both = tl.interleave(tl.load(x + offs), tl.load(y + offs))
    tl.store(out + tl.program_id(0) * 2 * BLOCK + tl.arange(0, 2 * BLOCK), both)


@triton.jit
def traffic_outer_loop(x, y, n, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(tl.program_id(0) * BLOCK, n, tl.num_programs(0) * BLOCK):
        offs = start + tl.arange(0, BLOCK)
        total += tl.load(x + offs, mask=offs < n, other=0.0)
    tl.store(y + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), total)


@triton.jit
def traffic_branch(x, y, z, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    if pid % 3 == 0:
        tl.store(z + offs, tl.load(x + offs))
    else:
        tl.store(z + offs, tl.load(y + 2 * offs))


@triton.jit
def traffic_while(x, y, limit, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    left = tl.load(limit + pid)
    total = tl.zeros((BLOCK,), tl.float32)
    while left > 0:
        total += tl.load(x + offs + left * BLOCK)
        left -= 1
    tl.store(y + offs, total)


@triton.jit
def traffic_dropout(x, y, n, seed, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    value = tl.load(x + offs, mask=mask)
    tl.store(y + offs, tl.where(tl.rand(seed, offs) > 0.5, value, 0.0), mask=mask)
