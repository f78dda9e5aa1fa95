"""``%%triton --explore``, and what a panel shows in a terminal and in a saved notebook."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from tests.labs import shell_with_extension

CELL = """%%triton --explore {options}
import torch
@triton.jit
def twice(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, 2 * tl.load(x_ptr + offsets, mask=mask), mask=mask)
x, out = torch.randn(1000), torch.zeros(1000)
{launch}
"""
LAUNCH = "twice[lambda meta: (triton.cdiv(1000, meta['BLOCK']),)](x, out, 1000, BLOCK=128, num_warps=2)"


@pytest.fixture(scope="module")
def shell() -> Iterator[InteractiveShell]:
    with shell_with_extension() as shell:
        yield shell


def run(shell: Any, cell: str) -> tuple[Any, list[dict[str, Any]]]:
    with capture_output() as captured:
        result = shell.run_cell(cell, store_history=True)
    return result.error_in_exec, [output.data for output in captured.outputs]


@pytest.mark.slow
def test_the_last_launch_of_a_cell_is_explored(shell: InteractiveShell) -> None:
    error, shown = run(shell, CELL.format(options="", launch=LAUNCH))
    assert error is None
    panel = next(data["text/plain"] for data in shown if "Exploring" in data["text/plain"])
    assert "BLOCK=128, num_warps=2: compiled for" in panel
    assert "BLOCK 16 to 1024, num_warps 1 to 16" in panel


@pytest.mark.slow
def test_the_check_of_a_cell_is_that_of_the_panel(shell: InteractiveShell) -> None:
    _, shown = run(shell, CELL.format(options='--check "x + x"', launch=LAUNCH))
    panel = next(data["text/plain"] for data in shown if "Exploring" in data["text/plain"])
    assert "matches x + x; max error" in panel


@pytest.mark.slow
def test_a_target_of_the_cell_is_that_of_the_panel(shell: InteractiveShell) -> None:
    _, shown = run(shell, CELL.format(options="--target cuda:80", launch=LAUNCH))
    assert "compiled for cuda:80" in next(d["text/plain"] for d in shown if "Exploring" in d["text/plain"])


def test_a_cell_that_launches_nothing_says_so(shell: InteractiveShell) -> None:
    error, _ = run(shell, CELL.format(options="", launch=""))
    assert "--explore: the cell launches no kernel" in str(error)


@pytest.mark.slow
def test_a_saved_notebook_holds_the_picture_of_the_current_point() -> None:
    client = pytest.importorskip("nbclient")
    cells = [
        "%load_ext kernellab",
        CELL.format(options="-q", launch=LAUNCH).replace(" --explore", ""),
        "panel = kernellab.current_lab().explore(twice, (8,), x, out, 1000, BLOCK=[128, 256])\npanel",
        "panel.set(BLOCK=256).wait().verdict.equal",
    ]
    cells[0] += "\nimport kernellab"
    import nbformat  # takes a second

    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in cells])
    client.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    widget, picture = notebook.cells[2].outputs
    assert "application/vnd.jupyter.widget-view+json" in widget.data
    assert "text/html" not in widget.data
    assert "BLOCK</dt><dd>256" in picture.data["text/html"]
    assert "agrees with the first point (BLOCK=128)" in picture.data["text/plain"]
    assert notebook.cells[3].outputs[0].data["text/plain"] == "True"
