"""Triton's keys of specializations, in which different values never share a text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import triton.language as tl
from triton.runtime.jit import JITFunction

from kernellab._triton.closure import value_key


def _leaves(value: Any) -> Iterator[Any]:
    """Yield the members of nested tuples and lists."""
    if isinstance(value, tuple | list):
        for member in value:
            yield from _leaves(member)
    else:
        yield value


def _has_own_text(value: Any) -> bool:
    """Whether no other value has the same text in Triton's key."""
    if type(value) is tl.constexpr:
        return type(value.value) in {int, bool, float, type(None)}
    return type(value) in {int, bool, str, type(None), float, bytes, tl.dtype} or isinstance(value, JITFunction)


class SpecializationKeys(dict[Any, Any]):
    """Triton's keys of specializations: their text, with types and contents where different values share a text.

    It stores nothing: Triton's cache of key texts would confuse ``1``, ``1.0`` and ``True``.
    """

    def get(self, key: Any, default: Any = None) -> Any:
        """The key of a specialization where its text could be that of another one, else ``default``."""
        specialization, options = super().get(key, key)  # raises for a constant without a hash, as in Triton
        values = list(_leaves(specialization))
        if all(map(_has_own_text, values)):
            return default
        contents = [(id(type(value)), value_key(value)) for value in values if value is not None]
        return f"{[*map(str, specialization)]}{options}{contents}"

    def __setitem__(self, key: Any, value: Any) -> None:
        """Keep nothing."""
