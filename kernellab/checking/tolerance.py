"""The tolerance of comparisons: how far a right kernel may be from the expected value of an element.

Sums follow Higham, *Accuracy and Stability of Numerical Algorithms* (2nd ed., SIAM 2002), sections 3.1 and 4.2, with
the factor n of the worst case replaced by λ·√n, after Higham and Mary, *A New Approach to Probabilistic Rounding Error
Analysis* (SIAM J. Sci. Comput. 41(5), 2019). The worst case would let a sum of 4,096 positive float32 lose a whole
term. Roundings spread as uniform numbers do, and partial sums grow to their sum, which is a factor of 1/√3 each.
"""

from __future__ import annotations

import math
from typing import Any

FLOAT32 = 2.0**-24
TF32 = 2.0**-10
"""The relative error of truncation to TF32: ``tl.dot`` passes float32 as it is, and the hardware drops bits."""
CONFIDENCE = 8.0
"""λ: the allowed error, in standard deviations of the accumulated rounding."""
LONGEST_CHAIN = 1 << 16
"""The number of terms that a kernel adds one after the other; more are added as sums of blocks."""

# 2^-p for p bits of significand, the leading one counted.
_BITS = {
    "float64": 53,
    "float32": 24,
    "float16": 11,
    "bfloat16": 8,
    "float8_e4m3fn": 4,
    "float8_e4m3fnuz": 4,
    "float8_e5m2": 3,
    "float8_e5m2fnuz": 3,
}

FLOAT8 = 2.0 ** -_BITS["float8_e4m3fn"]

LIMITS = {
    "float64": (2.0**-1022, (2 - 2.0**-52) * 2.0**1023),
    "float32": (2.0**-126, (2 - 2.0**-23) * 2.0**127),
    "float16": (2.0**-14, 65504.0),
    "bfloat16": (2.0**-126, (2 - 2.0**-7) * 2.0**127),
}
"""The smallest normal and the largest finite number of formats, by torch's names, for processes without torch."""


def unit_of(dtype: Any) -> float:
    """Return the unit roundoff of a torch dtype, the largest relative error of rounding to it; 0 for integers."""
    return unit_named(str(dtype.to_real() if dtype.is_complex else dtype).removeprefix("torch."))


def unit_named(dtype: str) -> float:
    """Return the unit roundoff of a dtype by torch's name."""
    return 2.0 ** -_BITS.get(dtype, 3) if "float" in dtype else 0.0


def accumulator_of(unit: float) -> float:
    """Return the roundoff of an accumulator for operands of roundoff ``unit``: float32's, or float64's for float64."""
    return min(unit, FLOAT32) or FLOAT32


def narrow_of(unit: float) -> float:
    """Return the roundoff of results that a kernel keeps in the format of its arguments; 0 for float32 and wider.

    Nothing computes in float8 itself.
    """
    return 0.0 if unit <= FLOAT32 else min(unit, unit_named("bfloat16"))


def gamma(terms: float, unit: float) -> float:
    """Return the bound on a sum's error, as a share of the sum of magnitudes."""
    return min(terms, CONFIDENCE / 3 * math.sqrt(min(terms, LONGEST_CHAIN))) * unit


def share_of_largest(unit: float, *, has_dot: bool = False) -> float:
    """Return the default tolerance of a format, as a share of the largest element.

    It is half of the digits of a format, or 16 roundings of a short one. For float32 it allows one operand truncated to
    TF32; between two implementations of a kernel that ``has_dot``, two operands, doubled for errors of random sign.
    """
    if unit == FLOAT32:
        return 4 * TF32 if has_dot else TF32
    return min(16 * unit, math.sqrt(unit)) if unit > FLOAT32 else math.sqrt(unit)


def smallest_of(dtype: Any) -> float:
    """Return the smallest normal number of a format; below it, results may be flushed. 0 for integers."""
    import torch  # keeps `import kernellab` light

    return float(torch.finfo(dtype).tiny) if dtype.is_floating_point or dtype.is_complex else 0.0


def largest_of(dtype: Any) -> float:
    """Return the largest finite number of a format; infinity for integers."""
    import torch

    return float(torch.finfo(dtype).max) if dtype.is_floating_point or dtype.is_complex else math.inf


def magnitude_of(values: Any) -> Any:
    """Return the magnitude of each element, in float64."""
    return values.abs().double() if values.is_complex() else values.double().abs()


def allowed_error(got: Any, want: Any, error: Any) -> Any:
    """Return the bound of each element: its error before rounding, and the rounding to the output's format."""
    import torch

    size = magnitude_of(want).nan_to_num(0.0, 0.0, 0.0)
    rounded = unit_of(got.dtype) * size + smallest_of(got.dtype)
    return rounded + (error.double() if isinstance(error, torch.Tensor) else error)


def error_of_unknown(got: Any, want: Any, unit: float) -> float:
    """Return the tolerance of each element by format alone, for values without error bounds."""
    if not (got.is_floating_point() or got.is_complex()) or not want.numel():
        return 0.0
    coarsest = max(unit, unit_of(got.dtype), unit_of(want.dtype))
    return share_of_largest(coarsest) * float(magnitude_of(want).nan_to_num(0.0, 0.0, 0.0).max())


def is_within(got: Any, want: Any, difference: Any, allowed: Any) -> Any:
    """Return a mask of the right elements: within their bounds, or both infinite, or both NaN."""
    close = (difference <= allowed) & difference.isfinite() | (difference == 0)
    if not got.is_floating_point():
        return close
    a, b = got.double(), (want.real if want.is_complex() else want).double()
    largest = largest_of(got.dtype)
    # beyond its range, a format gives infinity, its largest number, or NaN where it has no infinity
    beyond = b.isfinite() & (b.abs() + allowed > largest)
    over = beyond & ((a.abs() >= largest) & (a.sign() == b.sign()) | a.isnan() & _lacks_infinity(got.dtype))
    return close & a.isfinite() & b.isfinite() | (a == b) | (a.isnan() & b.isnan()) | over


def distance(got: Any, want: Any) -> Any:
    """Return the absolute difference of each element, in float64."""
    if got.is_complex() or want.is_complex():
        return (got - want).abs().double()
    if got.is_floating_point() or want.is_floating_point():
        return (got.double() - want.double()).abs()
    a, b = got.long(), want.long()
    rough = (a.double() - b.double()).abs()
    return a.sub(b).double().abs().where(rough < 2.0**62, rough)  # a larger distance overflows 64 bits


def _lacks_infinity(dtype: Any) -> bool:
    return ("float8" in str(dtype) and "e5m2" not in str(dtype)) or "fnuz" in str(dtype)
