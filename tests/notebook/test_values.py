"""Looking inside a launch from a cell: values, births of NaN, and the first difference of two versions."""

from __future__ import annotations

import pytest

from kernellab.inside.first_difference import FirstDifference
from kernellab.inside.values import Values
from tests.notebook.conftest import Notebook

SOFTMAX = """
@triton.jit
def soft(x, out, n, B: tl.constexpr):
    row = tl.program_id(0)
    offs = tl.arange(0, B)
    v = tl.load(x + row * n + offs, mask=offs < n, other=-float("inf"))
    e = tl.exp(v)
    s = tl.sum(e, 0)
    tl.store(out + row * n + offs, e / s, mask=offs < n)
x, out = torch.rand(4, 10), torch.zeros(4, 10)
soft[(4,)](x, out, 10, B=16)
"""


def test_values_of_the_first_program_show_below_the_card(notebook: Notebook) -> None:
    ran = notebook.triton(SOFTMAX, "--values")
    assert ran.error is None
    texts = [str(shown["text/plain"]) for shown in ran.shown]
    assert any("e = tl.exp(v)" in text and "masked" in text for text in texts)
    assert notebook.names["out"].sum().item() > 3.9, "the launch itself is kept"


def test_a_kept_kernel_shows_its_values_by_name(notebook: Notebook) -> None:
    assert notebook.triton(SOFTMAX).error is None
    ran = notebook.run("values = %triton_values soft --program 2 --line 7")
    assert ran.error is None
    values = notebook.names["values"]
    assert isinstance(values, Values)
    assert values.programs == ((2, 0, 0),)
    assert {value.name for value in values.values} == {"e"}
    wrong = notebook.run("%triton_values soft --program two")
    assert "--program is 'two'; expected the id of a program" in str(wrong.error)


def test_a_nan_is_followed_to_its_line_without_being_asked(notebook: Notebook) -> None:
    ran = notebook.triton(SOFTMAX.replace("torch.rand(4, 10)", "100 * torch.rand(4, 10) + 50"))
    assert ran.error is None
    text = " ".join(str(ran.shown[-1]["text/plain"]).split())
    assert "out has NaN, which no input has: line 7: exp(" in text
    assert "line 9: inf / inf is NaN in fp32" in text
    assert "which no input has" not in str(notebook.triton(SOFTMAX).shown[-1]["text/plain"])


def test_a_nan_in_an_output_that_is_also_an_input_is_followed(notebook: Notebook) -> None:
    in_place = """
@triton.jit
def log_in_place(x, B: tl.constexpr):
    offs = tl.arange(0, B)
    tl.store(x + offs, tl.log(tl.load(x + offs) - 2.0))
x = torch.linspace(1, 5, 16)
log_in_place[(1,)](x, B=16)
"""
    ran = notebook.triton(in_place)
    assert ran.error is None
    text = " ".join(str(ran.shown[-1]["text/plain"]).split())
    assert "x has NaN, which no input has: line 5: log(-1) is NaN in fp32 (program (0, 0, 0))" in text, text
    assert notebook.names["x"].isnan().sum().item() == 4, "the launch itself is kept"
    had_one = notebook.triton(in_place.replace("(1, 5, 16)", "(1, 5, 16) * float('nan')"))
    assert "which no input has" not in str(had_one.shown[-1]["text/plain"])


@pytest.mark.parametrize("declared", ["factor", "factor: tl.constexpr"])
def test_an_infinity_that_a_launch_was_given_as_a_number_is_an_input(notebook: Notebook, declared: str) -> None:
    ran = notebook.triton(f"""
@triton.jit
def times(x, out, {declared}, B: tl.constexpr):
    offs = tl.arange(0, B)
    tl.store(out + offs, tl.load(x + offs) + factor)
x, out = torch.ones(16), torch.zeros(16)
times[(1,)](x, out, float("inf"), B=16)
""")
    assert ran.error is None
    assert notebook.names["out"].isinf().all()
    assert "which no input has" not in str(ran.shown[-1]["text/plain"])


def test_a_failed_check_offers_the_first_difference_from_the_version_that_passed(notebook: Notebook) -> None:
    check = '--check "torch.softmax(x, 1)"'
    assert notebook.triton(SOFTMAX, check).error is None
    ran = notebook.triton(SOFTMAX.replace("tl.sum(e, 0)", "tl.max(e, 0)"), check)
    text = " ".join(str(ran.shown[-1]["text/plain"]).split())
    offered = text[text.index("%triton_diff soft@") :].split(" names ")[0]
    found = notebook.run(f"difference = {offered}")
    assert found.error is None
    difference = notebook.names["difference"]
    assert isinstance(difference, FirstDifference)
    assert difference.texts == ("s = tl.sum(e, 0)", "s = tl.max(e, 0)")
