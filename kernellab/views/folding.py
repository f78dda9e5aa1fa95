"""Frames of a diagram folded to one box each, so that large graphs can still be looked at."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from kernellab.views.diagram import Cluster, Diagram, Edge, Kind, Node, merged_edges
from kernellab.views.wording import plural

_STRENGTH = (Kind.UNKNOWN, Kind.ATOMIC, Kind.WRITE, Kind.READ)
_WORDS = {Kind.READ: "load", Kind.WRITE: "store", Kind.ATOMIC: "atomic"}
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


def _box(frame: Cluster, members: list[Node]) -> Node:
    kinds = Counter(node.kind for node in members)
    counts = [plural(kinds[kind], word) for kind, word in _WORDS.items() if kinds[kind]]
    titles = [node.lines[0] for node in members]
    rest = [f"and {len(titles) - _TOLD} more"] if len(titles) > _TOLD else []
    first = next((node for node in members if node.source_line is not None), members[0])
    return Node(
        frame.id,
        (f"▸ {frame.label}", ", ".join([plural(len(members), "box"), *counts])),
        next((kind for kind in _STRENGTH if kinds[kind]), Kind.CONTROL),
        "\n".join([f"{frame.label}, folded:", *titles[:_TOLD], *rest]),
        frame.parent,
        first.source_line,
        any(node.unsure for node in members),
        tuple(operation for node in members for operation in node.operations),
        first.file,
        len(members),
    )
