"""Python in between: what it reads of tensors holds for runs that read the same; loops are unrolled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import kernellab
from kernellab.errors import UsageError
from tests import samples

Body = Callable[[torch.Tensor], torch.Tensor]
X = torch.arange(1.0, 101.0)


def captured(lab: kernellab.Lab, body: Body, **options: Any) -> Any:
    x = X.clone()
    with lab.capture(**options) as program:
        program.returns(body(x))
    return program


def branching(x: torch.Tensor) -> torch.Tensor:
    return x + 1 if x.sum() > 0 else x - 1


def scaling(x: torch.Tensor) -> torch.Tensor:
    return x / float(x.max())


def listing(x: torch.Tensor) -> torch.Tensor:
    return x * x[:2].tolist()[1]


def comparing(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if torch.equal(x[:50], x[50:] - 50) else x


def by_numpy(x: torch.Tensor) -> torch.Tensor:
    return x * float((x * 2).numpy().max())


@pytest.mark.parametrize("body", [branching, scaling, listing, comparing, by_numpy])
@pytest.mark.parametrize("is_dynamic", [False, True])
def test_a_run_that_reads_something_else_is_refused_with_the_line(
    lab: kernellab.Lab, tmp_path: Path, body: Body, is_dynamic: bool
) -> None:
    program = captured(lab, body, dynamic=is_dynamic)
    program.export(tmp_path / "reading.py")
    names: dict[str, Any] = {"__name__": "reading"}
    exec((tmp_path / "reading.py").read_text(), names)
    (output,) = program.outputs
    for run in (program.run, program.functionalise().run, program.only(output).run, names["run"]):
        torch.testing.assert_close(run(x=X.clone())[output], body(X))
        with pytest.raises((UsageError, ValueError), match=rf"test_reads.py, line {line_of(body)} reads"):
            run(x=-X * X)


def line_of(body: Body) -> int:
    return body.__code__.co_firstlineno + 1


def test_another_run_that_takes_the_same_branch_goes_on(lab: kernellab.Lab) -> None:
    program = captured(lab, branching)
    torch.testing.assert_close(program(3 * X), branching(3 * X))


@pytest.mark.slow
def test_what_is_read_of_memory_that_a_kernel_changed_is_read_after_the_launch(lab: kernellab.Lab) -> None:
    scale = lab.bind(samples.scale_kernel)

    def body(x: torch.Tensor) -> torch.Tensor:
        out = torch.zeros_like(x)
        scale[(1,)](x, out, 100, BLOCK=128)
        return out + 1 if out[0] > 3 else out

    program = captured(lab, body)
    torch.testing.assert_close(program(X), body(X))
    with pytest.raises(UsageError, match="reads False of a tensor for this data; it read True"):
        program(-X)


def test_a_value_that_is_no_number_equals_itself(lab: kernellab.Lab) -> None:
    program = captured(lab, lambda x: x + (x[0] - torch.inf * 0).item())
    assert program(X).isnan().all()


def test_loops_are_unrolled(lab: kernellab.Lab) -> None:
    def body(x: torch.Tensor) -> torch.Tensor:
        for step in range(3):
            x = x * 2 + step
        return x

    program = captured(lab, body)
    assert program.notes == ()
    torch.testing.assert_close(program(-X), body(-X))


def test_what_follows_from_no_input_is_not_asked_again(lab: kernellab.Lab) -> None:
    def stepped(x: torch.Tensor) -> torch.Tensor:
        weight = torch.nn.Parameter(torch.ones(100))
        (weight * x).sum().backward()
        torch.optim.Adam([weight], lr=0.1).step()  # reads its own count of steps
        return weight.detach() * torch.tensor([3.0])[0].item()

    program = captured(lab, stepped)
    assert "read" not in {step.operation for step in program.tape.steps}
    torch.testing.assert_close(program(-X), stepped(-X))
