"""Sizes as expressions: integers of a program that follow from the shapes of its inputs, and their guards.

A `Size` is the integer of the recording with its expression, so code that computes with recorded layouts computes
expressions as well. Two sizes are equal only if their expressions are, and not if their recorded values happen to be.
Expressions are written in the language of recorded grids.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from kernellab.errors import UsageError
from kernellab.source import is_formula


def _operator(operation: Callable[[Any, Any], Any], *, is_reflected: bool = False) -> Callable[[int, int], Any]:
    """Return the method of `Size` for an operation of integers."""

    def combine(own: int, other: int) -> int:
        import sympy  # comes with torch
        from torch.utils._sympy.functions import FloorDiv

        if not isinstance(other, int):
            return NotImplemented
        pair = (other, own) if is_reflected else (own, other)
        parts = [n.expression if isinstance(n, Size) else sympy.Integer(n) for n in pair]
        symbolic = FloorDiv if operation is operator.floordiv else operation
        return size_or_int(operation(*map(int, pair)), symbolic(*parts))

    return combine


class _Expression:
    """A number with an expression of symbols: two are equal only if their expressions are, too."""

    expression: Any

    def __repr__(self) -> str:
        return text_of(self.expression)

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and super().__eq__(other) and bool(self.expression == other.expression)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return super().__hash__()


class Size(_Expression, int):
    """An integer of a program as an expression of symbols; its value is the recorded one."""

    def __new__(cls, value: int, expression: Any) -> Size:
        size = super().__new__(cls, value)
        size.expression = expression
        return size

    def __reduce__(self) -> tuple[Any, ...]:
        return Size, (int(self), self.expression)


for _operation in (operator.add, operator.sub, operator.mul, operator.floordiv):
    setattr(Size, f"__{_operation.__name__}__", _operator(_operation))
    setattr(Size, f"__r{_operation.__name__}__", _operator(_operation, is_reflected=True))


class Number(_Expression, float):
    """A number with a fraction, which a run reads from a tensor, as an expression; its value is the recorded one."""

    def __new__(cls, value: float, expression: Any) -> Number:
        number = super().__new__(cls, value)
        number.expression = expression
        return number

    def __reduce__(self) -> tuple[Any, ...]:
        return Number, (float(self), self.expression)


def size_or_int(value: int, expression: Any) -> int:
    """Return a size, or an integer if the expression is constant."""
    import sympy  # comes with torch

    expanded = sympy.expand(expression)
    return Size(value, expanded) if expanded.free_symbols else int(value)


@lru_cache(maxsize=2**14)
def text_of(expression: Any) -> str:
    """Return a sympy expression as Python."""
    from torch.utils._sympy.printers import PythonPrinter

    return str(PythonPrinter().doprint(expression))


@dataclass(frozen=True, slots=True)
class SizeSource:
    """The source of a symbol: the size or stride of a value along an axis."""

    value: int
    axis: int
    is_stride: bool = False

    def text(self, name: str, *, is_input: bool) -> str:
        """Return the expression of the symbol for a value of this name; for a step's result, an identifier."""
        if is_input:
            return f"{name}.stride({self.axis})" if self.is_stride else f"{name}.shape[{self.axis}]"
        return f"{name}_size_{self.axis}"


@dataclass(frozen=True, slots=True)
class Guard:
    """A sympy condition on sizes under which a program holds; ``place`` and ``reason`` say where it comes from."""

    condition: Any
    place: str = ""
    reason: str = ""

    @property
    def text(self) -> str:
        """The condition as Python."""
        return text_of(self.condition)

    @property
    def words(self) -> str:
        """The condition with its reason: ``x.shape[0] <= 128 (In[3], line 2: ...)``."""
        why = ": ".join(part for part in (self.place, self.reason) if part)
        return f"{self.text} ({why})" if why else self.text


@lru_cache(maxsize=256)
def ordered_guards(guards: tuple[Guard, ...]) -> tuple[Guard, ...]:
    """Return guards in an order that never divides by zero: those that exclude a zero divisor come first."""
    import sympy  # comes with torch
    from torch.utils._sympy import functions

    divisions = (functions.FloorDiv, functions.Mod, functions.PythonMod, functions.IntTrueDiv)
    divided: list[tuple[Guard, list[Any]]] = []
    plain: list[Guard] = []
    for guard in guards:
        parts = [part for part in sympy.postorder_traversal(guard.condition) if isinstance(part, divisions)]
        divisors = [part.args[1] for part in parts if not part.args[1].is_number]
        if divisors:
            divided.append((guard, divisors))
        else:
            plain.append(guard)
    bounded = {guard.condition.lhs for guard in plain if isinstance(guard.condition, sympy.Ge)}
    ordered = {guard.text: guard for guard in plain}
    for guard, divisors in divided:
        checks = [Guard(sympy.Ne(d, 0, evaluate=False), guard.place, "a divisor") for d in divisors if d not in bounded]
        ordered |= {g.text: g for g in (*checks, guard) if g.text not in ordered}
    return tuple(ordered.values())


@dataclass(frozen=True, slots=True)
class Sizes:
    """The guards of a program, and the source of each symbol.

    ``inspected_storages`` are the storages of a recording whose layouts its block inspected.
    """

    guards: tuple[Guard, ...] = ()
    sources: tuple[tuple[Any, SizeSource], ...] = ()
    inspected_storages: frozenset[int] = frozenset()


@lru_cache(maxsize=4096)
def compile_expression(text: str) -> Any:
    """Return the compiled code of an expression; raise `UsageError` for more than arithmetic over sizes."""
    if not is_formula(f"lambda sizes: {text}", names_in(text)):
        raise UsageError(f"{text[:200]} is not arithmetic over sizes, which is all that a program can hold.")
    return compile(text, "<size>", "eval")


def evaluate(text: str, scope: Mapping[str, Any]) -> Any:
    """Return the value of an expression for inputs by name."""
    return eval(compile_expression(text), {"__builtins__": _BUILTINS, "math": math, **scope})


_BUILTINS: dict[str, Any] = {function.__name__: function for function in (max, min, abs, int, float)}


@lru_cache(maxsize=2**14)
def names_in(text: str) -> tuple[str, ...]:
    """Return the names of inputs and symbols in an expression, each once."""
    names = (node.id for node in ast.walk(ast.parse(text, mode="eval")) if isinstance(node, ast.Name))
    return tuple(dict.fromkeys(name for name in names if name != "math" and name not in _BUILTINS))


def sizes_for(numbers: tuple[int, ...], inputs: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the values of sizes for these inputs."""
    return tuple(evaluate(repr(number), inputs) if isinstance(number, Size) else number for number in numbers)


def guard_problem(words: str) -> str:
    """Return the message for sizes that violate a guard."""
    return f"The program does not hold for these sizes: it requires {words}. Capture it again with such sizes."
