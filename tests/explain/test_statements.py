"""What explanations say agrees with their own table, figures and sentences, whatever they explain."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import kernellab
from benchmarks.traffic_launch import TrafficLaunch
from benchmarks.traffic_launches import traffic_launches
from benchmarks.truth_recipes import RECIPES
from kernellab.explain.explanation import Explanation, explain_facts
from kernellab.explain.model import Bottleneck
from tests.explain.invariants import require_agreement, violations
from tests.explain.planted import KernelCall
from tests.explain.planted_compute import COMPUTE_PAIRS
from tests.explain.planted_memory import MEMORY_PAIRS
from tests.explain.random_facts import random_facts
from tests.explain.random_launches import random_launch
from tests.explain.traffic import kernels
from tests.explain.well_tuned import WELL_TUNED
from tests.kernels.cases import all_cases
from tests.tables import every, named

PAIRS = (*MEMORY_PAIRS, *COMPUTE_PAIRS)
# Whose kernels the tests of the advice, and of quick predictions, compile, too.
ADVISED = (
    *("copy, columns first", "shift of unknown alignment, int8", "rows of unknown start, int8"),
    *("gather across one bank", "an exponential in fp64", "tiles of 32", "a thousand elements a launch"),
)
PREDICTED = ("add", "column-sum")
pytestmark = pytest.mark.slow


def explained_call(lab: kernellab.Lab, call: KernelCall, inputs: Mapping[str, Any]) -> Explanation:
    grid, arguments = call.of(inputs)
    return lab.explain(call.kernel, grid, **arguments)


@pytest.mark.parametrize("seeds", every(10, range(10)))
def test_explanations_of_random_facts_agree_with_themselves(seeds: int) -> None:
    for seed in range(1000 * seeds, 1000 * seeds + 1000):
        assert violations(explain_facts(random_facts(seed))) == [], seed


@pytest.mark.parametrize("name", every(5, all_cases()))
def test_explanations_of_kernels_agree_with_themselves(lab: kernellab.Lab, name: str) -> None:
    case = all_cases()[name]
    require_agreement(lab.explain(case.kernel, case.grid, **case.fresh_arguments(), **case.meta))


@pytest.mark.parametrize("pair", named(ADVISED, PAIRS), ids=lambda pair: pair.name)
def test_explanations_of_planted_faults_agree_with_themselves(lab: kernellab.Lab, pair: Any) -> None:
    for call in (pair.slow, pair.fixed):
        require_agreement(explained_call(lab, call, pair.inputs(False, "cpu")))


@pytest.mark.exhaustive
@pytest.mark.parametrize("planted", WELL_TUNED, ids=lambda planted: planted.name)
def test_explanations_of_large_launches_agree_with_themselves(lab: kernellab.Lab, planted: Any) -> None:
    require_agreement(explained_call(lab, planted.call, planted.inputs(True, "cpu")))


@pytest.mark.parametrize("launch", every(60, traffic_launches()), ids=lambda launch: launch.name)
def test_explanations_of_recorded_launches_agree_with_themselves(lab: kernellab.Lab, launch: TrafficLaunch) -> None:
    require_agreement(lab.explain(launch.kernel, launch.grid, *launch.arguments, **launch.meta))


@pytest.mark.parametrize("name", named(PREDICTED, RECIPES))
def test_explanations_of_tuned_kernels_agree_with_themselves(lab: kernellab.Lab, name: str) -> None:
    recipe = RECIPES[name]
    inputs = recipe.inputs("cpu", **min(recipe.sizes, key=lambda sizes: math.prod(sizes.values())))
    for config in (recipe.configs[0], recipe.configs[-1]):
        arguments = {**inputs, **config.kwargs, "num_warps": config.num_warps, "num_stages": config.num_stages}
        if config.pre_hook is not None:
            config.pre_hook(arguments)
        require_agreement(lab.explain(recipe.kernel, recipe.grid, **arguments))


@pytest.mark.parametrize("seed", every(16, range(48)))
def test_explanations_of_random_kernels_agree_with_themselves(lab: kernellab.Lab, tmp_path: Path, seed: int) -> None:
    require_agreement(explained_call(lab, *random_launch(seed, tmp_path)))


@pytest.mark.parametrize("target", ["hip:gfx942", "cuda:80", "cuda:120"])
def test_what_is_not_known_of_a_target_is_said_once(lab: kernellab.Lab, target: str) -> None:
    case = all_cases()["softmax-float32"]
    why = lab.explain(case.kernel, case.grid, **case.fresh_arguments(), target=target, **case.meta)
    require_agreement(why)
    assert sum("is not followed" in each for each in why.unknown) == (target == "hip:gfx942")


def test_time_that_no_unit_accounts_for_is_latency_in_the_table(lab: kernellab.Lab) -> None:
    case = all_cases()["add-float32"]
    facts = lab.explain(case.kernel, case.grid, **case.fresh_arguments(), **case.meta).facts
    for time_s in (1e-6, 1e-5, 1e-3):
        why = explain_facts(replace(facts, time_s=time_s))
        assert why.times.total == pytest.approx(time_s)
        assert (why.times.largest is Bottleneck.LATENCY) == (time_s > 1e-6)


def test_a_reason_that_holds_for_several_lines_is_one_sentence(lab: kernellab.Lab) -> None:
    x, y = torch.rand(32, 32).half(), torch.zeros(32, 32).half()
    why = lab.explain(kernels.branches_on_a_product, (1,), x, y, N=32)
    require_agreement(why)
    assert any(each.startswith("Traffic, line") for each in why.unknown)
