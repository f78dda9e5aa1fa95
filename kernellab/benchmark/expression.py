"""The options of ``%triton_bench`` as expressions of the user's namespace."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from kernellab.errors import UsageError
from kernellab.tune.expression import LaunchText, evaluated, launch_of_text, unquoted
from kernellab.tune.space import Space

_PAIR = re.compile(r"\s*\w+\s*=(?!=)")
_EXAMPLES = {
    "--over": '"n=[1024, 2048]"',
    "--versus": '"torch=lambda x: x + 1"',
    "--inputs": '"lambda n: dict(x=torch.rand(n), n=n)"',
    "--flops": '"lambda m, n, k: 2 * m * n * k"',
    "--bytes": '"lambda n: 8 * n"',
}


def launch_or_kernel(text: str, namespace: Mapping[str, Any]) -> LaunchText:
    """Return the parts of ``kernel[grid](arguments)``, of ``kernel[grid]``, or of a kernel alone.

    Raises:
        UsageError: there is none, or it cannot be evaluated.
    """
    text = unquoted(text.strip())
    if not text:
        raise UsageError('There is no kernel; write %triton_bench kernel[grid](arguments) --over "n=[...]".')
    if text.endswith(")"):
        return launch_of_text(text, namespace)
    if text.endswith("]") and "[" in text:
        return launch_of_text(f"{text}()", namespace)
    if "[" in text:
        return launch_of_text(text, namespace)  # which says what is wrong with it
    is_label = "@" in text or text.partition(".")[0] not in namespace
    return LaunchText(text.strip("\"'") if is_label else evaluated(text, text, namespace), None, (), {})


def named(texts: Sequence[str] | None, option: str, namespace: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of ``name=expression, ...``, of one option or several.

    Raises:
        UsageError: a text is no list of names with values, or cannot be evaluated.
    """
    found: dict[str, Any] = {}
    for text in texts or ():
        how = f"{option} {_EXAMPLES[option]}"
        value = evaluated(f"dict({text})" if _PAIR.match(text) else text, text, namespace, option, how)
        value = value.values if isinstance(value, Space) else value
        if not isinstance(value, Mapping):
            raise UsageError(f"{option} is {text!r}; expected names with their values: {how}.")
        found.update(value)
    return found


def expression(text: str | None, option: str, namespace: Mapping[str, Any]) -> Any:
    """Return the value of an option, None where it is not given.

    Raises:
        UsageError: it cannot be evaluated.
    """
    return None if text is None else evaluated(text, text, namespace, option, f"{option} {_EXAMPLES[option]}")
