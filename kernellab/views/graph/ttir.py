"""The views of a TTIR graph as diagrams: one box per operation, or one per source line, with regions as frames."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

from kernellab.ir.effects import Effects
from kernellab.ir.graph import Graph, Location, Operation, Value, place_of
from kernellab.views.elements import group_by, shorten
from kernellab.views.graph.dataflow import (
    BRANCHES,
    FOLDED,
    YIELDS,
    Inflow,
    MemoryTouch,
    SourceText,
    constants,
    controlled_operations,
    direct_operands,
    inflows,
    is_folded,
    loop_variable,
    merge_touches,
    operation_tip,
    operation_title,
    origins,
    plain_name,
    short_type,
    touches,
    value_words,
)
from kernellab.views.graph.diagram import (
    ArrowKind,
    BoxKind,
    Diagram,
    Edge,
    Node,
    RegionFrame,
    merged_edges,
    occupied_clusters,
)
from kernellab.workers.forks_and_interrupts import cached_property


def flow_of(value: Value) -> ArrowKind:
    """Return the kind of the arrow of a value."""
    if value.is_pointer:
        return ArrowKind.ADDRESS
    return ArrowKind.MASK if value.element == "i1" else ArrowKind.VALUE


def frame_label(operation: Operation, region: int, source: SourceText) -> str:
    """Return the words on the frame of a region: what kind of region it is, and its line."""
    names = {"scf.for": ("loop",), "scf.while": ("while", "do"), "scf.if": ("if", "else")}
    partitions = tuple(f"warps of partition {number}" for number in range(len(operation.regions)))
    names["ttg.warp_specialize"] = ("default warps", *partitions)
    words = dict(enumerate(names.get(operation.name, ())))
    word = words.get(operation.regions.index(region), operation.name)
    place = source.words(place_of(operation.location))
    return f"{word}, {place}" if place else word


class _TtirView:
    """Common parts of both views of a graph: arguments, frames of helpers, arrows.

    ``boxes`` has the box of each operation by its index: its own, or that of its source line. ``frames`` are the
    regions of operations that have a frame.
    """

    def __init__(self, graph: Graph, effects: Effects | None, source: SourceText) -> None:
        self.graph = graph
        self.source = source
        self.touches: Mapping[int, MemoryTouch] = touches(graph, effects)
        self.constants = constants(graph)
        self.joins = inflows(graph)
        self.boxes = {op.index: f"o{op.index}" for op in graph.operations if op.name not in YIELDS}
        self.frames = {region for operation in graph.operations for region in operation.regions}

    @cached_property
    def heads(self) -> dict[int, str]:
        """The box of each ``for``, by the value of its variable."""
        loops = [operation for operation in self.graph.operations if operation.name == "scf.for"]
        bodies = [self.graph.blocks[self.graph.regions[loop.regions[0]].blocks[0]] for loop in loops]
        return {body.arguments[0]: self.boxes[loop.index] for loop, body in zip(loops, bodies, strict=True)}

    def arguments(self) -> Iterator[Node]:
        """Yield a box per argument of the kernel and of its helpers."""
        for function in self.graph.functions:
            cluster = None if function.is_kernel else f"r{function.region}"
            for value, name in zip(function.arguments, function.parameters, strict=False):
                known = self.graph.values[value]
                kind = BoxKind.ARGUMENT if known.is_pointer else BoxKind.SCALAR
                yield Node(f"v{value}", (name, short_type(known)), kind, f"argument {name}\n{known.type}", cluster)

    def clusters(self) -> Iterator[RegionFrame]:
        """Yield the frames of operations."""
        for operation in self.graph.operations:
            for region in operation.regions:
                if region in self.frames:
                    label = frame_label(operation, region, self.source)
                    yield RegionFrame(f"r{region}", label, self.frame_of(operation.block))

    def frame_of(self, block: int) -> str | None:
        """Return the innermost frame around a block; None for the body of the kernel."""
        region = self.graph.regions[self.graph.blocks[block].region]
        while region.owner is not None and region.index not in self.frames:
            region = self.graph.regions[self.graph.blocks[self.graph.operations[region.owner].block].region]
        return None if region.index == self.graph.kernel.region else f"r{region.index}"

    def _inside(self, *regions: int) -> Iterator[Operation]:
        for region in regions:
            for block in self.graph.regions[region].blocks:
                for index in self.graph.blocks[block].operations:
                    yield self.graph.operations[index]
                    yield from self._inside(*self.graph.operations[index].regions)

    def edges(self) -> Iterator[Edge]:
        """Yield the arrows, several between two boxes included."""
        for operation in self.graph.operations:
            head = self.boxes.get(operation.index)
            if head is None or is_folded(self.graph, operation.block):
                continue
            operands = direct_operands(self.graph, operation)
            for value in dict.fromkeys(value for operand in operands for value in self._inputs(operand, operation)):
                yield from self._into(head, operation, Inflow(value, back=False))
            for first in controlled_operations(self.graph, operation):
                yield Edge(head, self.boxes[first.index], ArrowKind.CONTROL, "")

    def _inputs(self, value: int, consumer: Operation) -> Iterator[int]:
        """Yield the values that the box of an operation takes for one that the operation takes."""
        yield value

    def _into(self, head: str, consumer: Operation | Value, flow: Inflow) -> Iterator[Edge]:
        """Yield the arrows of one value into a box."""
        for origin in origins(self.graph, self.joins, consumer, flow.value, self._is_end):
            if origin.value not in self.constants:
                value = self.graph.values[origin.value]
                tail = f"v{origin.value}" if value.operation is None else self.boxes[value.operation]
                tail = self.heads.get(origin.value, tail)
                yield Edge(tail, head, flow_of(value), value_words(value), flow.back or origin.back)

    def _is_end(self, value: int) -> bool:
        """Whether arrows begin at a value even where it joins others."""
        return value in self.heads


class OperationView(_TtirView):
    """The boxes, arrows and frames of the picture by operation."""

    @cached_property
    def parts(self) -> set[int]:
        """The values of an expression that are made elsewhere in it than its last one, which the variable holds.

        In an unrolled loop, the last one of each round is made in the same place.
        """
        results = [self.graph.values[result] for made in self.graph.operations for result in made.results[:1]]
        wholes = {replace(value.location, column=None): self._site(value) for value in results}
        return {v.index for v in results if self._site(v) != wholes[replace(v.location, column=None)]}

    def _site(self, value: Value) -> tuple[Location, str | None]:
        """The place of the operation that makes a value, and its name."""
        maker = self.graph.maker(value.index)
        return value.location, None if maker is None else maker.name

    def nodes(self) -> Iterator[Node]:
        """Yield a box per operation and carried value, in the order of the IR."""
        for function in self.graph.functions:  # the values that its blocks pass to each other
            for block in self.graph.regions[function.region].blocks[1:]:
                yield from self._block_arguments(block)
        for operation in self.graph.operations:
            if operation.name in (*YIELDS, "arith.constant") or is_folded(self.graph, operation.block):
                continue
            yield self._operation(operation)
            for region in operation.regions if operation.name not in FOLDED else ():
                for block in self.graph.regions[region].blocks:
                    yield from self._block_arguments(block)

    def _block_arguments(self, block: int) -> Iterator[Node]:
        for value in self.graph.blocks[block].arguments:
            if value not in self.heads:
                known, flows = self.graph.values[value], self.joins.get(value, ())
                starts = [f"← {self.constants[flow.value]}" for flow in flows if flow.value in self.constants]
                # The variable that it stands for has its own name, or that of what flows into it.
                values = [known, *(self.graph.values[flow.value] for flow in reversed(flows))]
                name = next((value.name for value in values if value.name), "carried")
                lines = (shorten(" ".join([name, *starts[:1]]), 40), short_type(known))
                tip = f"carried value\n{value_words(known)}"
                yield Node(f"v{value}", lines, BoxKind.CONTROL, tip, self.frame_of(block))

    def _operation(self, operation: Operation) -> Node:
        touch, place = self.touches.get(operation.index), place_of(operation.location)
        kind, cluster = touch.kind if touch else BoxKind.COMPUTE, self.frame_of(operation.block)
        title = operation_title(self.graph, operation, self.constants, touch)
        # The name and type of the result; of what is stored, where there is no result.
        shown = operation.results[:1] or (operation.operands[1:2] if touch else ())
        values = [self.graph.values[index] for index in shown]
        details = [shorten(f"{self._variable(value)}  {short_type(value)}".strip(), 44) for value in values]
        if operation.name == "scf.for":
            kind, cluster = BoxKind.CONTROL, f"r{operation.regions[0]}"
            title, details = self._loop_words(operation)
        elif operation.regions and operation.name not in FOLDED:
            kind, details = BoxKind.CONTROL, []
        elif operation.name in BRANCHES:
            kind = BoxKind.CONTROL
        folded = self._inside(*operation.regions) if operation.name in FOLDED else ()
        return Node(
            f"o{operation.index}",
            (title, *details),
            kind,
            operation_tip(self.graph, operation, touch, self.source),
            cluster,
            place.line,
            touch is not None and bool(touch.unknown),
            (operation.index, *(inner.index for inner in folded)),
            self.source.other(place),
        )

    def _variable(self, value: Value) -> str:
        """Return the variable that holds a value; "" of a part of its expression, which Triton gives the same name."""
        return "" if value.index in self.parts else value.name or ""

    def _loop_words(self, operation: Operation) -> tuple[str, list[str]]:
        """Return the title of a loop, and its bounds where all of them have a name or are constants."""
        title = f"for {loop_variable(self.graph, operation, self.source)}".rstrip()
        values = direct_operands(self.graph, operation)
        bounds = [self.constants.get(value) or self.graph.values[value].name for value in values]
        if None in bounds:
            return title, []
        low, high, step = bounds
        return title, [f"{low} to {high}" + (f" by {step}" if step != "1" else "")]

    def edges(self) -> Iterator[Edge]:
        """Yield the arrows of operations, then those into carried values."""
        yield from super().edges()
        for value, sources in self.joins.items():
            known = self.graph.values[value]
            if known.operation is None and value not in self.heads and not is_folded(self.graph, known.block):
                for source in sources:
                    yield from self._into(f"v{value}", known, source)

    def _is_end(self, value: int) -> bool:
        return self.graph.values[value].operation is None


def operation_diagram(graph: Graph, effects: Effects | None, source: SourceText) -> Diagram:
    """Return the picture of every operation. ``source`` gives the text of lines, for the tooltips."""
    return _diagram(OperationView(graph, effects, source), f"Operations of {graph.kernel.name}")


def _diagram(view: OperationView | SourceView, title: str, order: Iterable[tuple[str, str]] = ()) -> Diagram:
    """Return the picture of a view, without scalars that lead nowhere and empty frames."""
    arrows = merged_edges(view.edges())
    touched = {end for edge in arrows for end in (edge.tail, edge.head)}
    nodes = (*view.arguments(), *view.nodes())
    shown = tuple(node for node in nodes if node.kind is not BoxKind.SCALAR or node.id in touched)
    helpers = (function for function in view.graph.functions if not function.is_kernel)
    frames = (RegionFrame(f"r{helper.region}", f"helper {plain_name(helper.name)}") for helper in helpers)
    return Diagram(title, shown, arrows, occupied_clusters((*frames, *view.clusters()), shown), tuple(order))


def _line(operation: Operation) -> tuple[str | None, int | None]:
    place = place_of(operation.location)
    return place.file, place.line


@dataclass(slots=True)
class _Line:
    """A box being gathered: the operations of one source line within one frame."""

    key: str
    place: Location
    cluster: str | None
    operations: list[Operation] = field(default_factory=list)


class SourceView(_TtirView):
    """The boxes, arrows and frames of the picture by source line."""

    def __init__(self, graph: Graph, effects: Effects | None, source: SourceText) -> None:
        super().__init__(graph, effects, source)
        regions = [(operation, region) for operation in graph.operations for region in operation.regions]
        self.frames = {region for operation, region in regions if self._spans_lines(operation, region)}
        self.lines: dict[str, _Line] = {}
        self.boxes = {}
        self.users: dict[int, list[Operation]] = defaultdict(list)
        for operation in graph.operations:
            for value in operation.operands:
                self.users[value].append(operation)
            if operation.name not in YIELDS and operation.name != "arith.constant":
                self._add_to_line(operation)

    def _spans_lines(self, operation: Operation, region: int) -> bool:
        """Whether a region has source lines other than that of its operation."""
        here, places = _line(operation), (_line(inner) for inner in self._inside(region) if inner.name not in YIELDS)
        return any(place[1] is not None and place != here for place in places)

    def _add_to_line(self, operation: Operation) -> None:
        place, frame = place_of(operation.location), self.frame_of(operation.block)
        key = f"{place.file}:{place.line}@{frame}" if place.line is not None else f"o{operation.index}"
        line = self.lines.setdefault(key, _Line(f"n{len(self.lines)}", place, frame))
        line.operations.append(operation)
        self.boxes[operation.index] = line.key

    def nodes(self) -> Iterator[Node]:
        """Yield a box per source line, but for the arguments."""
        return map(self._node, self.lines.values())

    def _node(self, line: _Line) -> Node:
        touch = merge_touches(self.touches[op.index] for op in line.operations if op.index in self.touches)
        text, where = self.source.line(line.place), self.source.words(line.place)
        title = f"{where.removeprefix('line ')}  {shorten(text or self._summary(line), 40)}".strip()
        touched = touch.words() if touch else ""
        details = " · ".join(filter(None, (touched, self._result(line))))
        kind = touch.kind if touch else BoxKind.COMPUTE
        if touch is None and any(op.regions and op.name not in FOLDED for op in line.operations):
            kind, details = BoxKind.CONTROL, ""
        counts = Counter(op.name for op in line.operations)
        operations = ", ".join(f"{count} {name}" if count > 1 else name for name, count in counts.items())
        return Node(
            line.key,
            (title, details) if details else (title,),
            kind,
            "\n".join(filter(None, (f"{where}: {text}" if text else where, touched, operations))),
            line.cluster,
            line.place.line,
            touch is not None and bool(touch.unknown),
            tuple(operation.index for operation in line.operations),
            self.source.other(line.place),
        )

    def _summary(self, line: _Line) -> str:
        """Stand in for a source line without text."""
        values = (self.graph.values[index] for op in line.operations for index in op.results)
        names = dict.fromkeys(value.name for value in values if value.name)
        words = ", ".join(dict.fromkeys(op.name.rpartition(".")[2] for op in line.operations))
        return f"{', '.join(names)} = {words}" if names else words

    def _result(self, line: _Line) -> str:
        """Return the type of the tensor that the line makes in the end, or stores; "" for a scalar."""
        for operation in reversed(line.operations):
            values = operation.results[:1] or (operation.operands[1:2] if operation.index in self.touches else ())
            if values and not is_folded(self.graph, operation.block):
                result = self.graph.values[values[0]]
                return short_type(result) if result.shape else ""
        return ""

    def _inputs(self, value: int, consumer: Operation) -> Iterator[int]:
        """Yield the values that the source line of an operation takes for one that the operation takes.

        What an earlier line computes on its way to its result, and a later line writes again, is one value since
        common-subexpression elimination. The later line takes what that was computed from, not the earlier line.
        """
        maker = self.graph.maker(value)
        if maker is None or not self._is_intermediate(maker) or _line(maker) == _line(consumer):
            yield value
            return
        for operand in maker.operands:
            yield from self._inputs(operand, consumer)

    def _is_intermediate(self, operation: Operation) -> bool:
        """True for an operation with a result that its own source line uses, without regions and memory accesses."""
        if operation.regions or operation.index in self.touches:
            return False
        return any(_line(user) == _line(operation) for user in self.users.get(operation.results[0], ()))

    def order(self) -> Iterator[tuple[str, str]]:
        """Yield pairs of boxes, the upper one first: a loop and what follows it, two successive loads."""
        by_frame = group_by(self.lines.values(), lambda line: line.cluster)
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
                inner = [f"r{region}" for region in operation.regions if region in self.frames]
                last = next((by_frame[frame][-1].key for frame in reversed(inner) if frame in by_frame), last)


def source_diagram(graph: Graph, effects: Effects | None, source: SourceText) -> Diagram:
    """Return the picture by source line. ``source`` gives the text of lines."""
    view = SourceView(graph, effects, source)
    return _diagram(view, f"Dataflow of {graph.kernel.name} by source line", view.order())
