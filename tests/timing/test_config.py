"""Configs as values."""

from __future__ import annotations

import re

import pytest
import triton
from hypothesis import given, settings
from hypothesis import strategies as st

from kernellab.errors import UsageError
from kernellab.timing.config import Config, Space, configs_of


def test_the_order_of_parameters_does_not_make_another_config() -> None:
    one, other = Config.of({"BM": 64, "BK": 32}), Config.of({"BK": 32, "BM": 64})
    assert one == other
    assert len({one, other}) == 1
    assert (one.text, other.text) == (
        "BM=64, BK=32, num_warps=4, num_stages=3",
        "BK=32, BM=64, num_warps=4, num_stages=3",
    )


def test_values_and_options_make_another_config() -> None:
    one = Config.of({"BM": 64, "BK": 32})
    others = [Config.of({"BM": 32, "BK": 64}), Config.of({"BM": 64, "BK": 32, "num_warps": 8}), "BM=64"]
    assert all(one != other for other in others)


VALUES = st.integers(1, 512)


@pytest.mark.slow
@settings(deadline=None)
@given(
    parameters=st.dictionaries(st.sampled_from(["BLOCK", "GROUP", "EVEN"]), VALUES),
    warps=st.sampled_from([1, 2, 4, 8]),
    stages=st.integers(1, 6),
    registers=st.none() | st.integers(24, 255),
)
def test_a_config_survives_the_way_to_triton_and_back(
    parameters: dict[str, int], warps: int, stages: int, registers: int | None
) -> None:
    config = Config(tuple(parameters.items()), num_warps=warps, num_stages=stages, maxnreg=registers)
    assert Config.from_triton(config.to_triton()) == config
    assert config.to_triton().all_kwargs() == config.values


def test_the_defaults_are_those_of_triton() -> None:
    assert Config.from_triton(triton.Config({"BLOCK": 64})) == Config((("BLOCK", 64),))


def test_equal_configs_share_a_key_whatever_the_order_of_their_parameters() -> None:
    one, other = Config.of({"A": 1, "B": 2}), Config.of({"B": 2, "A": 1})
    assert one.key == other.key
    assert one.key != Config.of({"A": 1, "B": 2, "num_warps": 8}).key


def test_a_config_in_words_leaves_out_what_is_usual() -> None:
    assert Config.of({"BLOCK": 64, "num_warps": 8}).text == "BLOCK=64, num_warps=8, num_stages=3"


def test_a_space_lists_the_combinations_that_its_condition_allows() -> None:
    space = Space(BLOCK=[64, 128, 256], num_warps=[2, 4, 8], where="BLOCK >= 32 * num_warps")
    found = [(dict(config.parameters)["BLOCK"], config.num_warps) for config in space]
    assert found == [(64, 2), (128, 2), (128, 4), (256, 2), (256, 4), (256, 8)]


@pytest.mark.slow
@settings(deadline=None)
@given(st.lists(VALUES, min_size=1, max_size=4, unique=True), st.lists(VALUES, min_size=1, max_size=4, unique=True))
def test_a_space_holds_exactly_its_combinations(left: list[int], right: list[int]) -> None:
    space = Space(LEFT=left, RIGHT=right, where=lambda LEFT, RIGHT: LEFT <= RIGHT)
    found = [dict(config.parameters) for config in space]
    assert found == [{"LEFT": a, "RIGHT": b} for a in left for b in right if a <= b]
    assert all(config in space for config in space)


def test_a_condition_that_names_something_else_is_refused() -> None:
    with pytest.raises(UsageError, match=r"BLOK.*it has BLOCK, num_warps"):
        Space(BLOCK=[64], num_warps=[4], where="BLOK > 2")


def test_a_condition_cannot_reach_builtins() -> None:
    with pytest.raises(UsageError, match="__import__"):
        Space(BLOCK=[64], where="__import__('os') is None")


def test_a_list_keeps_the_configs_of_the_user() -> None:
    config = triton.Config({"BLOCK": 64}, pre_hook=print)
    assert configs_of([config]) == [config]
    assert configs_of([config])[0].pre_hook is print


@pytest.mark.parametrize("given", [[], [{"BLOCK": 64}], Space(BLOCK=[64], where="BLOCK > 64")])
def test_a_list_without_configs_is_refused(given: object) -> None:
    with pytest.raises(UsageError, match="configs"):
        configs_of(given)  # type: ignore[arg-type]


def test_dicts_in_place_of_configs_are_answered_with_what_to_write() -> None:
    with pytest.raises(UsageError, match=re.escape("or a Space: Space(BLOCK=[64, 128])")):
        configs_of({"BLOCK": [64, 128]})
    with pytest.raises(UsageError, match=re.escape("expected a triton.Config: triton.Config({'BLOCK': 64})")):
        configs_of([{"BLOCK": 64}])
