"""Faults that stop an interpreted program, findings of a run, and their places in the user's source."""

from __future__ import annotations

import ast
import linecache
import sys
import textwrap
from dataclasses import dataclass
from itertools import dropwhile
from pathlib import Path
from traceback import walk_tb
from types import FrameType, TracebackType

import numpy as np
import triton

from kernellab.errors import Place, plural
from kernellab.launch.recorded_values import Program
from kernellab.launch.run import Finding, FindingKind, Severity

Line = tuple[str, int]
"""A file and a line of it."""
_Key = tuple[FindingKind, Severity, str | None, Line | None]
_MAX_FINDINGS = 100


@dataclass(slots=True)
class _Record:
    program: Program
    detail: str
    lanes: int = 0
    programs: int = 0
    last_program: Program | None = None


class Findings:
    """Findings of one launch, ordered by their first occurrence. ``program`` is the running one."""

    def __init__(self) -> None:
        self.program: Program = (0, 0, 0)
        self._records: dict[_Key, _Record] = {}

    def add(
        self,
        kind: FindingKind,
        argument: str | None,
        detail: object,
        lanes: int,
        *,
        severity: Severity = Severity.WARNING,
        line: Line | None = None,
    ) -> None:
        """Count a finding at ``line``, or at the running line; the text of ``detail`` is that of the first."""
        key = (kind, severity, argument, line or current_line())
        record = self._records.get(key)
        if record is None:
            if len(self._records) >= _MAX_FINDINGS:
                return
            record = self._records[key] = _Record(self.program, str(detail))
        record.lanes += lanes
        if record.last_program != self.program:
            record.last_program = self.program
            record.programs += 1

    def line_of(self, kind: FindingKind, argument: str | None) -> Line | None:
        """Return the line of the first finding of a kind about an argument."""
        return next((key[3] for key in self._records if (key[0], key[2]) == (kind, argument)), None)

    def to_findings(self) -> tuple[Finding, ...]:
        """Return the findings as records, with their counts of lanes and programs."""
        findings: list[Finding] = []
        for (kind, severity, argument, line), record in self._records.items():
            file, number = line or (None, None)
            counts = f"{plural(record.lanes, 'lane')} of {plural(record.programs, 'program')}"
            detail = f"{record.detail} ({counts})"
            findings.append(Finding(kind, severity, argument, file, number, record.program, detail))
        return tuple(findings)


_LIBRARY_FOLDERS = tuple(
    str(path) for path in (Path(__file__).parent, Path(triton.__file__).parent, Path(np.__file__).parent)
)
_LIBRARY_FILES = frozenset({"<string>", "<frozen runpy>"})


def is_library_file(file: str) -> bool:
    """Whether a file belongs to the interpreter, Triton or numpy, not to the user."""
    return file.startswith(_LIBRARY_FOLDERS) or file in _LIBRARY_FILES


def current_line() -> Line | None:
    """Return file and line of the innermost frame of user code, or None outside a kernel."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if not is_library_file(frame.f_code.co_filename):
            return frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
    return None


def line_of_traceback(traceback: TracebackType | None) -> Line | None:
    """Return file and line of the innermost frame of user code below ``execute``."""
    lines = [(frame.f_code.co_filename, number) for frame, number in walk_tb(traceback)]
    below = dropwhile(lambda line: not is_library_file(line[0]), lines)
    return next((line for line in reversed(list(below)) if not is_library_file(line[0])), None)


def place_of(line: Line | None) -> Place | None:
    """Return the line as a place with its source text."""
    if line is None:
        return None
    return Place(line[0], line[1], text=linecache.getline(*line).rstrip("\n") or None)


# Where tl.load and tl.store take the mask by position.
_MASK_POSITION = {"load": 1, "store": 2}


class ProgramError(Exception):
    """Base of the exceptions that end one program of a launch."""


class ProgramDeadline(ProgramError):
    """The time for finding further faults is over."""


class UnsupportedOperation(ProgramError):
    """The kernel uses a feature that needs a GPU."""


class StorageIncomplete(ProgramError):
    """An access to a part of a large storage that was not copied: inside the storage, outside its views."""


class InterpretedCheckError(ProgramError):
    """A ``tl.device_assert`` or ``tl.assume`` does not hold."""


class AccessFault(ProgramError):
    """An access outside the memory of the arguments, by so many active ``lanes``.

    Its text ends with the mask at the line of the access, unless ``access`` is empty.
    """

    def __init__(self, argument: str | None, lanes: int, detail: str, access: str = "", masked: bool = False) -> None:
        super().__init__()
        self.argument, self.lanes = argument, lanes
        self.detail, self.access, self.masked = detail, access, masked
        self.line = current_line()

    def __str__(self) -> str:
        if not self.access:
            return self.detail
        source = None if self.line is None else _mask_source(*self.line, self.access)
        mask = ("masked" if self.masked else "no mask") if source is None else f"mask: {source}"
        return f"{self.detail}, {mask}"


def _mask_source(file: str, line: int, access: str) -> str | None:
    """Return the source of the mask of the access at a line, or None if the source cannot be read."""
    try:
        tree = ast.parse(textwrap.dedent("".join(linecache.getlines(file))))
    except SyntaxError:
        return None
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr.startswith(access)
        and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    if not calls:
        return None
    call = min(calls, key=lambda node: (node.end_lineno or 0) - node.lineno)
    mask = next((keyword.value for keyword in call.keywords if keyword.arg == "mask"), None)
    position = _MASK_POSITION.get(access)
    if mask is None and position is not None and len(call.args) > position:
        mask = call.args[position]
    return None if mask is None else ast.unparse(_assigned_expression(mask, tree, line))


def _assigned_expression(mask: ast.expr, tree: ast.Module, line: int) -> ast.expr:
    """Return the expression last assigned to a mask's name before ``line``, in text order."""
    if not isinstance(mask, ast.Name):
        return mask
    assignments = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and node.lineno < line
        and any(isinstance(target, ast.Name) and target.id == mask.id for target in node.targets)
    ]
    return max(assignments, key=lambda node: node.lineno).value if assignments else mask
