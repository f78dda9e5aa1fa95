"""The planted pairs are what they claim to be: both halves run, and leave the same."""

from __future__ import annotations

import pytest
import torch

import kernellab
from tests.explain.planted import KernelCall, Planted, WellTuned
from tests.explain.planted_compute import COMPUTE_PAIRS
from tests.explain.planted_memory import MEMORY_PAIRS
from tests.explain.well_tuned import WELL_TUNED
from tests.tables import every

PAIRS = (*MEMORY_PAIRS, *COMPUTE_PAIRS)
pytestmark = pytest.mark.slow


@pytest.mark.parametrize("pair", every(4, PAIRS), ids=lambda pair: pair.name)
def test_both_halves_of_a_pair_leave_the_same(lab: kernellab.Lab, pair: Planted) -> None:
    outputs = [left_by(lab, call, pair) for call in (pair.slow, pair.fixed)]
    for name in pair.outputs:
        slow, fixed = (each[name].float().reshape(-1) for each in outputs)
        assert torch.allclose(slow, fixed, atol=pair.tolerance, rtol=pair.tolerance), name


@pytest.mark.parametrize("kernel", every(4, WELL_TUNED), ids=lambda kernel: kernel.name)
def test_a_well_tuned_kernel_computes_what_torch_does(lab: kernellab.Lab, kernel: WellTuned) -> None:
    inputs = kernel.inputs(False, "cpu")
    expected = kernel.expected(inputs)
    grid, arguments = kernel.call.of(inputs)
    lab.run(kernel.call.kernel, grid, **arguments)
    for name, value in expected.items():
        got = arguments[name].float().reshape(-1)
        assert torch.allclose(got, value.float().reshape(-1), atol=kernel.tolerance, rtol=kernel.tolerance), name


def left_by(lab: kernellab.Lab, call: KernelCall, pair: Planted) -> dict[str, torch.Tensor]:
    grid, arguments = call.of(pair.inputs(False, "cpu"))
    lab.run(call.kernel, grid, **arguments)
    return {name: arguments[name] for name in pair.outputs}


def test_there_are_pairs_over_the_causes() -> None:
    assert len(PAIRS) >= 24
    assert len({pair.causes[0] for pair in PAIRS}) >= 16
    assert len(WELL_TUNED) >= 20
