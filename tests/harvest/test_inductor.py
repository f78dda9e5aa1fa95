"""Launches of torch.compile: its own autotuner, with launchers that run nothing."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from triton import Config

from kernellab._triton.launch_hooks import LaunchedKernel, Origin, _when_imported, launched_kernel, observe_launches
from kernellab.harvest.counting import LaunchCounter
from tests.harvest.kernels import add_kernel

pytestmark = pytest.mark.slow


class NoGraphs:
    """No graph is captured."""

    running: dict[Any, Any] = {}

    def capturing(self) -> Counter[Any] | None:
        return None


def settled_autotuner(kind: str) -> Any:
    """An autotuner of Inductor that has chosen its config, as after its first launch."""
    from torch._inductor.runtime import triton_heuristics
    from torch._inductor.runtime.hints import HeuristicType

    tuner = object.__new__(triton_heuristics.CachingAutotuner)
    launched: list[Any] = []
    tuner.fn = add_kernel
    tuner.heuristic_type = HeuristicType[kind]
    tuner.configs = [Config({"BLOCK": 64}), Config({"BLOCK": 128})]
    tuner.launchers = [SimpleNamespace(config=Config({"BLOCK": 64}, num_warps=2), cache_hash="abc")]
    signature = {"x_ptr": "*fp32", "y_ptr": "*fp32", "out_ptr": "*fp32", "n": "i32", "alpha": "fp32"}
    tuner.device_props = SimpleNamespace(type="cuda", cc=90, index=0)
    tuner.triton_meta = {"signature": signature, "constants": {"BLOCK": 64}, "device": 0, "device_type": "cuda"}
    names = ["_grid_0", "_grid_1", "_grid_2"]
    tuner.inductor_meta = {"grid_type": "FixedGrid", "fixed_grid": names, "extra_launcher_args": names}
    tuner._cached_launcher = lambda *args, stream: launched.append(args)
    tuner.launched = launched
    return tuner


@pytest.mark.parametrize("inductor", [False, True])
def test_kernels_of_the_user_are_counted_and_those_of_inductor_where_asked(inductor: bool) -> None:
    counter = LaunchCounter(NoGraphs())
    tuners = [settled_autotuner("USER_AUTOTUNE"), settled_autotuner("POINTWISE")]
    args = (torch.rand(100), torch.rand(100), torch.empty(100), 100, 0.5, 2, 1, 1)
    with observe_launches(counter, inductor=inductor):
        for tuner in tuners:
            tuner.run(*args, stream=0)
            tuner.run(*args, stream=0)
    tuners[0].run(*args, stream=0)
    assert [len(tuner.launched) for tuner in tuners] == [3, 2]
    origins = [(case.kernel.origin, case.launches) for case in counter.cases]
    assert origins == [(Origin.COMPILE, 2), (Origin.INDUCTOR, 2)][: 1 + inductor]
    launch = counter.cases[0].launch
    assert launch.grid == (2, 1, 1)
    assert {a.name: a.value for a in launch.arguments if a.kind == "scalar"} == {"n": 100, "alpha": 0.5, "BLOCK": 64}


def test_launches_of_other_grids_are_other_cases() -> None:
    counter, tuner = LaunchCounter(NoGraphs()), settled_autotuner("USER_AUTOTUNE")
    args = (torch.rand(100), torch.rand(100), torch.empty(100), 100, 0.5)
    with observe_launches(counter):
        for width in (2, 1, 2):
            tuner.run(*args, width, 1, 1, stream=0)
    assert [(case.launch.grid, case.launches) for case in counter.cases] == [((2, 1, 1), 2), ((1, 1, 1), 1)]


def test_an_autotuner_of_inductor_is_described_with_its_config() -> None:
    kernel: LaunchedKernel = launched_kernel(settled_autotuner("USER_AUTOTUNE"))
    assert kernel.names == ("x_ptr", "y_ptr", "out_ptr", "n", "alpha")
    assert kernel.config_names == ("BLOCK",)
    assert kernel.options["num_warps"] == 2


def test_a_module_is_observed_from_its_import_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "imported_late.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    seen: list[int] = []

    def patch() -> Any:
        seen.append(sys.modules["imported_late"].value)
        return pytest.MonkeyPatch.context()

    finders = list(sys.meta_path)
    with _when_imported("imported_late", patch):
        assert not seen
        import imported_late  # type: ignore[import-not-found]  # noqa: F401

        assert seen == [1]
    assert sys.meta_path == finders
    sys.modules.pop("imported_late")
    with _when_imported("imported_late", patch):
        pass
    assert sys.meta_path == finders
