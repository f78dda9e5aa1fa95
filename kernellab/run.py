"""Runs of a kernel: the result types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kernellab.packed import Finding, FindingKind, Severity

__all__ = ["Finding", "FindingKind", "Run", "Severity"]


@dataclass(frozen=True, slots=True)
class Run:
    """One launch that ended well.

    ``seconds`` is the time of the launch itself, ``changed`` the number of elements that changed, per argument that
    holds memory (0 where nothing did); ``where`` is ``"interpreter"`` or ``"gpu"``. ``output`` is what the kernel
    printed. ``notes`` are remarks on how it was run ("bf16 arithmetic is rounded after each operation").
    """

    kernel: str
    grid: tuple[int, int, int]
    seconds: float
    changed: Mapping[str, int]
    findings: tuple[Finding, ...]
    where: str
    output: str = ""
    notes: tuple[str, ...] = ()
