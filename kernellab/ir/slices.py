"""Parts of a graph: the slice of one argument, and the operations of each source line with their memory traffic."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from kernellab.errors import UsageError, choice_message
from kernellab.ir.constants import Constants
from kernellab.ir.effects import Effects
from kernellab.ir.graph import Graph, Location, Operation
from kernellab.ir.lines import place_of
from kernellab.ir.operations import MEMORY, Access
from kernellab.ir.uses import Uses

_BITS = re.compile(r"(?:!tt\.ptr<)?[a-z]+(\d+)")


@dataclass(frozen=True, slots=True)
class Slice:
    """The operations that a start leads to, and those that lead to it; the start itself counts for both."""

    forward: frozenset[int]
    backward: frozenset[int]

    @property
    def operations(self) -> frozenset[int]:
        """The operations of both directions."""
        return self.forward | self.backward


def slice_of(graph: Graph, argument: str, effects: Effects | None = None) -> frozenset[int]:
    """Return the operations that an argument leads to, and those that lead to what is written to it.

    Of an operation in a loop or branch, the operation that owns the region and what its bounds or condition derive
    from belong to the slice. ``effects`` tell which operations touch the argument; without them, those are found by
    following its pointer alone.

    Raises:
        UsageError: the kernel has no such argument.
    """
    return argument_slice(graph, argument, effects).operations


def argument_slice(graph: Graph, argument: str, effects: Effects | None = None) -> Slice:
    """Return what an argument leads to, and what leads to the operations that touch it; see `slice_of`."""
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


@dataclass(frozen=True, slots=True)
class OperationBytes:
    """What one memory operation moves. ``bytes_each`` counts all lanes, masked ones too, and an atomic twice.

    ``times`` is how often a program runs it, or None where a loop of unknown length or a branch decides.
    """

    operation: int
    access: Access
    bytes_each: int
    times: int | None


@dataclass(frozen=True, slots=True)
class LineOperations:
    """What one source line became: its operations, in order, and what they move and touch."""

    file: str | None
    line: int | None
    operations: tuple[int, ...]
    traffic: tuple[OperationBytes, ...]
    arguments: frozenset[str]

    @property
    def bytes_per_program(self) -> int | None:
        """Return what the line moves in one program, or None where that depends on values of the launch."""
        if any(each.times is None for each in self.traffic):
            return None
        return sum(each.bytes_each * (each.times or 0) for each in self.traffic)


def operations_by_line(graph: Graph, effects: Effects | None = None) -> tuple[LineOperations, ...]:
    """Return the operations of each source line, ordered by file and line.

    An operation that was inlined from another file counts for the line of the kernel's file that called it. One
    without a location stands under the line None. ``effects`` fill in the arguments that a line touches.
    """
    home = main_file(graph)
    lines: dict[tuple[str | None, int | None], list[int]] = {}
    for operation in graph.operations:
        location = line_of(operation.location, home)
        lines.setdefault((location.file, location.line), []).append(operation.index)
    touched = _arguments_of_operations(effects)
    constants = Constants(graph)
    moved = {each.operation: each for each in (_traffic(graph, constants, op) for op in graph.operations) if each}
    return tuple(
        LineOperations(
            file,
            line,
            tuple(lines[file, line]),
            tuple(moved[each] for each in lines[file, line] if each in moved),
            frozenset().union(*(touched.get(each, frozenset()) for each in lines[file, line])),
        )
        for file, line in sorted(lines, key=lambda key: (key[0] or "", key[1] or 0))
    )


def main_file(graph: Graph) -> str | None:
    """Return the file that the kernel itself stands in, by the locations of its arguments and operations."""
    places = [graph.values[value].location for value in graph.kernel.arguments]
    places += [place_of(operation.location) for operation in graph.operations]
    return next((place.file for place in places if place.file is not None), None)


def line_of(location: Location, file: str | None) -> Location:
    """Return where ``location`` lies in ``file``: itself, or the nearest caller that does; itself where none does."""
    current: Location | None = location
    while current is not None:
        if current.file == file and current.line is not None:
            return current
        current = current.caller
    return location


def _arguments_of_operations(effects: Effects | None) -> Mapping[int, frozenset[str]]:
    found: dict[int, frozenset[str]] = {}
    for site in effects.sites if effects is not None else ():
        found[site.index] = found.get(site.index, frozenset()) | {site.argument}
    return found


def access_bytes(graph: Graph, operation: Operation) -> int:
    """Return the bytes that an operation moves to or from memory when no lane is masked; 0 for one that moves none."""
    row = MEMORY.get(operation.name)
    if row is None:
        return 0
    moved = operation.results[0] if row.value is None and operation.results else operation.operands[row.value or 0]
    bits = _BITS.match(graph.values[operation.operands[0]].element)
    return math.prod(graph.values[moved].shape) * max(1, int(bits[1]) // 8 if bits else 8)


def _traffic(graph: Graph, constants: Constants, operation: Operation) -> OperationBytes | None:
    row = MEMORY.get(operation.name)
    if row is None:
        return None
    factor = 2 if row.access is Access.ATOMIC else 1
    each = access_bytes(graph, operation) * factor
    return OperationBytes(operation.index, row.access, each, _times(graph, constants, operation))


def _times(graph: Graph, constants: Constants, operation: Operation) -> int | None:
    """Return how often a program runs an operation, where only loops of known length surround it."""
    times = 1
    region = graph.regions[graph.blocks[operation.block].region]
    while region.owner is not None:
        owner = graph.operations[region.owner]
        count = constants.rounds(owner) if owner.name == "scf.for" else None
        if count is None:
            return None
        times *= count
        region = graph.regions[graph.blocks[owner.block].region]
    alone = len(region.blocks) == 1 and region.index == graph.kernel.region
    return times if alone else None
