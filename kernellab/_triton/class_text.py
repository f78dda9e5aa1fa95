"""Classes as class statements: enums, named tuples, dataclasses, aggregates of Triton, and others.

Python keeps the source of functions, not of classes. Computed values of a body (`auto()`, a default out of a variable)
are written as their results.
"""

from __future__ import annotations

import builtins
import collections
import dataclasses
import enum
import functools
import inspect
import keyword
import math
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

import triton
import triton.language as tl
from triton.runtime.jit import JITCallable

from kernellab._triton.kernel import names_of, whole_definition
from kernellab.source.text import CannotTake, is_named_tuple

_OF_EVERY_CLASS = frozenset(
    {
        *("__module__", "__qualname__", "__doc__", "__dict__", "__weakref__", "__annotations__", "__annotate__"),
        *("__annotate_func__", "__annotations_cache__", "__firstlineno__", "__static_attributes__", "__orig_bases__"),
        *("__parameters__", "__abstractmethods__", "_abc_impl", "__classcell__", "__match_args__", "__slotnames__"),
    }
)
_OF_DATACLASSES = frozenset(
    {
        *("__dataclass_fields__", "__dataclass_params__", "__slots__", "__init__", "__repr__", "__eq__", "__lt__"),
        *("__le__", "__gt__", "__ge__", "__hash__", "__setattr__", "__delattr__", "__getstate__", "__setstate__"),
        "__replace__",
    }
)


@dataclass(slots=True)
class ClassText:
    """A class statement under construction, with the values of the names in it."""

    cls: type
    lines: list[str] = field(default_factory=list)
    names: dict[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The statement as a whole."""
        return "".join(f"{line}\n" if line else "\n" for line in self.lines)

    def name(self, value: Any, wanted: str) -> str:
        """A name for a value: ``wanted``, with underscores if that is taken."""
        if getattr(builtins, wanted, self) is value and wanted not in self.names:
            return wanted
        while wanted == self.cls.__name__ or (wanted in self.names and self.names[wanted] is not value):
            wanted += "_"
        self.names[wanted] = value
        return wanted

    def expression(self, value: Any, name: str) -> str:
        """The literal of a value where it has one, else a name for it."""
        return repr(value) if _has_literal(value) else self.name(value, f"{self.cls.__name__}_{name}".strip("_"))

    def body(self, text: str) -> None:
        """Add lines of the body."""
        self.lines += textwrap.indent(text, "    ").splitlines()


def _has_literal(value: object) -> bool:
    if type(value) in {tuple, list}:
        return all(map(_has_literal, value))  # type: ignore[call-overload]
    finite = type(value) is float and math.isfinite(value)
    return finite or type(value) in {bool, int, str, bytes, type(None)}


def class_text(cls: type) -> ClassText:
    """The statement of a class: an enum, a named tuple, a dataclass, an aggregate, or a plain class.

    Raises:
        CannotTake: the class cannot be written down: a method has no source, or makes the members of an enum.
        SourceError: the source of a method cannot be found.
    """
    written = ClassText(cls)
    attributes = {name: value for name, value in vars(cls).items() if name not in _OF_EVERY_CLASS}
    methods = {name: value for name, value in attributes.items() if _is_written(cls, name, value)}
    texts = [_method(written, method) for method in methods.values()]
    others = {name: value for name, value in attributes.items() if name not in methods}
    if issubclass(cls, enum.Enum):
        _enum(written, others)
    elif is_named_tuple(cls):
        _named_tuple(written, others)
    elif getattr(cls, "__triton_aggregate__", False):
        _aggregate(written)
    elif "__dataclass_fields__" in vars(cls):
        _dataclass(written, others)
    else:
        _head(written, cls.__bases__)
        _assign(written, others)
    if cls.__qualname__ != cls.__name__:
        written.body(f"__qualname__ = {cls.__qualname__!r}")
    for text in texts:
        written.body(text)
    if written.lines[-1].startswith("class "):
        written.body("pass")
    return written


def _head(written: ClassText, bases: tuple[type, ...], **keywords: Any) -> None:
    cls = written.cls
    parts = [written.name(base, base.__name__) for base in bases if base is not object]
    if type(cls) is not type and all(type(base) is not type(cls) for base in bases):
        keywords["metaclass"] = type(cls)
    parts += [f"{name}={written.name(value, f'{cls.__name__}_{name}')}" for name, value in keywords.items()]
    written.lines.append(f"class {cls.__name__}({', '.join(parts)}):" if parts else f"class {cls.__name__}:")


def _assign(written: ClassText, attributes: Mapping[str, Any]) -> None:
    for name, value in attributes.items():
        if name in getattr(written.cls, "__slots__", ()) or (name == "__hash__" and value is None):
            continue
        if written.cls in type(value).__mro__:  # an instance cannot precede its class; protocols refuse isinstance
            continue
        written.body(f"{name} = {written.expression(value, name)}")


def _enum(written: ClassText, attributes: Mapping[str, Any]) -> None:
    cls: Any = written.cls
    if isinstance(vars(cls).get("__new_member__"), FunctionType):
        raise CannotTake("its __new__ makes its members; define the class in a module that can be imported")
    if bad := [name for name in cls.__members__ if not name.isidentifier() or keyword.iskeyword(name)]:
        raise CannotTake(f"its member {bad[0]!r} has a name that cannot be written")
    boundary = {"boundary": cls._boundary_} if issubclass(cls, enum.Flag) else {}
    _head(written, cls.__bases__, **boundary)
    for name, member in cls.__members__.items():
        written.body(f"{name} = {written.expression(member.value, name)}")
    for name, value in attributes.items():
        if not (name in cls.__members__ or name.startswith("_") or isinstance(value, cls | enum.property)):
            written.body(f"{name} = {written.name(enum.nonmember, 'nonmember')}({written.expression(value, name)})")


def _named_tuple(written: ClassText, attributes: Mapping[str, Any]) -> None:
    cls: Any = written.cls
    if cls.__bases__ != (tuple,):
        _head(written, cls.__bases__)
        _assign(written, attributes)
        return
    base = written.name(collections.namedtuple, "namedtuple")
    arguments = f"{cls.__name__!r}, {cls._fields!r}"
    if defaults := tuple(cls._field_defaults.values()):
        arguments += f", defaults={written.name(defaults, f'{cls.__name__}_defaults')}"
    written.lines.append(f"class {cls.__name__}({base}({arguments})):")
    written.body("__slots__ = ()")
    _assign(written, {n: v for n, v in attributes.items() if n not in cls._fields and not n.startswith("_")})


def _dataclass(written: ClassText, attributes: Mapping[str, Any]) -> None:
    cls: Any = written.cls
    usual = {"init": True, "repr": True, "eq": True, "order": False, "frozen": False, "unsafe_hash": False}
    arguments = ", ".join([*_unusual(cls.__dataclass_params__, usual), *["slots=True"] * ("__slots__" in vars(cls))])
    written.lines.append(f"@{written.name(dataclasses.dataclass, 'dataclass')}{f'({arguments})' if arguments else ''}")
    _head(written, cls.__bases__)
    own = [member for member in dataclasses.fields(cls) if member.name in inspect.get_annotations(cls)]
    for member in own:
        written.body(f"{member.name}: object{_default(written, member)}")
    names = {member.name for member in own}
    _assign(written, {n: v for n, v in attributes.items() if n not in names and n not in _OF_DATACLASSES})


def _unusual(owner: object, usual: Mapping[str, object]) -> list[str]:
    """The attributes of an object that differ from the usual ones, as arguments."""
    return [f"{name}={getattr(owner, name)}" for name, value in usual.items() if getattr(owner, name) != value]


def _default(written: ClassText, member: dataclasses.Field[Any]) -> str:
    usual = {"init": True, "repr": True, "compare": True, "hash": None, "kw_only": False}
    arguments = _unusual(member, usual)
    default = None
    if member.default is not dataclasses.MISSING:
        default = written.expression(member.default, member.name)
    elif member.default_factory is not dataclasses.MISSING:
        factory = written.name(member.default_factory, f"{written.cls.__name__}_{member.name}")
        arguments.append(f"default_factory={factory}")
    if not arguments:
        return "" if default is None else f" = {default}"
    arguments += [] if default is None else [f"default={default}"]
    return f" = {written.name(dataclasses.field, 'field')}({', '.join(arguments)})"


def _aggregate(written: ClassText) -> None:
    """Write a class made by `triton.language.core._aggregate`, which is a copy of the user's."""
    cls: Any = written.cls
    decorator = getattr(triton, "aggregate", None) or tl.core._aggregate
    written.lines.append(f"@{written.name(decorator, 'aggregate')}")
    written.lines.append(f"class {cls.__name__}:")
    defaults = getattr(cls, "__aggregate_defaults__", {})
    for name, kind in cls.__annotations__.items():
        default = f" = {written.expression(defaults[name], name)}" if name in defaults else ""
        written.body(f"{name}: {written.name(kind, kind.__name__)}{default}")
    init = cls.hash_attrs[0]  # the user's ``__init__``, or Triton's
    if not getattr(init, "__triton_builtin__", False) and init is not object.__init__:
        written.body(_method(written, init))


def _is_written(cls: type, name: str, value: Any) -> bool:
    """Whether an attribute is a function, or a descriptor of functions, written in the body of the class."""
    functions = _functions(value)
    if getattr(cls, "__triton_aggregate__", False):  # a class of Triton's, with the methods of the user's and its bases
        return bool(functions) and not any("<locals>.aggregate_value" in f.__qualname__ for f in functions)
    own = f"{cls.__qualname__}.{name}"
    return bool(functions) and all(f.__qualname__ == own and not _is_generated(f) for f in functions)


def _is_generated(function: FunctionType) -> bool:
    """Whether `dataclasses` or `collections.namedtuple` generated a function."""
    made_by = str(function.__globals__.get("__name__"))
    return function.__code__.co_filename == "<string>" or made_by.startswith(("dataclasses", "reprlib", "namedtuple_"))


def _functions(value: Any) -> list[FunctionType]:
    """The Python functions in a descriptor of a class."""
    match value:
        case FunctionType():
            return [value]
        case staticmethod() | classmethod():
            return _functions(value.__func__)
        case property():
            return [f for f in (value.fget, value.fset, value.fdel) if isinstance(f, FunctionType)]
        case functools.cached_property():
            return _functions(value.func)
        case _:
            return [value.fn] if isinstance(value, JITCallable) else []


def _method(written: ClassText, value: Any) -> str:
    """The text of a method with its decorators; its global names are added to ``written``."""
    parts = []
    for function in _functions(value):
        text, node = whole_definition(value if getattr(value, "fn", None) is function else function)
        parts.append(text)
        for name, used in names_of(function, node).items():
            if written.names.setdefault(name, used) is not used:
                raise CannotTake(f"its methods mean different things by {name}")
    return "".join(parts)
