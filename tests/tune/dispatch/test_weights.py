"""Tuning over sizes with weights: the time of a whole program, what it gains, and what is not measured for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import triton

from kernellab.errors import UsageError
from kernellab.timing.config import Config
from kernellab.tune.dispatch.cover import fit_rule
from kernellab.tune.dispatch.over import OverSizes
from kernellab.tune.dispatch.plan import Plan, PlanPolicy
from kernellab.tune.dispatch.result import Dispatch
from kernellab.tune.dispatch.speedup import baselines_of, program_speedup, weights_of
from kernellab.tune.dispatch.table import CaseTable
from kernellab.views.cards.tuning import dispatch_card
from tests.tune.dispatch.machine import CASES, CONFIGS, MULTIPROCESSORS, Formula, best_ms, time_ms

LISTED = [{"M": 1, "K": 2}, {"M": 3, "K": 4}, {"M": 1, "K": 2}]
DISTINCT = LISTED[:2]
MIX = [1000.0 if case["M"] == 16 else 0.001 for case in CASES]


class Cases(list[dict[str, int]]):
    """Cases with their numbers of launches, as a harvest has them."""

    weights = (5, 7, 1)


def tune(
    counts: Sequence[float], baseline: int | None = None, max_configs: int = 2, **facts: Any
) -> tuple[Dispatch, Formula]:
    table, machine = CaseTable(CASES, CONFIGS, MULTIPROCESSORS, counts=counts), Formula(**facts)
    own = [] if baseline is None else [baseline] * len(CASES)
    return OverSizes("product", table, Plan(table, PlanPolicy(max_configs=max_configs), own), machine).run(), machine


def program_ms(counts: Sequence[float], dispatch: Dispatch) -> float:
    picked = [dispatch.rule.configs[dispatch.rule.place(**sizes)] for sizes in CASES]
    return sum(n * time_ms(sizes, config) for n, sizes, config in zip(counts, CASES, picked, strict=True))


@pytest.fixture(scope="module")
def small_mix() -> tuple[Dispatch, Formula]:
    return tune(MIX)


@pytest.mark.parametrize(
    "weights",
    [
        [5, 7, 1],
        np.array([5, 7, 1]),
        lambda M, K: {1: 6, 3: 7}[M],
        lambda M: {1: 6, 3: 7}[M],
        {(1, 2): 6, (3, 4): 7},
    ],
)
def test_weights_are_one_for_each_case(weights: Any) -> None:
    assert weights_of(weights, LISTED, LISTED, DISTINCT) == (6.0, 7.0)


def test_cases_of_a_harvest_bring_their_weights() -> None:
    cases = Cases(LISTED)
    assert weights_of(None, cases, cases, DISTINCT) == (6.0, 7.0)
    assert weights_of([1, 1, 1], cases, cases, DISTINCT) == (2.0, 1.0)
    assert weights_of(None, LISTED, LISTED, DISTINCT) is None


def test_sizes_of_one_name_need_no_tuple() -> None:
    assert weights_of({8: 2}, None, [{"M": 8}], [{"M": 8}]) == (2.0,)


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        ([1, 2], "weights has 2 values for 3 cases"),
        ("abc", "expected one for each case"),
        ([1, 2, 0], "The weight of M=1, K=2 is 0; expected a positive number"),
        ([1, float("nan"), 3], "The weight of M=3, K=4 is nan"),
        ([1, True, 3], "The weight of M=3, K=4 is True"),
        (lambda N: 1, "weights takes N; the sizes are M, K"),
        ({(1, 2): 6}, r"weights lacks the sizes \(3, 4\) of \(M, K\)"),
        ({(1, 2): 6, (3, 4): 1, (9, 9): 1}, r"weights has the sizes \(9, 9\), which over lacks"),
    ],
)
def test_what_is_no_weight_is_refused(weights: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        weights_of(weights, LISTED, LISTED, DISTINCT)


def test_a_baseline_is_a_config_a_function_or_a_list() -> None:
    small, large = (triton.Config({"BLOCK": block}) for block in (64, 256))

    def choose(M: int, **_: int) -> triton.Config:
        return small if M == 1 else large

    def configs(baseline: Any) -> list[Any]:
        return [original for _, original in baselines_of(baseline, None, LISTED, DISTINCT, Config.from_triton)]

    assert configs(small) == [small, small]
    assert configs(choose) == configs([small, large, small]) == [small, large]
    assert configs(None) == []
    with pytest.raises(UsageError, match=r"expected a triton.Config"):
        configs({"BLOCK": 64})


@pytest.mark.slow
def test_the_rule_takes_the_least_time_of_the_program(small_mix: tuple[Dispatch, Formula]) -> None:
    least_ms = sum(count * best_ms(sizes) for count, sizes in zip(MIX, CASES, strict=True))
    assert program_ms(MIX, small_mix[0]) < 1.005 * least_ms
    single, large = (tune(counts, max_configs=1)[0] for counts in (MIX, [1.0] * len(CASES)))
    assert program_ms(MIX, single) < 1.01 * least_ms
    assert program_ms(MIX, large) > 1.01 * least_ms


def test_no_measurement_is_spent_on_cases_that_take_hardly_any_time(small_mix: tuple[Dispatch, Formula]) -> None:
    dispatch, machine = small_mix
    skipped = [regret.sizes for regret in dispatch.unmeasured]
    assert skipped
    assert all(sizes["M"] != 16 for sizes in skipped)
    assert not [request for request in machine.requests if request.sizes in skipped]
    assert all("of the program's time" in regret.reason for regret in dispatch.unmeasured)
    assert f"{len(skipped)} of 18 cases not measured" in dispatch.notes[0]
    assert [case.sizes for case in dispatch.cases] == CASES
    assert all(dispatch.rule.place(**sizes) >= 0 for sizes in skipped)


def test_frames_have_weights_and_shares(small_mix: tuple[Dispatch, Formula]) -> None:
    regret, frame = small_mix[0].regret, small_mix[0].frame
    assert regret["weight"].tolist() == MIX
    assert regret["share"].sum() == pytest.approx(1.0)
    assert regret.set_index("M").loc[16, "share"].sum() > 0.99
    assert frame.groupby(["M", "N", "K"])["weight"].first().tolist() == [
        weight for _, weight in sorted(zip((tuple(case.values()) for case in CASES), MIX, strict=True))
    ]
    assert (frame["status"] == "not_timed").sum() == len(small_mix[0].unmeasured)


@pytest.mark.slow
def test_the_interval_of_the_speedup_has_the_real_one() -> None:
    counts = [float(place % 5 + 1) for place in range(len(CASES))]
    slow = CONFIGS[5]
    dispatch, machine = tune(counts, baseline=5)
    first_visits = {request.number: request for request in reversed(machine.requests)}
    assert all(request.forecasts[0].config == slow for request in first_visits.values())
    real = sum(n * time_ms(sizes, slow) for n, sizes in zip(counts, CASES, strict=True)) / program_ms(counts, dispatch)
    speedup = dispatch.speedup
    assert speedup is not None
    assert speedup.baseline == (slow,)
    assert not speedup.is_best_single
    assert speedup.low < real < speedup.high < speedup.low * 1.05
    assert speedup.ratio == pytest.approx(real, rel=0.02)


def test_without_a_baseline_the_best_single_config_is_compared(small_mix: tuple[Dispatch, Formula]) -> None:
    speedup = small_mix[0].speedup
    assert speedup is not None
    assert speedup.is_best_single
    real = min(sum(n * time_ms(s, c) for n, s in zip(MIX, CASES, strict=True)) for c in CONFIGS)
    assert speedup.low <= real / program_ms(MIX, small_mix[0]) <= speedup.high
    text = dispatch_card(small_mix[0]).text()
    assert "vs the best single config" in text
    assert "share" in text


@pytest.mark.slow
def test_cases_where_the_baseline_fails_are_left_out() -> None:
    dispatch, _ = tune([1.0] * len(CASES), baseline=5, faults=frozenset({(3, CONFIGS[5])}))
    assert dispatch.speedup is not None
    assert dispatch.speedup.left_out == (CASES[3],)


@pytest.mark.slow
def test_a_case_with_a_small_share_tries_only_what_may_be_much_faster() -> None:
    counts: Mapping[int, float] = {17: 50.0}
    _, machine = tune([counts.get(place, 1.0) for place in range(len(CASES))])
    margins = {request.number: request.margin for request in machine.requests[1 : len(CASES)]}
    assert margins.get(17, PlanPolicy().margin) == PlanPolicy().margin
    assert max(margins.values()) > 10 * PlanPolicy().margin


def test_launches_of_a_measured_device_may_be_faster_by_the_writing_of_its_dirty_lines() -> None:
    table, machine = CaseTable(CASES, CONFIGS, MULTIPROCESSORS, counts=MIX), Formula()
    rule = OverSizes("product", table, Plan(table, PlanPolicy(max_configs=2), [3] * len(CASES)), machine).run().rule
    fit = fit_rule(table, 2)[1]
    assert fit is not None
    alone = program_speedup(table, fit, rule, [3] * len(CASES))
    flushed = program_speedup(table, fit, rule, [3] * len(CASES), flush_ms=alone.after_ms / sum(MIX) / 4)
    assert alone.after_ms * 0.75 < flushed.after_ms < alone.after_ms
    assert flushed.low <= alone.ratio < flushed.ratio < flushed.high
    assert flushed.high / flushed.low > alone.high / alone.low
    endless = program_speedup(table, fit, rule, [3] * len(CASES), flush_ms=1e9)
    assert endless.after_ms == pytest.approx(0.75 * alone.after_ms)  # half of each time at most
    assert endless.ratio == pytest.approx(alone.ratio)


def test_a_program_takes_less_by_half_of_what_a_warm_cache_saves() -> None:
    table, machine = CaseTable(CASES, CONFIGS, MULTIPROCESSORS, counts=MIX), Formula()
    rule = OverSizes("product", table, Plan(table, PlanPolicy(max_configs=2), [0] * len(CASES)), machine).run().rule
    fit = fit_rule(table, 2)[1]
    assert fit is not None
    cold = program_speedup(table, fit, rule, [0] * len(CASES))
    for cell, row in table.rows.items():
        if row.time_ms is not None:
            table.rows[cell] = replace(row, cold_ms=row.time_ms, warm_ms=0.4 * row.time_ms)
    warm = program_speedup(table, fit, rule, [0] * len(CASES), flush_ms=1e9)
    assert warm.low < cold.ratio
    assert warm.after_ms < 0.8 * cold.after_ms
    assert warm.ratio == pytest.approx(cold.ratio, rel=0.01)  # both save the same share


def test_a_baseline_that_a_warm_cache_saves_nothing_has_a_larger_speedup() -> None:
    table, machine = CaseTable(CASES, CONFIGS, MULTIPROCESSORS, counts=MIX), Formula()
    rule = OverSizes("product", table, Plan(table, PlanPolicy(max_configs=2), [0] * len(CASES)), machine).run().rule
    fit = fit_rule(table, 2)[1]
    assert fit is not None
    ratios = []
    for of_baseline in (0.4, 1.0):
        for (case, place), row in table.rows.items():
            if row.time_ms is not None:
                table.rows[case, place] = replace(row, warm_ms=(0.4 if place else of_baseline) * row.time_ms)
        ratios.append(program_speedup(table, fit, rule, [0] * len(CASES)).ratio)
    assert ratios[1] > 1.3 * ratios[0]
