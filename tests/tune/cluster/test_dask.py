"""Real processes of dask: what travels to them, what comes back, and what becomes of one that dies.

They compile and interpret; that they own a GPU is pretended by `tests.tune.cluster.cpu_device`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

import kernellab
from kernellab.launch.calls import UserCall
from kernellab.timing.launches import Launches
from kernellab.tune.dispatch.measuring import SHORT_FINALS, CaseSpec
from kernellab.tune.dispatch.over import tune_over
from kernellab.tune.options import Options
from kernellab.tune.result import Tuning
from kernellab.tune.verbs import tune_and_launch
from tests.labs import lab_fixture
from tests.tune.cluster.cpu_device import MODEL, cpu_environment, dying_environment, formula_environment
from tests.tune.cluster.dask_client import dask_client

pytestmark = pytest.mark.slow
X, OUT = torch.arange(300, dtype=torch.float32), torch.zeros(300)


@triton.jit
def twice(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n) * 2, mask=offsets < n)


def grid(meta: dict[str, Any]) -> tuple[int, ...]:
    return (triton.cdiv(meta["n"], meta["BLOCK"]),)


lab = lab_fixture("cuda:90", "function")


def measured(lab: kernellab.Lab, client: Any, opened: Any) -> Tuning:
    """Tune as `Lab.tune` does, but for who counts as the owner of a GPU."""
    options = Options([triton.Config({"BLOCK": 64})], executor=client)
    launches = Launches(lab.bind(twice), grid, (X, OUT, 300), {}, lab.target)
    return tune_and_launch(lab.session(), launches, options, opened)


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with dask_client() as client:
        yield client


def test_a_worker_of_dask_tunes_and_another_one_takes_over_where_it_dies(
    lab: kernellab.Lab, client: Any, tmp_path: Path
) -> None:
    before = set(client.nthreads())
    tuning = measured(lab, client, partial(dying_environment, tmp_path / "died"))
    assert list(tuning.frame.status) == ["ok"]
    assert tuning.provenance["device"] == MODEL
    (lost,) = [note for note in tuning.notes if "and went elsewhere" in note]
    (by,) = [note for note in tuning.notes if note.startswith("measured by")]
    assert any(f"lost {name} " in lost for name in before)
    assert by.removeprefix("measured by ") not in lost
    assert measured(lab, client, cpu_environment).from_cache


def test_cases_of_a_dispatch_go_to_several_workers_with_functions_of_the_notebook(
    lab: kernellab.Lab, client: Any
) -> None:
    def inputs(n: int) -> dict[str, Any]:
        return {"x_ptr": torch.ones(n), "out_ptr": torch.zeros(n), "n": n}

    options = replace(SHORT_FINALS, configs=[triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128})])
    call, spec = UserCall(lab.bind(twice), grid, (), {}), CaseSpec(grid, {}, inputs, options)
    asked = call, {"n": [100, 200, 300]}, spec, client, cpu_environment
    dispatch = tune_over(lab.session(), *asked)
    assert [dict(case.sizes) for case in dispatch.cases] == [{"n": 100}, {"n": 200}, {"n": 300}]
    assert not any(case.failure for case in dispatch.cases)
    assert all(case.times_ms for case in dispatch.cases)
    assert dispatch.choose(n=250).kwargs["BLOCK"] in {64, 128}
    rows = lab.kernels.store.history.measurements(lab.kernels.version("twice").id)
    assert {row.measurement.key for row in rows} == {case.key for case in dispatch.cases}
    assert {row.measurement.device for row in rows} == {MODEL}
    again = tune_over(lab.session(), *asked)
    assert sum(case.known for case in again.cases) >= len(again.cases)


def test_weighted_cases_go_to_all_workers_and_the_program_gains_as_much_as_here(
    lab: kernellab.Lab, client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def inputs(n: int) -> dict[str, Any]:
        (tmp_path / str(os.getpid())).touch()
        return {"x_ptr": torch.ones(n), "out_ptr": torch.zeros(n), "n": n}

    options = replace(SHORT_FINALS, configs=[triton.Config({"BLOCK": 128})])
    spec, over = CaseSpec(grid, {}, inputs, options), {"n": [100, 200, 300, 1000]}
    mix: Any = {"weights": [1000, 500, 300, 100], "baseline": triton.Config({"BLOCK": 32})}
    call = UserCall(lab.bind(twice), grid, (), {})
    client.wait_for_workers(2)  # a slow machine may have lost one
    there = tune_over(lab.session(), call, over, spec, client, formula_environment, **mix)
    workers = {path.name for path in tmp_path.iterdir()}
    assert len(workers) == 2
    assert str(os.getpid()) not in workers
    monkeypatch.setattr("kernellab.tune.dispatch.over.environment_of", lambda session: formula_environment())
    here = tune_over(lab.session(), call, over, spec, **mix)
    assert str(os.getpid()) in {path.name for path in tmp_path.iterdir()}
    assert there.speedup is not None
    assert there.speedup == here.speedup
    assert there.speedup.low < 18.084 / 8.436 < there.speedup.high  # by the formula of the times
    assert [config.values["BLOCK"] for config in there.speedup.baseline] == [32]
    assert there.rule.configs == here.rule.configs
    assert there.regret["weight"].tolist() == [1000.0, 500.0, 300.0, 100.0]


@pytest.mark.exhaustive
def test_workers_of_dask_without_a_gpu_compile(lab: kernellab.Lab, client: Any) -> None:
    configs = [triton.Config({"BLOCK": block}) for block in (63, 64)]
    tuning = lab.tune(twice, grid, X, OUT, 300, configs=configs, executor=client)
    assert list(tuning.frame.status) == ["compile_error", "not_timed"]
