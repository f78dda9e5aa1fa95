"""Compare outputs with expected values: each element within its own bound."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernellab.checking.tolerance import (
    LIMITS,
    allowed_error,
    distance,
    error_of_unknown,
    is_within,
    magnitude_of,
    share_of_largest,
    unit_named,
    unit_of,
)
from kernellab.gpu.device_view import DeviceView, ElementDifference, Limits, compare_views, is_comparable
from kernellab.gpu.ipc import tensor_on

_DIFFERENCES_AT_MOST = 3
_MAP_ROWS, _MAP_COLUMNS = 24, 48
_CHUNK = 1 << 24
_WIDE_ROUNDINGS = 64
_COARSE = 0.01


@dataclass(frozen=True, slots=True)
class ExpectedValue:
    """The expected value of an output, with bounds.

    ``error`` bounds the error of a right kernel for each element, before it rounds to the format of the output. Without
    it, the bound of all elements is a share of the largest; it follows from their formats and ``unit``, the roundoff of
    the coarsest format among the inputs.
    """

    value: Any
    error: Any = None
    unit: float = 0.0


@dataclass(frozen=True, slots=True)
class Difference:
    """An element of an output that differs from its reference by more than ``allowed``; integers are exact."""

    index: tuple[int, ...]
    got: float
    expected: float
    allowed: float = 0.0

    def __str__(self) -> str:
        got, expected = pair_texts(self.got, self.expected)
        return f"{self.place} is {got}, not {expected}"

    @property
    def place(self) -> str:
        """The index of the element as text: ``[2, 7]``."""
        return index_text(self.index) if self.index else "the value"


EDGES = (0.5, 1.0, 2.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 2.0**16, 2.0**20, 2.0**24)
"""The upper ends of the bins of a histogram, in units in the last place; larger errors have one more bin."""


@dataclass(frozen=True, slots=True)
class ErrorHistogram:
    """A histogram of the errors of an output, in units in the last place of ``dtype``, its format.

    ``right`` counts the elements within their bounds and ``wrong`` those beyond. The bins end at `EDGES`; one more has
    the larger errors, and a last one the elements that are finite in the output or in the reference alone.
    """

    dtype: str
    right: tuple[int, ...]
    wrong: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class WorstElement:
    """The worst element of a program, by error over bound.

    ``got`` is None for an element that was never written, and ``ulps`` for such a one and for integers.
    ``program`` is the id of the program that last wrote it, ``tile`` the first and last index along each dimension of
    that program's writes, and ``wrong`` the number of wrong ones among them. Unknown programs: None, () and 1.
    """

    index: tuple[int, ...]
    got: float | None
    expected: float
    ulps: float | None
    program: tuple[int, int, int] | None = None
    tile: tuple[tuple[int, int], ...] = ()
    wrong: int = 1


@dataclass(frozen=True, slots=True)
class ErrorDetail:
    """The errors of an output: the worst elements, worst first, and a histogram for floating-point formats."""

    histogram: ErrorHistogram | None
    worst: tuple[WorstElement, ...]


@dataclass(frozen=True, slots=True)
class Check:
    """An output compared with a reference.

    ``expression`` is the reference as the user wrote it, ``argument`` the output; ``max_error`` is the largest absolute
    difference; ``mismatched`` of ``elements`` exceed their bounds, and ``never_written`` of those are unwritten.
    ``worst`` is the element with the greatest error over bound, and ``tolerance`` its bound, or the largest bound of an
    equal output. ``differences`` are the first wrong elements, ``extent`` the first and last index of wrong elements
    along each dimension, ``heat`` their share in each cell of a coarse grid over a matrix. ``rounded_to`` is the dtype
    of an integer output with a floating-point reference. ``wide`` is ``tolerance`` as a share of the largest element of
    the reference where that exceeds 64 roundings of the output's format, else 0. ``computed_before`` are the names in
    the reference that are not arguments, so that their errors are unknown. ``hints`` name likely causes of a difference
    and ``detail`` has its errors, where these were asked for.
    """

    expression: str
    argument: str
    equal: bool
    max_error: float
    tolerance: float
    mismatched: int
    elements: int
    never_written: int = 0
    worst: Difference | None = None
    differences: tuple[Difference, ...] = ()
    extent: tuple[tuple[int, int], ...] = ()
    heat: tuple[tuple[float, ...], ...] = ()
    rounded_to: str = ""
    wide: float = 0.0
    computed_before: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()
    detail: ErrorDetail | None = None

    @property
    def is_coarse(self) -> bool:
        """Whether an output that matches may be off by a hundredth of the largest element, or more."""
        return self.wide >= _COARSE

    @property
    def cause(self) -> str:
        """A full explanation of the difference by dtypes, as a sentence; "" if there is none."""
        if not self.rounded_to:
            return ""
        return f"{self.argument} is {self.rounded_to}, and {self.expression} is floating-point."

    @property
    def text(self) -> str:
        """How the output differs, in words."""
        never = f", {self.never_written:,} of them never written" if self.never_written else ""
        by = "" if self.never_written == self.mismatched else f", max error {self.max_error:.3g}"
        count = f"{self.mismatched:,} of {self.elements:,} elements"
        return f"{self.argument} differs from {self.expression} in {count}{never}{by}"


def error_text(checks: Sequence[Check]) -> str:
    """Return the max error of outputs in words, with the widest tolerance where one is wide."""
    widest = max(checks, key=lambda check: check.wide)
    largest = f"max error {max(check.max_error for check in checks):.2g}"
    if not widest.wide:
        return largest
    of = f" of {widest.argument}" if len(checks) > 1 else ""
    share = f"{widest.tolerance:.2g} ({100 * widest.wide:.2g} % of the largest element)"
    names = " and ".join(widest.computed_before)
    why = f", since {names} {'was' if names in widest.computed_before else 'were'} computed before" if names else ""
    return f"{largest}; wide tolerance{of}: {share}{why}"


def matching_text(checks: Sequence[Check]) -> str:
    """Return outputs that equal one reference, in words: ``out_ptr matches x + y; max error 0``; "" for none."""
    if not checks:
        return ""
    outputs, verb = ", ".join(check.argument for check in checks), "matches" if len(checks) == 1 else "match"
    return f"{outputs} {verb} {checks[0].expression}; {error_text(checks)}"


def compare(
    expression: str,
    values: Mapping[str, ExpectedValue],
    outputs: Mapping[str, Any],
    unwritten: Mapping[str, Any] | None = None,
    fills: Mapping[str, float | None] | None = None,
) -> list[Check]:
    """Compare the outputs that have an expected value, which is of the same shape.

    ``unwritten`` holds masks of unwritten elements, by argument. They are wrong, unless the output was filled with one
    value beforehand: ``fills`` has these values by argument, and unwritten elements count as them.
    """
    return [
        compare_output(expression, name, outputs[name], value, (unwritten or {}).get(name), (fills or {}).get(name))
        for name, value in values.items()
    ]


def compare_output(
    expression: str, name: str, got: Any, want: ExpectedValue, unwritten: Any = None, fill: float | None = None
) -> Check:
    """Compare one output with a value of its shape."""
    import torch  # keeps `import kernellab` light

    shape, elements = tuple(got.shape), got.numel()
    missing = never = None if unwritten is None or not bool(unwritten.any()) else unwritten.flatten()
    if missing is not None and fill is not None and not bool(missing.all()):
        got = torch.where(missing.view(shape), torch.as_tensor(fill, device=got.device).to(got.dtype), got)
        missing = None
    scan = _scan(got.detach(), want, missing)
    wrong = scan.wrong if missing is None else scan.wrong | missing
    count = int(wrong.sum())
    if not count:
        wide = _wide_share(scan.allowed, got, want.value)
        return Check(expression, name, True, scan.largest, scan.allowed, 0, elements, wide=wide)
    worst = _difference(scan.worst, shape, got, want) if scan.worst >= 0 else None
    is_rounded = not (got.dtype.is_floating_point or got.dtype.is_complex) and want.value.dtype.is_floating_point
    return Check(
        expression=expression,
        argument=name,
        equal=False,
        max_error=scan.largest,
        tolerance=scan.allowed if worst is None else worst.allowed,
        mismatched=count,
        elements=elements,
        never_written=0 if never is None else int((wrong & never).sum()),
        worst=worst,
        differences=tuple(
            _difference(int(place), shape, got, want) for place in scan.wrong.nonzero()[:_DIFFERENCES_AT_MOST]
        ),
        extent=extent_of(wrong, shape),
        heat=_heat(wrong, shape),
        rounded_to=str(got.dtype).removeprefix("torch.") if is_rounded else "",
    )


@dataclass(frozen=True, slots=True)
class OutputDifference:
    """The difference between an output of two launches, where neither is a reference.

    ``differing`` of ``elements`` are further apart than their bounds; ``largest`` is the largest absolute difference,
    None where an element is finite in one of the two alone.
    """

    argument: str
    differing: int
    elements: int
    largest: float | None

    @property
    def text(self) -> str:
        """The difference in words."""
        return f"{self.argument} differs {self.amount}"

    @property
    def amount(self) -> str:
        """How many elements differ, and by how much at most, in words."""
        by = "" if self.largest is None else f", by up to {self.largest:.3g}"
        return f"in {self.differing:,} of {self.elements:,} elements{by}"


def output_difference(argument: str, got: Any, want: Any) -> OutputDifference | None:
    """Return the difference between the outputs of two launches, of one shape; None where they agree.

    ``want`` may be an `ExpectedValue` of as many elements.
    """
    if isinstance(got, DeviceView):
        differing = _count_differing(got, want)
        if differing is None:
            return output_difference(argument, tensor_on(got.memory, got.spec), tensor_on(want.memory, want.spec))
        count, largest = differing.count, differing.largest
    elif agree(got, want):
        return None
    else:
        scan = _scan(got, want if isinstance(want, ExpectedValue) else ExpectedValue(want))
        count, largest = int(scan.wrong.sum()), scan.largest
    if not count:
        return None
    return OutputDifference(argument, count, got.numel(), largest if math.isfinite(largest) else None)


def agree(got: Any, want: Any) -> bool:
    """Whether an output equals another, or an `ExpectedValue` of as many elements, each within its bound."""
    if isinstance(got, DeviceView):
        differing = _count_differing(got, want)
        if differing is None:
            return agree(*(tensor_on(view.memory, view.spec) for view in (got, want)))
        return not differing.count
    import torch

    if not isinstance(want, ExpectedValue):
        if got.shape != want.shape:
            return False
        if torch.equal(got, want):
            return True
        want = ExpectedValue(want)
    return not bool(_scan(got, want).wrong.any())


def wrong_elements(got: Any, want: ExpectedValue) -> Any:
    """Return the flat mask of the elements of an output beyond their bounds."""
    return _scan(got, want).wrong


def _count_differing(got: DeviceView, want: DeviceView) -> ElementDifference | None:
    """Count the elements that differ between two outputs on a GPU; None where that needs torch."""
    if not is_comparable(got.spec):
        return None
    unit = unit_named(got.spec.dtype)
    limits = Limits(unit, *LIMITS.get(got.spec.dtype, (0.0, math.inf)), share_of_largest(unit) if unit else 0.0)
    return compare_views(got, want, limits)


@dataclass(frozen=True, slots=True)
class _Scan:
    """The mask of wrong elements, the max error, the greatest bound, the place of the worst element or -1."""

    wrong: Any
    largest: float
    allowed: float
    worst: int


def _scan(got: Any, want: ExpectedValue, skipped: Any = None) -> _Scan:
    """Compare flat, in parts, where ``got`` lies; ``skipped`` elements are never wrong."""
    import torch

    flat, values = got.flatten(), torch.as_tensor(want.value).flatten()
    errors = None if want.error is None else want.error.flatten()
    share = 0.0 if errors is not None else error_of_unknown(flat, values, want.unit)
    masks, largest, bound, worst, excess = [], 0.0, 0.0, -1, 0.0
    for start in range(0, flat.numel(), _CHUNK):
        part = slice(start, start + _CHUNK)
        a, b = flat[part], values[part].to(got.device)
        if _are_equal_integers(a, b):
            masks.append(torch.zeros(a.numel(), dtype=torch.bool, device=got.device))
            continue
        allowed = allowed_error(a, b, share if errors is None else errors[part].to(got.device))
        difference = distance(a, b)
        wrong = ~is_within(a, b, difference, allowed)
        if skipped is not None:
            wrong &= ~skipped[part]
            difference = torch.where(skipped[part], 0, difference)
        masks.append(wrong)
        bound = max(bound, float(allowed.max()))
        finite = difference[difference.isfinite()]
        largest = max(largest, float(finite.max()) if finite.numel() else 0.0)
        if bool(wrong.any()):
            odds = torch.where(wrong, difference / (allowed + 1e-300), -1.0).nan_to_num(math.inf)
            if float(odds.max()) > excess:
                worst, excess = start + int(odds.argmax()), float(odds.max())
            largest = math.inf if bool((wrong & ~difference.isfinite()).any()) else largest
    mask = torch.cat(masks) if masks else torch.zeros(0, dtype=torch.bool, device=got.device)
    return _Scan(mask, largest, bound, worst)


def _are_equal_integers(a: Any, b: Any) -> bool:
    """Whether all elements are equal, of a dtype without roundings: such a part has no error and no bound."""
    import torch

    return not (a.is_floating_point() or a.is_complex()) and a.dtype == b.dtype and torch.equal(a, b)


def _wide_share(allowed: float, got: Any, want: Any) -> float:
    """Return a tolerance as a share of the largest reference element; 0 for a tolerance of a few roundings."""
    unit = unit_of(got.dtype)
    if not unit or not want.numel():
        return 0.0
    largest = float(magnitude_of(want).nan_to_num(0.0, 0.0, 0.0).max())
    return allowed / largest if largest and allowed > _WIDE_ROUNDINGS * unit * largest else 0.0


def _difference(place: int, shape: tuple[int, ...], got: Any, want: ExpectedValue) -> Difference:
    a, b = got.flatten()[place : place + 1], want.value.flatten()[place : place + 1].to(got.device)
    error = error_of_unknown(got, want.value, want.unit) if want.error is None else want.error.flatten()[place]
    return Difference(index_of(place, shape), number_of(a), number_of(b), float(allowed_error(a, b, error)))


def index_of(place: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the index of an element from its place in row-major order."""
    index: list[int] = []
    for size in reversed(shape):
        place, coordinate = divmod(place, size)
        index.append(coordinate)
    return tuple(reversed(index))


def index_text(index: tuple[int, ...]) -> str:
    """Return an index as text: ``[2, 7]``."""
    return f"[{', '.join(map(str, index))}]"


def number_text(value: float) -> str:
    """Return an element in words: all digits of an integer, six of other numbers."""
    return str(value) if isinstance(value, int) else f"{value:.6g}"


def pair_texts(one: float, other: float) -> tuple[str, str]:
    """Return two elements in words, with as many digits as show by how much they differ, six at least."""
    texts = number_text(one), number_text(other)
    distance = abs(one - other)
    for digits in range(7, 18):
        if isinstance(one, int) or not 0 < distance < math.inf:
            break
        if abs(abs(float(texts[0]) - float(texts[1])) - distance) <= 0.1 * distance:
            break
        texts = f"{one:.{digits}g}", f"{other:.{digits}g}"
    return texts


def number_of(value: Any) -> float:
    """Return an element as a Python number; int for integers, since a float does not hold all of 64 bits."""
    if value.is_complex():
        return float(value.abs())
    return float(value) if value.is_floating_point() else int(value)


def extent_of(mask: Any, shape: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """Return the first and last index along each dimension of the elements in a flat mask."""
    if not shape:
        return ()
    places = mask.view(shape).nonzero()
    return tuple(zip(places.amin(0).tolist(), places.amax(0).tolist(), strict=True))


def _heat(wrong: Any, shape: tuple[int, ...]) -> tuple[tuple[float, ...], ...]:
    """Return the share of wrong elements in each cell of a coarse grid over a matrix; empty for other shapes."""
    import torch

    sizes = [size for size in shape if size > 1]
    if len(sizes) != 2:
        return ()
    cells = (min(sizes[0], _MAP_ROWS), min(sizes[1], _MAP_COLUMNS))
    matrix = wrong.view(1, 1, *sizes).float()
    shares = torch.nn.functional.adaptive_avg_pool2d(matrix, cells)[0, 0]
    return tuple(tuple(row) for row in shares.tolist())
