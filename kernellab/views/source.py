"""The annotated source: what became of each line of a kernel."""

from __future__ import annotations

import linecache
import math
from dataclasses import dataclass

from kernellab.ir.graph import Graph, Operation
from kernellab.ir.locations import place_of
from kernellab.views.access import Touch, merged, touches
from kernellab.views.flow import TERMINATORS
from kernellab.views.places import main_file
from kernellab.views.report import KernelReport

_LOOP_TRIPS = 8  # what a loop whose trip count is not looked at counts for
_TTIR_LINES = 24
_LOOPS = frozenset({"scf.for", "scf.while"})
_FREE = frozenset(
    {"arith.constant", "tt.splat", "tt.broadcast", "tt.expand_dims", "tt.reshape", "tt.trans", "tt.make_range"}
)
_ELEMENT_BYTES = {"i1": 1, "bf16": 2, "index": 8}


@dataclass(frozen=True, slots=True)
class SourceLine:
    """One line of a kernel or of a helper that it uses.

    ``operations`` is the number of TTIR operations that it became, ``heat`` its share of the estimated work from 0 to
    1, ``bytes`` what its loads, stores and atomics move each time it is executed. ``file`` is "" for the kernel's own.
    """

    file: str
    number: int
    text: str
    operations: int
    heat: float
    touch: Touch | None
    bytes: int
    ttir: str


def source_text(report: KernelReport) -> dict[int, str]:
    """Return the lines of the kernel's own text by their numbers."""
    return {report.first_line + index: line for index, line in enumerate(report.source.splitlines())}


def annotated(report: KernelReport) -> tuple[SourceLine, ...]:
    """Return the kernel's lines in order, then the lines of helpers that became operations."""
    graph = report.compiled.graph
    touched = touches(graph, report.compiled.effects)
    own, file = source_text(report), main_file(graph)
    groups: dict[tuple[str, int], list[Operation]] = {("", number): [] for number in own}
    for operation in graph.operations:
        place = place_of(operation.location)
        if place.line is not None and operation.name not in TERMINATORS:
            name = "" if place.file == file else place.file or ""
            groups.setdefault((name, place.line), []).append(operation)
    work = {key: sum(_work(graph, operation) for operation in group) for key, group in groups.items()}
    most = max(work.values(), default=0.0)
    return tuple(
        SourceLine(
            name,
            number,
            own.get(number, "")
            if not name and number in own
            else linecache.getline(name or file or "", number).rstrip(),
            len(group),
            _heat(work[name, number], most),
            merged(touched[operation.index] for operation in group if operation.index in touched),
            sum(moved_bytes(graph, operation) for operation in group if operation.index in touched),
            _ttir(graph, group),
        )
        for (name, number), group in sorted(groups.items())
    )


def _ttir(graph: Graph, group: list[Operation]) -> str:
    shown = [printed(graph, operation) for operation in group[:_TTIR_LINES]]
    return "\n".join([*shown, *([f"... {len(group) - len(shown)} more"] if len(group) > len(shown) else [])])


def _heat(work: float, most: float) -> float:
    return math.sqrt(work / most) if most else 0.0


def _work(graph: Graph, operation: Operation) -> float:
    """Estimate the work of an operation in elements computed, all trips of the loops around it included."""
    if operation.name in _FREE or not (operation.results or operation.operands):
        return 0.0
    shapes = [graph.values[value].shape for value in (*operation.results, *operation.operands)]
    elements = max(math.prod(shape) for shape in shapes)
    if operation.name.startswith("tt.dot"):
        elements *= max(1, graph.values[operation.operands[0]].shape[-1] // 16)
    return float(elements * _LOOP_TRIPS ** _loop_depth(graph, operation))


def _loop_depth(graph: Graph, operation: Operation) -> int:
    depth = 0
    owner = graph.regions[graph.blocks[operation.block].region].owner
    while owner is not None:
        depth += graph.operations[owner].name in _LOOPS
        owner = graph.regions[graph.blocks[graph.operations[owner].block].region].owner
    return depth


def moved_bytes(graph: Graph, operation: Operation) -> int:
    """Return the bytes that a memory operation moves when no lane is masked; 0 where its type does not tell."""
    values = [graph.values[value] for value in (*operation.results[:1], *operation.operands[1:2])]
    return next((math.prod(value.shape) * _element_bytes(value.element) for value in values if not value.is_pointer), 0)


def _element_bytes(element: str) -> int:
    if element in _ELEMENT_BYTES:
        return _ELEMENT_BYTES[element]
    digits = "".join(filter(str.isdigit, element.partition("E")[0]))
    return -(-int(digits) // 8) if digits else 0


def printed(graph: Graph, operation: Operation) -> str:
    """Return an operation much as TTIR prints it, on one line and without its regions."""
    results = ", ".join(_name(graph, value) for value in operation.results)
    operands = ", ".join(_name(graph, value) for value in operation.operands)
    types = ", ".join(graph.values[value].type for value in operation.results or operation.operands[:1])
    head = f"{results} = {operation.name}" if results else operation.name
    return f"{head} {operands}".rstrip() + (f" : {types}" if types else "")


def _name(graph: Graph, value: int) -> str:
    name = graph.values[value].name
    return f"%{name}" if name else f"%{value}"
