"""The decision of a gate over simulated noise: false alarms, power, and what a few samples may decide."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from kernellab.timing.gate import (
    ALPHA,
    GateVerdict,
    block_medians,
    decide,
    independent_blocks,
    median_interval,
    time_until_decided,
)
from tests.timing.gate_noise import DISTURBANCES, ROUND_S, simulated_gate, verdict_counts

WITHIN, SLOWER = GateVerdict.WITHIN, GateVerdict.SLOWER


@pytest.mark.slow
@pytest.mark.parametrize("name", DISTURBANCES)
def test_a_kernel_against_itself_raises_no_alarm(name: str) -> None:
    assert verdict_counts(DISTURBANCES[name], 0.0, 0.01, 200) == {WITHIN: 200}


@pytest.mark.slow
@pytest.mark.parametrize("name", DISTURBANCES)
def test_slowdowns_beyond_the_gate_are_decided_within_the_budget(name: str) -> None:
    assert verdict_counts(DISTURBANCES[name], 0.02, 0.01, 40) == {SLOWER: 40}
    assert verdict_counts(DISTURBANCES[name], 0.05, 0.03, 40) == {SLOWER: 40}


@pytest.mark.slow
def test_a_slowdown_of_the_gate_itself_raises_hardly_an_alarm_at_any_look() -> None:
    counts = verdict_counts(DISTURBANCES["jitter"], 0.01, 0.01, 300, budget_s=1.0)
    assert counts.get(SLOWER, 0) <= 2
    assert counts[GateVerdict.UNDECIDED] > 290


@pytest.mark.slow
def test_the_interval_holds_the_median_at_all_looks_together() -> None:
    misses = 0
    for seed in range(400):
        values = np.random.default_rng(seed).standard_cauchy(300)
        looks = (median_interval(values[:count].tolist(), 0.05) for count in range(1, 301, 7))
        misses += any(not look.low <= 0 <= look.high for look in looks if math.isfinite(look.high))
    assert misses <= 20


def test_a_faster_kernel_passes_and_is_called_faster() -> None:
    assert simulated_gate(DISTURBANCES["jitter"], -0.05, 0.03, 0)[0] is GateVerdict.FASTER


def test_few_rounds_decide_nothing_however_slow() -> None:
    few = decide([2.0] * 12, 0.03, block_rounds=1)
    assert (few.verdict, few.ratio.high) == (GateVerdict.UNDECIDED, math.inf)
    assert decide([2.0] * 40, 0.03, block_rounds=1).verdict is SLOWER


def test_a_slowdown_of_one_stretch_alone_is_undecided() -> None:
    random = np.random.default_rng(1)
    half_slow, slow = (random.normal(1.1 - 0.1 * random.integers(0, most, 100), 0.005).tolist() for most in (2, 1))
    assert decide(slow + slow, 0.03, block_rounds=1).verdict is SLOWER
    assert median_interval(independent_blocks(half_slow + slow), ALPHA).low > 1.03
    assert decide(half_slow + slow, 0.03, block_rounds=1).verdict is GateVerdict.UNDECIDED


def test_one_bad_sample_moves_no_block() -> None:
    ratios = [1.0] * 200
    ratios[7] = 100.0
    assert set(block_medians(ratios, 10)) == {1.0}


def test_an_incomplete_last_block_is_left_out() -> None:
    assert block_medians([1.0, 2.0, 3.0, 9.0], 3) == [2.0]


def test_blocks_whose_neighbours_are_alike_are_merged() -> None:
    random = np.random.default_rng(0)
    assert len(independent_blocks(random.normal(size=256).tolist())) == 256
    assert len(independent_blocks(np.repeat(random.normal(size=64), 4).tolist())) <= 128
    assert len(independent_blocks([1.0] * 100)) == 100


def test_an_interval_needs_values_enough_for_its_confidence() -> None:
    bounded = [count for count in range(40) if math.isfinite(median_interval([1.0] * count, ALPHA).high)]
    assert bounded == list(range(13, 40))


def test_a_slowdown_counts_after_a_second_of_rounds_and_the_budget_is_kept() -> None:
    assert simulated_gate(DISTURBANCES["jitter"], 0.5, 0.03, 0)[1].seconds >= 1.0
    assert simulated_gate(DISTURBANCES["jitter"], 0.01, 0.01, 0, budget_s=2.0)[1].seconds <= 2.0 + ROUND_S


def test_slow_kernels_have_blocks_of_one_round_so_that_the_budget_can_decide() -> None:
    rounds_done = [0]

    def sample_rounds(rounds: int) -> Sequence[Sequence[float]]:
        rounds_done[0] += rounds
        return [[100.0] * rounds, [104.0 + rounds_done[0] % 2] * rounds]

    verdict, timing = time_until_decided(sample_rounds, 0.03, 10.0, lambda: rounds_done[0] * 0.2)
    assert (verdict, timing.seconds <= 10.0) == (SLOWER, True)
    assert (timing.earlier_ms, timing.rounds) == (100.0, rounds_done[0])
