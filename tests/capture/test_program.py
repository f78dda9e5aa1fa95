"""Captured programs: what is recorded, and that running it again gives what the block gave."""

from __future__ import annotations

import gc
import operator
import runpy
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

import kernellab
from kernellab.capture.program import Program
from kernellab.errors import OutOfBounds, UsageError
from tests import samples
from tests.capture import kernels


@triton.jit
def accumulate_kernel(x_ptr, total_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(total_ptr + offsets, tl.load(total_ptr + offsets, mask=mask) + x, mask=mask)


@triton.jit
def shifted_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n) + 1, mask=offsets < n)


@triton.jit
def gathered_kernel(x_ptr, places_ptr, out_ptr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + tl.load(places_ptr + offsets)))


def scaled(lab: kernellab.Lab, x: Any, out: Any) -> Any:
    """Write 3 x + 3 into ``out`` by a kernel."""
    lab.bind(samples.scale_kernel)[(1,)](x, out, x.numel(), BLOCK=128)
    return out


def same_again(program: Program, make: Callable[[], dict[str, Any]], body: Callable[..., Any]) -> None:
    """Run a program and what it was made of on fresh inputs; all tensors must agree, changed inputs included."""
    given, wanted = make(), make()
    expected = body(**wanted)
    found = program.run(**{name: given[name] for name in program.inputs})
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor)
    for name, tensor in given.items():
        torch.testing.assert_close(tensor, wanted[name])


@pytest.mark.slow
def test_attention_from_parts_is_recorded_and_runs_again(lab: kernellab.Lab) -> None:
    attend, given = kernels.attention(lab), kernels.inputs()
    q, k, v, weight, bias = given.values()
    with lab.capture() as program:
        out = attend(q, k, v, weight, bias)
    torch.testing.assert_close(out, kernels.reference(*given.values()), rtol=1e-4, atol=1e-4)
    assert program.inputs == ("q", "k", "v", "weight", "bias")
    assert program.outputs == ("out",)
    assert len(program.tape.launches) == 5
    fresh = {name: torch.randn_like(tensor) for name, tensor in given.items()}
    torch.testing.assert_close(program(*fresh.values()), attend(**fresh))


def test_repr_is_one_line(lab: kernellab.Lab) -> None:
    x = torch.ones(8)
    with lab.capture() as program:
        assert repr(program) == "<Program: incomplete, its block has not ended>"
        _ = x + 1
    assert repr(program) == "<Program: 1 step from 1 input, of fixed sizes>"


def test_a_wrong_export_is_told_what_was_expected(lab: kernellab.Lab, tmp_path: Path) -> None:
    x = torch.ones(8)
    with lab.capture() as program:
        _ = x + 1
    with lab.capture() as without_inputs:
        _ = torch.ones(8) + 1
    wrong: Any = None
    with pytest.raises(UsageError, match="path is None; expected the path of a file"):
        program.export(wrong)
    with pytest.raises(UsageError, match="donated is 'x'; expected a list of names"):
        program.export(tmp_path / "program.py", donated="x")
    with pytest.raises(UsageError, match="donated names 'x', and the program has no inputs"):
        without_inputs.export(tmp_path / "program.py", donated=["x"])


@pytest.mark.parametrize("dynamic", [False, True])
def test_the_module_of_a_program_names_what_is_no_tensor(lab: kernellab.Lab, tmp_path: Path, dynamic: bool) -> None:
    x = torch.ones(8)
    with lab.capture(dynamic=dynamic) as program:
        _ = x + 1
    program.export(tmp_path / "program.py")
    with pytest.raises(TypeError, match="x is a list; expected a tensor"):
        runpy.run_path(str(tmp_path / "program.py"))["run"]([1.0] * 8)


def test_a_node_carries_ids_grid_and_what_its_kernel_changes(lab: kernellab.Lab) -> None:
    x, out = torch.ones(100), torch.zeros(100)
    with lab.capture() as program:
        scaled(lab, x, out)
    (node,) = [node for node in program.graph.graph.nodes if node.op == "call_function"]
    _, kernel_id, constants_id, grid, arguments = node.args
    assert lab.kernels.version(kernel_id).label == node.meta["kernel"] == "scale_kernel@1"
    assert lab.kernels.constants(constants_id) == {"BLOCK": 128}
    (row,) = [r for r in lab.kernels.store.history.launches(kernel_id) if r.id == node.meta["launch_id"]]
    assert row.launch.argument("BLOCK").value == 128
    assert (grid, node.meta["mutates"]) == ((1, 1, 1), ("out",))
    assert {name: str(value) for name, value in arguments.items()} == {"x_ptr": "x", "out_ptr": "out", "n": "100"}
    program.graph.graph.eliminate_dead_code()
    assert node in program.graph.graph.nodes, "a launch has effects"


def test_the_frame_has_a_row_for_each_input_and_step(lab: kernellab.Lab) -> None:
    x, out = torch.ones(100), torch.zeros(100)
    with lab.capture() as program:
        scaled(lab, x, out)
        doubled = out * 2
    frame = program.frame
    assert list(frame["op"]) == ["input", "input", "launch", "aten.mul.Tensor"]
    launch = frame[frame["op"] == "launch"].iloc[0]
    assert (launch["kernel"], launch["grid"], launch["mutated"]) == ("scale_kernel@1", (1, 1, 1), "out")
    assert (launch["shape"], launch["dtype"], launch["bytes"]) == ((100,), "float32", 400)
    assert "test_program.py, line" in launch["place"]
    assert frame.attrs["outputs"] == ["out", "doubled"]
    assert doubled.shape == (100,)


def test_views_of_a_buffer_that_a_kernel_changes_see_the_change(lab: kernellab.Lab) -> None:
    def body(x: Any) -> dict[str, Any]:
        buffer = torch.zeros(4, 100)
        row, column = buffer[1], buffer[:, 3]
        scaled(lab, x, row)
        buffer.mul_(2)
        picked = column + 1
        return {"buffer": buffer, "picked": picked}

    def make() -> dict[str, Any]:
        return {"x": torch.arange(100.0)}

    x = make()["x"]
    with lab.capture() as program:
        results = body(x)
        buffer, picked = results["buffer"], results["picked"]
    assert buffer[1].sum() > 0
    assert picked[1] == buffer[1, 3] + 1
    same_again(program.only("buffer", "picked"), make, body)
    same_again(program.functionalise().only("buffer", "picked"), make, body)


def test_inputs_that_share_memory_are_one_input(lab: kernellab.Lab) -> None:
    def body(base: Any) -> dict[str, Any]:
        scaled(lab, base[100:200], base[:100])
        return {"base": base}

    base = torch.arange(300.0)
    left, right = base[:100], base[100:200]
    expected = body(base.clone())["base"]
    with lab.capture() as program:
        scaled(lab, right, left)
        base.add_(0)
    assert program.inputs == ("base",)
    assert program.outputs == ("base",)
    torch.testing.assert_close(base, expected)
    same_again(program, lambda: {"base": torch.arange(300.0)}, body)


def test_inputs_that_overlap_and_hold_none_of_each_other_give_their_memory(lab: kernellab.Lab) -> None:
    memory = torch.arange(150.0)
    left, right = memory[:100], memory[50:150]
    del memory
    with lab.capture() as program:
        scaled(lab, left, right.clone())
        total = left + right
    assert program.inputs == ("right_memory",)
    assert "share memory" in program.notes[0]
    torch.testing.assert_close(program.run(right_memory=torch.arange(150.0))["total"], total)


def test_an_input_keeps_its_strides(lab: kernellab.Lab) -> None:
    wide = torch.randn(8, 40)
    x = wide[:, ::2]
    with lab.capture() as program:
        total = x.sum(0)
    made = program.make_inputs()
    assert (made["x"].shape, made["x"].stride()) == ((8, 20), (40, 2))
    torch.testing.assert_close(program(x), total)
    with pytest.raises(UsageError, match=r"strides \(20, 1\)"):
        program(x.contiguous())


def test_in_place_operations_and_changed_layouts_are_recorded(lab: kernellab.Lab) -> None:
    def body(x: Any) -> dict[str, Any]:
        y = x.clone()
        y.unsqueeze_(0).transpose_(0, 1)
        y.add_(1)
        x.mul_(2)
        out = torch.empty(0)
        torch.mm(y, y.t(), out=out)
        top, where = out.max(1)
        return {"x": x, "out": out, "top": top, "where": where}

    x = torch.randn(20)
    with lab.capture() as program:
        results = body(x)
        out, top, where = results["out"], results["top"], results["where"]
    assert (out.shape, top.shape, where.dtype) == ((20, 20), (20,), torch.int64)
    assert program.outputs[0] == "x"
    same_again(program.only("x", "out", "top", "where"), lambda: {"x": torch.linspace(0, 1, 20)}, body)
    same_again(
        program.functionalise().only("out", "top", "where"),
        lambda: {"x": torch.linspace(0, 1, 20)},
        lambda x: {n: t for n, t in body(x.clone()).items() if n != "x"},
    )


@pytest.mark.slow
def test_a_functional_program_changes_no_input(lab: kernellab.Lab) -> None:
    accumulate = lab.bind(accumulate_kernel)
    x, total = torch.arange(100.0), torch.ones(100)
    with lab.capture() as program:
        accumulate[(1,)](x, total, 100, BLOCK=128)
        accumulate[(1,)](x, total, 100, BLOCK=128)
    functional = program.functionalise()
    given = torch.zeros(100)
    torch.testing.assert_close(functional(x, given), 2 * x)
    assert not given.any()
    torch.testing.assert_close(program(x, given), 2 * x)
    assert given.any()
    assert all(step.functional for step in functional.tape.launches)
    targets = [n.target.__name__ for n in functional.graph.graph.nodes if n.op == "call_function"]
    assert targets == ["launch_functional", "getitem"] * 2
    assert operator.getitem.__name__ in targets


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:shifted_kernel. overlap")  # which it is about
def test_a_functional_kernel_that_reads_and_writes_one_memory_sees_its_own_writes(lab: kernellab.Lab) -> None:
    shifted = lab.bind(shifted_kernel)
    x = torch.arange(100.0)
    with lab.capture() as program:
        shifted[(1,)](x, x, 100, BLOCK=128)
        shifted[(1,)](x, x[50:], 50, BLOCK=64)
    given = torch.arange(100.0)
    found = program.functionalise()(given)
    torch.testing.assert_close(found, x)
    torch.testing.assert_close(given, torch.arange(100.0))


@pytest.mark.slow
def test_a_kernel_of_tuples_descriptors_and_functions_is_recorded(lab: kernellab.Lab) -> None:
    pair, apply = lab.bind(samples.sum_of_pair), lab.bind(samples.apply_kernel)
    a, b = torch.arange(64.0), torch.ones(64)
    with lab.capture() as program:
        out = torch.empty(64)
        pair[(1,)]((a, b), out, BLOCK=64)
        squares = torch.empty(64)
        apply[(1,)](out, squares, samples.squared, tl.float32, BLOCK=64)
    torch.testing.assert_close(squares, (a + b) ** 2)
    for each in (program, program.functionalise()):
        torch.testing.assert_close(each.only("squares")(b, b), torch.full((64,), 4.0))


@pytest.mark.slow
def test_an_autotuned_kernel_is_recorded_with_its_config(lab: kernellab.Lab) -> None:
    tuned = lab.bind(samples.tuned_kernel)
    x, out = torch.arange(300.0), torch.zeros(300)
    with lab.capture() as program:
        tuned[lambda meta: (triton.cdiv(300, meta["BLOCK"]),)](x, out, 300)
    (step,) = program.tape.launches
    assert step.use is not None
    constants = lab.kernels.constants(step.use.constants_id)
    assert constants["BLOCK"] in {64, 128}
    assert constants["EVEN"] == (300 % constants["BLOCK"] == 0)
    assert step.use.grid == (triton.cdiv(300, constants["BLOCK"]), 1, 1)
    given = torch.zeros(300)
    torch.testing.assert_close(program(2 * x, given), 2 * x)
    lab.kernels[step.use.kernel_id][(3,)](x, given, 300)  # the id gives the kernel with its decorators


def test_what_python_reads_is_noted_and_a_run_that_reads_something_else_refused(lab: kernellab.Lab) -> None:
    x = torch.arange(10.0)
    with lab.capture() as program:
        limit = x.max().item()
        y = x / limit
        print(y)
    assert len(program.notes) == 1, "printing a tensor decides nothing"
    assert "reads a value of a tensor, 9.0" in program.notes[0]
    assert "test_program.py" in program.notes[0]
    torch.testing.assert_close(program(x.flip(0)), x.flip(0) / 9)
    with pytest.raises(UsageError, match=r"test_program.py, line \d+ reads 18.0 of a tensor .* it read 9.0"):
        program(2 * x)


def test_casts_are_those_of_the_recording(lab: kernellab.Lab, tmp_path: Path) -> None:
    x, w = torch.rand(5, 6), torch.rand(6, 7)
    with lab.capture() as program:
        table_with_addresses = x @ w
    program.export(tmp_path / "program.py")
    module = runpy.run_path(str(tmp_path / "program.py"))
    with torch.autocast("cpu", torch.bfloat16):
        for found in (program(x, w), module["run"](x, w)["table_with_addresses_1"]):
            torch.testing.assert_close(found, table_with_addresses)


@pytest.mark.slow
def test_a_run_on_the_cpu_finds_what_it_reads_out_of_bounds(lab: kernellab.Lab) -> None:
    x, places = torch.arange(8.0), torch.arange(8).flip(0)
    with lab.capture() as program:
        out = torch.empty_like(x)
        lab.bind(gathered_kernel)[(1,)](x, places, out, BLOCK=8)
    torch.testing.assert_close(program(x, places), out)
    with (
        lab.checking(nan=False, bounds=True),
        pytest.raises(OutOfBounds, match="load of x_ptr out of bounds: element 9"),
    ):
        program(x, places + 2)


def test_inputs_that_share_memory_are_refused_where_one_is_copied_or_donated(
    lab: kernellab.Lab, tmp_path: Path
) -> None:
    x, y = torch.arange(9.0), torch.ones(9)
    with lab.capture() as program:
        x.add_(1)
        out = x * y
    functional, whole = program.functionalise(), torch.arange(18.0)
    functional.export(tmp_path / "functional.py")
    functional.only("out").export(tmp_path / "donated.py", donated=["x"])
    for run in (functional.run, *(runpy.run_path(str(tmp_path / f"{n}.py"))["run"] for n in ("functional", "donated"))):
        torch.testing.assert_close(run(x=whole[:9].clone(), y=whole[9:])["out"], (whole[:9] + 1) * whole[9:])
        with pytest.raises((UsageError, ValueError), match="The inputs x and y share memory"):
            run(x=whole[:9], y=whole[8:17])
    given = torch.arange(9.0)
    torch.testing.assert_close(program.run(x=given, y=given)["out"], torch.arange(1.0, 10.0) ** 2)
    assert out.shape == (9,)


def test_a_generator_of_a_block_is_not_that_of_a_run(lab: kernellab.Lab) -> None:
    generator = torch.Generator().manual_seed(3)
    with lab.capture() as program:
        x = torch.rand(5, generator=generator)
    assert any("draws from a generator" in note for note in program.notes)
    assert program().shape == x.shape


def test_random_operations_are_noted(lab: kernellab.Lab) -> None:
    x = torch.zeros(1000)
    with lab.capture() as program:
        noise = x + torch.randn(1000)
    assert "is random" in program.notes[0]
    assert not torch.equal(program(x), program(x))
    assert noise.shape == (1000,)


def test_shapes_that_depend_on_data_are_noted_and_dead_steps_are_not(lab: kernellab.Lab) -> None:
    x = torch.tensor([1.0, -1.0, 2.0])
    with lab.capture() as program:
        positive = x[x > 0]
        chosen = x[torch.tensor([0, 2])]
        torch.rand(3)
    (note,) = program.notes
    assert "depends on data" in note
    assert "aten.index.Tensor" in note
    assert (positive.shape, chosen.shape) == ((2,), (2,))


def test_attention_without_dropout_is_not_called_random(lab: kernellab.Lab) -> None:
    x = torch.randn(1, 2, 8, 16)
    with lab.capture() as program:
        y = torch.nn.functional.scaled_dot_product_attention(x, x, x)
    assert program.notes == ()
    torch.testing.assert_close(program.only("y")(x), y)


def test_a_step_of_training_is_a_program(lab: kernellab.Lab) -> None:
    x, w = torch.randn(8, 4), torch.randn(4, 2, requires_grad=True)
    before = w.detach().clone()
    optimizer = torch.optim.SGD([w], lr=0.1)
    with lab.capture() as program:
        loss = (x @ w).square().mean()
        loss.backward()
        optimizer.step()
    assert program.outputs[0] == "w"
    assert not torch.equal(before, w)
    program.run(x=x, w=before)
    torch.testing.assert_close(before, w.detach())
    assert loss.dim() == 0


def test_batch_norm_changes_its_running_statistics(lab: kernellab.Lab) -> None:
    norm, x = torch.nn.BatchNorm1d(4), torch.randn(8, 4)
    with torch.no_grad(), lab.capture() as program:
        y = norm(x)
    assert {"norm_running_mean", "norm_running_var"} <= set(program.outputs)
    assert y.shape == (8, 4)


def test_constants_made_in_the_block_belong_to_the_program(lab: kernellab.Lab) -> None:
    x = torch.ones(3)
    with lab.capture() as program:
        steps = torch.tensor([1.0, 2.0, 4.0])
        steps.add_(x)
        y = steps * x
    assert program.inputs == ("x",)
    for _ in range(2):  # what a run does to its constants does not reach the next one
        torch.testing.assert_close(program.run(x=x)["y"], y)


def test_backward_is_part_of_the_program(lab: kernellab.Lab) -> None:
    x = torch.randn(5, requires_grad=True)
    with lab.capture() as program:
        loss = (x * x).sum()
        (grad,) = torch.autograd.grad(loss, x)
    torch.testing.assert_close(program.only("grad")(x.detach()), 2 * x.detach())
    assert grad.shape == (5,)


def test_the_block_keeps_nothing_alive_and_returns_what_it_is_told(lab: kernellab.Lab) -> None:
    x = torch.ones(100)
    with lab.capture() as program:
        a = x + 1
        kept = weakref.ref(a)
        b = a * 2
        del a
        gc.collect()
        assert kept() is None
        c = b + 1
        assert program.returns(c) is c
    assert program.outputs == ("c",)
    assert b.shape == (100,)
    with pytest.raises(UsageError, match="only"):
        program.returns(b)


def test_names_come_from_namespaces_containers_and_modules(lab: kernellab.Lab) -> None:
    layer = torch.nn.Linear(4, 2)
    weights = {"scale": torch.ones(2)}
    x = torch.randn(3, 4)
    with torch.no_grad(), lab.capture() as program:
        y = layer(x) * weights["scale"]
    assert set(program.inputs) == {"x", "layer_weight", "layer_bias", "weights_scale"}
    assert program.outputs == ("y",)
    assert y.shape == (3, 2)


def test_an_error_in_the_block_leaves_an_incomplete_program(lab: kernellab.Lab) -> None:
    x, out = torch.ones(100), torch.zeros(100)
    with pytest.raises(ZeroDivisionError), lab.capture() as program:
        scaled(lab, x, out).mul_(1 / 0)
    assert not program.is_complete
    for use in (lambda: program(x), lambda: program.graph, lambda: program.frame, lambda: program.export("x.py")):
        with pytest.raises(UsageError, match=r"ZeroDivisionError ended its block.*run the block again"):
            use()
    with lab.capture() as after:
        scaled(lab, x, out)
    assert after.outputs == ("out",), "nothing of the failed block is left"


def test_a_program_is_not_used_inside_its_block(lab: kernellab.Lab) -> None:
    capture = lab.capture()
    with capture as program, pytest.raises(UsageError, match="leave the with statement first"):
        program(torch.ones(1))
    with pytest.raises(UsageError, match=r"a lab.capture\(\) of its own"), capture:
        pass


def test_an_empty_block_is_an_empty_program(lab: kernellab.Lab) -> None:
    with lab.capture() as program:
        pass
    assert (program.inputs, program.outputs, program.run()) == ((), (), {})


def test_captures_nest(lab: kernellab.Lab) -> None:
    x, out = torch.arange(100.0), torch.zeros(100)
    with lab.capture() as outer:
        y = x + 1
        with lab.capture() as inner:
            scaled(lab, y, out)
        z = out * 2
    assert inner.inputs == ("y", "out")
    assert [step.operation for step in outer.tape.steps] == ["aten.add.Tensor", "launch", "aten.mul.Tensor"]
    assert [step.operation for step in inner.tape.steps] == ["launch"]
    torch.testing.assert_close(outer.run(x=x, out=torch.zeros(100))["z"], z)


def test_other_threads_are_not_recorded(lab: kernellab.Lab) -> None:
    x, out = torch.ones(100), torch.zeros(100)
    with lab.capture() as program:
        thread = threading.Thread(target=scaled, args=(lab, x, out))
        thread.start()
        thread.join()
        y = out + 1
    assert [step.operation for step in program.tape.steps] == ["aten.add.Tensor"]
    assert program.inputs == ("out",)
    found: list[Any] = []
    runner = threading.Thread(target=lambda: found.append(program(out)))
    runner.start()
    runner.join()
    torch.testing.assert_close(found[0], y)


@pytest.mark.slow
def test_a_kernel_that_is_not_bound_is_an_error_that_says_so(lab: kernellab.Lab) -> None:
    x, out = torch.ones(100), torch.zeros(100)
    with pytest.raises(UsageError, match=r"scale_kernel was launched .* lab.bind"), lab.capture() as program:
        samples.scale_kernel[(1,)](x, out, 100, BLOCK=128)
    assert not program.is_complete


def test_inputs_that_do_not_fit_are_refused(lab: kernellab.Lab) -> None:
    x = torch.ones(100)
    with lab.capture() as program:
        y = x + 1
    assert y.shape == (100,)
    for given, message in (
        ({}, "lacks x"),
        ({"x": x, "z": x}, "takes no z"),
        ({"x": torch.ones(50)}, r"shape \(50,\)"),
        ({"x": torch.ones(100).double()}, "dtype float64"),
        ({"x": 3}, "is a int; expected a tensor"),
    ):
        with pytest.raises(UsageError, match=message):
            program.run(**given)
    with pytest.raises(UsageError, match="takes 1 input "):
        program()
    with pytest.raises(UsageError, match="expected one of y"):
        program.only("nothing")


def test_sparse_tensors_are_refused_by_name(lab: kernellab.Lab) -> None:
    with pytest.raises(UsageError, match="sparse_coo"), lab.capture() as program:
        torch.eye(3).to_sparse() + torch.eye(3).to_sparse()
    assert not program.is_complete


def test_a_launch_of_a_known_kernel_is_at_its_line_with_the_names_there(lab: kernellab.Lab) -> None:
    x, out = torch.ones(100), torch.zeros(100)
    for _ in range(4):
        scaled(lab, x, out)
    with lab.capture() as program:
        scaled(lab, x, out)
    frame = program.frame
    launch = frame[frame["op"] == "launch"].iloc[0]
    assert "test_program.py, line" in launch["place"]
    assert program.inputs == ("x", "out")
