"""The operation view: one box per operation of the TTIR, regions as frames."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kernellab.ir.effects import Effects
from kernellab.ir.graph import Graph, Operation, Value
from kernellab.ir.lines import place_of
from kernellab.views.graphs.dataflow import (
    BRANCHES,
    FOLDED,
    TERMINATORS,
    Inflow,
    Touch,
    controlled,
    direct_operands,
    inflows,
    is_folded,
    origins,
    touches,
)
from kernellab.views.graphs.diagram import Cluster, Diagram, Edge, Flow, Kind, Node, merged_edges, occupied
from kernellab.views.graphs.labels import (
    SourceText,
    constants,
    loop_variable,
    operation_tip,
    operation_title,
    plain_name,
    short_type,
    value_words,
)
from kernellab.views.wording import shortened


def flow_of(value: Value) -> Flow:
    """Return what an arrow from this value carries."""
    if value.is_pointer:
        return Flow.ADDRESS
    return Flow.MASK if value.element == "i1" else Flow.VALUE


def frame_label(operation: Operation, region: int, source: SourceText) -> str:
    """Return the words on the frame of a region: what kind of region it is, and its line."""
    names = {"scf.for": ("loop",), "scf.while": ("while", "do"), "scf.if": ("if", "else")}
    words = dict(enumerate(names.get(operation.name, ())))
    word = words.get(operation.regions.index(region), operation.name)
    place = source.words(place_of(operation.location))
    return f"{word}, {place}" if place else word


class OperationView:
    """The parts of the picture for one graph: what `operation_diagram` puts together."""

    def __init__(self, graph: Graph, effects: Effects | None, source: SourceText) -> None:
        self.graph = graph
        self.source = source
        self.touches: Mapping[int, Touch] = touches(graph, effects)
        self.constants = constants(graph)
        self.joins = inflows(graph)
        self.heads = {
            graph.blocks[graph.regions[operation.regions[0]].blocks[0]].arguments[0]: operation.index
            for operation in graph.operations
            if operation.name == "scf.for"
        }

    def clusters(self) -> Iterator[Cluster]:
        graph = self.graph
        for function in graph.functions:
            if not function.is_kernel:
                yield Cluster(f"r{function.region}", f"helper {plain_name(function.name)}")
        for operation in graph.operations:
            for region in operation.regions:
                yield Cluster(
                    f"r{region}", frame_label(operation, region, self.source), self.cluster_of(operation.block)
                )

    def cluster_of(self, block: int) -> str | None:
        region = self.graph.blocks[block].region
        if self.graph.regions[region].owner is None and region == self.graph.kernel.region:
            return None
        return f"r{region}"

    def nodes(self) -> Iterator[Node]:
        yield from self._arguments()
        for operation in self.graph.operations:
            if operation.name in TERMINATORS or operation.name == "arith.constant" or self._in_fold(operation):
                continue
            yield self._operation(operation)
            for region in operation.regions if operation.name not in FOLDED else ():
                for block in self.graph.regions[region].blocks:
                    yield from self._block_arguments(block)

    def _in_fold(self, operation: Operation) -> bool:
        return is_folded(self.graph, operation.block)

    def _arguments(self) -> Iterator[Node]:
        for function in self.graph.functions:
            cluster = None if function.is_kernel else f"r{function.region}"
            for value, name in zip(function.arguments, function.parameters, strict=False):
                known = self.graph.values[value]
                kind = Kind.ARGUMENT if known.is_pointer else Kind.SCALAR
                yield Node(f"v{value}", (name, short_type(known)), kind, f"argument {name}\n{known.type}", cluster)
            for block in self.graph.regions[function.region].blocks[1:]:
                yield from self._block_arguments(block, cluster)

    def _block_arguments(self, block: int, cluster: str | None = None) -> Iterator[Node]:
        for value in self.graph.blocks[block].arguments:
            if value not in self.heads:
                known = self.graph.values[value]
                starts = [
                    self.constants[flow.value] for flow in self.joins.get(value, ()) if flow.value in self.constants
                ]
                title = shortened(" ".join([self._carried_name(value), *(f"← {start}" for start in starts[:1])]), 40)
                lines = (title, short_type(known))
                yield Node(
                    f"v{value}",
                    lines,
                    Kind.CONTROL,
                    f"carried value\n{value_words(known)}",
                    self.cluster_of(block) or cluster,
                )

    def _carried_name(self, value: int) -> str:
        """Return the variable that a block argument stands for: its own name, or that of what flows into it."""
        values = [value, *(flow.value for flow in reversed(self.joins.get(value, ())))]
        return next((name for each in values if (name := self.graph.values[each].name)), "carried")

    def _operation(self, operation: Operation) -> Node:
        touch = self.touches.get(operation.index)
        place = place_of(operation.location)
        kind = touch.kind if touch else Kind.COMPUTE
        cluster = self.cluster_of(operation.block)
        title = operation_title(self.graph, operation, self.constants, touch)
        details = self._details(operation, touch)
        if operation.name == "scf.for":
            kind, cluster = Kind.CONTROL, f"r{operation.regions[0]}"
            title, details = self._loop_words(operation)
        elif operation.regions and operation.name not in FOLDED:
            kind, details = Kind.CONTROL, []
        elif operation.name in BRANCHES:
            kind = Kind.CONTROL
        tip = operation_tip(self.graph, operation, touch, self.source)
        unsure = touch is not None and bool(touch.unknown)
        made_of = tuple(self._inside(operation)) if operation.name in FOLDED else (operation.index,)
        return Node(
            f"o{operation.index}",
            (title, *details),
            kind,
            tip,
            cluster,
            place.line,
            unsure,
            made_of,
            self.source.other(place),
        )

    def _inside(self, operation: Operation) -> Iterator[int]:
        """Yield an operation and those of its regions."""
        yield operation.index
        for region in operation.regions:
            for block in self.graph.regions[region].blocks:
                for index in self.graph.blocks[block].operations:
                    yield from self._inside(self.graph.operations[index])

    def _details(self, operation: Operation, touch: Touch | None) -> list[str]:
        """Return the name and type of the result; of what is stored, where there is no result."""
        shown = operation.results[:1] or (operation.operands[1:2] if touch else ())
        return [self._value_words(self.graph.values[index]) for index in shown]

    def _value_words(self, value: Value) -> str:
        return shortened(f"{value.name}  {short_type(value)}" if value.name else short_type(value), 44)

    def _loop_words(self, operation: Operation) -> tuple[str, list[str]]:
        """Return the title of a loop, and its bounds where all of them have a name or are constants."""
        title = f"for {loop_variable(self.graph, operation, self.source)}".rstrip()
        bounds = [
            self.constants.get(value) or self.graph.values[value].name
            for value in direct_operands(self.graph, operation)
        ]
        if None in bounds:
            return title, []
        low, high, step = bounds
        return title, [f"{low} to {high}" + (f" by {step}" if step != "1" else "")]

    def edges(self) -> Iterator[Edge]:
        for operation in self.graph.operations:
            if operation.name not in TERMINATORS and not self._in_fold(operation):
                for operand in direct_operands(self.graph, operation):
                    yield from self._into(f"o{operation.index}", operation, Inflow(operand, back=False))
                for first in controlled(self.graph, operation):
                    yield Edge(f"o{operation.index}", f"o{first.index}", Flow.CONTROL, "")
        for value, sources in self.joins.items():
            known = self.graph.values[value]
            if known.operation is None and value not in self.heads and not is_folded(self.graph, known.block):
                for source in sources:
                    yield from self._into(f"v{value}", known, source)

    def _into(self, head: str, consumer: Operation | Value, flow: Inflow) -> Iterator[Edge]:
        def is_end(value: int) -> bool:
            return self.graph.values[value].operation is None

        for origin in origins(self.graph, self.joins, consumer, flow.value, is_end):
            value = self.graph.values[origin.value]
            if origin.value in self.constants:
                continue
            tail = f"v{origin.value}" if value.operation is None else f"o{value.operation}"
            if origin.value in self.heads:
                tail = f"o{self.heads[origin.value]}"
            yield Edge(tail, head, flow_of(value), value_words(value), flow.back or origin.back)


def operation_diagram(graph: Graph, effects: Effects | None, source: SourceText) -> Diagram:
    """Return the picture of every operation. ``source`` gives the text of lines, for the tooltips."""
    view = OperationView(graph, effects, source)
    edges = merged_edges(view.edges())
    touched = {edge.tail for edge in edges} | {edge.head for edge in edges}
    nodes = tuple(node for node in view.nodes() if node.kind is not Kind.SCALAR or node.id in touched)
    return Diagram(f"Operations of {graph.kernel.name}", nodes, edges, occupied(view.clusters(), nodes))
