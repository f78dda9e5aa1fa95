"""The puzzles: every solution is judged to be one, and what is there to begin with is told what it lacks."""

from __future__ import annotations

import importlib.util
import inspect
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kernellab import Lab
from tests.labs import lab_fixture

nbformat = pytest.importorskip("nbformat")

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
CELLS = {cell.id: cell.source for cell in nbformat.read(NOTEBOOKS / "11_puzzles.ipynb", as_version=4).cells}
TOLD = {
    "copy": "copy_kernel stores nothing",
    "double": "load of x_ptr out of bounds: element 100",
    "reverse": "1 of 64 active lanes, mask: offsets < n",
    "table": "table_kernel stores nothing",
    "transpose": "holds the expression transposed",
    "sum": "No program reads 1,744 of the 2,000 elements",
    "softmax": 'with other=-float("inf"), out_ptr equals the expression',
    "gather": "gather_kernel stores nothing",
    "histogram": "race of counts_ptr",
    "logsumexp": "[0] is inf, not",
    "matmul": "No program reads 1,190 of the 1,750 elements of a_ptr",
    "attention": "[0, 0] is 0, not",
}
lab = lab_fixture("cuda:90")


@pytest.fixture(scope="module")
def names(lab: Lab) -> dict[str, Any]:
    """Return the names of the notebook when all puzzles are told and none is solved."""
    names: dict[str, Any] = {"lab": lab}
    for identity, source in CELLS.items():
        if identity == "setup" or identity.endswith("-task"):
            exec(source.replace("lab = kernellab.current_lab()\n", ""), names)  # there is no shell here
    return names


@pytest.fixture(scope="module")
def solutions() -> ModuleType:
    return loaded(NOTEBOOKS / "puzzle_solutions.py")


def loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def judged(puzzle: str, names: dict[str, Any], kernels: dict[str, Any]) -> None:
    """Run the last line of the cell of a puzzle."""
    exec(CELLS[puzzle].splitlines()[-1], {**names, **kernels})


@pytest.mark.parametrize("puzzle", TOLD)
def test_the_solution_is_judged_to_be_one(
    puzzle: str, names: dict[str, Any], solutions: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    judged(puzzle, names, vars(solutions))
    assert ": solved, with" in capsys.readouterr().out


@pytest.mark.parametrize("puzzle", TOLD)
def test_a_beginning_is_told_what_it_lacks(
    puzzle: str, names: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    magic, *lines = CELLS[puzzle].splitlines()
    assert magic == "%%triton -q"
    path = tmp_path / f"beginning_{puzzle}.py"
    path.write_text("\n".join(["import triton", "import triton.language as tl", "", *lines[:-1]]), encoding="utf-8")
    judged(puzzle, names, vars(loaded(path)))
    told = capsys.readouterr().out
    assert ": not yet." in told
    assert TOLD[puzzle] in told


def test_there_are_twelve_puzzles_and_a_solution_of_the_same_signature_for_each(solutions: ModuleType) -> None:
    tasks = [identity.removesuffix("-task") for identity in CELLS if identity.endswith("-task")]
    assert tasks == list(TOLD)
    assert len(tasks) == 12
    for puzzle in tasks:
        kernel = CELLS[puzzle].splitlines()[-1].partition("(")[2].rstrip(")")
        signature = str(inspect.signature(getattr(solutions, kernel).fn)).replace("'", "")
        wanted = CELLS[puzzle][CELLS[puzzle].index(kernel) + len(kernel) :].partition(":\n")[0]
        assert "".join(signature.split()) == "".join(wanted.split())
