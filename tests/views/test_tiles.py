"""The pane of layouts in the explorer, as HTML; what a browser makes of it is tried in `tests/browser`."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html import unescape

from kernellab.ir.layouts import Encoding
from kernellab.views.layouts import TilesPane
from tests.views.test_layouts import FOUND

NUMBERS = {("kernel.py", 12): 7}


def test_each_value_is_lit_with_its_source_line_and_one_is_chosen() -> None:
    html = TilesPane(FOUND, 12, "u", NUMBERS).html()
    labels = re.findall(r'<label class="k7" data-n="12" data-value="([^"]*)"', html)
    assert labels == ["%x", "%s", "%w", "%a", "%d"]
    assert html.count('name="u-value"') == 5
    assert re.findall(r'class="v0" checked><b>([^<]*)', html) == ["%d"]


def test_the_data_of_a_tile_are_its_bases_or_the_places_of_what_shows() -> None:
    html = TilesPane(FOUND, 12, "u", NUMBERS).html()
    data = [json.loads(unescape(each)) for each in re.findall(r'data-tile="([^"]*)"', html)]
    product = next(each for each in data if each.get("shape") == [64, 64])
    assert product["lane"] == [[0, 2], [0, 4], [1, 0], [2, 0], [4, 0]]
    shared = next(each for each in data if "places" in each)
    assert (shared["bits"], len(shared["places"])) == (16, 32 * 32)
    assert shared["places"][2 * 32] == 2 * 32 + 8  # the second phase: 8 elements aside


def test_layouts_beyond_the_most_are_counted_and_their_values_left_out() -> None:
    pane = TilesPane(FOUND, 2, "u", NUMBERS)
    assert pane.html().count("data-tile=") == 2
    assert "2 more layouts of this kernel are not drawn here" in pane.html()
    assert set(pane.drawn_values()) == {"%a", "%d"}


def test_a_layout_that_nothing_tells_is_said_to_be_unknown() -> None:
    value = replace(FOUND["d"], encoding=Encoding("new_mma", {"version": 9}), registers=None)
    html = TilesPane(replace(FOUND, values=(value,)), 12, "u", NUMBERS).html()
    assert "The layout new_mma(version=9) is not known to this version of Triton" in html
    assert "<svg" not in html


def test_the_pane_shows_with_its_stage_and_never_without_a_style_sheet() -> None:
    pane = TilesPane(FOUND, 12, "u", NUMBERS)
    assert pane.html().startswith('<form class="kx-tiles" style="display:none">')
    assert "#u:has(.kx-tab1:checked) .kx-tiles{display:grid!important}" in pane.rules(1)
    assert "#u:has(.r7:checked) .kx-values .k7{order:-1}" in pane.rules(1)
