"""Who makes and who uses each value, across regions, branches and calls; and what follows from that.

That is the slices of a graph, and whether loaded values decide what a kernel touches.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum

from kernellab.errors import UsageError, choice_message
from kernellab.ir.graph import FOR_BOUNDS, Graph, Operation, joins, reachable
from kernellab.ir.operations import FOREIGN_CODE, MEMORY

_CONTROL_OPERANDS = {"scf.for": FOR_BOUNDS, "scf.if": 1}
_CONTROL = frozenset({"scf.if", "scf.while", "scf.for", "cf.cond_br", "tt.assert", "ttng.wait_barrier"})
_ADDRESSES_AS_NUMBERS = frozenset({"tt.int_to_ptr", "tt.ptr_to_int"})
_ON_CHIP_LOADS = frozenset({"ttg.local_load", "ttg.local_gather", "ttng.tmem_load"})


@dataclass(slots=True)
class Uses:
    """The dataflow of a graph.

    ``copies`` leads from a value to the values that it becomes by being passed on: a loop's initial value to the
    argument of its body, a yielded value to a result, an operand of a call to the callee's argument.
    """

    graph: Graph
    users: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    copies: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    origins: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        for operation in self.graph.operations:
            for operand in operation.operands:
                self.users[operand].append(operation.index)
            for target, source, _ in joins(self.graph, operation):
                self._copy([source], [target])
            self._pass_more(operation)
        for operation in self.graph.operations:
            callee = self.graph.callee(operation)
            if callee is not None:
                self._copy(operation.operands, callee.arguments)
                for block in self.graph.regions[callee.region].blocks:
                    self._copy(self.graph.end(self.graph.blocks[block]).operands, operation.results)

    def forward(self, values: Iterable[int]) -> set[int]:
        """Return every operation that some value reaches."""

        def onward(value: int) -> Iterator[int]:
            yield from self.copies[value]
            for user in (self.graph.operations[index] for index in self.users[value]):
                if not user.regions and user.name != "tt.call":
                    yield from user.results

        return {index for value in reachable(values, onward) for index in self.users[value]}

    def backward(self, operations: Iterable[int]) -> set[int]:
        """Return every operation that leads to one of ``operations``, these and what decides about them included."""
        seen: set[int] = set()

        def leading(index: int) -> Iterator[int]:
            operation = self.graph.operations[index]
            yield from (owner.index for owner in self.graph.owners(operation.block))
            yield from self._makers(self.own_operands(operation), seen)

        return set(reachable(operations, leading))

    def leading_to(self, values: Iterable[int]) -> set[int]:
        """Return every operation that leads to one of ``values``, what decides about them included."""
        return self.backward(self._makers(values, set()))

    def own_operands(self, operation: Operation) -> Sequence[int]:
        """Return the operands that an operation itself reads; a loop or branch reads its bounds or condition."""
        if operation.name == "scf.while":
            return self.graph.end(self.graph.bodies(operation)[0]).operands[:1]
        return operation.operands[: _CONTROL_OPERANDS.get(operation.name, len(operation.operands))]

    def _makers(self, values: Iterable[int], seen: set[int]) -> list[int]:
        made_by = (self.graph.values[value].operation for value in reachable(values, self.origins.__getitem__, seen))
        return [index for index in made_by if index is not None]

    def _copy(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        for source, target in zip(sources, targets, strict=False):
            self.copies[source].append(target)
            self.origins[target].append(source)

    def _pass_more(self, operation: Operation) -> None:
        """Note what is left out by `joins`: a loop may not run at all, and what is not known may yield any result."""
        blocks = self.graph.bodies(operation)
        if operation.name == "scf.for":
            counter = blocks[0].arguments[:1]
            for bound in operation.operands[:FOR_BOUNDS]:
                self._copy([bound], counter)
            self._copy(operation.operands[FOR_BOUNDS:], operation.results)
        elif operation.name not in {"scf.while", "scf.if"}:
            for yielded in (value for block in blocks for value in self.graph.end(block).operands):
                self._copy([yielded] * len(operation.results), operation.results)


class DecidingData(Enum):
    """The data besides grid, sizes and numbers that decides on an address, mask, branch, loop or assertion.

    Where there is ``NONE``, two launches of the same grid, on arguments of the same sizes and with the same numbers,
    touch the same addresses and end the same way. With ``LOADED`` values, they do on arguments of the same contents,
    but for the order of atomic operations. ``UNKNOWN`` is that of foreign code, of addresses as numbers, and of on-chip
    memory, whose contents are not followed.
    """

    NONE = "none"
    LOADED = "loaded"
    UNKNOWN = "unknown"


def deciding_data(graph: Graph) -> DecidingData:
    """Return the data that decides what a launch touches. Foreign code that is not pure may do anything."""
    foreign = [operation for operation in graph.operations if operation.name in FOREIGN_CODE]
    if any(operation.attribute("pure") != "true" for operation in foreign):
        return DecidingData.UNKNOWN
    uses = Uses(graph)
    deciding = [value for operation in graph.operations for value in _deciding_operands(uses, operation)]
    leading = [graph.operations[index] for index in uses.leading_to(deciding)]
    if any(operation.name in {*_ADDRESSES_AS_NUMBERS, *_ON_CHIP_LOADS, *FOREIGN_CODE} for operation in leading):
        return DecidingData.UNKNOWN
    is_loaded = any(operation.results and operation.name in MEMORY for operation in leading)
    return DecidingData.LOADED if is_loaded else DecidingData.NONE


def _deciding_operands(uses: Uses, operation: Operation) -> Sequence[int]:
    """Return the operands that decide what an operation touches, or what runs."""
    if operation.name == "tt.gather":  # of elements in shared memory, without a look at bounds
        return operation.operands[1:2]
    row = MEMORY.get(operation.name)
    if row is not None:
        return [value for place, value in enumerate(operation.operands) if place != row.value]
    return uses.own_operands(operation) if operation.name in _CONTROL else ()


@dataclass(frozen=True, slots=True)
class Slice:
    """The operations that a start leads to, and those that lead to it; the start itself counts for both."""

    forward: frozenset[int]
    backward: frozenset[int]

    @property
    def operations(self) -> frozenset[int]:
        """The operations of both directions."""
        return self.forward | self.backward


def argument_slice(graph: Graph, argument: str, touching: Collection[int] | None) -> Slice:
    """Return the operations that use an argument, and the operands of those that access it.

    Of an operation in a loop or branch, the operation that owns the region and what its bounds or condition derive
    from belong to the slice. ``touching`` are the operations that touch the argument, as its effects say; without
    them, those are found by following its pointer alone.

    Raises:
        UsageError: the kernel has no such argument.
    """
    kernel = graph.kernel
    if argument not in kernel.parameters:
        raise UsageError(choice_message("argument", argument, kernel.parameters, owner=kernel.name))
    uses = Uses(graph)
    starts = [value for value, name in zip(kernel.arguments, kernel.parameters, strict=True) if name == argument]
    forward = uses.forward(starts)
    if touching is None:
        touching = {index for index in forward if graph.operations[index].name in MEMORY}
    return Slice(frozenset(forward), frozenset(uses.backward(touching)))


def operation_slice(graph: Graph, operations: Collection[int]) -> Slice:
    """Return the operations before and after some operations, through results and regions."""
    uses = Uses(graph)
    results: list[int] = []
    for operation in (graph.operations[index] for index in operations):
        results += [*operation.results, *(value for block in graph.bodies(operation) for value in block.arguments)]
    forward = uses.forward(results) | set(operations)
    return Slice(frozenset(forward), frozenset(uses.backward(operations)))


def value_slice(graph: Graph, value: int) -> Slice:
    """Return the operations before and after a block argument."""
    uses = Uses(graph)
    return Slice(frozenset(uses.forward([value])), frozenset(uses.leading_to([value])))
