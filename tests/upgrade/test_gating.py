"""The gate without a GPU: what both sides run on, and what is refused."""

from __future__ import annotations

import pytest
import torch

from kernellab.errors import UsageError
from kernellab.timing.gate import GateVerdict
from tests.labs import shared_lab
from tests.upgrade.kernels import double, scale

N = 4096


def arguments() -> tuple[torch.Tensor, torch.Tensor, int]:
    x = torch.rand(N)
    return x, torch.zeros_like(x), N


@pytest.mark.slow
def test_an_earlier_kernel_takes_the_arguments_that_it_has_parameters_for() -> None:
    with shared_lab() as lab:
        x, out, n = arguments()
        result = lab.gate(scale, (4,), x, out, n, 2.0, against=double, check=True, BLOCK=1024)
        assert (result.verdict, result.difference, result.names) == (GateVerdict.WITHIN, "", ("double", "scale"))
        assert not out.any()  # it ran on copies
        other = lab.gate(scale, (4,), x, out, n, 3.0, against=double, check=True, BLOCK=1024)
        assert (other.verdict, other.status) == (GateVerdict.DIFFERENT, 1)
        largest = f"{float(x.max()):.3g}"
        assert other.difference.startswith("out_ptr differs from that of double in 4,")
        assert other.difference.endswith(f" of 4,096 elements, by up to {largest}")


@pytest.mark.slow
def test_values_of_its_own_and_tensors_of_another_shape_are_noted() -> None:
    with shared_lab() as lab:
        x, out, n = arguments()
        own = {"x_ptr": torch.rand(2 * N), "out_ptr": torch.zeros(N), "factor": 3.0}
        result = lab.gate(scale, (4,), x, out, n, 2.0, against=(scale, None, own), BLOCK=1024)
        noted = [note for note in result.notes if "each runs on its own" in note]
        assert [note.split()[0] for note in noted] == ["x_ptr", "factor"]


@pytest.mark.slow
def test_wrong_options_are_refused() -> None:
    with shared_lab() as lab:
        x, out, n = arguments()
        for wrong in ({"margin": 3}, {"margin": "3%"}, {"budget_s": 0}, {"against": (scale, (4,))}):
            with pytest.raises(UsageError, match="expected"):
                lab.gate(scale, (4,), x, out, n, 2.0, **{"against": scale, **wrong}, BLOCK=1024)  # type: ignore[arg-type]
