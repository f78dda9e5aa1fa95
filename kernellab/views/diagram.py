"""What a graph view draws: boxes, arrows and frames, before anyone decides where they go."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum


class Kind(StrEnum):
    """What a box stands for. Each kind has a shape of its own beside its colour."""

    ARGUMENT = "argument"
    SCALAR = "scalar"
    COMPUTE = "compute"
    CONTROL = "control"
    READ = "read"
    WRITE = "write"
    ATOMIC = "atomic"
    UNKNOWN = "unknown"


class Flow(StrEnum):
    """What an arrow carries: data, an address, a mask, or only the order of control."""

    VALUE = "value"
    ADDRESS = "address"
    MASK = "mask"
    CONTROL = "control"


@dataclass(frozen=True, slots=True)
class Node:
    """A box. The first of ``lines`` is its title, the others are set smaller; ``source_line`` counts from 1.

    ``unsure`` marks a box that touches memory which no argument names. ``operations`` are those of the graph that the
    box stands for, none for a value that comes from outside. ``file`` is "" for a line of the kernel's own file, else
    the last part of the path. ``folds`` counts the boxes of a region that this one is drawn instead of.
    """

    id: str
    lines: tuple[str, ...]
    kind: Kind
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
    flow: Flow
    tip: str
    back: bool = False


@dataclass(frozen=True, slots=True)
class Cluster:
    """A frame around boxes and other frames: a region of the IR."""

    id: str
    label: str
    parent: str | None = None


@dataclass(frozen=True, slots=True)
class Diagram:
    """A picture to be laid out. Nodes and edges are in the order of the IR, clusters have parents before children.

    ``order`` holds pairs of nodes of which the first goes above the second, with no arrow between them.
    """

    title: str
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    clusters: tuple[Cluster, ...] = ()
    order: tuple[tuple[str, str], ...] = ()


def merged_edges(edges: Iterable[Edge]) -> tuple[Edge, ...]:
    """Return the edges with at most one between two nodes per direction, tips joined; loops on one node are dropped."""
    groups: dict[tuple[str, str, bool], list[Edge]] = defaultdict(list)
    for edge in edges:
        if edge.tail != edge.head:
            groups[edge.tail, edge.head, edge.back].append(edge)
    order = list(Flow)
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


def occupied(clusters: Iterable[Cluster], nodes: Iterable[Node]) -> tuple[Cluster, ...]:
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
