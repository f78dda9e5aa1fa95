"""The gate on a GPU: the same kernel passes, planted work is found, and what cannot be decided is called so."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

import kernellab
from kernellab.errors import RunError
from kernellab.timing.gate import GateVerdict
from tests.labs import lab_fixture

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]
N = 1 << 18
GRID = (N // 1024,)
lab = lab_fixture(open_lab=kernellab.Lab, on_disk=True)


@triton.jit
def chain(x_ptr, out_ptr, STEPS: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets)
    for _ in range(STEPS):
        x = x * 0.9999 + 0.0001
    tl.store(out_ptr + offsets, x)


@triton.jit
def add_in_place(x_ptr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + offsets, tl.load(x_ptr + offsets) + 1.0)


@triton.jit
def add_far_away(x_ptr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + offsets, tl.load(x_ptr + offsets + 1000000000000) + 1.0)


def tensors() -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.rand(N, device="cuda")
    return x, torch.empty_like(x)


def test_a_kernel_against_itself_is_within_the_gate(lab: kernellab.Lab) -> None:
    result = lab.gate(chain, GRID, *tensors(), against=chain, margin=0.01, STEPS=10_000, BLOCK=1024)
    assert (result.verdict, result.status, result.difference) == (GateVerdict.WITHIN, 0, "")
    assert result.timing is not None
    assert result.timing.ratio.low <= result.timing.ratio.median <= result.timing.ratio.high <= 1.01


def test_planted_work_is_found_and_less_work_is_faster(lab: kernellab.Lab) -> None:
    more, less = (chain, None, {"STEPS": 10_500}), (chain, None, {"STEPS": 9_500})
    slower = lab.gate(chain, GRID, *tensors(), against=less, STEPS=10_000, BLOCK=1024)
    assert (slower.verdict, slower.status) == (GateVerdict.SLOWER, 1)
    assert slower.timing is not None
    assert slower.timing.seconds <= 10
    assert slower.difference.startswith("out_ptr differs")
    faster = lab.gate(chain, GRID, *tensors(), against=more, STEPS=10_000, BLOCK=1024)
    assert (faster.verdict, faster.status) == (GateVerdict.FASTER, 0)


def test_a_budget_that_is_too_short_decides_nothing(lab: kernellab.Lab) -> None:
    result = lab.gate(chain, GRID, *tensors(), against=chain, budget_s=1e-6, STEPS=10_000, BLOCK=1024)
    assert (result.verdict, result.status) == (GateVerdict.UNDECIDED, 3)


def test_arguments_that_are_updated_in_place_stay_as_they_are(lab: kernellab.Lab) -> None:
    x = torch.zeros(N, device="cuda")
    result = lab.gate(add_in_place, GRID, x, against=add_in_place, margin=0.2, BLOCK=1024)
    assert result.difference == ""
    assert not x.any()


def test_a_revision_that_faults_is_an_error_and_the_lab_goes_on(lab: kernellab.Lab) -> None:
    x = torch.zeros(N, device="cuda")
    with pytest.raises(RunError):
        lab.gate(add_far_away, GRID, x, against=add_in_place, BLOCK=1024)
    assert lab.gate(add_in_place, GRID, x, against=add_in_place, margin=0.2, BLOCK=1024).status in {0, 3}
