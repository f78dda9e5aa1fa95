"""``%triton_timeline`` in a notebook."""

from __future__ import annotations

import pytest
import torch

from kernellab.errors import CannotRun
from tests.notebook.conftest import Notebook

KERNEL = """
@triton.jit
def fill_kernel(x_ptr, BLOCK: tl.constexpr):
    tl.store(x_ptr + tl.arange(0, BLOCK), 1.0)

x = torch.zeros(64)
fill_kernel[(1,)](x, BLOCK=64)
"""


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
@pytest.mark.parametrize("launch", ["fill_kernel[(1,)](x, BLOCK=64)", "fill_kernel"])
def test_without_a_gpu_the_magic_says_what_it_needs(notebook: Notebook, launch: str) -> None:
    assert notebook.triton(KERNEL).error is None
    ran = notebook.run(f"%triton_timeline {launch}")
    assert isinstance(ran.error, CannotRun)
    assert "NVIDIA GPU" in str(ran.error)
