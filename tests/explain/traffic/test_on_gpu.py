"""Traffic on a machine with a GPU: the same as without one, for tensors that lie on the device."""

from __future__ import annotations

import pytest
import torch

import kernellab
from benchmarks import traffic_kernels
from benchmarks.traffic_launch import on_device, permuted
from tests.labs import shared_lab

pytestmark = pytest.mark.gpu


def test_tensors_on_the_device_are_read_where_they_decide() -> None:
    x, index, y = torch.rand(4096), permuted(4096), torch.zeros(4096)
    arguments = [on_device(each, "cuda") for each in (x, index, y)]
    with kernellab.Lab(store=":memory:") as here, shared_lab(str(here.target), ":memory:") as offline:
        on_gpu = here.traffic(traffic_kernels.traffic_gather, (4,), *arguments, 4096, BLOCK=1024)
        on_cpu = offline.traffic(traffic_kernels.traffic_gather, (4,), x, index, y, 4096, BLOCK=1024)
    counts = [[(row.argument, row.requests, row.sectors) for row in each.rows] for each in (on_gpu, on_cpu)]
    assert counts[0] == counts[1]
    assert not arguments[2].any()
