"""Atomic updates of memory, one thread after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from kernellab.traffic.arithmetic import Array, raw, typed

_COMBINED: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "exch": lambda old, new: new,
}


def updated(data: Array, places: Array, parts: Sequence[str], values: Sequence[Array], size: int) -> Array:
    """Update the integers of ``size`` bytes at ``places`` of ``data`` one after the other; return what they were.

    ``parts`` name the operation and its type, as ``atom.global.add.u32`` does; ``values`` are its operands as bits.
    """
    kind = parts[-1]
    name = next(part for part in parts if part in _COMBINED or part in {"cas", "inc", "dec"})
    old = np.zeros(places.shape, f"u{size}")
    words = data.view(f"u{size}") if data.size % size == 0 else data[: data.size // size * size].view(f"u{size}")
    for index, place in enumerate((places // size).tolist()):
        before = words[place : place + 1]
        old[index] = before[0]
        given = [value[index : index + 1] for value in values]
        if name == "cas":
            words[place] = given[1][0] if before[0] == given[0][0] else before[0]
        elif name in {"inc", "dec"}:
            words[place] = _wrapping(name, int(before[0]), int(given[0][0]))
        else:
            words[place] = raw(_COMBINED[name](typed(before, kind), typed(given[0], kind)), kind)[0]
    return old


def _wrapping(name: str, before: int, limit: int) -> int:
    if name == "inc":
        return 0 if before >= limit else before + 1
    return limit if before == 0 or before > limit else before - 1
