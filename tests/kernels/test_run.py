from __future__ import annotations

import pytest
import torch

import kernellab
from tests.kernels.cases import all_cases

CASES = all_cases()
SLOW_IF_NARROW = [pytest.param(name, marks=pytest.mark.slow) if "float16" in name else name for name in CASES]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW_IF_NARROW)
def test_run_leaves_what_torch_computes_and_counts_what_changed(lab: kernellab.Lab, name: str) -> None:
    case = CASES[name]
    arguments = case.fresh_arguments(DEVICE)
    run = lab.run(case.kernel, case.grid, **arguments, **case.meta)
    case.assert_as_expected(arguments)
    assert run.where == ("gpu" if DEVICE == "cuda" else "interpreter")
    assert {argument for argument, changed in run.changed.items() if changed} == set(case.expected)
    for argument in case.expected:
        after, before = arguments[argument], case.arguments[argument]
        assert isinstance(after, torch.Tensor)
        assert isinstance(before, torch.Tensor)
        assert run.changed[argument] == int((after.cpu() != before).sum())


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW_IF_NARROW)
def test_a_bound_kernel_launches_like_a_plain_one(lab: kernellab.Lab, name: str) -> None:
    case = CASES[name]
    arguments = case.fresh_arguments(DEVICE)
    lab.bind(case.kernel)[case.grid](**arguments, **case.meta)
    case.assert_as_expected(arguments)


@pytest.mark.gpu
@pytest.mark.parametrize("name", CASES)
def test_a_bound_kernel_launches_many_times_on_the_gpu(lab: kernellab.Lab, name: str) -> None:
    case = CASES[name]
    kernel = lab.bind(case.kernel)
    for _ in range(3):
        arguments = case.fresh_arguments("cuda")
        kernel[case.grid](**arguments, **case.meta)
        case.assert_as_expected(arguments)
