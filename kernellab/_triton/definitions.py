"""The text of a function, its syntax tree, and what the names in it stand for."""

from __future__ import annotations

import ast
import dis
import textwrap
from collections.abc import Iterator
from types import CodeType
from typing import Any

from kernellab.errors import SourceError
from kernellab.source import parsed
from kernellab.source.text import signature_names, signature_values


def definition(owner: Any) -> tuple[str, int, ast.FunctionDef]:
    """Return the text of a function from its ``def`` on, the line of that in its file, and its syntax tree.

    Raises:
        SourceError: it cannot be found, or is no ``def`` statement.
    """
    lines, first, node = _statement(owner)
    return "".join(lines[node.lineno - 1 : node.end_lineno]), first + node.lineno - 1, node


def whole_definition(owner: Any) -> tuple[str, ast.FunctionDef]:
    """Return the text of a function with its decorators, and its syntax tree.

    Raises:
        SourceError: it cannot be found, or is no ``def`` statement.
    """
    lines, _, node = _statement(owner)
    return "".join(lines[: node.end_lineno]), node


def decorators_text(owner: Any) -> str:
    """Return the decorators of a function as they were written."""
    lines, _, node = _statement(owner)
    return "".join(lines[: node.lineno - 1])


def _statement(owner: Any) -> tuple[list[str], int, ast.FunctionDef]:
    """Return the lines of a function, decorators included, the first one's number in its file, and its syntax tree."""
    from kernellab._triton.objects import source_lines  # keeps `import kernellab` light

    try:
        lines, first = source_lines(owner)
    except (OSError, TypeError) as exc:
        raise SourceError(
            f"The source of {owner.__qualname__} cannot be found; define it in a cell or in a file.",
            kernel=owner.__name__,
        ) from exc
    text = textwrap.dedent("".join(lines))
    node = next((n for n in ast.walk(parsed(text)) if isinstance(n, ast.FunctionDef)), None)
    if node is None:
        raise SourceError(f"{owner.__qualname__} is not defined by a def statement.", kernel=owner.__name__)
    return text.splitlines(keepends=True), first, node


def fix_signature(function: Any) -> None:
    """Note what the names in the signature of a jit function stand for, which was just defined."""
    signature_values(function.fn, definition(function)[2], scope_of(function.fn))


def names_of(function: Any, node: ast.FunctionDef) -> dict[str, Any]:
    """Return what the global names in a function stand for, those of its decorators and signature included."""
    scope = scope_of(function)
    decorators = {n.id for each in node.decorator_list for n in ast.walk(each) if isinstance(n, ast.Name)}
    named = {*global_names(function.__code__), *function.__code__.co_freevars, *signature_names(node), *decorators}
    return {name: scope[name] for name in sorted(named - {"__class__"}) if name in scope}


def scope_of(python: Any) -> dict[str, Any]:
    """Return what the names in a Python function stand for: its globals, and what its enclosing functions assigned."""
    cells = zip(python.__code__.co_freevars, python.__closure__ or (), strict=False)
    nonlocals = {}
    for name, cell in cells:
        try:
            nonlocals[name] = cell.cell_contents
        except ValueError:
            continue  # a name that its enclosing function has not assigned yet
    return {**python.__globals__, **nonlocals}


def global_names(code: CodeType) -> Iterator[str]:
    """Yield the global names that code loads, that of functions inside it included."""
    for instruction in dis.get_instructions(code):
        if instruction.opname in {"LOAD_GLOBAL", "LOAD_NAME"}:
            yield instruction.argval
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from global_names(constant)
