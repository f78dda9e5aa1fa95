"""What narrows loads and stores, against compiles in which the arguments are divisible by 16."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

import kernellab
from kernellab.compile.types import Compiled
from kernellab.explain.alignment import narrow_accesses
from kernellab.ir.operations import Access


@triton.jit
def rows(x_ptr, out_ptr, stride, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    row = tl.program_id(0) * stride
    x = tl.load(x_ptr + row + offsets, mask=offsets < n, other=0.0)
    tl.store(out_ptr + row + offsets, x - tl.max(x, axis=0), mask=offsets < n)


@triton.jit
def gathered(x_ptr, index_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    index = tl.load(index_ptr + offsets)
    tl.store(out_ptr + offsets * 2, tl.load(x_ptr + index + n))


def compile_rows(lab: kernellab.Lab, stride: int, n: int, dtype: torch.dtype, block: int = 1024) -> Compiled:
    x = torch.zeros(8 * 1024, dtype=dtype)
    return lab.compile(rows, x, x.clone(), stride, n, BLOCK=block)


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "width"), [(torch.float16, 2), (torch.float32, 4)])
def test_an_undivided_stride_or_bound_narrows_what_it_takes_part_in(
    lab: kernellab.Lab, dtype: torch.dtype, width: int
) -> None:
    found = narrow_accesses(compile_rows(lab, 1000, 1000, dtype), {"n": 1000})
    assert set(found) == {"stride", "n"}
    for accesses in found.values():
        assert [each.kind for each in accesses] == [Access.READ, Access.WRITE]
        assert {(each.width_bytes, each.possible_bytes) for each in accesses} == {(width, 16)}
    assert {name: {each.also for each in accesses} for name, accesses in found.items()} == {
        "stride": {("n",)},  # divisible by itself, it would widen nothing
        "n": {("stride",)},
    }
    for alone, compiled in (
        ("n", compile_rows(lab, 1024, 1000, dtype)),
        ("stride", compile_rows(lab, 1000, 1024, dtype)),
    ):
        assert {each.also for each in narrow_accesses(compiled, {})[alone]} == {()}
        assert set(narrow_accesses(compiled, {})) == {alone}


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_with_divisible_arguments_the_instructions_are_as_wide_as_was_said(
    lab: kernellab.Lab, dtype: torch.dtype
) -> None:
    compiled = compile_rows(lab, 1024, 1008, dtype)
    assert narrow_accesses(compiled, {}) == {}
    assert "ld.global.v4.b32" in compiled.ptx
    assert "st.global.v4.b32" in compiled.ptx


def test_a_thread_with_one_element_has_nothing_to_widen(lab: kernellab.Lab) -> None:
    assert narrow_accesses(compile_rows(lab, 1000, 100, torch.float32, block=128), {}) == {}


def test_a_misaligned_tensor_is_named_by_its_argument(lab: kernellab.Lab) -> None:
    x = torch.zeros(9000)
    compiled = lab.compile(rows, x[1:], x.clone(), 1024, 1024, BLOCK=1024)
    assert set(narrow_accesses(compiled, {})) == {"x_ptr"}


def test_accesses_that_stay_narrow_blame_no_argument(lab: kernellab.Lab) -> None:
    x, index = torch.zeros(4096), torch.zeros(4096, dtype=torch.int32)
    assert narrow_accesses(lab.compile(gathered, x, index, x.clone(), 7, BLOCK=1024), {}) == {}


def test_other_vendors_are_left_out(lab: kernellab.Lab) -> None:
    x = torch.zeros(8192)
    assert narrow_accesses(lab.compile(rows, x, x, 1000, 1000, BLOCK=1024, target="hip:gfx942"), {}) == {}
