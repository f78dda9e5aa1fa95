"""The explorer in a real browser: without scripts as a notebook shows it, with them as a page and as a widget."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kernellab.compile.types import Compiled
from kernellab.views.explorers import explorer_html, explorer_page
from kernellab.views.graph import StateError
from kernellab.views.layouts import FEW_TILES
from kernellab.views.widgets import Explorer
from tests.browser.bridge import HEAD, Bridge
from tests.kernels.matmul import matmul_kernel

pytestmark = pytest.mark.browser

LIT = """number => [...document.querySelectorAll(`.k${number}`)].map(e => getComputedStyle(e).boxShadow)
  .every(shadow => shadow !== 'none')"""
DARK = """() => [...document.querySelectorAll('.kx-panes *')]
  .filter(e => e.checkVisibility() && getComputedStyle(e).boxShadow !== 'none').length"""
IN_VIEW = """element => {
  const pane = element.closest('.kx-stage, .kx-source').getBoundingClientRect(), own = element.getBoundingClientRect();
  return own.top >= pane.top && own.top < pane.bottom;
}"""


@pytest.fixture
def show(chromium: Any, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    contexts = []

    def opened(html: str, *, scripts: bool = False, scheme: str = "light") -> Any:
        context = chromium.new_context(
            offline=True, java_script_enabled=scripts, color_scheme=scheme, viewport={"width": 1100, "height": 700}
        )
        contexts.append(context)
        file = tmp_path / "page.html"
        file.write_text(html, encoding="utf-8")
        page = context.new_page()
        page.goto(file.as_uri())
        return page

    yield opened
    for number, context in enumerate(contexts):
        context.pages[0].screenshot(path=str(tmp_path / f"{number}.png"))
        context.close()


def line_of(text: str) -> int:
    lines = "".join(matmul_kernel.raw_src).splitlines()
    return int(matmul_kernel.starting_line_number) + next(at for at, line in enumerate(lines) if text in line)


def row(page: Any, text: str) -> Any:
    return page.locator(".kx-source .s", has=page.locator("i", has_text=str(line_of(text)))).first


def number_of(element: Any) -> int:
    return int(next(name[1:] for name in element.get_attribute("class").split() if name[0] == "k"))


def test_a_click_on_a_source_line_lights_its_ptx_and_scrolls_there(show: Callable[..., Any], matmul: Compiled) -> None:
    page = show(HEAD + explorer_html(matmul))
    line = row(page, "tl.dot(")
    ptx = page.locator(f".kx-p3 .k{number_of(line)}").first
    assert not ptx.evaluate(IN_VIEW)
    line.click()
    assert ptx.evaluate(IN_VIEW)
    assert page.evaluate(LIT, number_of(line))
    assert page.evaluate(DARK) == page.locator(f".kx-source .k{number_of(line)}, .kx-p3 .k{number_of(line)}").count()


def test_a_click_on_a_ptx_line_lights_its_source_line_and_scrolls_there(
    show: Callable[..., Any], matmul: Compiled
) -> None:
    page = show(HEAD + explorer_html(matmul))
    run = page.locator(".kx-p3 label", has_text="div.s32").first  # in a helper, which stands below the kernel
    number = number_of(run)
    line = page.locator(f".kx-source .k{number}")
    assert not line.evaluate(IN_VIEW)
    run.click()
    assert line.evaluate(IN_VIEW)
    assert page.evaluate(LIT, number)
    assert "//" in line.inner_text()


def test_pointing_at_a_line_lights_the_other_side(show: Callable[..., Any], matmul: Compiled) -> None:
    page = show(HEAD + explorer_html(matmul))
    line = row(page, "tl.store(")
    run = page.locator(f".kx-p3 .k{number_of(line)}").first
    before = run.evaluate("e => getComputedStyle(e).backgroundColor")
    line.hover()
    assert run.evaluate("e => getComputedStyle(e).backgroundColor") != before


def test_the_choice_stays_when_another_stage_is_opened(show: Callable[..., Any], matmul: Compiled) -> None:
    page = show(HEAD + explorer_html(matmul))
    line = row(page, "tl.dot(")
    line.click()
    page.locator(".kx-tabs label", has_text="SASS").click()
    assert page.locator(".kx-p4").is_visible()
    assert not page.locator(".kx-p3").is_visible()
    assert page.evaluate(LIT, number_of(line))
    assert "HGMMA" in "".join(page.locator(f".kx-p4 .k{number_of(line)}").all_inner_texts())


def test_a_page_that_drops_styles_shows_one_stage(show: Callable[..., Any], matmul: Compiled) -> None:
    page = show(HEAD + re.sub(r"<style>.*?</style>", "", explorer_html(matmul), flags=re.S))
    assert [stage.is_visible() for stage in page.locator(".kx-stage").all()] == [False, False, False, True, False]


def test_the_arrow_keys_walk_the_lines_without_a_script(show: Callable[..., Any], matmul: Compiled) -> None:
    page = show(HEAD + explorer_html(matmul))
    page.locator(".kx-p3 label", has_text="wgmma.mma_async").first.click()
    first = page.evaluate("document.querySelector('.kx-panes input:checked').className")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.querySelector('.kx-panes input:checked').className") != first


def test_two_explorers_of_one_page_do_not_meet(show: Callable[..., Any], matmul: Compiled) -> None:
    page = show(HEAD + explorer_html(matmul, uid="1") + explorer_html(matmul, uid="2", opened="ttir"))
    first, second = page.locator(".kx").all()
    first.locator(".kx-p3 label", has_text="wgmma.mma_async").first.click()
    assert second.locator(".kx-p0").is_visible()
    assert first.locator(".kx-panes input:checked").count() == 1
    assert second.locator(".kx-panes input:checked").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_finds_text_and_goes_on_with_enter(show: Callable[..., Any], matmul: Compiled, scheme: str) -> None:
    page = show(explorer_page(matmul), scripts=True, scheme=scheme)
    page.locator(".kx-find input[type=search]").fill("cp.async.cg")
    count = page.locator(".kx-find output")
    assert count.inner_text().startswith("1 of ")
    page.keyboard.press("Enter")
    assert count.inner_text().startswith("2 of ")
    page.keyboard.press("Shift+Enter")
    page.locator(".kx-find input[type=search]").fill("no such text")
    assert count.inner_text() == "not found"


def test_the_page_scrolls_both_panes_together(show: Callable[..., Any], matmul: Compiled) -> None:
    page = show(explorer_page(matmul), scripts=True)
    source = page.locator(".kx-source")
    page.set_viewport_size({"width": 1100, "height": 320})
    page.locator(".kx-p3").hover()
    page.mouse.wheel(0, 6000)
    page.wait_for_function("() => document.querySelector('.kx-source').scrollTop > 0")
    page.locator(".kx-find input[type=checkbox]").uncheck()
    before = source.evaluate("e => e.scrollTop")
    page.locator(".kx-p3").hover()
    page.mouse.wheel(0, -6000)
    page.wait_for_function("() => document.querySelector('.kx-p3').scrollTop === 0")
    assert source.evaluate("e => e.scrollTop") == before


def test_a_second_click_goes_to_the_next_place_of_the_line(show: Callable[..., Any], matmul: Compiled) -> None:
    page = show(explorer_page(matmul), scripts=True)
    line = row(page, "a = tl.load(")
    line.click()
    first = page.locator(".kx-p3").evaluate("e => e.scrollTop")
    for _ in range(3):
        line.click()
    assert page.locator(".kx-p3").evaluate("e => e.scrollTop") != first


def test_the_widget_tells_python_the_line_and_obeys_it(chromium: Any, matmul: Compiled) -> None:
    page = chromium.new_page(viewport={"width": 1100, "height": 900})
    bridge = Bridge(Explorer(matmul, opened="ttgir"), page)
    row(page, "tl.dot(").click()
    bridge.wait("line => model.values.line === line", line_of("tl.dot("))
    assert (bridge.widget.line, bridge.widget.file) == (line_of("tl.dot("), "")
    bridge.set(stage="sass")
    assert page.locator(".kx-p4").is_visible()
    bridge.set(line=line_of("tl.store("))
    assert page.evaluate(LIT, number_of(row(page, "tl.store(")))
    page.keyboard.press("k")
    bridge.wait("line => model.values.line < line", line_of("tl.store("))
    bridge.set(line=0)
    assert page.locator(".kx-panes input:checked").count() == 0
    assert bridge.errors == []
    page.close()
    bridge.widget.close()


def test_without_a_script_values_of_the_chosen_line_come_first_and_one_tile_shows(
    show: Callable[..., Any], matmul: Compiled
) -> None:
    page = show(HEAD + explorer_html(matmul, tiles=FEW_TILES))
    assert not page.locator(".kx-tiles").is_visible()
    page.locator(".kx-tabs label", has_text="TTGIR").click()
    figures = page.locator(".kx-tiles figure:visible")
    assert figures.count() == 1
    assert "nvidia_mma" in page.locator(".kx-tiles code:visible").inner_text()
    row(page, "b = tl.load(").click()
    values = page.locator(".kx-values label").all()
    top = min(values, key=lambda value: value.bounding_box()["y"])
    assert top.get_attribute("data-n") == str(line_of("b = tl.load("))
    page.locator(".kx-values label", has_text="nvmma_shared").first.click()
    assert "by the bank" in figures.inner_text()
    page.locator(".kx-values label", has_text="nvidia_mma").first.click()
    page.locator(".kx-units label:visible", has_text="by register").click()
    assert "by the register" in figures.inner_text()


def test_a_click_on_a_value_of_ttgir_shows_who_holds_the_element_under_the_pointer(
    show: Callable[..., Any], matmul: Compiled
) -> None:
    page = show(explorer_page(matmul, opened="ttgir"), scripts=True)
    click_on(page, "ttng.warp_group_dot ")
    assert "nvidia_mma" in page.locator(".kx-tiles code:visible").inner_text()
    map_ = page.locator(".kx-tiles figure:visible svg")
    said = page.locator(".kx-tiles output:visible")
    map_.hover(position=cell(9, 2))
    assert said.inner_text() == "[9, 2]: warp 0, lane 5, register 2"
    assert page.locator(".kx-same").evaluate("e => e.getAttribute('d').match(/M/g).length") == 16  # 2 rows of 8
    page.locator(".kx-units label:visible", has_text="by warp").click()
    map_.hover(position=cell(8, 0))
    assert "[16, 0]: warp 1, lane 0, register 0" in said.inner_text()
    click_on(page, "ttg.memdesc_index ")
    map_.hover(position=cell(1, 0))
    assert said.inner_text() == "[1, 0]: bank 16, byte 64 of the tile in shared memory"


def test_in_a_narrow_page_the_layouts_stand_below_the_stage(show: Callable[..., Any], matmul: Compiled) -> None:
    page = show(explorer_page(matmul, opened="ttgir"), scripts=True)
    page.set_viewport_size({"width": 420, "height": 900})
    boxes = [page.locator(name).bounding_box() for name in (".kx-stage:visible", ".kx-values", ".kx-units:visible")]
    assert all(above["y"] + above["height"] <= below["y"] + 1 for above, below in itertools.pairwise(boxes))
    assert page.evaluate("() => document.documentElement.scrollWidth <= window.innerWidth")


def test_the_widget_tells_python_the_value_and_obeys_it(chromium: Any, matmul: Compiled) -> None:
    page = chromium.new_page(viewport={"width": 1100, "height": 900})
    bridge = Bridge(Explorer(matmul, opened="ttgir"), page)
    name = click_on(page, "ttng.warp_group_dot ")
    bridge.wait("name => model.values.value === name", name)
    assert bridge.widget.value == name
    other = page.locator(".kx-values label", has_text="nvmma_shared").first.get_attribute("data-value")
    bridge.set(value=other)
    assert "nvmma_shared" in page.locator(".kx-tiles code:visible").inner_text()
    with pytest.raises(StateError, match="value"):
        bridge.widget.value = "%no_such_value"
    assert bridge.errors == []
    page.close()
    bridge.widget.close()


def cell(row: int, column: int) -> dict[str, float]:
    """Return the middle of a cell of a map, from its corner: behind numbers and a margin."""
    return {"x": 30 + 18 * column + 9 + 6, "y": 30 + 18 * row + 9 + 6}


def click_on(page: Any, text: str) -> str:
    """Click on the name of the first value of the line of TTGIR that has a text, and return it."""
    place = page.locator(".kx-stage:visible pre").evaluate(
        """(pre, text) => {
          const walker = document.createTreeWalker(pre, NodeFilter.SHOW_TEXT);
          for (let node = walker.nextNode(); node; node = walker.nextNode()) {
            const at = node.data.indexOf(text);
            if (at < 0) continue;
            const start = node.data.indexOf('%', node.data.lastIndexOf('\\n', at) + 1);
            const range = document.createRange(), name = node.data.slice(start).match(/^%[\\w-]+/)[0];
            range.setStart(node, start);
            range.setEnd(node, start + name.length);
            range.startContainer.parentElement.scrollIntoView({ block: 'center' });
            const box = range.getBoundingClientRect();
            return [box.x + box.width / 2, box.y + box.height / 2, name];
          }
        }""",
        text,
    )
    page.mouse.click(*place[:2])
    return str(place[2])
