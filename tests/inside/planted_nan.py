"""Kernels in which a NaN or an infinity arises at a line that ends in ``# born``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl


@dataclass(frozen=True)
class PlantedNan:
    """A launch whose output has a NaN or an infinity that no input has; ``says`` is a part of the sentence."""

    kernel: Any
    arguments: Callable[[], dict[str, Any]]
    says: str
    grid: tuple[int, ...] = (4,)

    @property
    def name(self) -> str:
        return str(self.kernel.fn.__name__)


@triton.jit
def exp_overflows_in_half(x, out, B: tl.constexpr):
    offsets = tl.program_id(0) * B + tl.arange(0, B)
    value = tl.load(x + offsets)
    power = tl.exp(value).to(tl.float16)  # born
    tl.store(out + offsets, power)


@triton.jit
def inf_minus_inf(x, out, B: tl.constexpr):
    offsets = tl.program_id(0) * B + tl.arange(0, B)
    value = tl.load(x + offsets)
    power = tl.exp(value)
    difference = power - power  # born
    tl.store(out + offsets, difference)


@triton.jit
def zero_by_zero(x, out, B: tl.constexpr):
    offsets = tl.program_id(0) * B + tl.arange(0, B)
    value = tl.load(x + offsets)
    positive = tl.where(value > 90.0, 0.0, value)
    ratio = positive / positive  # born
    tl.store(out + offsets, ratio * 2)


@triton.jit
def log_of_negative(x, out, B: tl.constexpr):
    offsets = tl.program_id(0) * B + tl.arange(0, B)
    value = tl.load(x + offsets)
    result = tl.log(50.0 - value)  # born
    tl.store(out + offsets, result)


@triton.jit
def root_of_negative(x, out, B: tl.constexpr):
    offsets = tl.program_id(0) * B + tl.arange(0, B)
    shifted = 50.0 - tl.load(x + offsets)
    result = tl.sqrt(shifted)  # born
    tl.store(out + offsets, result + 1)


@triton.jit
def variance_below_zero(x, out, n, B: tl.constexpr):
    columns = tl.arange(0, B)
    row = tl.load(x + tl.program_id(0) * n + columns, mask=columns < n, other=0.0)
    mean = tl.sum(row, 0) / n
    variance = tl.sum(row * row, 0) / n - mean * mean - 1.0
    scale = tl.rsqrt(variance)  # born
    tl.store(out + tl.program_id(0) * n + columns, (row - mean) * scale, mask=columns < n)


@triton.jit
def softmax_without_maximum(x, out, n, B: tl.constexpr):
    columns = tl.arange(0, B)
    row = tl.load(x + tl.program_id(0) * n + columns, mask=columns < n, other=-float("inf"))
    powers = tl.exp(row)
    total = tl.sum(powers, 0)
    ratio = powers / total  # born
    tl.store(out + tl.program_id(0) * n + columns, ratio, mask=columns < n)


@triton.jit
def empty_row(x, out, n, B: tl.constexpr):
    columns = tl.arange(0, B)
    row = tl.load(x + columns, mask=columns < n - tl.program_id(0) * 2, other=-float("inf"))
    high = tl.max(row, 0)
    shifted = row - high  # born
    tl.store(out + tl.program_id(0) * B + columns, tl.exp(shifted))


@triton.jit
def product_overflows(x, out, B: tl.constexpr):
    offsets = tl.program_id(0) * B + tl.arange(0, B)
    value = tl.load(x + offsets).to(tl.float16)
    square = value * value * 100  # born
    tl.store(out + offsets, square)


@triton.jit
def running_product(x, out, n, B: tl.constexpr):
    offsets = tl.program_id(0) * B + tl.arange(0, B)
    acc = tl.full((B,), 1.0, tl.float32)
    for _ in range(n):
        acc = acc * tl.load(x + offsets)  # born
    tl.store(out + offsets, acc)


@triton.jit
def inf_times_zero(x, out, n, B: tl.constexpr):
    offsets = tl.program_id(0) * B + tl.arange(0, B)
    value = tl.load(x + offsets)
    power = tl.exp(value)
    gated = power * tl.where(offsets < n, 1.0, 0.0)  # born
    tl.store(out + offsets, gated)


@triton.jit
def divided_by_count(x, out, n, B: tl.constexpr):
    columns = tl.arange(0, B)
    kept = columns < tl.program_id(0)
    row = tl.load(x + columns, mask=kept, other=0.0)
    count = tl.sum(kept.to(tl.float32), 0)
    mean = tl.sum(row, 0) / count  # born
    tl.store(out + tl.program_id(0) * n + columns, row - mean, mask=columns < n)


@triton.jit
def half_of(value):
    smaller = value - 60.0
    return tl.log2(smaller)  # born


@triton.jit
def in_a_helper(x, out, B: tl.constexpr):
    offsets = tl.program_id(0) * B + tl.arange(0, B)
    value = tl.load(x + offsets)
    tl.store(out + offsets, half_of(value))


@triton.jit
def cast_overflows(x, out, B: tl.constexpr):
    offsets = tl.program_id(0) * B + tl.arange(0, B)
    large = tl.load(x + offsets) * 1000.0
    small = large.to(tl.float16)  # born
    tl.store(out + offsets, small)


@triton.jit
def reciprocal_of_zero(x, out, B: tl.constexpr):
    offsets = tl.program_id(0) * B + tl.arange(0, B)
    value = tl.load(x + offsets)
    clipped = tl.maximum(value, 100.0) - 100.0
    inverse = 1.0 / clipped  # born
    tl.store(out + offsets, inverse)


@triton.jit
def online_maximum(x, out, n, B: tl.constexpr):
    high = -float("inf")
    total = 0.0
    for start in range(0, n, B):
        columns = start + tl.arange(0, B)
        part = tl.load(x + tl.program_id(0) * n + columns, mask=columns >= B, other=-float("inf"))
        largest = tl.maximum(high, tl.max(part, 0))
        total = total * tl.exp(high - largest) + tl.sum(tl.exp(part - largest), 0)  # born
        high = largest
    tl.store(out + tl.program_id(0), total)


@triton.jit
def stored_directly(x, out, B: tl.constexpr):
    offsets = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + offsets, tl.exp(tl.load(x + offsets) * 2))  # born


@triton.jit
def in_a_branch(x, out, n, B: tl.constexpr):
    offsets = tl.program_id(0) * B + tl.arange(0, B)
    value = tl.load(x + offsets)
    if tl.program_id(0) == 2:
        value = tl.log(value - 50.0)  # born
    tl.store(out + offsets, value)


@triton.jit
def product_of_matrices(x, out, B: tl.constexpr):
    rows = tl.arange(0, B)
    places = rows[:, None] * B + rows[None, :]
    left = tl.load(x + places).to(tl.float16)
    product = tl.dot(left * 300, left * 300, out_dtype=tl.float16)  # born
    tl.store(out + places, product)


@triton.jit
def sum_overflows(x, out, n, B: tl.constexpr):
    columns = tl.arange(0, B)
    row = tl.load(x + columns, mask=columns < n, other=0.0).to(tl.float16) * 300
    total = tl.sum(row, 0)  # born
    tl.store(out + tl.program_id(0), total)


def _elements(count: int = 32, half: bool = False) -> Callable[[], dict[str, Any]]:
    """Elements from 1 to 2 with one of 120 in the third program of eight lanes."""

    def arguments() -> dict[str, Any]:
        x = torch.linspace(1, 2, count)
        x[19] = 120.0
        return {"x": x, "out": torch.zeros(count, dtype=torch.float16 if half else torch.float32), "B": 8}

    return arguments


def _rows(**more: Any) -> Callable[[], dict[str, Any]]:
    def arguments() -> dict[str, Any]:
        x = torch.linspace(1, 2, 32)
        x[19] = 120.0
        return {"x": x, "out": torch.zeros(32), "n": 8, "B": 8, **more}

    return arguments


def _flat() -> dict[str, Any]:
    return {"x": torch.ones(32), "out": torch.zeros(32), "n": 8, "B": 8}


def _large() -> dict[str, Any]:
    return {**_flat(), "x": torch.full((32,), 100.0), "out": torch.zeros(4).half()}


def _square() -> dict[str, Any]:
    return {"x": torch.ones(16, 16), "out": torch.zeros(16, 16).half(), "B": 16}


PLANTED = (
    PlantedNan(exp_overflows_in_half, _elements(half=True), "exp(120) is inf"),
    PlantedNan(inf_minus_inf, _elements(), "inf - inf is NaN"),
    PlantedNan(zero_by_zero, _elements(), "0 / 0 is NaN"),
    PlantedNan(log_of_negative, _elements(), "log(-70) is NaN"),
    PlantedNan(root_of_negative, _elements(), "sqrt(-70) is NaN"),
    PlantedNan(variance_below_zero, _flat, "rsqrt(-1) is NaN"),
    PlantedNan(softmax_without_maximum, _rows(), "inf / inf is NaN"),
    PlantedNan(empty_row, lambda: {**_flat(), "n": 6}, "-inf - -inf is NaN"),
    PlantedNan(product_overflows, _elements(half=True), "is inf in fp16"),
    PlantedNan(running_product, _rows(n=40), "is inf in fp32"),
    PlantedNan(inf_times_zero, _rows(), "inf * 0 is NaN"),
    PlantedNan(divided_by_count, _rows(), "0 / 0 is NaN"),
    PlantedNan(in_a_helper, _elements(), "log2("),
    PlantedNan(cast_overflows, _elements(half=True), "1.2e+05 is inf in fp16"),
    PlantedNan(reciprocal_of_zero, _elements(), "1 / 0 is inf"),
    PlantedNan(online_maximum, _rows(), "-inf - -inf is NaN"),
    PlantedNan(stored_directly, _elements(), "exp(240) is inf"),
    PlantedNan(in_a_branch, _rows(), "log("),
    PlantedNan(product_of_matrices, _square, "a dot is inf in fp16", (1,)),
    PlantedNan(sum_overflows, _large, "total is the first value with inf"),
)
