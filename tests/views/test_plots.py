"""Figures of tunings, drawn from their frames alone."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest

from kernellab.errors import UsageError
from kernellab.tune.result import Tuning
from kernellab.views.figures.canvas import theme_of
from kernellab.views.figures.tuning import agreement_figure, heat_map, parameters_figure, timings_figure, varying
from tests.tables import every
from tests.tune.frames import divided_tuning, large_tuning, small_tuning, untimed_tuning

TUNINGS = {
    "four configs": small_tuning(),
    "four hundred": large_tuning(),
    "no GPU": untimed_tuning(),
    "a majority": divided_tuning(has_majority=True),
    "no majority": divided_tuning(has_majority=False),
    "many groups": divided_tuning(has_majority=False, count=60),
}


def texts(figure: object) -> list[str]:
    from matplotlib.text import Text

    return [found.get_text() for found in figure.findobj(Text) if found.get_text()]  # type: ignore[attr-defined]


@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("name", every(3, TUNINGS))
def test_a_figure_fits_its_canvas_whatever_the_number_of_configs(name: str, dark: bool) -> None:
    figure = timings_figure(TUNINGS[name].frame, dark=dark)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    width, height = figure.get_size_inches() * figure.dpi
    for axes in figure.axes:
        box = axes.get_tightbbox()
        assert box is not None
        assert box.x0 >= -1
        assert box.y0 >= -1
        assert box.x1 <= width + 1
        assert box.y1 <= height + 1


def test_few_configs_have_a_line_each_in_the_order_of_their_rank() -> None:
    labels = [label.get_text() for label in timings_figure(small_tuning().frame).axes[0].get_yticklabels()]
    assert labels == ["BLOCK=64 warps=8", "BLOCK=64 warps=4", "BLOCK=128 warps=4"]


def test_labels_have_the_colour_of_text_but_for_the_winner() -> None:
    for dark in (False, True):
        ticks = timings_figure(small_tuning().frame, dark=dark).axes[0].get_yticklabels()
        theme = theme_of(dark)
        assert [tick.get_color() for tick in ticks] == [theme.winner, theme.text, theme.text]


def test_failures_are_listed_with_their_reason() -> None:
    found = texts(timings_figure(small_tuning().frame))
    assert any(text.startswith("cannot_run  BLOCK=128 warps=8: it needs 294,912 bytes") for text in found)


@pytest.mark.slow
def test_many_failures_are_counted() -> None:
    found = texts(timings_figure(large_tuning().frame))
    assert "fault  20 configs, most often: illegal memory access" in found


def test_the_winner_of_many_is_named() -> None:
    found = texts(timings_figure(large_tuning().frame))
    assert any(text.startswith("best: BLOCK_M=256 BLOCK_N=256") for text in found)


@pytest.mark.slow
def test_of_many_configs_without_times_the_first_are_drawn_and_called_so() -> None:
    untimed = untimed_tuning()
    many = replace(untimed, rows=tuple(replace(each, time_ms=None) for each in large_tuning().rows), configs=())
    figure = timings_figure(many.frame)
    assert len(figure.axes[0].get_yticklabels()) == 24
    assert "theoretical occupancy, %; the first 24 of 400" in texts(figure)
    assert "64 registers, 8 KiB shared memory" in texts(figure)


def test_without_times_the_resources_are_drawn() -> None:
    found = texts(timings_figure(untimed_tuning().frame))
    assert "64 registers, 8 KiB shared memory" in found
    assert parameters_figure(untimed_tuning().frame) is None


@pytest.mark.slow
def test_each_parameter_that_varies_has_a_panel() -> None:
    figure = parameters_figure(large_tuning().frame)
    assert figure is not None
    assert [axes.get_title() for axes in figure.axes] == ["BLOCK_M", "BLOCK_N", "num_warps", "num_stages"]


@pytest.mark.slow
def test_a_heat_map_shows_the_best_time_of_each_pair() -> None:
    frame = large_tuning().frame
    best = frame[(frame.BLOCK_M == 64) & (frame.BLOCK_N == 32)].time_ms.min()
    assert f"{best:.3g}" in texts(heat_map(frame, "BLOCK_M", "BLOCK_N"))


def test_a_heat_map_over_something_else_is_refused() -> None:
    with pytest.raises(UsageError, match="'BLOCK_K': the parameters that were timed are BLOCK_M"):
        heat_map(large_tuning().frame, "BLOCK_K", "BLOCK_N")


def test_a_plot_needs_the_frame_alone() -> None:
    tuning: Tuning = small_tuning()
    frame = tuning.frame.copy()
    frame.attrs = {}
    assert varying(frame) == ["BLOCK", "num_warps"]
    timings_figure(frame)


@pytest.mark.slow
def test_configs_that_differ_from_most_follow_those_that_can_win_and_are_told_by_colour() -> None:
    figure = timings_figure(divided_tuning(has_majority=True).frame)
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels == ["BLOCK=4", "BLOCK=8", "BLOCK=16", "BLOCK=1", "BLOCK=2"]
    assert "outputs differ from most" in texts(figure)
    assert "outputs differ from most" in texts(timings_figure(divided_tuning(has_majority=True, count=60).frame))
    assert "outputs differ from most" not in texts(timings_figure(small_tuning().frame))


@pytest.mark.parametrize("dark", [False, True])
def test_groups_of_equal_outputs_have_a_band_each_and_their_differences_in_words(dark: bool) -> None:
    found = texts(agreement_figure(divided_tuning(has_majority=True).frame, dark=dark))
    assert {"A: 3 configs", "B: 1 config\nBLOCK=1", "C: 1 config\nBLOCK=2"} <= set(found)
    assert "A and C: scratch differs in 30 of 64 elements, by up to 2.5; tail differs in 1 of 8 elements" in found
    assert any("the marked group is more than half" in text for text in found)


@pytest.mark.slow
def test_without_a_majority_no_band_is_marked_and_small_groups_share_one() -> None:
    found = texts(agreement_figure(divided_tuning(has_majority=False, count=60).frame))
    assert any("no group is more than half" in text for text in found)
    assert "51 other groups" in found


def test_where_all_agree_or_a_reference_decided_there_is_no_such_figure() -> None:
    assert agreement_figure(small_tuning().frame) is None
    one = divided_tuning(has_majority=True)
    assert one.agreement is not None
    alike = replace(one, agreement=replace(one.agreement, groups=one.agreement.groups[:1], disagrees=False))
    assert agreement_figure(alike.frame) is None
