"""Tensor descriptors in programs: one of several arguments is built once, from its tensor, at each run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

import kernellab
from kernellab.capture.node_functions import descriptor
from tests.capture.test_export import exported


@triton.jit
def sum_of_tiles(left_desc, right_desc, out_desc, ROWS: tl.constexpr):
    at = tl.program_id(0) * ROWS
    out_desc.store([at, 0], left_desc.load([at, 0]) + right_desc.load([at, 0]))


def recorded(lab: kernellab.Lab, *, in_place: bool = False) -> Any:
    """Record two launches that take one descriptor of ``x`` four times, and in place a fifth time."""
    lab.launches.activate()
    bound, x = lab.bind(sum_of_tiles), torch.rand(32, 16)
    with lab.capture() as program:
        whole = TensorDescriptor.from_tensor(x, [16, 16])
        for _ in range(2):
            out = x if in_place else torch.empty_like(x)
            bound[(2,)](whole, whole, whole if in_place else TensorDescriptor.from_tensor(out, [16, 16]), ROWS=16)
    return program


@pytest.mark.slow
def test_a_descriptor_of_several_arguments_is_built_once(lab: kernellab.Lab) -> None:
    program = recorded(lab)
    nodes = program.graph.graph.find_nodes(op="call_function", target=descriptor)
    assert sorted(str(node.args[0]) for node in nodes) == ["out", "out_1", "x"]


@pytest.mark.slow
@pytest.mark.parametrize("in_place", [False, True])
def test_each_run_builds_descriptors_of_the_tensors_that_it_is_given(lab: kernellab.Lab, in_place: bool) -> None:
    program = recorded(lab, in_place=in_place)
    name = program.outputs[-1]
    for each in (program, program.functionalise()):
        for _ in range(2):
            x = torch.rand(32, 16)
            expected = x * 4 if in_place else x * 2
            torch.testing.assert_close(each.run(x=x)[name], expected)


@pytest.mark.slow
@pytest.mark.parametrize("functional", [False, True])
def test_a_module_builds_a_descriptor_once_and_frees_it_with_its_tensor(
    lab: kernellab.Lab, tmp_path: Path, functional: bool
) -> None:
    program = recorded(lab, in_place=True)
    result = exported(program.functionalise() if functional else program, tmp_path)
    assert result.returncode == 0, result.stderr
    text = (tmp_path / "exported.py").read_text()
    assert text.count("= TensorDescriptor(") == (2 if functional else 1), "one for each memory"
    assert "del descriptor_0" in text
