"""Notebooks that were saved: opened again with a new kernel, and exported to HTML, they still show their pictures."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import put, trust

nbformat = pytest.importorskip("nbformat")
nbconvert = pytest.importorskip("nbconvert")

pytestmark = pytest.mark.browser

QUICKSTART = Path(__file__).parents[2] / "notebooks" / "01_quickstart.ipynb"
NOTEBOOKS = sorted(QUICKSTART.parent.glob("*.ipynb"))
LIVE = "linked.ipynb"
CELLS = (
    "%load_ext kernellab\nimport kernellab, torch, triton, triton.language as tl",
    """%%triton --target cuda:90
@triton.jit
def row_max(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    best = -float("inf")
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=-float("inf"))
        best = tl.maximum(best, tl.max(x))
    tl.store(out_ptr + row, best)""",
    """x, out = torch.ones(4, 100), torch.zeros(4)
compiled = kernellab.current_lab().compile(row_max, x, out, 100, 64, target="cuda:90")
explorer = kernellab.explorer(compiled, opened="ttir")
explorer""",
    "graph = kernellab.graph_view(compiled)\ngraph",
)
LOAD, STORE = "x = tl.load(", "tl.store("
PYTHON = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
OPENED = """() => {
  const panel = window.jupyterapp?.shell?.currentWidget;
  return panel?.context?.isReady && panel.content.widgets.every(cell => cell.isAttached);
}"""
ASK = """async code => {
  const kernel = jupyterapp.shell.currentWidget.sessionContext.session.kernel;
  const future = kernel.requestExecute({ code, store_history: false });
  let told = '';
  future.onIOPub = message => { told += message.content.text ?? ''; };
  await future.done;
  return told;
}"""
PICTURES = "document.querySelectorAll('.jp-OutputArea-output svg, .jp-OutputArea-output img')"
ALL_SHOW = f"count => {PICTURES}.length >= count"
SEEN = f"() => [...{PICTURES}].filter(picture => picture.checkVisibility()).length"
BROKEN = "() => document.body.innerText.includes('Error displaying widget')"
WIDE = """() => [...document.querySelectorAll('.jp-OutputArea-output')].filter(
  output => output.scrollWidth > output.clientWidth + 1).length"""


def got(address: str, name: str) -> Any:
    """Read a notebook from the folder of the server."""
    with urllib.request.urlopen(f"{address}/api/contents/{name}", timeout=30) as answer:
        return nbformat.reads(json.dumps(json.load(answer)["content"]), as_version=4)


@cache
def exporter() -> Any:
    return nbconvert.HTMLExporter(template_name="lab")


def offline(chromium: Any, notebook: Any, file: Path) -> Any:
    """Export a notebook to HTML and open that in a page without a network."""
    file.write_text(exporter().from_notebook_node(notebook)[0], encoding="utf-8")
    page = chromium.new_page(viewport={"width": 1100, "height": 1000})
    page.route(re.compile("^https?:"), lambda route: route.abort())
    page.goto(file.as_uri(), wait_until="commit")
    return page


@pytest.fixture
def opened(jupyterlab: str, chromium: Any, tmp_path: Path) -> Any:
    """Return a function that opens a notebook of the server without running it."""
    pages = []

    def go(name: str) -> Any:
        page = chromium.new_page(viewport={"width": 1100, "height": 1000})
        page.set_default_timeout(60_000)
        pages.append(page)
        page.goto(f"{jupyterlab}/doc/tree/{name}?reset")
        page.wait_for_function(OPENED)
        return page

    yield go
    for number, page in enumerate(pages):
        page.screenshot(path=str(tmp_path / f"opened-{number}.png"))
        page.close()


def test_the_widgets_live_in_jupyterlab_and_leave_pictures_behind(
    jupyterlab: str, run_notebook: Callable[[str], Any], chromium: Any, tmp_path: Path
) -> None:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in CELLS], metadata=PYTHON)
    put(jupyterlab, LIVE, notebook)
    page = run_notebook(LIVE)
    live = page.locator(".kl-live .kx")
    live.wait_for(state="visible")
    _link_both_ways(page, live)
    _fold(page)
    for theme in ("JupyterLab Light", "JupyterLab Dark"):
        page.evaluate("theme => jupyterapp.commands.execute('apputils:change-theme', { theme })", theme)
        page.wait_for_function("theme => document.body.dataset.jpThemeName === theme", arg=theme)
        for number, widget in enumerate(page.locator(".kl-live").all()):
            widget.screenshot(path=str(tmp_path / f"{theme.split()[-1]}-{number}.png"))
    assert page.locator(".kl-still").count() == 2
    assert not page.locator(".kl-still .kx").is_visible()  # the widget shows in its place
    page.evaluate("() => jupyterapp.commands.execute('docmanager:save')")
    page.evaluate("() => jupyterapp.shell.currentWidget.sessionContext.shutdown()")

    page.goto(f"{jupyterlab}/doc/tree/{LIVE}?reset")
    page.wait_for_function(OPENED)
    page.locator(".kl-still .kx .kg svg").wait_for(state="visible")
    assert page.locator(".kl-still > .kg svg").is_visible()
    assert page.locator(".kl-live:has(.kx, .kg)").count() == 0  # progress of a slow compile may stand there, too
    assert not page.evaluate(BROKEN)
    assert page.evaluate(WIDE) == 0

    export = offline(chromium, got(jupyterlab, LIVE), tmp_path / "linked.html")
    export.locator(".kl-still .kx .kg svg").wait_for(state="visible")
    assert export.locator(".kl-still > .kg svg").is_visible()
    export.close()


def _link_both_ways(page: Any, live: Any) -> None:
    box = live.locator(".kg [data-node]", has=page.locator("text", has_text=LOAD))
    box.locator("text").first.click()
    line = live.locator(".kx-source .s", has=page.locator("code", has_text=LOAD)).first
    page.wait_for_function("e => getComputedStyle(e).boxShadow !== 'none'", arg=line.element_handle())
    _await_answer(page, "explorer.line", line.locator("i").inner_text())
    live.locator(".kx-source .s", has=page.locator("code", has_text=STORE)).first.click()
    store = live.locator(".kg [data-node]", has=page.locator("text", has_text=STORE))
    page.wait_for_function("e => e.classList.contains('kg-on')", arg=store.element_handle())
    page.evaluate(ASK, f"explorer.line = {line.locator('i').inner_text()}")
    page.wait_for_function("e => e.classList.contains('kg-on')", arg=box.element_handle())


def _await_answer(page: Any, expression: str, expected: str) -> None:
    """Ask the kernel until an expression has a value; a change of a widget is sent after it shows."""
    for _ in range(50):
        if (answer := page.evaluate(ASK, f"print({expression})").strip()) == expected:
            return
        page.wait_for_timeout(100)
    assert answer == expected


def _fold(page: Any) -> None:
    graph = page.locator(".kl-live > .kg")
    graph.locator("[data-frame] > text").first.click()
    graph.locator("[data-folds]").wait_for(state="visible")
    _await_answer(page, "len(graph.collapsed)", "1")
    page.evaluate(ASK, "graph.collapsed = []; graph.slice = 'x_ptr'")
    graph.locator("[data-node].kg-dim").first.wait_for(state="visible")
    assert graph.locator("[data-folds]").count() == 0


def test_the_saved_quickstart_shows_its_pictures_before_anything_runs(
    jupyterlab: str, opened: Callable[[str], Any]
) -> None:
    notebook = nbformat.read(QUICKSTART, as_version=4)
    put(jupyterlab, "saved.ipynb", notebook)
    trust(jupyterlab, "saved.ipynb")
    page = opened("saved.ipynb")
    page.wait_for_function(ALL_SHOW, arg=pictures(notebook))
    assert page.locator(".jp-OutputArea .kl-card").first.is_visible()
    assert not page.evaluate(BROKEN)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_an_exported_notebook_shows_its_pictures_without_a_network(path: Path, chromium: Any, tmp_path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    if not pictures(notebook):
        pytest.skip("is saved without outputs")
    page = offline(chromium, notebook, tmp_path / f"{path.stem}.html")
    page.wait_for_function(ALL_SHOW, arg=pictures(notebook))
    assert page.evaluate(SEEN) > 0
    page.close()


def pictures(notebook: Any) -> int:
    """Return how many pictures the outputs of a notebook hold."""
    outputs = (output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs)
    data = [output.get("data", {}) for output in outputs]
    drawn = sum(len(re.findall(r"<svg |<img ", "".join(each.get("text/html", "")))) for each in data)
    return drawn + sum("image/png" in each and "text/html" not in each for each in data)
