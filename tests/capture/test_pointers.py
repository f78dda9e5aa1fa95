"""Programs whose launches take addresses out of memory or as numbers: the tensors behind them are inputs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import kernellab
from kernellab.capture.program import Program
from tests.capture.test_export import exported
from tests.kernels import pointers

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def updates(lab: kernellab.Lab, device: str) -> tuple[Program, dict[str, torch.Tensor]]:
    """Record updates of three tensors by a table, and of a part of a fourth by its address; return both."""
    foreach, at = lab.bind(pointers.foreach_add), lab.bind(pointers.add_at)
    first, second, third = (torch.zeros(n, device=device) for n in (5, 70, 200))
    fourth, lengths = torch.zeros(64, device=device), torch.tensor([5, 70, 200], device=device)
    with lab.capture() as program:
        made = second + 1
        table = torch.tensor([each.data_ptr() for each in (first, made, third)], device=device)
        foreach[(3,)](table, lengths, 2.0, BLOCK=64)
        at[(1,)](fourth[8:].data_ptr(), 8, 1.0, BLOCK=16)
        total = made.sum() + fourth.sum()
    assert total.item() == 70 * 3 + 8
    return program, {"first": first, "third": third, "fourth": fourth}


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
def test_a_program_updates_the_tensors_that_it_is_given(lab: kernellab.Lab, device: str) -> None:
    program, recorded = updates(lab, device)
    assert {"first", "second", "third", "fourth"} <= set(program.inputs)
    assert program.notes == ()
    given = {name: torch.full_like(tensor, 10) for name, tensor in program.make_inputs().items() if name != "lengths"}
    before = {name: tensor.clone() for name, tensor in recorded.items()}
    outputs = program.run(**given, lengths=torch.tensor([5, 70, 200], device=device))
    assert outputs["total"].item() == 70 * 13 + 64 * 10 + 8
    assert given["first"].eq(12).all()
    assert given["third"].eq(12).all()
    assert given["fourth"].sum().item() == 64 * 10 + 8
    assert given["second"].eq(10).all()
    assert all(torch.equal(recorded[name], before[name]) for name in recorded)


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
def test_a_functional_program_leaves_what_it_reaches_as_it_was(lab: kernellab.Lab, device: str) -> None:
    program, _ = updates(lab, device)
    given = {name: torch.full_like(tensor, 10) for name, tensor in program.make_inputs().items() if name != "lengths"}
    given["lengths"] = torch.tensor([5, 70, 200], device=device)
    before = {name: tensor.clone() for name, tensor in given.items()}
    outputs = program.functionalise().run(**given)
    assert outputs["total"].item() == 70 * 13 + 64 * 10 + 8
    assert outputs["first"].eq(12).all()
    assert all(torch.equal(given[name], before[name]) for name in given)


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
def test_a_program_with_addresses_runs_alone(lab: kernellab.Lab, tmp_path: Path, device: str) -> None:
    program, _ = updates(lab, device)
    result = exported(program, tmp_path, interpret=device == "cpu")
    assert result.returncode == 0, result.stderr
    assert "equal" in result.stdout


@pytest.mark.slow
def test_what_a_program_cannot_make_anew_is_noted(lab: kernellab.Lab) -> None:
    data = torch.zeros(16)
    inner = torch.tensor([data.data_ptr()])
    outer = torch.tensor([inner.data_ptr()])
    bound = lab.bind(pointers.add_through_two_tables)
    with lab.capture() as program:
        bound[(1,)](outer, 1.0, BLOCK=16)
    assert any("uses addresses of memory that the program does not allocate" in note for note in program.notes)
