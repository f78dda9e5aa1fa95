"""Control flow: between the blocks of a region, between functions, and operations that run the block of a region.

See https://mlir.llvm.org/docs/Dialects/SCFDialect/ for loops and branches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from kernellab.errors import EffectsError, Place
from kernellab.ir.graph import Graph, Operation
from kernellab.ir.provenance import NUMBER, Alternatives, mixed, union

if TYPE_CHECKING:
    from kernellab.ir.dataflow import Frame


@dataclass(frozen=True, slots=True)
class Branching:
    """What is known of the blocks of a region: the ``certain`` ones stand on every way from entry to exit."""

    certain: frozenset[int]


def branching_of(graph: Graph, region: int) -> Branching:
    """Return which blocks of a region run whenever the region is entered and left."""
    blocks = graph.regions[region].blocks
    successors = {block: graph.blocks[block].successors for block in blocks}
    reached = _reached(successors, blocks[0], avoid=None)
    exits = {block for block in reached if not successors[block]}
    certain = {block for block in reached if not exits & _reached(successors, blocks[0], avoid=block)}
    return Branching(frozenset(certain))


def _reached(successors: Mapping[int, tuple[int, ...]], entry: int, avoid: int | None) -> set[int]:
    found: set[int] = set()
    waiting = [entry]
    while waiting:
        block = waiting.pop()
        if block != avoid and block not in found:
            found.add(block)
            waiting += successors[block]
    return found


def refuse_recursion(graph: Graph) -> None:
    """Raise for a module in which a function calls itself, directly or through others.

    Raises:
        EffectsError: names the functions of the cycle and the line of a call.
    """
    calls = _calls(graph)
    finished: set[str] = set()
    for function in graph.functions:
        cycle = _cycle(calls, function.name, [], finished)
        if cycle:
            location = calls[cycle[-1]][cycle[0]].location
            place = Place(location.file, location.line) if location.file and location.line else None
            path = " -> ".join([*cycle, cycle[0]])
            message = f"Kernel {graph.kernel.name!r} calls itself: {path}. Effects need kernels without recursion."
            raise EffectsError(message, place=place, kernel=graph.kernel.name)


def _calls(graph: Graph) -> dict[str, dict[str, Operation]]:
    owners = _function_of_block(graph)
    calls: dict[str, dict[str, Operation]] = {function.name: {} for function in graph.functions}
    for operation in graph.operations:
        callee = graph.callee(operation)
        if callee is not None:
            calls[owners[operation.block]][callee.name] = operation
    return calls


def _function_of_block(graph: Graph) -> dict[int, str]:
    """Return the name of the function that each block belongs to, nested ones included."""
    by_region = {function.region: function.name for function in graph.functions}
    found: dict[int, str] = {}
    for region in graph.regions:
        owner = region.owner
        name = by_region[region.index] if owner is None else found[graph.operations[owner].block]
        found.update((block, name) for block in region.blocks)
    return found


def _cycle(
    calls: Mapping[str, Mapping[str, Operation]], name: str, path: list[str], finished: set[str]
) -> list[str] | None:
    if name in path:
        return path[path.index(name) :]
    if name in finished:
        return None
    for callee in calls[name]:
        found = _cycle(calls, callee, [*path, name], finished)
        if found:
            return found
    finished.add(name)
    return None


MAX_ROUNDS = 64
"""A loop of known length is followed round by round so far; a longer one that never repeats may end anywhere."""


def _for(frame: Frame, operation: Operation) -> None:
    rounds = frame.analysis.constants.rounds(operation)
    known = None if rounds is None else _rounds(frame, operation, rounds)
    results = _any_rounds(frame, operation) if known is None else known
    frame.state.update(zip(operation.results, results, strict=True))


def _rounds(frame: Frame, operation: Operation, rounds: int) -> list[Alternatives] | None:
    """Run a loop of known length round by round; return its results, or None where no end is in sight.

    What goes into a round decides what comes out of it, so that the rounds repeat as soon as one starts like an
    earlier one.
    """
    starts: list[list[Alternatives]] = []
    current = frame.states(operation.operands[3:])
    while len(starts) < rounds:
        if current in starts:
            first = starts.index(current)
            return starts[first + (rounds - first) % (len(starts) - first)]
        if len(starts) == MAX_ROUNDS:
            return None
        starts.append(current)
        current = _round(frame, operation, current, doubtful=False)
    return current


def _any_rounds(frame: Frame, operation: Operation) -> list[Alternatives]:
    """Run a loop that may end after any round, also before the first, until nothing changes."""
    current = frame.states(operation.operands[3:])
    while True:
        yielded = _round(frame, operation, current, doubtful=True)
        joined = [union(pair, operation.index) for pair in zip(current, yielded, strict=True)]
        if joined == current:
            return current
        current = joined


def _round(frame: Frame, operation: Operation, carried: list[Alternatives], *, doubtful: bool) -> list[Alternatives]:
    start, _, step = frame.states(operation.operands[:3])
    counter = start if step == NUMBER else mixed([start, step], operation.index, "it counts in steps of an address")
    return frame.region(operation.regions[0], [counter, *carried], doubtful=doubtful)


def _while(frame: Frame, operation: Operation) -> None:
    before, after = operation.regions
    current = frame.states(operation.operands)
    while True:
        passed = frame.region(before, current)[1:]
        yielded = frame.region(after, passed, doubtful=True)
        joined = [union(pair, operation.index) for pair in zip(current, yielded, strict=True)]
        if joined == current:
            break
        current = joined
    frame.state.update(zip(operation.results, passed, strict=True))


def _if(frame: Frame, operation: Operation) -> None:
    known = frame.analysis.constants.integer(operation.operands[0])
    regions = [each for each in operation.regions if frame.analysis.graph.regions[each].blocks]
    if known is not None:
        regions = regions[:1] if known else regions[1:]
    yields = [frame.region(each, [], doubtful=known is None) for each in regions]
    for position, result in enumerate(operation.results):
        frame.state[result] = union([each[position] for each in yields if each], operation.index)


def _combine(frame: Frame, operation: Operation) -> None:
    """Run the region of a reduction or scan, whose arguments are two partial results per operand."""
    current = frame.states(operation.operands)
    while True:
        combined = frame.region(operation.regions[0], [*current, *current])
        joined = [union(pair, operation.index) for pair in zip(current, combined, strict=True)]
        if joined == current:
            break
        current = joined
    frame.state.update(zip(operation.results, current, strict=True))


def _map(frame: Frame, operation: Operation) -> None:
    """Run the region of a map; with ``pack`` n it has n arguments and n terms per operand and result."""
    operands = frame.states(operation.operands)
    region = operation.regions[0]
    count = len(frame.analysis.graph.blocks[frame.analysis.graph.regions[region].blocks[0]].arguments)
    packed = [union(operands, operation.index)] * count if count != len(operands) else operands
    terms = frame.region(region, packed)
    if len(terms) != len(operation.results):
        terms = [union(terms, operation.index)] * len(operation.results)
    frame.state.update(zip(operation.results, terms, strict=True))


STRUCTURED: MappingProxyType[str, Callable[[Frame, Operation], None]] = MappingProxyType(
    {
        "scf.for": _for,
        "scf.while": _while,
        "scf.if": _if,
        "tt.reduce": _combine,
        "tt.scan": _combine,
        "tt.map_elementwise": _map,
    }
)
"""What runs each of these operations in the frame of a function."""
