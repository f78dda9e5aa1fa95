"""The setup cells of docs/front_ends.md, as far as they can be tried without those front ends."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from IPython.core.inputtransformer2 import TransformerManager

import kernellab

PAGE = (Path(__file__).parents[2] / "docs" / "front_ends.md").read_text(encoding="utf-8")
CELLS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("cell", CELLS)
def test_a_setup_cell_is_valid_for_ipython(cell: str) -> None:
    ast.parse(TransformerManager().transform_cell(cell))


def test_every_front_end_has_a_section_with_a_cell() -> None:
    sections = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE))
    assert {name for name, text in sections.items() if "```python" in text} == {"VS Code", "Colab", "Kaggle", "marimo"}


def test_the_verbs_of_the_page_exist() -> None:
    called = re.findall(r"\blab\.(\w+)\(", PAGE)
    assert called
    assert all(hasattr(kernellab.Lab, name) for name in called)
