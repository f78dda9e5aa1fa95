"""What a cell shows of its kernels and of their lines: plain data, for a card, a table or a summary line."""

from __future__ import annotations

import linecache
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernellab.checking.comparison import Check
from kernellab.compile.argument_values import ArgumentValue
from kernellab.compile.types import Compiled
from kernellab.display import Displayable
from kernellab.errors import KernellabError
from kernellab.explain.alignment import NarrowAccess, narrow_accesses
from kernellab.ir.effects import Effects, access_bytes
from kernellab.ir.graph import Graph, Operation, main_file, place_of
from kernellab.ir.operations import Access
from kernellab.launch.run import Run
from kernellab.views.graph.dataflow import YIELDS, MemoryTouch, SourceText, merge_touches, touches

if TYPE_CHECKING:
    from kernellab.explain.explanation import Explanation
    from kernellab.explain.prediction import Prediction


@dataclass(frozen=True, slots=True)
class ArgumentReport:
    """One row of the card.

    ``lines`` maps each kind of access to the source lines that perform it; an empty mapping means untouched, None that
    the argument names no memory. ``changed`` elements changed in the last run; None without a run. ``value`` is what
    the argument was given, where that is known, and ``narrow`` are the loads and stores that it keeps narrow.
    """

    name: str
    type: str
    specialization: str
    lines: Mapping[Access, tuple[int, ...]] | None
    changed: int | None = None
    value: ArgumentValue | None = None
    narrow: tuple[NarrowAccess, ...] = ()


@dataclass(frozen=True, slots=True)
class KernelReport:
    """One specialization of one kernel, as launched (or only compiled) by a cell.

    ``label`` is the name and version, ``softmax@2``; ``source`` the text of the kernel and ``first_line`` the line of
    its cell or file at which that starts; ``launches`` how often the cell launched it, ``grid`` the last grid.
    ``config`` is the chosen config of an autotuned kernel, in words, or "". ``notes`` are sentences for the user;
    ``explanation`` says why the launch takes as long as it does, where that was asked; ``prediction`` is its time on a
    target that this machine has no GPU of, ``predicting_for`` the device that it is still being predicted for, or "";
    ``why_unpredicted`` says why it is not, and what predicts it, or is "";
    ``birth`` says where the first NaN or infinity of an output arose.
    """

    label: str
    source: str
    file: str
    first_line: int
    compiled: Compiled
    arguments: tuple[ArgumentReport, ...]
    launches: int
    grid: tuple[int, int, int] | None
    run: Run | None
    checks: tuple[Check, ...] = ()
    config: str = ""
    notes: tuple[str, ...] = ()
    explanation: Explanation | None = None
    prediction: Prediction | None = None
    predicting_for: str = ""
    why_unpredicted: str = ""
    birth: str | None = None

    @property
    def text(self) -> SourceText:
        """The lines of the kernel's own text by their numbers."""
        return SourceText.of(self.source, self.first_line, self.file)

    @property
    def check(self) -> Check | None:
        """The check to look at first: one that failed, else the first."""
        return min(self.checks, key=lambda check: check.equal, default=None)


@dataclass(frozen=True, slots=True)
class CellReport(Displayable):
    """The report of one cell.

    ``hints`` suggest a next step, such as a launch of a kernel; ``problems`` say why a check could not be made.
    """

    kernels: tuple[KernelReport, ...]
    hints: tuple[str, ...] = ()
    show: str | None = None
    problems: tuple[KernellabError, ...] = ()


def argument_reports(
    compiled: Compiled, values: Mapping[str, ArgumentValue], run: Run | None
) -> tuple[ArgumentReport, ...]:
    """Return the rows of the card; each member of a tuple that holds memory has a row of its own.

    ``values`` are the arguments by name, where they are known.
    """
    narrow = narrow_accesses(compiled, {name: value.value for name, value in values.items()})
    effects, rows = compiled.effects, list[ArgumentReport]()
    for own in compiled.parameters:
        memory = [name for name in effects.arguments if name == own.name or name.startswith(f"{own.name}[")]
        for name in memory if own.name in memory else [own.name, *memory]:
            kind, specialization = (own.type, own.specialization) if name == own.name else ("member", "")
            lines = access_lines(effects, name) if name in memory else None
            changed = run.changed.get(name) if run is not None and name in memory else None
            given = values.get(name), narrow.get(name, ())
            rows.append(ArgumentReport(name, kind, specialization, lines, changed, *given))
    return tuple(rows)


def access_lines(effects: Effects, argument: str) -> Mapping[Access, tuple[int, ...]]:
    """Return the source lines that access an argument, by the kind of access; () where they are not known."""
    lines: dict[Access, set[int]] = {}
    for site in effects.sites:
        if site.argument == argument:
            lines.setdefault(site.kind, set()).update(() if site.line is None else (site.line,))
    return {kind: tuple(sorted(lines[kind])) for kind in Access if kind in lines}


def lines_by_argument(effects: Effects) -> dict[str, Mapping[Access, tuple[int, ...]]]:
    """Return the `access_lines` of each argument, and of memory that is reached through one."""
    names = dict.fromkeys((*effects.arguments, *(site.argument for site in effects.sites)))
    return {name: access_lines(effects, name) for name in names}


def summary(report: CellReport) -> list[dict[str, Any]]:
    """Return the facts of each kernel of a cell, as JSON has them.

    ``reads``, ``writes`` and ``atomics`` name arguments; ``complete`` says whether they are all. ``where`` is None
    when the kernel was not launched, ``equal`` when nothing was compared. ``max_error`` is that of the check to look
    at first, or None where it is infinite, which JSON has no number for. Sizes are in bytes, times in seconds;
    those that start with ``predicted`` are None where nothing was predicted.
    """
    return [_facts(kernel) for kernel in report.kernels]


_RESOURCES = ("registers", "spill_bytes", "stack_bytes", "shared_bytes", "occupancy", "fits")


def _facts(report: KernelReport) -> dict[str, Any]:
    compiled, run, check, prediction = report.compiled, report.run, report.check, report.prediction
    touched = {
        name: [argument.name for argument in report.arguments if kind in (argument.lines or {})]
        for name, kind in (("reads", Access.READ), ("writes", Access.WRITE), ("atomics", Access.ATOMIC))
    }
    return {
        "label": report.label,
        "target": str(compiled.target),
        "compile_seconds": compiled.seconds,
        "from_cache": compiled.from_cache,
        "arguments": [argument.name for argument in report.arguments],
        **touched,
        "complete": not compiled.effects.unknown,
        **{name: getattr(compiled.resources, name) for name in _RESOURCES},
        "launches": report.launches,
        "grid": None if report.grid is None else list(report.grid),
        "where": run.where if run else None,
        "seconds": run.seconds if run else None,
        "predicted_seconds": prediction.time_ms / 1e3 if prediction else None,
        "predicted_low_seconds": prediction.low_ms / 1e3 if prediction else None,
        "predicted_high_seconds": prediction.high_ms / 1e3 if prediction else None,
        "predicted_for": prediction.device if prediction else None,
        "findings": len(run.findings) if run else 0,
        "equal": check.equal if check else None,
        "max_error": check.max_error if check and math.isfinite(check.max_error) else None,
    }


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


def annotate_lines(report: KernelReport) -> tuple[AnnotatedLine, ...]:
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
    lines = []
    for (name, number), group in sorted(groups.items()):
        text = own[number] if not name and number in own else linecache.getline(name or file or "", number).rstrip()
        heat = math.sqrt(work[name, number] / most) if most else 0.0
        accesses = [operation for operation in group if operation.index in touched]
        touch = merge_touches(touched[operation.index] for operation in accesses)
        moved = sum(access_bytes(graph, operation) for operation in accesses)
        ttir = [_operation_text(graph, operation) for operation in group[:_TTIR_LINES]]
        rest = [f"... {len(group) - len(ttir)} more"] if len(group) > len(ttir) else []
        lines.append(AnnotatedLine(name, number, text, len(group), heat, touch, moved, "\n".join([*ttir, *rest])))
    return tuple(lines)


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


def _operation_text(graph: Graph, operation: Operation) -> str:
    """Return an operation much as TTIR prints it, on one line and without its regions."""

    def names(values: Sequence[int]) -> str:
        return ", ".join(f"%{graph.values[value].name or value}" for value in values)

    results = names(operation.results)
    types = ", ".join(graph.values[value].type for value in operation.results or operation.operands[:1])
    head = f"{results} = {operation.name}" if results else operation.name
    return f"{head} {names(operation.operands)}".rstrip() + (f" : {types}" if types else "")
