"""Configs of reductions, beside those of Inductor's heuristics."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernellab.tune import workloads
from tests.tune.conftest import HINTS, TARGETS, Inductor, over_hints, same

SIZES = st.integers(0, 24).map(lambda power: 1 << power)
LENGTHS = st.integers(1, 15).map(lambda power: 1 << power)
HINT = st.sampled_from(sorted(HINTS))


def looped(inductor: Inductor, hints: dict[str, int], hint: str, target: str, dynamic: int = 0, **meta: Any) -> Any:
    with inductor.on(target) as told:
        return inductor.heuristics._reduction_configs(
            size_hints=hints,
            inductor_meta={"reduction_hint": inductor.hint(hint), **meta},
            triton_meta=told,
            num_dynamic=dynamic,
        )


def persistent(inductor: Inductor, hints: dict[str, int], hint: str, target: str, **meta: Any) -> Any:
    with inductor.on(target) as told:
        return inductor.heuristics._persistent_reduction_configs(hints, inductor.hint(hint), meta, told)


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(x=SIZES, r=LENGTHS, hint=HINT, loads=st.sampled_from([0, 4, 12]), target=st.sampled_from(TARGETS))
def test_reduction_configs_are_inductors(
    inductor: Inductor, x: int, r: int, hint: str, loads: int, target: str
) -> None:
    target = inductor.known(target)
    wanted = looped(inductor, {"x": x, "r0_": r}, hint, target, num_load=loads, num_reduction=0)
    same(workloads.reduction(x, r, hint, target=target, loads=loads), wanted)  # type: ignore[arg-type]


@settings(max_examples=60, deadline=None)
@given(
    x=SIZES, slow=st.integers(0, 7), fast=st.integers(0, 8), dynamic=st.integers(0, 2), target=st.sampled_from(TARGETS)
)
def test_two_reduced_extents_size_arguments_and_whole_rows_are_inductors(
    known_inductor: Inductor, x: int, slow: int, fast: int, dynamic: int, target: str
) -> None:
    hints = {"x": x, "r0_": 1 << slow, "r1_": 1 << fast}
    meta = {"max_autotune": True, "add_persistent_rblock": True, "num_load": 3, "num_reduction": 1}
    ours = workloads.reduction(
        x, (1 << slow, 1 << fast), "outer", target=target, loads=3, reductions=1, size_arguments=dynamic,
        whole_rows=True, exhaustive=True,
    )  # fmt: skip
    same(ours, looped(known_inductor, hints, "outer", target, dynamic, **meta))


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(x=SIZES, r=LENGTHS, hint=HINT, target=st.sampled_from(TARGETS), exhaustive=st.booleans())
def test_persistent_reduction_configs_are_inductors(
    inductor: Inductor, x: int, r: int, hint: str, target: str, exhaustive: bool
) -> None:
    target, exhaustive = inductor.known(target), exhaustive and inductor.is_known
    wanted = persistent(inductor, {"x": x, "r0_": r}, hint, target, max_autotune=exhaustive)
    ours = workloads.persistent_reduction(x, r, hint, target=target, exhaustive=exhaustive)  # type: ignore[arg-type]
    same(ours, wanted)


def test_rows_are_held_alike_for_any_number_of_them(known_inductor: Inductor) -> None:
    of = [workloads.persistent_reduction(x, 512, "inner", same_for_any_rows=True) for x in (1, 32, 4096)]
    assert of[0] == of[1] == of[2]
    same(of[0], persistent(known_inductor, {"x": 32, "r0_": 512}, "inner", "cuda:90", batch_invariant=True))
    assert workloads.persistent_reduction(1, 512, "inner") != of[0]


def test_a_range_of_sizes_has_the_configs_of_each_pair_of_size_hints(known_inductor: Inductor) -> None:
    hints = [{"x": x, "r0_": r} for x in (512, 1024, 2048) for r in (256, 512)]
    wanted = over_hints(lambda each: looped(known_inductor, each, "inner", "cuda:90"), *hints)
    same(workloads.reduction(range(300, 1500), range(250, 500), "inner"), wanted)
