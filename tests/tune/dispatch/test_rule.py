"""The rule of a dispatch: what it picks, as data, as JSON and as Python."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from kernellab.errors import UsageError
from kernellab.timing.config import Config
from kernellab.tune.dispatch import Cost, Extent, Rule, Term

TERMS = (Term("launch"), Term("wave"), Term("wave", ("K",)), Term("round"), Term("round", ("K",), "N"))


def cost(block: int, *weights_ms: float, slots: int = 4) -> Cost:
    return Cost(Config.of({"BLOCK": block}), (Extent("M", block), Extent("N", 2 * block)), slots, weights_ms)


RULE = Rule(
    ("M", "N", "K"),
    TERMS,
    (cost(16, 0.004, 0.001, 1e-5, 1e-6, 2e-5), cost(64, 0.004, 0.002, 5e-5, 0.0, 1e-6, slots=8)),
    4,
    {(64, 64, 64): 1},
)


def test_a_known_case_has_its_own_config() -> None:
    assert RULE.cheapest({"M": 64, "N": 64, "K": 64}) == 0
    assert RULE.place(M=64, N=64, K=64) == 1


def test_the_last_wave_costs_as_much_as_a_full_one() -> None:
    one = Rule(("M",), (Term("wave"),), (Cost(Config.of({"BLOCK": 16}), (Extent("M", 16),), 4, (1.0,)),), 4)
    times = [one.costs[0].time_ms(one.terms, {"M": programs * 16}, 4) for programs in (1, 4, 5, 8, 9)]
    assert times == [1.0, 1.0, 2.0, 2.0, 3.0]


def test_a_program_that_is_not_full_counts() -> None:
    assert Extent("M", 16).value({"M": 17}) == 2
    assert Extent("", 3).value({"M": 17}) == 3


def test_a_term_of_an_odd_size_counts_where_16_does_not_divide_it() -> None:
    values = [RULE.costs[0].values(TERMS, {"M": 1, "N": size, "K": 3}, 4)[-1] for size in (16, 17, 32, 1000)]
    assert values == [0.0, 3.0, 0.0, 24.0]
    assert "* K * (N % 16 > 0)" in RULE.source()


def test_json_gives_the_same_rule_again() -> None:
    assert Rule.from_json(json.loads(json.dumps(RULE.as_json))) == RULE


def test_the_python_source_picks_the_same() -> None:
    namespace: dict[str, Any] = {}
    exec(RULE.source("pick"), namespace)
    assert repr(RULE) == RULE.source()
    rng = random.Random(0)
    for _ in range(200):
        sizes = {name: rng.choice([1, 16, 64, 100, 1000, 5000]) for name in RULE.names}
        assert namespace["pick"](**sizes) == RULE.place(**sizes)


@pytest.mark.parametrize("sizes", [{"M": 1, "N": 1}, {"M": 1, "N": 1, "K": 1.0}, {"M": 1, "N": 1, "K": 1, "x": 2}])
def test_other_sizes_are_refused(sizes: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="expected integers for M, N, K"):
        RULE.place(**sizes)


@pytest.mark.parametrize(
    "change",
    [
        {"schema": 99},
        {"sizes": ["M", "N", "import os"]},
        {"terms": [{"per": "second", "sizes": [], "odd": ""}] * 5},
        {"terms": [{"per": "wave", "sizes": ["x"], "odd": ""}] * 5},
        {"terms": [{"per": "wave", "sizes": [], "odd": "x"}] * 5},
        {"known": [{"sizes": [1, 2, 3], "config": 7}]},
        {"known": [{"sizes": [1], "config": 0}]},
        {"configs": []},
    ],
)
def test_what_is_no_rule_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="not a rule of a dispatch"):
        Rule.from_json({**RULE.as_json, **change})


def test_a_rule_without_configs_says_so_when_it_is_asked() -> None:
    with pytest.raises(UsageError, match="The rule has no configs to pick from"):
        Rule(("M",), TERMS, (), 4).place(M=64)
