"""Exported operators: PyTorch's own check, and their functional twins."""

from __future__ import annotations

from pathlib import Path

import pytest

import kernellab
from kernellab.errors import UsageError
from tests.export.exporting import export_case, run_files
from tests.export.test_module import SCALE, cell, tensors
from tests.kernels.cases import all_cases

CASES = all_cases()
TWIN = """\
import sys, torch
sys.path.insert(0, {folder!r})
import k
x = torch.arange(300.0)
torch.testing.assert_close(torch.ops.kernellab.scale_functional(x, 300), 3 * x)
base = torch.zeros(700)
torch.ops.kernellab.scale(x, base[100:400], 300)
torch.testing.assert_close(base[100:400], 3 * x)
assert not base[:100].any() and not base[400:].any()
compiled = torch.compile(lambda x: torch.ops.kernellab.scale_functional(x + 1, 300), backend="aot_eager")
torch.testing.assert_close(compiled(x), 3 * x + 3)
"""


@pytest.fixture
def lab() -> kernellab.Lab:
    return kernellab.Lab(target="cuda:80", store=":memory:")


@pytest.mark.parametrize("name", ["add-float32", "layer-norm-float32", "matmul-float32", "histogram"])
def test_an_operator_passes_the_check_of_pytorch(lab: kernellab.Lab, tmp_path: Path, name: str) -> None:
    name = next(known for known in CASES if known.replace("_", "-").startswith(name))
    with lab:
        text = export_case(lab, CASES[name], tmp_path / "k.py", kind="torch-op")
    mutated = CASES[name].writes | CASES[name].atomics
    assert all(f'"{argument}"' in text for argument in mutated)
    result = run_files(tmp_path / "k.py")
    assert result.returncode == 0, result.stderr
    assert "gives what it gave" in result.stdout
    assert "passes opcheck" in result.stdout


def test_the_functional_twin_allocates_and_the_operator_takes_views(lab: kernellab.Lab, tmp_path: Path) -> None:
    with lab:
        cell(lab, SCALE, **tensors())
        lab.export("scale", tmp_path / "k.py", kind="torch-op")
    (tmp_path / "twin.py").write_text(TWIN.format(folder=str(tmp_path)))
    result = run_files(tmp_path / "twin.py")
    assert result.returncode == 0, result.stderr


def test_a_grid_that_is_no_formula_is_refused(lab: kernellab.Lab, tmp_path: Path) -> None:
    with lab, pytest.raises(UsageError, match="no formula"):
        export_case(lab, CASES["softmax-float32"], tmp_path / "k.py", kind="torch-op")
