"""Naming the arguments of a function as the kernel's signature does.

A tuple member has an argument of its own. A host descriptor brings its shape and strides along as further integer
arguments; where a target lacks descriptors, the ttir stage turns it into a pointer and may add an argument or two
(padding) to each. All arguments of a descriptor have the descriptor's name.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from kernellab.errors import CompileError
from kernellab.ir.graph import Value

_MEMBER = re.compile(r"\.(\d+)")
_DESCRIPTOR_PART = re.compile(r"\.[A-Za-z]\w*(?:\.\d+)?$")


def argument_names(arguments: Sequence[Value], parameters: Sequence[tuple[str, str]] | None) -> tuple[str, ...]:
    """Return the parameter that each argument of a function belongs to.

    Raises:
        CompileError: the arguments cannot be dealt out to ``parameters``.
    """
    if parameters is None:
        return _names_from_locations(arguments)
    descriptors = [kind for _, kind in parameters if kind.startswith("tensordesc")]
    extra = len(arguments) - len(parameters)
    fixed = sum(2 * _rank(kind) for kind in descriptors)
    added = (extra - fixed) // len(descriptors) if descriptors else 0
    names: list[str] = []
    for name, kind in parameters:
        count = 1 + (2 * _rank(kind) + added if kind.startswith("tensordesc") else 0)
        names += [name] * count
    if len(names) != len(arguments):
        raise CompileError(f"TTIR: the kernel has {len(arguments)} arguments; its signature accounts for {len(names)}.")
    return tuple(names)


def _rank(kind: str) -> int:
    """Return the rank of a descriptor type such as ``tensordesc<fp16[16, 32]>``."""
    shape = kind[kind.index("[") + 1 : kind.index("]")]
    return shape.count(",") + 1 if shape.strip() else 0


def _names_from_locations(arguments: Sequence[Value]) -> tuple[str, ...]:
    """Name arguments by the locations of their values.

    From 3.8 on these are ``outs.1`` for the member of a tuple and ``desc.shape.0`` for what a descriptor brings along;
    before, every argument has the name of its parameter, so that several of one name are members of a tuple, or a
    descriptor with what it brings along.
    """
    written = [value.name or f"arg{position}" for position, value in enumerate(arguments)]
    first = dict(reversed(list(zip(written, arguments, strict=True))))
    count = Counter(written)
    seen: Counter[str] = Counter()
    names: list[str] = []
    for name in written:
        plain = _MEMBER.sub(r"[\1]", _DESCRIPTOR_PART.sub("", name))
        is_member = count[name] > 1 and plain == name and not first[name].type.startswith("!tt.tensordesc")
        names.append(f"{name}[{seen[name]}]" if is_member else plain)
        seen[name] += 1
    return tuple(names)
