"""Explanations of launches that are timed on a GPU."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import kernellab
from kernellab.explain.causes import Cause
from tests.explain.planted import MARK
from tests.explain.planted_memory import MEMORY_PAIRS

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def gpu_lab() -> Iterator[kernellab.Lab]:
    with kernellab.Lab(store=":memory:") as opened:
        yield opened


def test_a_launch_is_timed_and_its_gain_stays_below_what_its_bytes_take(gpu_lab: kernellab.Lab) -> None:
    pair = MEMORY_PAIRS[0]
    inputs = pair.inputs(True, "cuda")
    before = inputs["out_ptr"].fill_(7).clone()
    grid, arguments = pair.slow.of(inputs)
    why = gpu_lab.explain(pair.slow.kernel, grid, **arguments)
    assert why.facts.time_s is not None
    assert why.facts.device.is_measured
    assert why.findings[0].cause is Cause.UNCOALESCED
    assert why.findings[0].line in pair.slow.lines(), MARK
    assert why.share is not None
    assert why.findings[0].gain[1] <= 1.01 / why.share
    assert torch.equal(inputs["out_ptr"], before)


def test_its_samples_are_shown_where_they_are_asked_for(gpu_lab: kernellab.Lab) -> None:
    pair = MEMORY_PAIRS[0]
    grid, arguments = pair.slow.of(pair.inputs(True, "cuda"))
    why = gpu_lab.explain(pair.slow.kernel, grid, samples=True, **arguments)
    assert why.profile is not None
    assert why.profile.refused or why.facts.line_shares
