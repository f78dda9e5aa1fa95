"""A harvest on a GPU: sampled times, CUDA graphs, torch.compile."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import triton

from kernellab import Lab
from tests.harvest.kernels import add, add_kernel, scale, scale_kernel
from tests.labs import lab_fixture

pytestmark = pytest.mark.gpu
lab = lab_fixture(open_lab=Lab)


def test_device_times_are_sampled_and_shared(lab: Lab) -> None:
    with lab.harvest() as seen:
        for _ in range(100):
            add(1 << 24, device="cuda")
            scale(1 << 12, device="cuda")
    by_kernel = {row["kernel"]: row for row in seen.rows()}
    large, small = by_kernel["add_kernel"], by_kernel["scale_kernel"]
    assert large["basis"] == small["basis"] == "sampled"
    assert 1 <= large["samples"] <= 10
    assert large["ms"] > small["ms"] > 0
    assert large["times_bound"] > 0.8


def test_bound_kernels_are_timed_on_their_fast_path(lab: Lab) -> None:
    kernel = lab.bind(add_kernel)
    for _ in range(5):
        add(1 << 20, kernel=kernel, device="cuda")
    with lab.harvest() as seen:
        for _ in range(50):
            add(1 << 20, kernel=kernel, device="cuda")
    (case,) = seen.record.cases
    assert case.launches == 50
    assert case.samples >= 1


def test_a_graph_counts_with_its_replays(lab: Lab) -> None:
    x, out = torch.rand(1 << 20, device="cuda"), torch.empty(1 << 20, device="cuda")

    def work() -> None:
        scale_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel())

    work()
    with lab.harvest() as seen:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            work()
            work()
        for _ in range(30):
            graph.replay()
    (case,) = seen.record.cases
    assert (case.launches, case.captured, case.replayed) == (0, 2, 60)
    (row,) = seen.rows()
    assert row["basis"] == "graph"
    assert row["ms"] > 0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.jit, which Inductor imports
@pytest.mark.parametrize("inductor", [False, True])
def test_kernels_under_torch_compile_are_counted(lab: Lab, inductor: bool) -> None:
    def layer(x: torch.Tensor) -> torch.Tensor:
        y, out = torch.sin(x) * 2, torch.empty_like(x)
        add_kernel[(triton.cdiv(x.numel(), 64),)](x, y, out, x.numel(), 0.5, BLOCK=64)
        return torch.cos(out)

    torch._dynamo.reset()
    compiled: Any = torch.compile(layer)
    x = torch.rand(4096, device="cuda")
    with lab.harvest(inductor=inductor) as seen:
        for _ in range(10):
            compiled(x)
    origins = {case.origin for case in seen.record.cases}
    own = [case for case in seen.record.cases if case.kernel.startswith("add_kernel")]
    assert sum(case.launches for case in own) == 10
    assert origins == ({"compile", "inductor"} if inductor else {"compile"})
