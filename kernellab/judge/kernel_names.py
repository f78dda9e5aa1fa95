"""The names that a kernel takes from outside: what each leads to, as far as a judge runs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from kernellab._triton.language_names import LanguageName, language_name
from kernellab.source import (
    Binding,
    Call,
    Constant,
    Constexpr,
    Dtype,
    Function,
    FunctionRef,
    Helper,
    Import,
    Items,
    Members,
    Opaque,
)

Rule = Literal["host_code", "inline_assembly", "unknown_name", "outside_library", "unsupported", "too_large"]
"""The rules that a kernel's text can break."""

RUNNABLE_KINDS = frozenset({"jit", "gluon", "constexpr_function"})
_NUMBERS_OF_MATH = frozenset({"e", "inf", "nan", "pi", "tau"})
_KIND_WORDS = {"python": "a Python function", "lambda": "a lambda", "class": "a Python class"}


@dataclass(frozen=True, slots=True)
class Meaning:
    """The kind of a name, or ``refused`` with the rule and the rest of a sentence about it.

    ``python`` is a builtin of Python. ``name`` is the name of a builtin, of Triton's language or of Python.
    """

    kind: Literal["module", "jit", "builtin", "class", "type", "value", "python", "refused"]
    rule: Rule = "host_code"
    reason: str = ""
    name: str = ""


_VALUE = Meaning("value")


@dataclass(frozen=True, slots=True)
class NamesOfKernel:
    """The bindings of one function of a closure with ``functions``; ``loaded`` are the names that its code reads."""

    bindings: Mapping[str, Binding]
    functions: tuple[Function, ...]
    loaded: frozenset[str] = frozenset()

    def meaning(self, name: str, attributes: tuple[str, ...]) -> tuple[Meaning, int]:
        """Return the meaning of a bound name with attributes, and the number of attributes that belong to the name."""
        return meaning_of(self.bindings[name], attributes, self.functions)

    def is_loaded(self, name: str) -> bool:
        """Whether code reads the name, beyond annotations of parameters."""
        return name in self.loaded

    def integer(self, name: str) -> int | None:
        """Return the whole number that a name is bound to, or None."""
        binding = self.bindings.get(name)
        while isinstance(binding, Constexpr):
            binding = binding.inner
        is_integer = isinstance(binding, Constant) and isinstance(binding.value, int)
        return int(binding.value) if is_integer and isinstance(binding, Constant) else None  # type: ignore[call-overload]


def meaning_of(binding: Binding, attributes: tuple[str, ...], functions: tuple[Function, ...]) -> tuple[Meaning, int]:
    """Return the meaning of a binding with attributes, and the number of attributes that belong to the name."""
    match binding:
        case Constant() | Dtype():
            return _VALUE, 0
        case Constexpr(inner):
            meaning, used = meaning_of(inner, attributes, functions)
            is_value = meaning.kind in {"value", "jit", "refused"}
            return (meaning, used) if is_value else (_refusal("host_code", "is a constexpr of a Python object"), 0)
        case FunctionRef(index) | Helper(_, FunctionRef(index)):
            return _function(functions[index]), 0
        case Import("math"):
            return _number_of_math(binding, attributes)
        case Import(module, attribute):
            return _import(module, tuple(filter(None, attribute.split("."))), attributes)
        case Members(module, members):
            return _member(module, dict(members), attributes, functions)
        case Items(_, members):
            meanings = (meaning_of(member, (), functions)[0] for member in members)
            return next((m if m.kind == "refused" else _UNUSABLE for m in meanings if m.kind not in _KEPT), _VALUE), 0
        case Call():
            return _refusal("host_code", "is an object that Python code makes"), 0
        case Opaque(kind, _):
            return _refusal("host_code", f"is a {kind}, an object of the host"), 0
    return _UNUSABLE, 0


_KEPT = frozenset({"value", "jit"})


def _refusal(rule: Rule, reason: str) -> Meaning:
    return Meaning("refused", rule, reason)


_UNUSABLE = _refusal("host_code", "holds what is not a value of Triton's language")


def _function(function: Function) -> Meaning:
    if function.kind in RUNNABLE_KINDS:
        return Meaning("jit")
    return _refusal("host_code", f"is {_KIND_WORDS.get(function.kind, function.kind)}, not a kernel of Triton")


def _number_of_math(binding: Import, attributes: tuple[str, ...]) -> tuple[Meaning, int]:
    own = tuple(filter(None, binding.attribute.split(".")))
    names = (*own, *attributes)
    if not names:
        return Meaning("module"), 0
    if names[0] in _NUMBERS_OF_MATH:
        return _VALUE, 1 - len(own)
    reason = "is of Python's math, of which a kernel takes only numbers, such as math.pi"
    return _refusal("outside_library", reason), len(attributes)


def _import(module: str, own: tuple[str, ...], attributes: tuple[str, ...]) -> tuple[Meaning, int]:
    names = (*own, *attributes)
    target = language_name(module, names)
    if not isinstance(target, LanguageName):
        return _refusal(target.rule, target.reason), len(attributes)
    if target.used < len(own):
        return _UNUSABLE, 0
    return Meaning(target.kind, name=names[target.used - 1] if target.used else ""), target.used - len(own)


def _member(
    module: str, members: Mapping[str, Binding], attributes: tuple[str, ...], functions: tuple[Function, ...]
) -> tuple[Meaning, int]:
    if not attributes:
        return Meaning("module"), 0
    if attributes[0] not in members:
        return _refusal("outside_library", f"is not of Triton's language, but of {module}"), len(attributes)
    meaning, used = meaning_of(members[attributes[0]], attributes[1:], functions)
    return meaning, used + 1
