"""Live progress in JupyterLab: one output that changes, and what a saved notebook keeps of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.browser.conftest import put

nbformat = pytest.importorskip("nbformat")

pytestmark = pytest.mark.browser

MOVED_BY_HAND = """
from contextlib import contextmanager
from kernellab.notebook.live import LiveProgress, show_in_notebook
from kernellab.timing.config import Config
from kernellab.store.columns import Status
from kernellab.tune.progress import TuningProgress
from kernellab.tune.result import Row, Tuning

now, ticks = [0.0], []

@contextmanager
def ticking(tick):
    ticks.append(tick)
    yield

live = LiveProgress(show_in_notebook, lambda: now[0], ticking)
"""
TUNE = """
slow, fast = (Row(Config.of({"BLOCK": b}), Status.OK, time_ms=t) for b, t in ((64, 0.9), (128, 0.5)))
with live.tuning("softmax") as watch:
    watch(TuningProgress("softmax", "screening", 3, 0, 2, 1, 0, "BLOCK=64", 0.9, (0.9,), 1, (slow,)))
    now[0] += 2
    ticks[-1]()
    watch(TuningProgress("softmax", "done", 3, 0, 3, 3, 1, "BLOCK=128", 0.5, (0.9, 0.5), 3, (fast, slow)))
"""
CLEARED = """
with live.tuning("matmul"):
    now[0] += 2
    ticks[-1]()
live.clear_replaced(Tuning("matmul", (), (), None, (), 0.0, False))
"""
KERNEL = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
OUTPUTS = """() => {
  const cells = [...jupyterapp.shell.currentWidget.content.model.cells];
  return cells.map(cell => cell.toJSON().outputs.map(output => [].concat(output.data['text/plain']).join('')));
}"""


def test_a_tuning_has_one_output_that_keeps_its_last_state(run_notebook: Callable[[str], Any], jupyterlab: str) -> None:
    cells = [nbformat.v4.new_code_cell(source.strip()) for source in (MOVED_BY_HAND, TUNE, CLEARED)]
    put(jupyterlab, "live.ipynb", nbformat.v4.new_notebook(cells=cells, metadata=KERNEL))
    page = run_notebook("live.ipynb")
    assert page.evaluate(OUTPUTS) == [
        [],
        ["softmax: 3 configs tuned in 2.0 s, 1 failed; best 0.5 ms: BLOCK=128"],
        [""],
    ]
    assert page.locator(".kl-live svg circle").count() == 3
    assert page.locator(".kl-live progress").count() == 0
    rows = page.locator(".kl-live tbody tr")
    assert [row.split("\t")[-1] for row in rows.all_inner_texts()] == ["0.5", "0.9"]
    assert rows.first.bounding_box()["y"] < rows.last.bounding_box()["y"]
