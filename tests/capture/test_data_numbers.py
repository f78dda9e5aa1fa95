"""Numbers that a block reads from tensors: inputs of each run, in launches, in operations of torch and in decisions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

import kernellab
from kernellab.capture.size import Number
from kernellab.errors import UsageError
from tests import samples
from tests.export.exporting import run_files


@triton.jit
def shift(x_ptr, out_ptr, seed, factor, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(out_ptr + offsets, x * factor + seed, mask=offsets < n)


X = torch.arange(1.0, 101.0)


def shifted(lab: kernellab.Lab, x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    largest = x.max().item()
    lab.bind(shift)[(4,)](x, out, x.argmax().item() * 2 + 3, largest / 2, 100, BLOCK=32)
    return out


def runs_of(program: Any, folder: Path) -> list[Any]:
    """Return the ways to run a program: as recorded, functional, and as a module."""
    program.export(folder / "exported.py")
    names: dict[str, Any] = {"__name__": "exported"}
    exec((folder / "exported.py").read_text(), names)
    return [program.run, program.functionalise().run, names["run"]]


@pytest.mark.slow
def test_a_launch_takes_numbers_that_each_run_reads_again(lab: kernellab.Lab, tmp_path: Path) -> None:
    x = X.clone()
    with lab.capture(dynamic=True) as program:
        program.returns(shifted(lab, x))
    (output,) = program.outputs
    for run in (program.run, program.functionalise().run):
        for other in (X, X.flip(0) * 3, -X):
            torch.testing.assert_close(run(x=other.clone())[output], shifted(lab, other))
    program.export(tmp_path / "exported.py")
    result = run_files(tmp_path / "exported.py")
    assert result.returncode == 0, result.stderr
    assert "outputs match" in result.stdout
    assert "refused" not in " ".join(program.notes)


@pytest.mark.slow
@pytest.mark.parametrize("is_dynamic", [False, True])
def test_a_seed_that_is_drawn_in_the_block_is_drawn_in_each_run(lab: kernellab.Lab, is_dynamic: bool) -> None:
    kernel, x = lab.bind(shift), X.clone()
    with lab.capture(dynamic=is_dynamic) as program:
        seed = torch.randint(0, 2**20, ()).item()
        out = torch.empty_like(x)
        kernel[(4,)](x, out, seed + 1, 1.0, 100, BLOCK=32)
        program.returns(out)
    for state in (1, 2):
        torch.manual_seed(state)
        drawn = torch.randint(0, 2**20, ()).item()
        torch.manual_seed(state)
        torch.testing.assert_close(program(X.clone()), X + drawn + 1)
    if not is_dynamic:
        with pytest.raises(UsageError, match="has the shape"):
            program(X[:50].clone())


def test_torch_takes_a_number_of_data_and_its_layouts_follow(lab: kernellab.Lab, tmp_path: Path) -> None:
    def body(x: torch.Tensor) -> torch.Tensor:
        count = (x > 0).sum().item()
        return torch.full((count,), 2.5) * x.max().item() + torch.arange(count)

    x = X.clone()
    with lab.capture(dynamic=True) as program:
        program.returns(body(x))
    (output,) = program.outputs
    for run in runs_of(program, tmp_path):
        for other in (X, X - 40):
            torch.testing.assert_close(run(x=other.clone())[output], body(other))


def test_a_decision_by_a_number_is_a_guard_that_each_run_asks(lab: kernellab.Lab, tmp_path: Path) -> None:
    def body(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.argmax().item() > 50 else x - 1

    x = X.clone()
    with lab.capture(dynamic=True) as program:
        program.returns(body(x))
    (output,) = program.outputs
    higher = X.roll(-20)
    for run in runs_of(program, tmp_path):
        torch.testing.assert_close(run(x=higher.clone())[output], body(higher))
        with pytest.raises((UsageError, ValueError), match=r"item > 50 \(.*test_data_numbers.py, line \d+\)"):
            run(x=X.flip(0).clone())


def test_a_captured_function_captures_the_other_branch_and_serves_other_numbers(lab: kernellab.Lab) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        place = x.argmax().item()
        return x * place if place > 50 else x - place

    captured = lab.capture(function, dynamic=True)
    for other in (X, X.roll(-20), X.flip(0), X.roll(30), X.roll(-30)):
        torch.testing.assert_close(captured(other.clone()), function(other))
    assert len(captured.programs) == 2
    assert "item > 50" in captured.reasons[0] + captured.reasons[1]


def test_what_needs_a_plain_number_fixes_it_and_one_drawn_at_random_is_refused(lab: kernellab.Lab) -> None:
    x = X.clone()
    with lab.capture(dynamic=True) as program:
        total = x
        for _ in range(x[:3].argmax().item()):
            total = total + x
        program.returns(total)
    torch.testing.assert_close(program(2 * X), 6 * X)
    with pytest.raises(UsageError, match=r"test_data_numbers.py, line \d+ reads 1 of a tensor"):
        program(torch.sin(X))
    assert "reads a value of a tensor, 2" in " ".join(program.notes)
    with pytest.raises(UsageError, match=r"draws at random.*takes as a plain number"), lab.capture():
        [0] * range(torch.randint(5, 9, ()).item())[-1]


def test_a_number_that_is_neither_finite_nor_whole_stays_a_read(lab: kernellab.Lab) -> None:
    x = X.clone()
    with lab.capture(dynamic=True) as program:
        program.returns(x + (x[0] / 0).item())
    assert program(X).isinf().all()
    with pytest.raises(UsageError, match="reads -inf of a tensor"):
        program(-X)


@pytest.mark.slow
def test_a_number_computed_by_a_kernel_is_read_after_its_launch(lab: kernellab.Lab) -> None:
    scale = lab.bind(samples.scale_kernel)

    def body(x: torch.Tensor) -> torch.Tensor:
        out = torch.zeros_like(x)
        scale[(1,)](x, out, 100, BLOCK=128)
        return x * out[1].item()

    x = X.clone()
    with lab.capture(dynamic=True) as program:
        program.returns(body(x))
    torch.testing.assert_close(program(-X), body(-X))


def test_two_numbers_of_one_value_are_unequal_exactly_where_they_are_not_equal() -> None:
    import sympy

    one, other = (Number(0.5, sympy.Symbol(name)) for name in ("a", "b"))
    again = Number(0.5, sympy.Symbol("a"))
    assert [(one == number, one != number) for number in (again, other, 0.5)] == [
        (True, False),
        (False, True),
        (False, True),
    ]
