"""The widget of values in a real browser: lines, tiles, iterations, programs, keys, and the words on an element."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

import kernellab
from kernellab.inside.values import Values
from kernellab.views.widgets import ValuesView
from tests.browser.bridge import Bridge
from tests.inside.transcripts import CASES
from tests.labs import shared_lab

pytestmark = pytest.mark.browser


@triton.jit
def careless(x, out, n, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    row = tl.load(x + tl.program_id(0) * n + columns, mask=columns < n, other=-float("inf"))
    powers = tl.exp(row)
    ratio = powers / tl.sum(powers, 0)
    tl.store(out + tl.program_id(0) * n + columns, ratio, mask=columns < n)


CASE_OF = {case.name: case for case in CASES}


@pytest.fixture(scope="module")
def product() -> Iterator[Values]:
    case = CASE_OF["product"]
    with shared_lab(store=":memory:") as lab:
        yield lab.values(case.kernel, case.grid, **case.arguments(), programs=[(0, 0), (1, 1)])


Open = Callable[..., Bridge]


@pytest.fixture
def open_values(open_widget: Open) -> Open:
    return lambda values, *page: open_widget(ValuesView(values), *page)


def facts(bridge: Bridge) -> str:
    return str(bridge.page.locator(".kv-facts").inner_text())


def chip(bridge: Bridge, words: str) -> Any:
    return bridge.page.locator(".kv-source button", has_text=words).first


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_click_on_a_name_shows_its_tile_of_the_last_iteration(
    open_values: Open, product: Values, scheme: str
) -> None:
    bridge = open_values(product, scheme)
    chip(bridge, "y 16x16").click()
    bridge.page.wait_for_function("() => document.querySelector('.kv-facts').innerText.startsWith('y in line')")
    assert "16x16 fp32" in facts(bridge)
    assert "masked 128" in facts(bridge)
    assert "iteration 2" in bridge.page.locator(".kv-bar").inner_text()
    value = product.values[bridge.widget.position]
    assert (value.name, value.iteration) == ("y", (2,))
    assert bridge.page.locator(".kv-line.kv-chosen").count() == 1


def test_hovering_an_element_says_its_index_address_and_value(open_values: Open, product: Values) -> None:
    bridge = open_values(product)
    chip(bridge, "x 16x16").click()
    bridge.page.wait_for_function("() => document.querySelector('.kv-facts').innerText.startsWith('x in line')")
    box = bridge.page.locator("canvas").bounding_box()
    bridge.page.mouse.move(box["x"] + box["width"] * 2.5 / 16, box["y"] + box["height"] * 1.5 / 16)
    value = product.values[bridge.widget.position]
    assert value.elements is not None
    said = bridge.page.locator(".kv-hover").inner_text()
    assert said.startswith(f"[1, 2] a[{value.elements[1, 2]}] = ")
    assert float(said.rpartition("= ")[2]) == pytest.approx(float(value.data[1, 2]), rel=1e-4)
    bridge.page.mouse.move(box["x"] + box["width"] * 15.5 / 16, box["y"] + box["height"] * 1.5 / 16)
    assert bridge.page.locator(".kv-hover").inner_text().endswith("masked")


def test_iterations_programs_and_the_flow_are_walked(open_values: Open, product: Values) -> None:
    bridge = open_values(product)
    bridge.page.locator(".kv-source button", has_text="x 16x16").first.click()
    bridge.page.wait_for_function("() => document.querySelector('.kv-facts').innerText.startsWith('x in line')")
    bridge.page.locator(".kv-bar button[title='iteration before']").click()
    bridge.wait("() => document.querySelector('.kv-bar').innerText.includes('iteration 1')")
    assert product.values[bridge.widget.position].iteration == (1,)
    bridge.page.locator(".kv-bar button[title='program after']").click()
    bridge.wait("() => document.querySelector('.kv-bar').innerText.includes('(1, 1, 0)')")
    assert product.values[bridge.widget.position].program == (1, 1, 0)
    before = bridge.widget.position
    bridge.page.locator(".kv-bar button", has_text="next").click()
    bridge.wait("() => document.querySelector('.kv-facts').innerText.startsWith('y in line')")
    assert bridge.widget.position == before + 1
    bridge.page.locator(".kv-flow button", has_text="right, line").first.click()
    bridge.wait("() => document.querySelector('.kv-facts').innerText.startsWith('right in line')")
    assert "read by" in bridge.page.locator(".kv-flow").inner_text()


def test_keys_go_through_lines_iterations_and_values(open_values: Open, product: Values) -> None:
    bridge = open_values(product)
    chip(bridge, "rest 16").click()
    bridge.wait("() => document.querySelector('.kv-facts').innerText.startsWith('rest in line')")
    bridge.page.keyboard.press("ArrowDown")
    bridge.wait("() => document.querySelector('.kv-facts').innerText.startsWith('x in line')")
    bridge.page.keyboard.press("ArrowLeft")
    bridge.wait("() => document.querySelector('.kv-bar').innerText.includes('iteration 1')")
    bridge.page.keyboard.press("n")
    bridge.wait("() => document.querySelector('.kv-facts').innerText.startsWith('y in line')")
    bridge.page.keyboard.press("p")
    bridge.wait("() => document.querySelector('.kv-facts').innerText.startsWith('x in line')")
    bridge.page.keyboard.press("ArrowUp")
    bridge.wait("() => document.querySelector('.kv-facts').innerText.startsWith('rest in line')")


def test_a_pressed_button_keeps_the_focus_and_a_slider_can_be_dragged(open_values: Open, product: Values) -> None:
    bridge = open_values(product)
    chip(bridge, "x 16x16").click()
    bridge.wait("() => document.querySelector('.kv-facts').innerText.startsWith('x in line')")
    bridge.page.locator(".kv-bar button", has_text="next").click()
    bridge.wait("() => document.querySelector('.kv-facts').innerText.startsWith('y in line')")
    bridge.page.keyboard.press("p")
    bridge.wait("() => document.querySelector('.kv-facts').innerText.startsWith('x in line')")
    slider = bridge.page.locator("input[aria-label=iteration]")
    box = slider.bounding_box()
    bridge.page.mouse.move(box["x"] + box["width"] - 8, box["y"] + box["height"] / 2)
    bridge.page.mouse.down()
    for share in (0.75, 0.5, 0.25, 0.05):
        bridge.page.mouse.move(box["x"] + box["width"] * share, box["y"] + box["height"] / 2)
    bridge.wait("() => document.querySelector('.kv-bar').innerText.includes('iteration 0')")
    bridge.page.mouse.up()
    assert product.values[bridge.widget.position].iteration == (0,)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_operations_of_the_chosen_line_are_marked_in_the_graph(
    open_values: Open, product: Values, scheme: str
) -> None:
    bridge = open_values(product, scheme)
    assert not bridge.page.locator(".kv-graph").is_visible()
    chip(bridge, "y 16x16").click()
    bridge.wait("() => document.querySelector('.kv-facts').innerText.startsWith('y in line')")
    words = str(bridge.page.locator("button[aria-expanded]").inner_text())
    assert re.fullmatch(r"graph: [1-9]\d* operations?", words)
    bridge.page.locator("button[aria-expanded]").click()
    line = product.find("y").line
    bridge.wait("line => document.querySelector('.kg-on')?.dataset.line === String(line)", line)
    assert bridge.page.locator(".kg-on").first.is_visible()
    assert {box.get_attribute("data-line") for box in bridge.page.locator(".kg-on").all()} == {str(line)}


def test_a_click_on_an_operation_chooses_the_value_of_its_line(open_values: Open, product: Values) -> None:
    bridge = open_values(product)
    bridge.page.locator(".kv-source").focus()
    bridge.page.keyboard.press("g")
    line = product.find("acc", iteration=1).line
    bridge.page.locator(f".kg [data-line='{line}']").first.click()
    bridge.wait("() => document.querySelector('.kv-facts').innerText.startsWith('acc in line')")
    assert product.values[bridge.widget.position].line == line
    assert bridge.page.locator(".kv-line.kv-chosen i").inner_text() == str(line)
    bridge.page.keyboard.press("g")
    assert not bridge.page.locator(".kv-graph").is_visible()


def test_an_argument_of_a_line_lights_its_slice_in_the_graph(open_values: Open, product: Values) -> None:
    bridge = open_values(product)
    chip(bridge, "x 16x16").click()
    bridge.wait("() => document.querySelector('.kv-facts').innerText.startsWith('x in line')")
    bridge.page.locator(".kv-flow button", has_text="argument M").click()
    bridge.wait("() => document.querySelectorAll('.kg [data-node].kg-dim').length > 0")
    assert bridge.widget.slice == "M"


def test_a_scalar_is_a_number(open_values: Open, product: Values) -> None:
    bridge = open_values(product)
    chip(bridge, "step = 32").click()
    bridge.wait("() => document.querySelector('.kv-number')?.innerText === '32'")
    assert not bridge.page.locator("canvas").is_visible()


def test_what_is_set_from_python_shows_and_what_does_not_exist_is_refused(open_values: Open, product: Values) -> None:
    bridge = open_values(product)
    position = next(at for at, value in enumerate(product.values) if value.name == "left")
    bridge.set(position=position)
    bridge.wait("() => document.querySelector('.kv-facts').innerText.startsWith('left in line')")
    with pytest.raises(kernellab.errors.UsageError, match="position is 9999"):
        bridge.widget.position = 9999


def test_it_can_be_read_on_a_narrow_page_with_nan_and_a_long_vector(open_values: Open) -> None:
    x = torch.rand(4, 300)
    x[2, 17] = 120.4
    with shared_lab(store=":memory:") as lab:
        values = lab.values(careless, (4,), x, torch.zeros(4, 300), 300, BLOCK=512, program=2)
    bridge = open_values(values, "dark", 420)
    chip(bridge, "ratio 512").click()
    bridge.wait("() => document.querySelector('.kv-facts').innerText.startsWith('ratio in line')")
    assert "NaN 1" in facts(bridge)
    assert "a cell is 1 x 2 elements" in facts(bridge)
    assert bridge.page.evaluate("() => document.documentElement.scrollWidth") <= 420


def test_the_static_page_opens_line_by_line_without_a_script(chromium: Any, product: Values, tmp_path: Path) -> None:
    product.save(tmp_path / "values.html")
    assert (tmp_path / "values.html").stat().st_size < 1_000_000
    context = chromium.new_context(java_script_enabled=False, viewport={"width": 1100, "height": 900})
    page = context.new_page()
    page.goto((tmp_path / "values.html").as_uri())
    page.locator("summary", has_text="Source with values").click()
    line = page.locator("details details:has(> .kv-line)", has_text=re.compile("acc = tl.dot"))
    line.locator("summary").click()
    assert line.locator("table").is_visible()
    assert line.locator("img.kv-tile").first.is_visible()
    page.locator("summary", has_text="Dataflow graph").click()
    number = product.find("acc", iteration=1).line
    boxes = page.locator(f".kg [data-line='{number}'] > path").all()
    assert boxes
    assert {box.evaluate("box => getComputedStyle(box).strokeWidth") for box in boxes} == {"3.5px"}
    line.locator("summary").first.click()
    assert "3.5px" not in {box.evaluate("box => getComputedStyle(box).strokeWidth") for box in boxes}
    context.close()
