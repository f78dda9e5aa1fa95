"""The kernels and their references are right before kernellab touches them: Triton's own interpreter says so."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.kernels.cases import all_cases


def test_every_kernel_agrees_with_torch_in_tritons_own_interpreter() -> None:
    # That interpreter keeps bf16 as integer bits and computes on those.
    names = [name for name in all_cases() if "bfloat16" not in name]
    done = subprocess.run(
        [sys.executable, "-m", "tests.kernels.interpret", *names],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == names
