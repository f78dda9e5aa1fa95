from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.browser

NOTEBOOK = "01_quickstart.ipynb"
FAIL_ON_PURPOSE = {"compile-error", "out-of-bounds"}

OUTPUTS = """() => [...jupyterapp.shell.currentWidget.content.model.cells].filter(c => c.type === 'code').map(cell => ({
  id: cell.id,
  magic: cell.sharedModel.source.startsWith('%%triton'),
  types: cell.sharedModel.outputs.map(output => output.output_type),
}))"""
OVERFLOWING = """() => [...document.querySelectorAll('.jp-RenderedHTMLCommon')].filter(
  output => output.scrollWidth > output.clientWidth + 1).length"""


def test_quickstart_shows_cards_in_jupyterlab(run_notebook: Callable[[str], Any], tmp_path: Path) -> None:
    page = run_notebook(NOTEBOOK)
    cells = page.evaluate(OUTPUTS)
    failed = {cell["id"] for cell in cells if "error" in cell["types"]}
    assert failed == FAIL_ON_PURPOSE
    explained = [cell["id"] for cell in cells if cell["magic"] and cell["id"] not in FAIL_ON_PURPOSE]
    assert len(explained) >= 8
    for cell in explained:
        output = page.locator(f"[data-cell-id='{cell}'] .jp-OutputArea").first
        assert output.locator("svg").count() >= 1, f"no graph under {cell}"
    for theme in ("JupyterLab Light", "JupyterLab Dark"):
        page.evaluate("theme => jupyterapp.commands.execute('apputils:change-theme', { theme })", theme)
        page.wait_for_function("theme => document.body.dataset.jpThemeName === theme", arg=theme)
        _screenshot_cards(page, explained, tmp_path / theme.split()[-1].lower())
    assert page.evaluate(OVERFLOWING) == 0


def _screenshot_cards(page: Any, cells: list[str], folder: Path) -> None:
    folder.mkdir()
    for cell in cells:
        page.locator(f"[data-cell-id='{cell}'] .jp-OutputArea").first.screenshot(path=str(folder / f"{cell}.png"))
