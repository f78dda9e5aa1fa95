"""What an output resembles, on tensors alone: right cases, and near ones that must not be taken for them."""

from __future__ import annotations

import pytest
import torch

from kernellab.checking.comparison import ExpectedValue
from kernellab.checking.hints import HintKind, Mismatch, RepeatOutcome, hints_on
from kernellab.checking.tolerance import FLOAT32
from kernellab.ir.effects import NO_EFFECTS

G = torch.Generator().manual_seed(2)
X = torch.randn(48, 32, generator=G)


def hinted(got: torch.Tensor, want: torch.Tensor, **facts: object) -> dict[HintKind, str]:
    value = ExpectedValue(want, 4 * FLOAT32 * want.double().abs(), FLOAT32)
    mismatch = Mismatch("out", "ref", got, value, NO_EFFECTS, **facts)  # type: ignore[arg-type]
    return hints_on(mismatch)


def test_a_transposed_result_need_not_be_square() -> None:
    assert HintKind.TRANSPOSED in hinted(X.T.reshape(48, 32).clone(), X)
    assert not hinted(X.flip(1), X)


def test_one_wrong_element_is_not_a_transposed_result() -> None:
    got = X.T.reshape(48, 32).clone()
    got[3, 3] += 1
    assert HintKind.TRANSPOSED not in hinted(got, X)


@pytest.mark.parametrize(
    ("got", "words"),
    [
        (X.roll(1, 1), "[i, j + 1] has what belongs to [i, j]"),
        (X.roll(-3, 1), "[i, j - 3] has what belongs to [i, j]"),
        (X.roll(2, 0), "[i + 2, j] has what belongs to [i, j]"),
        (X.flatten().roll(37).view(48, 32), "each element lies 37 elements further on in memory than it should"),
        (X.flatten().roll(-37).view(48, 32), "each element lies 37 elements earlier in memory than it should"),
    ],
)
def test_a_shift_is_told_along_the_dimension_in_which_it_is(got: torch.Tensor, words: str) -> None:
    assert words in hinted(got.clone(), X)[HintKind.SHIFTED]


def test_a_shift_of_a_vector_with_a_few_wrong_elements_says_how_many_are_right() -> None:
    x = torch.randn(1000, generator=G)
    got = x.roll(5)
    got[[200, 300, 400]] += 1
    assert "[i + 5] has what belongs to [i], in 99.7% of the elements" in hinted(got, x)[HintKind.SHIFTED]
    got[::20] += 1
    assert not hinted(got, x)


def test_what_is_mostly_right_is_not_shifted() -> None:
    steps = torch.arange(1000.0) // 100
    got = steps.clone()
    got[500:510] = 77
    assert not hinted(got, steps)


def test_what_repeats_is_not_called_shifted_by_one_of_many_distances() -> None:
    periodic = torch.arange(1000.0) % 8
    assert HintKind.SHIFTED not in hinted(periodic + 0.5, periodic)


@pytest.mark.parametrize(
    ("factor", "name"),
    [
        (2.0, "2 times"),
        (0.125, "1/8 times"),
        (2.0**-7, "2^-7 times"),
        (2 / 3, "2/3 times"),
        (1 / 100, "1/100 times"),
        (-0.5, "-1/2 times"),
        (1 / 48**0.5, "1/√48 times"),
        (0.7234, "0.7234 times"),
    ],
)
def test_a_factor_of_all_elements_has_its_name(factor: float, name: str) -> None:
    assert f"out is {name} ref, in each element" in hinted((X.double() * factor).float(), X)[HintKind.SCALED]


def test_the_other_sign_is_called_so() -> None:
    assert "with the opposite sign" in hinted(-X, X)[HintKind.SCALED]


def test_a_factor_of_nearly_all_elements_is_none() -> None:
    got = 2 * X
    got[0, 0] = X[0, 0]
    assert not hinted(got, X)
    assert not hinted(2 * X + 0.01, X)


@pytest.mark.parametrize("has_bounds", [True, False])
@pytest.mark.parametrize("factor", [1e-3, 1 / 8, 4.0, -300.0])
def test_small_elements_that_do_not_agree_are_no_factor(factor: float, has_bounds: bool) -> None:
    error = torch.full(X.shape, 1e-3, dtype=torch.float64) if has_bounds else None
    want = ExpectedValue(X, error, FLOAT32)
    got = (X.double() * factor).float()
    small = X.abs() < 0.1
    others = torch.where(small, got + 4e-3 * abs(factor), got)
    said = [list(hints_on(Mismatch("out", "ref", each, want))) for each in (got, others)]
    assert HintKind.SCALED in said[0]
    assert HintKind.SCALED not in said[1]


def test_an_output_that_kept_what_it_held_was_not_added_to() -> None:
    before = torch.full_like(X, 1e6)
    for error in (None, 4 * FLOAT32 * X.double().abs()):
        facts = Mismatch("out", "ref", before.clone(), ExpectedValue(X, error, FLOAT32), before=before)
        assert HintKind.ACCUMULATOR not in hints_on(facts)


def test_a_factor_near_one_has_its_digits() -> None:
    assert "out is 1.001 times ref" in hinted((X.double() * 1.001).float(), X)[HintKind.SCALED]


def test_a_constant_reference_tells_no_factor() -> None:
    assert not hinted(torch.full((100,), 132.0), torch.full((100,), 66.0))


def test_what_an_output_held_before_is_to_blame_only_where_it_was_added_to() -> None:
    before = torch.ones_like(X)
    assert "was not zero at the start (1 at [0, 0])" in hinted(X + 1, X, before=before)[HintKind.ACCUMULATOR]
    assert HintKind.ACCUMULATOR not in hinted(X + 2, X, before=before)


def test_several_launches_that_add_up_are_counted() -> None:
    zeros = torch.zeros_like(X)
    assert "by 3 launches" in hinted(X + X + X, X, before=zeros, launches=3)[HintKind.ACCUMULATOR]
    assert HintKind.ACCUMULATOR not in hinted(X + X, X, before=zeros, launches=3)


def test_numbers_beyond_a_format_of_whole_numbers_lose_their_high_bits() -> None:
    want = torch.arange(300)
    assert "whose largest number is 255" in hinted(want.to(torch.uint8), want)[HintKind.FORMAT]
    assert HintKind.FORMAT not in hinted(want.clamp(max=255).to(torch.uint8), want)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_format_of_fewer_bits_is_told_by_all_elements(dtype: torch.dtype) -> None:
    name = str(dtype).removeprefix("torch.")
    assert f"is a {name} number" in hinted(X.to(dtype).float(), X)[HintKind.FORMAT]
    assert HintKind.FORMAT not in hinted(X * (1 + 1e-3), X)


def test_whole_numbers_are_no_sign_of_a_format_of_fewer_bits() -> None:
    assert HintKind.FORMAT not in hinted((100 * X).round(), 100 * X)


@pytest.mark.parametrize("bias", [0.0, 1.0])
def test_rows_of_a_norm_with_a_wrong_sum_are_scaled_each_by_its_own_factor(bias: float) -> None:
    shared = bias * torch.randn(32, generator=G)
    factors = torch.linspace(0.5, 0.9, 48).unsqueeze(1)
    hint = hinted(shared + factors * X, shared + X)[HintKind.ROWS_SCALED]
    assert "scaled by a factor of its own (0.5 to 0.9)" in hint


def test_a_missing_bias_or_noise_scales_no_rows() -> None:
    shared, noise = torch.randn(32, generator=G), torch.randn(48, 32, generator=G)
    assert HintKind.ROWS_SCALED not in hinted(X, X + shared)
    assert HintKind.ROWS_SCALED not in hinted(X + noise / 10, X)
    one_right = torch.linspace(0.5, 0.9, 48).unsqueeze(1) * X
    one_right[7] = X[7].flip(0)
    assert HintKind.ROWS_SCALED not in hinted(one_right, X)
    alike = shared.expand(48, 32)
    assert HintKind.ROWS_SCALED not in hinted(alike + noise[:, :1] * torch.eye(32)[3], alike), "one wrong column"


def test_the_likeliest_comes_first_and_there_are_two_at_most() -> None:
    outcome = RepeatOutcome(strides=(("x", (2,)),))
    assert list(hinted(X.T.reshape(48, 32).clone(), X, outcome=outcome)) == [HintKind.NOT_CONTIGUOUS]
    assert len(hinted((2 * X.to(torch.float16)).float(), X)) <= 2
