"""Whether a constexpr only says where blocks start, or whether indices and data themselves are computed with it.

A kernel covers the same elements with blocks of another size if their starts are all that follows from the size.
Where it divides, scales or bounds an index, as the size of a group or a stride does, another value addresses other
elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kernellab.ir.constants import Constants, integer_of
from kernellab.ir.graph import Operation
from kernellab.ir.operations import MEMORY
from kernellab.tune.differences import Block, Differences, Trial
from kernellab.tune.graph_facts import SHAPE_OPERATIONS
from kernellab.workers.forks_and_interrupts import cached_property

_ADDED = frozenset({"arith.addi", "tt.addptr"})
_BOUNDING = frozenset(
    {*("arith.cmpi", "arith.minsi", "arith.minui", "arith.maxsi", "arith.maxui", "arith.select", "arith.subi")}
)
_DESCRIBED = "tt.descriptor"
_MAKES_DESCRIPTOR = "tt.make_tensor_descriptor"
Offset = tuple[int | None, int | None]
Distances = tuple[int, int] | None


@dataclass(frozen=True)
class IndexUses:
    """The uses of a constexpr in indices and in data, from two launches in which its value differs.

    A number is *fixed* if it follows from the value and is the same in all programs and rounds.
    """

    differences: Differences

    @property
    def computes(self) -> bool:
        """Whether an index or data are computed with the value by more than the start of a block."""
        return any(map(self._computes, self.differences.facts.graph.operations))

    def _computes(self, operation: Operation) -> bool:
        facts, operands = self.differences.facts, {*operation.operands}
        if operation.name == _MAKES_DESCRIPTOR:
            return bool(operands & self._fixed)
        if operation.name in MEMORY:
            indices = operation.operands[1:] if operation.name.startswith(_DESCRIBED) else ()
            place = MEMORY[operation.name].value
            value = () if place is None else operation.operands[place : place + 1]
            return bool(self._fixed & {*indices, *value})
        if not self._is_integer_tensor(operation) or not operands & self.differences.uniform:
            return False
        if operation.name in _ADDED:
            return bool(operands & facts.loaded and operands & self._fixed and self._is_stored(operation))
        if operands & facts.loaded and operands & self._fixed:
            return True
        if not operands & facts.ranges:
            return False
        bounds = operation.name in _BOUNDING or facts.graph.values[operation.results[0]].element == "i1"
        return not bounds or bool(operands & self._fixed)

    def moves_blocks(self, blocks: Sequence[Block], distances: Distances) -> bool:
        """Whether the value moves an index or a pointer by more than the starts of blocks, or leaves gaps between them.

        ``distances`` are those between the starts of blocks in both launches; blocks next to each other fill them.
        """
        chains = [self._chain(block) for block in blocks]
        if any(not any(base in chain for chain in chains) for base in self.offsets):
            return True
        return not all(self._fills(block, chain, distances) for block, chain in zip(blocks, chains, strict=True))

    def _chain(self, block: Block) -> frozenset[int]:
        """Return the index of a block plus something, and the pointers that are moved by it."""
        facts, allowed = self.differences.facts, _ADDED | SHAPE_OPERATIONS
        others = frozenset(operation.name for operation in facts.graph.operations) - allowed
        return frozenset() if block.index is None else facts.values_from([block.index], without=others)

    def _fills(self, block: Block, chain: frozenset[int], distances: Distances) -> bool:
        """Whether a block at all offsets fills the distance to the next one, each part once."""
        offsets = [offset for base, listed in self.offsets.items() if base in chain for offset in listed]
        sizes = self._sizes(block)
        if sizes is None or distances is None:
            return not offsets
        filled = ([0, *(offset[place] for offset in offsets)] for place in range(2))
        return all({*starts} == {*range(0, d, size)} for starts, d, size in zip(filled, distances, sizes, strict=True))

    @cached_property
    def offsets(self) -> dict[int, list[Offset]]:
        """The fixed numbers that are added to an index or a pointer, in both launches, by what they are added to.

        What moves an index to the next round of a loop alone is left out, and so is a number that does not differ.
        """
        facts, offsets = self.differences.facts, dict[int, list[Offset]]()
        for operation in facts.graph.operations:
            operands = operation.operands
            result = facts.graph.values[operation.results[0]] if operation.name in _ADDED else None
            if result is None or not (result.shape or result.is_pointer) or not self._fixed & {*operands}:
                continue
            if not self._addresses(operation):
                continue
            base, offset = operands if operands[1] in self._fixed else operands[::-1]
            ours, theirs = (_number(trial, offset) for trial in self._trials)
            if ours is None or ours != theirs:
                offsets.setdefault(base, []).append((ours, theirs))
        return offsets

    def _sizes(self, block: Block) -> tuple[int, int] | None:
        """Return the number of indices of a block in both launches, None of a descriptor's block."""
        makers = [trial.facts.graph.maker(block.index) for trial in self._trials] if block.index is not None else []
        ends = [[_attribute(maker, name) for name in ("start", "end")] for maker in makers if maker is not None]
        return (ends[0][1] - ends[0][0], ends[1][1] - ends[1][0]) if ends else None

    @property
    def _trials(self) -> tuple[Trial, Trial]:
        return self.differences.first, self.differences.second

    @cached_property
    def _fixed(self) -> frozenset[int]:
        return self.differences.uniform - self.differences.facts.moving

    def _is_integer_tensor(self, operation: Operation) -> bool:
        """Whether an operation computes integers, addresses or conditions of a tensor from several values."""
        if operation.regions or len(operation.operands) < 2 or not operation.results:
            return False
        result = self.differences.facts.graph.values[operation.results[0]]
        return bool(result.shape) and (result.is_pointer or result.element[:1] == "i")

    def _addresses(self, operation: Operation) -> bool:
        """Whether an access in the same round of all loops has an address that follows from an operation."""
        reached = self._values_after(operation)
        return any(access.operands[0] in reached for access in self.differences.facts.accesses)

    def _is_stored(self, operation: Operation) -> bool:
        """Whether an access in the same round of all loops stores what follows from an operation."""
        reached = self._values_after(operation)
        places = [(access, MEMORY[access.name].value) for access in self.differences.facts.accesses]
        return any(place is not None and access.operands[place] in reached for access, place in places)

    def _values_after(self, operation: Operation) -> frozenset[int]:
        return self.differences.facts.values_from(operation.results, carried=False, without=frozenset(MEMORY))


def _number(trial: Trial, value: int) -> int | None:
    """Return the number that all elements of a value are in all programs, None where it is not known."""
    known = Constants(trial.facts.graph).integer(value)
    scalar = trial.facts.scalar(value)
    if known is None and scalar is not None:
        numbers = trial.facts.over_programs(scalar)
        known = int(numbers.flat[0]) if numbers is not None and np.unique(numbers).size == 1 else None
    return known


def _attribute(operation: Operation, name: str) -> int:
    return integer_of(operation.attribute(name).partition(" ")[0]) or 0
