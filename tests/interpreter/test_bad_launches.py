"""A bad launch costs nothing but itself: after each kind, in one process, a good one runs and no tensor has changed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import kernellab
from kernellab.errors import KernellabError
from tests.interpreter.bad import bad_launches, double
from tests.labs import shared_lab
from tests.tables import every

BAD = bad_launches()


@pytest.fixture(scope="module")
def lab() -> Iterator[kernellab.Lab]:
    with shared_lab("cuda:90", ":memory:") as opened:
        yield opened


@pytest.fixture(scope="module")
def bystanders() -> list[torch.Tensor]:
    return [torch.arange(1000.0) * factor for factor in range(1, 6)]


@pytest.mark.slow
@pytest.mark.parametrize("name", every(2, BAD))
def test_after_a_bad_launch_all_is_as_before(lab: kernellab.Lab, bystanders: list[torch.Tensor], name: str) -> None:
    bad = BAD[name]
    tensors = [arg for arg in bad.args if isinstance(arg, torch.Tensor) and not arg.is_meta]
    before = [tensor.clone() for tensor in (*tensors, *bystanders)]
    with pytest.raises(KernellabError) as caught:
        lab.run(bad.kernel, bad.grid, *bad.args, timeout_s=bad.timeout_s, **bad.meta)
    assert bad.words in f"{caught.value.message} {caught.value.detail}"
    for tensor, held in zip((*tensors, *bystanders), before, strict=True):
        assert torch.equal(tensor, held)
    out = torch.zeros(100)
    lab.run(double, (2,), torch.ones(100), out, 100, BLOCK=64)
    assert (out == 2).all()
