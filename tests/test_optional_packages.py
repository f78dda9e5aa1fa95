"""Tests can be collected without JupyterLab, nbconvert and the driver of Chromium, as on a bare GPU machine."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
OPTIONAL = {"nbformat", "nbconvert", "nbclient", "nbval", "jupyterlab", "jupyter_client", "ipykernel", "playwright"}


def imported(path: Path) -> Iterator[str]:
    """Yield the packages that a module imports at its top."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.partition(".")[0]


@pytest.mark.slow
@pytest.mark.parametrize("folder", sorted(path.name for path in TESTS.iterdir() if path.is_dir()))
def test_no_module_imports_what_only_some_tests_need(folder: str) -> None:
    found = {str(path): sorted(OPTIONAL.intersection(imported(path))) for path in (TESTS / folder).rglob("*.py")}
    assert {path: names for path, names in found.items() if names} == {}
