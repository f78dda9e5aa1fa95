"""Panels on a GPU: what is timed and compared, and points that fault."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import triton
import triton.language as tl

import kernellab
from tests.labs import lab_fixture

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]
N = 1 << 22


@triton.jit
def copy(x_ptr, out_ptr, n, BLOCK: tl.constexpr, FAR: tl.constexpr = 0):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets + FAR * 1_000_000_000_000, mask=mask), mask=mask)


@triton.jit
def add_into(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, tl.load(out_ptr + offsets, mask=mask) + x, mask=mask)


lab = lab_fixture(open_lab=kernellab.Lab, on_disk=True)


@pytest.fixture
def tensors() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(N, device="cuda"), torch.zeros(N, device="cuda")


def grid(meta: Any) -> tuple[int]:
    return (triton.cdiv(meta["n"], meta["BLOCK"]),)


def test_points_are_timed_against_the_best_so_far(lab: kernellab.Lab, tensors: Any) -> None:
    panel = lab.explore(copy, grid, *tensors, N, BLOCK=[16, 1024], num_warps=[1, 4])
    slow = panel.wait()
    assert slow.row.status == "ok"
    assert slow.row.time_ms is not None
    assert slow.row.gbps is not None
    assert slow.against is None
    fast = panel.set(BLOCK=1024, num_warps=4).wait()
    assert fast.best == slow.number
    assert fast.against is not None
    assert fast.against.high < 1
    assert panel.evaluations.best_of(fast.sizes, fast.target) is fast
    assert fast.verdict.text == "agrees with the first point (BLOCK=16, num_warps=1)"
    assert torch.equal(tensors[1], torch.zeros_like(tensors[1]))
    back = panel.set(BLOCK=16, num_warps=1).wait()
    assert back.best == fast.number
    assert panel.frame["rank"].min() == 1


def test_a_fault_shows_in_place_and_costs_nothing(lab: kernellab.Lab, tensors: Any) -> None:
    panel = lab.explore(copy, grid, *tensors, N, BLOCK=1024, FAR=[0, 1])
    evaluation = panel.set(FAR=1).wait()
    assert evaluation.row.status == "fault"
    assert "illegal memory access" in evaluation.row.reason
    assert panel.set(FAR=0).wait().row.status == "ok"
    assert torch.equal(tensors[1], torch.zeros_like(tensors[1]))


def test_outputs_are_compared_with_the_users_function(lab: kernellab.Lab, tensors: Any) -> None:
    tensors[1].fill_(1.0)
    panel = lab.explore(
        add_into, grid, *tensors, BLOCK=[256, 1024], n=(1, N), check=lambda x_ptr, out_ptr: x_ptr + out_ptr
    )
    assert panel.wait().verdict.equal is True
    assert panel.set(BLOCK=1024).wait().verdict.equal is True
    half = panel.set(n=N // 2).wait()
    assert half.row.status == "wrong"
    assert half.best is None  # another size is another race
    assert bool((tensors[1] == 1.0).all())


def test_a_grid_that_leaves_elements_out_differs_from_the_first_point(lab: kernellab.Lab, tensors: Any) -> None:
    panel = lab.explore(copy, (N // 1024,), *tensors, N, BLOCK=[1024, 512])
    evaluation = panel.set(BLOCK=512).wait()
    assert evaluation.row.status == "differs"
    assert "differs from the first point (BLOCK=1024)" in evaluation.row.reason


def test_other_targets_are_compiled_and_not_timed(lab: kernellab.Lab, tensors: Any) -> None:
    panel = lab.explore(copy, grid, *tensors, N, BLOCK=[1024])
    evaluation = panel.set(target="cuda:80").wait()
    assert evaluation.target == "cuda:80"
    assert evaluation.row.time_ms is None
    assert evaluation.row.registers
    assert "compiled only" in evaluation.row.reason


def test_a_kept_point_is_a_row_that_a_tuning_finds(lab: kernellab.Lab, tensors: Any) -> None:
    panel = lab.explore(copy, grid, *tensors, N, BLOCK=[1024], num_warps=[4])
    panel.keep()
    tuning = lab.tune(copy, grid, *tensors, N, configs=[triton.Config({"BLOCK": 1024}, num_warps=4)])
    history = lab.kernels.store.history
    kept = [row for row in history.measurements(key=str(tuning.provenance["key"])) if "kept" in row.measurement.details]
    assert len(kept) == 1
    assert kept[0].measurement.time_ms == panel.point.row.time_ms


@triton.jit
def sum_into(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out_ptr, tl.sum(tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)))


def test_accumulators_are_set_to_zero_before_a_point_is_checked(lab: kernellab.Lab) -> None:
    kernel = triton.autotune([triton.Config({"BLOCK": 1024})], key=["n"], reset_to_zero=["out_ptr"])(sum_into)
    x, out = torch.ones(N, device="cuda"), torch.full((1,), 5.0, device="cuda")
    panel = lab.explore(kernel, grid, x, out, N, BLOCK=[512, 1024], check=lambda x_ptr: x_ptr.sum()[None])
    for block in (512, 1024):
        assert panel.set(BLOCK=block).wait().verdict.equal
    assert out.item() == 5.0
