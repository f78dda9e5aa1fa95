"""Operators of torch that take functions, named tuples, and numbers drawn at random, inside of a capture."""

from __future__ import annotations

import collections
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from torch._higher_order_ops import while_loop

import kernellab
from kernellab.errors import UsageError
from tests import samples

Pair = collections.namedtuple("Pair", "left right")


@triton.jit
def add_pair(pair, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    left = tl.load(pair[0] + offsets, mask=offsets < n)
    tl.store(out_ptr + offsets, left * 2 + tl.load(pair[1] + offsets, mask=offsets < n), mask=offsets < n)


def by_sign(x: torch.Tensor) -> Any:
    return torch.cond(x.sum() > 0, lambda y: torch.sin(y) * 2, torch.cos, (x,))


def by_rounds(x: torch.Tensor) -> Any:
    rounds = torch.zeros((), dtype=torch.int64)
    return while_loop(lambda n, y: y.sum() < 100, lambda n, y: (n + 1, y * 2), (rounds, x))[1]


@pytest.mark.slow
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(("function", "other"), [(by_sign, -1.0), (by_rounds, 5.0)])
def test_a_branch_and_a_loop_of_torch_are_recorded_as_the_data_decides(
    lab: kernellab.Lab, function: Any, other: float, dynamic: bool
) -> None:
    x = torch.arange(1.0, 5.0)
    with lab.capture(dynamic=dynamic) as program:
        program.returns(function(x))
    for each in (program, program.functionalise()):
        torch.testing.assert_close(each(x * 1.01), function(x * 1.01))
        with pytest.raises(UsageError, match=r"test_higher_order.py, line \d+ reads (True|False) of a tensor"):
            each(x * other)
    captured = lab.capture(function, dynamic=dynamic)
    for factor in (1.0, other, 1.01, other):
        torch.testing.assert_close(captured(x * factor), function(x * factor))
    assert len(captured.programs) == 2


def test_another_operator_that_takes_functions_is_refused_with_its_line(lab: kernellab.Lab) -> None:
    x = torch.arange(4.0)
    with pytest.raises(UsageError, match=r"test_higher_order.py, line \d+ calls map_impl of torch"), lab.capture():
        torch.ops.higher_order.map_impl(lambda y: (y * 2,), (x,), ())


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


def test_a_number_drawn_at_random_that_becomes_a_plain_one_is_refused_where_it_is_read(lab: kernellab.Lab) -> None:
    words = r"line \d+ reads \d+, a number that aten.randint.* draws at random"
    with pytest.raises(UsageError, match=words), lab.capture():
        int(torch.randint(0, 1000, ()).add(1))


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
