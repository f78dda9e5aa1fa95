"""``%%triton --capture``: a cell as a program."""

from __future__ import annotations

import pytest
import torch

from kernellab import current_lab
from tests.notebook.conftest import Notebook

LAUNCH = "double[(1,)](x, out, 100, BLOCK=128)\nroots = out.sqrt()\nroots"


@pytest.mark.slow
def test_a_cell_becomes_a_program_of_its_name(notebook: Notebook) -> None:
    ran = notebook.double("double", launch=LAUNCH, options="--capture program")
    assert ran.error is None
    program = notebook.names["program"]
    assert (program.inputs, program.outputs) == (("x", "out"), ("out", "roots"))
    assert program.notes == ()
    given = torch.arange(1.0, 101)
    changed, roots = program(given, torch.zeros(100))
    torch.testing.assert_close(changed, 2 * given)
    torch.testing.assert_close(roots, (2 * given).sqrt())
    assert any("kl-card" in data.get("text/html", "") for data in ran.shown), "the card is still shown"


@pytest.mark.slow
def test_a_program_shows_as_picture_and_text(notebook: Notebook) -> None:
    notebook.double("double", launch=LAUNCH, options="--capture program")
    data = notebook.shell.display_formatter.format(notebook.names["program"])[0]
    assert "<svg" in data["text/html"]
    assert "double@" in data["text/plain"]
    assert "return out, roots" in data["text/plain"]


def test_steps_of_a_plain_cell_are_placed_by_its_number(notebook: Notebook) -> None:
    notebook.names["lab"] = current_lab()
    ran = notebook.run("with lab.capture() as plain:\n    roots = x.sqrt()")
    assert ran.error is None
    assert notebook.names["plain"].frame["place"].tolist() == ["", f"In[{notebook.cell_number}], line 2"]


@pytest.mark.slow
def test_a_cell_that_fails_binds_no_program(notebook: Notebook) -> None:
    notebook.names.pop("half", None)
    ran = notebook.double("double", launch="double[(1,)](x, out, 100, BLOCK=128)\n1 / 0", options="--capture half")
    assert isinstance(ran.error, ZeroDivisionError)
    assert "half" not in notebook.names
    assert torch.equal(notebook.names["out"], 2 * notebook.names["x"]), "the launch before the error did run"


def test_options_that_make_no_sense_together_are_refused(notebook: Notebook) -> None:
    assert "drop one of them" in str(notebook.double("double", options="--capture p --no-run").error)
    assert "expected a name" in str(notebook.double("double", options="--capture 1p").error)
