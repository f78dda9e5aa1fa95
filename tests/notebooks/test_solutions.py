"""The folded solutions of the exercises run, after no more than the first cells of their notebook."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.tables import every

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
SOLUTION = re.compile(r"<details>.*?```python\n(.*?)```.*?</details>", re.DOTALL)
BEFORE = ("hide", "load", "setup")
# A kernel takes seconds to start. So all share one, with the names, folder and environment that a new one would have.
ANEW = f"""%reset -f
%cd -q {NOTEBOOKS}
import os
os.environ.pop("CUDA_VISIBLE_DEVICES", None)
os.environ.update({dict(os.environ)!r})
%reload_ext kernellab"""


def _solutions(path: Path) -> list[str]:
    cells = nbformat.read(path, as_version=4).cells
    return [text for cell in cells if cell.cell_type == "markdown" for text in SOLUTION.findall(cell.source)]


WITH_EXERCISES = [path for path in sorted(NOTEBOOKS.glob("*.ipynb")) if _solutions(path)]


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    """Return a client of a kernel that is running."""
    metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    client = nbclient.NotebookClient(
        nbformat.v4.new_notebook(metadata=metadata), timeout=120, resources={"metadata": {"path": str(NOTEBOOKS)}}
    )
    with client.setup_kernel():
        yield client


@pytest.mark.parametrize("path", every(3, WITH_EXERCISES), ids=lambda path: path.stem)
def test_every_solution_runs(client: Any, path: Path) -> None:
    cells = nbformat.read(path, as_version=4).cells
    before = [cell.source for cell in cells if cell.cell_type == "code" and cell.id in BEFORE]
    for text in [ANEW, *before, *_solutions(path)]:
        client.nb.cells.append(nbformat.v4.new_code_cell(text))
        client.execute_cell(client.nb.cells[-1], len(client.nb.cells) - 1)


def test_the_notebooks_have_exercises() -> None:
    assert WITH_EXERCISES
