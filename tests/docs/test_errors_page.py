"""The page of the errors holds every error, and its examples show what they say."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from docs.pages import errors
from kernellab.advice import RULES
from kernellab.errors import KernellabError
from tests.labs import shell_with_extension

pytestmark = pytest.mark.slow

SETUP = """
import torch
import triton
import triton.language as tl

import kernellab

lab = kernellab.current_lab()
x, y, out = torch.randn(1000), torch.randn(1000), torch.zeros(1000)
"""
ADD = """%%triton --args "x, y, out, 1000, BLOCK=256"
@triton.jit
def add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + y, mask=mask)
"""
EXAMPLES = {name: example for name, example in errors.examples().items() if example.cell}


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InteractiveShell]:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("KERNELLAB_STORE", str(tmp_path_factory.mktemp("store")))
        environment.setenv("KERNELLAB_TARGET", "cuda:90")
        with shell_with_extension() as shell:
            for cell in (SETUP, ADD):
                shell.run_cell(cell, store_history=True).raise_error()
            yield shell


def _numbered(text: str) -> str:
    """Return a text with the numbers of its cells, which depend on what ran before, as one."""
    return re.sub(r"In\[\d+\]'*", "In[3]", text)


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_shows_what_the_page_says(shell: InteractiveShell, name: str) -> None:
    with capture_output():
        error = shell.run_cell(EXAMPLES[name].cell, store_history=True).error_in_exec
    assert isinstance(error, KernellabError), error
    assert type(error).__name__ == name
    shown = _numbered("\n".join(error.lines()))
    assert shown == EXAMPLES[name].shown


def test_every_error_has_a_section_and_a_remedy() -> None:
    page, examples = errors.page(), errors.examples()
    for kind in errors.classes():
        assert f"## {kind.__name__} " in page
        assert examples[kind.__name__].remedy
    assert set(examples) == {kind.__name__ for kind in errors.classes()}


def test_the_page_names_every_rule_of_advice() -> None:
    page = errors.page()
    for _, advice in RULES.values():
        assert advice.split("\\")[0].split("[")[0] in page


def test_messages_come_from_the_raise_statements() -> None:
    assert "A {qualname} cannot take part in tuning" not in errors.messages()["UsageError"]
    assert any("has no values; give at least one." in text for text in errors.messages()["UsageError"])
    assert any(text.startswith("search='optuna' needs Optuna") for text in errors.messages()["UsageError"])


@pytest.mark.parametrize(
    ("pattern", "shown"),
    [
        (r"numel \((\d+)\) exceeds", "`numel (…) exceeds`"),
        (r"^(\w+) is not defined", "`… is not defined`"),
        (r"axis (-?\d+)\. Expected", "`axis …. Expected`"),
        (r"equal dimensions|reduction dimension", "`equal dimensions` or `reduction dimension`"),
        (r"dtypes are (\([^)]*\))", "`dtypes are …`"),
    ],
)
def test_a_pattern_reads_as_a_message(pattern: str, shown: str) -> None:
    assert errors._plain(pattern) == shown
