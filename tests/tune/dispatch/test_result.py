"""What a dispatch shows of itself: configs, choices, and its frames."""

from __future__ import annotations

import numpy as np
import pytest

from kernellab.errors import CannotRun, UsageError
from kernellab.store.columns import Status
from kernellab.timing.config import Config
from kernellab.tune.dispatch import Cost, Dispatch, Extent, MeasuredCase, Rule, Term
from kernellab.tune.dispatch.result import Regret
from kernellab.tune.result import Row

SMALL, LARGE = Config.of({"BLOCK": 16}), Config.of({"BLOCK": 64})


def dispatch() -> Dispatch:
    costs = tuple(Cost(each, (Extent("n", each.values["BLOCK"]),), 4, (0.001, 0.001)) for each in (SMALL, LARGE))
    rule = Rule(("n",), (Term("launch"), Term("wave")), costs, 4, {(64,): 0})
    rows = (Row(SMALL, Status.OK, time_ms=0.5, low_ms=0.4, high_ms=0.6), Row(LARGE, Status.FAULT, "it faults"))
    cases = (MeasuredCase(0, {"n": 64}, rows), MeasuredCase(1, {"n": 4096}, failure="no memory for the inputs"))
    regrets = (
        Regret({"n": 64}, SMALL, SMALL, 0.5, 0.5, 1.0, 1.25),
        Regret({"n": 4096}, LARGE, None, None, None, None, None, "no memory for the inputs"),
    )
    facts = {"device": "NVIDIA H200", "triton": "3.6.0"}
    return Dispatch("add", rule, cases, regrets, tuple(c.to_triton() for c in (SMALL, LARGE)), 1.0, facts)


def test_choose_gives_the_config_of_a_case_and_remembers_it() -> None:
    found = dispatch()
    assert found.choose(n=64) is found.configs[0] is found.choose(n=64)
    assert found.choose(n=4096).kwargs == {"BLOCK": 64}


def test_sizes_of_numpy_count_and_what_is_no_size_is_refused() -> None:
    assert dispatch().choose(n=np.int64(64)) is not None
    for size in ([64], 64.0, True, None):
        with pytest.raises(UsageError, match="expected integers for n"):
            dispatch().choose(n=size)  # type: ignore[arg-type]


def test_frame_has_a_row_per_case_and_config_and_one_for_a_case_that_failed() -> None:
    frame = dispatch().frame
    assert frame[["n", "BLOCK", "status", "chosen"]].fillna(0).values.tolist() == [
        [64, 16, "ok", True],
        [64, 64, "fault", False],
        [4096, 0, "fault", False],
    ]
    assert frame.reason.tolist()[2] == "no memory for the inputs"
    assert frame.attrs["device"] == "NVIDIA H200"
    assert frame.attrs["sizes"] == ["n"]


def test_regret_has_a_row_per_case() -> None:
    regret = dispatch().regret
    assert regret.n.tolist() == [64, 4096]
    assert regret.regret.tolist()[0] == 1.0
    assert regret.estimated.tolist()[0] == 1.25
    assert regret.reason.tolist()[1] == "no memory for the inputs"


def test_without_a_config_that_works_the_error_says_why() -> None:
    cases = (MeasuredCase(0, {"n": 64}, failure="no memory for the inputs"),)
    empty = Dispatch("add", Rule(("n",), (), (), 4), cases, (), ())
    with pytest.raises(CannotRun, match="no memory for the inputs"):
        empty.choose(n=64)


def test_repr_is_one_line() -> None:
    assert repr(dispatch()) == "<Dispatch of add: 2 cases, 2 configs, at most 1.000 x the best>"
