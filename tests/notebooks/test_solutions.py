"""The folded solutions of the exercises run, after no more than the first cells of their notebook."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
SOLUTION = re.compile(r"<details>.*?```python\n(.*?)```.*?</details>", re.DOTALL)
BEFORE = ("hide", "load", "setup")


def _solutions(path: Path) -> list[str]:
    cells = nbformat.read(path, as_version=4).cells
    return [text for cell in cells if cell.cell_type == "markdown" for text in SOLUTION.findall(cell.source)]


WITH_EXERCISES = [path for path in sorted(NOTEBOOKS.glob("*.ipynb")) if _solutions(path)]


@pytest.mark.parametrize("path", WITH_EXERCISES, ids=lambda path: path.stem)
def test_every_solution_runs(path: Path) -> None:
    cells = nbformat.read(path, as_version=4).cells
    before = [cell.source for cell in cells if cell.cell_type == "code" and cell.id in BEFORE]
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(text) for text in [*before, *_solutions(path)]],
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
    )
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(NOTEBOOKS)}}).execute()


def test_the_notebooks_have_exercises() -> None:
    assert WITH_EXERCISES
