"""The history on made-up times: who is best, what the frame, the words and the picture say."""

from __future__ import annotations

import dataclasses
import re

from kernellab.errors import CompileError
from kernellab.explore.controls import Control
from kernellab.explore.points import Evaluation, OutputComparison, Point, PointHistory
from kernellab.store.columns import Status
from kernellab.timing.config import Config
from kernellab.timing.stopwatch import Interval
from kernellab.tune.result import Row
from kernellab.views.palette import GOOD
from kernellab.views.panels.picture import PanelView, figures_html, history_svg, picture_html, sentence, text

CONTROLS = (Control("BLOCK", (64, 128, 256), 64),)


def evaluation(block: int, time_ms: float, against: Interval | None = None, best: int | None = None) -> Evaluation:
    row = Row(
        Config((("BLOCK", block),)),
        Status.OK,
        time_ms=time_ms,
        low_ms=0.98 * time_ms,
        high_ms=1.02 * time_ms,
        registers=32,
        gbps=2000.0,
    )
    return Evaluation(Point((("BLOCK", block),), ""), "cuda:90", row, against=against, best=best)


def failed(status: Status, error: CompileError, **values: int) -> Evaluation:
    return Evaluation(Point(tuple(values.items()), ""), "cuda:90", Row(Config(), status, error.message), error=error)


def history(*evaluations: Evaluation) -> PointHistory:
    found = PointHistory("softmax")
    for each in evaluations:
        found.add(each)
    return found


def test_the_best_is_beaten_only_beyond_the_noise() -> None:
    first = evaluation(64, 1.0)
    tied = evaluation(128, 0.97, Interval(0.97, 0.95, 1.01), 1)
    faster = evaluation(256, 0.8, Interval(0.8, 0.79, 0.81), 1)
    assert history(first, tied).best_of((), "cuda:90") is not None
    assert history(first, tied).best_of((), "cuda:90").number == 1
    assert history(first, tied, faster).best_of((), "cuda:90").number == 3


def test_points_that_were_timed_apart_beat_each_other_only_with_intervals_apart() -> None:
    assert history(evaluation(64, 1.0), evaluation(128, 0.97)).best_of((), "cuda:90").number == 1
    assert history(evaluation(64, 1.0), evaluation(128, 0.9)).best_of((), "cuda:90").number == 2


def test_a_point_that_is_visited_again_keeps_its_row_with_the_newest_figures() -> None:
    points = history(evaluation(64, 1.0), evaluation(128, 0.5), dataclasses.replace(evaluation(64, 0.9), job=3))
    assert [(each.number, each.row.time_ms) for each in points] == [(1, 0.9), (2, 0.5)]
    assert points.last_good() is points.evaluations[0]
    assert points.frame(3, {})["BLOCK"].tolist() == [64, 128]


def test_other_sizes_and_targets_are_another_race() -> None:
    other = dataclasses.replace(evaluation(128, 0.1), sizes=(("n", "10"),))
    elsewhere = dataclasses.replace(evaluation(128, 0.1), target="cuda:80")
    assert history(evaluation(64, 1.0), other, elsewhere).best_of((), "cuda:90").number == 1


def test_a_wrong_point_is_never_the_best() -> None:
    wrong = evaluation(128, 0.1)
    wrong = dataclasses.replace(wrong, row=dataclasses.replace(wrong.row, status=Status.WRONG))
    assert history(evaluation(64, 1.0), wrong).best_of((), "cuda:90").number == 1


def test_the_frame_ranks_the_points() -> None:
    frame = history(evaluation(64, 1.0), evaluation(128, 0.5, Interval(0.5, 0.49, 0.51), 1)).frame(
        7, {"device": "H200"}
    )
    assert frame["rank"].tolist() == [2, 1]
    assert frame["BLOCK"].tolist() == [64, 128]
    assert frame.attrs["jobs"] == 7
    assert frame.attrs["winner"] == 1


def test_words_say_how_a_point_compares() -> None:
    points = history(evaluation(64, 1.0))
    slower = dataclasses.replace(
        evaluation(128, 1.3, Interval(1.3, 1.28, 1.32), 1),
        verdict=OutputComparison(True, "matches check; max error 0", by_reference=True),
    )
    shown = PanelView("softmax", CONTROLS, points, points.add(slower))
    assert sentence(shown) == (
        "BLOCK=128: 1.3 ms (1.274 to 1.326); 1.3x slower than the best so far (BLOCK=64); matches check; max error 0."
    )
    assert "throughput: 2,000 GB/s" in text(shown)
    assert "1.3x slower" in figures_html(shown)


def test_a_failure_shows_beside_the_last_good_figures() -> None:
    points = history(evaluation(64, 1.0))
    error = CompileError("arange's <range> must be a power of 2")
    bad = points.add(failed(Status.COMPILE_ERROR, error, BLOCK=96))
    html = picture_html(PanelView("softmax", CONTROLS, points, bad))
    assert "arange&#x27;s &lt;range&gt; must be" in html
    assert "Figures of the last good point, BLOCK=64" in html
    assert "1 ms" in html


def test_without_a_good_point_there_is_only_the_reason() -> None:
    points = PointHistory("softmax")
    bad = points.add(failed(Status.CANNOT_RUN, CompileError("too much shared memory")))
    html = picture_html(PanelView("softmax", (), points, bad))
    assert "too much shared memory" in html
    assert "kp-facts" not in re.sub(r"<style>.*?</style>", "", html, flags=re.S)


def test_the_history_marks_the_best_and_the_current_point_and_scales_wide_times() -> None:
    points = history(evaluation(64, 1.0), evaluation(128, 0.01, Interval(0.01, 0.01, 0.011), 1), evaluation(256, 50.0))
    svg = history_svg(points, points.best_of((), "cuda:90"), points.evaluations[-1])
    assert svg.count("kp-best") == 1
    assert svg.count("kp-here") == 1
    assert "<title>2. BLOCK=128" in svg
    heights = [float(y) for y in re.findall(r'<circle[^>]* cx="[\d.]+" cy="([\d.]+)" r="4"', svg)]
    assert heights[1] > heights[0] > heights[2]
    assert all(0 <= y <= 160 for y in heights)


def test_the_axis_of_the_history_has_two_numbers_at_least() -> None:
    for slower in (1.0, 1.3, 2.0, 2.7, 4.0, 6.0, 9.0, 50.0, 3000.0):
        for fastest in (0.0021, 0.0043, 0.0061, 0.0088):
            svg = history_svg(history(evaluation(64, fastest), evaluation(128, slower * fastest)), None, None)
            numbers = re.findall(r'text-anchor="end">(\d[\d.]*)<', svg)
            assert 2 <= len(set(numbers)) == len(numbers) <= 8, (fastest, slower, numbers)


def test_a_long_history_shows_its_end() -> None:
    points = history(*(evaluation(64 + i, 1.0 + i / 100) for i in range(200)))
    svg = history_svg(points, None, points.evaluations[-1])
    assert "200. BLOCK=263" in svg
    assert "<title>1. BLOCK" not in svg


def test_below_the_points_stand_the_values_that_changed() -> None:
    other = dataclasses.replace(evaluation(128, 0.9), target="cuda:80")
    svg = history_svg(history(evaluation(64, 1.0), evaluation(128, 0.9), other), None, None)
    below = re.findall(r'<text class="kp-tick" x="([\d.]+)" y="165.0" text-anchor="middle">([^<]*)<', svg)
    assert [words for _, words in below] == ["64", "128"]
    assert "<title>BLOCK</title>BLOCK</text>" in svg
    alone = history_svg(history(evaluation(64, 1.0)), None, None)
    assert "<title>BLOCK</title>" not in alone
    assert 'viewBox="0 0 640 160"' in alone


def test_values_below_the_points_leave_out_what_would_overlap() -> None:
    crowded = history(*(evaluation(65536 + i, 1.0) for i in range(40)))
    svg = history_svg(crowded, None, None)
    assert "<title>BLOCK</title>" in svg
    assert 'text-anchor="middle">65536<' not in svg


def test_a_target_that_changed_is_named_below_its_points() -> None:
    elsewhere = dataclasses.replace(evaluation(64, 1.0), target="cuda:80")
    svg = history_svg(history(evaluation(64, 1.0), elsewhere), None, None)
    assert ">cuda:90</text>" in svg
    assert ">cuda:80</text>" in svg


def test_a_point_that_differs_says_how_in_a_line_of_its_own_and_is_not_called_wrong() -> None:
    row = dataclasses.replace(evaluation(128, 1.0).row, status=Status.DIFFERS, reason="differs from the first point")
    other = dataclasses.replace(
        evaluation(128, 1.0), row=row, verdict=OutputComparison(False, "differs from the first point")
    )
    points = history(evaluation(64, 1.0))
    html = figures_html(PanelView("softmax", CONTROLS, points, points.add(other)))
    assert '<div class="kp-alert kp-differs"><b>BLOCK=128</b>: differs from the first point</div>' in html
    assert "kp-differs" in history_svg(points, None, None)
    assert "wrong" not in html


def test_the_fastest_is_green_only_where_a_reference_says_that_it_is_right() -> None:
    unchecked = history(evaluation(64, 1.0))
    svg = history_svg(unchecked, unchecked.evaluations[0], None)
    assert GOOD not in svg
    assert "the fastest, whose outputs are not checked, is large" in svg
    right = history(dataclasses.replace(evaluation(64, 1.0), verdict=OutputComparison(True, "", by_reference=True)))
    svg = history_svg(right, right.evaluations[0], None)
    assert f'class="kp-best" fill="{GOOD}"' in svg
    assert "the best is large" in svg
