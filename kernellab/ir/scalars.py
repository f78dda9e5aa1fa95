"""What scalar integer operations give, for all programs of a grid at once.

A value is a numpy array of 64-bit integers: of shape () where all programs agree, else one element per program. None
stands for what is not known: memory, floating point, tensors.

See https://mlir.llvm.org/docs/Dialects/ArithOps/ for the operations.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from kernellab.ir.graph import Operation

Integers = npt.NDArray[np.int64]
Known = Integers | None

_LITERAL = re.compile(r"(-?\d+|true|false)$")
_AXES = {"x": 0, "y": 1, "z": 2}


def integers(value: int) -> Integers:
    """Return a number that all programs agree on."""
    return np.asarray(value, dtype=np.int64)


def literal(operation: Operation) -> Known:
    """Return the value of an ``arith.constant``, None where it is no scalar integer."""
    text = operation.attribute("value")
    if not _LITERAL.match(text):
        return None
    number = {"true": 1, "false": 0}.get(text)
    number = int(text) if number is None else number
    return integers(number) if -(2**63) <= number < 2**63 else None


def axis_of(operation: Operation) -> int:
    """Return the axis, from 0 to 2, that ``tt.get_program_id`` or ``tt.get_num_programs`` asks for."""
    return _AXES[operation.attribute("axis", "x")]


def computed(operation: Operation, operands: list[Known], element: str) -> Known:
    """Return the result of a scalar operation, wrapped to its type ``element``; None where it is not known."""
    rule = _RULES.get(operation.name)
    if rule is None or any(operand is None for operand in operands):
        return _chosen(operands) if operation.name == "arith.select" else None
    known = [operand for operand in operands if operand is not None]
    with np.errstate(all="ignore"):
        found = rule(dict(operation.attributes), *known)
    return None if found is None else _wrapped(found, element)


def chosen(condition: Integers, yes: Known, no: Known) -> Known:
    """Return ``yes`` where the condition holds and ``no`` elsewhere; what no program asks for need not be known."""
    if yes is None or no is None:
        if yes is not None and bool(np.all(condition)):
            return yes
        return no if no is not None and not bool(np.any(condition)) else None
    found: Integers = np.where(condition != 0, yes, no)
    return found


def _chosen(operands: list[Known]) -> Known:
    condition, yes, no = operands
    return None if condition is None else chosen(condition, yes, no)


def _wrapped(value: npt.NDArray[np.int64 | np.bool_], element: str) -> Known:
    """Return the value as an integer of its type; index and i64 have 64 bits."""
    if element == "i1":
        return (value.astype(np.int64) & 1).astype(np.int64)
    if element in {"i64", "index"}:
        return value.astype(np.int64)
    kinds: dict[str, type[np.signedinteger]] = {"i8": np.int8, "i16": np.int16, "i32": np.int32}
    return value.astype(np.int64).astype(kinds[element]).astype(np.int64) if element in kinds else None


def _quotient(a: Integers, b: Integers) -> Integers:
    """Divide as C does, towards zero."""
    found: Integers = (a - np.fmod(a, b)) // np.where(b == 0, 1, b)
    return found


def _selected(condition: Integers, yes: Integers, no: Integers) -> Integers:
    found: Integers = np.where(condition != 0, yes, no)
    return found


def _if_positive(rule: Callable[[Integers, Integers], Integers]) -> Callable[..., Known]:
    """Compute an unsigned operation where it agrees with the signed one: on numbers that are not negative."""

    def unsigned(attributes: Mapping[str, str], a: Integers, b: Integers) -> Known:
        return rule(a, b) if bool(np.all(a >= 0)) and bool(np.all(b >= 0)) else None

    return unsigned


def _plain(rule: Callable[..., Integers]) -> Callable[..., Known]:
    return lambda attributes, *operands: rule(*operands)


def _compared(attributes: Mapping[str, str], a: Integers, b: Integers) -> Known:
    predicate = attributes.get("predicate", "")
    if predicate.startswith("u") and (bool(np.any(a < 0)) or bool(np.any(b < 0))):
        return None
    compare = _COMPARISONS.get(predicate.removeprefix("u").removeprefix("s"))
    return None if compare is None else compare(a, b).astype(np.int64)


def _zero_extended(attributes: Mapping[str, str], a: Integers) -> Known:
    return a if bool(np.all(a >= 0)) else None


def _sign_extended(attributes: Mapping[str, str], a: Integers) -> Known:
    return a


_COMPARISONS: Mapping[str, Callable[[Integers, Integers], npt.NDArray[np.bool_]]] = MappingProxyType(
    {
        "eq": np.equal,
        "ne": np.not_equal,
        "lt": np.less,
        "le": np.less_equal,
        "gt": np.greater,
        "ge": np.greater_equal,
    }
)

_RULES: Mapping[str, Callable[..., Known]] = MappingProxyType(
    {
        "arith.addi": _plain(np.add),
        "arith.subi": _plain(np.subtract),
        "arith.muli": _plain(np.multiply),
        "arith.divsi": _plain(_quotient),
        "arith.floordivsi": _plain(np.floor_divide),
        "arith.ceildivsi": _plain(lambda a, b: -(-a // b)),
        "arith.remsi": _plain(np.fmod),
        "arith.divui": _if_positive(np.floor_divide),
        "arith.ceildivui": _if_positive(lambda a, b: -(-a // b)),
        "arith.remui": _if_positive(np.fmod),
        "arith.andi": _plain(np.bitwise_and),
        "arith.ori": _plain(np.bitwise_or),
        "arith.xori": _plain(np.bitwise_xor),
        "arith.shli": _plain(np.left_shift),
        "arith.shrsi": _plain(np.right_shift),
        "arith.shrui": _if_positive(np.right_shift),
        "arith.minsi": _plain(np.minimum),
        "arith.maxsi": _plain(np.maximum),
        "arith.minui": _if_positive(np.minimum),
        "arith.maxui": _if_positive(np.maximum),
        "arith.select": _plain(_selected),
        "arith.extsi": _sign_extended,
        "arith.extui": _zero_extended,
        "arith.trunci": _sign_extended,
        "arith.index_cast": _sign_extended,
        "arith.index_castui": _zero_extended,
        "arith.cmpi": _compared,
    }
)
