"""The annotated source: what became of each line of a kernel, as data and as an HTML table."""

from __future__ import annotations

import linecache
import math
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape

from kernellab.ir.graph import Graph, Operation, main_file, place_of
from kernellab.ir.operations import Access, access_bytes
from kernellab.views.elements import badge, bytes_words, code_line
from kernellab.views.graph.dataflow import YIELDS, MemoryTouch, merged, touches
from kernellab.views.report import KernelReport

_LOOP_TRIPS = 8  # what a loop whose trip count is not looked at counts for
_TTIR_LINES = 24
_LOOPS = frozenset({"scf.for", "scf.while"})
_FREE = frozenset(
    {"arith.constant", "tt.splat", "tt.broadcast", "tt.expand_dims", "tt.reshape", "tt.trans", "tt.make_range"}
)


@dataclass(frozen=True, slots=True)
class AnnotatedLine:
    """One line of a kernel or of a helper that it uses.

    ``operations`` is the number of TTIR operations that it became, ``heat`` its share of the estimated work from 0 to
    1, ``bytes`` what its loads, stores and atomics move each time it is executed. ``file`` is "" for the kernel's own.
    """

    file: str
    number: int
    text: str
    operations: int
    heat: float
    touch: MemoryTouch | None
    bytes: int
    ttir: str


def annotated(report: KernelReport) -> tuple[AnnotatedLine, ...]:
    """Return the kernel's lines in order, then the lines of helpers that became operations."""
    graph = report.compiled.graph
    touched = touches(graph, report.compiled.effects)
    own, file = report.text.own, main_file(graph)
    groups: dict[tuple[str, int], list[Operation]] = {("", number): [] for number in own}
    for operation in graph.operations:
        place = place_of(operation.location)
        if place.line is not None and operation.name not in YIELDS:
            name = "" if place.file == file else place.file or ""
            groups.setdefault((name, place.line), []).append(operation)
    work = {key: sum(_work(graph, operation) for operation in group) for key, group in groups.items()}
    most = max(work.values(), default=0.0)
    return tuple(
        AnnotatedLine(
            name,
            number,
            own.get(number, "")
            if not name and number in own
            else linecache.getline(name or file or "", number).rstrip(),
            len(group),
            _heat(work[name, number], most),
            merged(touched[operation.index] for operation in group if operation.index in touched),
            sum(access_bytes(graph, operation) for operation in group if operation.index in touched),
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
    depth = sum(owner.name in _LOOPS for owner in graph.owners(operation.block))
    return float(elements * _LOOP_TRIPS**depth)


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


_DARKEST = 0.42


def source_table(lines: tuple[AnnotatedLine, ...]) -> str:
    """Return the table; hovering over a line shows the operations that it became."""
    rows = "\n".join(_row(line, gap=gap) for line, gap in _with_gaps(lines))
    return f'<div class="kl-scroll"><table class="kl-source"><tbody>\n{rows}\n</tbody></table></div>'


def _with_gaps(lines: tuple[AnnotatedLine, ...]) -> Iterator[tuple[AnnotatedLine, bool]]:
    """Yield each line, and whether lines that are not shown, or another file, lie before it."""
    before: AnnotatedLine | None = None
    for line in lines:
        yield line, before is not None and (line.file != before.file or line.number != before.number + 1)
        before = line


def _row(line: AnnotatedLine, *, gap: bool) -> str:
    title = f' title="{escape(line.ttir)}"' if line.ttir else ""
    heat = f' style="background:rgba(224,108,18,{line.heat * _DARKEST:.2f})"' if line.operations else ""
    count = str(line.operations) if line.operations else ""
    cells = (
        f'<td class="kl-no">{line.number}</td><td class="kl-ops"{heat}>{count}</td>'
        f'<td class="kl-by">{_badges(line.touch, line.bytes)}</td><td>{code_line(line.text) or " "}</td>'
    )
    above = f'<tr><td class="kl-no">⋮</td><td></td><td></td><td>{escape(line.file)}</td></tr>\n' if gap else ""
    return f"{above}<tr{title}>{cells}</tr>"


def _badges(touch: MemoryTouch | None, moved: int) -> str:
    if touch is None:
        return ""
    parts = [badge(kind, ", ".join(touch.arguments[kind])) for kind in Access if kind in touch.arguments]
    if touch.unknown:
        parts.append(f'<span class="kl-badge kl-unknown"><b>?</b> {escape(touch.unknown)}</span>')
    size = f'<span class="kl-dim">{bytes_words(moved)}</span>' if moved else ""
    return "".join(parts) + size
