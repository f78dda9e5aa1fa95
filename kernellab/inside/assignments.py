"""Which expression a statement assigns to each name, as far as its text says so."""

from __future__ import annotations

import ast
from collections.abc import Iterator


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
