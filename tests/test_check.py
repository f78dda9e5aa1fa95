from __future__ import annotations

import pytest
import torch

from kernellab.check import compare, widened
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


def test_an_output_whose_reference_is_none_is_not_compared() -> None:
    outputs = {"first": torch.ones(3), "second": torch.zeros(3)}
    (found,) = compare("(None, zeros)", (None, torch.zeros(3)), outputs)
    assert (found.argument, found.equal) == ("second", True)


def test_the_first_differences_and_their_bounds_are_told() -> None:
    want = torch.zeros(8, 16)
    got = want.clone()
    got[3:5, 10] = 2.5
    check = one(got, want)
    assert [str(difference) for difference in check.differences] == [
        "[3, 10] is 2.5, not 0",
        "[4, 10] is 2.5, not 0",
    ]
    assert check.extent == ((3, 4), (10, 10))
    assert [(y, x) for y, row in enumerate(check.heat) for x, share in enumerate(row) if share] == [(3, 10), (4, 10)]


def test_a_large_matrix_has_a_coarse_map_and_a_vector_none() -> None:
    want = torch.zeros(480, 960)
    got = want.clone()
    got[479, 959] = 1
    heat = one(got, want).heat
    assert (len(heat), len(heat[0])) == (24, 48)
    assert heat[23][47] == pytest.approx(1 / 400)
    assert one(torch.ones(5), torch.zeros(5)).heat == ()


def test_an_element_that_was_never_written_is_wrong_even_with_the_right_value() -> None:
    x = torch.rand(10)
    (check,) = compare("x", x, {"out": x.clone()}, {"out": torch.arange(10) >= 7})
    assert (check.equal, check.mismatched, check.never_written) == (False, 3, 3)
    assert check.differences == ()


def test_an_output_filled_with_one_value_beforehand_may_stay_so_in_part() -> None:
    x = torch.rand(10)
    x[7:] = 0
    (check,) = compare("x", x, {"out": x.clone()}, {"out": torch.arange(10) >= 7})
    assert (check.equal, check.never_written) == (True, 0)
    (check,) = compare("x", x, {"out": x.clone()}, {"out": torch.ones(10, dtype=torch.bool)})
    assert not check.equal


def test_the_reference_is_computed_in_double_precision() -> None:
    x = torch.full((4096,), 0.1, dtype=torch.float16)
    namespace = widened("x.sum() + torch.ones(1)", {"x": x, "torch": torch, "y": x})
    assert namespace is not None
    assert namespace["x"].dtype == torch.float64
    assert namespace["y"].dtype == torch.float16
    assert widened("n + 1", {"n": torch.arange(3), "x": x}) is None
