"""Where the buffers of a program lie: which of them share memory, and how much is needed at most.

What is counted: the bytes of every storage that the program makes, its outputs included. Inputs and constants are not,
nor is what a torch operation uses for itself while it runs. *Unplanned* is a program that holds all of that until its
end, as a notebook cell does whose intermediates have names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Buffer:
    """A storage that a program makes.

    ``first`` is the step that makes it, ``last`` the last one that uses it or a view of it; for an output that is the
    number of steps. A buffer that is ``fixed`` is allocated by the operation that makes it. ``kind`` keeps apart what
    cannot share memory: dtype and device.
    """

    name: str
    size_bytes: int
    kind: str
    first: int
    last: int
    fixed: bool = False


@dataclass(frozen=True, slots=True)
class Allocation:
    """Memory that is allocated once: the buffers that lie in it, one after the other. It is freed after the last."""

    size_bytes: int
    kind: str
    buffers: tuple[str, ...]
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Plan:
    """The allocations of a program of ``steps`` steps, in the order in which they are made.

    ``unplanned_bytes`` is what its buffers take when all live until the end.
    """

    steps: int
    buffers: tuple[Buffer, ...]
    allocations: tuple[Allocation, ...]
    unplanned_bytes: int

    @property
    def peak_bytes(self) -> int:
        """The most bytes that are allocated at one time."""
        return max(live_bytes(self.allocations, self.steps), default=0)

    @property
    def reused(self) -> int:
        """How many buffers lie in memory that another one has left."""
        return len(self.buffers) - len(self.allocations)


def planned(buffers: Sequence[Buffer], steps: int) -> Plan:
    """Return the plan for buffers in the order in which they are made.

    A buffer takes the memory of a dead one of the same size and kind, the one that died last. It does so only where
    keeping that memory meanwhile does not raise the peak, so no plan needs more than freeing each buffer after its
    last use.
    """
    ordered = sorted(buffers, key=lambda buffer: buffer.first)
    live = live_bytes([_alone(buffer) for buffer in ordered], steps)
    peak = max(live, default=0)
    places: list[list[Buffer]] = []
    for buffer in ordered:
        place = None if buffer.fixed or not buffer.size_bytes else _free_place(places, buffer, live, peak)
        if place is None:
            places.append([buffer])
            continue
        for step in range(place[-1].last + 1, buffer.first):
            live[step] += buffer.size_bytes
        place.append(buffer)
    allocations = tuple(_allocation(place) for place in places)
    return Plan(steps, tuple(ordered), allocations, sum(buffer.size_bytes for buffer in ordered))


def live_bytes(allocations: Sequence[Allocation], steps: int) -> list[int]:
    """Return the bytes that are allocated during each step, and after the last one."""
    changes = [0] * (steps + 2)
    for allocation in allocations:
        changes[allocation.first] += allocation.size_bytes
        changes[allocation.last + 1] -= allocation.size_bytes
    total, found = 0, []
    for change in changes[: steps + 1]:
        total += change
        found.append(total)
    return found


def _free_place(places: list[list[Buffer]], buffer: Buffer, live: Sequence[int], peak: int) -> list[Buffer] | None:
    fitting = [
        place
        for place in places
        if not place[0].fixed
        and (place[-1].size_bytes, place[-1].kind) == (buffer.size_bytes, buffer.kind)
        and place[-1].last < buffer.first
    ]
    for place in sorted(fitting, key=lambda place: -place[-1].last):
        if all(live[step] + buffer.size_bytes <= peak for step in range(place[-1].last + 1, buffer.first)):
            return place
    return None


def _alone(buffer: Buffer) -> Allocation:
    return _allocation([buffer])


def _allocation(place: Sequence[Buffer]) -> Allocation:
    names = tuple(buffer.name for buffer in place)
    return Allocation(place[0].size_bytes, place[0].kind, names, place[0].first, place[-1].last)
