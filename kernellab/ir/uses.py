"""Who makes and who uses each value, across regions, branches and calls; and the slices of a graph that follow."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kernellab.errors import UsageError, choice_message
from kernellab.ir.graph import Block, Graph, Operation
from kernellab.ir.operations import MEMORY

if TYPE_CHECKING:
    from kernellab.ir.effects import Effects  # which builds upon this

_FOR_BOUNDS = 3  # scf.for: lower bound, upper bound and step stand before the initial values
_CONTROL_OPERANDS = {"scf.for": _FOR_BOUNDS, "scf.if": 1}


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
                    self._copy(_end(self.graph, self.graph.blocks[block]).operands, operation.results)

    def forward(self, values: Iterable[int]) -> set[int]:
        """Return every operation that some value reaches."""
        found: set[int] = set()
        seen: set[int] = set()
        waiting = list(values)
        while waiting:
            value = waiting.pop()
            if value in seen:
                continue
            seen.add(value)
            waiting += self.copies[value]
            for index in self.users[value]:
                found.add(index)
                if not self.graph.operations[index].regions and self.graph.operations[index].name != "tt.call":
                    waiting += self.graph.operations[index].results
        return found

    def backward(self, operations: Iterable[int]) -> set[int]:
        """Return every operation that leads to one of ``operations``, these and what decides about them included."""
        found: set[int] = set()
        waiting = list(operations)
        seen: set[int] = set()
        while waiting:
            index = waiting.pop()
            if index in found:
                continue
            found.add(index)
            operation = self.graph.operations[index]
            owner = self.graph.regions[self.graph.blocks[operation.block].region].owner
            if owner is not None:
                waiting.append(owner)
            waiting += self._makers(self.deciding(operation), seen)
        return found

    def leading_to(self, values: Iterable[int]) -> set[int]:
        """Return every operation that leads to one of ``values``, what decides about them included."""
        return self.backward(self._makers(list(values), set()))

    def deciding(self, operation: Operation) -> Sequence[int]:
        """Return the operands that an operation itself reads; a loop or branch reads its bounds or condition."""
        if operation.name == "scf.while":
            return _end(self.graph, _blocks(self.graph, operation)[0]).operands[:1]
        return operation.operands[: _CONTROL_OPERANDS.get(operation.name, len(operation.operands))]

    def _makers(self, values: Sequence[int], seen: set[int]) -> list[int]:
        makers: list[int] = []
        waiting = list(values)
        while waiting:
            value = waiting.pop()
            if value in seen:
                continue
            seen.add(value)
            waiting += self.origins[value]
            maker = self.graph.values[value].operation
            if maker is not None:
                makers.append(maker)
        return makers

    def _copy(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        for source, target in zip(sources, targets, strict=False):
            self.copies[source].append(target)
            self.origins[target].append(source)

    def _pass_more(self, operation: Operation) -> None:
        """Note what is left out by `joins`: a loop may not run at all, and what is not known may yield any result."""
        blocks = _blocks(self.graph, operation)
        if operation.name == "scf.for":
            counter = blocks[0].arguments[:1]
            for bound in operation.operands[:_FOR_BOUNDS]:
                self._copy([bound], counter)
            self._copy(operation.operands[_FOR_BOUNDS:], operation.results)
        elif operation.name not in {"scf.while", "scf.if"}:
            for yielded in (value for block in blocks for value in _end(self.graph, block).operands):
                self._copy([yielded] * len(operation.results), operation.results)


@dataclass(frozen=True, slots=True)
class Slice:
    """The operations that a start leads to, and those that lead to it; the start itself counts for both."""

    forward: frozenset[int]
    backward: frozenset[int]

    @property
    def operations(self) -> frozenset[int]:
        """The operations of both directions."""
        return self.forward | self.backward


def argument_slice(graph: Graph, argument: str, effects: Effects | None = None) -> Slice:
    """Return what an argument leads to, and what leads to the operations that touch it.

    Of an operation in a loop or branch, the operation that owns the region and what its bounds or condition derive
    from belong to the slice. ``effects`` tell which operations touch the argument; without them, those are found by
    following its pointer alone.

    Raises:
        UsageError: the kernel has no such argument.
    """
    kernel = graph.kernel
    if argument not in kernel.parameters:
        raise UsageError(choice_message("argument", argument, kernel.parameters, owner=kernel.name))
    uses = Uses(graph)
    starts = [value for value, name in zip(kernel.arguments, kernel.parameters, strict=True) if name == argument]
    forward = uses.forward(starts)
    if effects is None:
        touching = {each for each in forward if graph.operations[each].name in MEMORY}
    else:
        touching = {site.index for site in effects.sites if site.argument == argument}
    return Slice(frozenset(forward), frozenset(uses.backward(touching)))


def operation_slice(graph: Graph, operations: Collection[int]) -> Slice:
    """Return what operations lead to, through their results and what they pass into their regions, and derive from."""
    uses = Uses(graph)
    made: list[int] = []
    for operation in (graph.operations[index] for index in operations):
        blocks = (block for region in operation.regions for block in graph.regions[region].blocks)
        made += [*operation.results, *(value for block in blocks for value in graph.blocks[block].arguments)]
    forward = uses.forward(made) | set(operations)
    return Slice(frozenset(forward), frozenset(uses.backward(operations)))


def value_slice(graph: Graph, value: int) -> Slice:
    """Return what a value that no operation makes (an argument of a block) leads to, and what it derives from."""
    uses = Uses(graph)
    return Slice(frozenset(uses.forward([value])), frozenset(uses.leading_to([value])))


Join = tuple[int, int, bool]
"""A value, another one that it may be, and whether it gets that from the iteration of a loop before."""


def joins(graph: Graph, operation: Operation) -> Iterator[Join]:
    """Yield what an operation makes of values by passing them on: into its regions, out of them, to another block.

    A loop counts as entered, so that its results come from its body alone. An operation with regions that is not known
    may hand any operand to any block argument.
    """
    if operation.name == "scf.for":
        return _for_joins(graph, operation)
    if operation.name == "scf.while":
        return _while_joins(graph, operation)
    if operation.name == "ttg.warp_specialize":
        return _specialize_joins(graph, operation)
    return _branch_joins(graph, operation) if operation.successors else _region_joins(graph, operation)


def _for_joins(graph: Graph, operation: Operation) -> Iterator[Join]:
    block = _blocks(graph, operation)[0]
    carried = block.arguments[1:]
    yielded = _end(graph, block).operands
    yield from ((to, source, False) for to, source in zip(carried, operation.operands[_FOR_BOUNDS:], strict=False))
    yield from ((to, source, True) for to, source in zip(carried, yielded, strict=False))
    yield from ((to, source, False) for to, source in zip(operation.results, yielded, strict=False))


def _while_joins(graph: Graph, operation: Operation) -> Iterator[Join]:
    before, after = _blocks(graph, operation)[:2]
    passed = _end(graph, before).operands[1:]  # scf.condition: the flag, then what both sides get
    yielded = _end(graph, after).operands
    yield from ((to, source, False) for to, source in zip(before.arguments, operation.operands, strict=False))
    yield from ((to, source, True) for to, source in zip(before.arguments, yielded, strict=False))
    yield from ((to, source, False) for to, source in zip(after.arguments, passed, strict=False))
    yield from ((to, source, False) for to, source in zip(operation.results, passed, strict=False))


def _specialize_joins(graph: Graph, operation: Operation) -> Iterator[Join]:
    """Yield what partitions get of the captured operands, and what the default warps hand on."""
    default, *partitions = ([graph.blocks[block] for block in graph.regions[each].blocks] for each in operation.regions)
    for blocks in partitions:
        pairs = zip(blocks[0].arguments, operation.operands, strict=False)
        yield from ((to, source, False) for to, source in pairs)
    yielded = _end(graph, default[-1]).operands
    yield from ((to, source, False) for to, source in zip(operation.results, yielded, strict=False))


def _branch_joins(graph: Graph, operation: Operation) -> Iterator[Join]:
    passed = list(operation.operands[1:] if operation.name == "cf.cond_br" else operation.operands)
    for successor in operation.successors:
        block = graph.blocks[successor]
        sources, passed = passed[: len(block.arguments)], passed[len(block.arguments) :]
        back = successor <= operation.block
        yield from ((to, source, back) for to, source in zip(block.arguments, sources, strict=False))


def _region_joins(graph: Graph, operation: Operation) -> Iterator[Join]:
    for block in _blocks(graph, operation):
        for to in block.arguments:
            yield from ((to, source, False) for source in operation.operands)
        if block.operations:
            yielded = _end(graph, block).operands
            yield from ((to, source, False) for to, source in zip(operation.results, yielded, strict=False))


def _blocks(graph: Graph, operation: Operation) -> list[Block]:
    return [graph.blocks[block] for region in operation.regions for block in graph.regions[region].blocks]


def _end(graph: Graph, block: Block) -> Operation:
    return graph.operations[block.operations[-1]]
