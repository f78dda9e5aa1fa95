"""Which config a bound autotuner is left with, for a lab that claims to have a GPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import triton

import kernellab
from kernellab._triton.bound import bound_copy
from kernellab._triton.launcher import Switch
from tests.tune.test_run_tuning import blocks, scale


class Runtime:
    """A lab's runtime that chooses the last config."""

    def __init__(self, *, chooses: bool = True) -> None:
        self.switch = Switch()
        self.chooses = chooses
        self.asked: list[tuple[Any, ...]] = []

    def is_offline(self) -> bool:
        return False

    def interprets(self) -> bool:
        return False

    def best_config(self, kernel: Any, args: tuple[Any, ...], meta: dict[str, Any]) -> Any:
        self.asked.append((args, meta))
        return kernel.configs[-1] if self.chooses else None


def bound(runtime: Runtime, **declared: Any) -> Any:
    kernel = bound_copy(triton.autotune(blocks(16, 64, 128), key=["n"], **declared)(scale), runtime)
    kernel.nargs = {"x_ptr": torch.zeros(4), "out_ptr": torch.ones(4), "n": 4}
    return kernel


def test_triton_is_left_with_the_config_that_the_lab_chose() -> None:
    runtime = Runtime()
    kernel = bound(runtime)
    assert kernel.prune_configs({"grid": (1,), "warmup": False}) == [kernel.configs[2]]
    assert kernel._bench(config=kernel.configs[2]) == [0.0] * 3
    assert runtime.asked[0][0][2] == 4


def test_a_kernel_that_is_only_compiled_is_not_tuned() -> None:
    runtime = Runtime()
    kernel = bound(runtime)
    assert len(kernel.prune_configs({"grid": (1,), "warmup": True})) == 3
    assert not runtime.asked


def test_where_the_lab_does_not_choose_triton_does() -> None:
    kernel = bound(Runtime(chooses=False))
    assert kernel.prune_configs({"grid": (1,)}) == kernel.configs


def test_declared_accumulators_are_zero_after_the_choice() -> None:
    kernel = bound(Runtime(), reset_to_zero=["out_ptr"])
    kernel.prune_configs({"grid": (1,)})
    assert kernel.nargs["out_ptr"].tolist() == [0.0] * 4


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"num_warps": 2}])
def test_without_a_gpu_no_times_are_told_of(
    options: dict[str, int], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[dict[str, Any]] = []
    monkeypatch.setattr(triton.knobs.autotuning, "print", True)
    if hasattr(triton.knobs.autotuning, "listener"):  # since Triton 3.7
        monkeypatch.setattr(triton.knobs.autotuning, "listener", lambda **facts: told.append(facts))
    with kernellab.Lab(target="cuda:90", store=":memory:") as lab:
        kernel = lab.bind(triton.autotune(blocks(16, 64, 128), key=["n"], reset_to_zero=["out_ptr"])(scale))
        x, out = torch.ones(40), torch.ones(40)
        for _ in range(2):
            kernel[lambda meta: (triton.cdiv(40, meta["BLOCK"]),)](x, out, 40, **options)
    assert kernel.best_config.kwargs == {"BLOCK": 16}
    assert torch.equal(out, 2 * x)
    assert not hasattr(kernel, "configs_timings")
    assert not told
    assert "best config" not in capsys.readouterr().out


@pytest.mark.slow
def test_without_a_gpu_the_first_config_that_fits_is_launched() -> None:
    with kernellab.Lab(target="cuda:90", store=":memory:") as lab:
        many = [triton.Config({"BLOCK": 16}, num_warps=warps) for warps in (64, 2, 4)]
        kernel = lab.bind(triton.autotune(many, key=["n"])(scale))
        x, out = torch.ones(40), torch.zeros(40)
        kernel[(3,)](x, out, 40)
    assert kernel.best_config.num_warps == 2
    assert torch.equal(out, 2 * x)
