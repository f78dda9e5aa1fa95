"""Settled configs, beside those of Inductor's heuristics."""

from __future__ import annotations

from typing import Any

import pytest
import triton

from kernellab.errors import UsageError
from kernellab.timing.config import Config
from kernellab.tune import workloads
from tests.tune.conftest import Inductor, same


def test_the_config_of_a_template_is_inductors(known_inductor: Inductor) -> None:
    with known_inductor.on() as told:
        wanted = known_inductor.heuristics.template(num_stages=4, num_warps=8, triton_meta=told)
    same(workloads.template(8, 4), wanted)


@pytest.mark.parametrize("exhaustive", [False, True])
def test_the_configs_over_lists_of_tensors_are_inductors(known_inductor: Inductor, exhaustive: bool) -> None:
    with known_inductor.on() as told:
        wanted = known_inductor.heuristics.foreach(told, inductor_meta={"max_autotune": exhaustive})
    same(workloads.foreach(exhaustive=exhaustive), wanted)


@pytest.mark.parametrize("values", [{"XBLOCK": 64}, {"XBLOCK": 64, "num_warps": 8, "num_stages": 1, "maxnreg": 128}])
def test_a_fixed_config_is_inductors(known_inductor: Inductor, values: dict[str, Any]) -> None:
    with known_inductor.on() as told:
        wanted = known_inductor.heuristics.fixed_config(dict(values), None, told, {})
    ours = workloads.fixed(values)
    assert [each.parameters for each in ours] == [(("XBLOCK", 64),)]
    assert [(c.num_warps, c.num_stages, c.maxnreg) for c in ours] == [
        (c.num_warps, c.num_stages, c.maxnreg) for c in wanted
    ]


@pytest.mark.parametrize("configs", [[], [{"BLOCK": 64, "num_warps": 2}, {"BLOCK": 128}]])
def test_configs_of_the_user_are_inductors(known_inductor: Inductor, configs: list[dict[str, int]]) -> None:
    with known_inductor.on() as told:
        wanted = known_inductor.heuristics.user_autotune([dict(each) for each in configs], told)
    same(workloads.given(configs), wanted)


def test_configs_may_come_in_any_form() -> None:
    config = Config((("BLOCK", 64),), num_warps=2)
    assert workloads.given([config, triton.Config({"BLOCK": 64}, num_warps=2)]) == [config]
    with pytest.raises(UsageError, match=r"a config is 64; expected a dict of values, or a triton\.Config"):
        workloads.given([64])
