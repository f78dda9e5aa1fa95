"""The card that a cell shows under itself, as HTML without scripts and without a network."""

from __future__ import annotations

from kernellab.views import sections, wording
from kernellab.views.report import CellReport, KernelReport
from kernellab.views.stages import STAGE_NAMES


def card_html(report: CellReport, *, graphs: bool = True) -> str:
    """Return the card of a cell as one ``<div>``; without ``graphs`` it is a few kilobytes."""
    shown = frozenset(part.strip() for part in (report.show or "").split(",") if part.strip())
    parts = [_kernel(kernel, shown, graphs=graphs, alone=len(report.kernels) == 1) for kernel in report.kernels]
    if report.hints:
        hints = "".join(sections.message("kl-note", hint) for hint in report.hints)
        parts.append(f'<div class="kl-body">{hints}</div>')
    return sections.framed(*parts)


def _kernel(report: KernelReport, shown: frozenset[str], *, graphs: bool, alone: bool) -> str:
    compiled = report.compiled
    return sections.section(
        sections.header(report.label, wording.header_words(report), compiled),
        *sections.messages(report),
        sections.arguments(report),
        sections.resources(report),
        *sections.output(report),
        *(sections.graphs(report, shown, alone=alone) if graphs else ()),
        sections.source(report, shown),
        *sections.stages(report, tuple(name for name in STAGE_NAMES if name in shown)),
    )
