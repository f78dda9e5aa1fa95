"""What the launch path does besides choosing: when it is taken, what it calls, and when it steps aside."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from triton import knobs

from kernellab.errors import LaunchError, UsageError
from tests._triton.conftest import Bind
from tests.launch import kernels

X, OUT = torch.zeros(64), torch.zeros(64)


def warm(bound: Any, *args: Any, **meta: Any) -> Any:
    """Launch until the launch path is taken: once to see the types, once to see the values."""
    for _ in range(3):
        handle = bound[(1,)](*args, **meta)
    return handle


ALL = [kernels.copy_kernel, kernels.tuned, kernels.one_config, kernels.with_heuristics]
ALL += [kernels.tuned_outside, kernels.tuned_inside]


@pytest.mark.parametrize("kernel", ALL)
def test_the_third_launch_takes_the_launch_path(binding: Bind, kernel: Any) -> None:
    bound, runtime = binding(kernel)
    meta = {"BLOCK": 64} if kernel is kernels.copy_kernel else {}
    slow = [runtime.slow]
    for _ in range(5):
        handle = bound[(2, 3)](X, OUT, 64, **meta)
        slow.append(runtime.slow)
    assert slow[-3] == slow[-1]
    assert runtime.launched[-1] == runtime.launched[0]
    assert runtime.launched[-1][1] == (2, 3, 1)
    assert handle is bound[(2, 3)](X, OUT, 64, **meta)


def test_tuned_values_follow_the_arguments(binding: Bind) -> None:
    bound, runtime = binding(kernels.tuned)
    warm(bound, X, OUT, 64)
    bound.cache = dict.fromkeys(bound.cache, bound.configs[1])
    for _ in range(3):
        bound[(1,)](X, OUT, 64)
        assert runtime.launched[-1][0]["BLOCK"] == 128
    assert bound.best_config is bound.configs[1]


def test_a_new_tuning_key_is_tuned(binding: Bind) -> None:
    bound, _ = binding(kernels.tuned)
    for n in (64, 128, 64, 128, 64, 128, 32):
        bound[(1,)](X, OUT, n)
    assert sorted(key[0] for key in bound.cache) == [32, 64, 128]


def test_a_cleared_tuning_cache_is_filled_again(binding: Bind) -> None:
    bound, _ = binding(kernels.tuned)
    warm(bound, X, OUT, 64)
    bound.cache.clear()
    bound[(1,)](X, OUT, 64)
    assert len(bound.cache) == 1


def test_a_hook_of_the_config_runs_at_every_launch(binding: Bind) -> None:
    seen: list[int] = []
    config = triton.Config({"BLOCK": 64}, pre_hook=lambda args: seen.append(args["n"]))
    bound, _ = binding(triton.autotune(configs=[config], key=[])(kernels.copy_kernel))
    for n in (64, 64, 64, 64):
        bound[(1,)](X, OUT, n)
    assert seen == [64] * 4


@pytest.mark.parametrize("kernel", [kernels.with_heuristics, kernels.tuned_outside, kernels.tuned_inside])
def test_heuristics_are_asked_at_every_launch(binding: Bind, kernel: Any) -> None:
    bound, runtime = binding(kernel)
    plain = [warm(bound, X, OUT, n).hash for n in (64, 192, 96, 208, 48)]
    for n, digest in zip((64, 192, 96, 208, 48), plain, strict=True):
        assert bound[(1,)](X, OUT, n).hash == digest
        arguments = runtime.launched[-1][0]
        if "EVEN" in arguments:
            assert arguments["EVEN"] == (n % 64 == 0)
        else:
            assert arguments["BLOCK"] == (64 if n < 100 else 128)


def test_an_argument_that_a_config_supplies_is_refused_after_known_launches_too(binding: Bind) -> None:
    bound, _ = binding(kernels.tuned)
    warm(bound, X, OUT, 64)
    with pytest.raises(UsageError, match="BLOCK is given and also set by the configs"):
        bound[(1,)](X, OUT, 64, BLOCK=32)


def test_arguments_of_alternating_types_have_a_path_each(binding: Bind) -> None:
    bound, runtime = binding(kernels.anything)
    for _ in range(3):
        warm(bound, X, None, 1, BLOCK=1)
        warm(bound, X, OUT, 1.5, BLOCK=1)
    before = runtime.slow
    for _ in range(3):
        bound[(1,)](X, None, 1, BLOCK=1)
        bound[(1,)](X, OUT, 1.5, BLOCK=1)
    assert runtime.slow == before


def test_the_grid_function_gets_every_argument(binding: Bind) -> None:
    bound, runtime = binding(kernels.anything)
    seen: list[Any] = []

    def grid(arguments: dict[str, Any]) -> tuple[int, int]:
        seen.append(dict(arguments))
        return arguments["b"], 2

    for _ in range(4):
        bound[grid](X, 3, c=2.5, BLOCK=16)
    assert seen == [{"a": X, "b": 3, "c": 2.5, "BLOCK": 16, "MODE": 3}] * 4
    assert runtime.launched[-1][1] == (3, 2, 1)


def test_an_exception_of_the_grid_function_comes_through(binding: Bind) -> None:
    bound, _ = binding(kernels.anything)
    warm(bound, X, 1, 2, BLOCK=16)
    with pytest.raises(ZeroDivisionError):
        bound[lambda arguments: (1 // 0,)](X, 1, 2, BLOCK=16)


@pytest.mark.parametrize("args", [(), (X,), (X, 1, 2), (X, 1, 2, 16, 3, 4)])
def test_a_wrong_number_of_arguments_is_refused_as_before(binding: Bind, args: tuple[Any, ...]) -> None:
    bound, _ = binding(kernels.anything)
    warm(bound, X, 1, 2, 16)
    with pytest.raises(TypeError):
        bound[(1,)](*args)


def test_launch_hooks_get_their_information(binding: Bind) -> None:
    bound, runtime = binding(kernels.anything)
    warm(bound, X, 1, 2, BLOCK=16)
    slow, seen = runtime.slow, []

    def note(info: Any) -> None:
        seen.append(info.get()["name"])

    knobs.runtime.launch_enter_hook.add(note)
    try:
        bound[(1,)](X, 1, 2, BLOCK=16)
    finally:
        knobs.runtime.launch_enter_hook.remove(note)
    bound[(1,)](X, 1, 2, BLOCK=16)
    assert (len(seen), runtime.slow) == (1, slow)


def test_pre_run_hooks_run_at_every_launch(binding: Bind) -> None:
    bound, _ = binding(kernels.anything)
    warm(bound, X, 1, 2, BLOCK=16)
    seen: list[Any] = []
    bound.add_pre_run_hook(lambda *args, **meta: seen.append((args[1:], meta["BLOCK"])))
    warm(bound, X, 1, 2, BLOCK=16)
    assert seen == [((1, 2), 16)] * 3


@pytest.mark.parametrize("knob", [(knobs.runtime, "debug", True), (knobs.compilation, "instrumentation_mode", "x")])
def test_a_changed_knob_is_noticed(binding: Bind, knob: tuple[Any, str, Any]) -> None:
    holder, name, value = knob
    bound, runtime = binding(kernels.anything)
    first = warm(bound, X, 1, 2, BLOCK=16)
    slow = runtime.slow
    with holder.scope():
        setattr(holder, name, value)
        try:
            bound[(1,)](X, 1, 2, BLOCK=16)
        except (KeyError, ValueError, AssertionError, RuntimeError):
            assert name == "instrumentation_mode"
        assert runtime.slow == slow + 1
    assert bound[(1,)](X, 1, 2, BLOCK=16) is first


def test_while_launches_are_recorded_all_go_the_slow_way(binding: Bind) -> None:
    bound, runtime = binding(kernels.anything)
    warm(bound, X, 1, 2, BLOCK=16)
    kept, slow = bound[(1,)], runtime.slow
    with runtime.switch.on():
        kept(X, 1, 2, BLOCK=16)
        bound[(1,)](X, 1, 2, BLOCK=16)
    assert runtime.slow == slow + 2
    kept(X, 1, 2, BLOCK=16)
    assert runtime.slow == slow + 2


def test_a_global_that_can_change_in_place_keeps_to_the_slow_way(binding: Bind) -> None:
    bound, runtime = binding(kernels.anything)
    kernels.SHIFT = tl.constexpr([1])
    try:
        warm(bound, X, 1, 2, BLOCK=16)
        slow = runtime.slow
        bound[(1,)](X, 1, 2, BLOCK=16)
    finally:
        kernels.SHIFT = tl.constexpr(1)
    assert runtime.slow == slow + 1


def test_parameters_may_have_any_name(binding: Bind) -> None:
    @triton.jit
    def odd(grid, type, len, int, tuple, callable, self, map):
        tl.store(grid, type)

    bound, runtime = binding(odd)
    warm(bound, X, 1, 2, 3, 4, 5, 6, map=8)
    slow = runtime.slow
    bound[(1,)](X, 1, 2, 3, 4, 5, 6, map=8, num_warps=8)
    bound[(1,)](X, 1, 2, 3, 4, 5, 6, map=8)
    assert runtime.slow == slow + 1


def test_a_kernel_on_two_grids_is_refused(binding: Bind) -> None:
    bound, _ = binding(kernels.copy_kernel)
    with pytest.raises(LaunchError, match=r"copy_kernel is given two grids; launch it on one: copy_kernel\[grid\]"):
        bound[(1,)][(1,)](X, OUT, 64, BLOCK=64)


@pytest.mark.parametrize("kernel", [kernels.copy_kernel, kernels.tuned, kernels.with_heuristics])
@pytest.mark.parametrize(("method", "given"), [("run", {}), ("run", {"grid": (1,)}), ("warmup", {})])
def test_run_and_warmup_say_what_they_lack(binding: Bind, kernel: Any, method: str, given: dict[str, Any]) -> None:
    bound, _ = binding(kernel)
    meta = {"BLOCK": 64} if kernel is kernels.copy_kernel else {}
    with pytest.raises(LaunchError, match=rf"{method} also takes grid=\(1,\)"):
        getattr(bound, method)(X, OUT, 64, **meta, **given)
