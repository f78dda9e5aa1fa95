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
        f"a{{color:{palette.BLUE};background:rgba({','.join(map(str, palette.tones(palette.BLUE)))},.2)}}"
    )
    with pytest.raises(KeyError):
        palette.fill_in("a{color:$beige}")


@pytest.mark.parametrize("name", ["site.css", "favicon.svg"])
def test_the_site_has_the_green_of_the_cards(name: str) -> None:
    assert palette.GREEN in (PACKAGE.parent / "docs" / "assets" / name).read_text(encoding="utf-8")


def luminance(colour: tuple[float, ...]) -> float:
    """Return the relative luminance of red, green and blue from 0 to 255 (https://www.w3.org/TR/WCAG22/)."""
    linear = [tone / 255 / 12.92 if tone <= 10 else ((tone / 255 + 0.055) / 1.055) ** 2.4 for tone in colour]
    return float(sum(weight * tone for weight, tone in zip((0.2126, 0.7152, 0.0722), linear, strict=True)))


def contrast(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def mixed(colour: str, share: float, rest: str) -> tuple[float, ...]:
    return tuple(share * a + (1 - share) * b for a, b in zip(palette.tones(colour), palette.tones(rest), strict=True))


# Text and background of a page: JupyterLab and VS Code, light and dark.
PAGES = (("#212121", "#ffffff"), ("#ffffff", "#111111"), ("#3b3b3b", "#ffffff"), ("#cccccc", "#1f1f1f"))


def test_the_contrast_of_black_and_white_is_that_of_the_standard() -> None:
    assert contrast((0, 0, 0), (255, 255, 255)) == pytest.approx(21)
    assert contrast(palette.tones("#767676"), palette.tones("#ffffff")) == pytest.approx(4.54, abs=0.01)


@pytest.mark.parametrize(("text", "paper"), PAGES)
@pytest.mark.parametrize("colour", palette.TEXT_COLOURS)
def test_coloured_text_reads_in_light_and_dark(colour: str, text: str, paper: str) -> None:
    """The lightest ground that it has is a tile of `$soft` or a box of an alarm."""
    tone, soft = mixed(colour, palette.TEXT_SHARE, text), mixed(palette.GREY, 0.1, paper)
    alarm = mixed(colour, 0.13, paper)
    assert min(contrast(tone, ground) for ground in (palette.tones(paper), soft, alarm)) >= 4.5


@pytest.mark.parametrize("theme", [palette.LIGHT, palette.DARK])
def test_the_colours_of_text_in_figures_read_on_their_ground(theme: palette.Theme) -> None:
    ground = palette.tones(theme.background)
    colours = {name: getattr(theme, name) for name in ("text", "winner", "failed", "differs", "other")}
    colours |= {f"series {place}": colour for place, colour in enumerate(theme.series)}
    low = {name: contrast(palette.tones(colour), ground) for name, colour in colours.items()}
    assert {name: round(value, 2) for name, value in low.items() if value < 4.5} == {}


def test_no_style_sheet_colours_text_but_with_colours_for_text() -> None:
    """Text has the colour of the page, or one that `text_tone` mixes; those of pictures are too pale or too dark."""
    colour = re.compile(r"(?<![-\w])color:\s*([^;}\s]+)")
    readable = re.compile(r"inherit|currentcolor|transparent|\$\w*text|\$black|var\(--k.-[fb]g\)", re.IGNORECASE)
    stated = [
        f"{path.relative_to(PACKAGE)}: {found[0]}"
        for path in PACKAGE.rglob("*.css")
        for found in colour.finditer(path.read_text(encoding="utf-8"))
        if not readable.fullmatch(found[1])
    ]
    assert stated == []
