"""What a failed check teaches about a launch: for each mistake a kernel that makes it, and a near one that does not."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

import kernellab
from kernellab.checking.check_launch import check_outputs
from kernellab.checking.comparison import ErrorDetail, error_text, pair_texts
from kernellab.checking.reference import check_of, expression_in, reference_of
from kernellab.errors import CheckFailed
from kernellab.views.cards.arguments import check_lines, check_messages, check_picture
from tests.checking import hinted_kernels as kernels

X = torch.randn(1000, generator=torch.Generator().manual_seed(1))


def same(x_ptr: torch.Tensor) -> torch.Tensor:
    return x_ptr


def failure(lab: kernellab.Lab, kernel: Any, grid: tuple[int, ...], *args: Any, check: Any, **meta: Any) -> str:
    """Return what a launch says whose check has to fail."""
    with pytest.raises(CheckFailed) as caught:
        lab.run(kernel, grid, *args, check=check, **meta)
    return str(caught.value)


@pytest.mark.slow
def test_a_transposed_result_is_called_so_and_a_reversed_one_is_not(lab: kernellab.Lab) -> None:
    x = X[:256].view(16, 16)
    said = failure(lab, kernels.exchange, (1,), x, torch.zeros(16, 16), check=same, N=16)
    assert "out_ptr holds same transposed" in said
    said = failure(lab, kernels.exchange, (1,), x, torch.zeros(16, 16), check=lambda x_ptr: x_ptr.flip(0), N=16)
    assert "transposed" not in said


@pytest.mark.slow
def test_an_input_that_is_not_contiguous_is_to_blame_where_a_contiguous_one_is_right(lab: kernellab.Lab) -> None:
    launch = kernels.by_stride, (4,), X[::2], torch.zeros(500), 500
    said = failure(lab, *launch, 1, check=lambda x_ptr: x_ptr + 1, BLOCK=128)
    assert "x_ptr is not contiguous (strides (2,)), and the kernel takes it to be: with x_ptr.contiguous()" in said
    assert "No program reads" not in said
    said = failure(lab, *launch, 2, check=lambda x_ptr: x_ptr + 2, BLOCK=128)
    assert "contiguous" not in said


@pytest.mark.slow
def test_an_accumulator_that_was_not_zero_at_the_start_is_named_with_what_it_held(lab: kernellab.Lab) -> None:
    x = torch.arange(12.0)

    def total(x_ptr: torch.Tensor) -> torch.Tensor:
        return x_ptr.sum().view(1)

    said = failure(lab, kernels.add_up, (3,), x, torch.full((1,), 66.0), 12, check=total, BLOCK=4)
    assert "[0] is 132, not 66." in said
    assert "out_ptr was not zero at the start (66), and the kernel adds to what it holds" in said
    said = failure(lab, kernels.add_up, (2,), x, torch.full((1,), 66.0), 12, check=total, BLOCK=4)
    assert "at the start" not in said


@pytest.mark.slow
def test_masked_lanes_are_to_blame_where_another_value_in_them_is_right(lab: kernellab.Lab) -> None:
    negative = -1 - X[:500].abs().view(5, 100)
    launch = kernels.largest_of_rows, (5,), negative, torch.zeros(5), 100
    said = failure(lab, *launch, check=lambda x_ptr: x_ptr.amax(1), BLOCK=128)
    assert "Masked lanes of the load of x_ptr in line " in said
    assert 'not defined without other=: with other=-float("inf"), out_ptr equals the expression.' in said
    said = failure(lab, *launch, check=lambda x_ptr: x_ptr.amax(1) + 1, BLOCK=128)
    assert "lanes" not in said


@pytest.mark.slow
def test_an_other_that_is_not_neutral_is_to_blame_too(lab: kernellab.Lab) -> None:
    x = 1 + X[:500].abs().view(5, 100)
    launch = kernels.smallest_of_rows, (5,), x, torch.zeros(5), 100
    said = failure(lab, *launch, check=lambda x_ptr: x_ptr.amin(1), BLOCK=128)
    assert 'its other= is not a neutral value: with other=float("inf"), out_ptr equals' in said
    said = failure(lab, *launch, check=lambda x_ptr: x_ptr.amin(1) + 1, BLOCK=128)
    assert "neutral" not in said


@pytest.mark.slow
def test_elements_that_no_program_reads_are_named_where_the_reference_depends_on_them(lab: kernellab.Lab) -> None:
    launch = kernels.sum_of_blocks, (5,), X[:500].view(5, 100), torch.zeros(5), 100
    said = failure(lab, *launch, 3, check=lambda x_ptr: x_ptr.sum(1), BLOCK=32)
    assert "No program reads 20 of the 500 elements of x_ptr, [0, 96] to [4, 99]" in said
    said = failure(lab, *launch, 3, check=lambda x_ptr: x_ptr[:, :90].sum(1), BLOCK=32)
    assert "reads" not in said


@pytest.mark.slow
def test_a_kernel_without_a_store_is_told_so(lab: kernellab.Lab) -> None:
    said = failure(lab, kernels.keep_nothing, (1,), X, check=same, BLOCK=64)
    assert "keep_nothing stores nothing: pass it an output" in said
    said = failure(lab, kernels.move, (4,), X, torch.zeros(1000), 1000, 0, 3.0, check=same, BLOCK=256)
    assert "stores nothing" not in said


@pytest.mark.slow
def test_a_store_that_is_masked_off_everywhere_is_named_and_one_of_some_lanes_is_not(lab: kernellab.Lab) -> None:
    said = failure(lab, kernels.move, (4,), X, torch.zeros(1000), 0, 0, 1.0, check=same, BLOCK=256)
    assert "No lane stored to out_ptr: the mask of its store in line " in said
    said = failure(lab, kernels.move, (4,), X, torch.zeros(1000), 9, 0, 1.0, check=same, BLOCK=256)
    assert "No lane stored" not in said


@pytest.mark.slow
def test_a_result_that_was_rounded_on_the_way_is_told_by_its_format(lab: kernellab.Lab) -> None:
    said = failure(lab, kernels.through_float16, (1,), X, torch.zeros(1000), check=same, BLOCK=512)
    assert "a float16 number" not in said  # half of it is missing
    said = failure(lab, kernels.through_float16, (1,), X[:512].clone(), torch.zeros(512), check=same, BLOCK=512)
    assert "Each element of out_ptr is a float16 number, though it is float32" in said


@pytest.mark.slow
def test_no_more_than_two_hints_are_given_and_none_where_nothing_explains(lab: kernellab.Lab) -> None:
    check = lambda x_ptr: x_ptr.sin() + 3  # noqa: E731
    said = failure(lab, kernels.move, (4,), X, torch.zeros(1000), 1000, 0, 1.0, check=check, BLOCK=256)
    assert said.count(". ") == said.split("differs from", 1)[0].count(". ") + 4  # the differences alone


@pytest.mark.slow
def test_a_failed_check_leaves_the_tensors_as_the_launch_made_them(lab: kernellab.Lab) -> None:
    x, out = X.clone(), torch.zeros(1000)
    failure(lab, kernels.move, (4,), x, out, 1000, 0, 2.0, check=same, BLOCK=256)
    assert torch.equal(x, X)
    assert torch.equal(out, 2 * X)


def test_a_right_launch_runs_once(lab: kernellab.Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[Any] = []
    interpret = lab.launches.interpret
    monkeypatch.setattr(lab.launches, "interpret", lambda *a, **k: (runs.append(a), interpret(*a, **k))[1])
    lab.run(kernels.move, (4,), X, torch.zeros(1000), 1000, 0, 1.0, check=same, BLOCK=256)
    assert len(runs) == 1


def test_the_card_of_a_failed_check_names_the_program_of_each_tile(lab: kernellab.Lab) -> None:
    said = checks(lab, kernels.move, (4,), X, torch.zeros(1000), 1000, 0, 2.0, BLOCK=256)
    (detail,) = [check.detail for check in said]
    assert detail is not None
    assert {(each.program, each.tile) for each in detail.worst} == {
        ((0, 0, 0), ((0, 255),)),
        ((1, 0, 0), ((256, 511),)),
        ((2, 0, 0), ((512, 767),)),
        ((3, 0, 0), ((768, 999),)),
    }


def test_an_element_that_was_never_written_has_neither_value_nor_error(lab: kernellab.Lab) -> None:
    # Two programs of four run, and what they write is wrong, too. The output holds no one value before, which would
    # count as the value of its unwritten elements: torch.empty may give memory that a freed torch.ones filled.
    (check,) = checks(lab, kernels.move, (2,), X, X.flip(0), 1000, 0, 2.0, BLOCK=256)
    assert check.detail is not None
    by_program = {each.program: each for each in check.detail.worst}
    assert by_program.keys() == {None, (0, 0, 0), (1, 0, 0)}
    unwritten = by_program[None]
    assert (unwritten.got, unwritten.ulps, unwritten.wrong) == (None, None, 488)
    assert sum((*check.detail.histogram.right, *check.detail.histogram.wrong)) == 512
    lines = "\n".join(check_lines(check))
    assert re.search(r"none wrote it +488 +\[\d+\] +not written +-?[\d.]+\n", lines), lines


def test_an_output_without_a_written_element_has_neither_histogram_nor_table(lab: kernellab.Lab) -> None:
    (check,) = checks(lab, kernels.move, (1,), X, X.flip(0), 0, 0, 2.0, BLOCK=256)
    assert check.never_written == 1000
    assert check.detail == ErrorDetail(None, ())
    assert not list(check_lines(check))
    assert "<svg" not in check_picture(check)


def test_a_wide_tolerance_is_laid_to_what_was_computed_before(lab: kernellab.Lab) -> None:
    before = X.half()
    reference = expression_in("before", {"before": before})
    out = torch.zeros(1000)
    with lab.launches.recording(poison=True) as recorder:
        lab.bind(kernels.move)[(4,)](X, out, 1000, 0, 1.0, BLOCK=256)
    (record,) = recorder.records.values()
    (check,) = check_outputs(reference_of(reference, record.arguments), reference, record, recorder, lab.launches)
    assert check.equal
    assert check.computed_before == ("before",)
    assert error_text([check]).endswith("% of the largest element), since before was computed before")
    (message,) = check_messages([check], {})
    assert message.style == ("kl-note kl-warn" if check.wide >= 0.01 else "kl-note kl-good")


@pytest.mark.parametrize(
    ("one", "other", "texts"),
    [
        (1.5, 2.5, ("1.5", "2.5")),
        (-21.06831, -21.06829, ("-21.06831", "-21.06829")),
        (0.5100831, 0.5100818, ("0.5100831", "0.5100818")),
        (7, 8, ("7", "8")),
        (1.0, 1.0, ("1", "1")),
        (float("inf"), 1.0, ("inf", "1")),
        (float("nan"), 1.0, ("nan", "1")),
    ],
)
def test_two_elements_have_the_digits_that_show_their_difference(
    one: float, other: float, texts: tuple[str, str]
) -> None:
    assert pair_texts(one, other) == texts


@pytest.mark.slow
def test_what_several_programs_add_to_is_said_to_be_of_none(lab: kernellab.Lab) -> None:
    def total(x_ptr: torch.Tensor) -> torch.Tensor:
        return x_ptr.sum().view(1) + 1

    (check,) = checks(lab, kernels.add_up, (4,), X, torch.zeros(1), 1000, check=total, BLOCK=256)
    assert check.detail is not None
    assert [each.program for each in check.detail.worst] == [None]


def checks(lab: kernellab.Lab, kernel: Any, grid: tuple[int, ...], *args: Any, check: Any = same, **meta: Any) -> Any:
    """Return how the outputs of a launch compare with a reference."""
    function = check_of(check)
    reference = reference_of(function, {"x_ptr": args[0]})
    bound = lab.bind(kernel)
    with lab.launches.recording(poison=True) as recorder:
        bound[grid](*args, **meta)
    (record,) = recorder.records.values()
    return check_outputs(reference, function, record, recorder, lab.launches)
