"""Memory that a launch wrote out of bounds, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kernellab.gpu.flight import Damage


def damage_text(damage: Damage, names: Mapping[int, Sequence[str]], mutated: frozenset[str]) -> tuple[str | None, str]:
    """Return the argument that was overrun, None where that is not known, and what happened.

    ``names`` are the arguments that lie in each memory, ``mutated`` those that the kernel may write.
    """

    def name(index: int | None) -> str | None:
        found = [] if index is None else names[index]
        return next((each for each in found if each in mutated), found[0] if found else None)

    after, before = name(damage.after), name(damage.before)
    if damage.after is not None and damage.after == damage.before:
        return None, f"the memory of {after} changed, which it only reads"
    is_overrun = before is None or (after is not None and _is_nearer_end(damage, after in mutated, before in mutated))
    bytes_ = f"{damage.count:,} bytes"
    if is_overrun:
        return after, f"{bytes_} beyond the end of {after}, the first of them {damage.past_end_bytes:,} bytes behind it"
    return before, f"{bytes_} ahead of {before}, the last of them {damage.ahead_bytes:,} bytes before its start"


def _is_nearer_end(damage: Damage, writes_after: bool, writes_before: bool) -> bool:
    if writes_after != writes_before:
        return writes_after
    return damage.past_end_bytes <= damage.ahead_bytes
