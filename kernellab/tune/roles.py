"""What a constexpr is for, read from two graphs of one launch in which only its value differs.

A block size shows itself as the end of a ``tt.make_range`` or as an extent of a descriptor's block. Its index is added
to the id of the program, or to the counter of a loop, times the size. It may vary only if the programs, or the rounds
of the loop, cover the same elements with both values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import prod
from typing import Any

import numpy as np

from kernellab.ir.graph import Operation
from kernellab.ir.operations import MEMORY, Access
from kernellab.ir.programs import Integers
from kernellab.tune.differences import Block, Differences, Trial
from kernellab.tune.graph_facts import CLAMPS, GraphFacts
from kernellab.tune.index_uses import IndexUses
from kernellab.workers.forks_and_interrupts import cached_property


class RoleKind(StrEnum):
    """The purpose of a constexpr; a FIXED one keeps the value that was passed."""

    PROGRAMS = "block of a program"
    LOOP = "block of a loop's round"
    ORDER = "order of the programs"
    FIXED = "fixed"


@dataclass(frozen=True, slots=True)
class Role:
    """The purpose of a constexpr. ``reason`` names its evidence, or why the value stays.

    Of a block, ``extent`` is the number of elements that it divides, and ``size`` the argument with that number, or "".
    A block that is not ``masked`` must divide the extent. ``dimensions`` are those of the first product: M, N, K. One
    that is not ``in_tensors`` is gone through one by one, in a loop. One that is ``of_grid`` has a program for each.
    """

    name: str
    value: Any
    kind: RoleKind
    reason: str
    extent: int | None = None
    size: str = ""
    masked: bool = True
    dimensions: frozenset[str] = frozenset()
    in_tensors: bool = True
    of_grid: bool = False

    @property
    def is_block(self) -> bool:
        """Whether it is the size of a block."""
        return self.kind in {RoleKind.PROGRAMS, RoleKind.LOOP}


class _Stays(Exception):
    """The value has to stay; the text says why."""


def role_of(name: str, value: int, first: Trial, second: Trial, *, grid_follows: bool | None = True) -> Role:
    """Return the role of a constexpr that is passed as ``value``, from two launches that differ in it alone.

    ``grid_follows`` is whether the grid, a function, differs with the value; None for a grid of numbers.
    """
    try:
        return _Comparison(first, second, name, value, grid_follows).role()
    except _Stays as why:
        return Role(name, value, RoleKind.FIXED, str(why))


WHOLE = "a program holds that many elements at once"
PARTIAL = "what is stored is a result for each block, so another block changes what that means"
_MOST_ELEMENTS = 1 << 20
COMPUTES = "it is a number that the kernel computes with"
MOVES = "it moves an index by something else than the start of a block"
FIXED_GRID = "the grid does not follow it"
_PARTS = frozenset({"arith.divsi", "arith.divui", "arith.remsi", "arith.remui"})


@dataclass(frozen=True)
class _Comparison(Differences):
    """The role of the constexpr in which two launches differ."""

    name: str
    value: int
    grid_follows: bool | None

    def role(self) -> Role:
        """Return the role.

        Raises:
            _Stays: the value has to stay.
        """
        if not self.same_operations:
            raise _Stays("another value changes the operations of the kernel")
        if self.computes_data:
            raise _Stays(COMPUTES)
        if not self.blocks:
            rows = self._chunk_loop()
            if rows is not None:
                return self._chunk(rows)
            if not self.changed:
                return Role(self.name, self.value, RoleKind.FIXED, "this launch does not use it")
            return self._order()
        kinds = [self._kind_of(block) for block in self.blocks]
        kind, *others = {kind for kind, _ in kinds}
        loops = list(dict.fromkeys(loop for _, own in kinds for loop in own))
        if others:
            raise _Stays("it is the size of blocks of programs and of blocks of a loop")
        if kind is RoleKind.PROGRAMS and not self.grid_follows and not self._goes_over_tiles():
            raise _Stays(FIXED_GRID if self.grid_follows is None and self._is_side_by_side() else WHOLE)
        self._require_whole_reductions(loops)
        extents = [self._covered_by_loop(loop) for loop in loops] if loops else [self._covered_by_programs()]
        extent = None if None in extents else max(known for known in extents if known is not None)
        self._require_own_accesses(loops)
        self._require_same_scalars(loops)
        self._require_plain_indices(loops)
        size, limit = self._limit()
        masked = all(self._is_masked(block) for block in self.blocks)
        where = self._where(loops)
        known = extent if limit is None or not masked else limit
        of_grid = kind is RoleKind.PROGRAMS and not self._goes_over_tiles()
        return Role(self.name, self.value, kind, where, known, size, masked, self.dimensions(), of_grid=of_grid)

    def _kind_of(self, block: Block) -> tuple[RoleKind, list[Operation]]:
        """Return the kind of a block, with its loops."""
        facts = self.facts
        loops = [loop for loop in facts.loops if any(self._counts(loop, start) for start in block.starts)]
        if not loops and block.index is not None:
            loops = [loop for loop in facts.loops if self._advances(loop, block.index)]
        if loops:
            return RoleKind.LOOP, loops
        if any(start in self.scaled & facts.from_any_program for start in block.starts):
            return RoleKind.PROGRAMS, []
        raise _Stays(WHOLE)

    def _counts(self, loop: Operation, start: int) -> bool:
        """Whether the block starts at the counter of a loop with steps of its size, or at its size times the round."""
        counter = self.facts.counter(loop)
        if loop.operands[2] in self.changed:
            return start in self.facts.values_from([counter], without=_PARTS)
        scaled = start in self.scaled and start in self.facts.values_from([counter], without=_PARTS)
        return scaled and loop.operands[1] in self.changed

    def _advances(self, loop: Operation, index: int) -> bool:
        """Whether a loop with a number of rounds that depends on the block moves pointers to it."""
        facts = self.facts
        if loop.operands[1] not in self.changed:
            return False
        body = facts.graph.bodies(loop)[0]
        reached = facts.values_from([index], without=frozenset(MEMORY), carried=False)
        moved = zip(body.arguments[1:], loop.operands[3:], facts.graph.end(body).operands, strict=True)
        return any(initial in reached and end in self.scaled for argument, initial, end in moved if argument != end)

    def _require_whole_reductions(self, loops: Sequence[Operation]) -> None:
        """Refuse a block that is reduced or scanned, where what is stored is the result of one block."""
        facts, memory = self.facts, frozenset(MEMORY)
        partial = [a for a, b in self.pairs if self.combines_block(a, b)]
        results = [result for operation in partial for result in operation.results]
        scans = any(operation.name == "tt.scan" for operation in partial)
        if scans and not (loops and facts.values_from(results, without=memory) & facts.carried):
            raise _Stays("each block is scanned by itself")
        reduces = [operation for operation in partial if operation.name != "tt.scan"]
        if not loops and self._stores(reduces, facts.accesses):
            raise _Stays(PARTIAL)
        for loop in loops:
            inside = [operation for operation in reduces if facts.is_inside(operation, loop)]
            if self._stores(inside, [access for access in facts.accesses if facts.is_inside(access, loop)]):
                raise _Stays(PARTIAL)

    def _stores(self, reduces: Sequence[Operation], accesses: Sequence[Operation]) -> bool:
        """Whether one of some accesses stores what an operation gives in the same round of its loop."""
        results = [result for operation in reduces for result in operation.results]
        stored = self.facts.values_from(results, carried=False, without=frozenset(MEMORY))
        rows = [(access, MEMORY[access.name]) for access in accesses]
        return any(
            row.access is Access.WRITE and row.value is not None and access.operands[row.value] in stored
            for access, row in rows
        )

    def _covered_by_programs(self) -> int:
        """Return the number of elements from 0 on that the blocks of all programs cover.

        Raises:
            _Stays: with another value, they cover other elements.
        """
        starts = [s for s in self.start_values if s in self.scaled and s in self.facts.from_any_program]
        extents = [self._extents(start) for start in starts]
        limit = self._limit()[1]
        for ours, theirs in extents:
            if limit is None and ours != theirs and not all(self._is_masked(block) for block in self.blocks):
                raise _Stays("with another value the programs cover other elements, and no mask leaves those out")
            if theirs < (ours if limit is None else min(ours, limit)):
                raise _Stays("with another value the programs do not cover the same elements")
        return max(ours for ours, _ in extents)

    def _goes_over_tiles(self) -> bool:
        """Whether each program goes from block to block, so that any number of programs does them all."""
        starts = self.scaled & self.facts.from_any_program & {*self.start_values}
        return starts <= self.facts.from_counters

    def _is_side_by_side(self) -> bool:
        """Whether the next program starts where the block ends."""
        values = [self.facts.in_launch(start) for start in self.start_values if start in self.scaled]
        return any(starts is not None and {*np.diff(np.unique(starts))} <= {self.first.value} for starts in values)

    def _extents(self, start: int) -> tuple[int, int]:
        """Return the number of elements from 0 on that blocks at ``start`` cover, in both launches; else `_Stays`."""
        extents = []
        for trial in (self.first, self.second):
            values = trial.facts.in_launch(start)
            if values is None:
                raise _Stays("where its blocks start is not known before the launch")
            extents.append(_covered_count(values, trial.value))
        return extents[0], extents[1]

    def _covered_by_loop(self, loop: Operation) -> int | None:
        """Return the elements that the rounds of a loop cover, None if unknown; `_Stays` if the other value differs."""
        if loop.operands[2] in self.changed:
            steps = [trial.facts.over_programs(loop.operands[2]) for trial in (self.first, self.second)]
            if not self._are_in_proportion(*steps):
                raise _Stays("the steps of its loop are not multiples of it")
            self._require_moved_together(loop)
            rounds = self._rounds(self.first, loop)
            return None if rounds is None else rounds * self.first.value
        ours, theirs = (self._rounds(trial, loop) for trial in (self.first, self.second))
        if ours is None or theirs is None:
            raise _Stays("how many rounds its loop has is not known before the launch")
        if not _covers_alike(ours * self.first.value, theirs, self.second.value, self.first.value):
            raise _Stays("with another value the rounds of its loop do not cover the same elements")
        self._require_moved_together(loop)
        return ours * self.first.value

    def _are_in_proportion(self, ours: Integers | None, theirs: Integers | None) -> bool:
        """Whether the steps of a loop are the same multiple of both values, of one program or of all together."""
        if ours is None or theirs is None:
            return False
        programs = [prod(trial.facts.grid) for trial in (self.first, self.second)]
        first, second = int(ours.flat[0]) * self.second.value, int(theirs.flat[0]) * self.first.value
        return first == second or first * programs[1] == second * programs[0]

    def _rounds(self, trial: Trial, loop: Operation) -> int | None:
        """Return the most rounds of a loop in a program, None where it is not known."""
        bounds = [trial.facts.over_programs(bound) for bound in loop.operands[:3]]
        if any(bound is None for bound in bounds):
            return None
        start, stop, step = bounds
        return int(np.max(np.maximum(0, -((start - stop) // step)), initial=0))  # type: ignore[operator]

    def _require_moved_together(self, loop: Operation) -> None:
        """Refuse a loop that carries an index or a pointer forward by something else than the block."""
        facts = self.facts
        body = facts.graph.bodies(loop)[0]
        for argument, end in zip(body.arguments[1:], facts.graph.end(body).operands, strict=True):
            carried = facts.graph.values[argument]
            is_index = carried.is_pointer or carried.element[:1] == "i"
            if is_index and end != argument and end not in self.scaled:
                raise _Stays("its loop moves an index by something else than the block")

    def _require_own_accesses(self, loops: Sequence[Operation]) -> None:
        """Refuse a block if its start also addresses something else, such as a factor per block."""
        facts, memory = self.facts, frozenset(MEMORY)
        counters = map(facts.counter, loops)
        from_start = facts.values_from([*self.own_starts, *counters], counted=False, carried=False, without=memory)
        from_index = facts.values_from(self.indices, without=memory)
        if any(access.operands[0] in from_start - from_index for access in facts.accesses):
            raise _Stays("the start of a block says where something else lies, too")

    @cached_property
    def own_starts(self) -> frozenset[int]:
        """The scalars at which blocks start, as far as they follow from the size."""
        return frozenset(s for s in self.start_values if s in self.scaled or s in self.facts.counters)

    def _require_same_scalars(self, loops: Sequence[Operation]) -> None:
        """Refuse a value with which the ids of the programs mean something else."""
        facts, other = self.facts, self.second.facts
        bounds = {bound for loop in facts.loops for bound in loop.operands[:3]}
        own = self.own_starts
        for scalar in facts.entering_scalars:
            if scalar not in facts.from_grid or scalar in bounds or own & {*facts.terms(scalar)}:
                continue
            ours, theirs = facts.in_launch(scalar), other.in_launch(scalar)
            if ours is None or theirs is None:
                if scalar in self.changed and not loops and scalar not in facts.from_counters:
                    raise _Stays("what the ids of the programs mean is not known before the launch")
            elif not np.array_equal(ours, theirs) and not self._makes_up_for_start(scalar, own):
                raise _Stays("with another value the ids of the programs mean something else")

    @cached_property
    def _uses(self) -> IndexUses:
        return IndexUses(self)

    def _require_plain_indices(self, loops: Sequence[Operation]) -> None:
        """Refuse a value that indices are computed with, other than as the size of blocks next to each other."""
        if self._uses.computes:
            raise _Stays(COMPUTES)
        if self._uses.moves_blocks(self.blocks, self._distances(loops)):
            raise _Stays(MOVES)

    def _distances(self, loops: Sequence[Operation]) -> tuple[int, int] | None:
        """Return the distances between the starts of blocks in both launches, None where they are unknown."""
        from_programs = self.facts.from_any_program
        if len(loops) == 1 and loops[0].operands[2] in self.changed and loops[0].operands[0] not in from_programs:
            steps = [trial.facts.over_programs(loops[0].operands[2]) for trial in (self.first, self.second)]
            known = [int(step.flat[0]) for step in steps if step is not None and step.size]
            return (known[0], known[1]) if len(known) == len(steps) else None
        starts = [start for start in self.start_values if start in self.scaled & from_programs]
        if loops or not starts or self.facts.from_counters & {*self.start_values}:
            return None
        pairs = [[trial.facts.in_launch(start) for trial in (self.first, self.second)] for start in starts]
        gaps = [[np.diff(np.unique(values)) for values in pair if values is not None] for pair in pairs]
        least = [[int(gap.min()) for gap in pair if gap.size] for pair in gaps]
        return min((ours, theirs) for ours, theirs in least) if all(len(pair) == 2 for pair in least) else None

    def _makes_up_for_start(self, scalar: int, own: frozenset[int]) -> bool:
        """Whether a scalar and the start of the block add up to the same, as what is left of a row does."""
        for start in own:
            pairs = [(t.facts.over_programs(scalar), t.facts.over_programs(start)) for t in (self.first, self.second)]
            sums = [np.unique(a + b) for a, b in pairs if a is not None and b is not None]
            if len(sums) > 1 and np.array_equal(sums[0], sums[1]):
                return True
        return False

    def _is_masked(self, block: Block) -> bool:
        """Whether each access at indices of the block is masked by them, or its index kept within bounds."""
        facts = self.facts
        if block.index is None:
            return True
        free = facts.values_from([block.index], without=CLAMPS | frozenset(MEMORY))
        for access in facts.accesses:
            mask = facts.mask(access)
            if access.operands[0] in free and not MEMORY[access.name].clipped and (mask is None or mask not in free):
                return False
        return True

    def _limit(self) -> tuple[str, int | None]:
        """Return the size that masks compare the indices with: the argument's name and the number."""
        facts = self.facts
        chains = frozenset[int]().union(*map(facts.index_chain, self.indices))
        for operation in facts.operations_named("arith.cmpi"):
            if not facts.mask_values & facts.values_from(operation.results):
                continue
            for index, other in (operation.operands, operation.operands[::-1]):
                if index in chains and other not in chains and (size := self._size(other)) is not None:
                    return size
        sizes = (self._size(block.limit) for block in self.blocks if block.limit is not None)
        return next((size for size in sizes if size is not None), ("", None))

    def _size(self, value: int) -> tuple[str, int] | None:
        """Return a limit as the argument's name, or "", and the number; None where it is neither."""
        facts, names = self.facts, self.facts.integer_arguments(value)
        scalar = facts.scalar(value)
        number = None if scalar is None else facts.over_programs(scalar)
        if number is not None and number.size and bool(np.all(number == number.flat[0])):
            return names[0] if len(names) == 1 else "", int(number.flat[0])
        return (names[0], int(facts.arguments[names[0]])) if len(names) == 1 else None

    def _where(self, loops: Sequence[Operation]) -> str:
        lines = sorted({loop.location.line for loop in loops if loop.location.line})
        if loops:
            return f"the loop in line {' and '.join(map(str, lines))}" if lines else "a loop"
        axes = [
            str(axis)
            for axis, values in self.facts.from_programs.items()
            if any(start in values & self.scaled for start in self.start_values)
        ]
        return f"the programs along axis {' and '.join(axes)}"

    def _chunk_loop(self) -> Operation | None:
        """Return the loop in which a program goes through its block one by one, if there is one alone."""
        starts = self.scaled & self.facts.from_any_program
        loops = [loop for loop in self.facts.loops if {*loop.operands[:2]} <= starts and loop.operands[2] not in starts]
        return loops[0] if len(loops) == 1 else None

    def _chunk(self, loop: Operation) -> Role:
        """Return the role of the number of elements that a program goes through one by one; `_Stays` if it has none."""
        if not self.grid_follows:
            raise _Stays(FIXED_GRID if self.grid_follows is None else WHOLE)
        ours, theirs = (self._gone_through(trial, loop) for trial in (self.first, self.second))
        if ours is None or theirs is None or not np.array_equal(ours, theirs):
            raise _Stays("with another value the programs do not cover the same elements")
        facts, memory = self.facts, frozenset(MEMORY)
        results = facts.values_from(loop.results, without=memory)
        starts = facts.values_from(loop.operands[:2], counted=False, without=memory)
        for access in facts.accesses:
            row = MEMORY[access.name]
            if row.access is Access.WRITE and row.value is not None and access.operands[row.value] in results:
                raise _Stays(PARTIAL)
            if access.operands[0] in starts:
                raise _Stays("the start of a block says where something else lies, too")
        self._require_same_scalars([loop])
        if self._uses.computes or self._uses.offsets:
            raise _Stays(COMPUTES)
        where = self._where([loop])
        return Role(self.name, self.value, RoleKind.PROGRAMS, where, int(ours.size), in_tensors=False, of_grid=True)

    def _gone_through(self, trial: Trial, loop: Operation) -> Integers | None:
        """Return the elements that the rounds of a loop go through in all programs, sorted; None if not known."""
        bounds = [trial.facts.over_programs(bound) for bound in loop.operands[:3]]
        known = [bound.tolist() for bound in bounds if bound is not None]
        rounds = [range(*row) for row in zip(*known, strict=True)] if len(known) == len(bounds) else []
        if not rounds or sum(map(len, rounds)) > _MOST_ELEMENTS:
            return None
        return np.sort(np.concatenate([np.asarray(numbers, dtype=np.int64) for numbers in rounds]))

    def _order(self) -> Role:
        """Return the role of a number that decides which program does what; `_Stays` for another number.

        Only scalars are compared, so it must not be a number of tensors, as one that an index is divided by.
        """
        if any(self.facts.graph.values[constant].shape for constant in self.constants):
            raise _Stays(COMPUTES)
        ours, theirs = (self._work(trial.facts) for trial in (self.first, self.second))
        if ours is None or theirs is None or ours.shape != theirs.shape or not np.array_equal(ours, theirs):
            raise _Stays(COMPUTES)
        return Role(self.name, self.value, RoleKind.ORDER, "the order of the programs")

    def _work(self, facts: GraphFacts) -> Integers | None:
        """Return the scalars of each program, in a row each, sorted; None where one is not known."""
        columns = []
        for scalar in facts.deciding_scalars:
            values = facts.over_programs(scalar)
            if values is not None:
                columns.append(values)
            elif scalar in self.changed | facts.from_grid:
                return None
        rows = np.stack(columns, axis=1) if columns else np.zeros((1, 0), dtype=np.int64)
        return rows[np.lexsort(rows.T)] if columns else rows


def _covered_count(starts: Integers, block: int) -> int:
    """Return the number of elements that blocks at these starts cover from 0 on; `_Stays` if not in one distance."""
    unique = np.unique(starts)
    distance = int(unique[1]) if unique.size > 1 else block
    if not unique.size or unique[0] != 0 or distance % block or not np.all(np.diff(unique) == distance):
        raise _Stays("its blocks do not follow each other from 0 on")
    return int(unique[-1]) + distance


def _covers_alike(ours: int, rounds: int, other_block: int, block: int) -> bool:
    """Whether ``rounds`` of ``other_block`` cover what was covered, but for what lies beyond the last element."""
    least = max(ours - block, 0) + 1
    return -(-least // other_block) <= rounds <= max(-(-ours // other_block), 1) or (ours == 0 and rounds == 0)
