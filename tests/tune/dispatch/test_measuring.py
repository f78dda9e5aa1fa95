"""Cases measured here: inputs by sizes, rows in the store, what is known, failures; the clock is the interpreter's."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from kernellab.store.columns import Status
from kernellab.timing.config import Config
from kernellab.timing.launches import Launches
from kernellab.tune.dispatch.measuring import SHORT_FINALS, CaseSpec, CompilingAhead, LocalCases
from kernellab.tune.dispatch.result import CaseRequest, Forecast, MeasuredCase
from tests.labs import shared_lab
from tests.tune.cluster.cpu_device import MODEL, cpu_environment, lab_here

CONFIGS = [triton.Config({"BLOCK": block}) for block in (64, 128, 256)]
VALUES = [Config.from_triton(config) for config in CONFIGS]


@triton.jit
def scale(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, 2 * tl.load(x_ptr + offsets, mask=mask), mask=mask)


def inputs(n: int) -> dict[str, Any]:
    if n > 10**9:
        raise MemoryError("too large")
    return {"x_ptr": torch.ones(n), "out_ptr": torch.empty(n), "n": n}


def measured(request: CaseRequest, **more: Any) -> MeasuredCase:
    grid = lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),)  # noqa: E731 - as users write it
    spec = CaseSpec(grid, {}, inputs, replace(SHORT_FINALS, **{"configs": CONFIGS, **more}))
    cases = LocalCases(cpu_environment(), lab_here().bind(scale), spec)
    cases.submit(request)
    return cases.take()


def request(n: int, *configs: Config, at_most: int = 16) -> CaseRequest:
    return CaseRequest(0, {"n": n}, tuple(map(Forecast, configs or VALUES)), at_most=at_most)


@pytest.mark.slow
def test_a_case_has_rows_grids_and_how_many_programs_fit() -> None:
    found = measured(request(600))
    assert {row.config for row in found.rows if row.status is Status.OK} == set(VALUES)
    assert [found.grids[config] for config in VALUES] == [(10, 1, 1), (5, 1, 1), (3, 1, 1)]
    assert found.resident[VALUES[0]] == 16  # of four warps each, 64 in all
    assert found.provenance["device"] == MODEL
    assert found.known == 0
    history = lab_here().kernels.store.history
    assert {row.measurement.key for row in history.measurements(key=found.key)} == {found.key}


@pytest.mark.slow
def test_only_what_is_asked_for_is_measured() -> None:
    found = measured(request(700, *VALUES[1:]))
    assert {row.config for row in found.rows} == set(VALUES[1:])


@pytest.mark.slow
def test_what_the_store_knows_comes_along_and_is_not_counted() -> None:
    before = measured(request(800, VALUES[2]))
    found = measured(request(800))
    assert found.known == 1
    assert {row.config for row in found.rows} == set(VALUES)
    known = next(row for row in found.rows if row.config == VALUES[2])
    assert known.compile_s == before.rows[0].compile_s


@pytest.mark.slow
def test_a_case_is_measured_again_on_configs_that_the_store_does_not_know() -> None:
    measured(request(816, VALUES[2]))
    found = measured(request(816, *VALUES[:2]))
    assert found.known == 0
    assert {row.config for row in found.rows} == set(VALUES[:2])


def test_inputs_that_cannot_be_made_fail_the_case() -> None:
    found = measured(request(2 * 10**9))
    assert found.failure == "inputs raised MemoryError: too large"
    assert not found.rows


@pytest.mark.slow
def test_a_config_that_does_not_compile_is_a_row() -> None:
    wrong = triton.Config({"BLOCK": 100})  # no power of two
    found = measured(request(900, Config.from_triton(wrong), VALUES[0]), configs=[wrong, CONFIGS[0]])
    assert [row.status for row in found.rows] == [Status.COMPILE_ERROR, Status.OK]


@pytest.mark.slow
def test_for_amd_without_a_gpu_a_dispatch_has_rows_and_says_what_it_lacks() -> None:
    grid = lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),)  # noqa: E731
    with shared_lab("hip:gfx942", ":memory:") as lab:
        found = lab.tune_over(scale, grid, over={"n": [600, 700]}, inputs=inputs, configs=CONFIGS[:2])
    assert not found.is_predicted
    assert found.frame.status.unique().tolist() == ["not_timed"]
    assert len(found.frame) == 4
    assert found.choose(n=1000) is CONFIGS[0]
    assert "Times cannot be predicted for hip:gfx942." in found.notes
    assert "Without times, the rule picks the first config" in found.notes[-1]
    assert found.regret.reason.tolist() == ["not measured: there is no GPU"] * 2


@pytest.mark.slow
def test_a_size_that_the_key_of_an_autotuner_lacks_tells_cases_apart() -> None:
    tuned = triton.autotune(configs=CONFIGS, key=["BLOCK"])(scale)
    cases = LocalCases(cpu_environment(), lab_here().bind(tuned), CaseSpec((4,), {}, inputs))
    found = []
    for n in (902, 903, 902):
        cases.submit(request(n))
        found.append(cases.take())
    cases.close()
    assert [case.known for case in found] == [0, 0, len(VALUES)]
    assert found[0].key == found[2].key != found[1].key


@pytest.mark.slow
def test_what_the_first_case_leaves_out_compiles_while_others_are_measured() -> None:
    grid = (4,)
    configs = [triton.Config({"BLOCK": 32}, num_warps=warps) for warps in (1, 2, 8)]
    values = list(map(Config.from_triton, configs))
    kernel = lab_here().bind(scale)
    cases = LocalCases(cpu_environment(), kernel, CaseSpec(grid, {}, inputs, replace(SHORT_FINALS, configs=configs)))
    cases.submit(request(901, values[0]))
    assert [row.config for row in cases.take().rows] == values[:1]
    assert cases._ahead is not None
    assert cases._ahead._work is not None
    cases._ahead._work.await_end(60.0)
    launches = Launches(kernel, grid, (), inputs(901), lab_here().target)
    assert all(lab_here().compiler.has(launches.of(value).job) for value in values)
    cases.close()


def test_compiling_ahead_ends_with_the_cases() -> None:
    waited: list[bool] = []

    def stream(jobs: Any, idle: Any) -> Any:
        while True:
            waited.append(idle())
            yield 0, None

    compiler: Any = SimpleNamespace(stream=stream)
    ahead = CompilingAhead(compiler, [lambda: None])  # type: ignore[list-item, return-value]
    ahead.close()
    assert ahead._work is not None
    assert ahead._work._is_over
    assert all(waited)
