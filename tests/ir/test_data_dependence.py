"""Whether loaded values decide what a kernel touches."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import triton
import triton.language as tl

import kernellab
from kernellab.ir.data_dependence import depends_on_data

X, OUT, WHERE = torch.zeros(256), torch.zeros(256), torch.zeros(256, dtype=torch.int32)


@triton.jit
def halved_while_large(x_ptr, out_ptr, where_ptr, n, BLOCK: tl.constexpr):
    value = tl.load(x_ptr)
    while value > 1.0:
        value = value / 2
    tl.store(out_ptr, value)


@triton.jit
def summed(x_ptr, out_ptr, where_ptr, n, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, n, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
    if n > 100:
        tl.atomic_add(out_ptr, tl.sum(total))


@triton.jit
def gathered(x_ptr, out_ptr, where_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + tl.load(where_ptr + offsets)))


@triton.jit
def scattered_in_a_loop(x_ptr, out_ptr, where_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0)
    for _ in range(4):
        at = tl.load(where_ptr + at)
    tl.store(out_ptr + at, 1.0)


@triton.jit
def masked_by_data(x_ptr, out_ptr, where_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(out_ptr + offsets, x, mask=x > 0)


@triton.jit
def branching_on_data(x_ptr, out_ptr, where_ptr, n, BLOCK: tl.constexpr):
    if tl.load(where_ptr) > 0:
        tl.store(out_ptr + n * 1000, 1.0)


@triton.jit
def as_long_as_data_says(x_ptr, out_ptr, where_ptr, n, BLOCK: tl.constexpr):
    for i in range(tl.load(where_ptr)):
        tl.store(out_ptr + i, 1.0)


@triton.jit(noinline=True)
def element(out_ptr, at):
    tl.store(out_ptr + at, 1.0)


@triton.jit
def calling(x_ptr, out_ptr, where_ptr, n, BLOCK: tl.constexpr):
    element(out_ptr, tl.load(where_ptr))


@triton.jit
def calling_with_a_number(x_ptr, out_ptr, where_ptr, n, BLOCK: tl.constexpr):
    element(out_ptr, n)


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        (summed, False),
        (calling_with_a_number, False),
        (halved_while_large, True),
        (gathered, True),
        (scattered_in_a_loop, True),
        (masked_by_data, True),
        (branching_on_data, True),
        (as_long_as_data_says, True),
        (calling, True),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_values_that_are_loaded_count_where_they_decide(lab: kernellab.Lab, kernel: Any, expected: bool) -> None:
    assert depends_on_data(lab.graph(kernel, X, OUT, WHERE, 250, BLOCK=64)) is expected
