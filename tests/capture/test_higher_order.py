"""Operators of torch that take functions, named tuples, and numbers drawn at random, inside of a capture."""

from __future__ import annotations

import collections
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

import kernellab
from kernellab.errors import UsageError
from tests import samples

Pair = collections.namedtuple("Pair", "left right")


@triton.jit
def add_pair(pair, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    left = tl.load(pair[0] + offsets, mask=offsets < n)
    tl.store(out_ptr + offsets, left * 2 + tl.load(pair[1] + offsets, mask=offsets < n), mask=offsets < n)


def test_an_operator_that_takes_functions_is_refused_with_its_line(lab: kernellab.Lab) -> None:
    x = torch.arange(4.0)
    with pytest.raises(UsageError, match=r"test_higher_order.py, line \d+ calls cond of torch"), lab.capture():
        torch.ops.higher_order.cond(x.sum() > 0, torch.sin, torch.cos, (x,))


@pytest.mark.slow
def test_a_launch_of_wrap_triton_is_recorded(lab: kernellab.Lab) -> None:
    kernel, x = torch.library.wrap_triton(lab.bind(samples.scale_kernel)), torch.arange(100.0)
    with lab.capture() as program:
        out = torch.empty_like(x)
        kernel[(1,)](x, out, 100, BLOCK=128)
    torch.testing.assert_close(program(-x), 3 * -x + 3)
    assert out.shape == x.shape


@pytest.mark.slow
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_launch_takes_a_named_tuple_of_tensors(lab: kernellab.Lab, dynamic: bool) -> None:
    kernel, x = lab.bind(add_pair), torch.arange(8.0)
    with lab.capture(dynamic=dynamic) as program:
        out = torch.empty_like(x)
        kernel[(1,)](Pair(x, x + 1), out, x.shape[0], BLOCK=8)
    for each in (program, program.functionalise()):
        torch.testing.assert_close(each(x * 2), 6 * x + 1)
    assert out.shape == x.shape


def test_a_number_drawn_at_random_is_refused_where_it_is_read(lab: kernellab.Lab) -> None:
    words = r"line \d+ reads \d+, a number that aten.randint.* draws at random"
    with pytest.raises(UsageError, match=words), lab.capture():
        torch.randint(0, 1000, ()).add(1).item()


def test_a_captured_function_that_reads_another_value_is_captured_again(lab: kernellab.Lab) -> None:
    def function(x: torch.Tensor) -> Any:
        kept = torch.nn.functional.dropout(x, 0.5)
        if x.max().item() > 10:
            raise ValueError("too large")
        return kept + x.max().item()

    captured, x = lab.capture(function), torch.arange(8.0)
    for factor in (1.0, 0.5, 1.0):
        torch.manual_seed(3)
        found = captured(x * factor)
        torch.manual_seed(3)
        torch.testing.assert_close(found, function(x * factor))
    with pytest.raises(ValueError, match="too large"):
        captured(x * 100)
    assert len(captured.programs) == 2
    assert "reads 3.5 of a tensor" in captured.reasons[1]


def test_a_captured_function_that_has_changed_its_input_does_not_begin_anew(lab: kernellab.Lab) -> None:
    @lab.capture
    def function(x: torch.Tensor) -> torch.Tensor:
        x += 1
        return x * x.max().item()

    function(torch.ones(3))
    with pytest.raises(UsageError, match=r"reads 1\.0 of a tensor"):
        function(torch.zeros(3))
