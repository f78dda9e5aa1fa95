"""How large the errors of a wrong output are, in units in the last place, and which programs made the largest."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from kernellab.measure.comparison import ExpectedValue
from kernellab.measure.tolerance import allowed_error, distance, error_of_unknown, smallest_of, unit_of

_ROWS_AT_MOST = 5
_BINNED_AT_LEAST = 16
_ELEMENTS_AT_MOST = 1 << 24
EDGES = (0.5, 1.0, 2.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 2.0**16, 2.0**20, 2.0**24)
"""The upper ends of the bins of a histogram, in units in the last place; larger errors have one more bin."""


@dataclass(frozen=True, slots=True)
class ErrorHistogram:
    """How many elements have which error, in units in the last place of ``dtype``, the format of the output.

    ``right`` counts those within their bounds and ``wrong`` those beyond, by the bins that end at `EDGES`, one more for
    larger ones, and a last one for what is no finite number in one of the two alone.
    """

    dtype: str
    right: tuple[int, ...]
    wrong: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class WorstElement:
    """The element of a program's that exceeds its bound by the largest factor; ``ulps`` is None for whole numbers.

    ``program`` is the program id that last wrote it and ``tile`` the first and last index along each dimension of what
    that program wrote, ``wrong`` of which is wrong; where programs are not known, None, () and 1.
    """

    index: tuple[int, ...]
    got: float
    expected: float
    ulps: float | None
    program: tuple[int, int, int] | None = None
    tile: tuple[tuple[int, int], ...] = ()
    wrong: int = 1


@dataclass(frozen=True, slots=True)
class ErrorDetail:
    """The errors of an output: the worst, the worst first, and a histogram of many in a floating-point format."""

    histogram: ErrorHistogram | None
    worst: tuple[WorstElement, ...]


def detail_of(
    got: Any, want: ExpectedValue, wrong: Any, writers: Any = None, grid: tuple[int, int, int] = (1, 1, 1)
) -> ErrorDetail | None:
    """Return the errors of an output whose mask of ``wrong`` elements is given, flat; None for one that is too large.

    ``writers`` holds 1 + the number of the program that last wrote each element, 0 for none; programs are numbered
    along x first.
    """
    if not 0 < got.numel() <= _ELEMENTS_AT_MOST or got.is_complex() or want.value.is_complex():
        return None
    if writers is not None and not bool(writers.flatten()[wrong.to(writers.device)].any()):
        writers = None  # no program wrote what is wrong
    flat, values = got.flatten(), want.value.flatten().to(got.device)
    error = error_of_unknown(flat, values, want.unit) if want.error is None else want.error.flatten()
    allowed, difference = allowed_error(flat, values, error), distance(flat, values)
    ulps = _ulps(difference, flat, values) if got.dtype.is_floating_point else None
    odds = (difference / (allowed + 1e-300)).nan_to_num(math.inf).masked_fill(~wrong, -1.0)
    is_binned = got.numel() >= _BINNED_AT_LEAST
    histogram = (
        _histogram(str(got.dtype).removeprefix("torch."), ulps, wrong) if ulps is not None and is_binned else None
    )
    places = _worst(odds) if writers is None else _worst_by_writer(odds, writers.flatten().to(got.device))
    errors = _Errors(got, values, ulps, wrong, writers, grid)
    return ErrorDetail(histogram, tuple(errors.at(place) for place in places))


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


def _worst(odds: Any) -> list[int]:
    found = odds.topk(min(_ROWS_AT_MOST, len(odds)))
    return [
        int(place) for value, place in zip(found.values.tolist(), found.indices.tolist(), strict=True) if value >= 0
    ]


def _worst_by_writer(odds: Any, writers: Any) -> list[int]:
    """Return the worst element of each of the programs that have the worst ones; of those none wrote, one as well."""
    places: list[int] = []
    left = odds.clone()
    while len(places) < _ROWS_AT_MOST and float(left.max()) >= 0:
        place = int(left.argmax())
        places.append(place)
        left[writers == writers[place]] = -1.0
    return places


@dataclass(frozen=True, slots=True)
class _Errors:
    got: Any
    values: Any
    ulps: Any
    wrong: Any
    writers: Any
    grid: tuple[int, int, int]

    def at(self, place: int) -> WorstElement:
        index = _index(place, tuple(self.got.shape))
        got, expected = float(self.got.flatten()[place]), float(self.values[place])
        ulps = None if self.ulps is None else float(self.ulps[place])
        if self.writers is None:
            return WorstElement(index, got, expected, ulps)
        writers = self.writers.to(self.got.device)
        number = int(writers.flatten()[place])
        own = writers == number
        wrong = int((own.flatten() & self.wrong).sum())
        if not number:
            return WorstElement(index, got, expected, ulps, wrong=wrong)
        x, y, _ = self.grid
        program = ((number - 1) % x, (number - 1) // x % y, (number - 1) // (x * y))
        held = own.nonzero()
        tile = tuple(zip(held.amin(0).tolist(), held.amax(0).tolist(), strict=True)) if self.got.dim() else ()
        return WorstElement(index, got, expected, ulps, program, tile, wrong)


def _index(place: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    found: list[int] = []
    for size in reversed(shape):
        place, at = divmod(place, size)
        found.append(at)
    return tuple(reversed(found))
