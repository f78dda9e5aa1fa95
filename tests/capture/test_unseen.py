"""Programs that a recording could get wrong without a word: each gives what the code gives, or is refused."""

from __future__ import annotations

import sys
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import kernellab
from kernellab.errors import UsageError
from tests import samples
from tests.capture.kernels import scaled

Body = Callable[..., Any]


def operator(function: Callable[..., Any], mutates: Any = (), make: Any = torch.library.custom_op) -> Any:
    return make(f"kernellab_tests::op_{uuid.uuid4().hex}", mutates_args=mutates)(function)


def same(lab: kernellab.Lab, body: Body, *, inputs: int = 1) -> Any:
    """Record a body; require that the program does with other inputs what the body does."""
    x = torch.arange(1.0, 101.0)
    if inputs == 1:
        with lab.capture() as program:
            y = body(x)
    else:
        z = torch.ones(100)
        with lab.capture() as program:
            y = body(x, z)
    assert program.inputs == ("x", "z")[:inputs]
    others = [torch.linspace(-2, 3, 100) * (n + 1) for n in range(inputs)]
    expected_inputs = [other.clone() for other in others]
    expected = body(*expected_inputs)
    found = program.only("y") if "y" in program.outputs else program
    torch.testing.assert_close(found(*others), expected)
    torch.testing.assert_close(others, expected_inputs)
    assert y.shape == expected.shape
    return program


@pytest.mark.parametrize("make", [torch.library.custom_op, torch.library.triton_op])
def test_an_operator_that_launches_is_recorded_once(lab: kernellab.Lab, make: Any) -> None:
    def doubled(x: torch.Tensor) -> torch.Tensor:
        return scaled(lab, x)

    op = operator(doubled, make=make)
    program = same(lab, lambda x: op(x) + 1)
    assert not program.tape.launches
    assert [step.operation.split(".")[0] for step in program.tape.steps] == ["kernellab_tests", "aten"]


def test_an_operator_that_changes_its_argument_in_a_launch_changes_it_once(lab: kernellab.Lab) -> None:
    scale = lab.bind(samples.scale_kernel)

    def doubled(x: torch.Tensor) -> None:
        scale[(1,)](x, x, x.numel(), BLOCK=128)

    op = operator(doubled, mutates=("x",))

    def body(x: torch.Tensor) -> torch.Tensor:
        op(x)
        return x + 1

    same(lab, body)


def test_an_operator_in_an_operator_is_part_of_it(lab: kernellab.Lab) -> None:
    inner = operator(lambda_typed(lambda x: scaled(lab, x)))
    outer = operator(lambda_typed(lambda x: inner(x) * 3))
    program = same(lab, lambda x: outer(x) - 1)
    assert len(program.tape.steps) == 2


def lambda_typed(function: Callable[[Any], Any]) -> Callable[..., Any]:
    def typed(x: torch.Tensor) -> torch.Tensor:
        return function(x)  # type: ignore[no-any-return]

    return typed


@pytest.mark.slow
def test_an_operator_of_a_session_is_not_exported(lab: kernellab.Lab, tmp_path: Path) -> None:
    op = operator(lambda_typed(lambda x: scaled(lab, x)))
    program = same(lab, lambda x: op(x) + 1)
    with pytest.raises(UsageError, match=r"kernellab_tests.*an operator .*cannot bring along"):
        program.export(tmp_path / "program.py")


def launched_over_positive(lab: kernellab.Lab, x: torch.Tensor) -> torch.Tensor:
    return scaled(lab, x[x > 0])


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("aten.index.Tensor", lambda x: x[x > 0] * 2),
        ("aten.nonzero", lambda x: torch.nonzero(x > 0)),
        ("aten.nonzero", lambda x: torch.where(x > 0)[0]),
        ("aten.masked_select", lambda x: torch.masked_select(x, x > 0)),
        ("aten._unique2", lambda x: torch.unique(x.int())),
        ("aten.unique_consecutive", lambda x: torch.unique_consecutive(x.int())),
        ("aten.bincount", lambda x: torch.bincount(x.abs().long())),
        ("aten.repeat_interleave", lambda x: torch.repeat_interleave(x.abs().long())),
    ],
)
def test_a_shape_of_data_holds_for_the_recorded_one_and_another_is_refused(
    lab: kernellab.Lab, name: str, body: Body, tmp_path: Path
) -> None:
    x = torch.arange(-3.0, 5.0)
    with lab.capture() as program:
        y = body(x)
    assert any(name in note and "depends on data" in note for note in program.notes)
    torch.testing.assert_close(program(x), y)
    for each in (program, program.functionalise()):
        with pytest.raises(UsageError, match=rf"{name}.*recorded with .*Capture it again"):
            each(torch.zeros(8))
    program.export(tmp_path / "program.py")
    assert "shape_problem(" in (tmp_path / "program.py").read_text()


def test_a_launch_over_a_selection_never_leaves_a_wrong_tail(lab: kernellab.Lab) -> None:
    x = torch.arange(-3.0, 5.0)
    with lab.capture() as program:
        y = launched_over_positive(lab, x)
    torch.testing.assert_close(program.only("y")(x.flip(0)), launched_over_positive(lab, x.flip(0)))
    assert y.shape == (4,)
    with pytest.raises(UsageError, match="gives the shape \\(8,\\) for this data"):
        program(x.abs() + 1)


def test_an_exported_program_refuses_another_shape_too(lab: kernellab.Lab, tmp_path: Path) -> None:
    x = torch.arange(-3.0, 5.0)
    with lab.capture() as program:
        y = x[x > 0] + 1
    assert y.shape == (4,)
    program.export(tmp_path / "selected.py")
    names: dict[str, Any] = {"__name__": "selected"}
    exec((tmp_path / "selected.py").read_text(), names)
    torch.testing.assert_close(names["run"](x=x)["y"], y)
    with pytest.raises(ValueError, match="recorded with \\(4,\\)"):
        names["run"](x=x + 10)


@pytest.mark.parametrize(
    ("what", "body"),
    [
        ("a value of a tensor, 100.0", lambda x: x / x.max().item()),
        ("a value of a tensor, 100.0", lambda x: x / float(x.max())),
        ("values of a tensor, [1.0, 2.0]", lambda x: x * x[:2].tolist()[1]),
        ("a value of a tensor, True", lambda x: x + 1 if x.sum() > 0 else x - 1),
        ("a value of a tensor, True", lambda x: x + 1 if torch.equal(x, x) else x - 1),
        ("a value of a tensor, True", lambda x: x + 1 if bool((x > 0).any()) else x),
        ("by numpy(); what is read there is fixed", lambda x: x * float(x.numpy()[3])),
        ("by numpy.asarray; what is read there is fixed", lambda x: x * float(np.asarray(x)[3])),
        ("by DLPack; what is read there is fixed", lambda x: x * float(np.from_dlpack(x)[3])),
        ("is random", lambda x: x + torch.rand(100)),
    ],
)
def test_what_a_program_fixes_is_said(lab: kernellab.Lab, what: str, body: Body) -> None:
    x = torch.arange(1.0, 101.0)
    with lab.capture() as program:
        y = body(x)
    assert y.shape == (100,)
    assert any(what in note for note in program.notes), program.notes
    assert any("test_unseen.py, line" in note for note in program.notes)


def test_other_memory_in_place_of_a_tensors_own_is_what_is_computed_with(lab: kernellab.Lab) -> None:
    def body(x: Any, z: Any) -> Any:
        z.data = x * 2
        return z + 1

    x, z = torch.arange(100.0), torch.zeros(100)
    with lab.capture() as program:
        z.data = x * 2
        y = z + 1
    assert any("replaces the memory of z" in note for note in program.notes)
    torch.testing.assert_close(program.only("y")(torch.ones(100)), torch.full((100,), 3.0))
    torch.testing.assert_close(y, body(x, torch.zeros(100)))


def test_other_memory_that_is_not_used_again_is_an_output(lab: kernellab.Lab) -> None:
    x, z = torch.arange(100.0), torch.zeros(100)
    with lab.capture() as program:
        y = z + 1
        z.data = x * 2
    assert {"y", "z"} <= {name.removesuffix("_1") for name in program.outputs}
    assert any("replaces the memory" in note for note in program.notes)
    assert torch.equal(y, torch.ones(100))


def write_by_numpy(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y.numpy()[0] = 50.0
    return y + 1


def write_by_numpy_at_the_end(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    np.asarray(y)[0] = 50.0
    return y


def write_by_dlpack(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    torch.from_dlpack(y).add_(1)
    return y + 1


def write_in_a_thread(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    thread = threading.Thread(target=y.add_, args=(1,))
    thread.start()
    thread.join()
    return y + 1


ARRAY = np.zeros(100, dtype=np.float32)


def write_to_an_array_of_a_tensor(x: torch.Tensor) -> torch.Tensor:
    t = torch.from_numpy(ARRAY)
    y = x + t
    ARRAY[0] += 5.0
    return y + t


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (write_by_numpy, r"y was changed .* else than torch: test_unseen.py, line \d+ hands it out by numpy\(\)"),
        (write_by_numpy_at_the_end, r"y was changed .* hands it out by numpy.asarray"),
        (write_by_dlpack, "hands it out by DLPack"),
        (write_in_a_thread, "y was changed .* by an operation that was not seen, as of another thread"),
        (write_to_an_array_of_a_tensor, "NumPy or another process holds it too"),
    ],
)
def test_memory_that_changes_behind_a_capture_is_refused_with_the_place(
    lab: kernellab.Lab, body: Body, reason: str
) -> None:
    x = torch.arange(100.0)
    with pytest.raises(UsageError, match=reason), lab.capture() as program:
        y = body(x)
    assert y.shape == x.shape
    assert not program.is_complete
    with pytest.raises(UsageError, match=reason):
        program(x)


def test_a_launch_of_another_thread_on_memory_of_the_block_is_refused(lab: kernellab.Lab) -> None:
    x, out = torch.arange(8.0), torch.zeros(8)
    kernel = lab.bind(samples.scale_kernel)

    def body() -> torch.Tensor:
        before = out + 1
        thread = threading.Thread(target=lambda: kernel[(1,)](x, out, 8, BLOCK=128))
        thread.start()
        thread.join()
        return before + out

    with pytest.raises(UsageError, match="launches scale_kernel in another thread"), lab.capture():
        body()


def test_memory_that_numpy_changes_before_a_launch_is_refused(lab: kernellab.Lab) -> None:
    x, out = torch.arange(100.0), torch.zeros(100)
    array = out.numpy()
    with pytest.raises(UsageError, match="out was changed"), lab.capture():
        write_and_launch(lab, x, out, array)


def write_and_launch(lab: kernellab.Lab, x: torch.Tensor, out: torch.Tensor, array: Any) -> None:
    out.add_(1)
    array[0] = 7.0
    lab.bind(samples.scale_kernel)[(1,)](x, out, 100, BLOCK=128)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(lambda x: x.resize_(200), id="resize_"),
        pytest.param(lambda x: x.set_(torch.zeros(100)), id="set_"),
        pytest.param(lambda x: x.untyped_storage().fill_(0), id="a fill of its storage"),
    ],
)
def test_more_or_other_memory_in_place_is_refused(lab: kernellab.Lab, body: Body) -> None:
    x = torch.arange(100.0)
    with pytest.raises(UsageError, match="resizes a tensor or replaces its memory in place"), lab.capture() as program:
        body(x)
    assert not program.is_complete


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, lab: kernellab.Lab) -> torch.Tensor:
        ctx.lab = lab
        return scaled(lab, x)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return scaled(ctx.lab, gradients[0].contiguous()), None


def gradient_of(lab: kernellab.Lab, x: torch.Tensor) -> torch.Tensor:
    x = x.detach().requires_grad_()
    (Doubled.apply(x, lab) * x).sum().backward()
    assert x.grad is not None
    return x.grad


def changed_view(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[10:20].mul_(3)
    y.view(10, 10)[:, 2] = 1
    y[::2].copy_(x[1::2])
    return y


def out_variant(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty(100)
    torch.mul(x, 2, out=out)
    torch.add(out, 1, out=out)
    return out


def scattered(x: torch.Tensor) -> torch.Tensor:
    y = torch.zeros(100)
    y.index_put_((torch.arange(50),), x[:50])
    y[x > 5] = -1.0
    y.masked_fill_(y < 0, 2.0)
    return y


def through_data(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y.data.add_(3)
    y.detach().mul_(2)
    return y + 1


def swapped(x: torch.Tensor) -> torch.Tensor:
    y, z = x + 1, x * 2
    y, z = z, y
    y.add_(z)
    return y


def without_dropout(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.dropout(x * 2, 0.5, training=False)


@pytest.mark.parametrize("body", [changed_view, out_variant, scattered, through_data, swapped, without_dropout])
def test_what_torch_does_in_place_comes_out_the_same(lab: kernellab.Lab, body: Body) -> None:
    same(lab, body)


def test_launches_of_a_backward_pass_are_part_of_the_program(lab: kernellab.Lab) -> None:
    program = same(lab, lambda x: gradient_of(lab, x))
    assert len(program.tape.launches) == 2


def test_launches_of_a_thread_that_follows_a_recording_are_told() -> None:
    from kernellab.launch.recording import Observers

    observers, told = Observers(), []
    here = threading.Event()
    with observers.observe(told.append, here.is_set):
        thread = threading.Thread(target=lambda: observers.report("unrelated"))  # type: ignore[arg-type]
        thread.start()
        thread.join()
        here.set()
        thread = threading.Thread(target=lambda: observers.report("of a backward pass"))  # type: ignore[arg-type]
        thread.start()
        thread.join()
        observers.report("own")  # type: ignore[arg-type]
    observers.report("after")  # type: ignore[arg-type]
    assert told == ["of a backward pass", "own"]


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="torch.compile lags behind new Pythons")
def test_a_function_that_torch_compiles_gives_the_same(lab: kernellab.Lab) -> None:
    compiled = torch.compile(lambda x: torch.sin(x) * 2 + 1, backend="eager")
    same(lab, lambda x: compiled(x) - 1)
