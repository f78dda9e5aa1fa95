"""What a cell shows of its kernels: plain data, for a card, a table or a summary line."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kernellab.compile.types import Compiled, Parameter
from kernellab.errors import Shown
from kernellab.explain.result import Explanation
from kernellab.ir.effects import Effects
from kernellab.ir.operations import Access
from kernellab.launch.run import Run
from kernellab.measure.comparison import Check
from kernellab.views.graph.dataflow import SourceText


@dataclass(frozen=True, slots=True)
class ArgumentReport:
    """One row of the card.

    ``lines`` maps each kind of access to the source lines that perform it; an empty mapping means untouched, None that
    the argument names no memory. ``changed`` of ``elements`` changed in the last run; None without a run.
    """

    name: str
    type: str
    specialization: str
    lines: Mapping[Access, tuple[int, ...]] | None
    changed: int | None = None
    elements: int | None = None


@dataclass(frozen=True, slots=True)
class KernelReport:
    """One specialization of one kernel, as launched (or only compiled) by a cell.

    ``label`` is the name and version, ``softmax@2``; ``source`` the text of the kernel and ``first_line`` the line of
    its cell or file at which that starts; ``launches`` how often the cell launched it, ``grid`` the last grid.
    ``config`` is the chosen config of an autotuned kernel, in words, or "". ``notes`` are sentences for the user;
    ``explanation`` says why the launch takes as long as it does, where that was asked.
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

    @property
    def text(self) -> SourceText:
        """The lines of the kernel's own text by their numbers."""
        return SourceText.of(self.source, self.first_line, self.file)

    @property
    def check(self) -> Check | None:
        """The check to look at first: one that failed, else the first."""
        return min(self.checks, key=lambda check: check.equal, default=None)


@dataclass(frozen=True, slots=True)
class CellReport(Shown):
    """All that one cell did. ``hints`` tell how to go on, for instance how to launch a kernel it only defines."""

    kernels: tuple[KernelReport, ...]
    hints: tuple[str, ...] = ()
    show: str | None = None


def argument_reports(compiled: Compiled, elements: Mapping[str, int], run: Run | None) -> tuple[ArgumentReport, ...]:
    """Return the rows of the card; each member of a tuple that holds memory has a row of its own.

    ``elements`` maps each argument that holds memory to its number of elements.
    """
    return tuple(row for parameter in compiled.parameters for row in _rows(parameter, compiled.effects, elements, run))


def _rows(
    parameter: Parameter, effects: Effects, elements: Mapping[str, int], run: Run | None
) -> Iterator[ArgumentReport]:
    members = [name for name in effects.arguments if name == parameter.name or name.startswith(f"{parameter.name}[")]
    if parameter.name not in members:
        yield ArgumentReport(parameter.name, parameter.type, parameter.specialization, None)
    for name in members:
        plain = name == parameter.name
        yield ArgumentReport(
            name=name,
            type=parameter.type if plain else "member",
            specialization=parameter.specialization if plain else "",
            lines=access_lines(effects, name),
            changed=run.changed.get(name) if run is not None else None,
            elements=elements.get(name),
        )


def access_lines(effects: Effects, argument: str) -> Mapping[Access, tuple[int, ...]]:
    """Return the source lines that access an argument, by the kind of access; () where they are not known."""
    found: dict[Access, set[int]] = {}
    for site in effects.sites:
        if site.argument == argument:
            found.setdefault(site.kind, set()).update(() if site.line is None else (site.line,))
    return {kind: tuple(sorted(found[kind])) for kind in Access if kind in found}


def summary(report: CellReport) -> list[dict[str, Any]]:
    """Return the facts of each kernel of a cell, as JSON has them.

    ``reads``, ``writes`` and ``atomics`` name arguments; ``complete`` tells whether they are all. ``where`` is None
    when the kernel was not launched, ``equal`` when nothing was compared. ``max_error`` is that of the check to look
    at first, or None where it is infinite, which JSON has no number for. Sizes are in bytes, times in seconds.
    """
    return [_facts(kernel) for kernel in report.kernels]


_RESOURCES = ("registers", "spill_bytes", "stack_bytes", "shared_bytes", "occupancy", "fits")
_TOUCHED = {"reads": Access.READ, "writes": Access.WRITE, "atomics": Access.ATOMIC}


def _facts(report: KernelReport) -> dict[str, Any]:
    compiled, run, check = report.compiled, report.run, report.check
    touched = {
        name: [argument.name for argument in report.arguments if kind in (argument.lines or {})]
        for name, kind in _TOUCHED.items()
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
        "findings": len(run.findings) if run else 0,
        "equal": check.equal if check else None,
        "max_error": check.max_error if check and math.isfinite(check.max_error) else None,
    }
