"""Kernels come back with their decorators: as data, as JSON, and as live objects."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import triton
import triton.language as tl
from triton.runtime.autotuner import Autotuner, Heuristics
from triton.runtime.jit import JITFunction

from kernellab._triton.closure import decorated_closure_of
from kernellab._triton.loading import load
from kernellab.source import Autotune, Opaque, closure_of_json, closure_to_jsonable
from tests import samples

FEWEST = 64


def blocks() -> list[triton.Config]:
    return [triton.Config({"BLOCK": block}, num_warps=2, num_stages=1) for block in (FEWEST, 2 * FEWEST)]


def half(count: int) -> int:
    return count // 2


def first_half(configs: list[triton.Config], named: dict[str, Any], **meta: Any) -> list[triton.Config]:
    return configs[: half(len(configs))]


@triton.autotune(
    blocks(),
    key=["n"],
    reset_to_zero=["out_ptr"],
    restore_value=["x_ptr"],
    prune_configs_by={"early_config_prune": first_half},
)
@triton.heuristics({"EVEN": lambda a: a["n"] % a["BLOCK"] == 0, "FEW": lambda a: [n < FEWEST for n in [a["n"]]]})
@triton.jit(do_not_specialize=["n"])
def decorated_kernel(x_ptr, out_ptr, n, EVEN: tl.constexpr, FEW: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n), mask=offsets < n)


def revived(kernel: Any) -> Any:
    text = json.dumps(closure_to_jsonable(decorated_closure_of(kernel)))
    closure = closure_of_json(json.loads(text))
    functions = tuple(replace(f, file=f"<revived {f.name} {i}>") for i, f in enumerate(closure.functions))
    return load(replace(closure, functions=functions)).decorated


def test_an_autotuner_comes_back_with_what_it_was_given() -> None:
    tuner = revived(decorated_kernel)
    assert isinstance(tuner, Autotuner)
    assert [str(config) for config in tuner.configs] == [str(config) for config in decorated_kernel.configs]
    assert (tuner.keys, tuner.reset_to_zero, tuner.restore_value) == (["n"], ["out_ptr"], ["x_ptr"])
    assert not tuner.user_defined_pre_hook
    assert tuner.early_config_prune([1, 2, 3, 4], {}) == [1, 2]


def test_heuristics_come_back_as_functions_of_the_same_text() -> None:
    heuristics = revived(decorated_kernel).fn
    assert isinstance(heuristics, Heuristics)
    values = heuristics.values
    assert [values["EVEN"]({"n": n, "BLOCK": 64}) for n in (128, 100)] == [True, False]
    assert [values["FEW"]({"n": n}) for n in (63, 64)] == [[True], [False]]


def of_factor(factor: int) -> Any:
    return triton.heuristics({"FEW": lambda a, factor=factor: a["n"] * factor})(decorated_kernel.fn.fn)


@pytest.mark.slow
def test_a_heuristic_comes_back_with_the_default_that_it_was_made_with() -> None:
    small, large = of_factor(2), of_factor(3)
    assert [revived(kernel).values["FEW"]({"n": 5}) for kernel in (small, large)] == [10, 15]
    assert decorated_closure_of(small).digest != decorated_closure_of(large).digest


def test_the_jit_function_keeps_its_options() -> None:
    function = revived(decorated_kernel).fn.fn
    assert type(function) is JITFunction
    assert [p.name for p in function.params if p.do_not_specialize] == ["n"]


def test_a_hook_that_cannot_be_written_down_is_left_out_and_the_rest_stays() -> None:
    namespace: dict[str, Any] = {}
    exec("hook = lambda arguments: None", namespace)
    config = triton.Config({"BLOCK": 64}, pre_hook=namespace["hook"])
    kernel = triton.autotune([config], key=["n"])(samples.add_kernel)
    (autotune, _) = decorated_closure_of(kernel).wrappers
    assert isinstance(autotune, Autotune)
    assert isinstance(autotune.configs[0].pre_hook, Opaque)
    tuner = revived(kernel)
    assert (tuner.configs[0].kwargs, tuner.configs[0].pre_hook) == ({"BLOCK": 64}, None)


@pytest.mark.parametrize("kernel", [samples.add_kernel, samples.scale_kernel], ids=lambda k: k.__name__)
def test_a_bare_kernel_comes_back_bare(kernel: Any) -> None:
    assert type(revived(kernel)) is JITFunction
