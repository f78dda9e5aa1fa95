"""More kernels: grids of three axes, while loops, choices, integers, casts, atomics, shapes and turned tiles."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def stencil(x, out, X, Y, Z, BLOCK: tl.constexpr):
    columns = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row = tl.program_id(1)
    plane = tl.program_id(2)
    here = (plane * Y + row) * X + columns
    inside = columns < X
    centre = tl.load(x + here, mask=inside, other=0.0)
    left = tl.load(x + here - 1, mask=inside & (columns > 0), other=0.0)
    above = tl.load(x + here - X, mask=inside & (row > 0), other=0.0)
    before = tl.load(x + here - X * Y, mask=inside & (plane > 0), other=0.0)
    total = 4.0 * centre - left - above - before
    tl.store(out + here, total, mask=inside)


@triton.jit
def divisors(a, b, out, steps, BLOCK: tl.constexpr):
    lanes = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    large = tl.load(a + lanes)
    small = tl.load(b + lanes)
    count = 0
    while tl.max(small, 0) > 0:
        safe = tl.where(small > 0, small, 1)
        rest = tl.where(small > 0, large % safe, 0)
        large = tl.where(small > 0, small, large)
        small = rest
        count += 1
    tl.store(steps + tl.program_id(0), count)
    tl.store(out + lanes, large)


@triton.jit
def unpacked(packed, scales, out, GROUP: tl.constexpr, BLOCK: tl.constexpr):
    words = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    word = tl.load(packed + words)
    scale = tl.load(scales + words // GROUP)
    for nibble in tl.static_range(8):
        bits = (word >> (4 * nibble)) & 0xF
        signed = tl.where(bits >= 8, bits - 16, bits)
        value = signed.to(tl.float32) * scale
        tl.store(out + words * 8 + nibble, value.to(tl.float16))


@triton.jit
def quantized(x, out, scales, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    value = tl.load(x + row * N + columns, mask=columns < N, other=0.0)
    largest = tl.max(tl.abs(value), 0)
    scale = tl.where(largest > 0, largest / 127.0, 1.0)
    steps = value / scale
    rounded = tl.where(steps >= 0, tl.floor(steps + 0.5), tl.ceil(steps - 0.5))
    clamped = tl.where(rounded > 127, 127, tl.where(rounded < -127, -127, rounded))
    tl.store(out + row * N + columns, clamped.to(tl.int8), mask=columns < N)
    tl.store(scales + row, scale)


@triton.jit
def turned(x, out, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    tile = tl.load(x + rows[:, None] * N + columns[None, :], mask=inside, other=0.0)
    halves = tl.reshape(tile, [BLOCK_M, BLOCK_N // 2, 2])
    even, odd = tl.split(halves)
    swapped = tl.join(odd, even)
    flat = tl.reshape(swapped, [BLOCK_M, BLOCK_N])
    tl.store(out + columns[:, None] * M + rows[None, :], tl.trans(flat), mask=tl.trans(inside))


@triton.jit
def moments(x, means, spreads, places, N, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, BLOCK)
    inside = columns[None, :] < N
    tile = tl.load(x + rows[:, None] * N + columns[None, :], mask=inside, other=0.0)
    mean = tl.sum(tile, 1) / N
    centred = tl.where(inside, tile - mean[:, None], 0.0)
    spread = tl.sqrt(tl.sum(centred * centred, 1) / N + 1e-5)
    place = tl.argmax(tl.where(inside, tile, float("-inf")), 1)
    tl.store(means + rows, mean)
    tl.store(spreads + rows, spread)
    tl.store(places + rows, place)


@triton.jit
def buckets(x, sums, highs, counts, n, BLOCK: tl.constexpr, BUCKETS: tl.constexpr):
    lanes = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = lanes < n
    value = tl.load(x + lanes, mask=inside, other=0)
    bucket = value % BUCKETS
    tl.atomic_add(sums + bucket, value, mask=inside)
    tl.atomic_max(highs + bucket, value, mask=inside)
    ones = tl.sum(inside.to(tl.int32), 0)
    tl.atomic_add(counts, ones)


@triton.jit
def convolved(x, weights, out, LENGTH, TAPS: tl.constexpr, CHANNELS: tl.constexpr, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), tl.float32)
    for channel in range(CHANNELS):
        for tap in tl.static_range(TAPS):
            source = places + tap - TAPS // 2
            inside = (source >= 0) & (source < LENGTH)
            value = tl.load(x + channel * LENGTH + source, mask=inside, other=0.0)
            weight = tl.load(weights + channel * TAPS + tap)
            acc += value * weight
    acc = tl.maximum(acc, 0.0)
    tl.store(out + places, acc, mask=places < LENGTH)


@triton.jit
def rounds_in_place(x, scratch, out, ROUNDS: tl.constexpr, BLOCK: tl.constexpr):
    lanes = tl.arange(0, BLOCK)
    base = tl.program_id(0) * BLOCK
    value = tl.load(x + base + lanes)
    for step in range(ROUNDS):
        tl.store(scratch + base + lanes, value)
        tl.debug_barrier()
        neighbour = tl.load(scratch + base + (lanes + 1) % BLOCK)
        value = value + neighbour * (step + 1)
    tl.store(out + base + lanes, value)


@triton.jit
def halved(x, out, B: tl.constexpr):
    value = tl.load(x + tl.arange(0, B))
    while tl.max(value, 0) > 0:
        value = value // 2
    tl.store(out + tl.arange(0, B), value)


@triton.jit
def scaled(value, factor=0.1):
    return value * factor


@triton.jit
def turned_and_scaled(x, out, n, B: tl.constexpr):
    rows, columns = tl.arange(0, B), tl.arange(0, 2 * B)
    tile = tl.load(x + tl.program_id(0) * n + rows[:, None] * (2 * B) + columns[None, :])
    flat = tl.trans(tile)
    tl.store(out + columns[:, None] * B + rows[None, :], scaled(flat))
