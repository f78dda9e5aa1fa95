"""Functions that are captured again where no guards hold: so many programs at most, each right for its calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import kernellab
from kernellab.errors import UsageError
from tests.capture.kernels import scaled
from tests.capture.test_program import accumulate_kernel


def branching(lab: kernellab.Lab) -> Callable[..., Any]:
    def function(x: Any, factor: float = 2.0) -> Any:
        return scaled(lab, x) * factor if x.shape[0] > 50 else x - factor

    return function


def is_right(captured: Any, *args: Any) -> None:
    torch.testing.assert_close(captured(*args), captured.function(*args))


@pytest.mark.slow
def test_sizes_outside_of_the_guards_are_captured_again_and_the_guard_is_told(lab: kernellab.Lab) -> None:
    captured = lab.capture(branching(lab), dynamic=True)
    for size in (100, 300, 77, 20, 5, 100):
        is_right(captured, torch.rand(size))
    assert len(captured.programs) == 2
    assert captured.reasons[0] == "", "that of the first program, which ran last"
    assert "it requires x.shape[0] > 50" in captured.reasons[1]
    assert repr(captured) == "<CapturedFunction function: 2 of 8 programs>"


@pytest.mark.slow
def test_programs_beyond_the_limit_go_the_one_that_rested_longest_first(lab: kernellab.Lab) -> None:
    captured = lab.capture(lambda x: scaled(lab, x), max_programs=2)
    for size in (10, 20, 10, 30):
        is_right(captured, torch.rand(size))
    assert [program.tape.values[program.tape.inputs[0]].layout.shape for program in captured.programs] == [(30,), (10,)]


@pytest.mark.slow
def test_other_arguments_modes_and_dtypes_have_programs_of_their_own(lab: kernellab.Lab) -> None:
    captured, x = lab.capture(branching(lab), dynamic=True), torch.rand(100)
    for call in ((x,), (x, 3.0), (x.double(),), (x, float("nan"))):
        torch.testing.assert_close(captured(*call), captured.function(*call), equal_nan=True)
    assert len(captured.programs) == 4
    with torch.autocast("cpu", torch.bfloat16):
        is_right(captured, x)
    assert len(captured.programs) == 5


@pytest.mark.slow
def test_arguments_that_share_memory_are_not_taken_for_others(lab: kernellab.Lab) -> None:
    def function(x: Any, y: Any) -> Any:
        x.add_(1)
        return y * 2

    captured = lab.capture(function, dynamic=True)
    for make in (lambda x: (x, x), lambda x: (x, x.clone()), lambda x: (x, x[1:])):
        torch.testing.assert_close(captured(*make(torch.arange(9.0))), function(*make(torch.arange(9.0))))
    assert len(captured.programs) == 3
    x = torch.arange(9.0)
    with pytest.raises(UsageError, match="arguments overlap and neither contains the other"):
        captured(x[:-1], x[1:])


@pytest.mark.slow
def test_results_keep_their_structure_and_changed_inputs_are_changed(lab: kernellab.Lab) -> None:
    def function(total: Any, given: Any) -> Any:
        lab.bind(accumulate_kernel)[(1,)](given["x"], total, total.shape[0], BLOCK=128)
        return {"total": total, "twice": (total * 2, total.shape[0], "text", None), "again": total}

    captured = lab.capture(function, dynamic=True)
    for size in (100, 60, 100):
        total, x = torch.ones(size), torch.rand(size)
        found = captured(total, {"x": x})
        assert found["total"] is total
        assert found["again"] is total
        torch.testing.assert_close(total, 1 + x)
        torch.testing.assert_close(found["twice"][0], total * 2)
        assert found["twice"][1:] == (size, "text", None)
    assert len(captured.programs) == 2, "a size that is returned is fixed"


@pytest.mark.slow
def test_parameters_are_looked_up_under_their_names(lab: kernellab.Lab) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
    captured, x = lab.capture(model, dynamic=True), torch.rand(5, 4)
    first = captured(x)
    assert not first.requires_grad
    model[0].weight = torch.nn.Parameter(torch.eye(4))
    torch.testing.assert_close(captured(x), model(x).detach())
    torch.testing.assert_close(captured(x[:3]), model(x[:3]).detach())
    assert len(captured.programs) == 1


def test_a_module_that_trains_is_not_taken_for_one_that_does_not(lab: kernellab.Lab) -> None:
    model, x = torch.nn.BatchNorm1d(4), torch.rand(7, 4)
    captured = lab.capture(model)
    assert not torch.equal(captured(x), captured.function.eval()(x))
    is_right(captured, x)


def test_an_array_is_refused_since_it_can_change_unseen(lab: kernellab.Lab) -> None:
    with pytest.raises(UsageError, match="An argument is a ndarray, which can change unseen; pass a tensor"):
        lab.capture(lambda x, a: x * float(a[0]))(torch.ones(3), np.ones(3))


def test_a_tensor_that_no_call_could_find_again_is_refused(lab: kernellab.Lab) -> None:
    hidden = iter([torch.ones(3)])
    with pytest.raises(UsageError, match=r"a tensor of shape \(3,\) that is not an argument.*Pass it"):
        lab.capture(lambda x: x + next(hidden))(torch.ones(3))


@pytest.mark.slow
def test_a_captured_function_is_itself_where_it_is_traced_or_captured(lab: kernellab.Lab) -> None:
    captured, x = lab.capture(lambda y: scaled(lab, y) * 2, dynamic=True), torch.rand(100)
    module = make_fx(captured)(x)
    assert [n.target for n in module.graph.nodes if "triton" in str(n.target)]
    compiled = torch.compile(lab.capture(lambda y: y * 2), fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(x), x * 2)
    with lab.capture(dynamic=True) as program:
        program.returns(captured(x))
    torch.testing.assert_close(program(x[:60]), captured(x[:60]))
    assert len(captured.programs) == 1


def test_what_is_no_function_or_limit_is_refused(lab: kernellab.Lab) -> None:
    for call, words in (((3,), "function is 3"), ((abs, 0), "max_programs is 0")):
        with pytest.raises(UsageError, match=words):
            lab.capture(call[0], **({"max_programs": call[1]} if len(call) > 1 else {}))
