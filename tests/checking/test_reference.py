"""A reference: how it is computed, and what it is compared with."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kernellab.checking.reference import check_in, check_of, reference_of
from kernellab.errors import UsageError

X = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
OUT = torch.zeros(2, 2)
ARGUMENTS = {"x_ptr": X, "out_ptr": OUT, "n": 2, "EVEN": True}


def test_a_function_takes_the_parameters_that_it_names_in_float64() -> None:
    seen: dict[str, Any] = {}

    def double(x_ptr: torch.Tensor, n: int) -> torch.Tensor:
        seen.update(x=x_ptr.dtype, n=n)
        return x_ptr.mul_(n)

    reference = reference_of(check_of(double), ARGUMENTS)
    assert seen == {"x": torch.float64, "n": 2}
    assert torch.equal(reference.of({"out_ptr": OUT})["out_ptr"].value, (2 * X).double())
    assert X[0, 0] == 1.0


def test_a_function_that_needs_the_dtype_as_it_is_gets_copies() -> None:
    def exact(x_ptr: torch.Tensor) -> torch.Tensor:
        if x_ptr.dtype != torch.float32:
            raise TypeError("float32 only")
        return x_ptr.add_(1)

    reference = reference_of(check_of(exact), ARGUMENTS)
    assert torch.equal(reference.of({"out_ptr": OUT})["out_ptr"].value, torch.tensor([[2.0, 3.0], [4.0, 5.0]]))
    assert X[0, 0] == 1.0


def test_the_tensors_of_tuples_are_widened_and_copied_too() -> None:
    def summed(pair: tuple[torch.Tensor, int]) -> torch.Tensor:
        return pair[0].add_(pair[1])

    reference = reference_of(check_of(summed), {"pair": (X, 2), "out_ptr": OUT})
    assert torch.equal(reference.of({"out_ptr": OUT})["out_ptr"].value, X.double() + 2)
    assert X[0, 0] == 1.0


def test_an_expression_is_over_parameters_or_over_the_names_of_a_notebook() -> None:
    for check in (check_of("torch.softmax(x_ptr, 1)"), check_in("torch.softmax(x, 1)", {"x": X, "torch": torch})):
        values = reference_of(check, ARGUMENTS).of({"out_ptr": OUT})["out_ptr"].value
        assert values.dtype == torch.float64
        assert torch.allclose(values, torch.softmax(X.double(), 1))


def test_values_go_by_name_or_by_the_order_of_the_outputs() -> None:
    outputs = {"a": OUT, "b": OUT}
    by_order = reference_of(check_of(lambda x_ptr: (x_ptr, -x_ptr)), ARGUMENTS).of(outputs)
    assert torch.equal(by_order["b"].value, -X.double())
    by_name = reference_of(check_of(lambda x_ptr: {"b": x_ptr}), ARGUMENTS).of(outputs)
    assert list(by_name) == ["b"]


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (lambda x_ptr: (x_ptr, x_ptr), "gives 2 values and the kernel writes out_ptr"),
        (lambda x_ptr: {"y": x_ptr}, "gives y, and the kernel writes out_ptr"),
        (lambda x_ptr: x_ptr[0], r"has the shape \(2,\) and out_ptr has \(2, 2\)"),
        (lambda y: y, "check takes y; the kernel has x_ptr"),
        (lambda x_ptr: "text", "gives a str; expected tensors"),
        (lambda x_ptr: 1 / 0, "raised ZeroDivisionError"),
        ("torch.absent(x_ptr)", "cannot be evaluated: AttributeError"),
        ("1 +", "is not valid Python: invalid syntax"),
        (7, "expected a function of kernel parameters"),
    ],
)
def test_a_check_that_makes_no_sense_is_refused(check: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        reference_of(check_of(check), ARGUMENTS).of({"out_ptr": OUT})


def test_equal_values_have_one_identity_and_others_another() -> None:
    def identity(value: torch.Tensor) -> str:
        return reference_of(check_of(lambda: value), {}).identity

    values = [X, X + 1, X.flip(0), X.half(), X.flatten(), torch.zeros(0)]
    found = [identity(value) for value in values]
    assert len(set(found)) == len(values)
    assert [identity(value.clone()) for value in values] == found


@pytest.mark.parametrize("text", ["x_ptr + z", "[x_ptr * z for x_ptr in (1, 2)]", "torch.where(x_ptr > 0, z, 0)"])
def test_a_check_needs_the_names_that_it_does_not_make_itself(text: str) -> None:
    assert "z" in check_of(text).needs
    with pytest.raises(UsageError, match="check takes z; the kernel has x_ptr"):
        check_of(text).require({"x_ptr": X})
    check_of(text).require({"x_ptr": X, "z": X})
    check_of("max([abs(a) for a in x_ptr], key=lambda b: b) + torch.pi").require({"x_ptr": X})


def test_a_check_over_the_names_of_a_notebook_misses_none_of_them() -> None:
    assert check_in("x + 1", {"x": X}).text == "x + 1"
    with pytest.raises(UsageError, match="check 'x \\+ zz' uses zz, which the notebook does not define"):
        check_in("x + zz", {"x": X})
