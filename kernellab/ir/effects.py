"""What a kernel does to the memory of each of its arguments: the result types."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from kernellab.ir.graph import Location


class Access(StrEnum):
    """What an operation does to memory. An atomic reads and writes; it is counted as neither of the two."""

    READ = "read"
    WRITE = "write"
    ATOMIC = "atomic"


@dataclass(frozen=True, slots=True)
class Site:
    """One operation that touches one argument.

    ``operation`` is the name of the operation and ``index`` its index in the graph. ``masked`` tells whether a mask
    can switch it off lane by lane, ``conditional`` whether it stands in a branch or loop that may not be entered.
    """

    argument: str
    kind: Access
    operation: str
    index: int
    location: Location
    masked: bool
    conditional: bool

    @property
    def line(self) -> int | None:
        return self.location.line


@dataclass(frozen=True, slots=True)
class UnknownEffect:
    """An operation that touches memory which no argument names, or one that the tables do not know."""

    kind: Access | None
    operation: str
    index: int
    location: Location
    reason: str

    @property
    def line(self) -> int | None:
        return self.location.line


@dataclass(frozen=True, slots=True)
class Effects:
    """The memory effects of a kernel on its arguments, by name; ``outs[1]`` for the member of a tuple.

    ``arguments`` are all that name memory, touched or not. ``unknown`` is empty when the answer is complete.
    ``aliases`` are groups of arguments that were the same tensor.
    """

    arguments: tuple[str, ...]
    sites: tuple[Site, ...]
    unknown: tuple[UnknownEffect, ...] = ()
    aliases: tuple[frozenset[str], ...] = ()

    @property
    def reads(self) -> frozenset[str]:
        """Arguments that a load may read."""
        return self._touched(Access.READ)

    @property
    def writes(self) -> frozenset[str]:
        """Arguments that a store may write."""
        return self._touched(Access.WRITE)

    @property
    def atomics(self) -> frozenset[str]:
        """Arguments that an atomic operation may read and write."""
        return self._touched(Access.ATOMIC)

    @property
    def mutated(self) -> frozenset[str]:
        """Arguments whose memory may change: written or atomically updated."""
        return self.writes | self.atomics

    def _touched(self, kind: Access) -> frozenset[str]:
        return frozenset(site.argument for site in self.sites if site.kind is kind)
