"""The frame of a tuning."""

from __future__ import annotations

import pytest
import triton

from kernellab.errors import CannotRun, KernellabError
from kernellab.store.columns import BITS_COLUMNS, OUTCOME_COLUMNS, PREDICTED_COLUMNS, Status
from kernellab.timing.config import Config
from kernellab.tune.result import Row, Tuning
from tests.tune.frames import divided_tuning, large_tuning, small_tuning, untimed_tuning


def test_it_shows_as_one_line_where_nothing_draws_it() -> None:
    tuning = small_tuning()
    assert "\n" not in repr(tuning)
    assert repr(tuning) == f"<Tuning of {tuning.kernel}: 4 configs, best {tuning.rows[1].config.text} (1.01 ms)>"
    assert repr(untimed_tuning()).endswith("(not timed)>")


def test_the_columns_are_the_parameters_the_options_and_the_outcome() -> None:
    options = ["num_warps", "num_stages", "num_ctas", "maxnreg"]
    columns = ["BLOCK", *options, *OUTCOME_COLUMNS, *PREDICTED_COLUMNS, *BITS_COLUMNS]
    assert list(small_tuning().frame.columns) == columns


def test_every_config_has_a_row_in_the_order_of_the_list() -> None:
    frame = large_tuning().frame
    assert len(frame) == 400
    assert list(frame.num_stages[:4]) == [1, 2, 3, 4]


def test_ranks_begin_with_the_winner_then_its_ties_then_go_by_time() -> None:
    frame = small_tuning().frame
    assert list(frame["rank"].dropna()) == [2, 1, 3]
    assert frame["rank"].isna().sum() == 1


def test_numbers_are_numbers_even_where_nothing_was_timed() -> None:
    frame = untimed_tuning().frame
    assert str(frame.time_ms.dtype) == "float64"
    assert str(frame.registers.dtype) == "Int64"
    assert frame.time_ms.isna().all()


def test_the_attributes_tell_where_the_numbers_come_from() -> None:
    attrs = small_tuning().frame.attrs
    assert (attrs["device"], attrs["triton"], attrs["kernel"]) == ("NVIDIA H200", "3.6.0", "matmul")
    assert (attrs["winner"], attrs["tied"]) == (1, [0])
    assert attrs["warm_ms"] == {1: 0.9}


def test_the_best_and_the_tied_are_triton_configs() -> None:
    tuning = small_tuning()
    assert isinstance(tuning.best, triton.Config)
    assert tuning.best.num_warps == 8
    assert [config.num_warps for config in tuning.tied] == [4]


def test_a_list_without_a_config_that_works_has_no_best() -> None:
    rows = (Row(Config.of({"BLOCK": 64}), Status.CANNOT_RUN, "too much shared memory"),)
    tuning = Tuning("matmul", rows, (rows[0].config.to_triton(),), None, (), 0.1, False)
    with pytest.raises(CannotRun, match=r"cannot_run.*too much shared memory") as caught:
        _ = tuning.best
    assert isinstance(caught.value, KernellabError)
    assert len(tuning.frame) == 1


def test_a_parameter_that_only_some_configs_have_is_missing_in_the_others() -> None:
    rows = (Row(Config.of({"A": 1}), Status.NOT_TIMED), Row(Config.of({"B": 2}), Status.NOT_TIMED))
    frame = Tuning("k", rows, (None, None), None, (), 0.0, False).frame
    assert frame["A"].isna().tolist() == [False, True]


def test_the_agreement_is_plain_data_with_labels_of_the_index() -> None:
    frame = divided_tuning(has_majority=True).frame
    found = frame.attrs["agreement"]
    assert found["groups"] == [[2, 3, 4], [0], [1]]
    assert (found["majority"], found["not_compared"], found["outputs"]) == (0, [], None)
    assert [pair["groups"] for pair in found["pairs"]] == [[0, 1], [0, 2], [1, 2]]
    scratch = {"argument": "scratch", "differing": 30, "elements": 64, "largest": 2.5}
    assert found["pairs"][0]["differences"] == [scratch]
    assert found["pairs"][2]["differences"][0]["largest"] is None
    assert list(frame["status"]) == ["differs", "differs", "ok", "ok", "ok"]
    assert list(frame["rank"].fillna(0)) == [0, 0, 1, 2, 3]
    assert divided_tuning(has_majority=False).frame.attrs["agreement"]["majority"] is None
    assert small_tuning().frame.attrs["agreement"] is None
