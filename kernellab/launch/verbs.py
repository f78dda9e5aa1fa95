"""Checks of calls to the public verbs.

`verb` stands before each of them: a call that does not fit its signature, or an option with a wrong value, is a
`UsageError` before anything happens, worded the same everywhere. An option that has the name of a parameter of the
kernel, and holds what only the kernel can take, goes to the kernel.
"""

from __future__ import annotations

import functools
import inspect
import math
import numbers
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, TypeGuard, TypeVar, cast

from kernellab._triton.kernel import Kernel, is_kernel, parameter_names, pass_by_position
from kernellab.errors import UsageError, value_message
from kernellab.target import Target

_Verb = TypeVar("_Verb", bound=Callable[..., Any])
_Class = TypeVar("_Class", bound=type)
_LONGEST_PATH, _LONGEST_NAME = 4096, 255
_LONGEST_S = 1_000_000  # poll(2) counts milliseconds in 32 bits


@dataclass(frozen=True, slots=True)
class CallRule:
    """The check of an option: ``allows`` tests a value, ``expected`` words it for errors."""

    expected: str
    allows: Callable[[Any], bool]


def is_number(value: object) -> bool:
    """Whether a value is a finite real number; True and False are none."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool) and math.isfinite(value)


def _is_path(value: object) -> bool:
    names = os.fsencode(value).split(os.fsencode(os.sep)) if _may_be_path(value) else []
    return bool(names) and sum(map(len, names)) + len(names) <= _LONGEST_PATH and max(map(len, names)) <= _LONGEST_NAME


def _may_be_path(value: object) -> TypeGuard[str | os.PathLike[str]]:
    return isinstance(value, str | os.PathLike) and bool(str(value)) and "\0" not in str(value)


def _has_configs(value: object) -> bool:
    is_one = hasattr(value, "all_kwargs") or hasattr(value, "to_triton")
    return is_one or (
        isinstance(value, Iterable) and not isinstance(value, str | bytes) and not hasattr(value, "dtype")
    )


def _has_names(value: object) -> bool:
    return isinstance(value, list | tuple | set | frozenset) and all(isinstance(name, str) for name in value)


def _is_executor(value: Any) -> bool:
    """Whether a value runs calls elsewhere: an executor, or a client or view of ipyparallel."""
    return any(callable(getattr(value, name, None)) for name in ("submit", "apply_async", "load_balanced_view"))


_FLAG = CallRule("True or False", lambda value: isinstance(value, bool))
_TARGET = CallRule("a target, such as 'cuda:90'", lambda value: isinstance(value, str | Target) and bool(value))
_FORMULA = CallRule("a number or a function", lambda value: is_number(value) or callable(value))
_CONDITION = CallRule("an expression or a function", lambda value: isinstance(value, str) or callable(value))
_SECONDS = CallRule(
    f"a positive number of seconds, {_LONGEST_S:,} at most", lambda value: is_number(value) and 0 < value <= _LONGEST_S
)
_COUNT = CallRule(
    "a positive number (an integer)", lambda v: isinstance(v, numbers.Integral) and is_number(v) and 0 < int(v) < 2**63
)
_PATH = CallRule("the path of a file or folder", _is_path)
_KEPT = CallRule(
    "a name, name@version or id", lambda value: isinstance(value, str | int) and not isinstance(value, bool)
)
_TEXT = CallRule("a text", lambda value: isinstance(value, str))
_RULES = {
    **dict.fromkeys(("argument", "kind", "name", "opened", "table", "view"), _TEXT),
    **dict.fromkeys(("budget_configs", "max_configs", "max_programs", "rounds"), _COUNT),
    **dict.fromkeys(("budget_s", "timeout_s"), _SECONDS),
    **dict.fromkeys(("bytes", "flops"), _FORMULA),
    **dict.fromkeys(("path", "python", "to"), _PATH),
    "check": CallRule(_CONDITION.expected, lambda value: _CONDITION.allows(value) or hasattr(value, "require")),
    "closure": CallRule("what a kernel was at a launch", lambda value: value is None or hasattr(value, "functions")),
    "configs": CallRule("a list of triton.Config, or a Space: Space(BLOCK=[64, 128])", _has_configs),
    "devices": CallRule(
        "a list of GPU numbers, such as [0, 1]",
        lambda value: isinstance(value, list | tuple | range) and all(type(number) is int for number in value),
    ),
    "effects": CallRule("what lab.effects returns", lambda value: hasattr(value, "sites")),
    "executor": CallRule("a concurrent.futures.Executor, or a client of dask or ipyparallel", _is_executor),
    "inputs": CallRule("a function of swept names: lambda n: dict(x=torch.rand(n), n=n)", callable),
    "from_version": CallRule("a version of Triton, such as '3.6.0'", lambda value: isinstance(value, str)),
    "function": CallRule("a function", callable),
    "kernels": CallRule("a list of names, such as ['add_kernel']", _has_names),
    "left": _KEPT,
    "margin": CallRule("a share, such as 0.03 for 3 %", lambda value: is_number(value) and 0 <= value < 1),
    "namespace": CallRule("a dict, such as globals()", lambda value: isinstance(value, dict)),
    "outputs": CallRule("a list of argument names, such as ['out_ptr']", _has_names),
    "others": CallRule("a list of dispatches, or of paths of tables", lambda value: isinstance(value, list | tuple)),
    "right": CallRule(f"{_KEPT.expected}, or a function", lambda value: _KEPT.allows(value) or callable(value)),
    "search": CallRule("a name, or an object with ask and tell", lambda v: isinstance(v, str) or hasattr(v, "ask")),
    "store": CallRule("the path of a folder", _may_be_path),  # of a name too long, the store itself says so
    "target": _TARGET,
    "uninitialised": CallRule("a list of names, such as ['out_ptr']", _has_names),
    "version": CallRule("a version, as lab.kernels.version(name) returns", lambda value: hasattr(value, "closure")),
    "where": _CONDITION,
}  # fmt: skip
_OWNERS = {"Lab": "lab", "LooksInside": "lab", "Workspace": "lab", "Launches": "lab", "Registry": "lab.kernels"}


def verbs(owner: _Class) -> _Class:
    """Make each public method of a class a `verb`."""
    for name, member in list(vars(owner).items()):
        if inspect.isfunction(member) and (name == "__init__" or not name.startswith("_")):
            setattr(owner, name, verb(member))
    return owner


def verb(function: _Verb, label: str = "", own: Mapping[str, CallRule] | None = None) -> _Verb:
    """Return a public function or method that checks how it is called.

    What a parameter may hold goes by its name, which means the same for all verbs, but for what ``own`` says; one whose
    default is None may be None, one whose default is a truth value holds such. Of a verb that takes a kernel and its
    arguments, a keyword that cannot be the verb's goes to the kernel's parameter of that name, if there is one. The
    verb then raises `UsageError` for a call that does not fit, which calls it by its ``label``.
    """
    signature = inspect.signature(function)
    known = {**_RULES, **(own or {})}
    rules = {
        name: rule
        for name, parameter in signature.parameters.items()
        if (rule := _rule_of(parameter, known)) is not None
    }
    of_kernel = {"kernel", "args"} <= set(signature.parameters)
    label = label or _label_of(function)

    @functools.wraps(function)
    def checked_verb(*args: Any, **named: Any) -> Any:
        __tracebackhide__ = True
        if of_kernel and len(args) > 1:
            misplaced = [name for name, rule in rules.items() if name in named and not rule.allows(named[name])]
            args, named = _with_kernel_arguments(signature, args, named, misplaced)
            _require_own_names(signature, label, args[1], named)
        for name, value in _bound_arguments(signature, label, args, named).items():
            if name in rules and not rules[name].allows(value):
                raise UsageError(value_message(name, value, rules[name].expected))
        return function(*args, **named)

    return cast(_Verb, checked_verb)


def _rule_of(parameter: inspect.Parameter, known: Mapping[str, CallRule]) -> CallRule | None:
    rule = _FLAG if isinstance(parameter.default, bool) else known.get(parameter.name)
    if rule is None or parameter.default is not None:
        return rule
    return CallRule(rule.expected, lambda value: value is None or rule.allows(value))


def _label_of(function: Callable[..., Any]) -> str:
    """The name of a verb in messages: ``lab.run``."""
    owner, _, name = function.__qualname__.rpartition(".")
    return "kernellab.Lab" if name == "__init__" else f"{_OWNERS.get(owner, 'kernellab')}.{name}"


def _bound_arguments(
    signature: inspect.Signature, label: str, args: tuple[Any, ...], named: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments of a call by parameter; raises `UsageError` if it does not fit the signature."""
    try:
        bound = signature.bind(*args, **named)
    except TypeError as exc:
        untyped = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in signature.parameters.values()]
        shown = inspect.Signature([parameter for parameter in untyped if parameter.name != "self"])
        raise UsageError(f"{label}: {exc}; it is called as {label}{shown}.") from exc
    return bound.arguments


def _with_kernel_arguments(
    signature: inspect.Signature, args: tuple[Any, ...], named: dict[str, Any], misplaced: list[str]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The call with ``misplaced`` keywords passed to the kernel, by position, if it has such parameters."""
    before = list(signature.parameters).index("args")
    kernel = args[1]
    if not misplaced or not is_kernel(kernel):
        return args, named
    reserved = {name for name in misplaced if name in parameter_names(kernel)}
    positional, rest = pass_by_position(kernel, args[before:], named, reserved)
    return (*args[:before], *positional), rest


def _require_own_names(signature: inspect.Signature, label: str, kernel: Kernel, named: Mapping[str, Any]) -> None:
    """Raise `UsageError` for an unknown keyword that resembles one of the verb's."""
    own = [name for name, p in signature.parameters.items() if p.default is not inspect.Parameter.empty]
    for name in (name for name in named if name not in signature.parameters):
        near = get_close_matches(name, own, n=1, cutoff=0.85)
        if near and is_kernel(kernel) and name not in parameter_names(kernel):
            raise UsageError(f"{label} and the kernel have no parameter {name!r}; is {near[0]}= meant?")
