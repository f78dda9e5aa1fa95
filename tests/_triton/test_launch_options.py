"""Options that a launch of an autotuned kernel gives, and heuristics above, below and around its autotuner."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

import kernellab
from kernellab._triton.kernel import best_config, configs_with_options
from kernellab.errors import UsageError
from tests import samples
from tests._triton.conftest import Bind
from tests.launch import kernels

X, OUT = torch.zeros(64), torch.zeros(64)
OPTIONS = {"num_warps": 2, "num_stages": 1, "num_ctas": 1, "maxnreg": 64}


def options_of(handle: Any) -> dict[str, Any]:
    return {name: getattr(handle.metadata, name) for name in OPTIONS}


@triton.jit
def scaled_kernel(x_ptr, out_ptr, n, WARPS: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) * WARPS, mask=mask)


def tuned(*decorators: Callable[[Any], Any]) -> Any:
    kernel: Any = scaled_kernel
    for decorator in reversed(decorators):
        kernel = decorator(kernel)
    return kernel


autotuned = triton.autotune([triton.Config({"BLOCK": 64}, num_warps=8), triton.Config({"BLOCK": 32})], key=["n"])
warps_of = triton.heuristics({"WARPS": lambda given: given.get("num_warps", 0)})


@pytest.mark.slow
def test_options_of_a_launch_win_over_those_of_the_configs(lab: kernellab.Lab) -> None:
    kernel, out = lab.bind(samples.tuned_kernel), torch.zeros(300)
    grid = lambda meta: (triton.cdiv(300, meta["BLOCK"]),)  # noqa: E731
    handle = kernel[grid](torch.arange(300.0), out, 300, **OPTIONS)
    assert options_of(handle) == OPTIONS
    torch.testing.assert_close(out, torch.arange(300.0))
    assert options_of(kernel[grid](torch.arange(300.0), out, 300))["num_warps"] in {4, 8}
    assert kernel.best_config.num_warps in {4, 8}


@pytest.mark.slow
def test_a_program_keeps_the_options_of_its_launch(lab: kernellab.Lab) -> None:
    kernel, x, out = lab.bind(samples.tuned_kernel), torch.arange(300.0), torch.zeros(300)
    with lab.capture() as program:
        kernel[lambda meta: (triton.cdiv(300, meta["BLOCK"]),)](x, out, 300, num_warps=2)
    (step,) = program.tape.launches
    assert step.use is not None
    assert lab.kernels.constants(step.use.constants_id)["num_warps"] == 2
    given = torch.zeros(300)
    torch.testing.assert_close(program(2 * x, given), 2 * x)


@pytest.mark.parametrize("kernel", [kernels.tuned, kernels.one_config, kernels.tuned_outside, kernels.tuned_inside])
def test_launches_with_options_become_known_and_are_kept_apart(binding: Bind, kernel: Any) -> None:
    bound, runtime = binding(kernel)
    launches = [bound[(1,)](X, OUT, 64, num_warps=warps) for warps in (1, 4, 1, 4, 1, 4)]
    slow = runtime.slow
    again = [bound[(1,)](X, OUT, 64, num_warps=warps) for warps in (1, 4)]
    assert runtime.slow == slow
    assert again == launches[:2]
    assert launches[0] is not launches[1]
    assert bound[(1,)](X, OUT, 64) not in launches


def test_configs_that_differ_in_what_the_call_gives_are_one_choice() -> None:
    hook = lambda given: None  # noqa: E731
    configs = [triton.Config({"B": 1}, num_warps=w, num_stages=s, pre_hook=hook) for w in (4, 8) for s in (2, 3)]
    found = configs_with_options(configs, {"num_warps": 2})
    assert [(config.num_warps, config.num_stages, config.pre_hook) for config in found] == [(2, 2, hook), (2, 3, hook)]


@pytest.mark.slow
def test_a_warmup_takes_options_too(lab: kernellab.Lab) -> None:
    handles = lab.bind(samples.tuned_kernel).warmup(torch.zeros(64), torch.zeros(64), 64, grid=(1,), num_warps=1)
    assert [options_of(handle)["num_warps"] for handle in handles] == [1, 1]


@pytest.mark.parametrize("given", [{"BLOCK": 32}, {"BLOCK": 32, "num_warps": 2}])
def test_a_parameter_of_the_configs_is_not_given_twice(lab: kernellab.Lab, given: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="BLOCK is given and also set by the configs"):
        lab.bind(samples.tuned_kernel)[(1,)](torch.zeros(64), torch.zeros(64), 64, **given)


@pytest.mark.parametrize("verb", ["bind", "compile", "effects"])
def test_two_autotuners_on_one_kernel_are_refused_by_name(lab: kernellab.Lab, verb: str) -> None:
    twice = triton.autotune([triton.Config({})], key=[])(samples.tuned_kernel)
    with pytest.raises(UsageError, match=r"tuned_kernel is decorated with @triton\.autotune 2 times"):
        getattr(lab, verb)(twice)


ORDERS = {
    "above": (warps_of, autotuned),
    "below": (autotuned, warps_of),
    "between": (
        triton.heuristics({"n": lambda given: given["x_ptr"].numel()}),
        triton.autotune([triton.Config({}, num_warps=8), triton.Config({})], key=["n"]),
        triton.heuristics({"BLOCK": lambda given: 8 * given["num_warps"]}),
        warps_of,
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("options", [{}, {"num_warps": 2}])
def test_heuristics_work_above_below_and_between(lab: kernellab.Lab, order: str, options: dict[str, int]) -> None:
    kernel, x, out = lab.bind(tuned(*ORDERS[order])), torch.ones(100), torch.zeros(100)
    given = {} if order == "between" else {"n": 100}
    with lab.capture() as program:
        kernel[lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),)](x, out, **given, **options)
    warps = options.get("num_warps", 0 if order == "above" else 8)
    torch.testing.assert_close(out, torch.full((100,), float(warps)))
    fresh = torch.zeros(100)
    program.run(x=x, out=fresh)
    torch.testing.assert_close(fresh, out)


@pytest.mark.parametrize("value", ["8", 4.0, [4], torch.tensor(4), 10**30, float("nan")], ids=str)
@pytest.mark.parametrize("option", ["num_warps", "num_stages", "num_ctas", "maxnreg"])
def test_an_option_that_is_no_integer_is_refused_before_a_compiler_sees_it(
    lab: kernellab.Lab, option: str, value: Any
) -> None:
    for call in (lambda given: lab.compile(scaled_kernel, X, OUT, 64, 1, 64, **given), launched(lab)):
        with pytest.raises(UsageError, match=f"{option} of scaled_kernel is .*; expected an integer"):
            call({option: value})


def launched(lab: kernellab.Lab) -> Callable[[dict[str, Any]], Any]:
    kernel = lab.bind(scaled_kernel)
    return lambda given: kernel[(1,)](X, OUT, 64, 1, 64, **given)


@pytest.mark.slow
def test_integers_of_numpy_and_constexprs_are_options(lab: kernellab.Lab) -> None:
    for value in (np.int64(2), tl.constexpr(2)):
        assert lab.compile(scaled_kernel, X, OUT, 64, 1, 64, num_warps=value).resources.threads == 64


def test_the_config_in_words_has_the_options_that_heuristics_gave() -> None:
    kernel = tuned(triton.autotune([triton.Config({"BLOCK": 64}, num_warps=2)], key=[]))
    kernel.best_config = kernel.configs[0]
    assert best_config(kernel, {"num_warps": 8, "num_stages": 3}).startswith("BLOCK=64, num_warps=8")
    assert best_config(scaled_kernel, {"num_warps": 8}) == ""
