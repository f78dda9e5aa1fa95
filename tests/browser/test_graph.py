"""The graph in a real browser: linked with the source and the stages, folded, searched, sliced and walked by keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kernellab.compile.types import Compiled
from kernellab.views import graph as graph_pictures
from kernellab.views.explorers import explorer_html
from kernellab.views.widgets import Explorer, GraphView
from tests.browser.bridge import HEAD, Bridge
from tests.kernels.matmul import grouped_tile, line_of

pytestmark = pytest.mark.browser

Open = Callable[..., Bridge]
LIT = "() => [...document.querySelectorAll('.kg-on')].map(box => box.dataset.node)"
SHADED = "e => getComputedStyle(e).boxShadow !== 'none'"
TITLES = "boxes => boxes.map(box => box.querySelector('text').textContent)"
IN_CANVAS = """box => {
  const frame = box.closest('.kg-canvas').getBoundingClientRect();
  const own = box.querySelector('text').getBoundingClientRect();
  return own.top >= frame.top && own.bottom <= frame.bottom && own.left >= frame.left && own.right <= frame.right;
}"""


def box(page: Any, text: str) -> Any:
    return page.locator(".kg [data-node]", has=page.locator("text", has_text=text)).first


def row(page: Any, text: str) -> Any:
    return page.locator(".kx-source .s", has=page.locator("code", has_text=text)).first


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_click_on_a_box_lights_its_source_line_and_what_that_became(
    open_widget: Open, matmul: Compiled, scheme: str
) -> None:
    bridge = open_widget(Explorer(matmul), scheme)
    box(bridge.page, "total = tl.dot(").locator("text").first.click()
    bridge.wait("() => model.values.line > 0")
    assert bridge.widget.line == line_of("tl.dot(")
    assert bridge.widget.node in bridge.page.evaluate(LIT)
    assert row(bridge.page, "total = tl.dot(").evaluate(SHADED)
    run = bridge.page.locator(".kx-p3 label", has_text="wgmma.mma_async").first
    assert run.evaluate(SHADED)
    assert "tl.dot(" in bridge.page.locator(".kg-status").inner_text()


def test_a_second_click_on_a_box_lets_it_go(open_widget: Open, matmul: Compiled) -> None:
    bridge = open_widget(Explorer(matmul))
    for _ in range(2):
        box(bridge.page, "total = tl.dot(").locator("text").first.click()
    bridge.wait("() => model.values.line === 0")
    assert (bridge.widget.line, bridge.widget.node) == (0, "")
    assert bridge.page.evaluate(LIT) == []
    assert not row(bridge.page, "total = tl.dot(").evaluate(SHADED)


def test_a_click_on_a_source_line_lights_its_boxes_and_brings_them_into_view(
    open_widget: Open, matmul: Compiled
) -> None:
    bridge = open_widget(Explorer(matmul, view="operations"))
    row(bridge.page, "tl.store(c_ptrs").click()
    bridge.wait("() => document.querySelectorAll('.kg-on').length > 1")
    lit = bridge.page.locator(".kg-on")
    assert "store c_ptr" in lit.evaluate_all(TITLES)
    assert lit.first.evaluate(IN_CANVAS)
    assert bridge.widget.line == line_of("tl.store(")


def test_a_click_on_a_line_of_ptx_lights_the_box_of_a_helper(open_widget: Open, matmul: Compiled) -> None:
    bridge = open_widget(Explorer(matmul))
    bridge.page.locator(".kx-p3 label", has_text="div.s32").first.click()
    bridge.wait("() => document.querySelectorAll('.kg-on').length > 0")
    assert bridge.widget.line in {line_of("band = ", grouped_tile), line_of("return band", grouped_tile)}
    assert "//" in "".join(bridge.page.locator(".kg-on").evaluate_all(TITLES))


def test_python_sets_the_line_and_the_box(open_widget: Open, matmul: Compiled) -> None:
    bridge = open_widget(GraphView(matmul, view="source"))
    bridge.set(line=line_of("a = tl.load("))
    assert "a = tl.load(" in bridge.page.locator(".kg-on").evaluate_all(TITLES)[0]
    name = box(bridge.page, "b = tl.load(").get_attribute("data-node")
    bridge.set(node=name)
    assert bridge.page.locator(".kg-this").get_attribute("data-node") == name


def test_a_frame_folds_at_its_name_and_unfolds_at_its_mark(open_widget: Open, matmul: Compiled) -> None:
    bridge = open_widget(GraphView(matmul, view="operations"))
    boxes = bridge.page.locator(".kg [data-node]")
    before = boxes.count()
    bridge.page.locator("[data-frame] > text").click()
    bridge.wait("() => document.querySelector('[data-folds]')")
    folded = bridge.page.locator("[data-folds]")
    assert bridge.widget.collapsed == [folded.get_attribute("data-node")]
    assert boxes.count() == before - int(folded.get_attribute("data-folds")) + 1
    assert folded.evaluate(IN_CANVAS)
    folded.locator(".kg-mark").click()
    bridge.wait("() => !document.querySelector('[data-folds]')")
    assert bridge.widget.collapsed == []
    assert boxes.count() == before


def test_all_frames_fold_and_unfold_by_a_button_and_from_python(open_widget: Open, matmul: Compiled) -> None:
    bridge = open_widget(GraphView(matmul))
    bridge.page.get_by_role("button", name="collapse every frame").click()
    bridge.wait("() => document.querySelector('[data-folds]')")
    bridge.page.get_by_role("button", name="expand every frame").click()
    bridge.wait("() => !document.querySelector('[data-folds]')")
    frame = bridge.page.locator("[data-frame]").get_attribute("data-frame")
    bridge.set(collapsed=[frame])
    assert bridge.page.locator("[data-folds]").count() == 1


def test_the_search_counts_boxes_and_goes_on_and_back(open_widget: Open, matmul: Compiled) -> None:
    bridge = open_widget(GraphView(matmul, view="operations"))
    find, count = bridge.page.get_by_label("search the graph"), bridge.page.locator(".kg-count")
    find.fill("broadcast")
    many = int(count.inner_text().removeprefix("1 of "))
    assert many == bridge.page.locator(".kg-hit").count() > 2
    first = bridge.page.locator(".kg-now").get_attribute("data-node")
    find.press("Enter")
    assert count.inner_text() == f"2 of {many}"
    assert bridge.page.locator(".kg-now").get_attribute("data-node") != first
    find.press("Shift+Enter")
    find.press("Shift+Enter")
    assert count.inner_text() == f"{many} of {many}"
    assert bridge.page.locator(".kg-now").evaluate(IN_CANVAS)
    find.fill("no such thing")
    assert count.inner_text() == "not found"
    bridge.wait("() => model.values.query === 'no such thing'")
    assert bridge.widget.query == "no such thing"


@pytest.mark.parametrize("wanted", ["tt.dot", "a_ptrs", "other=0.0"])
def test_the_search_knows_names_values_and_source_text(open_widget: Open, matmul: Compiled, wanted: str) -> None:
    bridge = open_widget(GraphView(matmul, view="operations"))
    bridge.set(query=wanted)
    assert bridge.page.locator(".kg-count").inner_text().startswith("1 of ")


def test_the_search_finds_what_is_folded(open_widget: Open, matmul: Compiled) -> None:
    bridge = open_widget(GraphView(matmul, view="operations"))
    bridge.page.locator("[data-frame] > text").click()
    bridge.page.get_by_label("search the graph").fill("tt.dot")
    assert bridge.page.locator(".kg-count").inner_text() == "1 of 1 (folded)"
    assert bridge.page.locator(".kg-now").get_attribute("data-folds")


def test_the_slice_of_an_argument_dims_the_rest(open_widget: Open, matmul: Compiled) -> None:
    bridge = open_widget(GraphView(matmul, view="operations"))
    bridge.page.get_by_label("the argument whose slice is lit").select_option("a_ptr")
    bridge.wait("() => document.querySelector('.kg-dim')")
    dim = bridge.page.locator("[data-node].kg-dim").evaluate_all(TITLES)
    assert "load b_ptr" in dim
    assert {"load a_ptr", "dot", "store c_ptr"}.isdisjoint(dim)
    assert bridge.widget.slice == "a_ptr"
    bridge.page.get_by_label("which half of the slice").select_option("backward")
    bridge.wait("() => model.values.direction === 'backward'")
    assert "dot" in bridge.page.locator("[data-node].kg-dim").evaluate_all(TITLES)
    bridge.page.get_by_label("the argument whose slice is lit").select_option("")
    bridge.wait("() => !document.querySelector('.kg-dim')")


def test_the_slice_of_a_box_is_lit_by_a_key(open_widget: Open, matmul: Compiled) -> None:
    bridge = open_widget(GraphView(matmul, view="operations"))
    box(bridge.page, "load b_ptr").locator("text").first.click()
    bridge.page.keyboard.press("s")
    bridge.wait("() => document.querySelector('.kg-dim')")
    dim = bridge.page.locator("[data-node].kg-dim").evaluate_all(TITLES)
    assert "load a_ptr" in dim
    assert {"load b_ptr", "dot"}.isdisjoint(dim)
    bridge.page.keyboard.press("Escape")
    bridge.wait("() => !document.querySelector('.kg-dim')")
    assert (bridge.widget.slice, bridge.widget.node) == ("", "")


def test_keys_walk_the_boxes_choose_one_and_fold(open_widget: Open, matmul: Compiled) -> None:
    bridge = open_widget(GraphView(matmul, view="source"))
    page = bridge.page
    page.locator(".kg-tools button").last.focus()
    page.keyboard.press("Tab")  # the canvas, which scrolls
    if page.evaluate("() => document.activeElement.classList.contains('kg-canvas')"):
        page.keyboard.press("Tab")
    first = page.evaluate("() => document.activeElement.dataset.node")
    assert first
    for _ in range(3):
        page.keyboard.press("ArrowDown")
    focused = "() => document.activeElement.dataset.node ?? document.activeElement.dataset.frame"
    assert page.evaluate(focused) != first
    ring = "() => getComputedStyle(document.activeElement.querySelector('path, rect')).strokeWidth"
    assert page.evaluate(ring) == "3px"
    assert page.evaluate("() => document.activeElement.getAttribute('aria-label').length") > 3
    assert page.locator(".kg [data-node][tabindex='0'], .kg [data-frame][tabindex='0']").count() == 1
    page.locator("[data-frame]").first.focus()
    page.keyboard.press("Enter")
    bridge.wait("() => document.activeElement.dataset?.folds")
    page.keyboard.press("Enter")
    bridge.wait("() => document.activeElement.dataset?.frame")
    box(page, "tl.store(").focus()
    page.keyboard.press("Enter")
    bridge.wait("() => model.values.line > 0")
    assert bridge.widget.line == line_of("tl.store(")


def test_the_graph_zooms_fits_and_pans(open_widget: Open, matmul: Compiled) -> None:
    bridge = open_widget(GraphView(matmul, view="operations"))
    page, size = bridge.page, bridge.page.locator(".kg-size")
    width = "() => document.querySelector('.kg-canvas svg').getBoundingClientRect().width"
    before = page.evaluate(width)
    page.get_by_role("button", name="zoom in").click()
    assert page.evaluate(width) > before * 1.15
    page.locator(".kg-canvas").hover()
    page.keyboard.down("Control")
    page.mouse.wheel(0, 100)
    page.keyboard.up("Control")
    page.wait_for_function(f"before => Math.abs(({width})() - before) < 2", arg=before)
    page.get_by_role("button", name="fit the whole graph").click()
    assert page.locator(".kg-canvas").evaluate("e => e.scrollHeight - e.clientHeight") < 3
    size.click()
    assert size.inner_text() == "100%"
    place, top = page.locator(".kg-canvas").bounding_box(), page.locator(".kg-canvas").evaluate("e => e.scrollTop")
    page.mouse.move(place["x"] + 3, place["y"] + 300)
    page.mouse.down()
    page.mouse.move(place["x"] + 3, place["y"] + 200)
    page.mouse.up()
    assert page.locator(".kg-canvas").evaluate("e => e.scrollTop") == pytest.approx(top + 100, abs=2)


def test_another_view_is_drawn_and_its_line_stays_lit(open_widget: Open, matmul: Compiled) -> None:
    bridge = open_widget(Explorer(matmul))
    row(bridge.page, "tl.dot(").click()
    bridge.page.get_by_label("what a box stands for").select_option("operations")
    bridge.wait("() => model.values.svg.includes('Operations of')")
    assert "dot" in " ".join(bridge.page.locator(".kg-on").evaluate_all(TITLES))


def test_what_cannot_be_laid_out_is_said_and_not_done(
    open_widget: Open, matmul: Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    widget = GraphView(matmul, view="operations")
    widget.collapsed = [next(iter(name for name in {each for _, _, around in widget.index for each in around}))]
    bridge = open_widget(widget)
    monkeypatch.setattr(graph_pictures, "BOXES_AT_MOST", 80)
    bridge.page.get_by_role("button", name="expand every frame").click()
    bridge.wait("() => model.values.message")
    assert "at most" in bridge.page.locator(".kg-status").inner_text()
    assert bridge.page.locator("[data-folds]").count() == 1
    assert len(widget.collapsed) == 1


def test_sass_is_read_when_it_is_first_opened(open_widget: Open, matmul: Compiled) -> None:
    bridge = open_widget(Explorer(matmul))
    assert "HGMMA" not in bridge.widget.html
    row(bridge.page, "tl.dot(").click()
    bridge.page.locator(".kx-tabs label", has_text="SASS").click()
    run = bridge.page.locator(".kx-p4 label", has_text="HGMMA").first
    run.wait_for(state="visible")
    assert run.evaluate(SHADED)
    assert bridge.widget.line == line_of("tl.dot(")


def test_without_scripts_a_line_lights_its_box_and_a_box_its_line(chromium: Any, matmul: Compiled) -> None:
    context = chromium.new_context(offline=True, java_script_enabled=False, viewport={"width": 1100, "height": 1000})
    page = context.new_page()
    page.set_content(HEAD + explorer_html(matmul, graph=True))
    stroke = "e => getComputedStyle(e.querySelector('path')).stroke"
    store, line = box(page, "tl.store("), row(page, "tl.store(")
    before, plain = store.evaluate(stroke), line.evaluate("e => getComputedStyle(e).backgroundColor")
    store.locator("text").first.hover()
    assert line.evaluate("e => getComputedStyle(e).backgroundColor") != plain
    row(page, "tl.dot(").hover()
    line.click()
    assert store.evaluate(stroke) != before
    context.close()
