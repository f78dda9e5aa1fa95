"""How much a right kernel may round: the unit roundoff of each format, and the bounds of sums.

Sums follow Higham, *Accuracy and Stability of Numerical Algorithms* (2nd ed., SIAM 2002), sections 3.1 and 4.2, with
the factor n of the worst case replaced by that of Higham and Mary, *A New Approach to Probabilistic Rounding Error
Analysis* (SIAM J. Sci. Comput. 41(5), 2019): for rounding errors of mean zero, λ·√n holds in place of n with
probability 1 - 2n·exp(-λ²/2). The worst case would let a sum of 4,096 positive float32 lose a whole term.
"""

from __future__ import annotations

import math
from typing import Any

FLOAT32 = 2.0**-24
TF32 = 2.0**-10
"""How far cutting an operand to TF32 moves it: ``tl.dot`` hands float32 over as it is, and the hardware drops bits."""
CONFIDENCE = 8.0
"""λ: fails for one of 10^8 terms with a probability below 3·10^-6."""

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


def unit_of(dtype: Any) -> float:
    """Return the unit roundoff of a torch dtype, the largest relative error of rounding to it; 0 where it is exact."""
    return unit_named(str(dtype.to_real() if dtype.is_complex else dtype).removeprefix("torch."))


def unit_named(dtype: str) -> float:
    """Return the unit roundoff of a dtype by torch's name for it."""
    return 2.0 ** -_BITS.get(dtype, 3) if "float" in dtype else 0.0


def accumulator_of(unit: float) -> float:
    """Return the roundoff in which sums over operands of some roundoff are kept: float32, or float64 for its own."""
    return min(unit, FLOAT32) or FLOAT32


def gamma(terms: float, unit: float) -> float:
    """Return the bound of a sum's error, as a share of the sum of magnitudes."""
    return min(terms, CONFIDENCE * math.sqrt(terms)) * unit


def share_of_largest(unit: float, *, has_dot: bool = False) -> float:
    """Return how far outputs may differ of which nothing is known but their format, as a share of the largest.

    Half of the digits of a format, or sixteen roundings of a short one; for float32 one operand in TF32, or, beside
    another implementation of a kernel that ``has_dot``, two of them, with what has no common sign.
    """
    if unit == FLOAT32:
        return 4 * TF32 if has_dot else TF32
    return min(16 * unit, math.sqrt(unit)) if unit > FLOAT32 else math.sqrt(unit)


def smallest_of(dtype: Any) -> float:
    """Return the smallest normal number of a format, to which results below may be rounded; 0 where it is exact."""
    import torch  # keeps `import kernellab` light

    return float(torch.finfo(dtype).tiny) if dtype.is_floating_point or dtype.is_complex else 0.0


def largest_of(dtype: Any) -> float:
    """Return the largest finite number of a format; infinity where there is none to exceed."""
    import torch

    return float(torch.finfo(dtype).max) if dtype.is_floating_point or dtype.is_complex else math.inf
