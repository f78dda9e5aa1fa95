"""The page and the tiles of recorded values: what is drawn where a tile is large, has holes, or lies in a helper."""

from __future__ import annotations

import base64
from dataclasses import replace

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

import kernellab
from kernellab.errors import UsageError, WorkerDied
from kernellab.inside.values import Values
from kernellab.ir.graph import Graph
from kernellab.views.palette import MAGENTA, ORANGE, tones
from kernellab.views.values import MOST_CELLS, ValuesPage, colours_of, miniature, picture, plane_of
from tests.inside import kernels
from tests.labs import lab_fixture


@triton.jit
def long_vector(x, out, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    value = tl.load(x + offsets)
    cube = tl.reshape(value, (4, 16, 16))
    tl.store(out + offsets, value + tl.sum(tl.sum(tl.sum(cube, 0), 0), 0))


@triton.jit
def masked_row(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    row = tl.load(x + offsets, mask=offsets < n, other=-float("inf"))
    tl.store(out + offsets, row)


@triton.jit
def rounds_by_program(out):
    total = 0
    for step in range(tl.program_id(0) + 1):
        total += step
    tl.store(out + tl.program_id(0), total)


@triton.jit
def long_statement(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(
        x + offsets,
        mask=offsets < n,
        other=0.0,
    )
    tl.store(out + offsets, value * 2, mask=offsets < n)


lab = lab_fixture()


@pytest.fixture(scope="module")
def long(lab: kernellab.Lab) -> Values:
    x = torch.arange(1024.0)
    x[600] = torch.nan
    return lab.values(long_vector, (1,), x, torch.zeros(1024), BLOCK=1024)


def test_a_nan_shows_wherever_it_is_in_a_tile_that_is_thinned(long: Values) -> None:
    plane = plane_of(long.find("value"), 0, MOST_CELLS)
    assert plane.data.shape == (1, MOST_CELLS)
    assert plane.cells_of == (1, 4)
    assert np.isnan(plane.data).sum() == 1
    assert plane.places[0, 150] == 600, "the cell says which element it stands for"
    assert plane.places[0, 151] == 604
    small = plane_of(long.find("value"), 0, 24)
    assert np.isnan(small.data).sum() == 1


def test_axes_beyond_two_are_planes(long: Values) -> None:
    page, cube = ValuesPage(long), long.find("cube")
    position = long.values.index(cube)
    tile = page.tile(position, 2)
    assert (tile["pages"], tile["rows"], tile["columns"], tile["held"]) == (4, 16, 16, [4, 16, 16])
    places = np.frombuffer(base64.b64decode(tile["places"]))
    assert places[0] == 2 * 256
    assert page.tile(position, 9)["page"] == 3, "beyond the last is the last"


def test_a_program_that_lacks_the_iteration_is_reached_at_its_last_one(lab: kernellab.Lab) -> None:
    values = lab.values(rounds_by_program, (3,), torch.zeros(3, dtype=torch.int32), programs=[0, 1, 2])
    third = values.values.index(values.find("step", iteration=2, program=(2, 0, 0)))
    others = [values.values[at] for at, _ in ValuesPage(values).tile(third)["programs"]]
    assert [(value.program[0], value.iteration) for value in others] == [(0, (0,)), (1, (1,)), (2, (2,))]


def test_arguments_that_a_line_names_come_with_what_was_passed(lab: kernellab.Lab) -> None:
    x = torch.rand(2, 4)
    values = lab.values(kernels.gather, (1,), x, torch.zeros(4).int(), torch.zeros(4), 4, BLOCK=4)
    tiles = [ValuesPage(values).tile(at) for at in range(len(values.values))]
    assert {"x 2x4", "n = 4"} <= {words for tile in tiles for _, words in tile["arguments"]}


def test_infinities_in_masked_lanes_of_a_vector_count_as_masked_alone(lab: kernellab.Lab) -> None:
    values = lab.values(masked_row, (1,), torch.rand(5), torch.zeros(8), 5, BLOCK=8)
    legend = values.plot("row").axes[0].get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["3 masked"]


def test_integers_of_64_bits_stay_exact(lab: kernellab.Lab) -> None:
    x = torch.tensor([2**62 + 1, 5, -1, 0] * 2)
    values = lab.values(kernels.scan, (1,), x, torch.zeros(8, dtype=torch.int64), 8, BLOCK=8)
    tile = ValuesPage(values).tile(values.values.index(values.find("values")))
    assert tile["number"] == "int64"
    assert np.frombuffer(base64.b64decode(tile["data"]), np.int64)[0] == 2**62 + 1


def test_nan_infinity_and_masked_lanes_have_colours_of_their_own() -> None:
    plane = np.array([[0.0, 1.0, np.nan, -np.inf, 0.5, 0.5]])
    mask = np.array([[True, True, True, True, False, True]])
    pixels = colours_of(plane, mask)[0]
    assert tuple(pixels[2]) == tones(MAGENTA)
    assert tuple(pixels[3]) == tones(ORANGE)
    assert len({*pixels[4]} - {pixels[4][0]}) <= 2
    assert tuple(pixels[4]) != tuple(pixels[5]), "a masked lane is hatched"
    assert tuple(pixels[0]) != tuple(pixels[1])


def test_lines_of_helpers_follow_those_of_the_kernel_and_rows_are_told_apart(lab: kernellab.Lab) -> None:
    arguments = {"x": torch.rand(16), "out": torch.zeros(16), "scale": 1.5, "shift": 0.25, "BLOCK": 8}
    values = lab.values(kernels.helpers, (2,), **arguments)
    page = ValuesPage(values)
    texts = [line.text for line in page.lines if line.positions]
    assert any("scaled = value * scale" in text for text in texts)
    rows = {page.tile(at)["row"] for at, value in enumerate(values.values) if value.name in {"first", "scaled"}}
    assert len(rows) == 2
    assert -1 not in rows


def test_the_page_escapes_source_and_is_small(lab: kernellab.Lab, long: Values) -> None:
    html = ValuesPage(long).html()
    assert "<details>" in html
    assert "<script" not in html
    assert len(html) < 200_000
    values = lab.values(kernels.gather, (1,), torch.rand(8), torch.zeros(4).int(), torch.zeros(4), 4, BLOCK=4)
    assert "offsets &lt; n" in ValuesPage(values).html()


def test_a_scalar_has_no_miniature_and_a_tile_one(long: Values) -> None:
    assert miniature(long.find("offsets")).startswith("<img")
    assert "kv-tile" in picture(long.find("offsets"))


def test_only_values_open_in_the_widget(long: Values) -> None:
    view = kernellab.values_view(long)
    assert view.tile["title"].startswith("store out")
    view.position = 0
    assert view.tile["position"] == 0
    with pytest.raises(UsageError, match="values is 3"):
        kernellab.values_view(3)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="page is -1"):
        view.page = -1


def test_every_line_of_a_statement_leads_to_its_value_in_the_graph(lab: kernellab.Lab) -> None:
    values = lab.values(long_statement, (1,), torch.rand(8), torch.zeros(8), 8, BLOCK=8)
    view = kernellab.values_view(values)
    view.position = values.values.index(value := values.find("value"))
    assert (view.file, view.line) == ("", value.line)
    assert view.tile["operations"] >= 3, "addresses, mask and load stand in four lines"
    assert f'data-line="{value.line}"' in view.svg
    assert f'data-line="{value.line + 1}"' not in view.svg
    view.line = values.find("offsets").line
    assert values.values[view.position].name == "offsets"
    view.line = 1
    assert values.values[view.position].name == "offsets", "a line without values chooses none"


def test_a_line_of_a_helper_leads_to_its_value_and_its_operations(lab: kernellab.Lab) -> None:
    arguments = {"x": torch.rand(16), "out": torch.zeros(16), "scale": 1.5, "shift": 0.25, "BLOCK": 8}
    values = lab.values(kernels.helpers, (2,), **arguments)
    view = kernellab.values_view(values)
    view.line = values.find("scaled").line
    assert values.values[view.position].name == "scaled"
    assert view.tile["operations"] >= 1


def test_where_there_is_no_graph_the_widget_and_the_page_say_why(long: Values) -> None:
    def refuse() -> Graph:
        raise WorkerDied("The lab is closed.")

    closed = replace(long, build_graph=refuse)
    view = kernellab.values_view(closed)
    assert "No dataflow graph: The lab is closed." in view.html
    assert "No dataflow graph: The lab is closed." in ValuesPage(closed).html()
    view.position = 0
    assert view.tile["operations"] == 0
    with pytest.raises(UsageError, match="no graph"):
        view.slice = "x"
