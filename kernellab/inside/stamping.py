"""The text of a kernel with time stamps: where and when each program begins and ends, and how long its parts take.

The copy has one more parameter, a table with a row of int64 per program: its SM, its start and end in ns of
``%globaltimer``, then the cycles of each part. A part begins before a chosen line, and lasts until the next chosen line
or the end, however often a loop comes back to it; the first part is what precedes all chosen lines.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from kernellab.errors import UsageError, choice_message
from kernellab.inside.device_texts import with_device_functions
from kernellab.source import Closure, Function
from kernellab.source.edits import FunctionEdits, edits_of, statements_of

TABLE = "kl_times"
FIXED_COLUMNS = 3
SM, START, END = range(FIXED_COLUMNS)


@dataclass(frozen=True, slots=True)
class StampedKernel:
    """A kernel with time stamps: its closure, the chosen lines in ascending order, and the columns of its table."""

    closure: Closure
    lines: tuple[int, ...]

    @property
    def columns(self) -> int:
        """The number of int64 per program."""
        return FIXED_COLUMNS + (len(self.lines) + 1 if self.lines else 0)


def stamped_kernel(closure: Closure, lines: Sequence[int] = ()) -> StampedKernel:
    """A kernel with time stamps, and marks before the statements that begin in ``lines`` of its file.

    Raises:
        UsageError: no statement of the kernel begins in a line, or nothing can be inserted before it.
        SourceError: its text cannot be rewritten.
    """
    kernel = closure.functions[0]
    edits = edits_of(kernel.text)
    chosen = tuple(sorted(set(lines)))
    statements = _statements_at(edits, kernel, chosen)
    columns = FIXED_COLUMNS + (len(chosen) + 1 if chosen else 0)
    edits.add_parameter(TABLE)
    begin = f"kl_row = kl_begin({TABLE}, {columns})"
    if chosen:
        begin += "; kl_since, kl_part = kl_begin_parts(kl_row)"
    edits.before(edits.body[0], begin)
    for part, (line, statement) in enumerate(zip(chosen, statements, strict=True), FIXED_COLUMNS + 1):
        if not edits.before(statement, _mark(part)):
            raise UsageError(
                f"Line {line} of {kernel.name} begins with elif; choose the if before it, or a line in it."
            )
    _add_ends(edits, f"{_mark(FIXED_COLUMNS)}; kl_end(kl_row)" if chosen else "kl_end(kl_row)")
    return StampedKernel(with_device_functions(closure, {0: edits.result()}), chosen)


def _mark(part: int) -> str:
    return f"kl_since, kl_part = kl_mark(kl_row, kl_since, kl_part, {part})"


def _statements_at(edits: FunctionEdits, kernel: Function, lines: Sequence[int]) -> list[ast.stmt]:
    """The outermost statement that begins in each line."""
    first: dict[int, ast.stmt] = {}
    for statement in statements_of(edits.body):
        first.setdefault(statement.lineno + kernel.first_line - 1, statement)
    for line in lines:
        if line not in first:
            known = tuple(map(str, first))
            raise UsageError(choice_message("lines", str(line), known, owner=f"the timeline of {kernel.name}"))
    return [first[line] for line in lines]


def _add_ends(edits: FunctionEdits, end: str) -> None:
    """Add a statement before each return, and at the end of the function."""
    for statement in statements_of(edits.body):
        if isinstance(statement, ast.Return):
            edits.before(statement, end)
    if not isinstance(edits.body[-1], ast.Return):
        edits.after(edits.body[-1], end)
