"""Hooks of configs and of autotuners: what they are given, and how they reach another process."""

from __future__ import annotations

import threading
import warnings
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from kernellab._triton.kernel import autotune_settings
from kernellab.launch.arguments import CannotExport, ScalarSpec, TensorSpec
from kernellab.target import Target
from kernellab.timing.bench_jobs import Manner
from kernellab.timing.bench_worker import _counts
from kernellab.timing.config import Config
from kernellab.timing.hooks import BadHook, pickle_hooks, sets_blocks_alone, unpickle_hooks
from kernellab.timing.launches import KernelLaunch, Launches

N = 8
SEEN: list[dict[str, Any]] = []
X, OUT = torch.zeros(N), torch.zeros(N)
SPECS = (("out_ptr", TensorSpec(0, 0, (N,), (1,), "float32", 4)), ("n", ScalarSpec(N)))


@triton.jit
def scale(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n) * 2, mask=offsets < n)


@triton.jit
def load_box(a_desc, BM: tl.constexpr, BK: tl.constexpr):
    a_desc.load([0, 0])


def tuned(config: triton.Config, **given: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return triton.autotune([config], key=["n"], **given)(scale)


def launch_of(config: triton.Config, **given: Any) -> KernelLaunch:
    launches = Launches(tuned(config, **given), (1,), (X, OUT, N), {}, Target("cuda", 90, 32))
    return launches.of(Config.from_triton(config), config)


def test_hooks_are_called_with_arguments_constexprs_and_options_by_name() -> None:
    seen: list[Any] = []
    launch = launch_of(
        triton.Config({"BLOCK": 8}, num_warps=2, pre_hook=lambda named: seen.append(("config", named["BLOCK"]))),
        pre_hook=lambda named, reset_only=False: seen.append(("before", named["n"], named["num_warps"])),
        post_hook=lambda named, exception: seen.append(("after", named["out_ptr"].shape, exception)),
    )
    seen.clear()
    memory = torch.zeros(4 * N, dtype=torch.uint8)
    specs = (*SPECS, ("BLOCK", ScalarSpec(None)))
    hooks = launch.hooks.bound(specs, [memory])
    hooks.call_before()
    error = RuntimeError("refused")
    hooks.call_after(error)
    assert seen == [("config", 8), ("before", N, 2), ("after", (N,), error)]


def test_hooks_work_on_the_memory_of_the_bench_in_another_process() -> None:
    pytest.importorskip("cloudpickle")
    fill = 7.0
    launch = launch_of(triton.Config({"BLOCK": 8}, pre_hook=lambda named: named["out_ptr"].fill_(fill)))
    memory = torch.zeros(4 * N, dtype=torch.uint8)
    data = pickle_hooks(launch.hooks)
    unpickle_hooks(data).bound(SPECS, [memory]).call_before()
    assert memory.view(torch.float32).tolist() == [fill] * N
    assert OUT.tolist() == [0.0] * N


def test_a_launch_without_hooks_has_none_to_take_along() -> None:
    assert not launch_of(triton.Config({"BLOCK": 8})).has_hooks


def test_a_hook_that_cannot_be_taken_along_is_told() -> None:
    pytest.importorskip("cloudpickle")
    lock = threading.Lock()
    launch = launch_of(triton.Config({"BLOCK": 8}, pre_hook=lambda named: lock.locked()))
    with pytest.raises(CannotExport, match="hooks that cannot be taken along"):
        pickle_hooks(launch.hooks)


def test_a_hook_that_cannot_be_made_again_is_told() -> None:
    with pytest.raises(BadHook, match="ModuleNotFoundError"):
        unpickle_hooks(b"cabsent_module\nhook\n.")


def test_what_an_autotuner_says_about_timing_is_known() -> None:
    config = triton.Config({"BLOCK": 8})
    plain = autotune_settings(tuned(config))
    assert (plain.by_graph, plain.warmup_ms, plain.rep_ms, plain.has_own_bench) == (False, None, None, False)
    asked = autotune_settings(tuned(config, warmup=5, rep=50, use_cuda_graph=True, cache_results=True))
    assert (asked.by_graph, asked.warmup_ms, asked.rep_ms, asked.has_own_bench) == (True, 5, 50, False)
    assert autotune_settings(tuned(config, do_bench=lambda call, quantiles: [1.0, 1.0, 1.0])).has_own_bench


def test_budgets_in_milliseconds_become_launches() -> None:
    assert _counts(Manner(), 4, 0.5) == (0, 4)
    assert _counts(Manner(warmup_ms=5, rep_ms=50), 4, 0.5) == (10, 100)
    assert _counts(Manner(rep_ms=1), 4, 30.0) == (0, 1)
    assert _counts(Manner(rep_ms=100), 4, 0.0) == (0, 10_000)


def test_the_hook_of_every_config_is_that_of_the_user_whoever_asks_first() -> None:
    configs = [triton.Config({"BLOCK": block}, pre_hook=lambda named: None) for block in (8, 16)]
    values = [Config.from_triton(config) for config in configs]
    launches = Launches(scale, (1,), (X, OUT, N), {}, Target("cuda", 90, 32))
    launches.originals = dict(zip(values, configs, strict=True))
    assert [launches.of(value).before for value in values] == [(config.pre_hook,) for config in configs]


def set_blocks(named: dict[str, Any]) -> None:
    """Set them as tutorials do."""
    bm, bk = (named[name] for name in ("BM", "BK"))
    if not isinstance(named["a_desc"], TensorDescriptor):
        return
    named["a_desc"].block_shape = [bm, bk // 2 if named.get("HALF", False) else bk]


def zero(named: dict[str, Any]) -> None:
    named["a_desc"].base.zero_()


def count(named: dict[str, Any]) -> None:
    SEEN.append(named)


def enter(named: dict[str, Any]) -> None:
    named["BM"] = 16


def widen(named: dict[str, Any]) -> None:
    named["a_desc"].shape = [64, 64]


def launch(named: dict[str, Any]) -> None:
    scale[(1,)](X, OUT, N, BLOCK=8)


@pytest.mark.parametrize(
    ("hook", "expected"),
    [(set_blocks, True), (lambda named: None, False), (print, False)]
    + [(hook, False) for hook in (zero, count, enter, widen, launch)],
)
def test_what_sets_blocks_alone_is_told_from_what_does_more(hook: Any, expected: bool) -> None:
    assert sets_blocks_alone(hook) is expected


def test_a_hook_that_sets_blocks_alone_is_in_the_arguments_and_called_no_more() -> None:
    descriptor = TensorDescriptor(torch.zeros(64, 64), [64, 64], [64, 1], [1, 1])
    config = triton.Config({"BM": 16, "BK": 32}, pre_hook=set_blocks)
    launches = Launches(triton.autotune([config], key=[])(load_box), (1,), (descriptor,), {}, Target("cuda", 90, 32))
    launch = launches.of(Config.from_triton(config), config)
    assert not launch.has_hooks
    assert launch.arguments["a_desc"].block_shape == [16, 32]
    assert descriptor.block_shape == [1, 1]
