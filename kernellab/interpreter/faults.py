"""What stops an interpreted program and what a run finds: where in the user's source, how often, and in words."""

from __future__ import annotations

import ast
import linecache
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType

import numpy as np
import triton

from kernellab.errors import Place
from kernellab.launch.run import Finding, FindingKind, Severity

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
        """Return the findings as records, each with how many lanes and programs it has."""
        return tuple(_finding(key, record) for key, record in self._records.items())


def counted(number: int, noun: str) -> str:
    """Return ``1 lane``, ``5 lanes``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _finding(key: _Key, record: _Record) -> Finding:
    kind, severity, argument, line = key
    file, number = line or (None, None)
    seen = f"{counted(record.lanes, 'lane')} of {counted(record.programs, 'program')}"
    return Finding(kind, severity, argument, file, number, record.program, f"{record.detail} ({seen})")


_FOREIGN = tuple(str(path) for path in (Path(__file__).parent, Path(triton.__file__).parent, Path(np.__file__).parent))
_FOREIGN_NAMES = frozenset({"<string>", "<frozen runpy>"})


def is_foreign(file: str) -> bool:
    """Tell whether code of this file is the interpreter's, Triton's or numpy's, not the user's."""
    return file.startswith(_FOREIGN) or file in _FOREIGN_NAMES


def current_line() -> tuple[str, int] | None:
    """Return file and line of the innermost frame of user code, or None outside a kernel."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if not is_foreign(frame.f_code.co_filename):
            return frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
    return None


def line_of_traceback(traceback: TracebackType | None) -> tuple[str, int] | None:
    """Return file and line of the innermost frame of user code below ``execute``."""
    found = None
    inside = False
    while traceback is not None:
        file = traceback.tb_frame.f_code.co_filename
        inside = inside or is_foreign(file)
        if inside and not is_foreign(file):
            found = file, traceback.tb_lineno
        traceback = traceback.tb_next
    return found


def place_of(line: tuple[str, int] | None) -> Place | None:
    """Return a place with its source text."""
    if line is None:
        return None
    return Place(line[0], line[1], text=linecache.getline(*line).rstrip("\n") or None)


# Where tl.load and tl.store take the mask by position.
_MASK_POSITION = {"load": 1, "store": 2}


class ProgramStopped(Exception):
    """The base of what ends one program of a launch."""


class DeadlinePassed(ProgramStopped):
    """The time to look for further faults is over."""


class Unsupported(ProgramStopped):
    """The kernel uses what only a GPU can do."""


class StorageIncomplete(ProgramStopped):
    """An access to what was not copied: outside of the views of a large storage, but inside of that."""


class InterpretedCheckFailed(ProgramStopped):
    """A ``tl.device_assert`` or ``tl.assume`` does not hold."""


class AccessFault(ProgramStopped):
    """An access outside the memory of the arguments.

    ``lanes`` is how many of its active lanes are outside; ``describe`` gives the message, from the place of it.
    """

    def __init__(self, argument: str | None, lanes: int, describe: Callable[[tuple[str, int] | None], str]) -> None:
        super().__init__()
        self.argument = argument
        self.lanes = lanes
        self.describe = describe
        self.line = current_line()

    @property
    def message(self) -> str:
        """What is wrong, with the text of the mask at the line."""
        return self.describe(self.line)


def stray_pointer(address: int, lanes: int, access: str, program: Program) -> AccessFault:
    """Return the fault of an access at an address that comes from no argument."""
    message = (
        f"{access} at address {address:#x}, which lies in no argument of the launch. Program {program}, "
        f"{counted(lanes, 'active lane')}. A tensor whose address the kernel computes or reads must be alive, or an "
        "argument"
    )
    return AccessFault(None, lanes, lambda line: message)


def mask_text(line: tuple[str, int] | None, access: str, masked: bool) -> str:
    """Return the mask of the access at a line in words."""
    written = None if line is None else _mask_source(*line, access)
    if written is not None:
        return f"mask: {written}"
    return "masked" if masked else "no mask"


def _mask_source(file: str, line: int, access: str) -> str | None:
    """Return the text of the mask in the access at a line, where the source can be read."""
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
    return None if mask is None else ast.unparse(_definition(mask, tree, line))


def _definition(mask: ast.expr, tree: ast.Module, line: int) -> ast.expr:
    """Return what a mask given by name was last set to before ``line``, as the text stands."""
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
