from __future__ import annotations

import math

import pytest
import torch

from kernellab.measure.comparison import EDGES, ErrorDetail, ExpectedValue, detail_of
from kernellab.measure.tolerance import FLOAT32


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
