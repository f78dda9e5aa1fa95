"""The order of a launch's programs on a GPU, as far as atomics decide it, and sets of atomic updaters.

Programs run one after the other here. A program's accesses are split into segments, numbered through the launch; a
release ends a segment. So accesses after a release are not ordered before the programs that acquire it.
"""

from __future__ import annotations

from bisect import bisect_right

import numpy as np

from kernellab.interpreter.values import Array

MANY = -1


class Ordering:
    """The happens-before relation: segments released at an address that the running program acquired from.

    A set of segments is an integer, a bit each. Only scalar atomics synchronise: locks, counters and flags.
    """

    def __init__(self) -> None:
        self._released: dict[int, int] = {}
        self._acquired = 0
        self._segment = 0
        self._firsts: list[int] = []
        self._is_released = False

    def begin_program(self) -> None:
        """Begin the first segment of the next program, which has acquired nothing."""
        self._acquired = 0
        self._segment += bool(self._firsts)
        self._firsts.append(self._segment)
        self._is_released = False

    @property
    def tag(self) -> int:
        """1 + the number of the running segment: the entry that `Shadow` keeps of an access."""
        if self._is_released:
            self._segment += 1
            self._is_released = False
        return self._segment + 1

    def synchronise(self, address: int, *, acquire: bool, release: bool) -> None:
        """Acquire the segments released at an address, release the program's own there, or both."""
        released = self._released.get(address, 0)
        if acquire:
            self._acquired |= released
        if release:
            own = (1 << (self._segment + 1)) - (1 << self._firsts[-1])
            self._released[address] = released | self._acquired | own
            self._is_released = True

    def program_of(self, tag: int) -> int:
        """Return the number of a segment's program."""
        return bisect_right(self._firsts, tag - 1) - 1

    def unordered_entries(self, tags: Array) -> Array:
        """Mark entries of `Shadow` of other programs that no atomic orders before the running one."""
        foreign: Array = (tags != 0) & (tags <= self._firsts[-1])
        if foreign.any():
            for tag in np.unique(tags[foreign]).tolist():
                if tag != MANY and self.happens_before(tag):
                    foreign &= tags != tag
        return foreign

    def happens_before(self, tag: int) -> bool:
        """Whether a segment happens before the running one."""
        return tag > self._firsts[-1] or bool(self._acquired >> (tag - 1) & 1)


_MOST_SETS = 1 << 22
_MOST_SETS_OF_AN_ACCESS = 64


class UpdaterSets:
    """Numbered sets of segments with atomic updates of one element: each is another set plus one segment.

    If there are too many, the number is `MANY`, and no race is reported.
    """

    def __init__(self, ordering: Ordering) -> None:
        self._ordering = ordering
        self._smaller = [0]
        self._tags = [0]

    def add_segment(self, numbers: Array, tag: int) -> Array | int:
        """Return the numbers of the sets with a segment of the running program added."""
        unique = np.unique(numbers)
        if unique.size == 1:
            return self._extend_set(int(unique[0]), tag)
        if unique.size > _MOST_SETS_OF_AN_ACCESS:
            return MANY
        sets = np.array([self._extend_set(number, tag) for number in unique.tolist()], np.int32)
        numbers_after: Array = sets[np.searchsorted(unique, numbers)]
        return numbers_after

    def _extend_set(self, number: int, tag: int) -> int:
        if number == MANY or len(self._tags) >= _MOST_SETS:
            return MANY
        if self._tags[number] == tag:
            return number
        # Happens-before is transitive: what is ordered before the last segment is ordered before this one.
        is_implied = number > 0 and self._ordering.happens_before(self._tags[number])
        self._smaller.append(self._smaller[number] if is_implied else number)
        self._tags.append(tag)
        return len(self._tags) - 1

    def unordered_segments(self, numbers: Array) -> dict[int, int]:
        """Return the tag of an unordered segment by the number of its set, for the sets that have one."""
        tags: dict[int, int] = {}
        for number in np.unique(numbers).tolist():
            current = number
            while current > 0 and self._ordering.happens_before(self._tags[current]):
                current = self._smaller[current]
            if current > 0:
                tags[number] = self._tags[current]
        return tags
