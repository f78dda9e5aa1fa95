"""A tuning as text and as HTML."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kernellab.store.columns import Status
from kernellab.timing.config import Config
from kernellab.tune.options import SPENT
from kernellab.tune.result import Row, Tuning
from kernellab.views.cards.tuning import tuning_card, why_it_wins
from tests.tune.frames import divided_tuning, large_tuning, small_tuning, untimed_tuning


def test_the_text_begins_with_what_won() -> None:
    first = tuning_card(small_tuning()).text().splitlines()[0]
    assert first == ("matmul: 4 configs in 2.30 s; best is BLOCK=64, num_warps=8, num_stages=3 at 1.01 ms, tied with 1")


def test_the_table_is_in_the_order_of_the_ranks_and_marks_winner_and_tie() -> None:
    lines = tuning_card(small_tuning()).text().splitlines()
    assert [line.split()[:2] for line in lines[2:5]] == [["1", "*"], ["2", "="], ["3", "BLOCK=128"]]


def test_the_text_names_failures_and_keeps_long_lists_short() -> None:
    text = tuning_card(large_tuning()).text()
    assert "... and 388 more in .frame" in text
    assert "fault: 20 configs, the first BLOCK_M=16" in text
    assert len(text.splitlines()) < 40


def test_without_a_gpu_the_text_claims_no_time() -> None:
    text = tuning_card(untimed_tuning()).text()
    assert "not timed (no GPU); first that fits: BLOCK=64" in text
    assert " ms," not in text
    assert text.count("no GPU") == 1


@pytest.mark.slow
def test_configs_that_a_budget_left_out_are_told_from_those_that_were_compiled() -> None:
    tuning = untimed_tuning()
    spent = replace(tuning.rows[-1], status=Status.NOT_TIMED, compile_s=None, reason=SPENT)
    cut = replace(tuning, rows=(*tuning.rows[:-1], spent))
    count = len(tuning.rows)
    assert tuning_card(cut).text().startswith(f"{tuning.kernel}: {count - 1} of {count} configs compiled in")
    assert "1 config not measured: the budget was spent." in tuning_card(cut).text()
    assert "the budget was spent" in tuning_card(cut).html().split("</table>")[1]


@pytest.mark.slow
def test_of_a_long_list_the_html_has_the_first_rows_and_says_so() -> None:
    html = tuning_card(large_tuning()).html()
    assert html.count("<tr") == 201
    assert "400 configs" in html
    assert "the first 200 by rank; all are in .frame" in html
    assert "all are in .frame" not in tuning_card(small_tuning()).html()


def test_where_nothing_compiles_the_html_has_the_reasons_in_full_and_no_empty_picture() -> None:
    reason = "it does not compile: " + "because of this " * 20
    rows = tuple(
        replace(row, status=Status.COMPILE_ERROR, reason=reason, registers=None, time_ms=None)
        for row in untimed_tuning().rows
    )
    html = tuning_card(replace(untimed_tuning(), rows=rows, winner=None, notes=())).html()
    assert "data:image" not in html
    assert f"compile_error: {rows[0].config.text}: {reason}</div>" in html


@pytest.mark.slow
def test_the_html_carries_its_pictures() -> None:
    html = tuning_card(small_tuning()).html()
    assert html.count("data:image/png;base64,") == 2
    assert "http" not in html
    assert html.count("<tr") == 5


def test_without_a_gpu_columns_without_numbers_are_left_out_and_what_cannot_run_is_last() -> None:
    tuning = untimed_tuning()
    refused = replace(tuning.rows[0], status=Status.CANNOT_RUN, reason="it needs too much shared memory")
    lines = tuning_card(replace(tuning, rows=(refused, *tuning.rows[1:]), winner=1)).text().splitlines()
    assert lines[1].split() == ["config", "registers", "spills", "shared", "occupancy", "status"]
    assert [line.split()[-1] for line in lines[2:4]] == ["not_timed", "cannot_run"]
    assert "cannot_run: BLOCK=64, num_warps=4, num_stages=3: it needs too much shared memory" in lines


@pytest.mark.slow
def test_the_first_line_says_that_the_fastest_did_not_win_since_it_differs_from_most() -> None:
    tuning = divided_tuning(has_majority=True)
    first = tuning_card(tuning).text().splitlines()[0]
    assert "best is BLOCK=4, num_warps=4, num_stages=3 at 1.5 ms; BLOCK=1" in first
    assert "is faster, at 1 ms, but its outputs differ from most: a reference decides (check=)" in first
    assert first.replace("'", "&#x27;") in tuning_card(tuning).html()
    assert repr(tuning).endswith("is faster and differs>")
    for other in (divided_tuning(has_majority=False), small_tuning()):
        assert "faster" not in tuning_card(other).text().splitlines()[0] + repr(other)


def test_configs_that_differ_are_rows_with_times_before_what_failed_and_no_failures() -> None:
    lines = tuning_card(divided_tuning(has_majority=True)).text().splitlines()
    assert [line.split()[-1] for line in lines[2:7]] == ["ok"] * 3 + ["differs"] * 2
    assert lines[5].split()[:2] == ["BLOCK=1", "1"]
    assert not [line for line in lines if line.startswith("differs:")]


@pytest.mark.slow
def test_where_outputs_disagree_the_card_has_a_picture_of_who_agrees_and_a_note() -> None:
    for has_majority in (True, False):
        html = tuning_card(divided_tuning(has_majority=has_majority)).html()
        assert "configs by equal outputs" in html
        assert "Outputs disagree" in html
    assert "configs by equal outputs" not in tuning_card(small_tuning()).html()


def ran(warps: int, block: int, time_ms: float, **more: Any) -> Row:
    return Row(Config.of({"num_warps": warps, "BLOCK": block}), Status.OK, time_ms=time_ms, **more)


def test_the_parameter_whose_other_values_are_slowest_decides() -> None:
    others = [ran(4, 64, 1.05), ran(8, 128, 1.8), ran(4, 128, 1.9)]
    assert why_it_wins(ran(8, 64, 1.0), others).startswith("BLOCK=64 decides: with 128, at best 1.80x slower")


def test_spills_and_occupancy_are_the_reason_where_they_differ() -> None:
    rival = ran(4, 64, 2.0, spill_bytes=512, occupancy=0.25)
    said = why_it_wins(ran(8, 64, 1.0, spill_bytes=0, occupancy=0.5), [rival])
    assert "spills 512 bytes per thread" in said
    assert "25 % occupancy (the winner 50 %)" in said


def test_no_parameter_decides_where_all_are_level() -> None:
    assert why_it_wins(ran(8, 64, 1.0), [ran(4, 64, 1.01)]).startswith("No parameter decides")


def test_one_config_alone_has_no_reason() -> None:
    assert why_it_wins(ran(8, 64, 1.0), []) == ""
    assert why_it_wins(ran(8, 64, 1.0), [ran(8, 64, 2.0)]) == ""


def predicted_tuning() -> Tuning:
    untimed = untimed_tuning()
    times = [(0.0037261, 0.0048392, 0.0061944), (1234.51, 1603.21, 2052.11)]
    rows = tuple(
        replace(row, status=Status.NOT_TIMED, predicted_low_ms=low, predicted_ms=time, predicted_high_ms=high)
        for row, (low, time, high) in zip(untimed.rows, times, strict=True)
    )
    return replace(untimed, rows=rows, winner=0)


def test_predicted_times_have_three_digits_at_most_and_no_exponent() -> None:
    text = tuning_card(predicted_tuning()).text()
    assert "0.00484 " in text
    assert "0.00373 - 0.00619" in text
    assert "1,603 " in text
    assert "1,235 - 2,052" in text
    assert "predicted 0.00484 ms" in repr(predicted_tuning())
