"""Faults of the kernels of `more_kernels`, a launch of each, and changes that only round otherwise."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from tests.inside import more_kernels
from tests.inside.planted_faults import Change as _Change

Change = partial(_Change, module=more_kernels)


def _floats(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(3))


def _integers(low: int, high: int, *shape: int) -> torch.Tensor:
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(3), dtype=torch.int32)


LAUNCHES: dict[str, tuple[tuple[int, ...], Callable[[], dict[str, Any]]]] = {
    "stencil": (
        (2, 3, 4),
        lambda: {"x": _floats(4, 3, 12), "out": torch.zeros(4, 3, 12), "X": 12, "Y": 3, "Z": 4, "BLOCK": 8},
    ),
    "divisors": (
        (2,),
        lambda: {
            "a": _integers(1, 200, 16),
            "b": _integers(1, 200, 16).flip(0),
            "out": _integers(0, 1, 16),
            "steps": _integers(0, 1, 2),
            "BLOCK": 8,
        },
    ),
    "unpacked": (
        (2,),
        lambda: {
            "packed": _integers(-(1 << 31), (1 << 31) - 1, 16),
            "scales": _floats(4),
            "out": torch.zeros(128).half(),
            "GROUP": 4,
            "BLOCK": 8,
        },
    ),
    "quantized": (
        (4,),
        lambda: {
            "x": -_floats(4, 13),
            "out": torch.zeros(4, 13, dtype=torch.int8),
            "scales": torch.zeros(4),
            "N": 13,
            "BLOCK": 16,
        },
    ),
    "turned": (
        (2, 2),
        lambda: {"x": _floats(13, 28), "out": torch.zeros(28, 13), "M": 13, "N": 28, "BLOCK_M": 8, "BLOCK_N": 16},
    ),
    "moments": (
        (2,),
        lambda: {
            "x": _floats(8, 11),
            "means": torch.zeros(8),
            "spreads": torch.zeros(8),
            "places": _integers(0, 1, 8),
            "N": 11,
            "ROWS": 4,
            "BLOCK": 16,
        },
    ),
    "buckets": (
        (3,),
        lambda: {
            "x": _integers(1, 99, 20),
            "sums": _integers(0, 1, 4),
            "highs": _integers(0, 1, 4),
            "counts": _integers(0, 1, 1),
            "n": 20,
            "BLOCK": 8,
            "BUCKETS": 4,
        },
    ),
    "convolved": (
        (3,),
        lambda: {
            "x": _floats(2, 20),
            "weights": _floats(2, 5),
            "out": torch.zeros(20),
            "LENGTH": 20,
            "TAPS": 5,
            "CHANNELS": 2,
            "BLOCK": 8,
        },
    ),
    "rounds_in_place": (
        (2,),
        lambda: {"x": _floats(16), "scratch": torch.zeros(16), "out": torch.zeros(16), "ROUNDS": 3, "BLOCK": 8},
    ),
}

FAULTS = (
    # grids of three axes
    Change("stencil", "row = tl.program_id(1)", "row = tl.program_id(2)"),
    Change("stencil", "(plane * Y + row) * X", "(row * Y + plane) * X"),
    Change("stencil", "here - X * Y", "here - X * Z"),
    Change("stencil", "(plane > 0)", "(row > 0)"),
    Change("stencil", "here - 1", "here + 1"),
    Change("stencil", "4.0 * centre", "3.0 * centre"),
    # while loops and choices
    Change("divisors", "while tl.max(small, 0) > 0:", "while tl.min(small, 0) > 0:"),
    Change("divisors", "large = tl.where(small > 0, small, large)", "large = tl.where(small > 1, small, large)"),
    Change("divisors", "large % safe", "large - safe"),
    Change("divisors", "count += 1", "count += 2"),
    Change("divisors", "small = rest", "small = rest // 2"),
    # integers
    Change("unpacked", "(4 * nibble)", "(nibble)"),
    Change("unpacked", "& 0xF", "& 0x7"),
    Change("unpacked", "bits >= 8", "bits > 8"),
    Change("unpacked", "words // GROUP", "words % GROUP"),
    Change("unpacked", "words * 8 + nibble", "words * 8 + 7 - nibble"),
    Change("unpacked", "signed.to(tl.float32)", "bits.to(tl.float32)"),
    # casts and roundings
    Change("quantized", "largest / 127.0", "largest / 128.0"),
    Change("quantized", "tl.ceil(steps - 0.5)", "tl.ceil(steps + 0.5)"),
    Change("quantized", "tl.max(tl.abs(value), 0)", "tl.max(value, 0)"),
    Change("quantized", "tl.where(rounded < -127, -127, rounded)", "tl.where(rounded < 0, -127, rounded)"),
    Change("quantized", "value / scale", "(value / scale).to(tl.int32).to(tl.float32)"),
    Change("quantized", "clamped.to(tl.int8), mask=columns < N", "clamped.to(tl.int8), mask=columns < N - 1"),
    Change("quantized", "tl.floor(steps + 0.5)", "tl.floor(steps)"),
    # turned and reshaped tiles
    Change("turned", "tl.trans(flat)", "tl.reshape(flat, [BLOCK_N, BLOCK_M])"),
    Change("turned", "tl.join(odd, even)", "tl.join(even, odd)"),
    Change("turned", "columns[:, None] * M", "columns[:, None] * N"),
    Change("turned", "even, odd = tl.split(halves)", "odd, even = tl.split(halves)"),
    Change("turned", "[BLOCK_M, BLOCK_N // 2, 2])", "[BLOCK_M, BLOCK_N // 2, 2]) * 1.5"),
    # axes of reductions
    Change("moments", "tl.sum(tile, 1) / N", "tl.sum(tile, 1) / BLOCK"),
    Change("moments", "tile - mean[:, None]", "tile - mean[:, None] * 0.5"),
    Change("moments", "tl.where(inside, tile - mean[:, None], 0.0)", "tile - mean[:, None]"),
    Change("moments", "+ 1e-5", "+ 1e-1"),
    Change("moments", "tl.argmax(", "tl.argmin("),
    Change("moments", 'tl.where(inside, tile, float("-inf"))', "tl.where(inside, -tile, 0.0)"),
    Change("moments", "spreads + rows, spread", "spreads + rows, mean"),
    # atomics
    Change("buckets", "value % BUCKETS", "value // BUCKETS % BUCKETS"),
    Change("buckets", "tl.atomic_max(", "tl.atomic_min("),
    Change("buckets", "sums + bucket, value", "sums + bucket, value * 2"),
    Change("buckets", "tl.sum(inside.to(tl.int32), 0)", "tl.sum((lanes <= n).to(tl.int32), 0)"),
    Change("buckets", "highs + bucket, value, mask=inside", "highs + bucket, value, mask=inside & (value > 50)"),
    Change("buckets", "inside = lanes < n", "inside = lanes <= n - 3"),
    # loops in loops
    Change("convolved", "tap - TAPS // 2", "tap - TAPS // 2 - 1"),
    Change("convolved", "channel * TAPS + tap", "channel + tap * CHANNELS"),
    Change("convolved", "source >= 0", "source > 0"),
    Change("convolved", "tl.maximum(acc, 0.0)", "tl.abs(acc)"),
    Change("convolved", "range(CHANNELS)", "range(1, CHANNELS)"),
    Change("convolved", "channel * LENGTH + source", "channel * (LENGTH - 1) + source"),
    Change("convolved", "acc += value * weight", "acc = value * weight"),
    Change("convolved", "tl.static_range(TAPS)", "tl.static_range(TAPS - 1)"),
    # order of stores and loads
    Change("rounds_in_place", "scratch + base + lanes, value", "scratch + base + lanes, value, mask=lanes > 0"),
    Change("rounds_in_place", "(lanes + 1) % BLOCK", "(lanes + 1) % (BLOCK - 1)"),
    Change("rounds_in_place", "(step + 1)", "(step + 2)"),
    Change("rounds_in_place", "value = value + neighbour", "value = neighbour"),
    Change("rounds_in_place", "tl.program_id(0) * BLOCK", "tl.program_id(0) * 0"),
)

EQUAL = (
    Change("stencil", "4.0 * centre - left - above - before", "4.0 * centre - (left + above + before)"),
    Change("quantized", "steps = value / scale", "steps = value * (1.0 / scale)"),
    Change("moments", "tl.sum(tile, 1) / N", "tl.sum(tile / N, 1)"),
    Change(
        "moments",
        "tl.sqrt(tl.sum(centred * centred, 1) / N + 1e-5)",
        "tl.sqrt((tl.sum(centred * centred, 1) + 1e-5 * N) / N)",
    ),
    Change("unpacked", "signed = tl.where(bits >= 8, bits - 16, bits)", "signed = (bits ^ 8) - 8"),
    Change("buckets", "tl.sum(inside.to(tl.int32), 0)", "tl.sum(tl.where(inside, 1, 0), 0)"),
    Change("convolved", "acc += value * weight", "acc = tl.fma(value, weight, acc)"),
    Change(
        "divisors",
        "rest = tl.where(small > 0, large % safe, 0)",
        "rest = tl.where(small > 0, large - large // safe * safe, 0)",
    ),
    Change("rounds_in_place", "(lanes + 1) % BLOCK", "tl.where(lanes + 1 < BLOCK, lanes + 1, 0)"),
)
