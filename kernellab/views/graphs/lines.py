"""The source view: one box per source line, regions as frames, arguments on top and stores at the bottom."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from kernellab.ir.effects import Effects
from kernellab.ir.graph import Graph, Location, Operation
from kernellab.ir.lines import place_of
from kernellab.views.graphs.dataflow import (
    FOLDED,
    TERMINATORS,
    Touch,
    controlled,
    direct_operands,
    inflows,
    is_folded,
    merged,
    origins,
    touches,
)
from kernellab.views.graphs.diagram import Cluster, Diagram, Edge, Flow, Kind, Node, merged_edges, occupied
from kernellab.views.graphs.labels import SourceText, constants, plain_name, short_type, value_words
from kernellab.views.graphs.operations import flow_of, frame_label
from kernellab.views.wording import shortened

_TEXT_LIMIT = 40


@dataclass(slots=True)
class _Line:
    """A box being gathered: the operations of one source line within one frame."""

    key: str
    place: Location
    cluster: str | None
    operations: list[Operation] = field(default_factory=list)


class SourceView:
    """The parts of the picture for one graph: what `source_diagram` puts together."""

    def __init__(self, graph: Graph, effects: Effects | None, source: SourceText) -> None:
        self.graph = graph
        self.source = source
        self.touches = touches(graph, effects)
        self.constants = constants(graph)
        self.joins = inflows(graph)
        self.frames = {
            region: f"r{region}"
            for operation in graph.operations
            for region in operation.regions
            if self._is_frame(operation, region)
        }
        self.lines: dict[str, _Line] = {}
        self.line_of: dict[int, str] = {}
        self.heads: dict[int, str] = {}
        self._gather()

    def _is_frame(self, operation: Operation, region: int) -> bool:
        """A region is worth a frame when it spans source lines other than that of its owner."""
        here = place_of(operation.location)
        places = [place_of(inner.location) for inner in self._inside(region) if inner.name not in TERMINATORS]
        return any(place.line is not None and (place.file, place.line) != (here.file, here.line) for place in places)

    def _inside(self, region: int) -> Iterator[Operation]:
        for block in self.graph.regions[region].blocks:
            for index in self.graph.blocks[block].operations:
                yield self.graph.operations[index]
                for nested in self.graph.operations[index].regions:
                    yield from self._inside(nested)

    def frame_of(self, block: int) -> str | None:
        """Return the innermost frame around a block."""
        region = self.graph.regions[self.graph.blocks[block].region]
        while region.owner is not None:
            if region.index in self.frames:
                return self.frames[region.index]
            region = self.graph.regions[self.graph.blocks[self.graph.operations[region.owner].block].region]
        return None if region.index == self.graph.kernel.region else f"r{region.index}"

    def _gather(self) -> None:
        for operation in self.graph.operations:
            if operation.name in TERMINATORS or operation.name == "arith.constant":
                continue
            place, frame = place_of(operation.location), self.frame_of(operation.block)
            key = f"{place.file}:{place.line}@{frame}" if place.line is not None else f"o{operation.index}"
            line = self.lines.setdefault(key, _Line(f"n{len(self.lines)}", place, frame))
            line.operations.append(operation)
            self.line_of[operation.index] = line.key
            if operation.name == "scf.for":
                body = self.graph.blocks[self.graph.regions[operation.regions[0]].blocks[0]]
                self.heads[body.arguments[0]] = line.key

    def clusters(self) -> Iterator[Cluster]:
        for function in self.graph.functions:
            if not function.is_kernel:
                yield Cluster(f"r{function.region}", f"helper {plain_name(function.name)}")
        for operation in self.graph.operations:
            for region in operation.regions:
                if region in self.frames:
                    yield Cluster(
                        self.frames[region], frame_label(operation, region, self.source), self.frame_of(operation.block)
                    )

    def nodes(self) -> Iterator[Node]:
        for function in self.graph.functions:
            cluster = None if function.is_kernel else f"r{function.region}"
            for value, name in zip(function.arguments, function.parameters, strict=False):
                known = self.graph.values[value]
                kind = Kind.ARGUMENT if known.is_pointer else Kind.SCALAR
                yield Node(f"v{value}", (name, short_type(known)), kind, f"argument {name}\n{known.type}", cluster)
        for line in self.lines.values():
            yield self._node(line)

    def _node(self, line: _Line) -> Node:
        touch = merged(self.touches[op.index] for op in line.operations if op.index in self.touches)
        text = self.source.line(line.place)
        number = self.source.words(line.place).removeprefix("line ")
        title = f"{number}  {shortened(text or self._summary(line), _TEXT_LIMIT)}".strip()
        details = [part for part in (touch.words() if touch else "", self._result(line)) if part]
        kind = touch.kind if touch else Kind.COMPUTE
        if touch is None and any(op.regions and op.name not in FOLDED for op in line.operations):
            kind, details = Kind.CONTROL, []
        lines = (title, " · ".join(details)) if details else (title,)
        unsure = touch is not None and bool(touch.unknown)
        return Node(
            line.key,
            lines,
            kind,
            self._tip(line, text, touch),
            line.cluster,
            line.place.line,
            unsure,
            tuple(operation.index for operation in line.operations),
            self.source.other(line.place),
        )

    def _summary(self, line: _Line) -> str:
        """Stand in for a source line whose text is not at hand."""
        names = {
            name: None for op in line.operations for value in op.results if (name := self.graph.values[value].name)
        }
        what = dict.fromkeys(op.name.rpartition(".")[2] for op in line.operations)
        words = ", ".join(what)
        return f"{', '.join(names)} = {words}" if names else words

    def _result(self, line: _Line) -> str:
        """Return the type of the tensor that the line makes in the end, or stores; "" for a scalar."""
        for operation in reversed(line.operations):
            made = operation.results[:1] or (operation.operands[1:2] if operation.index in self.touches else ())
            if made and not is_folded(self.graph, operation.block):
                known = self.graph.values[made[0]]
                return short_type(known) if known.shape else ""
        return ""

    def _tip(self, line: _Line, text: str, touch: Touch | None) -> str:
        where = self.source.words(line.place)
        counted: dict[str, int] = defaultdict(int)
        for operation in line.operations:
            counted[operation.name] += 1
        operations = ", ".join(f"{count} {name}" if count > 1 else name for name, count in counted.items())
        parts = [f"{where}: {text}" if text else where, touch.words() if touch else "", operations]
        return "\n".join(part for part in parts if part)

    def edges(self) -> Iterator[Edge]:
        for operation in self.graph.operations:
            head = self.line_of.get(operation.index)
            if head is None or is_folded(self.graph, operation.block):
                continue
            for operand in direct_operands(self.graph, operation):
                yield from self._into(head, operation, operand)
            for first in controlled(self.graph, operation):
                yield Edge(head, self.line_of[first.index], Flow.CONTROL, "")

    def order(self) -> Iterator[tuple[str, str]]:
        """Yield pairs of boxes of which the first goes above: what follows a loop, and one load after another."""
        by_frame: dict[str | None, list[_Line]] = defaultdict(list)
        for line in self.lines.values():
            by_frame[line.cluster].append(line)
        for lines in by_frame.values():
            loads = [line for line in lines if any(op.index in self.touches for op in line.operations)]
            yield from ((first.key, second.key) for first, second in pairwise(loads))
            yield from self._after_frames(lines, by_frame)

    def _after_frames(
        self, lines: list[_Line], by_frame: Mapping[str | None, list[_Line]]
    ) -> Iterator[tuple[str, str]]:
        """Yield an edge from the last box of each frame to the boxes that follow it, up to the next frame."""
        last: str | None = None
        for line in lines:
            if last is not None:
                yield last, line.key
            for operation in line.operations:
                inner = [self.frames[region] for region in operation.regions if region in self.frames]
                last = next((by_frame[frame][-1].key for frame in reversed(inner) if frame in by_frame), last)

    def _into(self, head: str, consumer: Operation, operand: int) -> Iterator[Edge]:
        for origin in origins(self.graph, self.joins, consumer, operand, lambda value: value in self.heads):
            value = self.graph.values[origin.value]
            if origin.value in self.constants:
                continue
            if origin.value in self.heads:
                tail = self.heads[origin.value]
            else:
                tail = f"v{origin.value}" if value.operation is None else self.line_of[value.operation]
            yield Edge(tail, head, flow_of(value), value_words(value), origin.back)


def source_diagram(graph: Graph, effects: Effects | None, source: SourceText) -> Diagram:
    """Return the picture by source line. ``source`` gives the text of lines."""
    view = SourceView(graph, effects, source)
    edges = merged_edges(view.edges())
    touched = {edge.tail for edge in edges} | {edge.head for edge in edges}
    nodes = tuple(node for node in view.nodes() if node.kind is not Kind.SCALAR or node.id in touched)
    title = f"Dataflow of {graph.kernel.name} by source line"
    return Diagram(title, nodes, edges, occupied(view.clusters(), nodes), tuple(view.order()))
