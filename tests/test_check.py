from __future__ import annotations

import pytest
import torch

from kernellab.check import compare
from kernellab.errors import UsageError
from kernellab.report import Check


def one(got: torch.Tensor, want: torch.Tensor) -> Check:
    (check,) = compare("want", want, {"out": got})
    return check


def test_equal_tensors_are_equal() -> None:
    x = torch.randn(10, 20)
    assert one(x, x.clone()).equal


def test_a_rounding_error_is_allowed_and_a_wrong_element_is_counted() -> None:
    x = torch.randn(1000)
    assert one(x * (1 + 1e-6), x).equal
    wrong = x.clone()
    wrong[[3, 500]] += 1
    check = one(wrong, x)
    assert (check.equal, check.mismatched, check.elements) == (False, 2, 1000)
    assert check.max_error == pytest.approx(1, rel=1e-5)


def test_integers_must_be_equal_exactly() -> None:
    x = torch.arange(100)
    assert one(x, x).equal
    assert one(x + (x == 7), x).mismatched == 1


def test_nan_never_passes_for_a_number() -> None:
    x = torch.ones(4)
    check = one(torch.full((4,), float("nan")), x)
    assert not check.equal
    assert check.mismatched == 4


def test_nan_and_infinity_equal_themselves() -> None:
    x = torch.tensor([float("nan"), float("inf"), -float("inf"), 1.0])
    assert one(x, x.clone()).equal
    assert one(-x, x).mismatched == 3


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_allows_its_rounding_and_no_more(dtype: torch.dtype) -> None:
    x = torch.rand(1000) + 1
    assert one(x.to(dtype), x).equal
    assert not one((x * 1.1).to(dtype), x).equal


def test_a_reference_of_another_shape_is_refused() -> None:
    with pytest.raises(UsageError, match=r"has the shape \(3,\) and out has \(4,\)"):
        one(torch.ones(4), torch.ones(3))


def test_several_outputs_take_a_tuple_in_their_order() -> None:
    a, b = torch.ones(3), torch.zeros(3)
    assert [check.equal for check in compare("(a, b)", (a, b), {"first": a, "second": b})] == [True, True]
    with pytest.raises(UsageError, match="gives 1 values and the kernel writes first, second"):
        compare("a", a, {"first": a, "second": b})
