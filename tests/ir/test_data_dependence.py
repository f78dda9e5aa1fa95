"""Whether loaded values decide what a kernel touches."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

import kernellab
from kernellab.ir.uses import DecidingData, deciding_data

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
def shifted_to_an_aligned_address(x_ptr, out_ptr, where_ptr, n, BLOCK: tl.constexpr):
    tl.store(out_ptr + x_ptr.to(tl.int64) % 1024 // 4, 1.0)


@triton.jit
def branching_on_an_address(x_ptr, out_ptr, where_ptr, n, BLOCK: tl.constexpr):
    if x_ptr.to(tl.int64) % 256 != 0:
        tl.store(out_ptr + 100000, 1.0)


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


@triton.jit
def asserting(x_ptr, out_ptr, where_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets)
    tl.device_assert(x > 0.0, "too small", mask=None)
    tl.store(out_ptr + offsets, x)


@triton.jit
def asserting_of_a_number(x_ptr, out_ptr, where_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.device_assert(n > 0, "too small", mask=None)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets))


@triton.jit
def with_code_from_outside(x_ptr, out_ptr, where_ptr, n, BLOCK: tl.constexpr, PURE: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    x = tl.inline_asm_elementwise(
        "mov.b32 $0, $1;", "=r,r", [tl.load(x_ptr + offsets)], dtype=tl.float32, is_pure=PURE, pack=1
    )
    tl.store(out_ptr + offsets, x)


def test_an_assertion_about_data_decides_and_one_about_a_number_does_not(lab: kernellab.Lab) -> None:
    args = (X, OUT, WHERE, 250)
    assert deciding_data(lab.graph(asserting, *args, BLOCK=64, debug=True)) is DecidingData.LOADED
    assert deciding_data(lab.graph(asserting_of_a_number, *args, BLOCK=64, debug=True)) is DecidingData.NONE


@pytest.mark.parametrize("pure", [True, False])
def test_code_from_outside_is_trusted_where_it_is_pure(lab: kernellab.Lab, pure: bool) -> None:
    graph = lab.graph(with_code_from_outside, X, OUT, WHERE, 250, BLOCK=64, PURE=pure)
    assert deciding_data(graph) is (DecidingData.NONE if pure else DecidingData.UNKNOWN)


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
    data = deciding_data(lab.graph(kernel, X, OUT, WHERE, 250, BLOCK=64))
    assert data is (DecidingData.LOADED if expected else DecidingData.NONE)


@pytest.mark.parametrize("kernel", [shifted_to_an_aligned_address, branching_on_an_address])
def test_an_address_as_a_number_is_not_followed(lab: kernellab.Lab, kernel: Any) -> None:
    assert deciding_data(lab.graph(kernel, X, OUT, WHERE, 250, BLOCK=64)) is DecidingData.UNKNOWN


@gluon.jit
def through_shared_memory(where, out, BLOCK: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    shared: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    place = gl.arange(0, BLOCK, layout=layout)
    tile = gl.allocate_shared_memory(gl.int32, [BLOCK], shared)
    tile.store(gl.load(where + place))
    gl.store(out + tile.load(layout), 1.0)


@gluon.jit
def uninitialised_shared_memory(where, out, BLOCK: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    shared: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    tile = gl.allocate_shared_memory(gl.int32, [BLOCK], shared)
    gl.store(out + tile.load(layout), 1.0)


@pytest.mark.slow
@pytest.mark.parametrize("kernel", [through_shared_memory, uninitialised_shared_memory])
def test_what_comes_through_shared_memory_is_not_followed(lab: kernellab.Lab, kernel: Any) -> None:
    compiled = lab.compile(kernel, WHERE, OUT, BLOCK=128, target="cuda:90")
    assert deciding_data(compiled.graph) is DecidingData.UNKNOWN
