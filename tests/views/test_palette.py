from __future__ import annotations

import re
from pathlib import Path

import pytest

import kernellab
from kernellab.views import palette

PACKAGE = Path(kernellab.__file__).parent
COLOUR = re.compile(r"#[0-9a-fA-F]{6}\b|#[0-9a-fA-F]{3}\b|\b(?:rgb|hsl)a?\(\s*\d+")
NAMED = re.compile(
    r"(?:color|background|fill|stroke)\s*[:=]\s*[\"']?(?:white|black|gr[ae]y|red|green|blue|orange|purple)\b"
)


@pytest.mark.slow
def test_no_other_file_states_a_colour() -> None:
    files = [path for kind in ("py", "css", "js") for path in PACKAGE.rglob(f"*.{kind}")]
    stated = [
        f"{path.relative_to(PACKAGE)}:{number} {colour[0]}"
        for path in files
        if path != Path(palette.__file__)
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        for pattern in (COLOUR, NAMED)
        if (colour := pattern.search(line))
    ]
    assert not stated, "name these colours in views/palette.py: " + ", ".join(stated)


def test_a_style_sheet_gets_the_colours_that_it_names() -> None:
    assert palette.fill_in("a{color:$blue;background:rgba($blue,.2)}") == (
        f"a{{color:{palette.BLUE};background:rgba(43,131,220,.2)}}"
    )
    with pytest.raises(KeyError):
        palette.fill_in("a{color:$beige}")
