"""Tuning over sizes on a GPU: several configs of a case are measured by one request."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import triton

import kernellab
from kernellab.store.columns import Status
from tests.tune.cluster.dask_client import gpu_client
from tests.tune.test_on_gpu import moody


def grid(meta: dict[str, int]) -> tuple[int, ...]:
    return (triton.cdiv(meta["n"], meta["BLOCK"]),)


def inputs(n: int) -> dict[str, object]:
    return {"x_ptr": torch.rand(n, device="cuda"), "out_ptr": torch.zeros(n, device="cuda"), "n": n}


@pytest.mark.gpu
def test_configs_that_go_wrong_cost_those_measured_with_them_nothing() -> None:
    moods = {0: Status.OK, 1: Status.FAULT, 2: Status.TIMEOUT, 3: Status.DIFFERS, 5: Status.FAULT}
    configs = [triton.Config({"BLOCK": block, "MOOD": 0}) for block in (128, 256, 512, 1024)]
    configs += [triton.Config({"BLOCK": 512, "MOOD": mood}) for mood in moods if mood]
    with kernellab.Lab(store=":memory:") as lab:
        found = lab.tune_over(moody, grid, over={"n": [4096, 65536]}, inputs=inputs, configs=configs, timeout_s=1)
    first = max(found.cases, key=lambda case: len(case.rows))
    assert len(first.rows) == len(configs)
    for row in first.rows:
        assert row.status is moods[row.config.values["MOOD"]], row
        assert (row.time_ms is not None) == (row.status in {Status.OK, Status.DIFFERS})
    assert all(config.values["MOOD"] == 0 for config in found.rule.configs)
    assert len(found.cases) == 2


@pytest.mark.gpu
def test_weights_spend_no_measurement_on_cases_that_take_hardly_any_time() -> None:
    small, large = (triton.Config({"BLOCK": block, "MOOD": 0}) for block in (128, 1024))
    sizes, weights = [4096, 65536, 16_777_216], [1.0, 1.0, 1e7]
    with kernellab.Lab(store=":memory:") as lab:
        found = lab.tune_over(
            moody, grid, over={"n": sizes}, inputs=inputs, configs=[large], weights=weights, baseline=small
        )
    assert found.speedup is not None
    assert found.speedup.low <= found.speedup.ratio <= found.speedup.high
    assert [config.values["BLOCK"] for config in found.speedup.baseline] == [128]
    measured = [case.sizes["n"] for case in found.cases if case.rows]
    assert measured == sizes[-1:]
    assert {row.config.values["BLOCK"] for row in found.cases[-1].rows} == {128, 1024}
    assert [regret.sizes["n"] for regret in found.unmeasured] == sizes[:2]
    assert any(row.warm_ms for row in found.cases[-1].rows)


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_weighted_cases_on_two_gpus_give_the_speedup_of_one() -> None:
    small, large = (triton.Config({"BLOCK": block, "MOOD": 0}) for block in (128, 1024))
    mix: Any = {"over": {"n": [1 << 20, 1 << 22, 1 << 24]}, "weights": [16, 4, 1], "baseline": small}
    with gpu_client(2) as client, kernellab.Lab(store=":memory:") as lab, kernellab.Lab(store=":memory:") as other:
        there = lab.tune_over(moody, grid, inputs=inputs, configs=[large], executor=client, **mix)
        here = other.tune_over(moody, grid, inputs=inputs, configs=[large], **mix)
    assert not any(case.failure for case in there.cases)
    assert there.speedup is not None
    assert here.speedup is not None
    assert there.speedup.low <= here.speedup.high
    assert here.speedup.low <= there.speedup.high
