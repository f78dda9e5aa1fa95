"""How an output resembles its reference: with its elements shifted, or with its rows scaled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kernellab.checking.comparison import ExpectedValue, wrong_elements

_DISTINCT_AT_LEAST = 4
_ELEMENTS_AT_MOST = 1 << 24
_PROBE = 8
_PROBE_NEAR = 1e-2
_PROBED_AT = (1 / 2, 1 / 4, 3 / 4, 1 / 8, 7 / 8)
_PLACES_AT_MOST = 16
_EQUAL_AT_LEAST = 0.99
_OVERLAP_AT_LEAST = 0.5
_UNSHIFTED_WRONG_AT_LEAST = 0.5
_LEAST_ROWS, _LEAST_COLUMNS = 4, 8
_UNEXPLAINED = 1e-2  # of a difference, where the rows are scaled


@dataclass(frozen=True, slots=True)
class Shift:
    """A shift of elements along ``dimension``, in row-major order where None; ``share`` of those inside are equal."""

    distance: int
    dimension: int | None
    share: float


def shift_of(got: Any, want: ExpectedValue, unwritten: Any = None) -> Shift | None:
    """Return the shift after which an output holds its reference, None where there is none.

    At least half of the elements are wrong without it. With it, at least half of them stay inside, and at least 99 % of
    these are right.
    """
    if not is_distinctive(got, want):
        return None
    if float(wrong_elements(got, want).float().mean()) < _UNSHIFTED_WRONG_AT_LEAST:
        return None
    shifts = (_shift_by(got, want, k, unwritten) for k in _distances(got, want))
    return max(filter(None, shifts), key=lambda shift: shift.share, default=None)


def is_distinctive(got: Any, want: ExpectedValue) -> bool:
    """Whether a reference has enough distinct values for a resemblance to mean something."""
    if not 0 < got.numel() <= _ELEMENTS_AT_MOST:
        return False
    return int(want.value.flatten()[: 1 << 16].unique().numel()) >= _DISTINCT_AT_LEAST


def _distances(got: Any, want: ExpectedValue) -> list[int]:
    """Return candidate shifts of an output, in elements; empty where there are none or too many."""
    a, b = got.double().flatten(), want.value.double().flatten()
    row = want.value.shape[-1] if want.value.dim() > 1 else 0
    length = min(_PROBE, row // 2 if row >= 2 * _DISTINCT_AT_LEAST else len(b) // 2)
    for share in _PROBED_AT:
        place = int(share * (len(b) - length))
        if row > length:  # in the middle of a row, which a shift within rows leaves whole
            place = place // row * row + (row - length) // 2
        place = min(place, len(b) - length)
        if b[place : place + length].unique().numel() < min(length, _DISTINCT_AT_LEAST):
            continue
        distances = [at - place for at in _places_of(b[place : place + length], a) if at != place]
        if 0 < len(distances) <= _PLACES_AT_MOST:
            return distances
    return []


def _places_of(probe: Any, values: Any) -> list[int]:
    """Return the places in a vector where a few consecutive values occur."""
    import torch

    count = len(values) - len(probe) + 1
    hits = torch.ones(count, dtype=torch.bool, device=values.device)
    for at, expected in enumerate(probe):
        hits &= (values[at : at + count] - expected).abs() <= _PROBE_NEAR * expected.abs()
    return [int(place) for place in hits.nonzero().flatten()[: _PLACES_AT_MOST + 2]]


def _shift_by(got: Any, want: ExpectedValue, distance: int, unwritten: Any) -> Shift | None:
    """Return the shift of an output by a number of elements, along the dimension that fits best."""
    shape = want.value.shape
    row = shape[-1] if len(shape) > 1 else 0
    flat = want.value.numel()
    ways: list[tuple[int | None, int, tuple[int, int]]] = []
    if row and abs(distance) < row:
        ways.append((len(shape) - 1, distance, (flat // row, row)))
    if row and distance % row == 0 and len(shape) == 2:
        ways.append((0, distance // row, (flat // row, row)))
    ways.append((0 if len(shape) == 1 else None, distance, (1, flat)))
    for dimension, by, view in ways:
        share = _share_equal(got, want, by, view, axis=0 if dimension == 0 and row else 1, unwritten=unwritten)
        if share >= _EQUAL_AT_LEAST:
            return Shift(by, dimension, share)
    return None


def _share_equal(got: Any, want: ExpectedValue, by: int, view: tuple[int, int], axis: int, unwritten: Any) -> float:
    size = view[axis]
    kept = size - abs(by)
    if kept < size * _OVERLAP_AT_LEAST or kept < 1:
        return 0.0

    def part(tensor: Any, start: int) -> Any:
        return tensor.reshape(view).narrow(axis, start, kept)

    to, of = max(by, 0), max(-by, 0)
    error = None if want.error is None else part(want.error, of)
    wrong = wrong_elements(part(got, to), ExpectedValue(part(want.value, of), error, want.unit))
    if unwritten is not None:
        wrong = wrong | part(unwritten, to).flatten()
    return 1 - float(wrong.float().mean())


def row_factors(got: Any, want: ExpectedValue) -> tuple[float, float] | None:
    """Return the smallest and largest factor of rows that are scaled about one vector, each by its own; else None.

    So ``got[i] = b + f[i] * (want[i] - b)``, as where a norm divides by a wrong sum and then adds a bias. Two rows
    determine ``b`` by least squares; all rows must then fit.
    """
    import torch

    if got.dim() != 2 or got.shape[0] < _LEAST_ROWS or got.shape[1] < _LEAST_COLUMNS:
        return None
    if got.is_complex() or not is_distinctive(got, want):
        return None
    expected = want.value.double()
    difference = got.double() - expected
    sizes = difference.norm(dim=1)
    if not bool(sizes.isfinite().all()) or not bool((sizes > 0).all()):
        return None
    one, two = sizes.topk(2).indices.tolist()
    sides = torch.stack([difference[one], -difference[two]], dim=1)
    inverse = torch.linalg.lstsq(sides, (expected[one] - expected[two]).unsqueeze(1)).solution[0]
    centred = expected - (expected[one] - inverse * difference[one])
    changes = (difference * centred).sum(1) / (centred * centred).sum(1)
    unexplained = (difference - changes.unsqueeze(1) * centred).norm(dim=1)
    is_common = float(changes.max() - changes.min()) <= _UNEXPLAINED * float(changes.abs().max())
    if is_common or not bool((unexplained <= _UNEXPLAINED * sizes).all()):
        return None
    return float(changes.min()) + 1, float(changes.max()) + 1
