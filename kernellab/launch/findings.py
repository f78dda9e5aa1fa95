"""Findings of a checked run: the kinds of hazard, and how bad each is."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class FindingKind(StrEnum):
    """The kinds of findings of a checked run."""

    OUT_OF_BOUNDS = "out_of_bounds"
    OUTSIDE_VIEW = "outside_view"
    UNINITIALISED_READ = "uninitialised_read"
    RACE = "race"
    ADDRESS_OVERFLOW = "address_overflow"
    OVERLAP = "overlap"
    FALSE_PROMISE = "false_promise"
    UNDEFINED_VALUE = "undefined_value"


class Severity(StrEnum):
    """How bad a finding is: the run fails, its results may be wrong, or it is worth knowing."""

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


def finding_words(finding: Finding) -> str:
    """A finding in words, with argument, line and program."""
    place = [finding.kind.value.replace("_", " ")]
    if finding.argument:
        place.append(f"of {finding.argument}")
    if finding.line is not None:
        place.append(f"in line {finding.line}")
    place.append(f"by program {finding.program}")
    return f"{' '.join(place)}: {finding.detail}"
