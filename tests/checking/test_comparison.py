from __future__ import annotations

import math

import pytest
import torch

from kernellab.checking import comparison
from kernellab.checking.check_launch import require_equal
from kernellab.checking.comparison import (
    EDGES,
    Check,
    ErrorDetail,
    ExpectedValue,
    OutputDifference,
    agree,
    compare,
    compare_output,
    output_difference,
)
from kernellab.checking.error_detail import detail_of
from kernellab.checking.reference import check_of, reference_of
from kernellab.checking.tolerance import FLOAT32
from kernellab.errors import CheckFailed, UsageError
from kernellab.launch.poison import fill_of


def one(got: torch.Tensor, want: torch.Tensor) -> Check:
    (check,) = compare("want", reference_of(check_of(want), {}).of({"out": got}), {"out": got})
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
    outputs = {"first": a, "second": b}
    values = reference_of(check_of((a, b)), {}).of(outputs)
    assert [check.equal for check in compare("(a, b)", values, outputs)] == [True, True]
    with pytest.raises(UsageError, match="gives 1 value and the kernel writes first, second"):
        reference_of(check_of(a), {}).of(outputs)


def test_an_output_whose_reference_is_none_is_not_compared() -> None:
    outputs = {"first": torch.ones(3), "second": torch.zeros(3)}
    values = reference_of(check_of(lambda: (None, torch.zeros(3))), {}).of(outputs)
    (found,) = compare("(None, zeros)", values, outputs)
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


def unwritten(got: torch.Tensor, want: torch.Tensor, mask: torch.Tensor) -> Check:
    (check,) = compare("x", {"out": ExpectedValue(want)}, {"out": got}, {"out": mask}, {"out": fill_of(got[mask])})
    return check


def test_an_element_that_was_never_written_is_wrong_even_with_the_right_value() -> None:
    x = torch.rand(10)
    check = unwritten(x.clone(), x, torch.arange(10) >= 7)
    assert (check.equal, check.mismatched, check.never_written) == (False, 3, 3)
    assert check.differences == ()


def test_an_output_filled_with_one_value_beforehand_may_stay_so_in_part() -> None:
    x = torch.rand(10)
    x[7:] = 0
    check = unwritten(x.clone(), x, torch.arange(10) >= 7)
    assert (check.equal, check.never_written) == (True, 0)
    assert not unwritten(x.clone(), x, torch.ones(10, dtype=torch.bool)).equal


def test_a_fill_that_is_not_the_value_is_told_as_never_written() -> None:
    x = torch.rand(10) + 1
    got = x.clone()
    got[7:] = 0.5
    check = unwritten(got, x, torch.arange(10) >= 7)
    assert (check.mismatched, check.never_written) == (3, 3)
    assert check.text == "out differs from x in 3 of 10 elements, 3 of them never written"


def test_the_bound_that_is_told_is_that_of_the_worst_element() -> None:
    want = ExpectedValue(torch.tensor([1.0, 1000.0]).double(), torch.tensor([1e-6, 10.0]).double())
    check = one_of(torch.tensor([1.1, 1005.0]), want)
    assert (check.mismatched, check.worst is not None and check.worst.index) == (1, (0,))
    assert check.tolerance == pytest.approx(1e-6 + 2**-24, rel=1e-3)


def one_of(got: torch.Tensor, want: ExpectedValue) -> Check:
    (check,) = compare("want", {"out": want}, {"out": got})
    return check


def test_what_exceeds_a_format_may_become_infinite_and_nothing_else() -> None:
    want = ExpectedValue(torch.tensor([1e5, -1e5, 1.0]).double(), torch.zeros(3).double())
    infinite = torch.tensor([float("inf"), -float("inf"), 1.0], dtype=torch.float16)
    assert one_of(infinite, want).equal
    assert one_of(-infinite, want).mismatched == 3
    assert one_of(
        torch.tensor([450.0, 448.0]).to(torch.float8_e4m3fn), ExpectedValue(torch.tensor([500.0, 500.0]))
    ).equal


def test_bounds_of_zero_allow_the_rounding_of_the_output_alone() -> None:
    x = torch.rand(100).double()
    exact = ExpectedValue(x, torch.zeros(100).double())
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn):
        assert one_of(x.to(dtype), exact).equal
        assert not one_of((x * (1 + 4 * torch.finfo(dtype).eps)).to(dtype), exact).equal


def test_outputs_of_two_configs_agree_within_a_share_of_the_largest() -> None:
    x = torch.rand(1000)
    assert agree(x * (1 + 1e-5), x)
    assert not agree(x + 0.1 * (torch.arange(1000) == 7), x)
    assert not agree(x[:10], x)


def test_a_difference_of_two_launches_counts_elements_and_has_the_largest() -> None:
    want = torch.zeros(8)
    got = want.clone()
    assert output_difference("out", got, want) is None
    got[2:4] = torch.tensor([1.0, -3.0])
    assert output_difference("out", got, want) == OutputDifference("out", 2, 8, 3.0)
    got[0] = float("nan")
    found = output_difference("out", got, want)
    assert found == OutputDifference("out", 3, 8, None)
    assert found.text == "out differs in 3 of 8 elements"


def detail(got: torch.Tensor, want: torch.Tensor, wrong: torch.Tensor, **facts: object) -> ErrorDetail:
    value = ExpectedValue(want, 2 * FLOAT32 * want.double().abs(), FLOAT32)
    found = detail_of(got, value, wrong.flatten(), **facts)  # type: ignore[arg-type]
    assert found is not None
    return found


@pytest.mark.parametrize(("dtype", "last"), [(torch.float32, 2.0**-23), (torch.float16, 2.0**-10)])
def test_errors_are_in_units_in_the_last_place_of_the_output(dtype: torch.dtype, last: float) -> None:
    want = torch.tensor([1.0, 1.0, 4.0] * 10, dtype=torch.float64)
    got = torch.tensor([1.0, 1 + 3 * last, 4 + 8 * last] * 10, dtype=dtype)
    found = detail(got, want, got != want)
    assert found.histogram is not None
    assert found.histogram.right[0] == 10
    assert found.histogram.wrong[EDGES.index(2.0)] == 10  # 8 * last are two of them at 4
    assert found.histogram.wrong[EDGES.index(4.0)] == 10
    assert [each.ulps for each in found.worst] == pytest.approx([3] * 5)


def test_what_is_no_number_has_a_bin_of_its_own_and_comes_first() -> None:
    want = torch.ones(20)
    got = want.clone()
    got[1], got[2], got[3] = math.nan, 2, math.inf
    found = detail(got, want, got != want)
    assert found.histogram is not None
    assert found.histogram.wrong[-1] == 2
    assert {each.index for each in found.worst[:2]} == {(1,), (3,)}


def test_each_program_that_is_wrong_has_a_row_with_its_tile() -> None:
    want = torch.ones(4, 8)
    writers = torch.tensor([[1] * 4 + [2] * 4] * 2 + [[3] * 4 + [0] * 4] * 2, dtype=torch.int32)
    got = want.clone()
    got[0, 1], got[1, 2], got[3, 0], got[3, 7] = 2, 5, 4, 3
    found = detail(got, want, got != want, writers=writers, grid=(2, 2, 1))
    rows = [(each.program, each.tile, each.index, each.wrong) for each in found.worst]
    assert rows == [
        ((0, 0, 0), ((0, 1), (0, 3)), (1, 2), 2),
        ((0, 1, 0), ((2, 3), (0, 3)), (3, 0), 1),
        (None, (), (3, 7), 1),
    ]


def test_whole_numbers_have_worst_elements_and_no_histogram() -> None:
    want = torch.arange(10)
    got = want.clone()
    got[4] = 9
    found = detail(got, want, got != want)
    assert found.histogram is None
    assert [(each.index, each.got, each.ulps) for each in found.worst] == [((4,), 9.0, None)]


def test_elements_that_no_program_wrote_have_a_row_each() -> None:
    want = torch.ones(4)
    got = torch.tensor([1.0, 3.0, 2.0, 1.0])
    found = detail(got, want, got != want, writers=torch.tensor([1, 0, 0, 1], dtype=torch.int32))
    assert [(each.program, each.index, each.wrong) for each in found.worst] == [(None, (1,), 1), (None, (2,), 1)]


def test_a_few_elements_have_no_histogram() -> None:
    want = torch.ones(4)
    assert detail(2 * want, want, want > 0).histogram is None


def test_integers_of_64_bits_that_differ_by_little_are_told_with_all_digits() -> None:
    large = torch.tensor([2**62 + 1, 2**62 + 3, -(2**62)])
    (check,) = compare("y", {"y": ExpectedValue(large - 2)}, {"y": large})
    assert check.mismatched == 3
    assert check.max_error == 2
    assert [str(each) for each in check.differences][:2] == [
        "[0] is 4611686018427387905, not 4611686018427387903",
        "[1] is 4611686018427387907, not 4611686018427387905",
    ]
    with pytest.raises(CheckFailed, match=r"has an error of 2, tolerance 0"):
        require_equal(check, "kernel")
    (far,) = compare("y", {"y": ExpectedValue(torch.tensor([-(2**62) - 7]))}, {"y": torch.tensor([2**62])})
    assert far.max_error == 2.0**63


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.bool])
def test_equal_integers_have_no_error_and_unequal_ones_are_found_in_any_part(monkeypatch, dtype):
    monkeypatch.setattr(comparison, "_CHUNK", 4)
    want = torch.arange(10).remainder(2).to(dtype)
    same = compare_output("reference", "out", want.clone(), ExpectedValue(want))
    assert (same.equal, same.max_error, same.tolerance) == (True, 0.0, 0.0)
    got = want.clone()
    got[9] = 0
    check = compare_output("reference", "out", got, ExpectedValue(want))
    assert (check.mismatched, check.worst.index) == (1, (9,))
