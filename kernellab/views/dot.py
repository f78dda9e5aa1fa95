"""Diagram to DOT, the language of Graphviz (https://graphviz.org/doc/info/lang.html).

Only the layout is asked of Graphviz, so the text carries sizes and structure, no colours. Sizes are computed here from
a monospace font, since the layout engine has no fonts; one DOT point becomes one SVG pixel. Orthogonal splines are
never used: they took a hundred times longer on large graphs.
"""

from __future__ import annotations

from collections import defaultdict

from kernellab.views.diagram import Cluster, Diagram, Edge, Flow, Kind, Node

TITLE_PX = 11.0
DETAIL_PX = 9.5
CHARACTER_EM = 0.602  # the advance of DejaVu Sans Mono, Menlo and Consolas is 0.6 em or a little less
LINE_EM = 1.35
_PADDING_PX = {Kind.READ: 30.0, Kind.WRITE: 30.0, Kind.ATOMIC: 34.0, Kind.ARGUMENT: 22.0, Kind.SCALAR: 20.0}
_POINTS_PER_INCH = 72.0
_WEIGHTS = {Flow.VALUE: 4, Flow.ADDRESS: 2, Flow.MASK: 1, Flow.CONTROL: 1}


def box_size(node: Node) -> tuple[float, float]:
    """Return the width and height, in pixels, that hold the text of a node."""
    title, *details = node.lines
    text = max([len(title) * TITLE_PX, *(len(line) * DETAIL_PX for line in details)]) * CHARACTER_EM
    height = TITLE_PX * LINE_EM + len(details) * DETAIL_PX * LINE_EM + 9
    return text + _PADDING_PX.get(node.kind, 16.0), height


def to_dot(diagram: Diagram) -> str:
    """Return the DOT text of a diagram; edges carry ``id=e0``, ``e1``, ... in their order."""
    lines = [
        "digraph kernel {",
        "newrank=true; ranksep=.28; nodesep=.16;",
        'node [shape=box,fixedsize=true,label=""];',
        "edge [arrowsize=.5];",
    ]
    _emit_cluster(diagram, None, _members(diagram), _children(diagram), lines)
    lines += _ranks(diagram)
    lines += [_edge(index, edge) for index, edge in enumerate(diagram.edges)]
    lines += [f'"{above}" -> "{below}" [style=invis];' for above, below in diagram.order]
    return "\n".join([*lines, "}"])


def _members(diagram: Diagram) -> dict[str | None, list[Node]]:
    members: dict[str | None, list[Node]] = defaultdict(list)
    for node in diagram.nodes:
        members[node.cluster].append(node)
    return members


def _children(diagram: Diagram) -> dict[str | None, list[Cluster]]:
    children: dict[str | None, list[Cluster]] = defaultdict(list)
    for cluster in diagram.clusters:
        children[cluster.parent].append(cluster)
    return children


def _emit_cluster(
    diagram: Diagram,
    cluster: str | None,
    members: dict[str | None, list[Node]],
    children: dict[str | None, list[Cluster]],
    lines: list[str],
) -> None:
    for node in members[cluster]:
        width, height = box_size(node)
        lines.append(f'"{node.id}" [width={width / _POINTS_PER_INCH:.3f},height={height / _POINTS_PER_INCH:.3f}];')
    for child in children[cluster]:
        # A label of the right width reserves the room; it is drawn by the SVG writer.
        lines.append(f'subgraph "cluster_{child.id}" {{ margin=10; label="{"m" * len(child.label)}";')
        lines.append('fontname="Courier"; fontsize=9.5; labeljust=l;')
        _emit_cluster(diagram, child.id, members, children, lines)
        lines.append("}")


def _ranks(diagram: Diagram) -> list[str]:
    arguments = [node.id for node in diagram.nodes if node.kind in (Kind.ARGUMENT, Kind.SCALAR) and not node.cluster]
    tails = {edge.tail for edge in diagram.edges} | {above for above, _ in diagram.order}
    stores = [
        node.id
        for node in diagram.nodes
        if node.kind in (Kind.WRITE, Kind.ATOMIC) and node.cluster is None and node.id not in tails
    ]
    lines = []
    for rank, ids in (("source", arguments), ("sink", stores)):
        if ids:
            lines.append(f"{{rank={rank}; " + " ".join(f'"{identity}";' for identity in ids) + "}")
    # With newrank, "source" only makes the ranks equal; what depends on nothing is held below by unseen edges.
    heads = {edge.head for edge in diagram.edges} | {below for _, below in diagram.order} | set(arguments)
    roots = [node.id for node in diagram.nodes if node.id not in heads]
    lines += [f'"{arguments[0]}" -> "{root}" [style=invis,weight=0];' for root in roots if arguments]
    return lines


def _edge(index: int, edge: Edge) -> str:
    attributes = f'id="e{index}",weight={_WEIGHTS[edge.flow]}'
    if edge.back:
        attributes += ",constraint=false"
    return f'"{edge.tail}" -> "{edge.head}" [{attributes}];'
