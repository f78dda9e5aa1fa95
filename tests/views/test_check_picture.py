"""The picture of an output that differs: its captions, its bars, its rows."""

from __future__ import annotations

from xml.etree import ElementTree

import torch

from kernellab.checking.comparison import EDGES, Check, ErrorDetail, ErrorHistogram, WorstElement
from kernellab.views.cards.arguments import check_lines, check_picture, histogram_svg

BINS = len(EDGES) + 2
HISTOGRAM = ErrorHistogram("float32", (0, 90, *[0] * (BINS - 2)), (0, 0, 0, 0, 5, *[0] * (BINS - 6), 5))
WORST = (
    WorstElement((1, 2), 2.0, 1.0, 8388608.0, (0, 1, 0), ((0, 1), (0, 3)), 7),
    WorstElement((3, 3), 0.0, 1.0, 4.0, wrong=3),
)


def differing(heat: tuple[tuple[float, ...], ...] = (), detail: ErrorDetail | None = None) -> Check:
    return Check("a < b", "out", False, 1.0, 0.1, 10, 100, heat=heat, detail=detail)


def test_the_map_says_what_its_cells_are() -> None:
    html = check_picture(differing(heat=((0.0, 1.0), (0.0, 0.5))))
    assert "Where out differs from a &lt; b: row 0 is at the top, and a cell stands for about 25 elements" in html


def test_an_output_that_equals_its_reference_has_no_picture() -> None:
    assert check_picture(Check("ref", "out", True, 0.0, 0.0, 0, torch.ones(3).numel())) == ""


def test_the_histogram_has_a_bar_and_a_count_for_what_is_there() -> None:
    picture = ElementTree.fromstring(histogram_svg("out", HISTOGRAM))
    words = [each.text for each in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert words[:2] == ["90", "≤1"]
    assert words[-2:] == ["5", "inf, nan"]
    assert "≤½" not in words
    fills = [each.get("fill") for each in picture.iter("{http://www.w3.org/2000/svg}rect")]
    assert len(fills) == 3
    assert len(set(fills)) == 2


def test_the_worst_elements_stand_by_program_and_tile() -> None:
    html = check_picture(differing(detail=ErrorDetail(None, WORST)))
    assert "Worst element of out per program" in html
    assert '<td style="text-align:left">(0, 1, 0)</td><td style="text-align:left">[0 to 1, 0 to 3]</td>' in html
    assert "none wrote it" in html


def test_without_programs_there_are_no_columns_for_them() -> None:
    lines = list(check_lines(differing(detail=ErrorDetail(HISTOGRAM, (WorstElement((1, 2), 2.0, 1.0, 3.0),)))))
    assert lines[0].startswith("elements by error, in ulp of float32: ≤1: 90, ≤2: 0")
    assert lines[1] == "Worst elements of out:"
    assert lines[2].split() == ["worst", "element", "value", "expected", "error", "(ulp)"]
