"""Tunings without a GPU: configs are compared with a reference on the CPU, and none that is wrong is the best."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

import kernellab
from kernellab.checking.reference import check_of
from kernellab.errors import CannotRun, UsageError
from kernellab.store.columns import Status
from kernellab.target import Target
from kernellab.timing.launches import Launches
from kernellab.timing.provenance import Device
from kernellab.tune.config_runs import AGREES
from kernellab.tune.options import Options
from kernellab.tune.run_tuning import Environment, tune_launches
from tests.labs import shared_lab
from tests.tune.fakes import Clock

DEVICE = Device(Target("cuda", 90, 32), "", "", {"target": "cuda:90", "triton": "3.9.0"}, None)
COUNT = 300


@triton.jit
def scale(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    factor = 2
    if BLOCK == 64:
        factor = 3
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < n) * factor, mask=at < n)


@triton.jit
def add_up(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)


@triton.jit
def scale_unmasked(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at) * 2)


def grid(meta: Mapping[str, Any]) -> tuple[int]:
    return (triton.cdiv(meta["n"], meta["BLOCK"]),)


def blocks(*sizes: int, **options: Any) -> list[triton.Config]:
    return [triton.Config({"BLOCK": size}, **options) for size in sizes]


@pytest.fixture
def lab() -> Iterator[kernellab.Lab]:
    with shared_lab(target="cuda:90", store=":memory:") as lab:
        yield lab


@pytest.fixture
def tensors() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.rand(COUNT, generator=torch.Generator().manual_seed(0)) + 1, torch.zeros(COUNT)


@pytest.mark.slow
def test_a_wrong_config_is_called_so_and_is_not_the_best(lab: kernellab.Lab, tensors: Any) -> None:
    x, out = tensors
    tuning = lab.tune(scale, grid, x, out, COUNT, configs=blocks(64, 128, 256), check=lambda x_ptr: 2 * x_ptr)
    assert tuning.best.kwargs == {"BLOCK": 128}
    assert [row.status for row in tuning.rows] == [Status.WRONG, Status.NOT_TIMED, Status.NOT_TIMED]
    assert tuning.rows[1].reason == AGREES
    assert "out_ptr differs from the reference in 300 of 300 elements" in tuning.rows[0].reason
    assert "All 3 configs that fit were launched on the CPU, and compared with the reference." in tuning.notes
    assert not out.any()


@pytest.mark.slow
def test_where_all_configs_are_wrong_none_is_the_best(lab: kernellab.Lab, tensors: Any) -> None:
    tuning = lab.tune(scale, grid, *tensors, COUNT, configs=blocks(64, 128), check=lambda x_ptr: 5 * x_ptr)
    with pytest.raises(CannotRun, match="No config of scale agrees with the reference"):
        _ = tuning.best


@pytest.mark.slow
def test_the_reference_and_each_config_start_from_what_the_arguments_held(lab: kernellab.Lab, tensors: Any) -> None:
    x, out = tensors
    out.fill_(7)
    options = {"configs": blocks(64, 128), "check": lambda x_ptr, out_ptr: out_ptr + x_ptr}
    tuning = lab.tune(add_up, grid, x, out, COUNT, **options)
    assert [row.reason for row in tuning.rows] == [AGREES, AGREES]
    assert bool((out == 7).all())


@pytest.mark.slow
def test_accumulators_that_are_declared_start_from_zero(lab: kernellab.Lab, tensors: Any) -> None:
    x, out = tensors
    kernel = triton.autotune(blocks(64, 128), key=["n"], reset_to_zero=["out_ptr"])(add_up)
    tuning = lab.tune(kernel, grid, x, out.fill_(7), COUNT, check=lambda x_ptr: x_ptr)
    assert [row.reason for row in tuning.rows] == [AGREES, AGREES]
    assert bool((out == 7).all())


@pytest.mark.slow
def test_a_config_that_leaves_its_arguments_is_a_fault(lab: kernellab.Lab, tensors: Any) -> None:
    tuning = lab.tune(scale_unmasked, grid, *tensors, COUNT, configs=blocks(64, 4), check=lambda x_ptr: 2 * x_ptr)
    assert [row.status for row in tuning.rows] == [Status.FAULT, Status.NOT_TIMED]
    assert tuning.best.kwargs == {"BLOCK": 4}


@pytest.mark.slow
def test_arguments_without_data_are_refused_with_a_check_and_tuned_without(lab: kernellab.Lab) -> None:
    x, out = torch.empty(COUNT, device="meta"), torch.empty(COUNT, device="meta")
    assert lab.tune(scale, grid, x, out, COUNT, configs=blocks(64, 128)).is_predicted
    with pytest.raises(UsageError, match="check needs values, and x_ptr is a tensor without data"):
        lab.tune(scale, grid, x, out, COUNT, configs=blocks(64), check=lambda x_ptr: 2 * x_ptr)
    with pytest.raises(UsageError, match="check needs values, and x_ptr is a tensor without data"):
        lab.run(scale, grid, x, out, COUNT, BLOCK=64, check=lambda x_ptr: 2 * x_ptr)


class Interpreter:
    """Counts the launches on the CPU, each of which takes some seconds of a clock, and stores twice x."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self.clock, self.seconds, self.launches = clock, seconds, 0

    def __call__(self, function: Any, arguments: Mapping[str, Any], *rest: Any) -> None:
        self.launches += 1
        self.clock.now_s += self.seconds
        arguments["out_ptr"].copy_(2 * arguments["x_ptr"])


def tune_with(lab: kernellab.Lab, configs: list[triton.Config], tensors: Any, seconds: float) -> tuple[Any, int]:
    clock = Clock()
    interpret: Any = Interpreter(clock, seconds)
    environment = Environment(lab.compiler, lab.kernels, DEVICE, None, clock, interpret=interpret)
    options = Options(configs, check=check_of(lambda x_ptr: 2 * x_ptr))
    return tune_launches(
        environment, Launches(scale, grid, (*tensors, COUNT), {}, environment.device.target), options
    ), interpret.launches


@pytest.mark.slow
def test_configs_that_compute_the_same_are_launched_once(lab: kernellab.Lab, tensors: Any) -> None:
    configs = [*blocks(128, num_warps=2), *blocks(128, num_warps=4), *blocks(256)]
    tuning, launches = tune_with(lab, configs, tensors, 0.1)
    assert launches == 2
    assert [row.reason for row in tuning.rows] == [AGREES] * 3


@pytest.mark.slow
def test_a_check_has_a_budget_and_says_what_it_left_out(lab: kernellab.Lab, tensors: Any) -> None:
    tuning, launches = tune_with(lab, blocks(16, 32, 128, 256), tensors, 12.0)
    assert launches == 2
    assert [row.reason == AGREES for row in tuning.rows] == [True, True, False, False]
    assert "not checked on the CPU: the seconds for it were spent" in tuning.rows[2].reason
    note = next(note for note in tuning.notes if "launched on the CPU" in note)
    assert note.startswith("2 of 4 configs that fit were launched on the CPU")
    assert note.endswith("Not checked: 2, since the seconds for it were spent.")
