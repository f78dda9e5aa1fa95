"""Checks data of a store, a bundle or an import before it is used.

Such data is foreign. Its names, dtypes and modules are pasted into code, its texts are executed when their kernel is
launched, and its numbers become sizes. So all of it is checked here against the form that the lab itself writes.
"""

from __future__ import annotations

import ast
import json
import re
import types
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import is_dataclass
from enum import Enum
from functools import cache, lru_cache, partial
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from kernellab.errors import plural
from kernellab.source.model import (
    CONFIG_OPTIONS,
    JIT_KINDS,
    SCHEMA,
    Autotune,
    Binding,
    Closure,
    ConfigText,
    Constant,
    Dtype,
    Function,
    FunctionKind,
    FunctionRef,
    Helper,
    Heuristics,
    Import,
    JitOptions,
    Members,
    Wrapper,
    from_jsonable,
    parts,
)
from kernellab.source.text import is_name, is_plain, parse_python

TEXT_BYTES = 32 * 2**20
TEXT_VALUES = 2_000_000  # numbers, texts, lists and objects in one piece of JSON
_DEPTH = 100
_FUNCTIONS = 1_000
_LINES = 1_000_000
_INTEGERS = 2**63
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")  # escaped: of a pair, or alone
_UNENCODABLE = re.compile("[\0\ud800-\udfff]")

# `tl.dtype`
DTYPE_NAMES = frozenset(
    {
        *("void", "int1", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("fp8e4b15", "fp8e4nv", "fp8e4b8", "fp8e5", "fp8e5b16", "fp16", "bf16", "fp32", "fp64"),
    }
)
_JIT_OPTIONS = {"do_not_specialize", "do_not_specialize_on_alignment", "debug"}
_LISTS_OF_NAMES = {"reset_to_zero", "restore_value"}
_AUTOTUNE = {"pre_hook", "post_hook", "cache_results", "use_cuda_graph", "warmup", "rep", *_LISTS_OF_NAMES}
_PRUNING = {"early_config_prune", "perf_model", "top_k"}
Record = TypeVar("Record")
Readers = frozenset[tuple[Any, Callable[[Any], Any]]]  # keeps its hash
"""Annotations, each with the function that builds its values from JSON."""


class MalformedData(ValueError):
    """Foreign data of the wrong form. The message gives the place, the value and the expectation."""


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Turn any error of building a record from foreign data into `MalformedData`."""
    try:
        yield
    except MalformedData:
        raise
    except KeyError as exc:
        raise MalformedData(f"{what} lacks {exc}") from exc
    except (TypeError, ValueError, AttributeError, IndexError, ArithmeticError, RecursionError) as exc:
        raise MalformedData(f"{what} is malformed: {exc}") from exc


def require(condition: bool, where: str, value: object, expected: str) -> None:
    """Raise `MalformedData` unless the condition holds."""
    if not condition:
        shown = repr(value) if not isinstance(value, int) or abs(value) < _INTEGERS else "a huge number"
        raise MalformedData(f"{where} is {shown if len(shown) < 80 else f'{shown[:77]}...'}; expected {expected}")


def is_dotted(value: str) -> bool:
    """Whether a text consists of identifiers joined by dots."""
    return all(map(is_name, value.split(".")))


def parse_json(text: str, limit_bytes: int = TEXT_BYTES, limit_values: int = TEXT_VALUES) -> Any:
    """Parse a JSON text.

    Raises:
        MalformedData: invalid JSON, or larger or deeper than anything that the lab writes.
    """
    if len(text) > limit_bytes:
        raise MalformedData(f"it has {len(text):,} characters; expected no more than {limit_bytes:,}")
    if len(text) > limit_values and sum(map(text.count, ",[{")) > limit_values:
        raise MalformedData(f"it has more than {limit_values:,} values")
    try:
        value = json.loads(text)
    except RecursionError as exc:
        raise MalformedData(f"it is nested deeper than {_DEPTH} levels") from exc
    except ValueError as exc:
        raise MalformedData(f"it is not JSON: {exc}") from exc
    if _SURROGATE.search(text) and _UNENCODABLE.search(json.dumps(value, ensure_ascii=False)):
        raise MalformedData("it has a text that cannot be encoded")
    if text.count("[") + text.count("{") < _DEPTH:
        return value
    level = [value]
    for _ in range(_DEPTH):
        level = [m for v in level if isinstance(v, list | dict) for m in (v.values() if isinstance(v, dict) else v)]
        if not level:
            return value
    raise MalformedData(f"it is nested deeper than {_DEPTH} levels")


def record_of_json(cls: type[Record], fields: Mapping[str, Any], readers: Readers) -> Record:
    """Build a dataclass from its fields in JSON, by their annotations; fields that it lacks are left out.

    What no reader builds is not checked. `reading` turns the errors of readers into `MalformedData`.
    """
    builders = _builders_of(cls, readers)  # type: ignore[arg-type]
    known = {name: value for name, value in fields.items() if name in builders}
    return cls(**{name: value if (build := builders[name]) is None else build(value) for name, value in known.items()})


@cache
def _builders_of(cls: Hashable, readers: Readers) -> Mapping[str, Callable[[Any], Any] | None]:
    return {name: _builder_of(hint, readers) for name, hint in _hints_of(cls).items()}


def _builder_of(hint: Any, readers: Readers) -> Callable[[Any], Any] | None:
    """The function that builds a value of an annotation from JSON; None where JSON has the value itself."""
    origin, args, reader = get_origin(hint), get_args(hint), dict(readers).get(hint)
    if reader is not None or is_dataclass(hint):
        return reader or partial(record_of_json, hint, readers=readers)
    if origin is tuple or origin in (Union, types.UnionType):  # members of one type, or a type and None
        return partial(_list_of_json if origin is tuple else _optional_of_json, _builder_of(args[0], readers))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return partial(_object_of_json, _builder_of(args[1], readers))
    return hint if isinstance(hint, type) and issubclass(hint, Enum) else None


def _list_of_json(build: Callable[[Any], Any] | None, value: Any) -> tuple[Any, ...]:
    require(isinstance(value, list), "its field", value, "a list")
    return tuple(map(build, value) if build else value)


def _optional_of_json(build: Callable[[Any], Any] | None, value: Any) -> Any:
    return build(value) if build and value is not None else value


def _object_of_json(build: Callable[[Any], Any] | None, value: Any) -> dict[str, Any]:
    require(isinstance(value, dict), "its field", value, "an object")
    return {name: build(member) if build else member for name, member in value.items()}


@cache
def _hints_of(cls: Hashable) -> Mapping[str, Any]:
    return get_type_hints(cls)


def require_type(value: Any, hint: Any, where: str) -> None:
    """Raise `MalformedData` unless a value, with all its members, has the type of an annotation.

    Numbers must be finite and fit 64 bits; texts must be encodable.
    """
    _check_of(hint)(value, where)


@cache
def _check_of(hint: Any) -> Callable[[Any, str], None]:
    """Return the check of a value against an annotation, called with the value and its place."""
    origin, args = get_origin(hint), get_args(hint)
    if hint is Any or hint is object:
        return lambda value, where: None
    if origin in (Union, types.UnionType):
        return partial(_require_one_of, {get_origin(arg) or arg: arg for arg in reversed(args)})
    if origin is Literal:
        return lambda value, where: require(value in args, where, value, f"one of {', '.join(map(str, args))}")
    if origin is tuple:
        return partial(_require_members, args)
    if origin is not None and issubclass(origin, Mapping):
        return partial(_require_entries, args)
    return partial(_require_fields if is_dataclass(hint) else _require_scalar, hint)


def _require_one_of(hints: Mapping[Any, Any], value: Any, where: str) -> None:
    kind = float if type(value) is int and int not in hints else type(value)
    if kind not in hints:
        expected = " or ".join("nothing" if hint is types.NoneType else hint.__name__ for hint in reversed(hints))
        raise MalformedData(f"{where} is {str(value)[:60]!r}; expected {expected}")
    _check_of(hints[kind])(value, where)


def _require_members(hints: tuple[Any, ...], value: Any, where: str) -> None:
    require(isinstance(value, tuple), where, value, "a list")
    if hints[-1] is Ellipsis:
        hints = (hints[0],) * len(value)
    require(len(value) == len(hints), where, value, plural(len(hints), "member"))
    for index, (member, hint) in enumerate(zip(value, hints, strict=True)):
        _check_of(hint)(member, f"{where}[{index}]")


def _require_entries(hints: tuple[Any, ...], value: Any, where: str) -> None:
    require(isinstance(value, dict), where, value, "an object")
    check, name = _check_of(hints[0]), f"a name in {where}"
    for key in value:
        check(key, name)
    if hints[1] is Any:
        return
    check = _check_of(hints[1])
    for key, member in value.items():
        check(member, f"{where}[{key!r}]")


def _require_fields(cls: Any, value: Any, where: str) -> None:
    require(type(value) is cls, where, value, f"a {cls.__name__}")
    for name, check in _checks_of(cls):
        check(getattr(value, name), f"{where}.{name}")


@cache
def _checks_of(cls: Hashable) -> tuple[tuple[str, Callable[[Any, str], None]], ...]:
    return tuple((name, _check_of(hint)) for name, hint in _hints_of(cls).items())


def _require_scalar(hint: Any, value: Any, where: str) -> None:
    if hint is str and type(value) is str:
        require(_UNENCODABLE.search(value) is None, where, value, "a text that can be encoded")
    elif hint is float:
        require(type(value) in (int, float), where, value, "a number")
        require(-1e300 < value < 1e300, where, value, "a finite number")
    elif type(value) is not hint:
        require(False, where, value, f"a value of the type {getattr(hint, '__name__', hint)}")
    elif hint is int:
        require(-_INTEGERS <= value < _INTEGERS, where, value, "a number of 64 bits")


def closure_of_json(value: Any) -> Closure:
    """Build a closure from JSON.

    Raises:
        MalformedData: not a valid closure.
    """
    with reading("the closure"):
        schema = value["schema"]
        require(type(schema) is int and 1 <= schema <= SCHEMA, "the schema of the closure", schema, f"at most {SCHEMA}")
        closure: Closure = from_jsonable(value["closure"])
        require_closure(closure, "the closure")
        return closure


def require_closure(closure: Closure, where: str, *, of_kernel: bool = True) -> None:
    """Raise `MalformedData` for an invalid closure of a kernel, or of other values: with any functions, or none."""
    require_type(closure, Closure, where)
    count = len(closure.functions)
    least = int(of_kernel)
    require(least <= count <= _FUNCTIONS, f"the number of functions of {where}", count, f"{least} to {_FUNCTIONS}")
    if of_kernel:
        kind = closure.functions[0].kind
        require(kind in JIT_KINDS, f"the kind of {where}", kind, " or ".join(sorted(JIT_KINDS)))
    for index, function in enumerate(closure.functions):
        _require_function(function, count, f"function {index}")
    for wrapper in closure.wrappers:
        _require_wrapper(wrapper, count)


def _require_function(function: Function, count: int, where: str) -> None:
    is_lambda = function.kind == "lambda" and function.name == "<lambda>"
    require(is_lambda or is_name(function.name), f"the name of {where}", function.name, "an identifier")
    require(1 <= function.first_line <= _LINES, f"the line of {where}", function.first_line, f"1 to {_LINES:,}")
    problem = _problem_of_text(function.text, function.kind)
    if problem:
        raise MalformedData(f"the text of {where} {problem}")
    _require_bindings(function.bindings, count, where)


@lru_cache(maxsize=4096)
def _problem_of_text(text: str, kind: FunctionKind) -> str:
    """Return the reason why a text is not exactly one function or class, or ""."""
    wrapped = f"({text})" if kind == "lambda" else text
    try:
        body = parse_python(wrapped).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as exc:
        return f"is not Python: {exc}"
    node: Any = body[0] if len(body) == 1 else None
    if kind == "class":
        return "" if isinstance(node, ast.ClassDef) else "is not one class statement"
    if kind == "lambda":
        inner = node.value if isinstance(node, ast.Expr) else None
        is_lambda = isinstance(inner, ast.Lambda) and ast.get_source_segment(wrapped, inner) == text
        return "" if is_lambda else "is not a lambda"
    return "" if isinstance(node, ast.FunctionDef) and not node.decorator_list else "is not one bare def statement"


def _require_bindings(bindings: tuple[tuple[str, Binding], ...], count: int, where: str) -> None:
    for name, binding in bindings:
        require(is_name(name), f"a name in {where}", name, "an identifier")
        require_binding(binding, count, f"{name} of {where}")


def require_binding(binding: Binding, count: int, where: str) -> None:
    """Raise `MalformedData` for a binding that is invalid in a closure of ``count`` functions."""
    match binding:
        case Constant(value):
            require(is_plain(value), where, value, "a plain value")
        case Dtype(name):
            require(name in DTYPE_NAMES, f"the dtype of {where}", name, f"one of {', '.join(sorted(DTYPE_NAMES))}")
        case FunctionRef(index):
            require(0 <= index < count, f"the function of {where}", index, f"0 to {count - 1}")
        case Import(module, attribute):
            named = is_dotted(module) and (not attribute or is_dotted(attribute))
            require(named, f"the import of {where}", f"{module}:{attribute}", "dotted identifiers")
        case Helper(imported, function):
            kinds = (type(imported), type(function))
            require(kinds == (Import, FunctionRef), f"the helper of {where}", kinds, "an import and a function")
        case Members(module, members):
            is_module = re.fullmatch(r"[\w.<>-]+", module) is not None  # a loose file may be called my-kernels.py
            require(is_module, f"the module of {where}", module, "the name of a module")
            for name, _ in members:
                require(is_name(name), f"a name in {where}", name, "an identifier")
    for part in parts(binding):
        require_binding(part, count, where)


def _require_wrapper(wrapper: Wrapper, count: int) -> None:
    match wrapper:
        case JitOptions(options):
            _require_names([name for name, _ in options], _JIT_OPTIONS, "@triton.jit")
            for name, value in options:
                members = list(value) if isinstance(value, tuple | list) else [value]
                require(all(type(member) in (bool, int, str) for member in members), name, value, "names or numbers")
        case Heuristics(values):
            _require_bindings(values, count, "@triton.heuristics")
        case Autotune(configs, key, arguments, pruning):
            for config in configs:
                _require_config(config, count)
            require(all(map(is_name, key)), "the key of @triton.autotune", key, "identifiers")
            _require_names([name for name, _ in arguments], _AUTOTUNE, "@triton.autotune")
            _require_names([name for name, _ in pruning], _PRUNING, "prune_configs_by")
            _require_bindings((*arguments, *pruning), count, "@triton.autotune")
            for name, binding in arguments:
                if name in _LISTS_OF_NAMES:
                    names = binding.value if isinstance(binding, Constant) else None
                    is_list = isinstance(names, tuple | list) and all(map(is_name, names))
                    require(is_list, f"{name} of @triton.autotune", names, "a list of identifiers")


def _require_config(config: ConfigText, count: int) -> None:
    _require_bindings(config.parameters, count, "a config")
    _require_names([name for name, _ in config.options], set(CONFIG_OPTIONS), "a config")
    for name, value in config.options:
        is_option = value is None or type(value) is (str if name == "ir_override" else int)
        require(is_option, f"{name} of a config", value, "a number" if name != "ir_override" else "a path")
    if config.pre_hook is not None:
        require_binding(config.pre_hook, count, "pre_hook of a config")


def _require_names(names: list[str], known: set[str], where: str) -> None:
    for name in names:
        require(name in known, f"an argument of {where}", name, f"one of {', '.join(sorted(known))}")
