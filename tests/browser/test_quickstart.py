from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.browser

NOTEBOOK = "01_quickstart.ipynb"
FAIL_ON_PURPOSE = {"compile-error", "out-of-bounds"}

# One record per code cell; each cell's outputs are marked with its id, for the locators below.
OUTPUTS = """() => jupyterapp.shell.currentWidget.content.widgets.filter(w => w.model.type === 'code').map(widget => {
  widget.outputArea.node.dataset.outputsOf = widget.model.id;
  return {
    id: widget.model.id,
    magic: widget.model.sharedModel.source.startsWith('%%triton'),
    types: widget.model.sharedModel.outputs.map(output => output.output_type),
    graphs: widget.outputArea.node.querySelectorAll('svg').length,
  };
})"""
# A screenshot shows no more of a card than the window does.
TALL_ENOUGH = {"width": 1100, "height": 2400}
OVERFLOWING = """() => [...document.querySelectorAll('.jp-RenderedHTMLCommon')].filter(
  output => output.scrollWidth > output.clientWidth + 1).length"""


def test_quickstart_shows_cards_in_jupyterlab(run_notebook: Callable[[str], Any], tmp_path: Path) -> None:
    page = run_notebook(NOTEBOOK)
    cells = page.evaluate(OUTPUTS)
    failed = {cell["id"] for cell in cells if "error" in cell["types"]}
    assert "compile-error" in failed <= FAIL_ON_PURPOSE  # a GPU does not run the one out of bounds
    explained = [cell for cell in cells if cell["magic"] and cell["id"] not in FAIL_ON_PURPOSE]
    assert len(explained) >= 8
    assert [cell["id"] for cell in explained if cell["graphs"] == 0] == []
    page.set_viewport_size(TALL_ENOUGH)
    for theme in ("JupyterLab Light", "JupyterLab Dark"):
        page.evaluate("theme => jupyterapp.commands.execute('apputils:change-theme', { theme })", theme)
        page.wait_for_function("theme => document.body.dataset.jpThemeName === theme", arg=theme)
        _screenshot_cards(page, [cell["id"] for cell in explained], tmp_path / theme.split()[-1].lower())
    assert page.evaluate(OVERFLOWING) == 0


def _screenshot_cards(page: Any, cells: list[str], folder: Path) -> None:
    folder.mkdir()
    for cell in cells:
        page.locator(f"[data-outputs-of='{cell}']").screenshot(path=str(folder / f"{cell}.png"))
