"""Whether an output is what it is to be: each element within its own bound."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernellab.gpu.device_view import DeviceView, Differing, Limits, differing, is_comparable
from kernellab.gpu.ipc import tensor_on
from kernellab.measure.tolerance import (
    LIMITS,
    allowed_error,
    distance,
    error_of_unknown,
    is_within,
    share_of_largest,
    unit_named,
)

if TYPE_CHECKING:
    from kernellab.measure.errors_in_detail import ErrorDetail
    from kernellab.measure.hints import Hint

_DIFFERENCES_AT_MOST = 3
_MAP_ROWS, _MAP_COLUMNS = 24, 48
_CHUNK = 1 << 24


@dataclass(frozen=True, slots=True)
class ExpectedValue:
    """What an output is to hold. ``error`` bounds how far a right kernel may be from each element, before it rounds it
    to the format of the output; where that is None, all elements have a share of the largest, by ``unit``, the roundoff
    of the coarsest format that they come from, and by their own formats.
    """

    value: Any
    error: Any = None
    unit: float = 0.0


@dataclass(frozen=True, slots=True)
class Difference:
    """One element of an output that differs from its reference by more than ``allowed``."""

    index: tuple[int, ...]
    got: float
    expected: float
    allowed: float = 0.0

    def __str__(self) -> str:
        return f"{self.place} is {self.got:.6g}, not {self.expected:.6g}"

    @property
    def place(self) -> str:
        """Where the element lies: ``[2, 7]``."""
        return f"[{', '.join(map(str, self.index))}]" if self.index else "the value"


@dataclass(frozen=True, slots=True)
class Check:
    """An output compared with a reference.

    ``expression`` is the reference as the user wrote it, ``argument`` the output; ``max_error`` is the largest absolute
    difference; ``mismatched`` of ``elements`` exceed their bounds, and ``never_written`` of those the kernel did not
    write. ``worst`` is the one that exceeds its bound by the largest factor, and ``tolerance`` that bound, or the
    largest of all where none does. ``differences`` are the first wrong elements, ``extent`` the first and last index of
    such along each dimension, ``heat`` their share in each cell of a coarse grid over a matrix. ``rounded_to`` is the
    dtype of an output of whole numbers where the reference is floating-point. ``hints`` and ``detail`` of an output
    that differs say what explains it, and how large its errors are, where that was asked.
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
    hints: tuple[Hint, ...] = ()
    detail: ErrorDetail | None = None

    @property
    def cause(self) -> str:
        """What explains a difference by itself, as a sentence; "" where nothing does."""
        if not self.rounded_to:
            return ""
        return f"{self.argument} is {self.rounded_to}, and {self.expression} is floating-point."

    @property
    def text(self) -> str:
        """How the output differs, in words."""
        never = f", {self.never_written:,} of them never written" if self.never_written else ""
        by = "" if self.never_written == self.mismatched else f", by up to {self.max_error:.3g}"
        count = f"{self.mismatched:,} of {self.elements:,} elements"
        return f"{self.argument} differs from {self.expression} in {count}{never}{by}"


def compare(
    expression: str,
    values: Mapping[str, ExpectedValue],
    outputs: Mapping[str, Any],
    unwritten: Mapping[str, Any] | None = None,
    fills: Mapping[str, float | None] | None = None,
) -> list[Check]:
    """Compare the outputs that have a value; both have one shape.

    ``unwritten`` holds masks of the elements that no launch wrote, by argument. Such an element is wrong, unless the
    output was filled beforehand with one value, which ``fills`` tells, and which then counts as the element's.
    """
    return [
        compared(expression, name, outputs[name], value, (unwritten or {}).get(name), (fills or {}).get(name))
        for name, value in values.items()
    ]


def compared(
    expression: str, name: str, got: Any, want: ExpectedValue, unwritten: Any = None, fill: float | None = None
) -> Check:
    """Compare one output with a value of its shape."""
    import torch  # keeps `import kernellab` light

    shape, elements = tuple(got.shape), got.numel()
    missing = never = None if unwritten is None or not bool(unwritten.any()) else unwritten.flatten()
    if missing is not None and fill is not None and not bool(missing.all()):
        got = torch.where(missing.view(shape), torch.as_tensor(fill, device=got.device).to(got.dtype), got)
        missing = None
    scan = _scanned(got.detach(), want, missing)
    wrong = scan.wrong if missing is None else scan.wrong | missing
    count = int(wrong.sum())
    if not count:
        return Check(expression, name, True, scan.largest, scan.allowed, 0, elements)
    worst = _difference(scan.worst, shape, got, want) if scan.worst >= 0 else None
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
        extent=_extent(wrong, shape),
        heat=_heat(wrong, shape),
        rounded_to=_rounded_to(got, want.value),
    )


@dataclass(frozen=True, slots=True)
class OutputDifference:
    """How an output of one launch differs from that of another, where neither is a reference.

    ``differing`` of ``elements`` are further apart than their bounds; ``largest`` is the largest absolute difference,
    None where an element is finite in one of them alone.
    """

    argument: str
    differing: int
    elements: int
    largest: float | None

    @property
    def text(self) -> str:
        """The difference in words."""
        by = "" if self.largest is None else f", by up to {self.largest:.3g}"
        return f"{self.argument} differs in {self.differing:,} of {self.elements:,} elements{by}"


def difference_of(argument: str, got: Any, want: Any) -> OutputDifference | None:
    """Return how an output differs from that of another launch, of the same shape; None where they agree."""
    if isinstance(got, DeviceView):
        found = _differing(got, want)
        if found is None:
            return difference_of(argument, tensor_on(got.memory, got.spec), tensor_on(want.memory, want.spec))
        if not found.count:
            return None
        return OutputDifference(
            argument, found.count, got.numel(), found.largest if math.isfinite(found.largest) else None
        )
    if agree(got, want):
        return None
    scan = _scanned(got, ExpectedValue(want))
    largest = scan.largest if math.isfinite(scan.largest) else None
    return OutputDifference(argument, int(scan.wrong.sum()), got.numel(), largest)


def agree(got: Any, want: Any) -> bool:
    """Tell whether an output is that of another, or a `ExpectedValue` of as many elements, each within its bound."""
    if isinstance(got, DeviceView):
        found = _differing(got, want)
        return not found.count if found is not None else agree(*(tensor_on(v.memory, v.spec) for v in (got, want)))
    import torch

    if not isinstance(want, ExpectedValue):
        if got.shape != want.shape:
            return False
        if torch.equal(got, want):
            return True
        want = ExpectedValue(want)
    return not bool(_scanned(got, want).wrong.any())


def wrong_elements(got: Any, want: ExpectedValue) -> Any:
    """Return the mask of the elements of an output beyond their bounds, flat."""
    return _scanned(got, want).wrong


def _differing(got: DeviceView, want: DeviceView) -> Differing | None:
    """Return how many elements of two outputs on a GPU differ, None where only torch can tell."""
    if not is_comparable(got.spec):
        return None
    unit = unit_named(got.spec.dtype)
    limits = Limits(unit, *LIMITS.get(got.spec.dtype, (0.0, math.inf)), share_of_largest(unit) if unit else 0.0)
    return differing(got, want, limits)


@dataclass(frozen=True, slots=True)
class _Scan:
    """The mask of wrong elements, the largest difference, the largest bound, the place of the worst element or -1."""

    wrong: Any
    largest: float
    allowed: float
    worst: int


def _scanned(got: Any, want: ExpectedValue, skipped: Any = None) -> _Scan:
    """Compare flat, in parts; ``skipped`` elements are never wrong."""
    import torch

    flat, values = got.flatten(), torch.as_tensor(want.value, device=got.device).flatten()
    errors = None if want.error is None else want.error.flatten()
    share = 0.0 if errors is not None else error_of_unknown(flat, values, want.unit)
    masks, largest, bound, worst, excess = [], 0.0, 0.0, -1, 0.0
    for start in range(0, flat.numel(), _CHUNK):
        part = slice(start, start + _CHUNK)
        a, b = flat[part], values[part]
        allowed = allowed_error(a, b, share if errors is None else errors[part])
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


def _rounded_to(got: Any, want: Any) -> str:
    """Return the dtype of an output that holds whole numbers only beside a reference that does not, else ""."""
    rounds = not (got.dtype.is_floating_point or got.dtype.is_complex) and want.dtype.is_floating_point
    return str(got.dtype).removeprefix("torch.") if rounds else ""


def _difference(place: int, shape: tuple[int, ...], got: Any, want: ExpectedValue) -> Difference:
    import torch

    index = tuple(int(i) for i in torch.unravel_index(torch.tensor(place), shape)) if shape else ()
    a, b = got.flatten()[place : place + 1], want.value.flatten()[place : place + 1].to(got.device)
    error = error_of_unknown(got, want.value, want.unit) if want.error is None else want.error.flatten()[place]
    return Difference(index, _number(a), _number(b), float(allowed_error(a, b, error)))


def _number(value: Any) -> float:
    return float(value.abs() if value.is_complex() else value)


def _extent(wrong: Any, shape: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """Return the first and last wrong index along each dimension."""
    if not shape:
        return ()
    places = wrong.view(shape).nonzero()
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
