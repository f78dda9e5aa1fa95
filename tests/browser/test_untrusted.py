"""Notebooks of somebody else: what JupyterLab's sanitizer and that of a code host leave of the tutorials."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from kernellab.views.figures.raster import with_fallbacks
from tests.browser.conftest import put, trust

nbformat = pytest.importorskip("nbformat")
pytest.importorskip("nbconvert")  # which that one needs
from tests.browser.test_restart import NOTEBOOKS, PICTURES, opened  # noqa: E402, F401

pytestmark = pytest.mark.browser

SVG = re.compile(r"<svg (?!data-fallback).*?</svg>", re.DOTALL)  # those of layouts that are not chosen are hidden
OPEN_ALL = "() => document.querySelectorAll('.jp-OutputArea-output details').forEach(each => { each.open = true; })"
SHOWN = f"""() => [...{PICTURES}].filter(
  each => each.checkVisibility() && (each.tagName !== 'IMG' || each.naturalWidth > 8)).length"""
HIDDEN = f"() => [...{PICTURES}].filter(each => !each.checkVisibility()).length"
# What every picture of a graph says to those who cannot see it, and nothing else on the page says.
WALL = re.compile(r"\d+ boxes and \d+ arrows")


def test_an_untrusted_notebook_shows_its_pictures_and_no_wall_of_words(
    jupyterlab: str,
    opened: Callable[[str], Any],  # noqa: F811
    tmp_path: Path,
) -> None:
    notebook = nbformat.read(NOTEBOOKS[0], as_version=4)
    expected = sum(count_of_pictures(html) for html in htmls(notebook))
    put(jupyterlab, "untrusted.ipynb", notebook)
    page = opened("untrusted.ipynb")
    page.evaluate(OPEN_ALL)
    page.wait_for_function(f"count => ({SHOWN})() === count", arg=expected)
    assert not WALL.search(page.locator("body").inner_text())
    for theme in ("JupyterLab Dark", "JupyterLab Light"):
        page.evaluate("theme => jupyterapp.commands.execute('apputils:change-theme', { theme })", theme)
        page.wait_for_function("theme => document.body.dataset.jpThemeName === theme", arg=theme)
        page.locator("#jupyterlab-splash").wait_for(state="detached")
        page.locator(".kl-card").first.scroll_into_view_if_needed()
        page.screenshot(path=str(tmp_path / f"untrusted-{theme.split()[-1].lower()}.png"))
    trust(jupyterlab, "untrusted.ipynb")
    page = opened("untrusted.ipynb")
    page.evaluate(OPEN_ALL)
    page.wait_for_function(f"count => ({SHOWN})() === count", arg=expected)  # the SVGs, and no image beside them
    assert page.locator(".jp-OutputArea-output svg").first.is_visible()
    assert page.evaluate(HIDDEN) == page.locator(".kl-flat").count() > 0


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_code_host_shows_every_saved_picture(path: Path, chromium: Any) -> None:
    notebook = nbformat.read(path, as_version=4)
    parts = [left_by_a_code_host(html) for html in htmls(notebook)]
    expected = sum(count_of_pictures(html) for html in htmls(notebook))
    page = chromium.new_page(viewport={"width": 900, "height": 900})
    page.set_content("".join(f'<div class="jp-OutputArea-output">{part}</div>' for part in parts))
    page.evaluate(OPEN_ALL)
    assert page.evaluate(SHOWN) == expected
    assert not WALL.search(page.locator("body").inner_text())
    page.close()


def htmls(notebook: Any) -> list[str]:
    """Return the HTML of all outputs."""
    outputs = (output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs)
    return [output.data["text/html"] for output in outputs if "text/html" in output.get("data", {})]


def count_of_pictures(html: str) -> int:
    """Return how many pictures show, of an SVG and what stands in for it one."""
    return html.count("<img ") - html.count('class="kl-flat"') + len(SVG.findall(html))


TAGS = frozenset(
    re.findall(
        r"\w+",
        """
    h1 h2 h3 h4 h5 h6 br b i strong em a pre code img tt div ins del sup sub p ol ul table thead tbody tfoot
    blockquote dl dt dd kbd q samp var hr ruby rt rp li tr td th s strike summary details caption figure figcaption
    abbr bdo cite dfn mark small span time wbr""",
    )
)
ATTRIBUTES = frozenset({"alt", "width", "height", "open", "colspan", "rowspan", "scope", "align"})
VOID = frozenset({"br", "img", "hr", "wbr"})


class _CodeHost(HTMLParser):
    """Keeps what code hosts keep: the tags and attributes of GitHub's HTML pipeline, and images as PNG.

    https://github.com/gjtorikian/html-pipeline has the list. Style sheets and scripts go with what they hold; of
    other elements the text stays.
    """

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.kept: list[str] = []
        self._dropped = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("style", "script"):
            self._dropped += 1
        elif tag in TAGS:
            given = {name: value or "" for name, value in attrs if name in ATTRIBUTES}
            source = dict(attrs).get("src") or ""
            given |= {"src": source} if source.startswith("data:image/png;base64,") else {}
            words = "".join(f' {name}="{escape(value)}"' for name, value in given.items())
            self.kept.append(f"<{tag}{words}>")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("style", "script"):
            self._dropped -= 1
        elif tag in TAGS and tag not in VOID:
            self.kept.append(f"</{tag}>")

    def handle_data(self, data: str) -> None:
        if not self._dropped:
            self.kept.append(escape(data))


def left_by_a_code_host(html: str) -> str:
    """Return what a code host shows of an output."""
    parser = _CodeHost()
    parser.feed(html)
    parser.close()
    return "".join(parser.kept)


def test_the_test_would_see_a_wall(chromium: Any) -> None:
    graph = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 9 9"><desc>3 boxes and 2 arrows</desc></svg>'
    assert WALL.search(left_by_a_code_host(graph))
    page = chromium.new_page()
    page.set_content(left_by_a_code_host(with_fallbacks(graph)))
    assert not WALL.search(page.locator("body").inner_text())
    page.close()
