"""The quick prediction of cards and sliders agrees with the full one: each time lies in the other's interval."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import pytest
import torch

import kernellab
from benchmarks.truth_recipes import RECIPES
from kernellab.explain import predicting
from kernellab.explain.devices import named_device
from kernellab.explain.predicting import predict_implementation, quick_prediction
from kernellab.explain.prediction import Prediction
from kernellab.explain.verbs import compile_call
from kernellab.launch.calls import UserCall
from tests.labs import lab_fixture

pytestmark = pytest.mark.slow
DEVICE = named_device("h200").rates
LAUNCHES: dict[str, dict[str, int]] = {
    "add": {"n": 1 << 20},
    "strided-copy": {"n": 1 << 18, "stride": 9},
    "transpose": {"rows": 512, "columns": 1024},
    "column-sum": {"rows": 1024, "columns": 2048},
    "row-sum": {"rows": 1024, "columns": 1024},
    "softmax": {"rows": 512, "columns": 2048},
    "matmul": {"m": 512, "n": 512, "k": 512},
}
lab = lab_fixture("cuda:90")


def predictions_of(lab: kernellab.Lab, name: str, sizes: Mapping[str, int]) -> tuple[Prediction | None, Prediction]:
    """The quick and the full prediction of a recorded kernel with its first config."""
    recipe: Any = RECIPES[name]
    config = recipe.configs[0]
    options = {"num_warps": config.num_warps, "num_stages": config.num_stages}
    meta = {**recipe.inputs("cpu", **sizes), **config.kwargs, **options}
    launch = compile_call(lab.session(), UserCall(lab.bind(recipe.kernel), recipe.grid, (), meta), takes_best=False)
    assert prod(launch.kernel_launch.grid) > 1
    return quick_prediction(launch, DEVICE), predict_implementation(launch, DEVICE)


@pytest.mark.parametrize("name", LAUNCHES)
def test_each_time_lies_in_the_interval_of_the_other(lab: kernellab.Lab, name: str) -> None:
    torch.manual_seed(0)
    quick, full = predictions_of(lab, name, LAUNCHES[name])
    assert quick is not None
    assert full.low_ms <= quick.time_ms <= full.high_ms
    assert quick.low_ms <= full.time_ms <= quick.high_ms


@pytest.mark.parametrize("name", LAUNCHES)
def test_the_waits_for_memory_are_the_same(lab: kernellab.Lab, name: str) -> None:
    quick, full = predictions_of(lab, name, LAUNCHES[name])
    assert quick is not None
    assert quick.facts is not None
    assert full.facts is not None
    assert quick.facts.loop_trips == pytest.approx(full.facts.loop_trips, rel=0.1)
    assert quick.facts.single_waits == pytest.approx(full.facts.single_waits, rel=0.1)


def test_a_launch_that_takes_long_to_follow_has_none(lab: kernellab.Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predicting, "_QUICK_INSTRUCTIONS", 10)
    assert predictions_of(lab, "add", LAUNCHES["add"])[0] is None
