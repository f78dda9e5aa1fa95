"""A launch as text, ``kernel[grid](arguments)``, taken apart without launching."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kernellab.errors import UsageError


@dataclass(frozen=True, slots=True)
class LaunchText:
    """What a launch in the notebook says: kernel, grid, arguments by position and by name."""

    kernel: Any
    grid: Any
    args: tuple[Any, ...]
    meta: Mapping[str, Any]


def launch_of_text(text: str, namespace: Mapping[str, Any]) -> LaunchText:
    """Return the parts of a launch, evaluated in a namespace.

    Raises:
        UsageError: the text is no launch, or a part of it cannot be evaluated.
    """
    try:
        call = ast.parse(text.strip(), mode="eval").body
    except SyntaxError as exc:
        how = "write kernel[grid](arguments), and options that have spaces in quotes"
        raise UsageError(f"{text!r} is not valid Python: {exc.msg}; {how}.") from exc
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Subscript):
        raise UsageError(f"{text!r} is no launch; write kernel[grid](arguments).")
    taken = ast.Call(ast.Name("_kl_taken", ast.Load()), call.args, call.keywords)
    parts = ast.Expression(ast.Tuple([call.func.value, call.func.slice, taken], ast.Load()))
    kernel, grid, (args, meta) = evaluated(ast.fix_missing_locations(parts), text, namespace)
    return LaunchText(kernel, grid, args, meta)


def evaluated(source: str | ast.Expression, text: str, namespace: Mapping[str, Any]) -> Any:
    """Return the value of an expression of the user.

    Raises:
        UsageError: it raises.
    """
    try:
        return eval(compile(source, "<launch>", "eval"), {**namespace, "_kl_taken": lambda *a, **m: (a, m)})
    except Exception as exc:
        raise UsageError(f"{text!r} cannot be evaluated: {type(exc).__name__}: {exc}") from exc


def unquoted(text: str) -> str:
    """Drop the quotes that IPython's splitting keeps around an option's value."""
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text
