"""Host descriptors through the launch path, run by the interpreter."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

import kernellab


@triton.jit
def doubled_tile(source_desc, target_desc, ROWS: tl.constexpr):
    at = tl.program_id(0) * ROWS
    target_desc.store([at, 0], source_desc.load([at, 0]) * 2)


@pytest.mark.slow
def test_descriptors_launch_on_the_slow_and_on_the_known_path(lab: kernellab.Lab) -> None:
    lab.launches.activate()
    bound, source = lab.bind(doubled_tile), torch.rand(64, 32)
    for _ in range(4):
        target = torch.zeros_like(source)
        tiles = (TensorDescriptor.from_tensor(tensor, [16, 32]) for tensor in (source, target))
        bound[(4,)](*tiles, ROWS=16)
        torch.testing.assert_close(target, source * 2)


@pytest.mark.slow
def test_a_descriptor_of_another_block_is_another_specialization(lab: kernellab.Lab) -> None:
    lab.launches.activate()
    bound, source = lab.bind(doubled_tile), torch.rand(64, 32)
    handles = []
    for rows in (16, 32, 16, 32, 16, 32):
        target = torch.zeros_like(source)
        tiles = (TensorDescriptor.from_tensor(tensor, [rows, 32]) for tensor in (source, target))
        handles.append(bound[(64 // rows,)](*tiles, ROWS=rows))
        torch.testing.assert_close(target, source * 2)
    assert len({handle.hash for handle in handles}) == 2
    assert handles[4] is handles[0]
    assert handles[5] is handles[1]
