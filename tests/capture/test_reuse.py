"""Memory of dying values: copies that are not made, operations in place, inputs that the caller donates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import kernellab
from kernellab.capture.plan import MemoryPlan, in_place_variant, out_variant, plan_of
from kernellab.capture.program import Program
from kernellab.errors import UsageError
from tests import samples
from tests.capture.test_export import exported
from tests.capture.test_plan import executed

N = 1000


def chain(lab: kernellab.Lab) -> Program:
    """Return a chain of four launches, each with a buffer of 4,000 bytes of its own."""
    scale, x = lab.bind(samples.scale_kernel), torch.ones(N)
    with lab.capture() as program:
        for _ in range(4):
            out = torch.empty(N)
            scale[(8,)](x, out, N, BLOCK=128)
            x = out
        program.returns(out)
    return program


def run_text(path: Path) -> str:
    text = path.read_text()
    return text[text.index("def run(") : text.index("def make_inputs")]


def test_out_variants_are_those_with_the_same_arguments_and_an_implementation_of_their_own() -> None:
    assert str(out_variant("aten.mm.default")) == "aten.mm.out"
    assert str(out_variant("aten.sum.dim_IntList")) == "aten.sum.IntList_out"
    assert str(out_variant("aten.sigmoid_backward.default")) == "aten.sigmoid_backward.grad_input"
    assert out_variant("aten.clone.default") is None
    assert out_variant("aten.native_layer_norm.default") is None
    assert str(in_place_variant("aten.relu.default")) == "aten.relu_.default"
    assert in_place_variant("aten.mm.default") is None


def test_a_functional_chain_needs_as_much_as_the_chain_and_makes_no_copy(lab: kernellab.Lab, tmp_path: Path) -> None:
    program = chain(lab)
    functional = program.functionalise()
    assert program.plan.peak_bytes == functional.plan.peak_bytes == 8000
    functional.export(tmp_path / "chain.py")
    assert "layout_copy(" not in (tmp_path / "chain.py").read_text()
    assert run_text(tmp_path / "chain.py").count("torch.empty(") == 2


@pytest.mark.slow
def test_a_functional_chain_gives_the_same_alone(lab: kernellab.Lab, tmp_path: Path) -> None:
    result = exported(chain(lab).functionalise(), tmp_path)
    assert result.returncode == 0, result.stderr
    assert "equal" in result.stdout


def test_an_input_and_a_value_that_is_used_again_are_copied(lab: kernellab.Lab, tmp_path: Path) -> None:
    scale, x, y = lab.bind(samples.scale_kernel), torch.ones(N), torch.zeros(N)
    with lab.capture() as program:
        scale[(8,)](x, y, N, BLOCK=128)
        before = y * 1
        kept = before.clone()
        scale[(8,)](x, before, N, BLOCK=128)
        out = before + kept
        program.returns(out, y)
    functional = program.functionalise()
    functional.export(tmp_path / "copied.py")
    text = run_text(tmp_path / "copied.py")
    assert text.count("= layout_copy(") == 1, "of the input alone"
    assert functional.plan.overwritten == ()
    given = torch.zeros(N)
    torch.testing.assert_close(functional.run(x=x, y=given)["out"], out)
    assert not given.any()


def test_elementwise_operations_write_over_what_dies(lab: kernellab.Lab) -> None:
    x, w = torch.linspace(-1, 1, 16).reshape(4, 4), torch.linspace(0, 1, 16).reshape(4, 4)
    with lab.capture() as program:
        out = torch.softmax(torch.relu(x @ w) * w + x, -1).t().exp()
        program.returns(out)
    plan = program.plan
    assert (plan.peak_bytes, len(plan.allocations)) == (64, 1)
    torch.testing.assert_close(executed(program.tape, plan, {"x": x, "w": w})["out"], out)


def test_nothing_is_written_over_that_a_view_shows_in_another_order(lab: kernellab.Lab) -> None:
    x = torch.arange(16.0).reshape(4, 4)
    with lab.capture() as program:
        y = x * 2
        out = y + y.t()
        del y
        program.returns(out)
    assert program.plan.peak_bytes == 128
    torch.testing.assert_close(executed(program.tape, program.plan, {"x": x})["out"], out)


def donating(program: Program, *names: str) -> MemoryPlan:
    return plan_of(program.tape, [i for i in program.tape.inputs if program.tape.values[i].name in names])


def test_outputs_lie_in_donated_inputs_of_their_layout(lab: kernellab.Lab, tmp_path: Path) -> None:
    program = chain(lab).functionalise()
    assert program.planned(["x"]).peak_bytes == 4000
    assert program.planned(["x"]) == donating(program, "x")
    program.export(tmp_path / "donated.py", donated=["x"])
    assert "What x hold is lost" in run_text(tmp_path / "donated.py")
    with pytest.raises(UsageError, match="expected one of x"):
        program.planned(["z"])


def test_a_donated_input_is_overwritten_where_it_is_used_no_more(lab: kernellab.Lab) -> None:
    x, y = torch.linspace(0, 1, 16).reshape(4, 4), torch.linspace(1, 2, 16).reshape(4, 4)
    with lab.capture() as program:
        first = x @ y
        second = first @ y
        out = (second + first) * 2
        program.returns(out)
    plan = program.planned(["x"])
    assert (program.plan.peak_bytes, plan.peak_bytes) == (128, 64)
    assert plan.overwritten == ("x",)
    given: dict[str, Any] = {"x": x.clone(), "y": y}
    torch.testing.assert_close(executed(program.tape, plan, given)["out"], out)
    assert not torch.equal(given["x"], x)


def test_a_constant_of_the_program_is_its_own_to_write_to(lab: kernellab.Lab) -> None:
    x = torch.ones(3)
    with lab.capture() as program:
        steps = torch.tensor([1.0, 2.0, 4.0])
        out = steps * x
        program.returns(out)
    assert program.plan.peak_bytes == 0
    assert program.plan.overwritten == ("steps",)
    given = {"x": x, "steps": torch.tensor([1.0, 2.0, 4.0])}
    torch.testing.assert_close(executed(program.tape, program.plan, given)["out"], out)
