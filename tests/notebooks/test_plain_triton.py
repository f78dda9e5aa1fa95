"""A `%%triton` cell is plain Triton: the notebook's code means the same without the magic."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.alone import run_alone
from tests.export.exporting import RUNNER

nbformat = pytest.importorskip("nbformat")


NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "01_quickstart.ipynb"


def test_the_quickstart_runs_as_a_plain_script_in_tritons_own_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "quickstart.py"
    script.write_text(_plain_script(NOTEBOOK), encoding="utf-8")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    done = run_alone(RUNNER, "__main__", str(script), folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("True") == 4


def _plain_script(path: Path) -> str:
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    return "\n\n".join(_plain_cell(cell.source) for cell in cells if _is_plain(cell))


def _is_plain(cell: Any) -> bool:
    on_purpose = "raises-exception" in cell.metadata.get("tags", ())
    return not on_purpose and "lab." not in cell.source.replace("kernellab.current_lab()", "")


def _plain_cell(source: str) -> str:
    lines = source.splitlines()
    return "\n".join(line for line in lines if not line.startswith("%") and "kernellab" not in line)
