"""What a cell did, as flat facts that can be written as JSON."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass

from kernellab.ir.effects import Access
from kernellab.views.report import CellReport, KernelReport


@dataclass(frozen=True, slots=True)
class KernelSummary:
    """One kernel. ``reads``, ``writes`` and ``atomics`` name arguments; ``complete`` tells whether they are all.

    ``where`` is None when the kernel was not launched, ``equal`` None when nothing was compared.
    ``max_error`` is that of the check to look at first, or None where it is infinite, which JSON has no number for.
    """

    label: str
    target: str
    compile_seconds: float
    from_cache: bool
    arguments: tuple[str, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    atomics: tuple[str, ...]
    complete: bool
    registers: int | None
    spill_bytes: int | None
    stack_bytes: int | None
    shared_bytes: int
    occupancy: float | None
    fits: bool
    launches: int
    grid: tuple[int, int, int] | None
    where: str | None
    seconds: float | None
    findings: int
    equal: bool | None
    max_error: float | None


def summary(report: CellReport) -> tuple[KernelSummary, ...]:
    """Return the facts of each kernel of a cell."""
    return tuple(_of(kernel) for kernel in report.kernels)


def summary_json(report: CellReport) -> str:
    """Return `summary` as a JSON list of objects."""
    return json.dumps([asdict(kernel) for kernel in summary(report)], indent=2)


def _of(report: KernelReport) -> KernelSummary:
    compiled, run, check = report.compiled, report.run, report.check
    resources = compiled.resources
    return KernelSummary(
        label=report.label,
        target=str(compiled.target),
        compile_seconds=compiled.seconds,
        from_cache=compiled.from_cache,
        arguments=tuple(argument.name for argument in report.arguments),
        reads=_touched(report, Access.READ),
        writes=_touched(report, Access.WRITE),
        atomics=_touched(report, Access.ATOMIC),
        complete=not compiled.effects.unknown,
        registers=resources.registers,
        spill_bytes=resources.spill_bytes,
        stack_bytes=resources.stack_bytes,
        shared_bytes=resources.shared_bytes,
        occupancy=resources.occupancy,
        fits=resources.fits,
        launches=report.launches,
        grid=report.grid,
        where=run.where if run else None,
        seconds=run.seconds if run else None,
        findings=len(run.findings) if run else 0,
        equal=check.equal if check else None,
        max_error=check.max_error if check and math.isfinite(check.max_error) else None,
    )


def _touched(report: KernelReport, kind: Access) -> tuple[str, ...]:
    return tuple(argument.name for argument in report.arguments if kind in (argument.lines or {}))
