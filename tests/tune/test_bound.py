"""Which config a bound autotuner is left with, for a lab that claims to have a GPU."""

from __future__ import annotations

from typing import Any

import torch
import triton

from kernellab._triton.bound import bound_copy
from kernellab.launch.recording import Switch
from tests.tune.test_tuning import blocks, scale


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
