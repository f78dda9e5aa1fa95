"""The notebooks are saved as a reader should find them: executed from top to bottom, and with nothing of a machine."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("*.ipynb"))
MACHINE = re.compile(r"/(home|root|tmp|work|Users)/|ipykernel_\d+")


def _code_cells(path: Path) -> list[nbformat.NotebookNode]:
    return [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_executed_in_order(path: Path) -> None:
    cells = _code_cells(path)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_only_cells_marked_so_show_errors(path: Path) -> None:
    for cell in _code_cells(path):
        failed = any(output.output_type == "error" for output in cell.outputs)
        assert failed == ("raises-exception" in cell.metadata.get("tags", ())), cell.id


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_triton_cell_that_works_shows_a_picture(path: Path) -> None:
    for cell in _code_cells(path):
        if cell.source.startswith("%%triton") and "raises-exception" not in cell.metadata.get("tags", ()):
            html = "".join(output.get("data", {}).get("text/html", "") for output in cell.outputs)
            assert "<svg" in html, cell.id


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_no_output_names_a_folder_of_the_machine(path: Path) -> None:
    for cell in _code_cells(path):
        assert not MACHINE.search(str(cell.outputs)), cell.id
