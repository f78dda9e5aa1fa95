"""Statements added to the text of a function, on the lines that are there wherever Python allows it.

A statement that cannot share a line, such as one before a loop that begins a block, gets a line of its own. The lines
of the new text are then mapped back to those of the old one.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from kernellab.errors import SourceError
from kernellab.source.text import parse_python

_COMPOUND = (ast.For, ast.While, ast.If, ast.With, ast.Try, ast.FunctionDef)
Definition = ast.FunctionDef


def statements_of(block: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a block and of all blocks in it, in the order of the text."""
    for statement in block:
        yield statement
        if isinstance(statement, ast.FunctionDef):
            continue
        for name in ("body", "orelse", "finalbody"):
            yield from statements_of(getattr(statement, name, []))


@dataclass(slots=True)
class FunctionEdits:
    """Edits of one function: its ``definition``, and what is to be added where.

    Additions at one place stand in the order in which they were asked for. Positions are lines from 1 and columns in
    bytes, as those of `ast`. `_pieces` have the bytes that they replace.
    """

    text: str
    definition: Definition
    _pieces: dict[tuple[int, int], list[tuple[str, int]]] = field(default_factory=dict)
    _lines: dict[int, list[str]] = field(default_factory=dict)
    _before: dict[int, ast.stmt | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._index(self.definition)

    def _index(self, owner: ast.AST) -> None:
        """Remember the statement before each statement of the function."""
        for name in ("body", "orelse", "finalbody"):
            previous: ast.stmt | None = None
            for statement in getattr(owner, name, []):
                self._before[id(statement)] = previous
                previous = statement
                if isinstance(statement, _COMPOUND):
                    self._index(statement)

    @property
    def body(self) -> list[ast.stmt]:
        """The statements of the function, without its docstring."""
        match self.definition.body:
            case [ast.Expr(ast.Constant(str())), _, *_] as body:
                return body[1:]
            case body:
                return body

    def insert(self, line: int, column: int, piece: str, replaced_bytes: int = 0) -> None:
        """Add a piece of text at a position, in place of ``replaced_bytes`` bytes of the old text."""
        self._pieces.setdefault((line, column), []).append((piece, replaced_bytes))

    def add_parameter(self, parameter: str) -> None:
        """Add a parameter before all others."""
        match = re.search(rf"\bdef\s+{re.escape(self.definition.name)}\s*\(", self.text)
        if match is None:
            raise SourceError(f"The text of {self.definition.name} has no parameters to add one to.")
        before = self.text[: match.end()]
        arguments = self.definition.args
        has_others = any((arguments.posonlyargs, arguments.args, arguments.vararg, arguments.kwonlyargs))
        line_start = before.rpartition("\n")[2]
        self.insert(before.count("\n") + 1, len(line_start.encode()), parameter + (", " if has_others else ""))

    def add_arguments(self, call: ast.Call, arguments: str) -> None:
        """Add arguments before all others of a call."""
        line, column = call.func.end_lineno or 0, call.func.end_col_offset or 0
        rest = "\n".join([self._line(line)[column:].decode(), *self.text.split("\n")[line:]])
        skipped = rest[: rest.index("(") + 1]
        if "\n" in skipped:
            line, column = line + skipped.count("\n"), 0
        column += len(skipped.rpartition("\n")[2].encode())
        self.insert(line, column, arguments + (", " if call.args or call.keywords else ""))

    def replace(self, line: int, column: int, old: str, new: str) -> None:
        """Replace a piece of text that stands at a position."""
        assert self._line(line)[column:].startswith(old.encode()), "the position is that of the piece"
        self.insert(line, column, new, len(old.encode()))

    def rename(self, name: str) -> None:
        """Give the function another name."""
        match = re.search(rf"\bdef\s+{re.escape(self.definition.name)}\b", self.text)
        assert match is not None, "the text is that of the function"
        start = self.text[: match.end() - len(self.definition.name)]
        line, column = start.count("\n") + 1, len(start.rpartition("\n")[2].encode())
        self.replace(line, column, self.definition.name, name)

    def replace_callee(self, call: ast.Call, name: str) -> None:
        """Let a call go to another function."""
        function = call.func
        assert function.lineno == function.end_lineno, "names and their attributes stand on one line"
        self.insert(function.lineno, function.col_offset, name, (function.end_col_offset or 0) - function.col_offset)

    def before(self, statement: ast.stmt, added: str) -> bool:
        """Add a statement before another one; False where there is no place for it, as before an ``elif``."""
        if not isinstance(statement, _COMPOUND):
            self.insert(statement.lineno, statement.col_offset, f"{added}; ")
            return True
        previous = self._before[id(statement)]
        if previous is not None and not isinstance(previous, _COMPOUND):
            self.insert(previous.end_lineno or 0, previous.end_col_offset or 0, f"; {added}")
            return True
        indentation = self._indentation(statement)
        if indentation.strip() or self._line(statement.lineno).lstrip().startswith(b"elif"):
            return False
        self._lines.setdefault(statement.lineno, []).append(indentation + added)
        return True

    def after(self, statement: ast.stmt, added: str) -> None:
        """Add a statement after another one in the same block."""
        if isinstance(statement, _COMPOUND):
            line = (statement.end_lineno or 0) + 1
            self._lines.setdefault(line, []).append(self._indentation(statement) + added)
        else:
            self.insert(statement.end_lineno or 0, statement.end_col_offset or 0, f"; {added}")

    def result(self) -> str:
        """The text with all additions."""
        lines = self.text.split("\n")
        for (number, column), pieces in sorted(self._pieces.items(), reverse=True):
            line, end = lines[number - 1].encode(), column + sum(replaced_bytes for _, replaced_bytes in pieces)
            new = "".join(piece for piece, _ in pieces).encode()
            lines[number - 1] = (line[:column] + new + line[end:]).decode()
        for number, added in sorted(self._lines.items(), reverse=True):
            lines[number - 1 : number - 1] = added
        return "\n".join(lines)

    def _indentation(self, statement: ast.stmt) -> str:
        """The text before a statement on its line."""
        return self._line(statement.lineno)[: statement.col_offset].decode()

    def _line(self, number: int) -> bytes:
        return self.text.split("\n")[number - 1].encode()


def edits_of(text: str) -> FunctionEdits:
    """The empty edits of a function.

    Raises:
        SourceError: the text is not that of one function.
    """
    tree = parse_python(text)
    if len(tree.body) != 1 or not isinstance(tree.body[0], ast.FunctionDef):
        raise SourceError("Only the text of a function can be rewritten; this is another one.")
    return FunctionEdits(text, tree.body[0])


def assigned_values(statement: ast.stmt) -> dict[str, ast.expr]:
    """The expression of each name that a statement assigns one to, also as a member of a tuple or by ``:=``."""
    walruses = [part for part in ast.walk(statement) if isinstance(part, ast.NamedExpr)]
    values = {part.target.id: part.value for part in walruses}
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    targets = [statement.target] if isinstance(statement, ast.AnnAssign) else targets
    value = getattr(statement, "value", None)
    return values if value is None else {**values, **{k: v for t in targets for k, v in _named_parts(t, value)}}


def _named_parts(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """The names of a target with their parts of a value, where the text says which part is which."""
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple):
        parts = [*target.elts, *value.elts]
        if len(target.elts) == len(value.elts) and not any(isinstance(part, ast.Starred) for part in parts):
            for part, its_value in zip(target.elts, value.elts, strict=True):
                yield from _named_parts(part, its_value)


def members(name: str, value: ast.expr | None) -> Iterator[tuple[str, ast.expr | None]]:
    """A name, or the members of one with a tuple in the text: the interpreter has Python's tuples there."""
    if isinstance(value, ast.Tuple) and not any(isinstance(part, ast.Starred) for part in value.elts):
        for at, part in enumerate(value.elts):
            yield from members(f"{name}[{at}]", part)
    else:
        yield name, value


def assigned_call(statement: ast.stmt) -> tuple[str, ast.Call] | None:
    """The name and the call of a statement that assigns the result of a call alone to one name."""
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    target = statement.target if isinstance(statement, ast.AnnAssign) else targets[0] if len(targets) == 1 else None
    value = getattr(statement, "value", None)
    return (target.id, value) if isinstance(target, ast.Name) and isinstance(value, ast.Call) else None
