"""Planted bugs: each one is found, is named in the user's words, and leaves the tensors as they were."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from kernellab.errors import KernellabError, LaunchError, OutOfBounds, RunError, WorkerTimeout
from kernellab.interpreter.runner import Interpreter
from kernellab.launch.run import Run
from tests.interpreter import planted
from tests.interpreter.bugs import OUT_OF_BOUNDS, WARNINGS, block

Launch = Callable[..., Run]


def line_of_bug(kernel: Any) -> int:
    lines, first = inspect.getsourcelines(kernel.fn)
    return first + next(i for i, line in enumerate(lines) if "# bug" in line)


def failure(launch: Launch, kernel: Any, grid: tuple[int, ...], *args: Any, **named: Any) -> KernellabError:
    """Launch, expect an error at the line of the bug, and check that no tensor changed."""
    tensors = [arg.base if isinstance(arg, TensorDescriptor) else arg for arg in args]
    tensors = [tensor for tensor in tensors if isinstance(tensor, torch.Tensor)]
    before = [tensor.clone() for tensor in tensors]
    with pytest.raises(RunError) as caught:
        launch(kernel, grid, *args, **named)
    for tensor, old in zip(tensors, before, strict=True):
        assert torch.equal(tensor, old)
    assert caught.value.place is not None
    assert caught.value.place.file == inspect.getsourcefile(kernel.fn)
    assert caught.value.place.line == line_of_bug(kernel)
    assert "# bug" in caught.value.place.source_line()
    return caught.value


@pytest.mark.parametrize("name", OUT_OF_BOUNDS)
def test_an_access_out_of_bounds_is_an_error_that_says_where(launch: Launch, name: str) -> None:
    bug = OUT_OF_BOUNDS[name]
    error = failure(launch, bug.kernel, bug.grid, *bug.arguments(), **bug.named)
    assert isinstance(error, OutOfBounds)
    for words in (bug.kernel.__name__, *bug.words):
        assert words in error.message


def test_an_out_of_bounds_error_counts_lanes_and_programs(launch: Launch) -> None:
    error = failure(launch, planted.copy_without_mask, (4,), block(100), block(256), 256, BLOCK=64)
    assert "28 of 64 active lanes, no mask" in error.message
    assert "Program (1, 0, 0)" in error.message
    assert "Affected: 156 lanes in 3 of 4 programs." in error.message


def test_an_access_beyond_an_expanded_tensor_shows_its_shape_and_strides(launch: Launch) -> None:
    error = failure(launch, planted.copy_without_mask, (1,), block(1).expand(64), block(64), 64, BLOCK=64)
    assert re.search(r"has elements 0 to 0 \(4 bytes; shape \(64,\), strides \(0,\)\)", error.message)


def test_a_bug_in_a_helper_is_shown_at_the_helper(launch: Launch) -> None:
    with pytest.raises(OutOfBounds) as caught:
        launch(planted.bug_in_helper, (1,), block(4), block(8), BLOCK=8)
    assert caught.value.place is not None
    assert caught.value.place.line == line_of_bug(planted.helper)


def test_a_host_descriptor_of_a_wrong_shape_is_found(launch: Launch) -> None:
    base = block(8, 8)
    desc = TensorDescriptor(base, [16, 8], [8, 1], [8, 8])
    error = failure(launch, planted.host_descriptor, (1,), desc, block(8, 8), 4, BLOCK=8)
    assert "load of desc" in error.message


def test_an_access_inside_another_argument_is_an_error(launch: Launch) -> None:
    whole = block(32)
    error = failure(launch, planted.reads_the_view_of_another, (1,), whole[:16], whole[16:], block(1), 20)
    assert "inside y" in error.message


def test_an_access_outside_the_view_but_inside_the_storage_is_a_finding(launch: Launch) -> None:
    whole, out = block(32), block(1)
    run = launch(planted.reads_the_view_of_another, (1,), whole[:16], block(2), out, 20)
    assert out.item() == 20
    (finding,) = run.findings
    assert (finding.kind, finding.severity, finding.argument) == ("outside_view", "warning", "x")
    assert finding.line == line_of_bug(planted.reads_the_view_of_another)


def test_a_pointer_read_from_memory_is_followed_into_an_argument_only(launch: Launch) -> None:
    known, out, stranger = block(4) + 7, block(1), block(4)
    launch(planted.pointer_table, (1,), torch.tensor([known.data_ptr()]), out, known)
    assert out.item() == 7
    error = failure(launch, planted.pointer_table, (1,), torch.tensor([stranger.data_ptr()]), out, known)
    assert "in no argument" in error.message


@pytest.mark.parametrize("name", WARNINGS)
def test_a_suspicious_access_is_a_warning(launch: Launch, name: str) -> None:
    bug = WARNINGS[name]
    run = launch(bug.kernel, bug.grid, *bug.arguments(), **bug.named)
    found = {(finding.kind, finding.severity, finding.argument, finding.line) for finding in run.findings}
    assert found == {(bug.kind, "warning", bug.argument, line_of_bug(bug.kernel))}


def test_a_race_names_both_programs(launch: Launch) -> None:
    run = launch(planted.sum_without_atomic, (2,), block(16), block(1), 16, BLOCK=8)
    (finding,) = run.findings
    assert finding.program == (1, 0, 0)
    assert "(1, 0, 0)" in finding.detail
    assert "(0, 0, 0)" in finding.detail


def test_two_programs_writing_the_same_value_are_a_note(launch: Launch) -> None:
    run = launch(planted.same_value, (3,), torch.zeros(1, dtype=torch.int32), 5)
    assert [(f.kind, f.severity) for f in run.findings] == [("race", "note")]


def test_a_failed_device_assert_is_an_error(launch: Launch) -> None:
    error = failure(launch, planted.asserting, (2,), block(16), 16, BLOCK=8)
    assert "x must be positive" in error.message
    assert "1 of 8 lanes" in error.message


@pytest.mark.parametrize("kernel", [planted.no_such_name, planted.shapes_that_do_not_fit])
def test_an_exception_in_a_kernel_names_its_line_and_nothing_of_the_interpreter(launch: Launch, kernel: Any) -> None:
    error = failure(launch, kernel, (1,), block(1))
    assert "InterpreterError" not in error.message
    assert "TensorHandle" not in error.message


def test_what_only_a_gpu_can_do_is_refused_by_name(launch: Launch) -> None:
    error = failure(launch, planted.inline_assembly, (1,), block(1))
    assert "the CPU interpreter cannot run inline assembly" in error.message


def test_device_print_arrives_with_the_run(launch: Launch) -> None:
    run = launch(planted.printing, (2,), block(1) + 1.5)
    assert run.output == "pid (0, 0, 0) value: 1.5\npid (1, 0, 0) value: 1.5\n"


@pytest.mark.parametrize(
    ("tensor", "remedy"),
    [
        (torch.empty(4, device="meta"), "torch.empty_like"),
        (torch.eye(3).to_sparse(), "to_dense"),
        (torch.zeros(3, dtype=torch.complex64), "no type"),
        (object(), "expected a tensor"),
    ],
)
def test_an_argument_that_cannot_travel_is_refused_with_a_remedy(launch: Launch, tensor: Any, remedy: str) -> None:
    with pytest.raises(LaunchError, match=remedy):
        launch(planted.printing, (1,), tensor)


@pytest.mark.slow
def test_an_endless_loop_is_stopped_and_the_next_launch_runs(interpreter: Interpreter, launch: Launch) -> None:
    x = torch.zeros(1)
    with pytest.raises(WorkerTimeout, match="endless"):
        interpreter.run(planted.endless, {"x": x}, (1, 1, 1), 0.5)
    assert x.item() == 0
    assert launch(planted.printing, (1,), x).output


@pytest.mark.slow
def test_a_long_launch_reports_progress(interpreter: Interpreter) -> None:
    x, out, seen = torch.ones(1024), torch.zeros(256 * 1024), []
    arguments = {"x": x, "out": out, "N": 1024}
    interpreter.run(planted.slow, arguments, (256, 1, 1), progress=seen.append)
    assert all(0 < done <= 256 and total == 256 for done, total in seen)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert seen
    assert (out == 20).all()


def test_an_in_place_launch_on_one_tensor_is_a_note(launch: Launch) -> None:
    x = block(8)
    run = launch(planted.shifted_copy, (1,), x, x, 8, BLOCK=8)
    assert {(f.kind, f.severity) for f in run.findings} == {("overlap", "note")}


def test_interleaved_views_do_not_overlap(launch: Launch) -> None:
    whole = block(16)
    pairs = whole.reshape(8, 2)
    run = launch(planted.shifted_copy, (1,), pairs[:4, 0], pairs[4:, 1], 4, BLOCK=4)
    assert not [f for f in run.findings if f.kind == "overlap"]


def test_a_misaligned_access_is_an_error(launch: Launch) -> None:
    error = failure(launch, planted.misaligned, (1,), block(4), block(1))
    assert "byte 2, is not aligned to its 4 bytes" in error.message


def test_a_tensor_without_memory_is_refused(launch: Launch) -> None:
    x = block(4)
    x.untyped_storage().resize_(0)
    with pytest.raises(LaunchError, match="resized"):
        launch(planted.printing, (1,), x)


@pytest.mark.slow
def test_a_fault_is_told_even_where_another_program_never_ends(launch: Launch) -> None:
    error = failure(launch, planted.fault_then_endless, (3,), block(4), block(1))
    assert "load of x out of bounds: element 100" in error.message
    assert "at least 1 lane in 1 of 3 programs" in error.message
