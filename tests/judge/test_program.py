"""Programs of a candidate's process, read by a judge that trusts nothing in them."""

from __future__ import annotations

import base64
import copy
import math
from typing import Any

import pytest
import torch

from kernellab.judge.program import program_of_json
from kernellab.judge.replay import Replay, ReplayError, ReplayTimeout, operation_problem
from kernellab.source.validation import MalformedData

PROGRAM: dict[str, Any] = {
    "values": [[0, "float32", [4], [1], 0], [1, "float32", [4], [1], 0], [2, "float32", [4], [1], 0]],
    "inputs": [["x", 0]],
    "outputs": [2],
    "output_names": ["output"],
    "constants": [],
    "steps": [
        {
            "operation": "aten.empty_like.default",
            "args": [{"ref": 0}],
            "kwargs": [],
            "results": [1],
            "several": False,
            "line": 3,
        },
        {
            "operation": "aten.add.Tensor",
            "args": [{"ref": 0}, {"ref": 0}],
            "kwargs": [["alpha", 2]],
            "results": [2],
            "several": False,
            "line": 4,
        },
    ],
}


def changed(*path: Any, value: Any) -> dict[str, Any]:
    data = copy.deepcopy(PROGRAM)
    target: Any = data
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    return data


def no_launch(*arguments: object) -> None:
    raise AssertionError("nothing launches")


def replayed(data: dict[str, Any], x: torch.Tensor) -> list[torch.Tensor]:
    return Replay(program_of_json(data, 0), (), no_launch).run({"x": x})


def test_a_program_runs_on_other_contents():
    x = torch.arange(4.0)
    assert torch.equal(replayed(PROGRAM, x)[0], x + 2 * x)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("outputs", 0), 9),
        (("outputs", 0), True),
        (("outputs", 0), -1),
        (("steps", 1, "args", 0), {"ref": 2}),
        (("steps", 1, "args", 0), {"ref": 1.0}),
        (("steps", 1, "args", 0), {"pickle": "gASVAAAA"}),
        (("steps", 1, "args", 0), {"torch": ["load", "x"]}),
        (("steps", 1, "args", 0), {"torch": ["device", "cuda:0; import os"]}),
        (("steps", 1, "args", 0), {"float": "not a number"}),
        (("steps", 1, "args", 0), {"addresses": [0, [[0, 2, 0]]]}),
        (("steps", 1, "args", 0), {"addresses": [9, [[0, 0, 0]]]}),
        (("steps", 1, "args", 0), {"addresses": [0, [[-1, 0, 0]]]}),
        (("steps", 1, "args", 0), {"addresses": [0, [[0, 0, 2**60]]]}),
        (("steps", 1, "args", 0), {"addresses": [None, []]}),
        (("steps", 1, "args", 0), {"addresses": [None, [[0, 0]]]}),
        (("steps", 1, "args", 0), 2**70),
        (("steps", 1, "operation"), 7),
        (("steps", 1, "operation"), "x" * 1000),
        (("steps", 1, "several"), "yes"),
        (("steps", 1, "line"), "4"),
        (("steps", 1, "line"), 10**4000),
        (("values", 0, 1), "object"),
        (("values", 0, 2), [-4]),
        (("values", 0, 2), [math.inf]),
        (("values", 0, 3), []),
        (("values", 0, 4), -1),
        (("values",), "all"),
        (("steps",), None),
        (("constants",), [[2, "AAAA"]]),
        (("constants",), [[2, "no base64!"]]),
        (("inputs",), [["x"]]),
        (("inputs",), 3),
    ],
)
def test_malformed_programs_are_refused(path, value):
    with pytest.raises(MalformedData):
        program_of_json(changed(*path, value=value), 0)


LAUNCH = {
    "operation": "launch",
    "args": [],
    "kwargs": [["table", {"addresses": [3, [[1, 0, 4], [0, 2, 0]]]}], ["address", {"addresses": [None, [[0, 0, 8]]]}]],
    "results": [],
    "several": False,
    "line": 5,
    "kernel": 0,
    "variants": [{"grid": [1, 1, 1], "constants": [], "options": []}],
}


def launched(step: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a launch at the end of the program, with a table of two words."""
    data = copy.deepcopy(PROGRAM)
    data["values"].append([3, "int64", [2], [1], 0])
    data["constants"] = [[3, base64.b64encode(bytes(16)).decode()]]
    data["steps"].append(step)
    seen: list[Any] = []
    replay = Replay(program_of_json(data, 1), (None,), lambda *call: seen.append(call[2]))  # type: ignore[arg-type]
    replay.run({"x": torch.arange(4.0)})
    return dict(seen[0])


def test_a_launch_gets_the_addresses_of_its_own_run_and_the_memory_that_they_reach():
    arguments = launched(LAUNCH)
    reached = [tensor for name, tensor in arguments.items() if name.startswith("memory reached through ")]
    x, output = sorted(reached, key=lambda tensor: not torch.equal(tensor, torch.arange(4.0)))
    assert torch.equal(output, torch.arange(4.0) * 3)
    assert arguments["table"].tolist() == [output.data_ptr(), x.data_ptr() + 4]
    assert arguments["address"] == x.data_ptr() + 8


def test_an_address_beyond_the_end_of_its_table_is_refused():
    step = copy.deepcopy(LAUNCH)
    step["kwargs"][0][1]["addresses"][1][0][0] = 2
    with pytest.raises(ReplayError, match="beyond the end of a table"):
        launched(step)


def test_nested_arguments_are_bounded():
    deep: Any = 1
    for _ in range(50):
        deep = {"list": [deep]}
    with pytest.raises(MalformedData):
        program_of_json(changed("steps", 1, "args", 0, value=deep), 0)


def test_memory_that_the_program_allocates_holds_a_pattern_of_the_judge():
    data = changed("outputs", 0, value=1)
    program = program_of_json(data, 0)
    first = Replay(program, (), no_launch, poison=0xFF).run({"x": torch.zeros(4)})[0]
    second = Replay(program, (), no_launch, poison=0x5A).run({"x": torch.zeros(4)})[0]
    assert bool(first.isnan().all())
    assert not bool(second.isnan().any())


@pytest.mark.parametrize(
    ("shape", "stride", "offset"), [([8], [1], 0), ([2], [4], 0), ([1], [1], 4), ([1], [1], 2**40), ([4], [1], -1)]
)
def test_a_view_beyond_its_memory_is_refused(shape, stride, offset):
    window = {
        "operation": "window",
        "args": [{"ref": 0}, {"tuple": shape}, {"tuple": stride}, offset, None],
        "kwargs": [],
        "results": [1],
        "several": False,
        "line": 3,
    }
    data = changed("steps", 0, value=window)
    data["values"][1] = [0, "float32", shape, stride, max(offset, 0)]
    with pytest.raises((ReplayError, MalformedData)):
        replayed(data, torch.zeros(4))


def test_a_step_that_takes_terabytes_is_refused_before_it_allocates():
    data = changed("steps", 0, "operation", value="aten.new_empty.default")
    data["steps"][0]["args"] = [{"ref": 0}, {"list": [1 << 40]}]
    data["values"][1] = [1, "float32", [1 << 40], [1], 0]
    with pytest.raises(ReplayError, match="GiB"):
        replayed(data, torch.zeros(4))


def step_of(operation: str, *args: Any, index: int = 1) -> dict[str, Any]:
    return {**PROGRAM["steps"][0], "operation": operation, "args": list(args), "results": [index]}


def test_steps_that_take_terabytes_together_are_refused():
    steps = [step_of("aten.new_empty.default", {"ref": 0}, {"list": [1 << 10]}) for _ in range(9)]
    data = changed("steps", value=[*steps, PROGRAM["steps"][1]])
    data["values"][1] = [1, "float32", [1 << 10], [1], 0]
    program = program_of_json(data, 0)
    Replay(program, (), no_launch, most_bytes=10 << 12).run({"x": torch.zeros(4)})
    with pytest.raises(ReplayError, match="all steps together"):
        Replay(program, (), no_launch, most_bytes=8 << 12).run({"x": torch.zeros(4)})


def test_an_operation_on_one_element_repeated_without_end_is_refused():
    data = changed("steps", value=[step_of("aten.expand.default", {"ref": 0}, {"list": [10**12, 4]})])
    data["steps"].append(step_of("aten.sum.default", {"ref": 1}, index=2))
    data["values"][1:] = [[0, "float32", [10**12, 4], [0, 1], 0], [2, "float32", [], [], 0]]
    with pytest.raises(ReplayError, match="too much work for a CPU"):
        replayed(data, torch.zeros(4))


def test_no_step_begins_after_the_deadline():
    with pytest.raises(ReplayTimeout):
        Replay(program_of_json(PROGRAM, 0), (), no_launch, deadline_s=0.0).run({"x": torch.zeros(4)})


@pytest.mark.parametrize(
    "step",
    [
        step_of("aten._reshape_alias.default", {"ref": 0}, {"list": [4]}, {"list": [1 << 36]}),
        step_of("aten._neg_view.default", {"ref": 0}),
    ],
    ids=["beyond its memory", "negated when it is read"],
)
def test_elements_that_lie_in_no_memory_are_refused(step):
    with pytest.raises(ReplayError, match="in no memory of its own"):
        replayed(changed("steps", 0, value=step), torch.zeros(4))


def test_an_error_of_any_kind_in_an_operation_is_one_of_its_program(monkeypatch):
    def fail(*args: object, **kwargs: object) -> None:
        raise AssertionError("a check of torch")

    monkeypatch.setattr("kernellab.judge.replay.operation_named", lambda name: fail)
    with pytest.raises(ReplayError, match="empty_like fails: a check of torch"):
        replayed(PROGRAM, torch.zeros(4))


@pytest.mark.parametrize(("sources", "expected"), [(("x",), {(0.0, 1.0, 2.0, 3.0)}), ((), set())])
def test_what_torch_alone_copied_from_inputs_is_known_as_it_was_before_a_kernel_got_it(sources, expected):
    data = changed("steps", value=[step_of("aten.clone.default", {"ref": 0})])
    data["steps"].append({**LAUNCH, "kwargs": [["x", {"ref": 1}]]})
    data["outputs"] = [1]

    def add_one(*call: Any) -> None:
        call[2]["x"].add_(1)

    replay = Replay(program_of_json(data, 1), (None,), add_one, sources=sources)  # type: ignore[arg-type]
    assert torch.equal(replay.run({"x": torch.arange(4.0)})[0], torch.arange(4.0) + 1)
    assert {tuple(moved.view(torch.float32).tolist()) for _, moved in replay.torch_copies} == expected


def test_a_result_of_another_shape_than_the_program_says_is_refused():
    data = changed("values", 2, 2, value=[2, 2])
    data["values"][2][3] = [2, 1]
    with pytest.raises(ReplayError, match="the program says"):
        replayed(data, torch.zeros(4))


@pytest.mark.parametrize(
    ("operation", "allow", "rule"),
    [
        ("aten.empty.memory_format", "triton", None),
        ("aten.zeros.default", "triton", None),
        ("aten.view.default", "triton", None),
        ("aten.transpose.int", "triton", None),
        ("window", "triton", None),
        ("launch", "triton", None),
        ("aten.mm.default", "triton", "torch_operation"),
        ("aten.clone.default", "triton", None),
        ("aten.copy_.default", "triton", None),
        ("aten._to_copy.default", "triton", None),
        ("aten.reshape.default", "triton", None),
        ("aten.cat.default", "triton", "torch_operation"),
        ("aten._grad_sum_to_size.default", "triton", "torch_operation"),
        ("aten._neg_view.default", "triton", "torch_operation"),
        ("aten._conj.default", "triton", "torch_operation"),
        ("aten._reshape_alias.default", "triton", "torch_operation"),
        ("aten.mm.default", "torch", None),
        ("aten.rand.default", "torch", "random"),
        ("aten.nonzero.default", "torch", "shape_from_data"),
        ("aten.set_.source_Storage", "torch", "unknown_operation"),
        ("aten.from_file.default", "torch", "unknown_operation"),
        ("aten._local_scalar_dense.default", "torch", "unknown_operation"),
        ("os.system.default", "torch", "unknown_operation"),
        ("aten.__class__.default", "torch", "unknown_operation"),
        ("aten.__class__.__init__", "torch", "unknown_operation"),
        ("aten.no_such_operation.default", "torch", "unknown_operation"),
        ("read", "torch", "host_reads_data"),
    ],
)
def test_what_a_candidate_may_call(operation, allow, rule):
    problem = operation_problem(operation, allow)
    assert (None if problem is None else problem[0]) == rule
