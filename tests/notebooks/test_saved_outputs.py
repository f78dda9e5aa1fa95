"""The notebooks are saved as a reader should find them: executed from top to bottom, and with nothing of a machine."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kernellab.views.rendering import FIGURES
from tests.tables import every

nbformat = pytest.importorskip("nbformat")

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
README = ROOT / "README.md"
PAGES = sorted((ROOT / "docs").rglob("*.md"))
MACHINE = re.compile(r"/(home|root|tmp|work|Users)/|ipykernel_\d+")
ADDRESS = re.compile(r"0x[0-9a-f]{6,}")
FETCHED = re.compile(r"<script|<link|<iframe|(?:src|href)\s*=\s*[\"']?(?:https?:)?//|url\(\s*[\"']?(?:https?:)?//")
CODE = re.compile(r"```.*?```|`[^`]*`", re.DOTALL)
LINK = re.compile(r"\]\((?!https?:|#)([^)#]+)")
WIDGET = "application/vnd.jupyter.widget-view+json"
STATIC = {"text/html", "image/svg+xml", "image/png", "text/plain"}
SIZE_LIMIT_BYTES = 1_500_000


def _displayed(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the id of a cell and the bundle of each of its outputs that shows something else than a stream."""
    for cell in _code_cells(path):
        for output in cell.outputs:
            if "data" in output:
                yield cell.id, output.data


def _shows_a_card(cell: Any) -> bool:
    first, _, _ = cell.source.partition("\n")
    is_quiet = "-q" in first.split() or "raises-exception" in cell.metadata.get("tags", ())
    return first.startswith("%%triton") and not is_quiet


def _code_cells(path: Path) -> list[Any]:
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
        if _shows_a_card(cell):
            html = "".join(output.get("data", {}).get("text/html", "") for output in cell.outputs)
            assert "<svg" in html, cell.id


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_no_output_names_a_folder_of_the_machine(path: Path) -> None:
    for cell in _code_cells(path):
        assert not MACHINE.search(str(cell.outputs)), cell.id


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_every_output_shows_without_a_kernel_and_as_text(path: Path) -> None:
    pictured = {cell for cell, bundle in _displayed(path) if "text/html" in bundle}
    for cell, bundle in _displayed(path):
        assert "text/plain" in bundle, cell
        assert bundle["text/plain"] or not bundle.get("text/html"), cell
        is_bare_widget = WIDGET in bundle and STATIC & set(bundle) == {"text/plain"}
        assert not is_bare_widget or cell in pictured, f"{cell}: a widget with neither a picture nor one beside it"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_no_output_fetches_or_runs_anything(path: Path) -> None:
    for cell, bundle in _displayed(path):
        assert not FETCHED.search(bundle.get("text/html", "")), cell


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_no_cell_warns(path: Path) -> None:
    for cell in _code_cells(path):
        assert not [output for output in cell.outputs if output.get("name") == "stderr"], cell.id


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_that_are_compared_hold_no_address(path: Path) -> None:
    for cell in _code_cells(path):
        if "nbval-check-output" in cell.metadata.get("tags", ()):
            assert cell.outputs, cell.id
            assert not ADDRESS.search(str(cell.outputs)), cell.id


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_links_lead_to_files_that_are_there(path: Path) -> None:
    texts = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "markdown"]
    for cell in texts:
        for target in LINK.findall(CODE.sub("", cell.source)):
            assert (path.parent / target).is_file(), (cell.id, target)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_code_host_shows_the_file(path: Path) -> None:
    assert path.stat().st_size < SIZE_LIMIT_BYTES


@pytest.mark.slow
@pytest.mark.parametrize("path", every(4, NOTEBOOKS), ids=lambda path: path.stem)
def test_a_page_that_nbconvert_sanitizes_has_the_text_of_each_result(path: Path) -> None:
    nbconvert, config = pytest.importorskip("nbconvert"), pytest.importorskip("traitlets.config").Config()
    config.NbConvertBase.display_data_priority = ["image/png", "text/plain"]  # as docs/front_ends.md says
    page, _ = nbconvert.HTMLExporter(sanitize_html=True, config=config).from_filename(str(path))
    assert not re.search(r"&lt;(svg|style|div|table|img)\b|\d+ boxes and \d+ arrows", page)


def test_one_notebook_draws_and_saves_every_kind_of_result() -> None:
    cells = {cell.id: cell for cell in _code_cells(NOTEBOOKS[0].parent / "14_figures_and_files.ipynb")}
    drawn = [cell for cell in cells.values() if ".plot(" in cell.source]
    assert all("image/png" in cell.outputs[-1].data for cell in drawn)
    saved = dict(line.split(maxsplit=1) for line in cells["files"].outputs[0].text.splitlines())
    assert set(saved) == {kind.__name__ for kind in FIGURES}
    assert len(drawn) >= len(saved)
    assert set(saved.values()) == {".html .svg .png .csv .json"}


@pytest.mark.parametrize("page", [*NOTEBOOKS, README, *PAGES], ids=lambda page: page.stem)
def test_no_notebook_and_no_page_imports_from_the_views(page: Path) -> None:
    assert not re.search(r"(from|import) kernellab\.views", page.read_text(encoding="utf-8"))
