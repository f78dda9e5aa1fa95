"""The trail on made-up times: who is best, what the frame, the words and the picture say."""

from __future__ import annotations

import dataclasses
import re

from kernellab.errors import CompileError
from kernellab.explore.history import Point, Trail, Verdict, Visit, failed
from kernellab.explore.ranges import Control
from kernellab.measure.config import Config
from kernellab.measure.statistics import Interval
from kernellab.tune.result import Row, Status
from kernellab.views.panel_picture import figures_html, picture_html
from kernellab.views.panel_points import trail_svg
from kernellab.views.panel_words import Shown, sentence, text

CONTROLS = (Control("BLOCK", (64, 128, 256), 64),)


def visit(block: int, time_ms: float, against: Interval | None = None, best: int | None = None) -> Visit:
    row = Row(
        Config((("BLOCK", block),)),
        Status.OK,
        time_ms=time_ms,
        low_ms=0.98 * time_ms,
        high_ms=1.02 * time_ms,
        registers=32,
        gbps=2000.0,
    )
    return Visit(Point((("BLOCK", block),), ""), "cuda:90", row, against=against, best=best)


def trail(*visits: Visit) -> Trail:
    found = Trail("softmax")
    for each in visits:
        found.add(each)
    return found


def test_the_best_is_beaten_only_beyond_the_noise() -> None:
    first = visit(64, 1.0)
    tied = visit(128, 0.97, Interval(0.97, 0.95, 1.01), 1)
    faster = visit(256, 0.8, Interval(0.8, 0.79, 0.81), 1)
    assert trail(first, tied).best_of((), "cuda:90") is not None
    assert trail(first, tied).best_of((), "cuda:90").number == 1
    assert trail(first, tied, faster).best_of((), "cuda:90").number == 3


def test_points_that_were_timed_apart_beat_each_other_only_with_intervals_apart() -> None:
    assert trail(visit(64, 1.0), visit(128, 0.97)).best_of((), "cuda:90").number == 1
    assert trail(visit(64, 1.0), visit(128, 0.9)).best_of((), "cuda:90").number == 2


def test_other_sizes_and_targets_are_another_race() -> None:
    other = dataclasses.replace(visit(128, 0.1), sizes=(("n", "10"),))
    elsewhere = dataclasses.replace(visit(128, 0.1), target="cuda:80")
    assert trail(visit(64, 1.0), other, elsewhere).best_of((), "cuda:90").number == 1


def test_a_wrong_point_is_never_the_best() -> None:
    wrong = visit(128, 0.1)
    wrong = dataclasses.replace(wrong, row=dataclasses.replace(wrong.row, status=Status.WRONG))
    assert trail(visit(64, 1.0), wrong).best_of((), "cuda:90").number == 1


def test_the_frame_ranks_the_points() -> None:
    frame = trail(visit(64, 1.0), visit(128, 0.5, Interval(0.5, 0.49, 0.51), 1)).frame(7, {"device": "H200"})
    assert frame["rank"].tolist() == [2, 1]
    assert frame["BLOCK"].tolist() == [64, 128]
    assert frame.attrs["jobs"] == 7
    assert frame.attrs["winner"] == 1


def test_words_say_how_a_point_compares() -> None:
    points = trail(visit(64, 1.0))
    slower = dataclasses.replace(
        visit(128, 1.3, Interval(1.3, 1.28, 1.32), 1), verdict=Verdict(True, "equals check, largest error 0")
    )
    shown = Shown("softmax", CONTROLS, points, points.add(slower))
    assert sentence(shown) == (
        "BLOCK=128: 1.3 ms (1.274 to 1.326); 1.3 times as long as the best so far (BLOCK=64); "
        "equals check, largest error 0."
    )
    assert "throughput: 2,000 GB/s" in text(shown)
    assert "1.3 x" in figures_html(shown)


def test_a_failure_shows_beside_the_last_good_figures() -> None:
    points = trail(visit(64, 1.0))
    error = CompileError("arange's <range> must be a power of 2")
    bad = points.add(failed(Point((("BLOCK", 96),), ""), "cuda:90", Config(), Status.COMPILE_ERROR, error))
    html = picture_html(Shown("softmax", CONTROLS, points, bad))
    assert "arange&#x27;s &lt;range&gt; must be" in html
    assert "Figures of the last good point, BLOCK=64" in html
    assert "1 ms" in html


def test_without_a_good_point_there_is_only_the_reason() -> None:
    points = Trail("softmax")
    bad = points.add(
        failed(Point((), ""), "cuda:90", Config(), Status.CANNOT_RUN, CompileError("too much shared memory"))
    )
    html = picture_html(Shown("softmax", (), points, bad))
    assert "too much shared memory" in html
    assert "kp-facts" not in re.sub(r"<style>.*?</style>", "", html, flags=re.S)


def test_the_trail_marks_the_best_and_the_current_point_and_scales_wide_times() -> None:
    points = trail(visit(64, 1.0), visit(128, 0.01, Interval(0.01, 0.01, 0.011), 1), visit(256, 50.0))
    svg = trail_svg(points, points.best_of((), "cuda:90"), points.visits[-1])
    assert svg.count("kp-best") == 1
    assert svg.count("kp-here") == 1
    assert "<title>2. BLOCK=128" in svg
    heights = [float(y) for y in re.findall(r'<circle cx="[\d.]+" cy="([\d.]+)" r="4"', svg)]
    assert heights[1] > heights[0] > heights[2]
    assert all(0 <= y <= 160 for y in heights)


def test_a_long_trail_shows_its_end() -> None:
    points = trail(*(visit(64, 1.0 + i / 100) for i in range(200)))
    svg = trail_svg(points, None, points.visits[-1])
    assert "200. BLOCK=64" in svg
    assert "<title>1. BLOCK" not in svg
