"""The language of recorded grids: arithmetic over the sizes of a launch, and nothing that could do anything else.

A formula is the text of a lambda with one parameter, the meta-parameters. It is pasted into exported modules, and is
evaluated where a kept kernel is launched on other sizes; both is safe for whatever a store or a bundle holds.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Collection, Mapping
from typing import Any

from kernellab.errors import UsageError
from kernellab.source import Malformed, parsed, require

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
_LENGTH = 20_000  # that a power of two above a size takes, over inputs of long names
_BITS = 128


def require_formula(text: str, names: Collection[str]) -> None:
    """Raise `Malformed` for a text that is no formula over parameters with these names."""
    _parsed(text, names)


def is_formula(text: str, names: Collection[str]) -> bool:
    """Tell whether a text is a formula over parameters with these names."""
    try:
        _parsed(text, names)
    except Malformed:
        return False
    return True


def evaluated(text: str, arguments: Mapping[str, Any]) -> Any:
    """Return the grid that a formula gives for these arguments and meta-parameters.

    Raises:
        UsageError: it has no value for these arguments, or is no formula.
    """
    import torch
    import triton

    try:
        return _value(text, arguments, {"torch": torch, "triton": triton, "math": math})
    except (ArithmeticError, TypeError, LookupError, AttributeError, ValueError, RuntimeError, AssertionError) as exc:
        why = f"{type(exc).__name__}: {exc}"
        raise UsageError(f"The recorded grid {text!r} has no value for these arguments ({why}); pass a grid.") from exc


def _value(text: str, arguments: Mapping[str, Any], modules: Mapping[str, Any]) -> Any:
    node = ast.fix_missing_locations(ast.Expression(_Guarded().visit(_parsed(text, arguments))))
    scope = {"__builtins__": _BUILTINS, **modules, **arguments, _GUARD: _computed}
    return eval(compile(node, "<grid>", "eval"), scope)(arguments)


def _parsed(text: str, names: Collection[str]) -> ast.Lambda:
    try:
        body = parsed(text).body if len(text) <= _LENGTH else []
    except (SyntaxError, ValueError, RecursionError, MemoryError) as exc:
        raise Malformed(f"the grid is no Python: {exc}") from exc
    node = body[0].value if len(body) == 1 and isinstance(body[0], ast.Expr) else None
    given = node.args if isinstance(node, ast.Lambda) else ast.arguments([], [], None, [], [], None, [])
    bare = len(given.args) == 1 and not (given.posonlyargs or given.kwonlyargs or given.vararg or given.kwarg)
    if not isinstance(node, ast.Lambda) or not bare or given.defaults:
        raise Malformed(f"the grid is {text[:60]!r}; expected a lambda with one parameter")
    _require_arithmetic(node.body, {*names, given.args[0].arg, *_BUILTINS})
    return node


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
    require(known, "a part of the grid", ast.unparse(node) if isinstance(node, ast.expr) else node, "arithmetic")


def _is_method(function: ast.expr) -> bool:
    return isinstance(function, ast.Attribute) and function.attr in _METHODS


def _is_function(function: ast.expr, names: Collection[str]) -> bool:
    if isinstance(function, ast.Name):
        return function.id in _BUILTINS and function.id in names
    return _is_method(function) or ast.unparse(function) in _FUNCTIONS


_GUARD = "__computed__"


class _Guarded(ast.NodeTransformer):
    """Lets no operator repeat a sequence, or make a number of billions of digits."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        kind = ast.Constant(type(node.op).__name__)
        return ast.Call(ast.Name(_GUARD, ast.Load()), [kind, node.left, node.right], [])


def _computed(kind: str, left: Any, right: Any) -> Any:
    if not all(isinstance(value, int | float) for value in (left, right)):
        raise TypeError(f"{left!r} and {right!r} are no numbers")
    if kind in {"Pow", "LShift"} and not (abs(left) < 2**_BITS and abs(right) < _BITS):
        raise OverflowError("the grid is too large")
    return OPERATORS[getattr(ast, kind)](left, right)
