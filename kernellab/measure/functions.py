"""What the user gives to be computed with: functions, called with what they take by name, and expressions."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from typing import Any

from kernellab.errors import UsageError


def taken_by(function: Any) -> list[str]:
    """Return the names that a function takes; of None, nothing."""
    if function is None:
        return []
    kinds = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    return [name for name, each in _parameters_of(function).items() if each.kind not in kinds]


def called(function: Any, available: Mapping[str, Any], what: str, owner: str = "there are") -> Any:
    """Call a function of the user with what it takes by name; what has a default need not be there.

    Raises:
        UsageError: it takes something else.
    """
    require_names(function, available, what, owner)
    return function(**taken_of(function, available))


def require_names(function: Any, available: Mapping[str, Any], what: str, owner: str = "there are") -> None:
    """Raise where a function of the user takes by name what is not there; ``owner`` has what is: the kernel has.

    Raises:
        UsageError: it does, or does not tell what it takes.
    """
    missing = [name for name in required_by(function) if name not in available]
    if missing:
        raise UsageError(f"{what} takes {', '.join(missing)}; {owner} {', '.join(available)}.")


def taken_of(function: Any, available: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of some values that a function takes by name."""
    taken = taken_by(function)
    return {name: value for name, value in available.items() if name in taken or takes_all(function)}


def required_by(function: Any) -> list[str]:
    """Return the names that a function takes and has no default for."""
    parameters = _parameters_of(function)
    return [name for name in taken_by(function) if parameters[name].default is inspect.Parameter.empty]


def takes_all(function: Any) -> bool:
    """Tell whether a function takes whatever it is given by name."""
    return function is not None and any(
        each.kind is inspect.Parameter.VAR_KEYWORD for each in _parameters_of(function).values()
    )


def _parameters_of(function: Any) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError) as exc:
        name = getattr(function, "__name__", "function")
        raise UsageError(f"{function!r} does not tell what it takes; wrap it: lambda x: {name}(x).") from exc


def no_python(text: str, exc: SyntaxError, how: str = "", option: str = "") -> UsageError:
    """Return the error of a text that Python cannot read, in terms of what the user wrote, without what wraps it."""
    reason = exc.msg
    try:
        ast.parse(text.strip())
    except SyntaxError as own:
        reason = own.msg
    named = f"{option} {text!r}".lstrip()
    return UsageError(f"{named} is not valid Python: {reason.partition('. ')[0]}{how and f'; {how}'}.")
