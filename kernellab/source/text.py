"""Python as text: names, syntax trees, and values as constructor calls.

One thread at a time parses. Syntax trees of lambdas are found by position, since Python keeps none.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib.util
import keyword
import linecache
import math
import sys
import sysconfig
import unicodedata
from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any
from weakref import WeakKeyDictionary

from kernellab.errors import SourceError
from kernellab.workers.forks_and_interrupts import rlock

_NAME_LENGTH = 200
USER_ERRORS = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
"""Errors of a function of the user, such as a grid or a heuristic, and of objects that it uses."""
_ONE_AT_A_TIME = rlock(crossing=True)


def is_name(value: object) -> bool:
    """Whether a value is a Python identifier and no keyword."""
    if not isinstance(value, str) or not value.isidentifier() or keyword.iskeyword(value):
        return False
    return len(value) <= _NAME_LENGTH and unicodedata.normalize("NFKC", value) == value


def is_installed(module: str) -> bool:
    """Whether a module belongs to the standard library or to an installed package; nothing is imported for it."""
    package = module.partition(".")[0]
    if package in {"triton", "torch"} or module in sys.builtin_module_names:
        return True
    file = getattr(sys.modules.get(module), "__file__", None) or _file_of_package(module, package)
    if file is None:
        return False
    parts = Path(file).parts
    return "site-packages" in parts or "dist-packages" in parts or file.startswith(sysconfig.get_path("stdlib"))


def _file_of_package(module: str, package: str) -> str | None:
    """Return the file of the package of a module that is not imported; None where there is no such package."""
    if package in sys.modules or not package.isidentifier():
        return None
    spec = importlib.util.find_spec(package)
    return None if spec is None else spec.origin


def parse_python(text: str) -> ast.Module:
    """Return the syntax tree of a piece of Python."""
    with _ONE_AT_A_TIME:
        return ast.parse(text)


def returned_value(text: str) -> ast.Return | None:
    """The first ``return`` with a value in a function's text, or None. A function with one cannot be launched."""
    nodes = ast.walk(parse_python(text))
    return next((node for node in nodes if isinstance(node, ast.Return) and node.value is not None), None)


def lambda_definition(function: FunctionType) -> tuple[str, int, ast.Lambda]:
    """Return the text of a lambda, its line in its file, and its syntax tree.

    Raises:
        SourceError: the lambda's file is unknown or has changed.
    """
    code = function.__code__
    text = "".join(linecache.getlines(code.co_filename, function.__globals__))
    node = min(_lambdas(text, code), key=lambda node: (node.end_lineno or 0, node.end_col_offset or 0), default=None)
    if node is None:
        raise SourceError(f"The source of the lambda in line {code.co_firstlineno} of {code.co_filename} is not known.")
    segment = ast.get_source_segment(text, node)
    assert segment is not None
    return segment, node.lineno, node


def _lambdas(text: str, code: CodeType) -> Iterator[ast.Lambda]:
    """Yield the lambdas of a text with a body that spans all instructions of ``code``.

    Python 3.12 gives the instructions of a constant body no positions; there the constants decide.
    """
    # Instructions without text have no position.
    places = [place for place in code.co_positions() if None not in place[:3] and place[3]]
    first = min(((line, column) for line, _, column, _ in places), default=(0, 0))
    last = max(((end_line, end_column) for _, end_line, _, end_column in places), default=(0, 0))
    for node in _lambda_nodes(text):
        if node.lineno == code.co_firstlineno:
            body = node.body
            if not any(last):
                constants = compile(ast.Expression(node), "", "eval").co_consts
                compiled = next(part for part in constants if isinstance(part, CodeType))
                if compiled.co_consts == code.co_consts:
                    yield node
                continue
            end = (body.end_lineno or body.lineno, body.end_col_offset or 0)
            if (body.lineno, body.col_offset) <= first and last <= end:
                yield node


@lru_cache(maxsize=8)
def _lambda_nodes(text: str) -> tuple[ast.Lambda, ...]:
    """Return all lambdas of a text; none if it is not Python."""
    try:
        return tuple(node for node in ast.walk(parse_python(text)) if isinstance(node, ast.Lambda))
    except SyntaxError:
        return ()


_DEFINED: WeakKeyDictionary[FunctionType, Mapping[str, Any]] = WeakKeyDictionary()


def signature_names(node: ast.FunctionDef | ast.Lambda) -> set[str]:
    """Return the names in the defaults and annotations of a function.

    Annotations of local variables, of which Python keeps no name, count as well: Triton evaluates them.
    """
    arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    parts = [*node.args.defaults, *(d for d in node.args.kw_defaults if d), *(a.annotation for a in arguments)]
    parts += [each.annotation for each in _statements(node) if isinstance(each, ast.AnnAssign)]
    return {n.id for part in parts if part is not None for n in ast.walk(part) if isinstance(n, ast.Name)}


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements of a function, those of its loops and branches included."""
    body = getattr(node, "body", ())
    for statement in (*body, *getattr(node, "orelse", ())) if isinstance(body, list) else ():
        yield statement
        yield from _statements(statement)


def signature_values(
    function: FunctionType, node: ast.FunctionDef | ast.Lambda, scope: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return the values of those names in ``scope``, fixed at the first call, soon after the definition.

    A name that is itself a default has the function's default value: ``lambda meta, kind=kind: ...``.
    """
    if function not in _DEFINED:
        by_keyword = function.__kwdefaults__ or {}
        keywords = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
        defaults = [
            *zip(node.args.defaults, function.__defaults__ or (), strict=False),
            *((default, by_keyword.get(argument.arg)) for argument, default in keywords),
        ]
        known = {**scope, **{default.id: value for default, value in defaults if isinstance(default, ast.Name)}}
        _DEFINED[function] = {name: known[name] for name in sorted(signature_names(node)) if name in known}
    return _DEFINED[function]


_LARGEST = 1 << 16  # bytes of one value; anything larger is data and belongs in a tensor
_IS_DATA = "it holds data, which a parameter without tl.constexpr takes as a tensor"


class CannotTake(Exception):
    """A value that cannot be sent to another process; the text gives the reason."""


@dataclass(frozen=True, slots=True)
class RebuildCall:
    """A value as a call: ``function(*arguments)``, then ``state``. ``has_identity``: it equals only itself."""

    function: Any
    arguments: tuple[Any, ...]
    state: Any = None
    has_identity: bool = False


def rebuild_call(value: Any) -> RebuildCall | str:
    """Return the call that rebuilds a value, or its name in its module.

    Follows the protocol of `object.__reduce_ex__`. Members of enums, named tuples, dataclasses and numpy's numbers
    get a readable call.

    Raises:
        CannotTake: the value cannot be rebuilt, such as an open file.
    """
    if isinstance(value, Enum):
        cls = type(value)
        is_member = cls.__members__.get(value.name or "") is value
        return RebuildCall(getattr, (cls, value.name)) if is_member else RebuildCall(cls, (value.value,))
    if is_named_tuple(type(value)):
        return RebuildCall(type(value), tuple(value))
    if (fields := _init_fields(value)) is not None:
        return RebuildCall(type(value), fields, has_identity=_has_identity(value))
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.number | numpy.bool_):
        number = value.item()
        if type(number) in {bool, int, float, complex}:
            return RebuildCall(type(value), (number,))
    if type(value) is object:
        raise CannotTake("")
    if hasattr(value, "data_ptr") or hasattr(value, "__array_interface__") or hasattr(value, "__dataframe__"):
        raise CannotTake(_IS_DATA)
    return _by_protocol(value)


def _by_protocol(value: Any) -> RebuildCall | str:
    try:
        reduction: Any = value.__reduce_ex__(4)  # its class may raise anything
    except Exception as exc:
        raise CannotTake(str(exc) or type(exc).__name__) from exc
    if isinstance(reduction, str):
        return reduction
    padded: list[Any] = [*reduction, None, None, None]
    function, arguments, state, *more = padded
    if any(part is not None for part in more):
        raise CannotTake("it holds other values in a way that is not known")
    if any(isinstance(part, bytes | bytearray) and len(part) > _LARGEST for part in (*arguments, state)):
        raise CannotTake(_IS_DATA)
    return RebuildCall(function, tuple(arguments), state, _has_identity(value))


def _has_identity(value: Any) -> bool:
    """Whether a value equals only itself."""
    equals: Any = type(value).__eq__
    return equals is object.__eq__


def rebuild(function: Callable[..., Any], arguments: tuple[Any, ...], state: Any) -> Any:
    """Rebuild a value from its `rebuild_call` parts."""
    value = function(*arguments)
    if state is None:
        return value
    if hasattr(value, "__setstate__"):
        value.__setstate__(state)
        return value
    fields, slots = state if isinstance(state, tuple) and len(state) == 2 else (state, None)
    for name, member in {**(fields or {}), **(slots or {})}.items():
        object.__setattr__(value, name, member)
    return value


def is_named_tuple(cls: type) -> bool:
    """Whether a class is a tuple with named fields."""
    return issubclass(cls, tuple) and isinstance(getattr(cls, "_fields", None), tuple)


def _init_fields(value: Any) -> tuple[Any, ...] | None:
    """Return the arguments that rebuild a dataclass; None if its ``__init__`` sets more than its fields."""
    cls = type(value)
    if not dataclasses.is_dataclass(cls) or not cls.__dataclass_params__.init:  # type: ignore[attr-defined]
        return None
    fields = dataclasses.fields(cls)
    names = [field.name for field in fields if field.init and not field.kw_only]
    is_plain = cls.__init__.__code__.co_filename == "<string>" and len(names) == len(fields)
    if not is_plain or set(getattr(value, "__dict__", names)) - set(names):
        return None
    values = tuple(getattr(value, name) for name in names)
    return values if not hasattr(cls, "__post_init__") or _is_made_by(cls, values, value) else None


def _is_made_by(cls: Any, fields: tuple[Any, ...], value: Any) -> bool:
    """Whether a frozen dataclass with checks, such as a Gluon layout, is equal when rebuilt from its fields."""
    if not (cls.__dataclass_params__.frozen and cls.__dataclass_params__.eq):
        return False
    try:
        return bool(cls(*fields) == value)
    except USER_ERRORS:
        return False


def portable_type(kind: Any) -> Any:
    """Return Triton's type of an argument in a form that every process can unpickle."""
    if not isinstance(kind, tuple):
        return kind
    items = tuple(map(portable_type, kind))
    names = vars(type(kind)).get("_fields")  # Triton looks no further
    return items if names is None else _named_types(type(kind).__name__, names, items)


def _named_types(name: str, names: tuple[str, ...], types: tuple[Any, ...]) -> Any:
    def reduce_tuple(kind: tuple[Any, ...]) -> tuple[Any, ...]:
        return _named_types, (name, names, tuple(kind))

    make: Any = namedtuple
    base = make(name, names, rename=True)
    cls: Any = type(name, (base,), {"__slots__": (), "_fields": names, "__reduce__": reduce_tuple})
    return cls(*types)


def is_plain(value: object) -> bool:
    """Whether a value can be written as a literal."""
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return type(value) in {type(None), bool, int, float, str, bytes}
    if type(value) in {tuple, list}:
        return all(map(is_plain, value))  # type: ignore[call-overload]
    return type(value) is dict and all(is_plain(k) and is_plain(v) for k, v in value.items())


def literal(value: object) -> str:
    """Return a plain value as an expression; infinities and NaN become ``float`` calls."""
    match value:
        case float() if not math.isfinite(value):
            return f'float("{value}")'
        case tuple():
            return f"({', '.join(map(literal, value))}{',' if len(value) == 1 else ''})"
        case list():
            return f"[{', '.join(map(literal, value))}]"
        case dict():
            return f"{{{', '.join(f'{literal(k)}: {literal(v)}' for k, v in value.items())}}}"
        case str():
            plain = repr(value)  # in double quotes where that needs no more escapes
            return f'"{plain[1:-1]}"' if plain[0] == "'" and '"' not in value else plain
        case _:
            return repr(value)


def docstring(text: str) -> str:
    """Return a text as a docstring literal, with any quotes and backslashes escaped."""
    safe = text.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    if safe.endswith('"'):
        safe = f'{safe[:-1]}\\"'
    return f'"""{safe}"""'
