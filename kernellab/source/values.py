"""Values as Python source: literals, and for others the call that makes them again, which can be read as data."""

from __future__ import annotations

import dataclasses
import math
import sys
from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

_LARGEST = 1 << 16  # bytes of one value; what is larger is data, and belongs into a tensor
_IS_DATA = "it holds data, which a parameter without tl.constexpr takes as a tensor"


class CannotTake(Exception):
    """A value that another process cannot have; the text says why."""


@dataclass(frozen=True, slots=True)
class Reduced:
    """A value as a call: ``function(*arguments)``, then ``state``. ``has_identity``: it equals nothing but itself."""

    function: Any
    arguments: tuple[Any, ...]
    state: Any = None
    has_identity: bool = False


def reduced(value: Any) -> Reduced | str:
    """Return how a value is made again, or the name under which its module holds it.

    Follows the protocol of `object.__reduce_ex__`. Members of enums, named tuples, dataclasses and numpy's numbers
    get the call that a person would write.

    Raises:
        CannotTake: nothing makes it again, as of a file that is open.
    """
    if isinstance(value, Enum):
        cls = type(value)
        is_member = cls.__members__.get(value.name or "") is value
        return Reduced(getattr, (cls, value.name)) if is_member else Reduced(cls, (value.value,))
    if is_named_tuple(type(value)):
        return Reduced(type(value), tuple(value))
    if (fields := _init_fields(value)) is not None:
        return Reduced(type(value), fields, has_identity=_has_identity(value))
    if _is_numpy_number(value):
        return Reduced(type(value), (value.item(),))
    if type(value) is object:
        raise CannotTake("")
    if hasattr(value, "data_ptr") or hasattr(value, "__array_interface__") or hasattr(value, "__dataframe__"):
        raise CannotTake(_IS_DATA)
    return _by_protocol(value)


def _by_protocol(value: Any) -> Reduced | str:
    try:
        found: Any = value.__reduce_ex__(4)  # whatever its class raises, there is no other way
    except Exception as exc:
        raise CannotTake(str(exc) or type(exc).__name__) from exc
    if isinstance(found, str):
        return found
    padded: list[Any] = [*found, None, None, None]
    function, arguments, state, *more = padded
    if any(part is not None for part in more):
        raise CannotTake("it holds other values in a way that is not known")
    if any(isinstance(part, bytes | bytearray) and len(part) > _LARGEST for part in (*arguments, state)):
        raise CannotTake(_IS_DATA)
    return Reduced(function, tuple(arguments), state, _has_identity(value))


def _has_identity(value: Any) -> bool:
    """Tell whether a value equals nothing but itself."""
    equals: Any = type(value).__eq__
    return equals is object.__eq__


def made(function: Callable[..., Any], arguments: tuple[Any, ...], state: Any) -> Any:
    """Return what `reduced` described."""
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
    """Tell whether a class is a tuple with named fields."""
    return issubclass(cls, tuple) and isinstance(getattr(cls, "_fields", None), tuple)


def _init_fields(value: Any) -> tuple[Any, ...] | None:
    """Return what a dataclass is to be called with; None where its fields are not all that its ``__init__`` sets."""
    cls = type(value)
    if not dataclasses.is_dataclass(cls) or not cls.__dataclass_params__.init:  # type: ignore[attr-defined]
        return None
    fields = dataclasses.fields(cls)
    names = [each.name for each in fields if each.init and not each.kw_only]
    is_plain = cls.__init__.__code__.co_filename == "<string>" and len(names) == len(fields)
    if not is_plain or set(getattr(value, "__dict__", names)) - set(names):
        return None
    found = tuple(getattr(value, name) for name in names)
    return found if not hasattr(cls, "__post_init__") or _is_made_by(cls, found, value) else None


def _is_made_by(cls: Any, fields: tuple[Any, ...], value: Any) -> bool:
    """Tell whether a frozen dataclass, as a layout of Gluon is, checks its fields and leaves them as they are."""
    if not (cls.__dataclass_params__.frozen and cls.__dataclass_params__.eq):
        return False
    try:
        return bool(cls(*fields) == value)
    except (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError):
        return False


def _is_numpy_number(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    if numpy is None or not isinstance(value, numpy.number | numpy.bool_):
        return False
    return type(value.item()) in {bool, int, float, complex}


def portable_type(kind: Any) -> Any:
    """Return Triton's type of an argument so that every process can read it: that of a named tuple is a class."""
    if not isinstance(kind, tuple):
        return kind
    items = tuple(map(portable_type, kind))
    names = vars(type(kind)).get("_fields")  # Triton looks no further
    return items if names is None else _named_types(type(kind).__name__, names, items)


def _named_types(name: str, names: tuple[str, ...], types: tuple[Any, ...]) -> Any:
    def pickled(kind: tuple[Any, ...]) -> tuple[Any, ...]:
        return _named_types, (name, names, tuple(kind))

    make: Any = namedtuple
    cls: Any = type(name, (make(name, names, rename=True),), {"__slots__": (), "_fields": names, "__reduce__": pickled})
    return cls(*types)


def is_plain(value: object) -> bool:
    """Tell whether a value can be written down as a literal."""
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return type(value) in {type(None), bool, int, float, str, bytes}
    if type(value) in {tuple, list}:
        return all(map(is_plain, value))  # type: ignore[call-overload]
    return type(value) is dict and all(is_plain(k) and is_plain(v) for k, v in value.items())


def literal(value: object) -> str:
    """Return a plain value as an expression; infinities and NaN have no literal of their own."""
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
            return quoted(value)
        case _:
            return repr(value)


def quoted(text: str) -> str:
    """Return a string literal in double quotes where that needs no more escapes."""
    plain = repr(text)
    return f'"{plain[1:-1]}"' if plain[0] == "'" and '"' not in text else plain


def docstring(text: str) -> str:
    """Return a text as a docstring of its own, whatever quotes and backslashes it holds."""
    safe = text.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    if safe.endswith('"'):
        safe = f'{safe[:-1]}\\"'
    return f'"""{safe}"""'
