"""The widgets by what they show: `kernellab.explorer` and `kernellab.graph_view`."""

from __future__ import annotations

from kernellab.compile.types import Compiled
from kernellab.errors import UsageError
from kernellab.ir.effects import Effects
from kernellab.ir.graph import Graph
from kernellab.launch.calls import verb
from kernellab.views.explorer_widget import Explorer
from kernellab.views.graph_widget import GraphView
from kernellab.views.report import CellReport, KernelReport
from kernellab.views.source import source_text


@verb
def explorer(subject: Compiled | KernelReport | CellReport, *, opened: str | None = None) -> Explorer:
    """Return the widget that links the source of a kernel, its stages and its graph.

    ``subject`` is what `Lab.compile` returns, or the report of a cell with one kernel. ``opened`` is the stage that
    shows first.

    Raises:
        UsageError: ``subject`` is none of that.
    """
    report = _report_of(subject)
    if report is not None:
        return Explorer(report.compiled, report.source, report.first_line, report.file, opened=opened)
    if isinstance(subject, Compiled):
        return Explorer(subject, opened=opened)
    raise UsageError(f"explorer() shows a compiled kernel; got {_words(subject)}. {_REMEDY}")


@verb
def graph_view(
    subject: Compiled | Graph | KernelReport | CellReport,
    effects: Effects | None = None,
    *,
    view: str | None = None,
    argument: str = "",
) -> GraphView:
    """Return the widget of a kernel's graph: frames that fold, search, and the slice of ``argument``.

    ``subject`` is what `Lab.compile` or `Lab.graph` returns, or the report of a cell with one kernel. ``effects`` name
    the arguments that a bare graph loads from and stores to. ``view`` is "source" or "operations".

    Raises:
        UsageError: ``subject`` is none of that, or there is no such view or argument.
    """
    report = _report_of(subject)
    if report is not None:
        text = source_text(report)
        return GraphView(report.compiled, effects, view=view, argument=argument, text=text)
    if isinstance(subject, Compiled | Graph):
        return GraphView(subject, effects, view=view, argument=argument)
    raise UsageError(f"graph_view() shows a graph or a compiled kernel; got {_words(subject)}. {_REMEDY}")


_REMEDY = "Compile the kernel first: lab.compile(kernel, *args)."


def _report_of(subject: object) -> KernelReport | None:
    """Return the report of a kernel, or of the only kernel of a cell."""
    if isinstance(subject, CellReport):
        if len(subject.kernels) == 1:
            return subject.kernels[0]
        names = ", ".join(kernel.label for kernel in subject.kernels) or "none"
        raise UsageError(f"The cell has {len(subject.kernels)} kernels ({names}); name one: report.kernels[0].")
    return subject if isinstance(subject, KernelReport) else None


def _words(subject: object) -> str:
    return f"{type(subject).__module__}.{type(subject).__qualname__}"
