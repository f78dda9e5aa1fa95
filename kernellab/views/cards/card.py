"""The card that a cell shows under itself: HTML without scripts and without a network, and text for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from html import escape

from kernellab.errors import plural
from kernellab.ir.effects import Effects
from kernellab.ir.operations import Access
from kernellab.launch.run import Finding, Run, Severity
from kernellab.views import elements
from kernellab.views.cards.check_picture import check_lines, check_picture
from kernellab.views.cards.explanation import answer_html, answer_lines
from kernellab.views.elements import (
    badge,
    body,
    code_line,
    details,
    dim,
    framed,
    header,
    message,
    section,
    share_bar,
    shortened,
)
from kernellab.views.explorers import explorer_html
from kernellab.views.explorers.exploration import STAGE_NAMES, stage_text
from kernellab.views.graph import OPERATIONS_AT_MOST, View, shrinking, svg
from kernellab.views.graph.dataflow import MemoryTouch
from kernellab.views.report import AnnotatedLine, ArgumentReport, CellReport, KernelReport, annotated

_OPEN_OPERATIONS_AT_MOST = 24
_PLACES = {"interpreter": "on the interpreter", "gpu": "on the GPU"}
_MOST_CHANGED = 3
_SEVERITY_STYLES = {Severity.ERROR: "kl-alert", Severity.WARNING: "kl-note kl-warn"}
WIDTH = 100
_DARKEST = 0.42  # of what marks the work of a line
_INDENT = "  "
_COLUMN_LIMITS = (24, 26, 18)  # name, type, specialization; the rest wraps


def card_html(report: CellReport, *, graphs: bool = True) -> str:
    """Return the card of a cell as one ``<div>``; without ``graphs`` it is a few kilobytes."""
    shown = frozenset(part.strip() for part in (report.show or "").split(",") if part.strip())
    parts = [_kernel(kernel, shown, graphs=graphs, alone=len(report.kernels) == 1) for kernel in report.kernels]
    if report.hints:
        parts.append(body(*(message("kl-note", hint) for hint in report.hints)))
    return framed(*parts)


def _kernel(report: KernelReport, shown: frozenset[str], *, graphs: bool, alone: bool) -> str:
    return section(
        header(report.label, _header_words(report), elements.compile_tips(report.compiled)),
        *messages(report),
        arguments(report),
        resources(report),
        *_why(report),
        printed(report.run),
        *(dataflow(report, shown, alone=alone) if graphs else ()),
        source(report, shown),
        *_stages(report, tuple(name for name in STAGE_NAMES if name in shown)),
    )


def messages(report: KernelReport) -> Iterator[str]:
    """Yield what must not be overlooked first: cannot run, findings, unknown effects, the check; then notes."""
    for style, words in _alerts(report):
        yield message(style, words)
    yield from filter(None, map(check_picture, report.checks))
    for note in notes(report):
        yield message("kl-note", note)


def _alerts(report: KernelReport) -> Iterator[tuple[str, str]]:
    """Yield what must not be overlooked, each with its style."""
    cannot_run = elements.cannot_run_words(report.compiled)
    if cannot_run:
        yield "kl-alert", cannot_run
    for finding in report.run.findings if report.run else ():
        yield finding_alert(finding)
    for effect in report.compiled.effects.unknown:
        yield "kl-note kl-warn", f"unknown: {elements.unknown_words(effect)}"
    for equal, words in elements.check_words(report.checks):
        yield "kl-note kl-good" if equal else "kl-alert", words
    for check in report.checks:
        for hint in check.hints:
            yield "kl-note kl-hint", f"hint: {hint}"


def finding_alert(finding: Finding) -> tuple[str, str]:
    """Return the style and the words of what a run found."""
    return _SEVERITY_STYLES.get(finding.severity, "kl-note"), f"{finding.severity}: {elements.finding_words(finding)}"


def arguments(report: KernelReport) -> str:
    """Return the table of arguments: type, specialization, what the kernel does to each, and what changed."""
    ran = any(argument.changed is not None for argument in report.arguments)
    titles = ["argument", "type", "specialization", "what the kernel does with it", *(["after the run"] if ran else [])]
    head = "".join(f'<th scope="col">{title}</th>' for title in titles)
    rows = "\n".join(_argument(argument, report, ran=ran) for argument in report.arguments)
    return f'<table class="kl-args"><thead><tr>{head}</tr></thead><tbody>\n{rows}\n</tbody></table>'


def _argument(argument: ArgumentReport, report: KernelReport, *, ran: bool) -> str:
    cells = [
        f'<th scope="row">{escape(argument.name)}</th>',
        f'<td class="kl-type">{escape(argument.type)}</td>',
        f'<td class="kl-dim">{escape(argument.specialization)}</td>',
        f"<td>{_accesses(argument, report.compiled.effects)}</td>",
    ]
    if ran:
        style = "" if argument.changed else ' class="kl-dim"'
        cells.append(f"<td{style}>{escape(_changed_words(argument))}</td>")
    plain = ' class="kl-plain"' if argument.lines is None else ""
    return f"<tr{plain}>{''.join(cells)}</tr>"


def _accesses(argument: ArgumentReport, effects: Effects) -> str:
    if not argument.lines:
        return dim(_untouched_words(argument, complete=not effects.unknown))
    return accesses(effects, argument.name, argument.lines)


def accesses(effects: Effects, argument: str, lines: Mapping[Access, tuple[int, ...]]) -> str:
    """Return the marks of the accesses of an argument, with their source lines; "" where there are none."""
    return "".join(
        badge(
            kind,
            elements.lines_words(lines[kind]),
            word=elements.PAST[kind],
            tip=elements.sites_words(effects, argument, kind),
        )
        for kind in Access
        if kind in lines
    )


def resources(report: KernelReport) -> str:
    """Return registers, spills, stack, shared memory and occupancy as numbers in a row."""
    cells = []
    for fact in elements.resource_facts(report.compiled.resources):
        detail = f' <span class="kl-detail">{escape(fact.detail)}</span>' if fact.detail else ""
        alarm = " kl-alarm" if fact.alarm else ""
        bar = "" if fact.share is None else share_bar(fact.share)
        cells.append(
            f'<div class="kl-number{alarm}"><span class="kl-label">{escape(fact.name)}</span>'
            f" <b>{escape(fact.value)}</b>{detail}{bar}</div>"
        )
    return f'<div class="kl-numbers">{"".join(cells)}</div>'


def _why(report: KernelReport) -> Iterator[str]:
    if report.explanation is not None:
        title, limit = "Why it takes this long", f"limited by {report.explanation.bound}"
        yield details(title, answer_html(report.explanation), limit, is_open=True)


def printed(run: Run | None) -> str:
    """Return what a kernel printed; "" where it did not."""
    text = f'<pre class="kl-pre">\n{escape(run.output)}</pre>' if run is not None and run.output else ""
    return details("Printed by the kernel", text, is_open=True)


def dataflow(report: KernelReport, shown: frozenset[str], *, alone: bool, by_line: bool = True) -> Iterator[str]:
    """Yield the views of the graph that suit its size; the first is open where it is small or asked for.

    Without ``by_line``, the view by source line is left to the explorer.
    """
    graph = report.compiled.graph
    count = len(graph.operations)
    small = alone and count <= OPERATIONS_AT_MOST
    views = [(View.SOURCE, "Dataflow by source line", "graph" in shown or small)]
    if count <= OPERATIONS_AT_MOST:
        views.append((View.OPERATIONS, "Dataflow by operation", False))
    if count <= _OPEN_OPERATIONS_AT_MOST:
        views = [
            (View.OPERATIONS, "Dataflow by operation", "graph" in shown or small),
            (View.SOURCE, views[0][1], False),
        ]
    text = report.text.own
    for view, title, is_open in views if by_line else [each for each in views if each[0] != View.SOURCE]:
        picture = svg(graph, report.compiled.effects, view=view, text=text)
        detail = plural(count, "operation") if view == View.OPERATIONS else ""
        yield details(title, scrolling(picture), detail, is_open=is_open)


def scrolling(picture: str) -> str:
    """Return a graph that shrinks a little where it is too wide, and then scrolls."""
    return f'<div class="kl-graph">{shrinking(picture)}</div>'


def source(report: KernelReport, shown: frozenset[str]) -> str:
    """Return the source with what became of each line, folded unless ``shown`` has it."""
    table, detail = source_table(annotated(report)), "operations per line; darker costs more"
    return details("Source, annotated", table, detail, is_open="source" in shown)


def source_table(lines: tuple[AnnotatedLine, ...]) -> str:
    """Return the table; hovering over a line shows the operations that it became."""
    before = (None, *lines)
    rows = "\n".join(_row(line, earlier) for earlier, line in zip(before, lines, strict=False))
    return f'<div class="kl-scroll"><table class="kl-source"><tbody>\n{rows}\n</tbody></table></div>'


def _row(line: AnnotatedLine, before: AnnotatedLine | None) -> str:
    """Return a row, below one that marks a gap where lines are not shown, or another file begins."""
    heat = f' style="background:rgba(224,108,18,{line.heat * _DARKEST:.2f})"' if line.operations else ""
    count = str(line.operations) if line.operations else ""
    cells = (
        f'<td class="kl-no">{line.number}</td><td class="kl-ops"{heat}>{count}</td>'
        f'<td class="kl-by">{_badges(line.touch, line.bytes)}</td><td>{code_line(line.text) or " "}</td>'
    )
    follows = before is None or (line.file, line.number) == (before.file, before.number + 1)
    gap = f'<tr><td class="kl-no">⋮</td><td></td><td></td><td>{escape(line.file)}</td></tr>\n'
    return f"{'' if follows else gap}<tr{elements.title(line.ttir)}>{cells}</tr>"


def _badges(touch: MemoryTouch | None, moved: int) -> str:
    if touch is None:
        return ""
    parts = [badge(kind, ", ".join(touch.arguments[kind])) for kind in Access if kind in touch.arguments]
    if touch.unknown:
        parts.append(f'<span class="kl-badge kl-unknown"><b>?</b> {escape(touch.unknown)}</span>')
    parts += [dim(elements.bytes_words(moved))] if moved else []
    return "".join(parts)


def _stages(report: KernelReport, names: tuple[str, ...]) -> Iterator[str]:
    """Yield the explorer, open on the first of the named stages, and say of each that does not exist why not."""
    missing = [name for name in names if name != "sass" and name not in report.compiled.stages]
    for name in missing:
        yield message("kl-note", stage_text(report.compiled, name))
    found = [name for name in names if name not in missing]
    if found:
        body = explorer_html(
            report.compiled,
            report.text,
            opened=found[0],
            sass="sass" in found,
            uid=f"{report.file} {report.label}",
        )
        yield details("Source and stages", body, "point at a line or click on it to see what it became", is_open=True)


def card_text(report: CellReport) -> str:
    """Return the card of a cell as lines of at most 100 characters; the stages that were asked for keep theirs."""
    shown = [part.strip() for part in (report.show or "").split(",")]
    blocks = [kernel_text(kernel, _header_words(kernel)) for kernel in report.kernels]
    for kernel in report.kernels:
        blocks += [
            f"{kernel.label} {name}\n{stage_text(kernel.compiled, name)}" for name in STAGE_NAMES if name in shown
        ]
    if report.hints:
        blocks.append("\n".join(line for hint in report.hints for line in _wrapped(hint, "")))
    return "\n\n".join(blocks)


def kernel_text(report: KernelReport, words: list[str]) -> str:
    """Return one kernel's part of the card; ``words`` are the facts beside its name."""
    return "\n".join(_kernel_lines(report, words))


def _kernel_lines(report: KernelReport, words: list[str]) -> Iterator[str]:
    yield from _joined([report.label, *words], "", "  ")
    yield from _message_lines(report)
    yield from _argument_lines(report)
    facts = [
        f"{fact.name} {fact.value}" + (f" ({fact.detail})" if fact.detail.startswith("limited") else "")
        for fact in elements.resource_facts(report.compiled.resources)
    ]
    yield from _joined(facts, _INDENT, " · ")
    if report.explanation is not None:
        for line in answer_lines(report.explanation):
            yield from _wrapped(line, _INDENT)
    if report.run is not None and report.run.output:
        yield f"{_INDENT}printed by the kernel:"
        for line in report.run.output.rstrip().splitlines():
            yield from _wrapped(line, _INDENT * 2)


def _message_lines(report: KernelReport) -> Iterator[str]:
    for _, words in _alerts(report):
        yield from _wrapped(words, _INDENT)
    for check in report.checks:
        for line in check_lines(check):
            yield from _wrapped_rows(line, _INDENT)
    for note in notes(report):
        yield from _wrapped(f"note: {note}", _INDENT)


def _argument_lines(report: KernelReport) -> Iterator[str]:
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
    words = elements.accesses_words(lines) or _untouched_words(argument, complete=complete)
    return "; ".join(part for part in (words, _changed_words(argument)) if part)


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


def _wrapped_rows(line: str, indent: str) -> list[str]:
    """Return a line as it is where it fits, as a row of a table does, else wrapped."""
    return [f"{indent}{line}"] if len(indent) + len(line) <= WIDTH else _wrapped(line, indent)


def _header_words(report: KernelReport) -> list[str]:
    """Return the facts of the card's second line, in order."""
    compiled = report.compiled
    config = [report.config] if report.config else elements.option_words(compiled)
    return [str(compiled.target), elements.compile_words(compiled), *config, *_run_words(report)]


def _run_words(report: KernelReport) -> list[str]:
    """Return how the kernel ran: where, how long, the grid and the number of launches."""
    words = []
    if report.run is not None:
        words.append(ran_words(report.run))
    grid = report.grid or (report.run.grid if report.run else None)
    if grid is not None:
        words.append(f"grid {elements.grid_words(grid)}")
    if report.launches > 1:
        words.append(plural(report.launches, "launch"))
    return words or ["not launched"]


def ran_words(run: Run) -> str:
    """Return where a kernel ran, and how long."""
    return f"ran {_PLACES.get(run.where, f'on {run.where}')} in {elements.seconds_words(run.seconds)}"


def _untouched_words(argument: ArgumentReport, *, complete: bool) -> str:
    """Return what stands in place of the accesses of an argument that has none."""
    if argument.lines is None:
        return ""
    return "untouched" if complete else "not known"


def _changed_words(argument: ArgumentReport) -> str:
    """Return ``1,024 of 1,024 changed``, or "" without a run or for an argument that holds no memory."""
    if argument.changed is None or argument.elements is None:
        return ""
    if argument.changed == 0:
        return "unchanged"
    return f"{argument.changed:,} of {argument.elements:,} changed"


def notes(report: KernelReport) -> tuple[str, ...]:
    """Return the remarks on the kernel, its arguments and its run, each once."""
    same = [f"{' and '.join(sorted(group))} are the same memory." for group in report.compiled.effects.aliases]
    of_run = (*_changed_beside(report.run), *report.run.notes) if report.run else ()
    return tuple(dict.fromkeys((*same, *report.notes, *of_run)))


def _changed_beside(run: Run) -> list[str]:
    """Return what changed that is no argument: memory that the arguments hold addresses of."""
    changed = [
        f"{name} ({plural(n, 'element')})" for name, n in run.changed.items() if n and name.startswith("memory ")
    ]
    more = [f"{len(changed) - _MOST_CHANGED:,} more"] if len(changed) > _MOST_CHANGED else []
    return [f"changed: {', '.join([*changed[:_MOST_CHANGED], *more])}"] if changed else []
