"""Which outputs are right where there is no reference: those of most configs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping


def outvoted(groups: Mapping[int, int]) -> tuple[frozenset[int], int]:
    """Return which configs differ from most, and how many those are.

    ``groups`` are the groups of equal outputs, by the place of a config in the list. Of two groups of a size, the one
    with the earliest config of the list is right: in which order they were measured says nothing.
    """
    sizes = Counter(groups[index] for index in sorted(groups))
    right, agreeing = sizes.most_common(1)[0]
    return frozenset(index for index, group in groups.items() if group != right), agreeing
