"""Configs of pointwise kernels, beside those of Inductor's heuristics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernellab.errors import UsageError
from kernellab.tune import Space, workloads
from kernellab.tune.workloads import MAX_BLOCK, MAX_GRID
from tests.tune.conftest import TARGETS, Inductor, over_hints, same

SIZES = st.integers(0, 24).map(lambda power: 1 << power)


def theirs(inductor: Inductor, numels: list[int], target: str = "cuda:90") -> Any:
    with inductor.on(target) as told:
        return inductor.heuristics.pointwise(
            dict(zip("xyz", numels, strict=False)),
            told,
            tile_hint=inductor.types.TileHint.DEFAULT,
            inductor_meta={"max_autotune_pointwise": True},
            return_configs=True,
        )


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(numels=st.lists(SIZES, min_size=1, max_size=3), target=st.sampled_from(TARGETS))
def test_pointwise_configs_are_inductors(inductor: Inductor, numels: list[int], target: str) -> None:
    target = inductor.known(target)
    try:
        wanted = theirs(inductor, numels, target)
    except AssertionError:
        return  # where Inductor refuses its own block, there is nothing to compare
    same(workloads.pointwise(*numels, target=target), wanted)


@pytest.mark.parametrize("target", ["cuda:90", "hip:gfx942"])
def test_a_range_of_sizes_has_the_configs_of_each_size_hint(known_inductor: Inductor, target: str) -> None:
    wanted = over_hints(
        lambda hints: theirs(known_inductor, list(hints.values()), target),
        *({"x": 1 << power} for power in range(7, 18)),
    )
    same(workloads.pointwise(range(100, 100_000), target=target), wanted)


def test_a_range_is_of_the_powers_of_two_that_its_members_are_rounded_up_to() -> None:
    of = workloads.blocks.hints_of
    assert list(of(range(1, 10))) == [1, 2, 4, 8, 16]
    assert list(of(range(10, 0, -9))) == [1, 16]
    assert list(of(range(64, 65))) == list(of(64)) == [64]
    assert list(of(range(3))) == [1, 2]
    assert list(of(range(100, 1000, 800))) == [128, 1024]


@pytest.mark.slow
@given(st.lists(st.integers(1, 1 << 40), min_size=1, max_size=3))
def test_blocks_stay_within_their_limits_and_grids_within_the_devices(numels: list[int]) -> None:
    for config in workloads.pointwise(*numels):
        for axis, numel in zip("XYZ", numels, strict=False):
            block = config.values[f"{axis}BLOCK"]
            assert block <= MAX_BLOCK[axis]
            assert -(-numel // block) <= MAX_GRID[axis] or block == MAX_BLOCK[axis]


@pytest.mark.parametrize(
    ("numels", "message"),
    [((1, 2, 3, 4), "one to three extents"), ((range(5, 5),), "range with members"), (("64",), "a number of elements")],
)
def test_extents_that_cannot_be_are_refused(numels: tuple[Any, ...], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        workloads.pointwise(*numels)


def test_a_name_that_the_rules_lack_is_refused_with_the_others() -> None:
    wrong: Any = "iner"
    for make in (
        lambda: workloads.reduction(64, 64, wrong),
        lambda: workloads.persistent_reduction(64, 64, wrong),
    ):
        with pytest.raises(UsageError, match="hint is 'iner'; expected one of inner, outer, tiny, default"):
            make()


REFUSED: list[tuple[str, tuple[Any, ...], dict[str, Any], str]] = [
    ("pointwise", (-1,), {}, "an extent is -1; expected a number of elements from 0 on"),
    ("pointwise", (True,), {}, "an extent is True"),
    ("pointwise", (64,), {"target": None}, "target is None; expected a target"),
    ("reduction", (64,), {}, "workloads.reduction: missing a required argument: 'rnumel'; it is called as"),
    ("reduction", (64, (1, 2, 3)), {}, "rnumel is .*; expected a number of elements"),
    ("persistent_reduction", (64, None), {}, "rnumel is None"),
    ("matmul", (64, 64, 2.5), {}, "k is 2.5"),
    ("attention", (64, 64, range(3)), {}, "width is a range; expected a positive integer"),
]


@pytest.mark.parametrize(("name", "args", "named", "message"), REFUSED)
def test_what_a_generator_cannot_take_is_refused_by_its_name(
    name: str, args: tuple[Any, ...], named: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        getattr(workloads, name)(*args, **named)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Space(BLOCK=64), "BLOCK of the space is 64; expected a list of values"),  # type: ignore[arg-type]
        (lambda: Space(BLOCK="64"), "BLOCK of the space is '64'; expected a list of values"),
    ],
)
def test_what_no_space_has_is_refused_when_it_is_made(make: Callable[[], object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make()
