"""Tuning over sizes on a machine that is a formula: what it costs, what it picks, and what becomes of failures."""

from __future__ import annotations

from statistics import median
from typing import Any

import numpy as np
import pytest

from kernellab.errors import UsageError
from kernellab.store.columns import Status
from kernellab.tune import Space
from kernellab.tune.dispatch.over import distinct_cases, listed_cases
from kernellab.tune.dispatch.plan import PlanPolicy, first_configs
from kernellab.tune.dispatch.result import Dispatch, DispatchProgress
from kernellab.tune.search import longest_first
from tests.tune.dispatch.machine import CASES, CONFIGS, Formula, best_ms, over_sizes, time_ms

BETWEEN = [{"M": m, "N": n, "K": k} for m in (48, 640, 1536) for n in (96, 768) for k in (256, 2560)]


@pytest.fixture(scope="module")
def tuned() -> tuple[Dispatch, Formula]:
    machine = Formula()
    return over_sizes(machine).run(), machine


def regret(dispatch: Dispatch, sizes: dict[str, int]) -> float:
    config = dispatch.rule.configs[dispatch.rule.place(**sizes)]
    return time_ms(sizes, config) / best_ms(sizes)


def test_a_quarter_of_the_table_is_measured_at_most(tuned: tuple[Dispatch, Formula]) -> None:
    assert tuned[1].measured <= len(CASES) * len(CONFIGS) / 4
    assert tuned[1].closed


def test_measured_cases_get_one_of_the_best_configs(tuned: tuple[Dispatch, Formula]) -> None:
    assert len(tuned[0].rule.costs) <= 8
    regrets = [regret(tuned[0], sizes) for sizes in CASES]
    assert median(regrets) < 1.01
    assert max(regrets) < 1.15


def test_sizes_between_the_cases_get_good_configs(tuned: tuple[Dispatch, Formula]) -> None:
    regrets = [regret(tuned[0], sizes) for sizes in BETWEEN]
    assert median(regrets) < 1.01
    assert max(regrets) < 1.12


def test_regret_is_told_for_each_case_and_estimated_for_unknown_ones(tuned: tuple[Dispatch, Formula]) -> None:
    found = tuned[0]
    assert [each.sizes for each in found.regrets] == CASES
    assert all(each.regret is None or 1.0 <= each.regret < 1.05 for each in found.regrets)
    assert sum(each.regret is not None for each in found.regrets) >= len(CASES) - 2
    estimated = [each.estimated for each in found.regrets if each.estimated is not None]
    assert len(estimated) == len(CASES)
    assert 1.0 <= median(estimated) < 1.05


def test_each_further_config_of_the_rule_loses_less(tuned: tuple[Dispatch, Formula]) -> None:
    steps = tuned[0].cover
    assert [step.configs for step in steps] == list(range(1, len(tuned[0].rule.costs) + 1))
    assert [step.mean for step in steps] == sorted((step.mean for step in steps), reverse=True)


def test_a_case_is_measured_until_no_other_config_can_be_better(tuned: tuple[Dispatch, Formula]) -> None:
    counts = [sum(row.status is Status.OK for row in case.rows) for case in tuned[0].cases]
    assert max(counts) >= PlanPolicy().first
    assert median(counts) < len(CONFIGS) / 3


def test_the_first_cases_are_unlike_each_other() -> None:
    machine = Formula()
    over_sizes(machine).run()
    first = [request.sizes["M"] for request in machine.requests[1:4]]
    assert {min(first), max(first)} == {16, 2048}


def test_after_the_first_visit_a_round_visits_a_case_once_with_all_that_is_asked_there() -> None:
    machine = Formula()
    over_sizes(machine, PlanPolicy(rounds=2)).run()
    numbers = [request.number for request in machine.requests]
    assert len(set(numbers[: len(CASES)])) == len(CASES)
    assert max(map(numbers.count, numbers)) <= 3
    assert all(len(request.forecasts) == request.at_least for request in machine.requests[len(CASES) :])


@pytest.mark.slow
def test_cases_that_fail_are_rows_and_the_others_count() -> None:
    found = over_sizes(Formula(failing=frozenset({0, 17}))).run()
    assert [case.failure for case in found.cases if case.failure] == ["no memory for the inputs"] * 2
    assert found.regrets[0].reason == "no memory for the inputs"
    assert found.rule.place(**CASES[0]) >= 0


def test_a_config_that_faults_on_one_case_is_not_tried_there_again() -> None:
    bad = CONFIGS[0]
    machine = Formula(faults=frozenset((case, bad) for case in range(len(CASES))))
    found = over_sizes(machine).run()
    asked = [request for request in machine.requests if any(each.config == bad for each in request.forecasts)]
    tried = [case for case in found.cases if any(row.config == bad for row in case.rows)]
    assert len(tried) <= 2
    assert len(asked) < len(machine.requests)
    assert bad not in found.rule.configs


def test_where_all_cases_fail_the_first_says_why() -> None:
    with pytest.raises(UsageError, match=r"No case of product could be measured.*no memory for the inputs"):
        over_sizes(Formula(failing=frozenset(range(len(CASES))))).run()


def test_an_interrupt_keeps_what_is_known() -> None:
    found = over_sizes(Formula(interrupt_after=5)).run()
    assert found.is_interrupted
    assert len(found.cases) == 5
    assert "13 of 18 cases were not measured" in found.notes[0]
    assert found.rule.place(M=16, N=64, K=128) >= 0


def test_an_interrupt_before_anything_is_known_goes_through() -> None:
    with pytest.raises(KeyboardInterrupt):
        over_sizes(Formula(interrupt_after=0)).run()


@pytest.mark.slow
def test_several_lanes_measure_side_by_side() -> None:
    machine = Formula(lanes=3)
    found = over_sizes(machine).run()
    assert median(regret(found, sizes) for sizes in CASES) < 1.01
    assert machine.measured <= len(CASES) * len(CONFIGS) / 4


def test_where_nothing_is_timed_every_config_has_a_row() -> None:
    found = over_sizes(Formula(is_timed=False)).run()
    assert all(len(case.rows) == len(CONFIGS) for case in found.cases)
    assert len(found.rule.costs) == 1
    assert found.regrets[0].reason == "not measured: there is no GPU"


@pytest.mark.slow
def test_few_configs_are_kept_where_few_are_asked_for() -> None:
    found = over_sizes(Formula(), PlanPolicy(max_configs=2)).run()
    assert len(found.rule.costs) == 2


@pytest.mark.slow
def test_progress_tells_cases_configs_and_the_time_left() -> None:
    events: list[DispatchProgress] = []
    running = over_sizes(Formula())
    running.watch = events.append
    running.run()
    assert events[0].done == 0
    assert events[-1].done == len(CASES)
    assert "ms with BM=" in events[-1].latest
    assert any(event.left_s is not None for event in events)
    assert all(event.measured <= event.budget for event in events)


@pytest.mark.parametrize(
    ("over", "cases"),
    [
        ({"M": [1, 2], "K": (3,)}, [{"M": 1, "K": 3}, {"M": 2, "K": 3}]),
        ([{"M": 1}, {"M": 1}, {"M": 5}], [{"M": 1}, {"M": 5}]),
        (Space(M=[1, 2, 4], K=[2], where="M <= K"), [{"M": 1, "K": 2}, {"M": 2, "K": 2}]),
        ({"M": np.array([1, 2, 1]), "K": [2]}, [{"M": 1, "K": 2}, {"M": 2, "K": 2}]),
        ([{"M": 1, "K": 2}, {"K": 2, "M": 1}], [{"M": 1, "K": 2}]),
    ],
)
def test_cases_are_combinations_or_listed(over: Any, cases: list[dict[str, int]]) -> None:
    found = distinct_cases(listed_cases(over, ("M", "K")))
    assert found == cases
    assert {type(value) for case in found for value in case.values()} == {int}


@pytest.mark.parametrize(
    ("over", "words"),
    [
        (7, "expected the values of each size"),
        ({"M": 7}, "expected a list of sizes"),
        ({"M": []}, "over has no case"),
        ({"M": [1.5]}, "expected a positive integer"),
        ({"M": [True]}, "expected a positive integer"),
        ({"M": [[1]]}, "expected a positive integer"),
        ({"Q": [1]}, "known are M, K\\.$"),
        ([{"M": 1}, {"K": 1}], "expected the same names"),
    ],
)
def test_what_is_no_size_is_refused(over: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        listed_cases(over, ("M", "K", "M"))


@pytest.mark.slow
def test_a_hundred_thousand_cases_are_listed_at_once() -> None:
    assert len(distinct_cases(listed_cases({"M": range(1, 1001), "K": range(1, 101)}, ("M", "K")))) == 100_000


def test_max_configs_is_a_positive_integer() -> None:
    with pytest.raises(UsageError, match="expected a positive integer"):
        PlanPolicy(max_configs=0)


def test_the_first_configs_lie_far_apart_and_are_none_of_those_that_compile_longest() -> None:
    chosen = first_configs(CONFIGS, 12)
    assert len(set(chosen)) == 12
    assert not set(chosen) & set(longest_first(CONFIGS)[: len(CONFIGS) // 4])
    assert set(first_configs(CONFIGS, len(CONFIGS))) == set(CONFIGS)
    for name in ("BM", "BN", "num_warps"):
        assert len({config.values[name] for config in chosen}) > 1
