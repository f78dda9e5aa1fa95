"""Control flow between the blocks of a region, and between functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kernellab.errors import EffectsError, Place
from kernellab.ir.graph import Graph, Operation


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
        callee = dict(operation.attributes).get("callee") if operation.name == "tt.call" else None
        if callee in calls:
            calls[owners[operation.block]][callee] = operation
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
