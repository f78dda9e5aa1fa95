"""The text of a function, its syntax tree, and what the names in it stand for: now, and whenever it is launched."""

from __future__ import annotations

import ast
import builtins
import dis
import inspect
import sys
import sysconfig
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

import triton.language as tl
from triton.runtime.jit import JITCallable, JITFunction

from kernellab.errors import SourceError
from kernellab.source import parsed
from kernellab.source.text import signature_names, signature_values

_BY_NAME = {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF"}
_BY_NAME |= {"LOAD_FROM_DICT_OR_DEREF", "LOAD_FROM_DICT_OR_GLOBALS"}  # in a class, from Python 3.12 on
_BY_ATTRIBUTE = {"LOAD_ATTR", "LOAD_METHOD"}


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
    try:
        lines, first = _source_lines(owner)
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


def _source_lines(function: Any) -> tuple[list[str], int]:
    """Return the lines of a function, decorators included, and the number of the first one.

    Those of a jit function are the ones it was defined with, whatever has become of the file or cell since.
    """
    if isinstance(function, JITCallable):
        return list(function.raw_src), max(function.starting_line_number, 1)
    lines, first = inspect.getsourcelines(function)
    return lines, max(first, 1)


def fix_signature(function: Any) -> None:
    """Note what the names in the signature of a jit function stand for, which was just defined."""
    signature_values(function.fn, definition(function)[2], scope_of(function.fn))


def names_of(function: Any, node: ast.FunctionDef) -> dict[str, Any]:
    """Return what the global names in a function stand for, those of its decorators and signature included."""
    scope = scope_of(function)
    decorators = {n.id for each in node.decorator_list for n in ast.walk(each) if isinstance(n, ast.Name)}
    named = {*outside_names(function), *signature_names(node), *decorators}
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


def outside_names(python: FunctionType) -> dict[str, set[str]]:
    """Return the names that a function looks up outside itself, each with the attributes that it takes of it."""
    found: dict[str, set[str]] = {}
    for name, attribute in _looked_up(python.__code__, python.__code__.co_freevars):
        found.setdefault(name, set()).update({attribute} - {""})
    return found


def _looked_up(code: CodeType, free: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield the names that code looks up outside itself, each with the attribute that it takes of it, or ""."""
    instructions = list(dis.get_instructions(code))
    for instruction, following in zip(instructions, [*instructions[1:], None], strict=True):
        is_own = "DEREF" in instruction.opname and instruction.argval not in free
        if instruction.opname in _BY_NAME and not is_own:
            by_attribute = following is not None and following.opname in _BY_ATTRIBUTE
            yield instruction.argval, following.argval if by_attribute and following is not None else ""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _looked_up(constant, free)


def is_installed(module: str) -> bool:
    """Tell whether a module belongs to the standard library or to an installed package."""
    if module.split(".", maxsplit=1)[0] in {"triton", "torch"} or module in sys.builtin_module_names:
        return True
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None:
        return False
    parts = Path(file).parts
    return "site-packages" in parts or "dist-packages" in parts or file.startswith(sysconfig.get_path("stdlib"))


class Missing:
    """The value of a parameter that was not given, and of a name that stands for nothing."""


MISSING = Missing()


def is_immutable(value: Any) -> bool:
    """Tell whether a value cannot change in place, and is told from others of its type by ``==``."""
    inner = value.value if type(value) is tl.constexpr else value
    return type(inner) in {int, bool, float, str, type(None), tl.dtype}


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
        return self.value is MISSING or isinstance(self.value, kinds) or is_immutable(self.value)


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
    if isinstance(one, tl.constexpr) and isinstance(other, tl.constexpr):
        return _same(one.value, other.value)
    return is_immutable(one) and type(one) is type(other) and repr(one) == repr(other)  # 0.0 and -0.0 are equal


def _taken_by(python: FunctionType) -> Iterator[CapturedValue]:
    cells = dict(zip(python.__code__.co_freevars, python.__closure__ or (), strict=False))
    for name, attributes in outside_names(python).items():
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
