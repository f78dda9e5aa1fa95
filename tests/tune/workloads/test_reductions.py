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


def looped(inductor: Inductor, hints: dict[str, int], hint: str, target: str) -> Any:
    with inductor.on(target) as told:
        return inductor.heuristics._reduction_configs(
            size_hints=hints, inductor_meta={"reduction_hint": inductor.hint(hint)}, triton_meta=told
        )


def persistent(inductor: Inductor, hints: dict[str, int], hint: str, target: str) -> Any:
    with inductor.on(target) as told:
        return inductor.heuristics._persistent_reduction_configs(hints, inductor.hint(hint), {}, told)


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(x=SIZES, r=LENGTHS, hint=HINT, target=st.sampled_from(TARGETS))
def test_reduction_configs_are_inductors(inductor: Inductor, x: int, r: int, hint: str, target: str) -> None:
    target = inductor.known(target)
    wanted = looped(inductor, {"x": x, "r0_": r}, hint, target)
    same(workloads.reduction(x, r, hint, target=target), wanted)  # type: ignore[arg-type]


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(x=SIZES, r=LENGTHS, hint=HINT, target=st.sampled_from(TARGETS))
def test_persistent_reduction_configs_are_inductors(inductor: Inductor, x: int, r: int, hint: str, target: str) -> None:
    target = inductor.known(target)
    wanted = persistent(inductor, {"x": x, "r0_": r}, hint, target)
    same(workloads.persistent_reduction(x, r, hint, target=target), wanted)  # type: ignore[arg-type]


def test_a_range_of_sizes_has_the_configs_of_each_pair_of_size_hints(known_inductor: Inductor) -> None:
    hints = [{"x": x, "r0_": r} for x in (512, 1024, 2048) for r in (256, 512)]
    wanted = over_hints(lambda each: looped(known_inductor, each, "inner", "cuda:90"), *hints)
    same(workloads.reduction(range(300, 1500), range(250, 500), "inner"), wanted)
