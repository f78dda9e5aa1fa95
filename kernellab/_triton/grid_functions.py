"""The extents of grid functions that only compute, remembered by the values of the variables that they read.

Called from Python, `triton.cdiv` takes microseconds, a third of a launch. A grid function whose bytecode reads nothing
but integers, `PURE` functions and constants of the launch returns the same extents for the same integers.
"""

from __future__ import annotations

import builtins
import dis
import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from types import CodeType, FunctionType, ModuleType
from typing import Any

import triton
import triton.language as tl

PURE = (triton.cdiv, triton.next_power_of_2, tl.cdiv, min, max)
"""Functions whose result depends on their arguments alone."""
_PURE_NAMES = frozenset({"cdiv", "next_power_of_2"})
_STATEFUL = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_VARARGS
_EFFECTS = ("STORE_GLOBAL", "STORE_NAME", "STORE_DEREF", "STORE_ATTR", "STORE_SUBSCR", "DELETE_", "IMPORT_")
_SUBSCRIPT = {"BINARY_SUBSCR": "[]"}  # an operation of its own until Python 3.13
_MOST_REMEMBERED = 1024


@dataclass(slots=True)
class GridMemo:
    """The extents of grid functions of one code object, by the integers that they read: those of `values`."""

    code: CodeType  # held, so that no other code gets its id
    values: Callable[[FunctionType], Any]
    extents: dict[Any, tuple[int, ...]] = field(default_factory=dict)


class GridArguments(dict[str, Any]):
    """The arguments of a launch by name, as a grid function gets them; asked for another one, they name themselves."""

    def __missing__(self, name: Any) -> Any:
        __tracebackhide__ = True
        error = KeyError(name)
        error.add_note(f"A grid function gets the arguments of its launch by name; here: {', '.join(self)}.")
        raise error


@dataclass(slots=True)
class GridMemos:
    """The memos of one launch function, by the id of a code object. ``fixed`` are parameters of constant value."""

    fixed: Collection[str]
    by_code: dict[int, GridMemo] = field(default_factory=dict)

    def evaluate(self, grid: Any, arguments: Mapping[str, Any]) -> Any:
        """Call a grid function, and remember its extents if it only computes."""
        extents = grid(GridArguments(arguments))
        if type(grid) is FunctionType:
            memo = self.by_code.get(id(grid.__code__)) or self._add_memo(grid)
            key = memo.values(grid)
            if key is not None and type(extents) is tuple and all(type(extent) is int for extent in extents):
                if len(memo.extents) == _MOST_REMEMBERED:
                    memo.extents.clear()
                memo.extents[key] = extents
        return extents

    def _add_memo(self, grid: FunctionType) -> GridMemo:
        if len(self.by_code) == _MOST_REMEMBERED:
            self.by_code.clear()
        memo = self.by_code[id(grid.__code__)] = GridMemo(grid.__code__, values_reader(grid, self.fixed))
        return memo


def values_reader(grid: FunctionType, fixed: Collection[str]) -> Callable[[FunctionType], Any]:
    """A function that reads the integers on which the extents of ``grid``, or of one with its code, depend.

    It returns None where these do not decide alone: the code does something else than compute, reads an argument that
    is not in ``fixed``, or a variable holds neither an integer nor a `PURE` function.
    """
    code = grid.__code__
    attributes = sorted(_names(code, "LOAD_ATTR", "LOAD_METHOD"))
    if not _only_computes(code, fixed) or not _PURE_NAMES.issuperset(attributes) or _has_empty_cell(grid):
        return _no_values
    scope: dict[str, Any] = {"type": type, "int": int}
    lines, integers = ["scope, cells = grid.__globals__, grid.__closure__"], []
    for i, (read, value) in enumerate(_variables(grid)):
        if type(value) is int:
            lines += [f"v{i} = {read}", f"if type(v{i}) is not int: return None"]
            integers.append(f"v{i}, ")
            continue
        functions = [getattr(value, a, None) for a in attributes] if type(value) is ModuleType else [value]
        if not all(any(function is pure for pure in PURE) for function in functions):
            return _no_values
        scope |= {f"known{i}": value, f"functions{i}": functions}
        lines.append(f"if {read} is not known{i}: return None")
        if type(value) is ModuleType:
            lines += [f"if known{i}.{a} is not functions{i}[{j}]: return None" for j, a in enumerate(attributes)]
    body = "".join(f"\n        {line}" for line in (*lines, f"return ({''.join(integers)})"))
    text = f"def values(grid):\n    try:{body}\n    except ValueError: return None\n"  # of an empty cell
    exec(text, scope)
    return scope["values"]  # type: ignore[no-any-return]


def _only_computes(code: CodeType, fixed: Collection[str]) -> bool:
    """Whether code of one parameter has no effects, no inner functions, and reads entries in ``fixed`` alone."""
    is_plain = (code.co_argcount, code.co_kwonlyargcount) == (1, 0) and not code.co_flags & _STATEFUL
    has_functions = any(isinstance(constant, CodeType) for constant in code.co_consts)
    return is_plain and not has_functions and not _names(code, *_EFFECTS) and _reads_only(code, fixed)


def _reads_only(code: CodeType, fixed: Collection[str]) -> bool:
    """Whether code uses its parameter for entries in ``fixed`` alone, each by a constant name: ``meta["BLOCK"]``."""
    steps, parameter = list(dis.get_instructions(code)), code.co_varnames[0]
    for index, step in enumerate(steps):
        names = step.argval if isinstance(step.argval, tuple) else (step.argval,)  # newer versions load two at once
        if not step.opname.startswith("LOAD_FAST") or parameter not in names:
            continue
        match steps[index + 1 : index + 3]:
            case [entry, subscript] if len(names) == 1:
                is_known = entry.opname == "LOAD_CONST" and isinstance(entry.argval, str) and entry.argval in fixed
                if not is_known or "[]" not in (subscript.argrepr, _SUBSCRIPT.get(subscript.opname)):
                    return False
            case _:
                return False
    return True


def _has_empty_cell(grid: FunctionType) -> bool:
    """Whether a function closes over a variable that has no value yet."""
    try:
        return any(cell.cell_contents is grid for cell in grid.__closure__ or ())
    except ValueError:
        return True


def _variables(grid: FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield the value of each variable of a function, and the expression that reads it."""
    code, cells = grid.__code__, grid.__closure__ or ()
    for i, cell in enumerate(cells):
        yield f"cells[{i}].cell_contents", cell.cell_contents
    for name in _names(code, "LOAD_GLOBAL", "LOAD_NAME"):
        default = f"__builtins__[{name!r}]" if hasattr(builtins, name) else "None"
        yield f"scope.get({name!r}, {default})", grid.__globals__.get(name, getattr(builtins, name, None))


def _names(code: CodeType, *operations: str) -> set[Any]:
    """The arguments of the bytecode operations whose names begin as one of ``operations``."""
    return {part.argval for part in dis.get_instructions(code) if part.opname.startswith(operations)}


def _no_values(grid: FunctionType) -> None:
    return None
