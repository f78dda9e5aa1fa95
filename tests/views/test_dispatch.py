"""A dispatch as text, as HTML, and as figures."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from kernellab.errors import UsageError
from kernellab.timing.config import Config
from kernellab.tune.dispatch import Dispatch
from kernellab.tune.dispatch.result import CoverStep, Regret
from kernellab.views.cards.tuning import dispatch_card
from kernellab.views.figures.dispatch import cover_figure, plane_figure, regret_figure
from tests.tune.dispatch.tuned import LARGE, SMALL, dispatch_of

KNOWN = {(16, 64): 0, (16, 4096): 1, (4096, 64): 0, (4096, 4096): 1}
COVER = (CoverStep(1, 1.2, 1.5, 1.3), CoverStep(2, 1.0, 1.0, 1.02))


def found() -> Dispatch:
    made = dispatch_of("scale<rows>", None, None, KNOWN, ("M", "N"), cover=COVER, seconds=1.5, notes=("a <note>",))
    first, *rest = made.regrets
    lost = replace(first, best=Config.of({"BLOCK": 32}), best_ms=0.4, regret=1.25, estimated=1.5)
    return replace(made, regrets=(lost, *rest), provenance={**made.provenance, "measured": 9})


def untimed() -> Dispatch:
    made = found()
    regrets = tuple(Regret(each.sizes, SMALL, None, None, None, None, None, "no GPU") for each in made.regrets)
    return replace(made, regrets=regrets, cover=())


def test_the_text_begins_with_what_it_took_and_what_the_rule_loses() -> None:
    lines = dispatch_card(found()).text().splitlines()
    assert lines[0].startswith("scale<rows> over M, N: 4 cases in 1.50 s, 9 configs measured; a rule of 2 configs")
    assert "at most 1.250x the best measured time" in lines[0]
    assert lines[2].split()[-2:] == ["2", "4"]  # picked for two cases, four programs at a time
    assert lines[-1] == "a <note>"


def test_the_case_that_loses_most_comes_first() -> None:
    lines = dispatch_card(found()).text().splitlines()
    head = next(place for place, line in enumerate(lines) if line.startswith("M "))
    assert lines[head + 1].split()[:2] == ["16", "64"]
    assert lines[head + 1].split()[-2:] == ["1.250", "1.500"]


@pytest.mark.slow
def test_the_card_has_three_pictures_the_rule_and_escapes() -> None:
    html = dispatch_card(found()).html()
    for words in ("configs over two sizes", "loss of the rule over the sizes", "loss by number of configs"):
        assert words in html
    assert "def choose(M, N):" in html
    assert "scale&lt;rows&gt;" in html
    assert "a &lt;note&gt;" in html
    assert "scale<rows>" not in html


def test_without_times_the_card_claims_none() -> None:
    html = dispatch_card(untimed()).html()
    assert html.count("not timed") == 1
    assert dispatch_card(untimed()).text().splitlines()[2].split()[-2] == "4"  # the cases that take the first config
    assert "<svg" not in html
    assert "def choose" not in html
    assert plane_figure(untimed()) is regret_figure(untimed()) is cover_figure(untimed()) is None


@pytest.mark.parametrize("dark", [False, True])
def test_winners_are_drawn_over_two_sizes_with_the_best_of_each_case(dark: bool) -> None:
    figure = plane_figure(found(), dark=dark)
    assert figure is not None
    (axes,) = figure.axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("M", "N")
    assert len(axes.collections) == 1 + len(KNOWN)  # the plane, and a point for each case
    texts = [text.get_text() for text in figure.legends[0].get_texts()]
    assert texts == [SMALL.text, LARGE.text, "the best is not in the rule"]


def test_the_plane_has_what_the_rule_picks_without_its_known_cases() -> None:
    made = found()
    figure = plane_figure(made)
    assert figure is not None
    mesh = figure.axes[0].collections[0]
    columns, rows = (np.unique(mesh.get_coordinates()[..., axis]) for axis in (0, 1))
    picked = mesh.get_array().reshape(len(rows) - 1, len(columns) - 1)
    assert picked[0, 0] == made.rule.cheapest({"M": 16, "N": 64})
    assert picked[-1, -1] == made.rule.cheapest({"M": 4096, "N": 4096})


def test_the_sizes_of_the_plane_can_be_named() -> None:
    figure = plane_figure(found(), across="N", down="M")
    assert figure is not None
    assert figure.axes[0].get_xlabel() == "N"
    for across, down in (("N", ""), ("", "M"), ("N", "N")):
        figure = plane_figure(found(), across=across, down=down)
        assert figure is not None
        assert (figure.axes[0].get_xlabel(), figure.axes[0].get_ylabel()) == ("N", "M")
    with pytest.raises(UsageError, match="Q"):
        plane_figure(found(), across="Q")


def test_a_third_size_has_a_panel_for_small_middle_and_large_values() -> None:
    known = {(m, n, k): 0 for m in (16, 64) for n in (16, 64) for k in (1, 10, 100, 1000, 10000)}
    figure = plane_figure(dispatch_of("scale", None, None, known, ("M", "N", "K")))
    assert figure is not None
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["K = 1", "K = 100", "K = 10000"]


def test_one_size_has_no_plane() -> None:
    assert plane_figure(dispatch_of("scale", None, None, {(16,): 0, (64,): 1}, ("M",))) is None


def test_losses_are_drawn_as_measured_and_as_estimated() -> None:
    figure = regret_figure(found())
    assert figure is not None
    estimated, measured = (points.get_offsets() for points in figure.axes[0].collections)
    assert [list(point) for point in estimated] == [[16 * 64, 1.5]]
    assert sorted(float(y) for _, y in measured) == [1.0, 1.0, 1.0, 1.25]


def test_what_each_further_config_buys_is_a_line_each_for_worst_and_means() -> None:
    figure = cover_figure(found())
    assert figure is not None
    lines = {line.get_label(): list(line.get_ydata()) for line in figure.axes[0].lines}
    assert lines == {
        "worst case": [1.5, 1.0],
        "mean of the cases": [1.2, 1.0],
        "mean between them (expected)": [1.3, 1.02],
    }
