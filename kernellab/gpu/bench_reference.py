"""The outputs of a launch beside what they are to hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kernellab.gpu.bench_jobs import Expected
from kernellab.gpu.unboarding import tensor_of

POISON = 0xFF  # the bytes of a NaN, of -1, of the largest unsigned number
_CHUNK = 1 << 24


@dataclass(frozen=True, slots=True)
class Mismatch:
    """How an output differs: elements beyond the tolerance, of them those never written, and the largest difference."""

    name: str
    count: int
    elements: int
    unwritten: int
    max_error: float

    def __str__(self) -> str:
        never = f", {self.unwritten:,} of them never written" if self.unwritten else ""
        by = "" if self.unwritten == self.count else f", by up to {self.max_error:.3g}"
        return f"{self.name} differs from the reference in {self.count:,} of {self.elements:,} elements{never}{by}"


def mismatches(expected: Sequence[Expected], memories: Sequence[Any], references: Sequence[Any]) -> list[Mismatch]:
    """Return the outputs that differ, each with how much; memory that is only written held `POISON` before."""
    found = []
    for each in expected:
        got = tensor_of(each.output, memories[each.output.storage])
        want = tensor_of(each.value, references[each.value.storage])
        mismatch = mismatch_of(each, got, want)
        if mismatch.count:
            found.append(mismatch)
    return found


def mismatch_of(expected: Expected, got: Any, want: Any) -> Mismatch:
    """Compare an output with its reference; both have the same shape."""
    import torch

    got, want = (torch.view_as_real(t) if t.is_complex() else t for t in (got, want))
    count = unwritten = 0
    largest = 0.0
    for a, b in zip(got.flatten().split(_CHUNK), want.flatten().split(_CHUNK), strict=True):
        missing = _is_poison(a)
        x, y = a.double(), b.double()
        exact = not (a.is_floating_point() or b.is_floating_point())
        same = a == b if exact else _close(x, y, expected)
        if expected.fill is not None:
            same |= missing & _close(torch.full_like(y, expected.fill), y, expected)
        wrong = ~same
        count += int(wrong.sum())
        unwritten += int((wrong & missing).sum())
        differences = (x - y).abs()[wrong & ~missing]
        if differences.numel():
            largest = max(largest, float(torch.where(differences.isnan(), float("inf"), differences).max()))
    return Mismatch(expected.name, count, got.numel(), unwritten, largest)


def _close(x: Any, y: Any, expected: Expected) -> Any:
    close = ((x - y).abs() <= expected.absolute + expected.relative * y.abs()) & x.isfinite() & y.isfinite()
    return close | (x == y) | (x.isnan() & y.isnan())


def _is_poison(values: Any) -> Any:
    """Tell of each element whether all its bytes are those of the poison."""
    import torch

    if not values.numel():
        return torch.zeros(values.shape, dtype=torch.bool, device=values.device)
    data = values.contiguous().view(torch.uint8).view(values.numel(), -1)
    return (data == POISON).all(1)
