"""The kernels and their references are right before kernellab touches them: Triton's own interpreter says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.alone import run_alone
from tests.kernels.cases import all_cases

PROGRAM = 'import runpy; runpy.run_module("tests.kernels.interpret", run_name="__main__")'


@pytest.mark.slow
def test_every_kernel_agrees_with_torch_in_tritons_own_interpreter() -> None:
    # That interpreter keeps bf16 as integer bits and computes on those.
    names = [name for name in all_cases() if "bfloat16" not in name]
    done = run_alone(PROGRAM, *names, folder=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == names
