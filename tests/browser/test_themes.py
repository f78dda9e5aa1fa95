"""Plots look as the notebook's theme does, whatever the system prefers."""

from __future__ import annotations

import io
from functools import cache
from typing import Any

import pytest
from matplotlib.image import imread

from kernellab.views.cards.benchmark import benchmark_card
from kernellab.views.figures.canvas import picture
from kernellab.views.figures.sweep import sweep_figure
from tests.benchmark.frames import sweep

pytestmark = pytest.mark.browser

LIGHT, DARK = 'data-jp-theme-light="true"', 'data-jp-theme-light="false"'


@pytest.mark.parametrize("system", ["light", "dark"])
@pytest.mark.parametrize(
    ("theme", "is_dark"),
    [
        (LIGHT, False),
        (DARK, True),
        ('class="vscode-light"', False),
        ('class="vscode-dark"', True),
        ('class="light light-theme"', False),  # marimo
        ('class="dark dark-theme"', True),
    ],
)
def test_a_plot_follows_the_theme_of_the_notebook(chromium: Any, system: str, theme: str, is_dark: bool) -> None:
    lightness = _background(chromium, system, theme)
    assert lightness < 0.15 if is_dark else lightness > 0.9


@pytest.mark.parametrize(("system", "is_dark"), [("light", False), ("dark", True)])
def test_a_plot_on_a_page_without_a_theme_follows_the_system(chromium: Any, system: str, is_dark: bool) -> None:
    assert (_background(chromium, system, "") < 0.15) is is_dark


def test_a_plot_that_stands_alone_follows_the_theme_too(chromium: Any) -> None:
    alone = picture(lambda dark: sweep_figure(sweep().frame, dark=dark), "alone")
    assert _background(chromium, "dark", LIGHT, alone) > 0.9


@pytest.mark.parametrize("system", ["light", "dark"])
@pytest.mark.parametrize(("theme", "is_dark"), [(LIGHT, False), (DARK, True), ('class="vscode-dark"', True)])
def test_a_figure_of_plot_follows_the_theme_of_the_notebook(
    chromium: Any, system: str, theme: str, is_dark: bool
) -> None:
    html = sweep_figure(sweep().frame, dark=False)._repr_html_()
    lightness = _background(chromium, system, theme, html)
    assert lightness < 0.15 if is_dark else lightness > 0.9


@cache
def _drawn() -> str:
    return benchmark_card(sweep()).html()


def _background(chromium: Any, system: str, body: str, html: str = "") -> float:
    """Return how light the corner of the first plot is, from 0 to 1."""
    page = chromium.new_page()
    try:
        page.emulate_media(color_scheme=system)
        page.set_content(f"<body {body}>{html or _drawn()}</body>")
        image = imread(io.BytesIO(page.locator("img").first.screenshot()))
    finally:
        page.close()
    return float(image[3, 3, :3].mean())
