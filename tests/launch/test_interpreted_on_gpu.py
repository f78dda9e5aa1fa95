"""Launches of GPU tensors that are to run on the CPU, where every access is checked."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

import kernellab
from kernellab.errors import OutOfBounds
from kernellab.notebook.cell import CellOptions, run_cell
from tests.gpu import bad_kernels as bad
from tests.kernels.cases import all_cases
from tests.labs import lab_fixture

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]
N = 1024
CELL = """\
@triton.jit
def shifted(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets + 1), mask=offsets < n)

shifted[(8,)](x, out, 1024, BLOCK=128)
"""
lab = lab_fixture(scope="function", open_lab=kernellab.Lab)


@triton.autotune([triton.Config({"BLOCK": size}) for size in (128, 256)], key=["n"])
@triton.jit
def doubled(x_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + offsets, 2 * tl.load(x_ptr + offsets, mask=offsets < n), mask=offsets < n)


def test_a_read_out_of_bounds_is_found_and_nothing_changes(lab: kernellab.Lab) -> None:
    x, out = torch.rand(N, device="cuda"), torch.zeros(N, device="cuda")
    assert lab.run(bad.read_at, (1,), x, out, N - 1, BLOCK=32).where == "gpu"
    out.zero_()
    with pytest.raises(OutOfBounds, match="x_ptr"):
        lab.run(bad.read_at, (1,), x, out, N - 1, BLOCK=32, interpret=True)
    assert not out.any()


def test_results_are_copied_back(lab: kernellab.Lab) -> None:
    case = all_cases()["softmax-float32"]
    arguments = case.fresh_arguments("cuda")
    run = lab.run(case.kernel, case.grid, **arguments, **case.meta, interpret=True)
    assert run.where == "interpreter"
    assert sum(run.changed.values()) > 0
    case.assert_as_expected(arguments)


def test_views_of_one_memory_change_together(lab: kernellab.Lab) -> None:
    whole = torch.arange(float(N), device="cuda")
    lab.run(bad.copy_all, (4,), whole[: N // 2], whole[N // 2 :], N // 2, BLOCK=128, interpret=True)
    assert torch.equal(whole[: N // 2], whole[N // 2 :])


def test_an_autotuned_kernel_is_not_tuned(lab: kernellab.Lab) -> None:
    x = torch.ones(N, device="cuda")
    run = lab.run(doubled, lambda meta: (triton.cdiv(N, meta["BLOCK"]),), x, N, interpret=True)
    assert run.where == "interpreter"
    assert x.eq(2).all()
    assert not [row for row in lab.kernels.store.history.launches() if row.launch.where == "gpu"]


def test_a_cell_runs_there_too(lab: kernellab.Lab) -> None:
    names = {"x": torch.rand(N, device="cuda"), "out": torch.zeros(N, device="cuda")}
    options = CellOptions(interpret=True)
    with pytest.raises(OutOfBounds, match="x_ptr"):
        run_cell(lab, CELL, names, "In[1]", options, lambda value: None)
    report = run_cell(lab, CELL, names, "In[2]", CellOptions(), lambda value: None)  # a GPU does not find it
    assert report.kernels[0].run is not None
    assert report.kernels[0].run.where == "gpu"
