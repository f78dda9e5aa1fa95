"""Grids and references as text over a kernel's parameters.

A grid function such as ``lambda meta: (triton.cdiv(count, meta["BLOCK"]),)`` names variables of a notebook, which
exist only there. So each variable is replaced by the parameter that had its value.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import re
import textwrap
from collections.abc import Mapping
from contextlib import suppress
from types import FunctionType, ModuleType
from typing import Any

from kernellab._triton.kernel import definition
from kernellab.errors import SourceError
from kernellab.source import lambda_definition

_MODULES = {"triton": "triton", "triton.language": "tl", "torch": "torch", "math": "math"}


def symbolic_grid(grid: FunctionType, arguments: Mapping[str, Any]) -> str:
    """A grid function as the text of a lambda over the kernel's parameters, or "" if that is impossible."""
    node = None
    with suppress(SourceError):
        node = _as_lambda(grid)
    if node is None or len(node.args.args) != 1:
        return ""
    scope, named = inspect.getclosurevars(grid), _named_numbers(node, arguments)
    return "" if named is None else symbolic_expression(named, {**scope.globals, **scope.nonlocals}, arguments)


def symbolic_expression(node: ast.expr, scope: Mapping[str, Any], arguments: Mapping[str, Any]) -> str:
    """An expression as text with every name of ``scope`` replaced by a parameter, or "" if one has none."""
    bound = {parameter.arg for part in ast.walk(node) if isinstance(part, ast.Lambda) for parameter in part.args.args}
    replacement: dict[str, ast.expr] = {}
    for part in ast.walk(node):
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load) and part.id not in bound:
            symbol = part.id if part.id in arguments and part.id not in scope else _symbol_of(part.id, scope, arguments)
            if symbol is None:
                return ""
            replacement[part.id] = ast.parse(symbol, mode="eval").body
    return ast.unparse(_ReplaceNames(replacement).visit(node))


def _named_numbers(node: ast.expr, arguments: Mapping[str, Any]) -> ast.expr | None:
    """An expression with its large numbers replaced by the parameters of these values.

    What no parameter had is a number of the user's. None where several parameters had it.
    """
    sizes = {n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and type(n.value) is int and n.value > 16}
    symbols = {size: _symbols_of_number(size, arguments) for size in sizes}
    if any(len(names) > 1 for names in symbols.values()):
        return None
    text = ast.unparse(node)
    for size, (name, *_) in ((size, names) for size, names in symbols.items() if names):
        text = re.sub(rf"\b{size}\b", name, text)
    return ast.parse(text, mode="eval").body


class _ReplaceNames(ast.NodeTransformer):
    def __init__(self, replacement: Mapping[str, ast.expr]) -> None:
        self.replacement = replacement

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.replacement.get(node.id, node)


def _as_lambda(grid: FunctionType) -> ast.Lambda | None:
    """A lambda, or a function of one return statement, as a lambda."""
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
    """The symbol of a name: a parameter, an extent of one, or a module; None if there is none."""
    if name not in scope:
        return name if hasattr(builtins, name) else None
    value = scope[name]
    if isinstance(value, ModuleType):
        return _MODULES.get(value.__name__)
    if hasattr(value, "data_ptr"):
        return next((parameter for parameter, argument in arguments.items() if argument is value), None)
    if type(value) is not int:
        return None
    if name in arguments and type(arguments[name]) is int and arguments[name] == value:
        return name
    symbols = _symbols_of_number(value, arguments)
    return symbols[0] if len(symbols) == 1 else None


def _symbols_of_number(value: int, arguments: Mapping[str, Any]) -> list[str]:
    """The possible symbols of a number: parameters of that value, else extents. It must be unique to be used.

    A parameter that holds the stride of a tensor, which an extent may equal by chance, is one of two. The length of a
    vector is that of the rows or columns of a matrix, where one has it.
    """
    shapes = {name: tuple(getattr(argument, "shape", ())) for name, argument in arguments.items()}
    axes = {(name, axis): shape for name, shape in shapes.items() for axis, n in enumerate(shape) if n == value}
    extents = [f"{name}.shape[{axis}]" for name, axis in axes]
    parameters = [name for name, argument in arguments.items() if type(argument) is int and argument == value]
    if parameters:
        is_stride = any(
            value in argument.stride() for argument in arguments.values() if hasattr(argument, "untyped_storage")
        )
        return [*parameters, *(extents if is_stride else ())]
    meanings = {(axis, shape) for (_, axis), shape in axes.items() if len(shape) > 1}
    return extents if len(meanings) > 1 else extents[:1]
