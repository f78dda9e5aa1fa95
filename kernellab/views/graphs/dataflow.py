"""How values flow into and out of the regions of a graph, and which operations touch whose memory."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from kernellab.ir.effects import Access, Effects
from kernellab.ir.graph import Graph, Operation, Value
from kernellab.ir.operations import MEMORY, TERMINATORS, joins
from kernellab.views.graphs.diagram import BoxKind

BRANCHES = frozenset({"cf.br", "cf.cond_br"})
YIELDS = TERMINATORS - BRANCHES - {"ub.unreachable"}  # what a region hands on: it has no box of its own
FOLDED = frozenset({"tt.reduce", "tt.scan", "tt.map_elementwise"})
_FOR_BOUNDS = 3  # scf.for: lower bound, upper bound and step stand before the initial values


@dataclass(frozen=True, slots=True)
class Inflow:
    """A value that a join may be; ``back`` tells that it comes from the iteration before."""

    value: int
    back: bool


def inflows(graph: Graph) -> Mapping[int, tuple[Inflow, ...]]:
    """Return the inflows of every join. A loop counts as entered, so its results come from its body alone."""
    found: dict[int, dict[Inflow, None]] = defaultdict(dict)
    for operation in graph.operations:
        if operation.name not in FOLDED:
            for target, source, back in joins(graph, operation):
                found[target][Inflow(source, back)] = None
    return {target: tuple(sources) for target, sources in found.items()}


def origins(
    graph: Graph,
    joins: Mapping[int, tuple[Inflow, ...]],
    consumer: Operation | Value,
    value: int,
    is_end: Callable[[int], bool],
) -> tuple[Inflow, ...]:
    """Follow joins back from a value to those that ``is_end`` accepts or that are no joins.

    An origin is ``back`` when the consumer gets it from an earlier iteration of a loop that it stands in itself.
    """
    home = set(owners(graph, consumer.block))
    found: dict[int, bool] = {}
    seen: set[int] = set()

    def follow(current: int, back: bool) -> None:
        if current not in joins or is_end(current):
            found[current] = found.get(current, True) and back
            return
        if current not in seen:
            seen.add(current)
            loop = graph.regions[graph.blocks[graph.values[current].block].region].owner
            for inflow in joins[current]:
                follow(inflow.value, back or (inflow.back and loop in home))

    follow(value, False)
    return tuple(Inflow(origin, back) for origin, back in found.items())


def owners(graph: Graph, block: int) -> Iterator[int | None]:
    """Yield the operations around a block from the inside out, and None for the function."""
    yield from (owner.index for owner in graph.owners(block))
    yield None


def direct_operands(graph: Graph, operation: Operation) -> tuple[int, ...]:
    """Return the operands that an operation uses itself, without those that it only hands to a block."""
    if operation.name == "scf.for":
        return operation.operands[:_FOR_BOUNDS]
    if operation.name == "cf.cond_br":
        return operation.operands[:1]
    if operation.name == "scf.while":
        return graph.end(graph.bodies(operation)[0]).operands[:1]
    return () if operation.name == "cf.br" else operation.operands


def controlled(graph: Graph, operation: Operation) -> Iterator[Operation]:
    """Yield the first operation of each block that an operation decides to run.

    A ``for`` is left out: its variable already leads into its block.
    """
    if operation.name in BRANCHES:
        blocks = [graph.blocks[block] for block in operation.successors]
    elif operation.name == "scf.while":
        blocks = graph.bodies(operation)[1:]
    elif operation.name in FOLDED or operation.name == "scf.for":
        blocks = []
    else:
        blocks = graph.bodies(operation)
    for block in blocks:
        inner = (graph.operations[index] for index in block.operations)
        first = next((each for each in inner if each.name not in (*YIELDS, "arith.constant")), None)
        if first is not None:
            yield first


def is_folded(graph: Graph, block: int) -> bool:
    """Return whether a block belongs to the combine function of a reduction or scan, which is drawn as one box."""
    owner = graph.regions[graph.blocks[block].region].owner
    return owner is not None and graph.operations[owner].name in FOLDED


VERBS = {Access.READ: "reads", Access.WRITE: "writes", Access.ATOMIC: "updates atomically"}
KINDS = {Access.READ: BoxKind.READ, Access.WRITE: BoxKind.WRITE, Access.ATOMIC: BoxKind.ATOMIC}
_STRENGTH = (Access.READ, Access.WRITE, Access.ATOMIC)


@dataclass(frozen=True, slots=True)
class MemoryTouch:
    """What one operation does to memory: per kind of access the arguments, () where the effects do not name them."""

    arguments: Mapping[Access, tuple[str, ...]]
    unknown: str = ""

    @property
    def kind(self) -> BoxKind:
        """The kind of box: the strongest access decides."""
        done = [access for access in _STRENGTH if access in self.arguments]
        return KINDS[done[-1]] if done else BoxKind.UNKNOWN

    def words(self) -> str:
        """Return for instance ``reads x_ptr · writes out_ptr``."""
        parts = [
            f"{VERBS[access]} {', '.join(self.arguments[access])}".rstrip()
            for access in _STRENGTH
            if access in self.arguments
        ]
        return " · ".join([*parts, *(["unknown memory"] if self.unknown else [])])


def touches(graph: Graph, effects: Effects | None) -> Mapping[int, MemoryTouch]:
    """Return what each operation does, by its index.

    Without effects, or for an operation that they do not list, its name tells the kind of access, not the argument.
    """
    arguments: dict[int, dict[Access, dict[str, None]]] = defaultdict(lambda: defaultdict(dict))
    unknown: dict[int, str] = {}
    for site in effects.sites if effects else ():
        arguments[site.index][site.kind][site.argument] = None
    for gap in effects.unknown if effects else ():
        unknown[gap.index] = gap.reason
        if gap.kind is not None:
            _ = arguments[gap.index][gap.kind]
    for operation in graph.operations:
        if operation.name in MEMORY and operation.index not in arguments:
            _ = arguments[operation.index][MEMORY[operation.name].access]
    return {
        index: MemoryTouch(
            {kind: tuple(names) for kind, names in arguments.get(index, {}).items()}, unknown.get(index, "")
        )
        for index in sorted({*arguments, *unknown})
    }


def merged(parts: Iterable[MemoryTouch]) -> MemoryTouch | None:
    """Return what several operations do together, or None where they touch nothing."""
    together: dict[Access, dict[str, None]] = defaultdict(dict)
    reasons: dict[str, None] = {}
    some = False
    for touch in parts:
        some = True
        for kind, names in touch.arguments.items():
            together[kind].update(dict.fromkeys(names))
        if touch.unknown:
            reasons[touch.unknown] = None
    if not some:
        return None
    return MemoryTouch({kind: tuple(names) for kind, names in together.items()}, "; ".join(reasons))
