"""Symbolic arguments: expressions of a user's namespace in terms of a kernel's parameters.

A grid function such as ``lambda meta: (triton.cdiv(count, meta["BLOCK"]),)`` names variables of a notebook. Outside of
it only what the kernel itself is given is at hand, so each variable is replaced by the parameter that held its value.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import re
import textwrap
from collections.abc import Mapping
from types import FunctionType, ModuleType
from typing import Any

from kernellab._triton.definitions import definition
from kernellab.errors import SourceError
from kernellab.source import lambda_definition

MODULES = {"triton": "triton", "triton.language": "tl", "torch": "torch", "math": "math"}


def symbolic_grid(grid: Any, arguments: Mapping[str, Any]) -> str:
    """Return a grid function as the text of a lambda over the kernel's parameters, or "" where it cannot be said so."""
    if not isinstance(grid, FunctionType):
        return ""
    try:
        node = _as_lambda(grid)
    except SourceError:
        return ""
    if node is None or len(node.args.args) != 1:
        return ""
    scope = inspect.getclosurevars(grid)
    named = _named_numbers(node, arguments)
    return "" if named is None else symbolic_expression(named, {**scope.globals, **scope.nonlocals}, arguments)


def symbolic_expression(node: ast.expr, scope: Mapping[str, Any], arguments: Mapping[str, Any]) -> str:
    """Return the text of an expression with every name of ``scope`` replaced, or "" where one stands for nothing."""
    bound = {each.arg for part in ast.walk(node) if isinstance(part, ast.Lambda) for each in part.args.args}
    replacement: dict[str, ast.expr] = {}
    for part in ast.walk(node):
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load) and part.id not in bound:
            found = part.id if part.id in arguments and part.id not in scope else _symbol_of(part.id, scope, arguments)
            if found is None:
                return ""
            replacement[part.id] = ast.parse(found, mode="eval").body
    return ast.unparse(_Replaced(replacement).visit(node))


def _named_numbers(node: ast.expr, arguments: Mapping[str, Any]) -> ast.expr | None:
    """Return an expression with its large numbers, which are sizes, as parameters; None where one is no parameter's."""
    sizes = {n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and type(n.value) is int and n.value > 16}
    found = {size: _symbol_of_number("", size, arguments) for size in sizes}
    if None in found.values():
        return None
    text = ast.unparse(node)
    for size, name in found.items():
        text = re.sub(rf"\b{size}\b", str(name), text)
    return ast.parse(text, mode="eval").body


class _Replaced(ast.NodeTransformer):
    def __init__(self, replacement: Mapping[str, ast.expr]) -> None:
        self.replacement = replacement

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.replacement.get(node.id, node)


def _as_lambda(grid: FunctionType) -> ast.Lambda | None:
    """Return a lambda, or a function that is one return statement, as a lambda."""
    if grid.__name__ == "<lambda>":
        return lambda_definition(grid)[2]
    node = ast.parse(textwrap.dedent(definition(grid)[0])).body[0]
    assert isinstance(node, ast.FunctionDef)
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    if len(body) != 1 or not isinstance(body[0], ast.Return) or body[0].value is None:
        return None
    bare = [ast.arg(argument.arg) for argument in node.args.args]
    return ast.Lambda(ast.arguments([], bare, None, [], [], None, []), body[0].value)


def _symbol_of(name: str, scope: Mapping[str, Any], arguments: Mapping[str, Any]) -> str | None:
    """Return what stands for a name: a parameter, an extent of one, or a module; None where nothing does."""
    if name not in scope:
        return name if hasattr(builtins, name) else None
    value = scope[name]
    if isinstance(value, ModuleType):
        return MODULES.get(value.__name__)
    if hasattr(value, "data_ptr"):
        return next((parameter for parameter, given in arguments.items() if given is value), None)
    if type(value) is not int:
        return None
    return _symbol_of_number(name, value, arguments)


def _symbol_of_number(name: str, value: int, arguments: Mapping[str, Any]) -> str | None:
    equal = [parameter for parameter, given in arguments.items() if type(given) is int and given == value]
    if name in equal:
        return name
    if len(equal) == 1:
        return equal[0]
    for parameter, given in arguments.items():
        extents = [axis for axis, extent in enumerate(getattr(given, "shape", ())) if extent == value]
        if len(extents) == 1:
            return f"{parameter}.shape[{extents[0]}]"
    return None
