"""What a live display shows of a tuning: a table that fills, whatever the length of the list."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kernellab.store.columns import Status
from kernellab.timing.config import Config
from kernellab.tune.options import Options
from kernellab.tune.progress import TuningProgress
from kernellab.tune.result import Row
from kernellab.views.figures.live import tuning_shown
from tests.tune.fakes import FakeBench, FakeCompiler, compiled, config, tune

A, B, C = config(64), config(128), config(256)
FAST, SLOW = Row(A, Status.OK, time_ms=0.5), Row(B, Status.OK, time_ms=0.9)
FAULT = Row(C, Status.FAULT, "illegal memory access in <x>")
SCREENING = TuningProgress(
    "softmax", "screening", 9, 0, 5, 3, 1, A.text, 0.5, (0.9, 0.5), 3, (FAST, SLOW), (SLOW, FAULT), 12.4
)


def watched(count: int) -> list[TuningProgress]:
    """Return all that is told of a tuning of so many configs, a tenth of which do not fit."""
    seen: list[TuningProgress] = []
    configs = [Config.of({"BLOCK": 64, "num_stages": stages}) for stages in range(1, count + 1)]
    compiler = FakeCompiler({each: compiled(fits=False) for each in configs[9::10]})
    bench = FakeBench({each: 1.0 + place / count for place, each in enumerate(configs)}, noise=0.0)
    tune(configs, bench, compiler=compiler, options=Options(finals_s=1e9), watch=seen.append)
    return seen


def table(progress: TuningProgress, **more: Any) -> str:
    return tuning_shown(progress, 2.0, **more).html.partition("<tbody>")[2]


def test_the_fastest_come_first_then_what_ended_last_with_its_status() -> None:
    rows = table(SCREENING).split("</tr>")
    assert [A.text in rows[0], "bold" in rows[0], ">0.5<" in rows[0]] == [True] * 3
    assert B.text in rows[1]
    assert [C.text in rows[2], ">fault<" in rows[2]] == [True] * 2
    assert "illegal memory access in &lt;x&gt;" in rows[2]
    assert table(SCREENING).count("<tr") == 3


def test_when_it_is_over_the_fastest_are_left() -> None:
    assert table(replace(SCREENING, stage="done")).count("<tr") == 2
    assert table(SCREENING, ended="interrupted").count("<tr") == 2
    assert "fault" not in table(replace(SCREENING, stage="done"))


@pytest.mark.parametrize(
    ("left_s", "text"),
    [(0.2, "about 1 s left"), (12.4, "about 12 s left"), (600.0, "about 10 min left"), (9000.0, "about 2.5 h left")],
)
def test_the_time_that_is_left_is_told_roughly(left_s: float, text: str) -> None:
    assert text in tuning_shown(replace(SCREENING, left_s=left_s), 2.0).text
    assert "left" not in tuning_shown(replace(SCREENING, left_s=left_s, stage="done"), 2.0).text
    assert "left" not in tuning_shown(SCREENING, 2.0, "interrupted").text


def test_before_anything_ended_there_is_no_table() -> None:
    assert "<table" not in tuning_shown(TuningProgress("softmax", "start"), 0.1).html


@pytest.mark.slow
def test_the_table_fills_as_configs_end_and_keeps_its_size_for_long_lists() -> None:
    sizes = [table(progress).count("<tr") for progress in watched(400) if progress.stage == "screening"]
    assert sizes[:4] == [0, 1, 2, 3]
    assert max(sizes) == 11
    assert max(len(tuning_shown(each, 9.0).html) for each in watched(400)) < 25_000


def test_what_the_table_leaves_out_is_counted() -> None:
    last = watched(40)[-1]
    assert "and 32 more configs through" in tuning_shown(last, 9.0).html
    assert "num_stages=1" in table(last).split("</tr>")[0]


def test_the_time_left_follows_from_the_pace_and_the_budget() -> None:
    seen: list[TuningProgress] = []
    configs = [config(64, warps) for warps in range(1, 21)]
    bench = FakeBench(dict.fromkeys(configs, 1.0), noise=0.0)
    tune(configs, bench, options=Options(finals_s=1e9), watch=seen.append)
    told = {each.ended: each.left_s for each in seen if each.stage == "screening"}
    assert told[2] is None
    assert told[10] == pytest.approx(10 * 4.0)  # a launch takes a second, and each config four
    assert told[20] == 0.0
    bench.clock.now_s = 0.0
    tune(configs, bench, options=Options(finals_s=1e9, budget_s=60.0), watch=seen.append)
    assert seen[-1].left_s is None
    assert max(each.left_s for each in seen if each.left_s is not None and each.ended == 1) <= 60.0
