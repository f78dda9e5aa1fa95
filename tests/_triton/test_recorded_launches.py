"""Launches that are recorded instead of made."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

from kernellab._triton.drivers import OfflineDriver
from kernellab._triton.recorded_launches import LaunchCall, record_launches
from kernellab.errors import LaunchError
from kernellab.target import parse_target


@triton.jit
def scaled(x, out, n, scale=2.0, BLOCK: tl.constexpr = 64):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets, mask=offsets < n) * scale, mask=offsets < n)


def tuned(**options: object) -> triton.runtime.Autotuner:
    configs = [triton.Config({"BLOCK": 128}), triton.Config({"BLOCK": 256}, num_warps=8)]
    return triton.autotune(configs, key=["n"], **options)(scaled)


@pytest.fixture(autouse=True)
def offline():
    driver = OfflineDriver(parse_target("cuda:90"), lambda *launch: None)
    driver.activate()
    yield
    driver.deactivate()


def recorded(kernel, *args, grid=(3,), **meta) -> list[LaunchCall]:
    calls: list[LaunchCall] = []
    with record_launches(calls.append):
        kernel[grid](*args, **meta)
    return calls


def test_a_launch_is_recorded_with_defaults_and_options_and_changes_nothing():
    x, out = torch.ones(8), torch.zeros(8)
    (call,) = recorded(scaled, x, out, 8, num_warps=2)
    assert call.kernel is scaled
    assert dict(call.arguments) == {"x": x, "out": out, "n": 8, "scale": 2.0, "BLOCK": 64}
    assert dict(call.options) == {"num_warps": 2}
    assert call.grid == (3,)
    assert not out.any()


def test_an_autotuned_kernel_takes_its_first_config_and_names_the_others():
    x, out = torch.ones(8), torch.zeros(8)
    (call,) = recorded(tuned(), x, out, 8)
    assert call.arguments["BLOCK"] == 128
    (other,) = call.others
    assert (other.arguments["BLOCK"], other.options["num_warps"]) == (256, 8)


def test_configs_with_hooks_are_not_tried():
    def prepare(arguments):
        arguments["out"].fill_(7)

    hooked = triton.autotune([triton.Config({"BLOCK": 128}, pre_hook=prepare), triton.Config({"BLOCK": 64})], key=["n"])
    x, out = torch.ones(8), torch.zeros(8)
    (call,) = recorded(hooked(scaled), x, out, 8)
    assert call.others == ()
    assert bool((out == 7).all())


def test_what_is_reset_to_zero_is_reset_once():
    x, out = torch.ones(8), torch.ones(8)
    recorded(tuned(reset_to_zero=["out"]), x, out, 8)
    assert not out.any()


def test_a_warm_up_launches_nothing_and_has_resources():
    x, out = torch.ones(8), torch.zeros(8)
    calls: list[LaunchCall] = []
    with record_launches(calls.append):
        compiled = scaled.warmup(x, out, 8, grid=(1,))
        compiled._init_handles()
    assert calls == []
    assert compiled.n_regs > 0


@pytest.mark.parametrize(
    ("args", "meta", "message"),
    [((), {}, "lacks a value"), ((1, 2, 3, 4, 5, 6), {}, "takes 5 arguments"), ((1, 2, 3), {"n": 3}, "two values")],
)
def test_a_call_that_does_not_fit_is_an_error(args, meta, message):
    with pytest.raises(LaunchError, match=message):
        recorded(scaled, *args, **meta)


def test_triton_launches_as_before_afterwards():
    before = triton.runtime.JITFunction.run, triton.runtime.Autotuner.run
    recorded(scaled, torch.ones(8), torch.zeros(8), 8)
    assert (triton.runtime.JITFunction.run, triton.runtime.Autotuner.run) == before
