"""What the code of a kernel, and of the helpers that it reaches, takes from outside itself.

A compiled kernel holds what globals, free variables and members of modules were. Whoever keeps one has to watch them.
"""

from __future__ import annotations

import builtins
import dis
from collections.abc import Iterator, Sequence
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

import triton.language as tl
from triton.runtime.jit import JITCallable, JITFunction

from kernellab._triton.closure import is_installed
from kernellab._triton.launcher.chain import MISSING, constant_feature, is_plain

_BY_NAME = {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF"}
_BY_ATTRIBUTE = {"LOAD_ATTR", "LOAD_METHOD"}


class CapturedValue(NamedTuple):
    """A name, the scope that holds it (what has ``get``, as dictionaries do), and what it stands for there."""

    name: str
    scope: Any
    value: Any

    def is_now(self) -> bool:
        """Tell whether the name still stands for this very object."""
        return self.scope.get(self.name, MISSING) is self.value

    def is_fixed(self) -> bool:
        """Tell whether the object cannot change in place, or is looked into by captures of its own."""
        kinds = (JITCallable, ModuleType, type, FunctionType, BuiltinFunctionType)
        return self.value is MISSING or isinstance(self.value, kinds) or is_plain(self.value)


class _FreeVariable:
    """A variable of an enclosing function, as a scope."""

    def __init__(self, cell: Any) -> None:
        self.cell = cell

    def get(self, name: str, default: Any) -> Any:
        try:
            return self.cell.cell_contents
        except ValueError:
            return default


def captures_of(function: Any) -> tuple[CapturedValue, ...]:
    """Return what a jit function and the helpers that it reaches take from outside, those of the function first."""
    found: list[CapturedValue] = []
    pending, entered = [function], {id(function)}
    for current in pending:
        for capture in _taken_by(current.fn):
            found.append(capture)
            helper = capture.value
            if not isinstance(helper, JITCallable) or id(helper) in entered:
                continue
            if not is_installed(helper.fn.__module__ or ""):
                entered.add(id(helper))
                pending.append(helper)
    return tuple(found)


def reached(function: Any, captures: Sequence[CapturedValue]) -> list[Any]:
    """Return a jit function and the jit functions among its captures, each once."""
    helpers = (capture.value for capture in captures if isinstance(capture.value, JITFunction))
    return list({id(each): each for each in (function, *helpers)}.values())


def are_alike(held: Sequence[CapturedValue], fresh: Sequence[CapturedValue]) -> bool:
    """Tell whether a kernel compiles alike for both: each name stands for the same object, or for an equal constant."""
    pairs = zip(held, fresh, strict=False)
    return len(held) == len(fresh) and all(a.name == b.name and _same(a.value, b.value) for a, b in pairs)


def _same(one: Any, other: Any) -> bool:
    if one is other:
        return True
    return is_plain(one) and is_plain(other) and bool(constant_feature(one) == constant_feature(other))


def _taken_by(python: FunctionType) -> Iterator[CapturedValue]:
    cells = dict(zip(python.__code__.co_freevars, python.__closure__ or (), strict=False))
    named: dict[str, set[str]] = {}
    for name, attribute in _names(python.__code__, cells):
        named.setdefault(name, set()).update({attribute} - {""})
    for name, attributes in named.items():
        scope = _FreeVariable(cells[name]) if name in cells else python.__globals__
        if scope.get(name, MISSING) is not MISSING or not hasattr(builtins, name):
            yield from _captured(name, scope, attributes)


def _captured(name: str, scope: Any, attributes: set[str]) -> Iterator[CapturedValue]:
    value = scope.get(name, MISSING)
    if isinstance(value, ModuleType) and is_installed(value.__name__):
        return
    yield CapturedValue(name, scope, value)
    if isinstance(value, tl.constexpr):
        yield from _captured("value", vars(value), set())
    elif isinstance(value, ModuleType | type):
        for attribute in sorted(attributes):
            yield from _captured(attribute, vars(value), set())


def _names(code: CodeType, free: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the names that code looks up outside itself, each with the attribute that it takes of it, or ""."""
    instructions = list(dis.get_instructions(code))
    for instruction, following in zip(instructions, [*instructions[1:], None], strict=True):
        is_own = "DEREF" in instruction.opname and instruction.argval not in free
        if instruction.opname in _BY_NAME and not is_own:
            by_attribute = following is not None and following.opname in _BY_ATTRIBUTE
            yield instruction.argval, following.argval if by_attribute and following is not None else ""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant, free)
