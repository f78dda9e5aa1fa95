"""Winners, losers and ties."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernellab.timing.stopwatch import interval, ratio_interval, standing, tie_winner

TIMES = st.lists(st.floats(0.01, 10.0), min_size=1, max_size=40)


def noisy(median_ms: float, count: int, noise: float, seed: int) -> list[float]:
    rng = random.Random(seed)
    return [median_ms * (1 + rng.gauss(0, noise)) for _ in range(count)]


@settings(max_examples=40, deadline=None)
@given(TIMES)
def test_an_interval_holds_its_median_and_stays_within_the_samples(samples: list[float]) -> None:
    found = interval(samples)
    assert min(samples) <= found.low <= found.median <= found.high <= max(samples)


def test_an_interval_is_the_same_for_the_same_samples() -> None:
    samples = noisy(1.0, 20, 0.1, seed=1)
    assert interval(samples) == interval(samples)


def test_an_interval_narrows_with_more_samples() -> None:
    few, many = (interval(noisy(1.0, count, 0.05, seed=2)) for count in (8, 200))
    assert many.high - many.low < few.high - few.low


@pytest.mark.slow
def test_intervals_cover_the_true_median_as_often_as_they_claim() -> None:
    found = [interval(noisy(1.0, 30, 0.05, seed)) for seed in range(200)]
    covered = sum(each.low <= 1.0 <= each.high for each in found)
    assert covered >= 192


def test_drift_that_slows_a_whole_round_does_not_hide_a_difference() -> None:
    drift = [1.0 + 0.5 * (i % 3) for i in range(20)]
    ratio = ratio_interval([1.05 * d for d in drift], drift)
    assert ratio.low == pytest.approx(1.05)


def test_a_difference_beyond_the_noise_decides() -> None:
    found = standing({0: noisy(1.00, 40, 0.005, 1), 1: noisy(1.03, 40, 0.005, 2)})
    assert (found.leader, found.lost, found.tied, found.open) == (0, (1,), (), ())


def test_equal_configs_tie() -> None:
    found = standing({3: noisy(1.0, 60, 0.004, 1), 5: noisy(1.0, 60, 0.004, 2)})
    assert set(found.tied) | {found.leader} == {3, 5}


def test_a_small_difference_in_few_noisy_rounds_stays_open() -> None:
    found = standing({0: noisy(1.00, 5, 0.05, 1), 1: noisy(1.01, 5, 0.05, 3)})
    assert found.open
    assert not found.lost


@settings(max_examples=30, deadline=None)
@given(st.dictionaries(st.integers(0, 9), st.lists(st.floats(0.5, 2.0), min_size=6, max_size=6), min_size=1))
def test_every_finalist_stands_in_one_place(rounds: dict[int, list[float]]) -> None:
    found = standing(rounds)
    assert sorted([found.leader, *found.tied, *found.lost, *found.open]) == sorted(rounds)


def test_a_tie_goes_to_fewer_resources_then_to_the_earlier_config() -> None:
    assert tie_winner([4, 2, 7], {4: (0, 100), 2: (0, 200), 7: (0, 100)}) == 4


def test_level_is_what_ties_within_half_the_margin() -> None:
    leader = [1.0] * 40
    found = standing({0: leader, 1: [1.002] * 40, 2: [1.004] * 40, 3: [1.02] * 40})
    assert (found.tied, found.level, found.lost) == ((1, 2), (1,), (3,))


def test_none_loses_by_less_than_half_the_margin() -> None:
    rounds = {0: [1.0] * 40, 1: [1.001, 1.008] * 20}
    assert standing(rounds).lost == ()
