"""A launch as text, ``kernel[grid](arguments)``, taken apart without launching."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kernellab.errors import UsageError
from kernellab.measure.functions import no_python


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
    text = unquoted(text.strip())
    how = "write kernel[grid](arguments), and options that have spaces in quotes"
    if not text:
        raise UsageError("There is no launch; write kernel[grid](arguments).")
    try:
        call = ast.parse(text, mode="eval").body
    except SyntaxError as exc:
        raise no_python(text, exc, _options_first(text) or how) from exc
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Subscript):
        raise UsageError(f"{text!r} is no launch; {_options_first(text) or 'write kernel[grid](arguments)'}.")
    taken = ast.Call(ast.Name("_kl_taken", ast.Load()), call.args, call.keywords)
    parts = ast.Expression(ast.Tuple([call.func.value, call.func.slice, taken], ast.Load()))
    kernel, grid, (args, meta) = evaluated(ast.fix_missing_locations(parts), text, namespace)
    return LaunchText(kernel, grid, args, meta)


def evaluated(
    source: str | ast.Expression, text: str, namespace: Mapping[str, Any], option: str = "", how: str = ""
) -> Any:
    """Return the value of an expression of the user, the value of ``option`` if that is given; ``how`` is an example.

    Raises:
        UsageError: it raises.
    """
    try:
        code = compile(source, "<launch>", "eval")
    except SyntaxError as exc:
        raise no_python(text, exc, how and f"write {how}", option) from exc
    try:
        return eval(code, {**namespace, "_kl_taken": lambda *a, **m: (a, m)})
    except Exception as exc:
        named = f"{option} {text!r}".lstrip()
        raise UsageError(f"{named} cannot be evaluated: {type(exc).__name__}: {exc}") from exc


def _options_first(text: str) -> str:
    """Return what to do about options that stand after a launch, or ""."""
    return "options come before the launch: %triton_tune --fresh kernel[grid](arguments)" if " --" in text else ""


def unquoted(text: str) -> str:
    """Drop the quotes that IPython's splitting keeps around an option's value."""
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text
