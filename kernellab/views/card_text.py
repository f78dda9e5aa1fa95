"""The card for a terminal: the same facts in aligned columns, at most 100 wide."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from kernellab.ir.effects import Access
from kernellab.views import wording
from kernellab.views.labels import shortened
from kernellab.views.report import ArgumentReport, CellReport, KernelReport
from kernellab.views.stages import STAGE_NAMES, stage_text

WIDTH = 100
_INDENT = "  "
_COLUMN_LIMITS = (24, 26, 18)  # name, type, specialization; the rest wraps


def card_text(report: CellReport) -> str:
    """Return the card of a cell as lines of at most 100 characters; the stages that were asked for keep theirs."""
    shown = [part.strip() for part in (report.show or "").split(",")]
    blocks = [kernel_text(kernel, wording.header_words(kernel)) for kernel in report.kernels]
    for kernel in report.kernels:
        blocks += [
            f"{kernel.label} {name}\n{stage_text(kernel.compiled, name)}" for name in STAGE_NAMES if name in shown
        ]
    if report.hints:
        blocks.append("\n".join(line for hint in report.hints for line in _wrapped(hint, "")))
    return "\n\n".join(blocks)


def kernel_text(report: KernelReport, words: list[str]) -> str:
    """Return one kernel's part of the card; ``words`` are the facts beside its name."""
    return "\n".join(_kernel(report, words))


def _kernel(report: KernelReport, words: list[str]) -> Iterator[str]:
    yield from _joined([report.label, *words], "", "  ")
    yield from _messages(report)
    yield from _arguments(report)
    facts = [
        f"{fact.name} {fact.value}" + (f" ({fact.detail})" if fact.detail.startswith("limited") else "")
        for fact in wording.resource_facts(report.compiled.resources)
    ]
    yield from _joined(facts, _INDENT, " · ")
    if report.run is not None and report.run.output:
        yield f"{_INDENT}printed by the kernel:"
        for line in report.run.output.rstrip().splitlines():
            yield from _wrapped(line, _INDENT * 2)


def _messages(report: KernelReport) -> Iterator[str]:
    messages = [wording.cannot_run_words(report.compiled)]
    if report.run is not None:
        messages += [f"{finding.severity}: {wording.finding_words(finding)}" for finding in report.run.findings]
    messages += [f"unknown: {wording.unknown_words(effect)}" for effect in report.compiled.effects.unknown]
    messages += [words for _, words in wording.check_words(report.checks)]
    messages += [f"note: {note}" for note in wording.notes(report)]
    for message in messages:
        yield from _wrapped(message, _INDENT) if message else ()


def _arguments(report: KernelReport) -> Iterator[str]:
    complete = not report.compiled.effects.unknown
    rows = [
        tuple(
            shortened(text, limit)
            for text, limit in zip((row.name, row.type, row.specialization), _COLUMN_LIMITS, strict=True)
        )
        for row in report.arguments
    ]
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(3)]
    left = sum(widths) + 2 * len(widths) + len(_INDENT)
    for row, argument in zip(rows, report.arguments, strict=True):
        head = _INDENT + "".join(text.ljust(width + 2) for text, width in zip(row, widths, strict=True))
        tail = textwrap.wrap(_effect_words(argument, complete=complete), WIDTH - left) or [""]
        yield (head + tail[0]).rstrip()
        yield from (" " * left + line for line in tail[1:])


def _effect_words(argument: ArgumentReport, *, complete: bool) -> str:
    """Return for instance ``read (line 8), written (line 9); 1,024 of 1,024 changed``."""
    lines = argument.lines or {}
    accesses = [
        wording.PAST[kind] + (f" ({where})" if (where := wording.lines_words(lines[kind])) else "")
        for kind in Access
        if kind in lines
    ]
    words = ", ".join(accesses) or wording.untouched_words(argument, complete=complete)
    return "; ".join(part for part in (words, wording.changed_words(argument)) if part)


def _joined(parts: list[str], indent: str, separator: str) -> Iterator[str]:
    """Yield the parts on as few lines as hold them, breaking between parts only where one fits."""
    line = indent + parts[0]
    for part in parts[1:]:
        if len(line) + len(separator) + len(part) > WIDTH:
            yield from _wrapped(line.strip(), indent)
            line = indent + _INDENT + part
        else:
            line += separator + part
    yield from _wrapped(line.strip(), line[: len(line) - len(line.lstrip())])


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent + _INDENT) or [indent]
