"""What a picture of boxes and arrows holds, before anyone decides where they go: its parts, folds and slices."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from kernellab.errors import plural
from kernellab.ir.effects import Effects
from kernellab.ir.graph import Graph
from kernellab.ir.uses import Slice, argument_slice, operation_slice, value_slice


class BoxKind(StrEnum):
    """What a box stands for. Each kind has a shape of its own beside its colour; a tensor is text on an arrow."""

    ARGUMENT = "argument"
    SCALAR = "scalar"
    COMPUTE = "compute"
    CONTROL = "control"
    READ = "read"
    WRITE = "write"
    ATOMIC = "atomic"
    UNKNOWN = "unknown"
    KERNEL = "kernel"
    TENSOR = "tensor"
    OUTPUT = "output"


class ArrowKind(StrEnum):
    """What an arrow carries: data, an address, a mask, only the order of control, or a change of what was there."""

    VALUE = "value"
    ADDRESS = "address"
    MASK = "mask"
    CONTROL = "control"
    CHANGE = "change"


@dataclass(frozen=True, slots=True)
class Node:
    """A box. The first of ``lines`` is its title, the others are set smaller; ``source_line`` counts from 1.

    ``unsure`` marks a box that touches memory which no argument names. ``operations`` are those of the graph that the
    box stands for, none for a value that comes from outside. ``file`` is "" for a line of the kernel's own file, else
    the last part of the path. ``folds`` counts the boxes of a region that this one is drawn instead of.
    """

    id: str
    lines: tuple[str, ...]
    kind: BoxKind
    tip: str
    cluster: str | None = None
    source_line: int | None = None
    unsure: bool = False
    operations: tuple[int, ...] = ()
    file: str = ""
    folds: int = 0


@dataclass(frozen=True, slots=True)
class Edge:
    """An arrow. ``back`` tells that it leads into the next iteration of a loop."""

    tail: str
    head: str
    flow: ArrowKind
    tip: str
    back: bool = False


@dataclass(frozen=True, slots=True)
class RegionFrame:
    """A frame around boxes and other frames: a region of the IR."""

    id: str
    label: str
    parent: str | None = None


@dataclass(frozen=True, slots=True)
class Diagram:
    """A picture to be laid out. Nodes and edges are in the order of the IR, clusters have parents before children.

    ``order`` holds pairs of nodes of which the first goes above the second, with no arrow between them. Where
    ``is_contracted``, boxes were left out, and an arrow stands for any way through them.
    """

    title: str
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    clusters: tuple[RegionFrame, ...] = ()
    order: tuple[tuple[str, str], ...] = ()
    is_contracted: bool = False


def merged_edges(edges: Iterable[Edge]) -> tuple[Edge, ...]:
    """Return the edges with at most one between two nodes per direction, tips joined; loops on one node are dropped."""
    groups: dict[tuple[str, str, bool], list[Edge]] = defaultdict(list)
    for edge in edges:
        if edge.tail != edge.head:
            groups[edge.tail, edge.head, edge.back].append(edge)
    order = list(ArrowKind)
    return tuple(
        replace(
            group[0],
            flow=min((edge.flow for edge in group), key=order.index),
            tip="\n".join(dict.fromkeys(edge.tip for edge in group if edge.tip)),
        )
        for group in groups.values()
    )


def restricted(diagram: Diagram, title: str, kept: Collection[str]) -> Diagram:
    """Return the part of a diagram that consists of some of its nodes."""
    nodes = tuple(node for node in diagram.nodes if node.id in kept)
    return Diagram(
        title,
        nodes,
        tuple(edge for edge in diagram.edges if edge.tail in kept and edge.head in kept),
        occupied(diagram.clusters, nodes),
        tuple((above, below) for above, below in diagram.order if above in kept and below in kept),
    )


def occupied(clusters: Iterable[RegionFrame], nodes: Iterable[Node]) -> tuple[RegionFrame, ...]:
    """Return the clusters that hold one of the nodes, directly or within a cluster of theirs."""
    clusters = tuple(clusters)
    parents = {cluster.id: cluster.parent for cluster in clusters}
    used: set[str] = set()
    for node in nodes:
        current = node.cluster
        while current is not None and current not in used:
            used.add(current)
            current = parents[current]
    return tuple(cluster for cluster in clusters if cluster.id in used)


_STRENGTH = (BoxKind.UNKNOWN, BoxKind.ATOMIC, BoxKind.WRITE, BoxKind.READ)
_WORDS = {BoxKind.READ: "load", BoxKind.WRITE: "store", BoxKind.ATOMIC: "atomic"}
_TOLD = 10  # boxes that a tooltip lists


def folded(diagram: Diagram, collapsed: Collection[str]) -> Diagram:
    """Return the diagram with one box, of the frame's id, in place of each collapsed frame and all that is in it."""
    hiding = _hiding(diagram, collapsed)
    members: dict[str, list[Node]] = defaultdict(list)
    for node in diagram.nodes:
        if node.cluster in hiding:
            members[hiding[node.cluster]].append(node)
    shown = {node.id: name for name, nodes in members.items() for node in nodes}
    frames = {cluster.id: cluster for cluster in diagram.clusters}
    placed: dict[str, Node] = {}
    for node in diagram.nodes:
        name = shown.get(node.id, node.id)
        if name not in placed:
            placed[name] = node if name == node.id else _box(frames[name], members[name])
    edges = (_moved(edge, shown) for edge in diagram.edges)
    order = ((shown.get(above, above), shown.get(below, below)) for above, below in diagram.order)
    return Diagram(
        diagram.title,
        tuple(placed.values()),
        merged_edges(edges),
        tuple(cluster for cluster in diagram.clusters if cluster.id not in hiding),
        tuple(dict.fromkeys((above, below) for above, below in order if above != below)),
    )


def fitting(diagram: Diagram, boxes: int) -> frozenset[str]:
    """Return which frames to collapse so that at most ``boxes`` boxes are left: the innermost, the largest first.

    Where that many are left even with every frame collapsed, all frames are returned.
    """
    parents = {cluster.id: cluster.parent for cluster in diagram.clusters}
    depths = {name: sum(1 for _ in ancestors(name, parents)) for name in parents}
    shown = Counter(above for node in diagram.nodes for above in ancestors(node.cluster, parents))
    left = len(diagram.nodes)
    collapsed: set[str] = set()
    for name in sorted(parents, key=lambda name: (-depths[name], -shown[name], name)):
        if left <= boxes:
            break
        collapsed.add(name)
        saved = shown[name] - 1
        left -= saved
        for above in ancestors(name, parents):
            shown[above] -= saved
    return frozenset(collapsed)


def ancestors(cluster: str | None, parents: Mapping[str, str | None]) -> Iterator[str]:
    """Yield a frame and the frames around it, from the inside out."""
    while cluster is not None:
        yield cluster
        cluster = parents[cluster]


def _hiding(diagram: Diagram, collapsed: Collection[str]) -> Mapping[str | None, str]:
    """Return, for every frame that does not show, the outermost collapsed one around it."""
    hiding: dict[str | None, str] = {}
    for cluster in diagram.clusters:  # parents stand before children
        if cluster.parent in hiding:
            hiding[cluster.id] = hiding[cluster.parent]
        elif cluster.id in collapsed:
            hiding[cluster.id] = cluster.id
    return hiding


def _moved(edge: Edge, shown: Mapping[str, str]) -> Edge:
    return replace(edge, tail=shown.get(edge.tail, edge.tail), head=shown.get(edge.head, edge.head))


def _box(frame: RegionFrame, members: list[Node]) -> Node:
    kinds = Counter(node.kind for node in members)
    counts = [plural(kinds[kind], word) for kind, word in _WORDS.items() if kinds[kind]]
    titles = [node.lines[0] for node in members]
    rest = [f"and {len(titles) - _TOLD} more"] if len(titles) > _TOLD else []
    first = next((node for node in members if node.source_line is not None), members[0])
    return Node(
        frame.id,
        (f"▸ {frame.label}", ", ".join([plural(len(members), "box"), *counts])),
        next((kind for kind in _STRENGTH if kinds[kind]), BoxKind.CONTROL),
        "\n".join([f"{frame.label}, folded:", *titles[:_TOLD], *rest]),
        frame.parent,
        first.source_line,
        any(node.unsure for node in members),
        tuple(operation for node in members for operation in node.operations),
        first.file,
        len(members),
    )


class Direction(StrEnum):
    """Which half of a slice counts: what the start leads to, what leads to it, or both."""

    FORWARD = "forward"
    BACKWARD = "backward"
    BOTH = "both"


def start_slice(graph: Graph, diagram: Diagram, start: str, effects: Effects | None) -> tuple[Slice, frozenset[str]]:
    """Return the slice of an argument by its name, or of a box or frame by its id, and the boxes it starts from.

    Raises:
        UsageError: the kernel has no such argument, and the diagram no such box.
    """
    kernel = graph.kernel
    boxes = {node.id: node for node in diagram.nodes}
    inside = frozenset(node.id for node in diagram.nodes if node.cluster == start)
    if inside:
        operations = [index for name in inside for index in boxes[name].operations]
        return operation_slice(graph, operations), inside
    if start in boxes and boxes[start].operations:
        return operation_slice(graph, boxes[start].operations), frozenset({start})
    values = {f"v{value}": name for value, name in zip(kernel.arguments, kernel.parameters, strict=False)}
    if start in boxes and start not in values:
        return value_slice(graph, int(start.removeprefix("v"))), frozenset({start})
    argument = values.get(start, start)
    found = argument_slice(graph, argument, None if effects is None else effects.touching(argument))
    return found, frozenset(box for box, name in values.items() if name == argument and box in boxes)


def nodes_of_slice(
    diagram: Diagram, part: Slice, starts: Collection[str], direction: Direction = Direction.BOTH
) -> frozenset[str]:
    """Return the boxes of a slice: those of its operations, and the values that pass between them.

    A box without operations is a value: an argument of the kernel or one that a loop carries. It leads to the slice
    if an arrow leads from it to what is backward of the start, and comes from it if one leads there from what is
    forward of it.
    """
    found = set(starts)
    for wanted, operations, back in (
        (direction != Direction.BACKWARD, part.forward, False),
        (direction != Direction.FORWARD, part.backward, True),
    ):
        if wanted:
            boxes = {node.id for node in diagram.nodes if not operations.isdisjoint(node.operations)}
            found |= boxes | _values_beside(diagram, boxes, follow_back=back)
    return frozenset(found)


def _values_beside(diagram: Diagram, boxes: Iterable[str], *, follow_back: bool) -> set[str]:
    """Return the values that boxes lead to, directly or through other values, or that lead to them."""
    values = {node.id for node in diagram.nodes if not node.operations}
    next_of: dict[str, list[str]] = defaultdict(list)
    for edge in diagram.edges:
        tail, head = (edge.head, edge.tail) if follow_back else (edge.tail, edge.head)
        if head in values:
            next_of[tail].append(head)
    found: set[str] = set()
    waiting = list(boxes)
    while waiting:
        fresh = [value for value in next_of[waiting.pop()] if value not in found]
        found.update(fresh)
        waiting += fresh
    return found
