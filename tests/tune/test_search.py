"""Searches, driven without a GPU."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernellab.timing.config import Config, Space
from kernellab.tune.search import CoordinateDescent, Exhaustive, Random, Search, optuna_search

SPACE = Space(BLOCK=[16, 32, 64, 128, 256], num_warps=[1, 2, 4, 8], where="BLOCK >= 8 * num_warps")


def driven(search: Search, cost: Callable[[Config], float | None]) -> list[Config]:
    """Return the configs that a search asks for when it is told these costs."""
    tried: list[Config] = []
    while asked := search.ask():
        for config in asked:
            tried.append(config)
            search.tell(config, cost(config))
    return tried


def block(config: Config) -> int:
    return int(dict(config.parameters)["BLOCK"])


def bowl(config: Config) -> float:
    return abs(block(config) - 64) + abs((config.num_warps or 0) - 4) + abs((config.num_stages or 0) - 3) + 1.0


def test_exhaustive_asks_for_every_config_at_once() -> None:
    search = Exhaustive([*SPACE, *SPACE])
    assert search.ask() == list(SPACE)
    assert search.ask() == []


@settings(max_examples=25, deadline=None)
@given(count=st.integers(1, 30), seed=st.integers(0, 5))
def test_random_draws_each_config_once_and_only_allowed_ones(count: int, seed: int) -> None:
    tried = driven(Random(SPACE, count, random.Random(seed)), bowl)
    assert len(tried) == min(count, len(list(SPACE)))
    assert len(set(tried)) == len(tried)
    assert set(tried) <= set(SPACE)


def test_random_repeats_itself_for_a_seed() -> None:
    draws = [driven(Random(SPACE, 6, random.Random(7)), bowl) for _ in range(2)]
    assert draws[0] == draws[1]


@pytest.mark.parametrize("start", list(SPACE))
def test_descent_finds_the_bottom_of_a_bowl(start: Config) -> None:
    tried = driven(CoordinateDescent(start), bowl)
    best = min(tried, key=bowl)
    assert (block(best), best.num_warps, best.num_stages) == (64, 4, 3)
    assert len(set(tried)) == len(tried)


def test_descent_ignores_an_improvement_below_its_threshold() -> None:
    tried = driven(CoordinateDescent(Config.of({"BLOCK": 64})), lambda config: 1.0 - block(config) * 1e-9)
    assert {block(config) for config in tried} == {32, 64, 128}


def test_descent_stays_where_the_space_allows() -> None:
    search = CoordinateDescent(Config.of({"BLOCK": 64}), allows=lambda config: block(config) <= 64)
    assert max(block(config) for config in driven(search, lambda config: 1 / block(config))) == 64


def test_descent_goes_on_from_configs_that_cannot_be_measured() -> None:
    tried = driven(
        CoordinateDescent(Config.of({"BLOCK": 16, "num_warps": 2})),
        lambda config: None if config.num_warps == 4 else bowl(config),
    )
    best = min((config for config in tried if config.num_warps != 4), key=bowl)
    assert block(best) == 64


def test_descent_starts_at_a_large_block_and_finds_smaller_ones() -> None:
    tried = driven(CoordinateDescent(Config.of({"BLOCK": 16384})), lambda config: float(block(config)))
    assert block(tried[0]) == max(map(block, tried)) == 16384
    assert min(map(block, tried)) == 1


def test_descent_along_all_directions_leaves_a_ridge() -> None:
    def ridge(config: Config) -> float:  # both values must change together
        values = config.values
        return abs(values["LEFT"] - 4 * values["RIGHT"]) * 100 + 1024 / values["LEFT"]

    start = Config.of({"LEFT": 64, "RIGHT": 16, "num_warps": None, "num_stages": None, "num_ctas": None})
    single = min(driven(CoordinateDescent(start), ridge), key=ridge)
    every = min(driven(CoordinateDescent(start, all_directions=True), ridge), key=ridge)
    assert ridge(every) < ridge(single)


def test_descent_ends_when_its_start_cannot_be_measured() -> None:
    assert driven(CoordinateDescent(Config.of({"BLOCK": 64})), lambda config: None) == [Config.of({"BLOCK": 64})]


def test_optuna_tries_allowed_configs_once() -> None:
    pytest.importorskip("optuna")
    tried = driven(optuna_search(SPACE, 8), bowl)
    assert len(set(tried)) == len(tried)
    assert set(tried) <= set(SPACE)
