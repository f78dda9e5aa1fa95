"""Names; source text and syntax trees, made by one thread at a time, also for lambdas, of which Python keeps none."""

from __future__ import annotations

import ast
import keyword
import linecache
import unicodedata
from collections.abc import Iterator, Mapping
from types import CodeType, FunctionType
from typing import Any
from weakref import WeakKeyDictionary

from kernellab.errors import SourceError
from kernellab.workers.forks import lock

_NAME_LENGTH = 200
_ONE_AT_A_TIME = lock(crossing=True)


def is_name(value: object) -> bool:
    """Tell whether a value is an identifier, as Python reads it, and no keyword."""
    if not isinstance(value, str) or not value.isidentifier() or keyword.iskeyword(value):
        return False
    return len(value) <= _NAME_LENGTH and unicodedata.normalize("NFKC", value) == value


def parsed(text: str) -> ast.Module:
    """Return the syntax tree of a piece of Python."""
    with _ONE_AT_A_TIME:
        return ast.parse(text)


Position = tuple[int, int]


def lambda_definition(function: FunctionType) -> tuple[str, int, ast.Lambda]:
    """Return the text of a lambda, the line of it in its file, and its syntax tree.

    Raises:
        SourceError: its file is not known, or changed since.
    """
    code = function.__code__
    text = "".join(linecache.getlines(code.co_filename, function.__globals__))
    found = list(_lambdas(text, code))
    if not found:
        raise SourceError(f"The source of the lambda in line {code.co_firstlineno} of {code.co_filename} is not known.")
    node = min(found, key=lambda each: (each.end_lineno or 0, each.end_col_offset or 0))
    segment = ast.get_source_segment(text, node)
    assert segment is not None
    return segment, node.lineno, node


def _lambdas(text: str, code: CodeType) -> Iterator[ast.Lambda]:
    """Yield the lambdas of a text whose body holds all instructions of ``code``."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return
    first, last = _span(code)
    for node in ast.walk(tree):
        if isinstance(node, ast.Lambda) and node.lineno == code.co_firstlineno:
            body = node.body
            end = (body.end_lineno or body.lineno, body.end_col_offset or 0)
            if (body.lineno, body.col_offset) <= first and last <= end:
                yield node


def _span(code: CodeType) -> tuple[Position, Position]:
    """Return where the instructions of ``code`` begin and end; those that stand for none of its text are left out."""
    begins, ends = [], []
    for line, end_line, column, end_column in code.co_positions():
        if line is not None and end_line is not None and column is not None and end_column:
            begins.append((line, column))
            ends.append((end_line, end_column))
    return min(begins, default=(0, 0)), max(ends, default=(0, 0))


_DEFINED: WeakKeyDictionary[FunctionType, Mapping[str, Any]] = WeakKeyDictionary()


def signature_names(node: ast.FunctionDef | ast.Lambda) -> set[str]:
    """Return the names in the defaults and annotations of a function."""
    arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    parts = [*node.args.defaults, *(d for d in node.args.kw_defaults if d), *(a.annotation for a in arguments)]
    return {n.id for part in parts if part is not None for n in ast.walk(part) if isinstance(n, ast.Name)}


def signature_values(
    function: FunctionType, node: ast.FunctionDef | ast.Lambda, scope: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return what those names stand for in ``scope``; once asked, which is soon after the definition, it stays so."""
    if function not in _DEFINED:
        _DEFINED[function] = {name: scope[name] for name in sorted(signature_names(node)) if name in scope}
    return _DEFINED[function]
