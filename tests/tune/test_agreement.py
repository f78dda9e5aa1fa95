"""Which outputs are right where there is no reference."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kernellab.tune.tuner import disagreeing


def test_the_larger_group_is_right() -> None:
    assert disagreeing({0: 0, 1: 1, 2: 1}) == (frozenset({0}), 2)
    assert disagreeing({3: 5}) == (frozenset(), 1)


def test_of_two_groups_of_a_size_that_of_the_earliest_config_is_right() -> None:
    assert disagreeing({2: 0, 3: 0, 1: 1, 5: 1}) == (frozenset({2, 3}), 2)


@given(st.dictionaries(st.integers(0, 20), st.integers(-1, 4), min_size=1), st.randoms())
def test_neither_the_order_of_measuring_nor_the_numbers_of_groups_matter(groups: dict[int, int], rng: object) -> None:
    measured = list(groups.items())
    rng.shuffle(measured)  # type: ignore[attr-defined]
    renumbered = {index: 10 - group for index, group in measured}
    assert disagreeing(renumbered) == disagreeing(groups)


@given(st.dictionaries(st.integers(0, 20), st.integers(-1, 4), min_size=1))
def test_those_that_agree_are_all_the_others(groups: dict[int, int]) -> None:
    wrong, agreeing = disagreeing(groups)
    assert len(wrong) + agreeing == len(groups)
