"""Collects what a run finds: each kind once per argument and source line, with how often it was seen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kernellab.interpreter.faults import current_line
from kernellab.launch.arguments import Finding, FindingKind, Severity

Program = tuple[int, int, int]
_Key = tuple[FindingKind, Severity, str | None, tuple[str, int] | None]
_MAX_FINDINGS = 100


@dataclass(slots=True)
class _Record:
    program: Program
    detail: str
    lanes: int = 0
    programs: int = 0
    last_program: Program | None = None


class Findings:
    """Findings of one launch, in the order in which they were first seen."""

    def __init__(self) -> None:
        self._records: dict[_Key, _Record] = {}

    def add(
        self,
        kind: FindingKind,
        severity: Severity,
        argument: str | None,
        program: Program,
        detail: Callable[[], str],
        lanes: int = 1,
        line: tuple[str, int] | None = None,
    ) -> None:
        """Count a finding at ``line``, or at the line that runs; ``detail`` is asked at the first of its key only."""
        key = (kind, severity, argument, line or current_line())
        record = self._records.get(key)
        if record is None:
            if len(self._records) >= _MAX_FINDINGS:
                return
            record = self._records[key] = _Record(program, detail())
        record.lanes += lanes
        if record.last_program != program:
            record.last_program = program
            record.programs += 1

    def line_of(self, kind: FindingKind, argument: str | None) -> tuple[str, int] | None:
        """Return the line of the first finding of a kind about an argument."""
        return next((key[3] for key in self._records if (key[0], key[2]) == (kind, argument)), None)

    def finished(self) -> tuple[Finding, ...]:
        return tuple(_finding(key, record) for key, record in self._records.items())


def counted(number: int, noun: str) -> str:
    """Return ``1 lane``, ``5 lanes``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _finding(key: _Key, record: _Record) -> Finding:
    kind, severity, argument, line = key
    file, number = line or (None, None)
    seen = f"{counted(record.lanes, 'lane')} of {counted(record.programs, 'program')}"
    return Finding(kind, severity, argument, file, number, record.program, f"{record.detail} ({seen})")
