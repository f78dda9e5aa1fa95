"""Configs of reductions with two kept extents, beside those of Inductor's heuristics."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernellab.errors import UsageError
from kernellab.tune import workloads
from tests.tune.conftest import TARGETS, Inductor, over_hints, same

SIZES = st.integers(0, 14).map(lambda power: 1 << power)
SCORES = st.sampled_from([0, 1, 3, 1000])


def looped(inductor: Inductor, hints: dict[str, int], scores: tuple[float, ...], target: str) -> Any:
    meta = {"tiling_scores": dict(zip(hints, scores, strict=True)), "num_load": 6, "num_reduction": 4}
    with inductor.on(target) as told:
        return inductor.heuristics._reduction_configs(size_hints=hints, inductor_meta=meta, triton_meta=told)


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(x=SIZES, y=SIZES, r=SIZES, scores=st.tuples(SCORES, SCORES, SCORES), target=st.sampled_from(TARGETS))
def test_tiled_reductions_are_inductors(
    known_inductor: Inductor, x: int, y: int, r: int, scores: tuple[float, float, float], target: str
) -> None:
    try:
        wanted = looped(known_inductor, {"x": x, "y": y, "r0_": r}, scores, target)
    except AssertionError:
        return  # where Inductor refuses its own block, there is nothing to compare
    same(workloads.tiled_reduction(x, y, r, scores, target=target, loads=6, reductions=4), wanted)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(x=SIZES, y=SIZES, r=st.integers(0, 12), scores=st.tuples(SCORES, SCORES), target=st.sampled_from(TARGETS))
def test_tiles_that_hold_whole_rows_are_inductors(
    known_inductor: Inductor, x: int, y: int, r: int, scores: tuple[float, float], target: str
) -> None:
    meta = {"tiling_scores": {"x": scores[0], "y": scores[1]}}
    with known_inductor.on(target) as told:
        wanted = known_inductor.heuristics._persistent_reduction_configs(
            {"x": x, "y": y, "r0_": 1 << r}, known_inductor.hint("inner"), meta, told
        )
    same(workloads.tiled_persistent_reduction(x, y, 1 << r, scores, target=target), wanted)


def test_a_range_of_rows_has_the_configs_of_each_size_hint(known_inductor: Inductor) -> None:
    hints = [{"x": x, "y": 64, "r0_": 512} for x in (32, 64, 128)]
    wanted = over_hints(lambda each: looped(known_inductor, each, (4, 1, 1), "cuda:90"), *hints)
    same(workloads.tiled_reduction(range(20, 128), 64, 512, (4, 1, 1), loads=6, reductions=4), wanted)


def test_long_rows_and_wrong_scores_are_refused() -> None:
    with pytest.raises(UsageError, match="rows have 8192 elements"):
        workloads.tiled_persistent_reduction(64, 64, 5000)
    with pytest.raises(UsageError, match="expected 3 numbers"):
        workloads.tiled_reduction(64, 64, 64, (1, 2))  # type: ignore[arg-type]
