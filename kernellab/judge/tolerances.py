"""Tolerances that a specification states, such as for outputs that a candidate may compute in fp8."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from kernellab.checking.comparison import ExpectedValue
from kernellab.checking.tolerance import allowed_error, error_of_unknown
from kernellab.errors import UsageError, value_text

ALL_OUTPUTS = ""
_FORMS = 'expected a number such as 0.05, {"rtol": 0.05, "atol": 0.01}, or a dict of such by output'


@dataclass(frozen=True, slots=True)
class Tolerance:
    """A stated tolerance: an element may be off by ``rtol`` of its own magnitude and ``atol`` more."""

    rtol: float = 0.0
    atol: float = 0.0

    @property
    def words(self) -> str:
        """The tolerance in words: ``rtol 0.05, atol 0.01``."""
        parts = (f"{name} {value:g}" for name, value in (("rtol", self.rtol), ("atol", self.atol)) if value)
        return ", ".join(parts)

    def allowed_error(self, want: torch.Tensor) -> torch.Tensor:
        """Return the allowed error of each element, in float64; of NaN and infinities, ``atol``."""
        size = (want.abs() if want.is_complex() else want.double().abs()).double()
        return self.atol + self.rtol * size.nan_to_num(0.0, 0.0, 0.0)

    def accepts_zeros(self, want: torch.Tensor) -> bool:
        """Whether zeros in place of all elements are within the tolerance, though some element is not zero."""
        size = (want.abs() if want.is_complex() else want.double().abs()).double().nan_to_num(math.inf)
        return bool(want.numel()) and bool((size > 0).any()) and bool((size <= self.allowed_error(want)).all())


def with_tolerance(got: torch.Tensor, expected: ExpectedValue, tolerance: Tolerance) -> ExpectedValue:
    """Widen the bounds of an expected value to a tolerance, where that is larger.

    An element of ``got`` that is NaN or infinite keeps its own bound: a tolerance does not reach there.
    """
    want = expected.value
    rounding = allowed_error(got, want, 0.0)
    own = torch.as_tensor(error_of_unknown(got, want, expected.unit) if expected.error is None else expected.error)
    own = own.to(rounding).expand(rounding.shape)
    is_finite = (got if got.is_complex() else got.double()).isfinite()  # torch lacks isfinite for float8
    allowed = torch.where(is_finite, torch.maximum(own, tolerance.allowed_error(want) - rounding), own)
    return replace(expected, error=allowed)


def tolerances_of(value: Any, file: str) -> dict[str, Tolerance]:
    """Return the tolerances that a specification in ``file`` states, by output; `ALL_OUTPUTS` names all others.

    Raises:
        UsageError: ``value`` is neither a number nor a dict of numbers.
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping) or set(value) & {"rtol", "atol"}:
        return {ALL_OUTPUTS: _tolerance(value, file, "tolerance")}
    if not value or not all(isinstance(name, str) and name for name in value):
        raise UsageError(f"tolerance of {file} is {value_text(value)}; {_FORMS}.")
    return {name: _tolerance(own, file, f"tolerance of {name}") for name, own in value.items()}


def _tolerance(value: Any, file: str, what: str) -> Tolerance:
    parts = value if isinstance(value, Mapping) else {"rtol": value}
    are_numbers = all(isinstance(part, int | float) and not isinstance(part, bool) for part in parts.values())
    if not parts or not set(parts) <= {"rtol", "atol"} or not are_numbers:
        raise UsageError(f"{what} in {file} is {value_text(value)}; {_FORMS}.")
    tolerance = Tolerance(**{name: float(part) for name, part in parts.items()})
    if not 0.0 <= tolerance.rtol < 1.0:
        raise UsageError(
            f"rtol is {tolerance.rtol:g} in {what} of {file}; expected 0 or more and less than 1, which is all of an "
            "element."
        )
    if not (0.0 <= tolerance.atol < math.inf):
        raise UsageError(f"atol is {tolerance.atol:g} in {what} of {file}; expected a finite number, 0 or more.")
    if not tolerance.rtol and not tolerance.atol:
        raise UsageError(f"{what} in {file} is 0; leave it out, and each element has a bound of its own.")
    return tolerance
