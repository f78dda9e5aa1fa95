"""Calls that are to be explained."""

from __future__ import annotations

import pytest
import torch

import kernellab
from kernellab.errors import LaunchError
from tests import samples
from tests.labs import shared_lab


@pytest.fixture(scope="module")
def lab() -> kernellab.Lab:
    return shared_lab(target="cuda:90", store=":memory:")


def test_an_empty_grid_is_refused_in_place_of_explaining_what_is_not_launched(lab: kernellab.Lab) -> None:
    x = torch.empty(0)
    with pytest.raises(LaunchError, match=r"The grid of add_kernel is \(0, 1, 1\): it launches nothing"):
        lab.explain(samples.add_kernel, (0,), x, x, x, 0, BLOCK=64)
