"""In which order a GPU runs what the programs of a launch do: what atomics decide, and who updated what.

Programs run one after the other here. The accesses of one are cut into segments, numbered through the launch: a release
ends one. So what a program does after its release is not known to those that acquire it.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np

from kernellab.interpreter.values import Array

MANY = -1


@dataclass(frozen=True, slots=True)
class Order:
    """A scalar atomic at an address of this process, and what it does to the order of programs."""

    address: int
    acquire: bool
    release: bool


class Ordering:
    """Which segments a program may rely on: those released at an address that it acquired from.

    A set of segments is an integer, a bit each. Only scalar atomics synchronise: locks, counters and flags.
    """

    def __init__(self) -> None:
        self._released: dict[int, int] = {}
        self._known = 0
        self._segment = 0
        self._firsts: list[int] = []
        self._is_released = False

    def begin_program(self) -> None:
        """Begin the first segment of the next program, which has acquired nothing."""
        self._known = 0
        self._segment += bool(self._firsts)
        self._firsts.append(self._segment)
        self._is_released = False

    @property
    def tag(self) -> int:
        """1 + the number of the segment that runs: what an entry of `Shadow` holds of an access."""
        if self._is_released:
            self._segment += 1
            self._is_released = False
        return self._segment + 1

    def synchronise(self, order: Order) -> None:
        """Let the program acquire what was released at an address, release its own there, or both."""
        released = self._released.get(order.address, 0)
        if order.acquire:
            self._known |= released
        if order.release:
            own = (1 << (self._segment + 1)) - (1 << self._firsts[-1])
            self._released[order.address] = released | self._known | own
            self._is_released = True

    def program_of(self, tag: int) -> int:
        """Return the number of the program that a segment belongs to."""
        return bisect_right(self._firsts, tag - 1) - 1

    def is_foreign(self, tags: Array) -> Array:
        """Return where an entry of `Shadow` is of another program than the one that runs."""
        foreign: Array = (tags != 0) & (tags <= self._firsts[-1])
        return foreign

    def unordered(self, tags: Array) -> Array:
        """Return where an entry of `Shadow` is of another program, and no atomic orders that one before this."""
        foreign = self.is_foreign(tags)
        if foreign.any():
            for tag in np.unique(tags[foreign]).tolist():
                if tag != MANY and self.knows(tag):
                    foreign &= tags != tag
        return foreign

    def knows(self, tag: int) -> bool:
        """Tell whether the program that runs may rely on the accesses of a segment."""
        return tag > self._firsts[-1] or bool(self._known >> (tag - 1) & 1)


_MOST_SETS = 1 << 22
_MOST_SETS_OF_AN_ACCESS = 64


class UpdaterSets:
    """Sets of segments with atomic updates of one element, by numbers: each is another set and one segment more.

    Where there are too many to tell apart, the number is `MANY`, of which nothing is said.
    """

    def __init__(self, ordering: Ordering) -> None:
        self._ordering = ordering
        self._smaller = [0]
        self._tags = [0]

    def added(self, numbers: Array, tag: int) -> Array | int:
        """Return the numbers of sets with a segment of the program that runs added."""
        unique = np.unique(numbers)
        if unique.size == 1:
            return self._with_segment(int(unique[0]), tag)
        if unique.size > _MOST_SETS_OF_AN_ACCESS:
            return MANY
        sets = np.array([self._with_segment(number, tag) for number in unique.tolist()], np.int32)
        added: Array = sets[np.searchsorted(unique, numbers)]
        return added

    def _with_segment(self, number: int, tag: int) -> int:
        if number == MANY or len(self._tags) >= _MOST_SETS:
            return MANY
        if self._tags[number] == tag:
            return number
        # Whoever relies on this segment relies on what this one relies on.
        is_implied = number > 0 and self._ordering.knows(self._tags[number])
        self._smaller.append(self._smaller[number] if is_implied else number)
        self._tags.append(tag)
        return len(self._tags) - 1

    def unordered(self, numbers: Array) -> dict[int, int]:
        """Return, by the numbers of the sets that have one, the tag of a segment that nothing orders before this."""
        found: dict[int, int] = {}
        for number in np.unique(numbers).tolist():
            current = number
            while current > 0 and self._ordering.knows(self._tags[current]):
                current = self._smaller[current]
            if current > 0:
                found[number] = self._tags[current]
        return found
