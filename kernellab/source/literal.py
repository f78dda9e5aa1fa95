"""Values as Python source."""

from __future__ import annotations

import math

from kernellab.errors import UsageError
from kernellab.source import Binding, Constant, Constexpr, Dtype


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


def binding_literal(binding: Binding) -> str:
    """Return what a constant binding stands for as an expression.

    Raises:
        UsageError: it is no constant.
    """
    match binding:
        case Constant(value):
            return literal(value)
        case Constexpr(inner):
            return f"tl.constexpr({binding_literal(inner)})"
        case Dtype(name):
            return f'tl.dtype("{name}")'
        case _:
            raise UsageError(
                f"{binding} cannot be written as a Python expression; use a NamedTuple or frozen dataclass."
            )


def docstring(text: str) -> str:
    """Return a text as a docstring of its own, whatever quotes and backslashes it holds."""
    safe = text.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    if safe.endswith('"'):
        safe = f'{safe[:-1]}\\"'
    return f'"""{safe}"""'
