"""What differs between the graphs of two launches in which one constexpr has another value.

Both graphs have the same operations in the same places. The constexpr shows itself in the ends of ranges, in constants
and in shapes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from kernellab.ir.constants import integer_of
from kernellab.ir.graph import Operation
from kernellab.ir.operations import MEMORY
from kernellab.tune.graph_facts import DOTS, GraphFacts
from kernellab.workers.forks_and_interrupts import cached_property

_SIZED = ("arith.constant", "tt.make_range")
_HINTS = frozenset({"tt.constancy", "tt.contiguity", "tt.divisibility"})
_TO_FLOAT = ("arith.sitofp", "arith.uitofp")
_DESCRIBED = ("tt.descriptor_load", "tt.descriptor_store", "tt.descriptor_reduce")


@dataclass(frozen=True, slots=True)
class Trial:
    """One launch with a value of the constexpr in question."""

    value: int
    facts: GraphFacts


@dataclass(frozen=True, slots=True)
class Block:
    """A range of indices, or an extent of a descriptor's block, which has no ``index``; it starts at ``starts``.

    ``limit`` is the extent of the tensor that a descriptor is for.
    """

    index: int | None
    starts: tuple[int, ...]
    limit: int | None = None


@dataclass(frozen=True)
class Differences:
    """The differences between two launches."""

    first: Trial
    second: Trial

    @property
    def facts(self) -> GraphFacts:
        """The facts of the first launch."""
        return self.first.facts

    @cached_property
    def same_operations(self) -> bool:
        """Whether both graphs have the same operations in the same places; else nothing else here holds."""
        ours, theirs = ([(o.name, o.operands) for o in t.facts.graph.operations] for t in (self.first, self.second))
        return ours == theirs

    @cached_property
    def pairs(self) -> list[tuple[Operation, Operation]]:
        """The operations of both graphs."""
        return list(zip(self.facts.graph.operations, self.second.facts.graph.operations, strict=True))

    @cached_property
    def blocks(self) -> list[Block]:
        """The blocks of different sizes: ranges of indices, and extents of the blocks of descriptors."""
        blocks: list[Block] = []
        for a, b in self.pairs:
            if a.name == "tt.make_range" and a.attributes != b.attributes:
                index = a.results[0]
                blocks.append(Block(index, tuple(self.facts.starts(index))))
            elif a.name in _DESCRIBED:
                blocks += self._described_blocks(a, b)
        return blocks

    def _described_blocks(self, first: Operation, second: Operation) -> Iterator[Block]:
        """Yield the extents of a descriptor's block that differ, with the index that each starts at."""
        graph, other = self.facts.graph, self.second.facts.graph
        ours, theirs = (described_extents(g.values[o.operands[0]].type) for g, o in ((graph, first), (other, second)))
        maker = graph.maker(first.operands[0])
        is_built = maker is not None and maker.name == "tt.make_tensor_descriptor"
        indices = first.operands[len(first.operands) - len(ours) :]
        for axis, (extent, other_extent, index) in enumerate(zip(ours, theirs, indices, strict=True)):
            if extent != other_extent:
                yield Block(
                    None, tuple(self.facts.terms(index)), maker.operands[1 + axis] if maker and is_built else None
                )

    @cached_property
    def constants(self) -> list[int]:
        """The constants that differ."""
        return [a.results[0] for a, b in self.pairs if a.name == "arith.constant" and a.attributes != b.attributes]

    @cached_property
    def changed(self) -> frozenset[int]:
        """The values that derive from a constant that differs, or from the rounds of a loop that it bounds."""
        return self.facts.values_from(self.constants)

    @cached_property
    def scaled(self) -> frozenset[int]:
        """The values that are computed with a constant that differs."""
        return self.facts.values_from(self.constants, counted=False)

    @cached_property
    def uniform(self) -> frozenset[int]:
        """The numbers that are computed with a constant that differs, without an index or memory."""
        return self.facts.values_from(self.constants, counted=False, without=frozenset(MEMORY)) - self.facts.ranges

    @property
    def computes_data(self) -> bool:
        """Whether the kernel computes data with the value, which then is more than a number of indices."""
        facts = self.facts
        counted = facts.values_from([*self.indices, *facts.counters]) | facts.from_any_program
        same_grid = facts.grid == self.second.facts.grid
        counts = frozenset[int]() if same_grid else facts.from_grid - facts.from_any_program - counted
        for a, b in self.pairs:
            if a.attributes != b.attributes and not self._is_sized(a, b):
                return True
            if a.name in _TO_FLOAT and a.operands[0] in (self.scaled - counted) | counts:
                return True
        return False

    def _is_sized(self, a: Operation, b: Operation) -> bool:
        """Whether the attributes in which two operations differ follow from the size of a block.

        They are its range, an integer, or the hints of ``tl.multiple_of(indices % n, BLOCK)`` about the block's own
        indices. A hint about other values, as that a stride is divisible, may be false with another block.
        """
        if a.name in _SIZED:
            return integer_of(a.attribute("value", "0")) is not None
        ours, theirs = dict(a.attributes), dict(b.attributes)
        differing = {name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name)}
        if not differing <= _HINTS or not a.results:
            return False
        first, second = self._shapes(a.results[0], b.results[0])
        return first != second

    def _shapes(self, first: int, second: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the shapes of a value of the first graph and of one of the second."""
        return self.facts.graph.values[first].shape, self.second.facts.graph.values[second].shape

    @cached_property
    def indices(self) -> list[int]:
        """The indices of the blocks that have one."""
        return [block.index for block in self.blocks if block.index is not None]

    @cached_property
    def start_values(self) -> list[int]:
        """The scalars that the indices of the block are added to."""
        return list(dict.fromkeys(start for block in self.blocks for start in block.starts))

    def combines_block(self, first: Operation, second: Operation) -> bool:
        """Whether an operation reduces, scans or multiplies along the block."""
        if first.name not in {*DOTS, "tt.reduce", "tt.scan"}:
            return False
        axis = -1 if first.name in DOTS else integer_of(first.attribute("axis").partition(" ")[0]) or 0
        ours, theirs = self._shapes(first.operands[0], second.operands[0])
        return ours[axis] != theirs[axis]

    def dimensions(self) -> frozenset[str]:
        """Return the dimensions of the first product that the block is."""
        changed: set[str] = set()
        for a, b in [(a, b) for a, b in self.pairs if a.name in DOTS][:1]:
            for names, *operands in zip(("MK", "KN"), a.operands, b.operands, strict=False):
                ours, theirs = self._shapes(*operands)
                changed |= {n for n, one, other in zip(names, ours[-2:], theirs[-2:], strict=True) if one != other}
        return frozenset(changed)


def described_extents(descriptor: str) -> tuple[int, ...]:
    """Return the extents of the block of a descriptor, from its type ``!tt.tensordesc<128x64xf16>``."""
    return tuple(int(extent) for extent in re.findall(r"(?<=[<x])\d+(?=x)", descriptor))
