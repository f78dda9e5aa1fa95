"""The size of what a kernel's text computes from whole numbers alone, while it is compiled."""

from __future__ import annotations

import ast
from collections.abc import Callable

LARGEST_INTEGER = 2**64
_BITS = 64
_LONGEST_SEQUENCE = 4096


def folded_integer(node: ast.expr, integer: Callable[[str], int | None]) -> int | None:
    """Return the value of an expression of whole numbers, None where it is not known.

    ``integer`` returns the number that a name is bound to, or None.

    Raises:
        OverflowError: a value beyond 64 bits, or a sequence repeated beyond a few thousand elements.
    """
    match node:
        case ast.Constant(value=int(value)):
            return int(value)
        case ast.Name(id=name):
            return integer(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            positive = folded_integer(operand, integer)
            return None if positive is None else -positive
        case ast.BinOp(left=left, op=op, right=right):
            one, other = folded_integer(left, integer), folded_integer(right, integer)
            is_repeated = isinstance(op, ast.Mult) and (_is_sequence(left) or _is_sequence(right))
            if is_repeated and max(one or 0, other or 0) > _LONGEST_SEQUENCE:
                raise OverflowError("a long sequence")
            return None if one is None or other is None else _apply_operator(op, one, other)
    return None


def _is_sequence(node: ast.expr) -> bool:
    is_text = isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
    return is_text or isinstance(node, ast.Tuple | ast.List | ast.JoinedStr)


def _apply_operator(op: ast.operator, one: int, other: int) -> int | None:
    """Return the result of an operator; the operands have at most 65 bits each."""
    match op:
        case ast.Add():
            value = one + other
        case ast.Sub():
            value = one - other
        case ast.Mult():
            value = one * other
        case ast.FloorDiv() if other:
            value = one // other
        case ast.Pow() if other >= 0:
            _require_bits((abs(one).bit_length() - 1) * other)
            value = one**other
        case ast.LShift() if other >= 0:
            _require_bits(other if one else 0)
            value = one << other if one else 0
        case _:
            return None
    if abs(value) > LARGEST_INTEGER:
        raise OverflowError("a number beyond 64 bits")
    return value


def _require_bits(count: int) -> None:
    if count > _BITS:
        raise OverflowError("a number beyond 64 bits")
