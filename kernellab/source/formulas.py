"""Formulas of recorded grids: arithmetic over the sizes of a launch, without side effects."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Collection, Mapping
from typing import Any

from kernellab.errors import UsageError
from kernellab.source.text import USER_ERRORS, parse_python

_NODES = (
    *(ast.Tuple, ast.List, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Subscript, ast.Slice),
    *(ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.Load),
)
_BUILTINS: dict[str, Any] = {f.__name__: f for f in (abs, bool, float, int, len, max, min, sum, tuple)}
_FUNCTIONS = {
    *("triton.cdiv", "triton.next_power_of_2", "math.ceil", "math.floor", "math.sqrt", "math.log2", "math.prod"),
    *("math.gcd", "math.lcm", "math.trunc", "torch.cuda.get_device_properties", "torch.cuda.current_device"),
}
_ATTRIBUTES = {"shape", "ndim", "is_cuda", "itemsize", "device", "dtype", "multi_processor_count"}
_METHODS = {"numel", "nelement", "size", "stride", "dim", "element_size", "get"}
OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
}
_LENGTH = 20_000  # enough for the next power of two of a size of inputs with long names
_BITS = 128


def is_formula(text: str, names: Collection[str]) -> bool:
    """Whether a text is a formula over parameters with these names: a lambda with one parameter.

    Formulas are pasted into exported modules and evaluated when a stored kernel is launched on other sizes. Both must
    be safe for any content of a store or bundle.
    """
    return not formula_problem(text, names)


def formula_problem(text: str, names: Collection[str]) -> str:
    """Return the reason why a text is not a formula over parameters with these names; "" if it is one."""
    try:
        _formula(text, names)
    except ValueError as exc:
        return str(exc)
    return ""


def grid_of_formula(text: str, arguments: Mapping[str, Any]) -> Any:
    """Return the grid of a formula for these arguments and meta-parameters.

    Raises:
        UsageError: the formula has no value for these arguments, or is invalid.
    """
    import torch
    import triton

    try:
        node = ast.fix_missing_locations(ast.Expression(_OperatorGuard().visit(_formula(text, arguments))))
        modules = {"torch": torch, "triton": triton, "math": math}
        scope = {"__builtins__": _BUILTINS, **modules, **arguments, _GUARD: _apply_operator}
        return eval(compile(node, "<grid>", "eval"), scope)(arguments)
    except USER_ERRORS as exc:
        why = f"{type(exc).__name__}: {exc}"
        raise UsageError(f"The recorded grid {text!r} has no value for these arguments ({why}); pass a grid.") from exc


def _formula(text: str, names: Collection[str]) -> ast.Lambda:
    """Return the syntax tree of a formula; raise `ValueError` for any other text."""
    try:
        body = parse_python(text).body if len(text) <= _LENGTH else []
    except (SyntaxError, ValueError, RecursionError, MemoryError) as exc:
        raise ValueError(f"the grid is not Python: {exc}") from exc
    match body:
        case [ast.Expr(ast.Lambda(ast.arguments([], [ast.arg(parameter)], None, [], [], None, [])) as node)]:
            _require_arithmetic(node.body, {*names, parameter, *_BUILTINS})
            return node
    raise ValueError(f"the grid is {text[:60]!r}; expected a lambda with one parameter")


def _require_arithmetic(node: ast.AST, names: Collection[str]) -> None:
    match node:
        case ast.Constant(value):
            known = value is None or type(value) in (bool, int, float, str)
        case ast.Name(name):
            known = name in names
        case ast.Attribute(inner, attribute):
            known = attribute in _ATTRIBUTES
            _require_arithmetic(inner, names)
        case ast.Call(function, arguments, keywords):
            known = not keywords and _is_function(function, names)
            for argument in [*arguments, *([function.value] if _is_method(function) else [])]:  # type: ignore[attr-defined]
                _require_arithmetic(argument, names)
        case _:
            known = isinstance(node, _NODES)
            for child in ast.iter_child_nodes(node):
                _require_arithmetic(child, names)
    if not known:
        part = ast.unparse(node) if isinstance(node, ast.expr) else type(node).__name__
        raise ValueError(f"a part of the grid is {part[:80]!r}; expected arithmetic")


def _is_method(function: ast.expr) -> bool:
    return isinstance(function, ast.Attribute) and function.attr in _METHODS


def _is_function(function: ast.expr, names: Collection[str]) -> bool:
    if isinstance(function, ast.Name):
        return function.id in _BUILTINS and function.id in names
    return _is_method(function) or ast.unparse(function) in _FUNCTIONS


_GUARD = "__computed__"


class _OperatorGuard(ast.NodeTransformer):
    """Replaces operators by guarded calls: no repeated sequences, no numbers of billions of digits."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        kind = ast.Constant(type(node.op).__name__)
        return ast.Call(ast.Name(_GUARD, ast.Load()), [kind, node.left, node.right], [])


def _apply_operator(kind: str, left: Any, right: Any) -> Any:
    if not all(isinstance(value, int | float) for value in (left, right)):
        raise TypeError(f"{left!r} and {right!r} are not numbers")
    if kind in {"Pow", "LShift"} and not (abs(left) < 2**_BITS and abs(right) < _BITS):
        raise OverflowError("the grid is too large")
    return OPERATORS[getattr(ast, kind)](left, right)
