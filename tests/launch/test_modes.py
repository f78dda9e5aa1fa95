"""What the lab does for itself in a launch: no mode of the user sees it, and dynamo compiles none of it."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from torch.utils._python_dispatch import TorchDispatchMode
from triton import knobs

import kernellab
from tests.labs import lab_fixture


@triton.jit
def increment(x_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(x_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n) + 1, mask=offsets < n)


CONFIGS = [triton.Config({"BLOCK": block}, pre_hook=lambda named: named["x_ptr"].zero_()) for block in (8, 16)]
lab = lab_fixture()


class OperationLog(TorchDispatchMode):
    """Notes every operation of torch."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.operations.append(str(func))
        return func(*args, **(kwargs or {}))


def kept(lab: kernellab.Lab, kernel: Any) -> Any:
    """Return a bound kernel whose launches the lab keeps, and so reads the arguments of."""
    bound = lab.bind(kernel)
    lab.kernels.add(bound)
    return bound


def test_a_first_launch_sends_no_operations_through_a_mode_of_the_user(lab: kernellab.Lab) -> None:
    kernel, x = kept(lab, increment), torch.zeros(8)
    with OperationLog() as log:
        kernel[(1,)](x, 8, BLOCK=8)
        kernel[(1,)](x, 8, BLOCK=8)
    assert not log.operations
    assert x.tolist() == [2.0] * 8


@pytest.mark.slow
def test_checks_of_a_launch_send_no_operations_through_a_mode_of_the_user(lab: kernellab.Lab) -> None:
    kernel, x = lab.bind(increment), torch.zeros(8)
    with lab.checking(), OperationLog() as log:
        kernel[(1,)](x, 8, BLOCK=16)
    with lab.checking(), OperationLog() as other, pytest.raises(kernellab.errors.CheckFailed):
        lab.bind(store_nan)[(1,)](x, BLOCK=8)
    assert not log.operations + other.operations


@triton.jit
def store_nan(x_ptr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(x_ptr + offsets, offsets.to(tl.float32) * float("nan"))


def test_a_mode_sees_what_hooks_of_the_user_do(lab: kernellab.Lab) -> None:
    kernel, x = kept(lab, triton.autotune(configs=CONFIGS, key=["n"])(increment)), torch.ones(8)
    with OperationLog() as log:
        kernel[(1,)](x, 8)
    assert "aten.zero_.default" in log.operations
    assert set(log.operations) == {"aten.zero_.default"}


@pytest.mark.slow
@pytest.mark.parametrize("launch", ["grid", "run", "late"])
def test_dynamo_compiles_nothing_of_the_lab_after_a_graph_break(lab: kernellab.Lab, launch: str) -> None:
    kernel, x = kept(lab, increment), torch.zeros(8)
    block = {"grid": 32, "run": 64, "late": 128}[launch]
    launcher = kernel[(1,)]

    def function(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        torch._dynamo.graph_break()
        if launch == "run":
            kernel.run(y, 8, BLOCK=block, grid=(1,), warmup=False)
        elif launch == "late":
            launcher(y, 8, BLOCK=block)
        else:
            kernel[(1,)](y, 8, BLOCK=block)
        return y * 2

    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.compile(function, backend="eager")(x).tolist() == [4.0] * 8
    assert sum(torch._dynamo.utils.counters["graph_break"].values()) <= 2, "that of the function, and the launch"
    assert torch._dynamo.utils.counters["frames"]["total"] <= 3


def test_the_listener_of_triton_is_told_of_each_compile(lab: kernellab.Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[dict[str, Any]] = []
    monkeypatch.setattr(knobs.compilation, "listener", lambda **given: told.append(given))
    kernel, x = lab.bind(increment), torch.zeros(8)
    for _ in range(2):
        kernel[(1,)](x, 7, BLOCK=256)
    (given,) = told
    assert given["src"].fn is kernel
    assert given["metadata"]["name"] == "increment"
    assert any(name.endswith(".ttir") for name in given["metadata_group"])
    if not given["cache_hit"]:
        assert {"ttir", "ttgir", "llir"} <= dict(given["times"].lowering_stages).keys()
        assert given["times"].total > 0
