"""The plan of buffers: random lifetimes and programs, copies that are not made, operations in place, donated inputs."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import kernellab
from kernellab.capture.plan import (
    Allocation,
    Buffer,
    MemoryPlan,
    buffers_of,
    in_place_variant,
    live_bytes,
    make_plan,
    out_variant,
    plan_of,
)
from kernellab.capture.program import Program
from kernellab.capture.statements import statements
from kernellab.capture.tape import Tape
from kernellab.errors import UsageError
from tests import samples
from tests.capture.test_export import exported

STEPS = 12


@st.composite
def lifetimes(draw: st.DrawFn) -> list[Buffer]:
    found = []
    for number in range(draw(st.integers(0, 20))):
        first = draw(st.integers(0, STEPS - 1))
        last = draw(st.integers(first, STEPS))
        size = draw(st.sampled_from((0, 4, 8, 8, 64)))
        kind = draw(st.sampled_from(("float32 cpu", "float32 cpu", "int32 cpu")))
        found.append(Buffer(f"b{number}", size, kind, first, last, draw(st.booleans())))
    return found


@pytest.mark.slow
@given(lifetimes())
def test_no_two_live_buffers_lie_in_one_allocation(buffers: list[Buffer]) -> None:
    plan = make_plan(buffers, STEPS)
    by_name = {buffer.name: buffer for buffer in buffers}
    assert sorted(name for a in plan.allocations for name in a.buffers) == sorted(by_name)
    for allocation in plan.allocations:
        members = [by_name[name] for name in allocation.buffers]
        assert all(before.last < after.first for before, after in itertools.pairwise(members))
        assert {(b.size_bytes, b.kind) for b in members} == {(allocation.size_bytes, allocation.kind)}
        assert len(members) == 1 or not any(b.fixed for b in members)
        assert (allocation.first, allocation.last) == (members[0].first, members[-1].last)


@pytest.mark.slow
@given(lifetimes())
def test_a_plan_needs_no_more_than_freeing_each_buffer_after_its_last_use(buffers: list[Buffer]) -> None:
    plan = make_plan(buffers, STEPS)
    alone = [Allocation(b.size_bytes, b.kind, (b.name,), b.first, b.last) for b in buffers]
    assert plan.peak_bytes == max(live_bytes(alone, STEPS), default=0)
    assert plan.peak_bytes <= plan.unplanned_bytes == sum(b.size_bytes for b in buffers)


def test_a_dead_buffer_is_taken_again_and_one_that_would_raise_the_peak_is_not() -> None:
    chain = [Buffer(f"b{i}", 8, "float32 cpu", i, i + 1) for i in range(4)]
    plan = make_plan(chain, 4)
    assert [a.buffers for a in plan.allocations] == [("b0", "b2"), ("b1", "b3")]
    assert (plan.peak_bytes, plan.unplanned_bytes) == (16, 32)
    assert len(plan.buffers) - len(plan.allocations) == 2, "two buffers lie where others were"
    apart = [
        Buffer("early", 8, "float32 cpu", 0, 1),
        Buffer("large", 64, "float32 cpu", 2, 3),
        Buffer("late", 8, "float32 cpu", 4, 5),
    ]
    assert [len(a.buffers) for a in make_plan(apart, 5).allocations] == [1, 1, 1], "holding 8 bytes raises the peak"
    assert make_plan(apart, 5).peak_bytes == 64


Operation = Callable[[list[Any], int, int], Any]
OPERATIONS: dict[str, Operation] = {
    "add": lambda live, i, j: live[i] + live[j],
    "multiply": lambda live, i, j: live[i] * 0.5,
    "product": lambda live, i, j: live[i] @ live[j] / 8,
    "softmax": lambda live, i, j: torch.softmax(live[i], -1),
    "zeros": lambda live, i, j: torch.zeros(4, 4) + 1,
    "filled": lambda live, i, j: torch.full((4, 4), 2.0),
    "relu": lambda live, i, j: torch.relu(live[i] - 0.5),
    "scale and shift": lambda live, i, j: torch.sigmoid(live[i] * 2 + live[j]),
    "clone": lambda live, i, j: live[i].clone(),
    "half": lambda live, i, j: live[i].half().float(),
    "transposed": lambda live, i, j: live[i].t(),
    "row": lambda live, i, j: live[i][1:2].expand(4, 4),
    "in place": lambda live, i, j: live[i].add_(1) if live[i].stride() in {(4, 1), (1, 4)} else live[i],
    "copied": lambda live, i, j: live[i].copy_(live[j] * 2) if live[i].stride() == (4, 1) else live[i],
    "sorted": lambda live, i, j: torch.sort(live[i], dim=1)[0],
}


@st.composite
def recipes(draw: st.DrawFn) -> list[tuple[str, int, int, bool]]:
    names = st.sampled_from(sorted(OPERATIONS))
    index = st.integers(0, 100)
    return draw(st.lists(st.tuples(names, index, index, st.booleans()), min_size=1, max_size=14))


def followed(recipe: list[tuple[str, int, int, bool]], x: Any, y: Any) -> Any:
    """Do what a recipe says; some results are dropped at once, so that buffers die."""
    live = [x, y]
    for name, i, j, drops in recipe:
        made = OPERATIONS[name](live, i % len(live), j % len(live))
        if drops and len(live) > 2:
            live[-1] = made
        else:
            live.append(made)
    return live[-1] + live[len(live) // 2]


def executed(tape: Tape, plan: MemoryPlan, inputs: dict[str, Any]) -> dict[str, Any]:
    """Run the statements that an exported module would hold; return its outputs."""
    from kernellab.capture.node_functions import layout_copy, window

    scope: dict[str, Any] = {"torch": torch, "window": window, "layout_copy": layout_copy, "device": "cpu", **inputs}
    with torch.no_grad():
        exec("\n".join(statements(tape, plan, {}, {})), scope)
    return {name: scope[tape.values[i].name] for name, i in zip(tape.output_names, tape.outputs, strict=True)}


def captured(lab: kernellab.Lab, recipe: list[tuple[str, int, int, bool]]) -> tuple[Program, Any]:
    x, y = torch.linspace(0, 1, 16).reshape(4, 4), torch.linspace(1, 0, 16).reshape(4, 4)
    with lab.capture() as program:
        result = followed(recipe, x, y)
        program.returns(result)
    return program, result


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(recipe=recipes())
def test_a_random_program_gives_the_same_however_it_is_run(lab: kernellab.Lab, recipe: Any) -> None:
    def inputs() -> dict[str, Any]:
        return {"x": torch.linspace(0, 1, 16).reshape(4, 4), "y": torch.linspace(1, 0, 16).reshape(4, 4)}

    program, result = captured(lab, recipe)
    functional = program.functionalise()
    for each in (program, functional):
        given_inputs = {name: tensor for name, tensor in inputs().items() if name in each.inputs}
        ran = each.run(**given_inputs)
        torch.testing.assert_close(next(iter(ran.values())), result)
        if each is functional:
            assert all(torch.equal(tensor, inputs()[name]) for name, tensor in given_inputs.items())
        fresh = {name: tensor for name, tensor in inputs().items() if name in each.inputs}
        planned_outputs = executed(each.tape, each.plan, fresh)
        torch.testing.assert_close(next(iter(planned_outputs.values())), result)
        assert each.plan.peak_bytes <= each.plan.unplanned_bytes
        donated = each.plan_with(each.inputs)
        assert donated.peak_bytes <= each.plan.peak_bytes
        fresh = {name: tensor for name, tensor in inputs().items() if name in each.inputs}
        torch.testing.assert_close(next(iter(executed(each.tape, donated, fresh).values())), result)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(recipe=recipes())
def test_a_buffer_lives_as_long_as_its_views(lab: kernellab.Lab, recipe: Any) -> None:
    program, _ = captured(lab, recipe)
    tape = program.tape
    last = {buffer.name: buffer.last for buffer in buffers_of(tape, ())}
    owner = {
        tape.values[i].storage: tape.values[i].name for i in range(len(tape.values)) if tape.values[i].name in last
    }
    for number, step in enumerate(tape.steps):
        for index in (*step.operands, *step.mutated):
            storage = tape.values[index].storage
            if storage in owner:
                assert last[owner[storage]] >= number
    for index in tape.outputs:
        if tape.values[index].storage in owner:
            assert last[owner[tape.values[index].storage]] == len(tape.steps)


@pytest.mark.parametrize("size", [0, 1])
def test_empty_and_tiny_tensors_are_planned(lab: kernellab.Lab, size: int) -> None:
    x = torch.ones(size)
    with lab.capture() as program:
        y = (x + 1).exp()
    assert program.plan.unplanned_bytes == 8 * size
    torch.testing.assert_close(executed(program.tape, program.plan, {"x": x})["y"], y)


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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_outputs_lie_in_donated_inputs_of_their_layout(lab: kernellab.Lab, tmp_path: Path) -> None:
    program = chain(lab).functionalise()
    assert program.plan_with(["x"]).peak_bytes == 4000
    assert program.plan_with(["x"]) == donating(program, "x")
    program.export(tmp_path / "donated.py", donated=["x"])
    assert "What x hold is lost" in run_text(tmp_path / "donated.py")
    with pytest.raises(UsageError, match="expected one of x"):
        program.plan_with(["z"])


def test_a_donated_input_is_overwritten_where_it_is_used_no_more(lab: kernellab.Lab) -> None:
    x, y = torch.linspace(0, 1, 16).reshape(4, 4), torch.linspace(1, 2, 16).reshape(4, 4)
    with lab.capture() as program:
        first = x @ y
        second = first @ y
        out = (second + first) * 2
        program.returns(out)
    plan = program.plan_with(["x"])
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
