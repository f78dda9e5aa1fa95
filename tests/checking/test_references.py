"""Tunings with a check: what is known counts only for the values that it was compared with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

import kernellab
from kernellab.checking.reference import check_of
from kernellab.errors import CannotRun, UsageError
from kernellab.target import Target
from kernellab.timing.config import Config
from kernellab.timing.launches import Launches
from kernellab.timing.provenance import Device
from kernellab.tune.options import Options
from kernellab.tune.result import Tuning
from kernellab.tune.run_tuning import Environment, tune_launches
from kernellab.views.cards.tuning import tuning_card
from tests.labs import lab_fixture
from tests.tune.fakes import FakeBench

DEVICE = Device(Target("cuda", 90, 32), "NVIDIA H200", "580.1", {"device": "NVIDIA H200", "triton": "3.9.0"}, 0)
CONFIGS = [triton.Config({"BLOCK": block}) for block in (64, 128)]
SMALL, LARGE = map(Config.from_triton, CONFIGS)
TIMES = {SMALL: 1.0, LARGE: 2.0}
SAYS = "out_ptr differs from the reference in 3 of 300 elements, max error 2"
X, OUT = torch.ones(300), torch.zeros(300)


@triton.jit
def scale(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n) * 2, mask=offsets < n)


lab = lab_fixture("cuda:90", "function")


def double(x_ptr: torch.Tensor) -> torch.Tensor:
    return 2 * x_ptr


def triple(x_ptr: torch.Tensor) -> torch.Tensor:
    return 3 * x_ptr


def tune(lab: kernellab.Lab, check: Callable[..., Any] | None, wrong: Mapping[Config, str] | None = None) -> Tuning:
    def bench(launches: Any, timeout_s: float, device: int | None) -> FakeBench:
        assert (launches.reference is None) == (check is None)
        return FakeBench(TIMES, differences=wrong or {})

    options = Options(CONFIGS, check=None if check is None else check_of(check))
    return tune_launches(
        Environment(lab.compiler, lab.kernels, DEVICE, bench),
        Launches(scale, (3,), (X, OUT, 300), {}, DEVICE.target),
        options,
    )


@pytest.mark.slow
def test_a_config_that_differs_from_the_reference_is_wrong_however_fast(lab: kernellab.Lab) -> None:
    tuning = tune(lab, double, {SMALL: SAYS})
    assert list(tuning.frame.status) == ["wrong", "ok"]
    assert tuning.frame.reason[0] == SAYS
    assert tuning.best is CONFIGS[1]
    assert tuning.frame.attrs["check"] == "double"


@pytest.mark.slow
def test_no_config_that_agrees_is_said_clearly(lab: kernellab.Lab) -> None:
    tuning = tune(lab, double, dict.fromkeys(TIMES, SAYS))
    assert tuning.winner is None
    with pytest.raises(CannotRun, match=r"No config of scale agrees with the reference\. The first: out_ptr differs"):
        _ = tuning.best
    assert tuning_card(tuning).text().startswith("scale: none of 2 configs agrees with the reference")


def test_what_was_compared_with_the_same_values_is_known(lab: kernellab.Lab) -> None:
    assert not tune(lab, double, {SMALL: SAYS}).from_cache
    again = tune(lab, double)
    assert again.from_cache
    assert list(again.frame.status) == ["wrong", "ok"]


def test_another_reference_is_compared_anew(lab: kernellab.Lab) -> None:
    tune(lab, None)
    assert not tune(lab, double, dict.fromkeys(TIMES, SAYS)).from_cache
    assert list(tune(lab, triple).frame.status) == ["ok", "ok"]


def test_without_a_check_a_config_is_not_wrong_for_an_earlier_reference(lab: kernellab.Lab) -> None:
    tune(lab, triple, {SMALL: SAYS})
    later = tune(lab, None)
    assert not later.from_cache
    assert list(later.frame.status) == ["ok", "ok"]


def test_the_frame_says_how_and_where_it_was_measured(lab: kernellab.Lab) -> None:
    attrs = tune(lab, None).frame.attrs
    assert attrs["device_index"] == {0: 0, 1: 0}
    assert attrs["version"] == "scale@1"
    assert attrs["timing"] == "launches, flushed L2"
    assert attrs["check"] is None
    assert {"search", "seed", "closure", "key", "created", "triton", "device"} <= set(attrs)


def test_named_outputs_are_passed_on_and_what_was_compared_otherwise_is_measured_again(lab: kernellab.Lab) -> None:
    asked: list[Any] = []

    def bench(launches: Any, timeout_s: float, device: int | None) -> FakeBench:
        asked.append(launches.outputs)
        return FakeBench(TIMES)

    def tune_with(outputs: Any) -> Tuning:
        environment = Environment(lab.compiler, lab.kernels, DEVICE, bench)
        return tune_launches(
            environment,
            Launches(scale, (3,), (X, OUT, 300), {}, environment.device.target),
            Options(CONFIGS, outputs=outputs),
        )

    assert not tune_with(None).from_cache
    assert not tune_with(["out_ptr"]).from_cache
    again = tune_with(("out_ptr",))
    assert again.from_cache
    assert again.frame.attrs["agreement"]["outputs"] == ["out_ptr"]
    assert asked == [None, frozenset({"out_ptr"})]


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        (("x_ptr",), "outputs names x_ptr, and scale writes out_ptr"),
        (("dx", "out_ptr"), "outputs names dx, and scale writes out_ptr"),
        ("out_ptr", "expected a list of argument names"),
        ((), "expected names of arguments"),
        ((1,), "expected a list of argument names"),
    ],
)
def test_outputs_that_the_kernel_does_not_write_are_refused(lab: kernellab.Lab, outputs: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        lab.tune(scale, (3,), X, OUT, 300, configs=CONFIGS, outputs=outputs)


def test_what_was_called_wrong_without_a_reference_is_measured_again(lab: kernellab.Lab) -> None:
    tune(lab, double, {SMALL: SAYS})
    again = tune(lab, None)
    assert not again.from_cache
    assert list(again.frame.status) == ["ok", "ok"]


@pytest.mark.slow
def test_what_differs_from_most_is_known_and_not_to_a_reference(lab: kernellab.Lab) -> None:
    configs = [*CONFIGS, triton.Config({"BLOCK": 256})]
    times = {**TIMES, Config.from_triton(configs[2]): 3.0}

    def tune_three(check: Any = None) -> Tuning:
        environment = Environment(lab.compiler, lab.kernels, DEVICE, lambda *_: FakeBench(times, groups={SMALL: 1}))
        return tune_launches(
            environment,
            Launches(scale, (3,), (X, OUT, 300), {}, environment.device.target),
            Options(configs, check=check and check_of(check)),
        )

    first, again = tune_three(), tune_three()
    assert list(first.frame.status) == list(again.frame.status) == ["differs", "ok", "ok"]
    assert again.from_cache
    assert tuning_card(again).text().splitlines()[-1] == tuning_card(first).text().splitlines()[-1]
    assert again.frame.attrs["agreement"] == first.frame.attrs["agreement"]
    assert "is faster" in tuning_card(again).text().splitlines()[0]
    assert list(tune_three(double).frame.status) == ["ok", "ok", "ok"]
