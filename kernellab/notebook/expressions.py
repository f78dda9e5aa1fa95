"""The lines of magics: parse options, evaluate launches and expressions of the user, with helpful errors."""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from IPython.core.error import UsageError as ShellError
from IPython.core.magic_arguments import parse_argstring

from kernellab.errors import UsageError

if TYPE_CHECKING:
    from kernellab.launch.calls import UserCall


def launch_of_text(text: str, namespace: Mapping[str, Any]) -> UserCall:
    """Parse and evaluate the parts of a launch in a namespace.

    Raises:
        UsageError: the text is not a launch, or a part of it cannot be evaluated.
    """
    from kernellab.checking.reference import invalid_python  # needs Triton, as the next does
    from kernellab.launch.calls import UserCall

    text = strip_quotes(text.strip())
    how = "write kernel[grid](arguments), and options that have spaces in quotes"
    if not text:
        raise UsageError("There is no launch; write kernel[grid](arguments).")
    try:
        call = ast.parse(text, mode="eval").body
    except SyntaxError as exc:
        raise invalid_python(text, exc, _option_order_advice(text) or how) from exc
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Subscript):
        raise UsageError(f"{text!r} is not a launch; {_option_order_advice(text) or 'write kernel[grid](arguments)'}.")
    argument_call = ast.Call(ast.Name("_kl_taken", ast.Load()), call.args, call.keywords)
    parts = ast.Expression(ast.Tuple([call.func.value, call.func.slice, argument_call], ast.Load()))
    kernel, grid, (args, meta) = evaluate(ast.fix_missing_locations(parts), text, namespace)
    return UserCall(kernel, grid, args, meta)


def evaluate(
    source: str | ast.Expression, text: str, namespace: Mapping[str, Any], option: str = "", how: str = ""
) -> Any:
    """Evaluate an expression of the user, the value of ``option`` if that is given; ``how`` is an example.

    Raises:
        UsageError: it raises.
    """
    try:
        code = compile(source, "<launch>", "eval")
    except SyntaxError as exc:
        from kernellab.checking.reference import invalid_python  # needs Triton

        raise invalid_python(text, exc, how and f"write {how}", option) from exc
    try:
        return eval(code, {**namespace, "_kl_taken": lambda *a, **m: (a, m)})
    except Exception as exc:
        subject = f"{option} {text!r}".lstrip()
        raise UsageError(f"{subject} cannot be evaluated: {type(exc).__name__}: {exc}") from exc


def _option_order_advice(text: str) -> str:
    """Return advice on options that follow a launch, or ""."""
    return "options come before the launch: %triton_tune --fresh kernel[grid](arguments)" if " --" in text else ""


def strip_quotes(text: str) -> str:
    """Strip the quotes that IPython's splitting keeps around an option's value."""
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text


def key_of_text(text: str) -> str | int:
    """Return the name, ``name@version`` or id of a kept kernel that a word of a line is."""
    from kernellab.registry.versions import key_of  # loads the store

    return key_of(strip_quotes(text))


_PAIR = re.compile(r"\s*\w+\s*=(?!=)")
_EXAMPLES = {
    "--over": '"n=[1024, 2048]"',
    "--versus": '"torch=lambda x: x + 1"',
    "--inputs": '"lambda n: dict(x=torch.rand(n), n=n)"',
    "--weights": '"lambda n: 1000 if n < 4096 else 1"',
    "--baseline": "\"triton.Config({'BLOCK': 64})\"",
    "--flops": '"lambda m, n, k: 2 * m * n * k"',
    "--bytes": '"lambda n: 8 * n"',
}


def launch_or_kernel(text: str, namespace: Mapping[str, Any]) -> UserCall:
    """Parse and evaluate ``kernel[grid](arguments)``, ``kernel[grid]``, or a kernel alone.

    Raises:
        UsageError: there is none, or it cannot be evaluated.
    """
    from kernellab.launch.calls import UserCall  # needs Triton

    text = strip_quotes(text.strip())
    if not text:
        raise UsageError('There is no kernel; write %triton_bench kernel[grid](arguments) --over "n=[...]".')
    if text.endswith(")") or "[" in text:
        # Of a text that is no launch, this says what is wrong with it.
        return launch_of_text(f"{text}()" if text.endswith("]") else text, namespace)
    is_label = "@" in text or text.partition(".")[0] not in namespace
    kernel: Any = text.strip("\"'") if is_label else evaluate(text, text, namespace)
    return UserCall(kernel, None, (), {})


def evaluate_named(texts: Sequence[str] | None, option: str, namespace: Mapping[str, Any]) -> dict[str, Any]:
    """Evaluate ``name=expression, ...`` from one option or several.

    Raises:
        UsageError: a text is not a list of names with values, or cannot be evaluated.
    """
    from kernellab.timing.config import Space  # needs Triton

    values: dict[str, Any] = {}
    for text in texts or ():
        how = f"{option} {_EXAMPLES[option]}"
        value = evaluate(f"dict({text})" if _PAIR.match(text) else text, text, namespace, option, how)
        value = value.values if isinstance(value, Space) else value
        if not isinstance(value, Mapping):
            raise UsageError(f"{option} is {text!r}; expected names with their values: {how}.")
        values.update(value)
    return values


def evaluate_option(text: str | None, option: str, namespace: Mapping[str, Any]) -> Any:
    """Evaluate an option; None where it is not given.

    Raises:
        UsageError: it cannot be evaluated.
    """
    return None if text is None else evaluate(text, text, namespace, option, f"{option} {_EXAMPLES[option]}")


_UNSTRIPPED_OPTION = "launch"  # its words are joined again
_IN_QUOTES = "values with spaces, and launches with negative numbers, go in quotes; "


def parse_options(magic: Any, label: str, line: str) -> argparse.Namespace:
    """Parse the options of a magic, called ``label`` (``%triton_tune``), from its line.

    Raises:
        UsageError: an option is unknown, lacks its value or has a wrong one, or a quote is not closed.
    """
    try:
        options: argparse.Namespace = parse_argstring(magic, line)
    except ValueError as exc:
        text = f"{line.strip()!r} has a quote that is not closed"
        raise UsageError(f'{text}; write an option with spaces as --option "x + y".') from exc
    except ShellError as exc:
        raise UsageError(f"{exc}; {_unknown_option_advice(magic.parser, str(exc))}{label}? shows all options.") from exc
    for name, value in vars(options).items():
        if name != _UNSTRIPPED_OPTION:
            setattr(options, name, _strip_all_quotes(value))
    _require_positive_numbers(magic.parser, options)
    return options


def _require_positive_numbers(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Raise `UsageError` for a number that is not positive, by the name of its option; fractions are seconds."""
    for action in parser._actions:
        if action.type in {int, float}:
            value = getattr(options, action.dest)
            expected = "a positive number of seconds" if action.type is float else "a positive integer"
            for number in value if isinstance(value, list) else [value]:
                if number is not None and not number > 0:
                    raise UsageError(f"{action.option_strings[-1]} is {number:g}; expected {expected}.")


def _unknown_option_advice(parser: argparse.ArgumentParser, refusal: str) -> str:
    """Return advice on an unknown option: a similar name, or quotes around words."""
    _, unrecognized, words = refusal.partition("unrecognized arguments: ")
    if not unrecognized:
        return ""
    options = [name for action in parser._actions for name in action.option_strings if name.startswith("--")]
    unknown = [word.partition("=")[0] for word in words.split() if word.startswith("--")]
    similar = [close[0] for word in unknown if (close := get_close_matches(word, options, 1, 0.7))]
    if similar:
        return f"did you mean {similar[0]}? "
    return "" if unknown else _IN_QUOTES


def _strip_all_quotes(value: Any) -> Any:
    if isinstance(value, list):
        return [_strip_all_quotes(member) for member in value]
    return strip_quotes(value) if isinstance(value, str) else value
