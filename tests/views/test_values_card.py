"""The cards of the values of a launch and of a first difference, and their pictures."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

import kernellab
from kernellab.inside.first_difference import FirstDifference
from kernellab.inside.values import Values
from kernellab.views.blocks import Card, Table
from kernellab.views.cards.inside import difference_card, values_card
from kernellab.views.figures.canvas import single_axes, theme_of
from kernellab.views.figures.inside import difference_figure, draw_tile, values_figure
from tests.inside.planted_faults import Change
from tests.inside.transcripts import CASES
from tests.labs import lab_fixture

CASE_OF = {case.name: case for case in CASES}
MOST_CHARACTERS = 1_000_000


@triton.jit
def halve(value):
    return value / 2


@triton.jit
def logarithms(x, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    inside = at < n
    value = tl.load(x + at, mask=inside, other=1.0)
    half = halve(value)
    logarithm = tl.log(half)
    tl.store(out + at, logarithm, mask=inside)


FIRST = logarithms.starting_line_number
lab = lab_fixture()


@pytest.fixture(scope="module")
def bad(lab: kernellab.Lab) -> Values:
    """Values with a NaN, an infinity, and three masked lanes."""
    x = torch.tensor([-2.0, 0.0] + [2.0] * 14)
    return lab.values(logarithms, (1,), x, torch.zeros(16), 13, BLOCK=16)


@pytest.fixture(scope="module")
def product(lab: kernellab.Lab) -> Values:
    case = CASE_OF["product"]
    return lab.values(case.kernel, case.grid, **case.arguments(), program=(1, 1))


@pytest.fixture(scope="module")
def differ(lab: kernellab.Lab, tmp_path_factory: pytest.TempPathFactory) -> FirstDifference:
    case = CASE_OF["product"]
    change = Change("product", "acc = tl.dot(x, y, acc)", "acc = tl.dot(x, y)")
    changed, _ = change.apply(tmp_path_factory.mktemp("changed"))
    return lab.first_difference(case.kernel, changed, case.grid, **case.arguments())


def table_in(card: Card) -> Table:
    (table,) = [block for section in card.sections for block in section.blocks if isinstance(block, Table)]
    return table


def column(table: Table, name: str) -> list[str]:
    return [row[list(table.head).index(name)] for row in table.rows]


def legend_of(figure: Any) -> list[str]:
    legend = figure.axes[0].get_legend()
    return [] if legend is None else [text.get_text() for text in legend.get_texts()]


def test_rows_are_in_the_order_of_lines_and_show_the_last_iteration(product: Values) -> None:
    table = table_in(values_card(product))
    lines = [int(line) for line in column(table, "line")]
    assert lines == sorted(lines)
    accumulators = [row for row in table.rows if "acc" in row]
    assert len(accumulators) == 2, "the zeros before the loop, and the product of the last iteration"
    assert accumulators[1][list(table.head).index("iteration")] == "2"


def test_columns_that_no_value_fills_are_left_out(product: Values, bad: Values) -> None:
    assert not {"NaN", "inf", "called in"} & set(table_in(values_card(product)).head)
    assert {"NaN", "inf", "masked", "called in"} <= set(table_in(values_card(bad)).head)


def test_values_of_a_helper_name_the_line_that_calls_it(bad: Values) -> None:
    table = table_in(values_card(bad))
    callers = dict(zip(column(table, "source"), column(table, "called in"), strict=True))
    assert callers["return value / 2"] == str(FIRST + 5)
    assert callers["half = halve(value)"] == ""


def test_nan_inf_and_masked_lanes_are_counted(bad: Values) -> None:
    table = table_in(values_card(bad))
    row = column(table, "source").index("logarithm = tl.log(half)")
    assert (column(table, "NaN")[row], column(table, "inf")[row]) == ("1", "1")
    assert column(table, "masked")[-1] == "3"


def test_the_operation_that_made_a_nan_stands_above_the_table(bad: Values) -> None:
    text = values_card(bad).text()
    assert text.index(f"line {FIRST + 6}: log(-1) is NaN in fp32") < text.index("called in")


def test_a_tile_of_one_axis_names_nan_inf_and_masked_lanes(bad: Values) -> None:
    assert legend_of(values_figure(bad)) == ["1 NaN", "1 inf", "3 masked"]


def test_a_heat_map_hatches_masked_lanes(product: Values) -> None:
    figure = values_figure(product)
    assert legend_of(figure) == ["224 masked"]
    assert figure.axes[0].patch.get_hatch() == "////"


def test_a_heat_map_names_nan_and_inf_and_not_those_of_masked_lanes(product: Values) -> None:
    value = product.values[-1]
    data = np.zeros(value.data.shape, np.float32)
    data[0, 0], data[1, 1], data[-1, -1] = np.nan, np.inf, np.nan
    figure, axes = single_axes(4, 4, theme_of(dark=False))
    draw_tile(axes, replace(value, data=data), theme_of(dark=False), "tile")
    assert legend_of(figure) == ["1 NaN", "1 inf", "224 masked"]


def test_source_is_escaped_and_stays_on_one_line(bad: Values) -> None:
    html = values_card(bad).html()
    assert re.search(r'<td class="kl-code"[^>]*>inside = at &lt; n</td>', html)
    assert "at < n" not in html


def test_the_sentence_of_a_difference_stands_in_red_above_both_lines(differ: FirstDifference) -> None:
    html = difference_card(differ).html()
    assert re.search(r'class="[^"]*kl-alert[^"]*">[^<]*First difference in line', html)
    table = table_in(difference_card(differ))
    assert column(table, "source") == ["acc = tl.dot(x, y, acc)", "acc = tl.dot(x, y)"]
    assert column(table, "side") == list(differ.names)


def test_both_tiles_share_a_scale_and_mark_the_element(differ: FirstDifference) -> None:
    figure = difference_figure(differ)
    tiles = [axes for axes in figure.axes if axes.images]
    assert len(tiles) == 2
    assert tiles[0].images[0].get_clim() == tiles[1].images[0].get_clim()
    assert [[tuple(line.get_xydata()[0]) for line in axes.lines] for axes in tiles] == [[differ.element[::-1]]] * 2


def test_equal_kernels_have_a_green_sentence_and_no_table(lab: kernellab.Lab) -> None:
    case = CASE_OF["scan"]
    card = difference_card(lab.first_difference(case.kernel, case.kernel, case.grid, **case.arguments()))
    assert 'class="kl-note kl-good"' in card.html()
    assert "<table" not in card.html()


@pytest.mark.parametrize("show", [values_card, difference_card], ids=["values", "difference"])
def test_a_card_is_small(show: Callable[[Any], Card], product: Values, differ: FirstDifference) -> None:
    assert len(show(product if show is values_card else differ).html()) < MOST_CHARACTERS


def test_the_card_of_a_large_tile_is_small_too(lab: kernellab.Lab) -> None:
    values = lab.values(logarithms, (1,), torch.rand(65536), torch.zeros(65536), 65536, BLOCK=65536)
    assert len(values_card(values).html()) < MOST_CHARACTERS
