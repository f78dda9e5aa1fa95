"""What only a browser can tell: that text fits its box, can be read on any page, and that a page's rules do not win."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from PIL import Image

import kernellab
from benchmarks import traffic_kernels
from kernellab.explain.traffic.result import Traffic
from kernellab.views.cards.card import cell_card
from kernellab.views.cards.traffic import traffic_card
from kernellab.views.explorers import explorer_html
from kernellab.views.graph import svg
from kernellab.views.layouts import layouts_card
from kernellab.views.palette import BLUE, GREEN, RED, tones
from kernellab.views.report import KernelReport
from tests.chromium import running_chromium
from tests.views.reports import cell_of
from tests.views.test_layouts import FOUND

pytestmark = pytest.mark.browser

Reports = Callable[..., KernelReport]

# As in JupyterLab's rendered HTML, where tables are small, striped and aligned to the right.
NOTEBOOK_RULES = """
.jp-RenderedHTMLCommon td, .jp-RenderedHTMLCommon th {text-align:right; padding:9px; border:3px solid red}
.jp-RenderedHTMLCommon tbody tr:nth-child(odd) {background:rgb(1, 200, 3)}
.jp-RenderedHTMLCommon table {margin-left:auto; margin-right:auto; font-size:30px}
.jp-RenderedHTMLCommon pre {background:rgb(1, 200, 3); color:red}
"""
LIGHT_RULES = ":root{--jp-layout-color0:white;--jp-content-font-color1:rgba(0,0,0,.87)}"
DARK_RULES = ":root{--jp-layout-color0:#111111;--jp-content-font-color1:rgba(255,255,255,1)} body{background:#111}"

OVERFLOWING = """() => [...document.querySelectorAll('svg g[data-node]')].filter(node => {
  const box = node.querySelector('path').getBBox();
  return [...node.querySelectorAll('text')].some(text => text.getBBox().width > box.width);
}).map(node => node.textContent)"""


def computed(colour: str) -> str:
    """Return a colour of the palette as a browser gives it."""
    return f"rgb({', '.join(map(str, tones(colour)))})"


FAINTEST = """() => {
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const paint = (color, over) => {
    canvas.fillStyle = over; canvas.fillRect(0, 0, 1, 1); canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
    .map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
  const card = document.querySelector('.kl-card');
  const page = paint(getComputedStyle(card).backgroundColor, '#fff');
  const back = `rgb(${page.slice(0, 3)})`;
  const shown = e => e === card ? 1 : Number(getComputedStyle(e).opacity) * shown(e.parentElement);
  const unseen = ['STYLE', 'style', 'title', 'desc'];
  const written = e => [...e.childNodes].some(node => node.nodeType === Node.TEXT_NODE && node.data.trim());
  const texts = [...card.querySelectorAll('*')].filter(e => !unseen.includes(e.tagName) && written(e));
  const ratios = texts.map(e => {
    const style = getComputedStyle(e);
    const svg = e.tagName === 'text';
    const color = paint(svg ? style.fill : style.color, back);
    const share = shown(e) * (svg ? Number(style.fillOpacity) : 1);
    const seen = color.map((v, i) => v * share + page[i] * (1 - share));
    const [low, high] = [light(seen), light(page)].sort((a, b) => a - b);
    return (high + .05) / (low + .05);
  });
  return Math.min(...ratios);
}"""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A browser for this file alone: others of the process test cells that wait."""
    with running_chromium() as browser:
        yield browser


@pytest.fixture
def show(chromium: Any) -> Iterator[Callable[..., Any]]:
    pages = []

    def open_page(body: str, scheme: str = "light", rules: str = "") -> Any:
        page = chromium.new_page(color_scheme=scheme, viewport={"width": 1000, "height": 800})
        pages.append(page)
        meta = '<meta charset="utf-8"><meta name="color-scheme" content="light dark">'
        page.set_content(f"<!doctype html>{meta}<style>{rules}</style><div class='jp-RenderedHTMLCommon'>{body}</div>")
        return page

    yield open_page
    for page in pages:
        page.close()


@pytest.fixture(scope="module")
def copied(lab: kernellab.Lab) -> Traffic:
    arguments = (torch.zeros(2048 * 32), torch.zeros(2048), 2048, 32)
    return lab.traffic(traffic_kernels.traffic_strided, (4,), *arguments, target="cuda:90", BLOCK=512)


@pytest.mark.parametrize("view", ["operations", "source"])
def test_text_fits_its_box(show: Callable[..., Any], report: Reports, view: str) -> None:
    compiled = report("backward").compiled
    page = show(svg(compiled.graph, compiled.effects, view=view))
    assert page.locator("svg g[data-node]").count() > 30
    assert page.evaluate(OVERFLOWING) == []


@pytest.mark.parametrize(
    ("scheme", "rules"), [("light", ""), ("dark", ""), ("light", LIGHT_RULES), ("light", DARK_RULES)]
)
def test_the_card_can_be_read_in_light_and_dark(
    show: Callable[..., Any], report: Reports, scheme: str, rules: str
) -> None:
    page = show(cell_card(cell_of(report("softmax"), show="source,ttir")).html(), scheme, rules)
    assert page.evaluate(FAINTEST) > 4.5


@pytest.mark.parametrize(("scheme", "rules"), [("light", LIGHT_RULES), ("light", DARK_RULES), ("dark", "")])
def test_a_shadow_lies_where_a_table_goes_on_beyond_its_edge(
    show: Callable[..., Any], report: Reports, scheme: str, rules: str
) -> None:
    page = show(cell_card(cell_of(report("backward"))).html(), scheme, rules)
    table = page.locator(".kl-scroll").first
    assert edges_with_a_shadow(table) == ()
    table.evaluate("e => { e.style.maxHeight = '90px'; }")
    assert edges_with_a_shadow(table) == ("bottom",)
    table.evaluate("e => { e.scrollTop = 40; }")
    assert edges_with_a_shadow(table) == ("top", "bottom")
    table.evaluate("e => { e.scrollTop = 10000; }")
    assert edges_with_a_shadow(table) == ("top",)


def edges_with_a_shadow(table: Any) -> tuple[str, ...]:
    """The edges of a scrolled element that are darker or lighter at its right end than the card is."""
    table.evaluate("e => { for (const cell of e.querySelectorAll('td,th,tr')) cell.style.border = 'none'; }")
    table.evaluate("e => { e.querySelector('table').style.visibility = 'hidden'; }")
    picture = Image.open(io.BytesIO(table.screenshot())).convert("RGB")
    x, middle = picture.width - 30, picture.getpixel((picture.width - 30, picture.height // 2))
    rows = {"top": 1, "bottom": picture.height - 2}
    return tuple(edge for edge, y in rows.items() if picture.getpixel((x, y)) != middle)


@pytest.mark.parametrize(
    ("scheme", "rules"), [("light", ""), ("dark", ""), ("light", LIGHT_RULES), ("light", DARK_RULES)]
)
def test_the_maps_of_traffic_can_be_read_in_light_and_dark(
    show: Callable[..., Any], copied: Traffic, scheme: str, rules: str
) -> None:
    page = show(traffic_card(copied).html(), scheme, NOTEBOOK_RULES + rules)
    assert page.evaluate(FAINTEST) > 4.5
    drawn = page.evaluate("""() => [...document.querySelectorAll('.kl-poor rect:not(.kl-band), .kl-map path')]
        .map(e => [getComputedStyle(e).fill, getComputedStyle(e).stroke])""")
    assert computed(RED) in {fill for fill, _ in drawn}
    assert computed(BLUE) in {stroke for _, stroke in drawn}
    borders = page.evaluate("""() => [...document.querySelectorAll('.kl-badge')]
        .map(e => getComputedStyle(e)).map(style => `${style.borderLeftWidth} ${style.borderLeftColor}`)""")
    assert {f"1px {computed(RED)}", f"1px {computed(GREEN)}"} <= set(borders), "by useful bytes"
    assert page.evaluate("() => document.documentElement.scrollWidth <= window.innerWidth")


def test_the_slider_over_programs_shows_one_of_them_in_its_own_card(show: Callable[..., Any], copied: Traffic) -> None:
    page = show(traffic_card(copied).html() * 2)
    told = page.locator(".kl-programs").first.locator(".kl-map").first.locator("g text")
    assert not any(each.is_visible() for each in told.all())
    page.locator(".kl-slider").first.get_by_role("radio", name="program 2").check()
    assert [each.text_content() for each in told.all() if each.is_visible()] == [
        "program 2 reads about 32,768 to 49,151"
    ]
    assert page.locator(".kl-slider").nth(1).get_by_role("radio", name="all programs").is_checked()


def test_the_rules_of_a_notebook_page_do_not_win(show: Callable[..., Any], report: Reports) -> None:
    page = show(cell_card(cell_of(report("add"), show="source,ttir")).html(), rules=NOTEBOOK_RULES)
    styles = page.evaluate(
        """() => ['.kl-args tbody th', '.kl-args td.kl-type', '.kl-source td:last-child', '.kx-stage pre']
            .map(selector => getComputedStyle(document.querySelector(selector)))
            .map(style => [style.textAlign, style.borderTopWidth, style.color])"""
    )
    assert [align for align, _, _ in styles] == ["left"] * 4
    assert {width for _, width, _ in styles} == {"0px"}
    assert "rgb(255, 0, 0)" not in {color for _, _, color in styles}
    rows = page.evaluate("() => getComputedStyle(document.querySelector('.kl-args tbody tr')).backgroundColor")
    assert rows == "rgba(0, 0, 0, 0)"


def test_the_card_is_never_wider_than_its_place(show: Callable[..., Any], report: Reports) -> None:
    page = show(cell_card(cell_of(report("backward"), show="graph,source,ttir")).html())
    assert page.evaluate("() => document.documentElement.scrollWidth <= window.innerWidth")


def test_in_a_narrow_pane_source_stage_and_graph_stand_below_each_other(
    show: Callable[..., Any], report: Reports
) -> None:
    page = show(explorer_html(report("add").compiled, graph=True))
    page.set_viewport_size({"width": 420, "height": 900})
    ends = page.evaluate(
        """() => ['.kx-source', '.kx-stage:not([style])', '.kg'].map(selector => {
            const box = document.querySelector('.kx ' + selector).getBoundingClientRect();
            return [box.top, box.bottom]; })"""
    )
    assert [below[0] >= above[1] - 1 for above, below in itertools.pairwise(ends)] == [True, True]
    assert page.evaluate("() => document.documentElement.scrollWidth <= window.innerWidth")


def test_the_tile_of_the_chosen_value_shows_alone(show: Callable[..., Any]) -> None:
    page = show(layouts_card(FOUND, "here").html())
    tiles = page.locator("[data-tile]:visible")
    assert tiles.count() == 1
    assert "nvidia_mma" in tiles.first.inner_text()
    page.locator("label", has_text="swizzled_shared").first.click()
    assert tiles.count() == 1
    assert "swizzled_shared" in tiles.first.inner_text()
    assert tiles.first.locator("svg").is_visible()
