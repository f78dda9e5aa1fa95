"""Operators of the user in exported modules: their definition goes along, or a sentence refuses them."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from torch.library import wrap_triton

import kernellab
from kernellab.capture.program import Program
from kernellab.errors import UsageError
from tests.capture.test_export import exported
from tests.capture.test_unseen import operator

FACTOR = 3


@triton.jit
def times(value, FACTOR: tl.constexpr):
    return value * FACTOR


@triton.jit
def times_kernel(x_ptr, out_ptr, n, FACTOR: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, times(tl.load(x_ptr + offsets, mask=mask), FACTOR), mask=mask)


def grid_of(n: int) -> Any:
    return lambda meta: (triton.cdiv(n, meta["BLOCK"]),)


def tripled(x: torch.Tensor, out: torch.Tensor, *, bias: float) -> torch.Tensor:
    times_kernel[grid_of(x.numel())](x, out, x.numel(), FACTOR=FACTOR, BLOCK=64)
    return out + bias


def wrapped(x: torch.Tensor) -> list[torch.Tensor]:
    out = torch.empty_like(x)
    wrap_triton(times_kernel)[grid_of(x.numel())](x, out, x.numel(), FACTOR=2, BLOCK=64)
    return [out, x + 1]


def recorded(lab: kernellab.Lab, body: Callable[[Any], Any]) -> Program:
    x = torch.rand(100)
    with lab.capture() as program:
        y = body(x)
    assert y is not None
    return program


@pytest.mark.slow
def test_an_operator_is_written_out_with_its_kernels_and_helpers(lab: kernellab.Lab, tmp_path: Path) -> None:
    first, second = operator(tripled, mutates=("out",)), operator(wrapped, make=torch.library.triton_op)

    def body(x: torch.Tensor) -> torch.Tensor:
        y = first(x, torch.empty_like(x), bias=0.5)
        left, right = second(y)
        return left + right  # type: ignore[no-any-return]

    lab.launches.activate()
    program = recorded(lab, body)
    result = exported(program.only("y"), tmp_path)
    assert result.returncode == 0, result.stderr
    text = (tmp_path / "exported.py").read_text()
    assert "torch.ops.kernellab_tests" not in text
    assert text.count("def times_kernel(") == 1


def test_the_implementation_of_the_device_is_what_goes_along(lab: kernellab.Lab, tmp_path: Path) -> None:
    def anywhere(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    def on_cpu(x: torch.Tensor) -> torch.Tensor:
        return x * 5

    op: Any = operator(anywhere)
    op.register_kernel("cpu")(on_cpu)
    program = recorded(lab, op)
    program.export(tmp_path / "program.py")
    assert "x * 5" in (tmp_path / "program.py").read_text()


def _from_a_library() -> Callable[[Any], Any]:
    name = f"op_{uuid.uuid4().hex}"
    library = torch.library.Library("kernellab_tests", "FRAGMENT")
    library.define(f"{name}(Tensor x) -> Tensor")
    library.impl(name, lambda x: x + 1, "CompositeExplicitAutograd")
    return lambda x: (library, getattr(torch.ops.kernellab_tests, name)(x))[1]


def _in_torchs_namespace() -> Callable[[Any], Any]:
    name = f"kernellab_{uuid.uuid4().hex}"
    library = torch.library.Library("aten", "FRAGMENT")
    library.define(f"{name}(Tensor x) -> Tensor")
    library.impl(name, lambda x: x + 1, "CompositeExplicitAutograd")
    return lambda x: (library, getattr(torch.ops.aten, name)(x))[1]


def _of_another_operator() -> Callable[[Any], Any]:
    def outer(x: torch.Tensor) -> torch.Tensor:
        return torch.ops.elsewhere.op(x) if x.dim() > 9 else x + 1  # type: ignore[no-any-return]

    return operator(outer)


def _of_a_lock() -> Callable[[Any], Any]:
    import threading

    lock = threading.Lock()

    def locked(x: torch.Tensor) -> torch.Tensor:
        with lock:
            return x + 1

    return operator(locked)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (_from_a_library, "whose definition is not known"),
        (_in_torchs_namespace, "test_user_operators.py has registered or changed"),
        (_of_another_operator, "calls torch.ops.elsewhere.op"),
        (_of_a_lock, "uses lock, a "),
    ],
)
def test_what_cannot_go_along_is_refused_in_a_sentence(
    lab: kernellab.Lab, tmp_path: Path, make: Callable[[], Callable[[Any], Any]], words: str
) -> None:
    program = recorded(lab, make())
    with pytest.raises(UsageError, match=f"{words}.*cannot bring along"):
        program.export(tmp_path / "program.py")
    assert not (tmp_path / "program.py").exists()


def test_a_program_says_that_an_operator_is_gone(lab: kernellab.Lab) -> None:
    library = torch.library.Library("kernellab_gone", "FRAGMENT")
    library.define("op(Tensor x) -> Tensor")
    library.impl("op", lambda x: x + 1, "CompositeExplicitAutograd")
    program = recorded(lab, torch.ops.kernellab_gone.op)
    library._destroy()
    with pytest.raises(UsageError, match=r"kernellab_gone\.op\.default, an operator that is not registered any more"):
        program.run(x=torch.rand(100))
