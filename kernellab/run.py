"""Runs of a kernel: the result types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class FindingKind(StrEnum):
    """What a checked run can find."""

    OUT_OF_BOUNDS = "out_of_bounds"
    OUTSIDE_VIEW = "outside_view"
    UNINITIALISED_READ = "uninitialised_read"
    RACE = "race"
    ADDRESS_OVERFLOW = "address_overflow"
    OVERLAP = "overlap"


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that a checked run saw. ``program`` is a program id (x, y, z); ``line`` a line of ``file``."""

    kind: FindingKind
    severity: Severity
    argument: str | None
    file: str | None
    line: int | None
    program: tuple[int, int, int]
    detail: str


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
