"""The files of the tests that benchmarks start or write are where they say."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_benchmarks_name_files_of_the_tests_that_are_there() -> None:
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "benchmarks").glob("*.py")]
    paths = {path for text in texts for path in re.findall(r'"tests"(?: / "[\w.]+")+', text)}
    assert paths
    for path in paths:
        assert ROOT.joinpath(*re.findall(r'"([\w.]+)"', path)).exists(), path
