"""Recorded launches, made again: their inputs, and the grid as a formula that fits all of them."""

from __future__ import annotations

import pytest
import torch

from kernellab.registry import grid_text
from kernellab.registry.launches_from_store import random_tensor
from kernellab.store import Argument, RecordedLaunch


def launched(rows: int, columns: int, grid: tuple[int, int, int]) -> RecordedLaunch:
    arguments = (
        Argument("x", "tensor", dtype="float32", shape=(rows, columns), stride=(columns, 1)),
        Argument("n", "scalar", value=rows),
        Argument("BLOCK", "scalar", constexpr=True, value=16),
    )
    return RecordedLaunch((), arguments, {}, grid, "cuda:90", "nowhere", "")


@pytest.mark.parametrize(
    ("grids", "wanted"),
    [
        ([(7, 1, 1), (3, 1, 1)], 'lambda meta: (triton.cdiv(n, meta["BLOCK"]),)'),
        ([(1, 1, 1), (1, 1, 1)], "lambda meta: (1,)"),
        ([(100, 3, 1), (40, 5, 1)], "lambda meta: (n, x.shape[1],)"),
        ([(21, 1, 1), (15, 1, 1)], 'lambda meta: (triton.cdiv(n, meta["BLOCK"]) * x.shape[1],)'),
        ([(0, 1, 1), (15, 1, 1)], None),
    ],
)
def test_the_likeliest_formula_that_fits_all_launches_is_the_grid(
    grids: list[tuple[int, int, int]], wanted: str | None
) -> None:
    sizes = ((100, 3), (40, 5))
    found = grid_text([launched(*size, grid) for size, grid in zip(sizes, grids, strict=True)])
    assert (None if found is None else found.text) == wanted


@pytest.mark.parametrize("dtype", [torch.float16, torch.int32])
def test_random_inputs_are_made_where_they_are_wanted_whatever_the_default_device_is(dtype: torch.dtype) -> None:
    with torch.device("meta"):
        made = random_tensor((2, 3), (4, 1), dtype, 1, 2, torch.Generator("cpu"), "cpu")
    assert (made.device.type, made.shape, made.stride()) == ("cpu", (2, 3), (4, 1))
    assert bool(((made >= 1) & (made <= 2)).all())
