"""The errors of a wrong output: in units in the last place, and the programs with the largest."""

from __future__ import annotations

import math
from typing import Any

from kernellab.checking.comparison import (
    EDGES,
    ErrorDetail,
    ErrorHistogram,
    ExpectedValue,
    WorstElement,
    extent_of,
    index_of,
    number_of,
)
from kernellab.checking.tolerance import allowed_error, distance, error_of_unknown, smallest_of, unit_of
from kernellab.launch.recorded_values import program_at

_ROWS_AT_MOST = 5
_BINNED_AT_LEAST = 16
_ELEMENTS_AT_MOST = 1 << 24


def detail_of(
    got: Any,
    want: ExpectedValue,
    wrong: Any,
    unwritten: Any = None,
    writers: Any = None,
    grid: tuple[int, int, int] = (1, 1, 1),
) -> ErrorDetail | None:
    """Return the errors of an output; None for a large one.

    ``wrong`` is the flat mask of its wrong elements, and ``unwritten`` that of those that were never written, or None.
    ``writers`` holds 1 + the number of the program that last wrote each element, 0 for none. Programs are numbered with
    x fastest.
    """
    import torch

    if not 0 < got.numel() <= _ELEMENTS_AT_MOST or got.is_complex() or want.value.is_complex():
        return None
    if writers is not None and not bool(writers.flatten()[wrong.to(writers.device)].any()):
        writers = None  # the wrong elements are unwritten
    if unwritten is None:
        unwritten = torch.zeros_like(wrong)
    flat, values = got.flatten(), want.value.flatten().to(got.device)
    error = error_of_unknown(flat, values, want.unit) if want.error is None else want.error.flatten()
    allowed, difference = allowed_error(flat, values, error), distance(flat, values)
    ulps = _ulps(difference, flat, values) if got.dtype.is_floating_point else None
    odds = (difference / (allowed + 1e-300)).nan_to_num(math.inf).masked_fill(~wrong, -1.0)
    odds = odds.masked_fill(unwritten, -1.0 if writers is None else math.inf)
    histogram = None
    if ulps is not None and got.numel() >= _BINNED_AT_LEAST and not bool(unwritten.all()):
        histogram = _histogram(str(got.dtype).removeprefix("torch."), ulps[~unwritten], wrong[~unwritten])
    by = torch.arange(got.numel(), device=got.device) if writers is None else writers.flatten().to(got.device)
    worst, shape = [], tuple(got.shape)
    for place in _worst(odds, by):
        is_written = not bool(unwritten[place])
        value = number_of(flat[place]) if is_written else None
        ulps_off = float(ulps[place]) if ulps is not None and is_written else None
        written_by = () if writers is None else _program_of(place, by, wrong, shape, grid)
        worst.append(WorstElement(index_of(place, shape), value, number_of(values[place]), ulps_off, *written_by))
    return ErrorDetail(histogram, tuple(worst))


def _ulps(difference: Any, got: Any, want: Any) -> Any:
    """Return differences in units in the last place of the format of an output, at the size of the reference."""
    import torch

    size = want.double().abs().nan_to_num(0.0, 0.0, 0.0).clamp(min=smallest_of(got.dtype))
    size = size.clamp(max=float(torch.finfo(got.dtype).max))
    last = torch.exp2(torch.floor(torch.log2(size))) * 2 * unit_of(got.dtype)
    same = (got == want) | (got.isnan() & want.isnan())
    return torch.where(same, 0.0, difference / last)


def _histogram(dtype: str, ulps: Any, wrong: Any) -> ErrorHistogram:
    import torch

    edges = torch.tensor(EDGES, dtype=torch.float64, device=ulps.device)
    bins = torch.bucketize(ulps.nan_to_num(math.inf), edges)
    bins = torch.where(ulps.isfinite(), bins, len(EDGES) + 1)
    right, beyond = (torch.bincount(bins[mask], minlength=len(EDGES) + 2).tolist() for mask in (~wrong, wrong))
    return ErrorHistogram(dtype, tuple(right), tuple(beyond))


def _worst(odds: Any, writers: Any) -> list[int]:
    """Return the worst element of each of the worst programs; unwritten elements count as one program."""
    places: list[int] = []
    left = odds.clone()
    while len(places) < _ROWS_AT_MOST and float(left.max()) >= 0:
        place = int(left.argmax())
        places.append(place)
        left[writers == writers[place]] = -1.0
    return places


def _program_of(
    place: int, writers: Any, wrong: Any, shape: tuple[int, ...], grid: tuple[int, int, int]
) -> tuple[tuple[int, int, int] | None, tuple[tuple[int, int], ...], int]:
    """Return the program that last wrote an element, the extent of its writes, and how many of them are wrong."""
    number = int(writers[place])
    own = writers == number
    count = int((own & wrong).sum())
    if not number:
        return None, (), count
    return program_at(grid, number - 1), extent_of(own, shape), count
