"""Facts of one launch's graph that say what a block size is for: what values reach, and what each program computes.

The graph is that of the frontend's TTIR, with helpers inlined: each mention of a block size has operations of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kernellab.ir.graph import FOR_BOUNDS, Graph, Operation, reachable
from kernellab.ir.operations import MEMORY
from kernellab.ir.programs import CannotFollow, Grid3, Integers, Known, Programs, Weight, axis_of, integers, scalars_of
from kernellab.ir.uses import Uses
from kernellab.workers.forks_and_interrupts import cached_property

SHAPE_OPERATIONS = frozenset(
    {
        *("tt.splat", "tt.expand_dims", "tt.broadcast", "tt.reshape", "tt.trans", "arith.extsi", "arith.extui"),
        *("arith.trunci", "arith.index_cast", "arith.bitcast"),
    }
)
"""Operations that pass a number on, to another shape or type."""
CLAMPS = frozenset(
    {"arith.remsi", "arith.remui", "arith.minsi", "arith.minui", "arith.maxsi", "arith.maxui", "arith.select"}
)
"""Operations that keep an index within bounds."""
_MOST_PROGRAMS = 1 << 20
_ENDS = frozenset({"scf.yield", "scf.condition"})
LOOPS = frozenset({"scf.for", "scf.while"})
DOTS = frozenset({"tt.dot", "tt.dot_scaled"})


@dataclass(frozen=True)
class GraphFacts:
    """The graph of one launch, with its grid and its arguments by name."""

    graph: Graph
    grid: Grid3
    arguments: Mapping[str, Any] = field(repr=False)

    @cached_property
    def uses(self) -> Uses:
        """The dataflow of the graph."""
        return Uses(self.graph)

    def operations_named(self, *names: str) -> list[Operation]:
        """Return the operations of some names."""
        return [operation for operation in self.graph.operations if operation.name in names]

    @cached_property
    def loops(self) -> list[Operation]:
        """The ``scf.for`` operations."""
        return self.operations_named("scf.for")

    @cached_property
    def accesses(self) -> list[Operation]:
        """The operations that touch memory."""
        return self.operations_named(*MEMORY)

    def counter(self, loop: Operation) -> int:
        """Return the value that counts the rounds of an ``scf.for``."""
        return self.graph.bodies(loop)[0].arguments[0]

    def values_from(
        self,
        values: Iterable[int],
        *,
        without: frozenset[str] = frozenset(),
        carried: bool = True,
        counted: bool = True,
    ) -> frozenset[int]:
        """Return the values that some values lead to, themselves included.

        They do not pass operations of the names in ``without``. Without ``carried`` none passes from one round of a
        loop to the next, without ``counted`` none from the bounds of a loop to its counter.
        """
        graph, uses = self.graph, self.uses

        def onward(value: int) -> Iterator[int]:
            for target in uses.copies[value]:
                if (carried or target not in self.carried) and (counted or target not in self.counters):
                    yield target
            for user in (graph.operations[index] for index in uses.users[value]):
                if not user.regions and user.name != "tt.call" and user.name not in without:
                    yield from user.results

        return frozenset(reachable(values, onward))

    @cached_property
    def counters(self) -> frozenset[int]:
        """The values that count the rounds of loops."""
        return frozenset(map(self.counter, self.loops))

    @cached_property
    def carried(self) -> frozenset[int]:
        """The values that loops carry from round to round."""
        blocks = [block for loop in self.operations_named(*LOOPS) for block in self.graph.bodies(loop)]
        return frozenset(value for block in blocks for value in block.arguments) - self.counters

    @cached_property
    def from_programs(self) -> Mapping[int, frozenset[int]]:
        """The values that derive from the id of the program, by axis of the grid."""
        ids: dict[int, list[int]] = {}
        for operation in self.operations_named("tt.get_program_id"):
            ids.setdefault(axis_of(operation), []).append(operation.results[0])
        return {axis: self.values_from(values) for axis, values in sorted(ids.items())}

    @cached_property
    def from_any_program(self) -> frozenset[int]:
        """The values that derive from any id of the program."""
        return frozenset().union(*self.from_programs.values())

    @cached_property
    def from_grid(self) -> frozenset[int]:
        """The values that derive from the ids or from the number of the programs."""
        counts = [operation.results[0] for operation in self.operations_named("tt.get_num_programs")]
        return self.from_any_program | self.values_from(counts)

    def index_chain(self, value: int) -> frozenset[int]:
        """Return the values that are ``value`` plus something, in any shape."""
        graph, uses = self.graph, self.uses

        def onward(at: int) -> Iterator[int]:
            yield from uses.copies[at]
            for user in (graph.operations[index] for index in uses.users[at]):
                if user.name in SHAPE_OPERATIONS or user.name == "arith.addi":
                    yield from user.results

        return frozenset(reachable([value], onward))

    def starts(self, value: int) -> list[int]:
        """Return the scalars that are added to an index, or to the pointer that it is an offset of."""
        chain, added = self.index_chain(value), list[int]()
        for operation in self.graph.operations:
            if operation.name == "arith.addi":
                added += [other for other in operation.operands if other not in chain and chain & {*operation.operands}]
            elif operation.name == "tt.addptr" and operation.operands[1] in chain:
                added += self._offsets(operation.operands[0])
        return list(dict.fromkeys(term for value in added for term in self.terms(value)))

    def terms(self, value: int) -> Iterator[int]:
        """Yield the scalars that add up to each element of a value; none if the elements differ."""
        scalar = self.scalar(value)
        maker = None if scalar is None else self.graph.maker(scalar)
        if maker is not None and maker.name == "arith.addi":
            for operand in maker.operands:
                yield from self.terms(operand)
        elif scalar is not None:
            yield scalar

    def _offsets(self, pointer: int) -> Iterator[int]:
        """Yield the offsets added to a pointer, the last one first."""
        maker = self.graph.maker(self._value_before_reshapes(pointer))
        while maker is not None and maker.name == "tt.addptr":
            yield maker.operands[1]
            maker = self.graph.maker(self._value_before_reshapes(maker.operands[0]))

    def scalar(self, value: int) -> int | None:
        """Return the scalar that all elements of a value are, or None."""
        value = self._value_before_reshapes(value)
        return None if self.graph.values[value].shape else value

    def _value_before_reshapes(self, value: int) -> int:
        """Return the value that reshapes and casts made this one of."""
        while (maker := self.graph.maker(value)) is not None and maker.name in SHAPE_OPERATIONS:
            value = maker.operands[0]
        return value

    @cached_property
    def known(self) -> Mapping[int, Known]:
        """The integer scalars of all programs, by value; None, or absent, where they are not known."""
        programs = Programs(
            self.graph, self.grid, by_rounds=False, visit=lambda operation, weight: None, most_programs=_MOST_PROGRAMS
        )
        try:
            programs.call(self.graph.kernel, scalars_of(self.graph, self.arguments), integers(1))
        except CannotFollow:
            return {}
        return programs.values

    def over_programs(self, value: int) -> Integers | None:
        """Return the number of a scalar in each program, or None if it is unknown."""
        known = self.known.get(value)
        return None if known is None else np.broadcast_to(known, int(np.prod(self.grid)))

    def in_launch(self, value: int) -> Integers | None:
        """Return the distinct numbers of a scalar in all programs and rounds, or None if they are unknown."""
        known = self.over_programs(value)
        return np.unique(known) if known is not None else self._by_rounds.get(value)

    @cached_property
    def _by_rounds(self) -> Mapping[int, Integers]:
        """The different numbers that scalars inside loops are, where each round can be followed."""
        entering = self.entering_scalars
        tracked = {term for scalar in entering for term in self.terms(scalar)} | {*entering}
        numbers: dict[int, set[int]] = {}
        lost: set[int] = set()

        def visit(operation: Operation, weight: Weight) -> None:
            for value in tracked & {*operation.results}:
                known = programs.values.get(value)
                if known is None or isinstance(weight, str):
                    lost.add(value)
                else:
                    shape = np.broadcast_shapes(known.shape, weight.shape)
                    active = np.broadcast_to(known, shape)[np.broadcast_to(weight, shape) > 0]
                    numbers.setdefault(value, set()).update(np.unique(active).tolist())

        programs = Programs(self.graph, self.grid, by_rounds=True, visit=visit)
        try:
            programs.call(self.graph.kernel, scalars_of(self.graph, self.arguments), integers(1))
        except CannotFollow:
            return {}
        return {value: np.array(sorted(observed)) for value, observed in numbers.items() if value not in lost}

    @cached_property
    def from_counters(self) -> frozenset[int]:
        """The values that change from round to round of a loop."""
        return self.values_from(self.counters)

    @cached_property
    def entering_scalars(self) -> list[int]:
        """The integer scalars that enter tensors, addresses, descriptors or bounds of loops."""
        entering: list[int] = []
        for operation in self.graph.operations:
            if operation.name == "tt.splat":
                entering += operation.operands
            elif operation.name == "tt.addptr":
                entering.append(operation.operands[1])
            elif operation.name.startswith("tt.descriptor"):
                entering += operation.operands[1:]
            elif operation.name == "scf.for":
                entering += operation.operands[:FOR_BOUNDS]
            elif operation.name == "scf.if":
                entering += operation.operands[:1]
        values = (self.graph.values[value] for value in dict.fromkeys(entering))
        return [value.index for value in values if not value.shape and value.element[:1] == "i"]

    @cached_property
    def deciding_scalars(self) -> list[int]:
        """The integer scalars that tensors, accesses, loops and branches are made of."""
        values, deciding = self.graph.values, dict.fromkeys(self.entering_scalars)
        for operation in self.graph.operations:
            if operation.regions or operation.name in _ENDS:
                continue
            if operation.results and all(self._is_integer_scalar(result) for result in operation.results):
                continue
            deciding |= dict.fromkeys(value for value in operation.operands if self._is_integer_scalar(value))
        return [values[value].index for value in deciding]

    def _is_integer_scalar(self, value: int) -> bool:
        known = self.graph.values[value]
        return not known.shape and not known.is_pointer and known.element[:1] == "i"

    @cached_property
    def ranges(self) -> frozenset[int]:
        """The values that are made of indices, up to where they address memory."""
        ranges = [operation.results[0] for operation in self.operations_named("tt.make_range")]
        return self.values_from(ranges, without=frozenset(MEMORY))

    @cached_property
    def loaded(self) -> frozenset[int]:
        """The values that are computed with what accesses read, up to the next access."""
        results = [result for access in self.accesses for result in access.results]
        return self.values_from(results, without=frozenset(MEMORY))

    @cached_property
    def moving(self) -> frozenset[int]:
        """The values that differ between programs, or between rounds of a loop."""
        return self.from_any_program | self.from_counters | self.values_from(self.carried)

    @cached_property
    def mask_values(self) -> frozenset[int]:
        """The masks of all accesses."""
        masks = (self.mask(access) for access in self.accesses)
        return frozenset(mask for mask in masks if mask is not None)

    def mask(self, access: Operation) -> int | None:
        """Return the mask of an access, or None."""
        place = MEMORY[access.name].mask
        return None if place is None or place >= len(access.operands) else access.operands[place]

    def integer_arguments(self, value: int) -> list[str]:
        """Return the integer arguments that a value derives from."""
        kernel = self.graph.kernel
        pairs = zip(kernel.arguments, kernel.parameters, strict=True)
        return [
            name
            for argument, name in pairs
            if type(self.arguments.get(name)) is int and value in self.values_from([argument])
        ]

    def is_inside(self, operation: Operation, loop: Operation) -> bool:
        """Whether an operation is in the body of a loop."""
        return any(owner.index == loop.index for owner in self.graph.owners(operation.block))
