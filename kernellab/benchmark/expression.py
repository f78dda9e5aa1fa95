"""The options of ``%triton_bench`` as expressions of the user's namespace."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from kernellab.errors import UsageError
from kernellab.tune.expression import LaunchText, evaluated, launch_of_text, unquoted
from kernellab.tune.space import Space

_PAIR = re.compile(r"\s*\w+\s*=(?!=)")


def launch_or_kernel(text: str, namespace: Mapping[str, Any]) -> LaunchText:
    """Return the parts of ``kernel[grid](arguments)``, of ``kernel[grid]``, or of a kernel alone.

    Raises:
        UsageError: there is none, or it cannot be evaluated.
    """
    text = text.strip()
    if not text:
        raise UsageError('There is no kernel; write %triton_bench kernel[grid](arguments) --over "n=[...]".')
    if text.endswith(")"):
        return launch_of_text(text, namespace)
    if text.endswith("]") and "[" in text:
        return launch_of_text(f"{text}()", namespace)
    is_label = "@" in text or text.partition(".")[0] not in namespace
    return LaunchText(text.strip("\"'") if is_label else evaluated(text, text, namespace), None, (), {})


def named(texts: Sequence[str] | None, option: str, namespace: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of ``name=expression, ...``, of one option or several.

    Raises:
        UsageError: a text is no list of names with values, or cannot be evaluated.
    """
    found: dict[str, Any] = {}
    for text in texts or ():
        bare = unquoted(text)
        value = evaluated(f"dict({bare})" if _PAIR.match(bare) else bare, bare, namespace)
        value = value.values if isinstance(value, Space) else value
        if not isinstance(value, Mapping):
            raise UsageError(f'{option} is {bare!r}; expected names with their values: {option} "n=[1024, 2048]".')
        found.update(value)
    return found


def expression(text: str | None, namespace: Mapping[str, Any]) -> Any:
    """Return the value of an option, None where it is not given.

    Raises:
        UsageError: it cannot be evaluated.
    """
    return None if text is None else evaluated(unquoted(text), unquoted(text), namespace)
