"""The sections of a card: header, messages, arguments, resources, graphs, source and stages, each as HTML."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from kernellab.compile.types import Compiled
from kernellab.ir.effects import Access
from kernellab.launch.run import Severity
from kernellab.views import wording
from kernellab.views.badge import badge
from kernellab.views.explorer import explorer_html
from kernellab.views.graph import OPERATIONS_AT_MOST, View, svg
from kernellab.views.graph_pane import shrinking
from kernellab.views.heat import heat_svg
from kernellab.views.report import ArgumentReport, KernelReport
from kernellab.views.source import annotated, source_text
from kernellab.views.source_table import source_table
from kernellab.views.stages import stage_text
from kernellab.views.style import card_css

_OPEN_OPERATIONS_AT_MOST = 24


def framed(*parts: str) -> str:
    """Return the card around its sections, with its style sheet."""
    return "\n".join(['<div class="kl-card">', f"<style>{card_css()}</style>", *parts, "</div>"])


def section(heading: str, *parts: str) -> str:
    """Return one kernel's part of a card."""
    return "\n".join(['<section class="kl-kernel">', heading, '<div class="kl-body">', *parts, "</div></section>"])


def header(label: str, words: list[str], compiled: Compiled | None = None) -> str:
    """Return the title line: name and version, then the facts; those of the compile tell the times of its stages."""
    name, _, version = label.partition("@")
    tail = f'<span class="kl-version">@{escape(version)}</span>' if version else ""
    times = wording.stage_words(compiled) if compiled else ""
    told = wording.compile_words(compiled) if compiled and times else None
    facts = " ".join(
        f'<span title="{escape(times)}">{escape(word)}</span>' if word == told else f"<span>{escape(word)}</span>"
        for word in words
    )
    title = f'<span class="kl-name">{escape(name)}{tail}</span>'
    return f'<div class="kl-head">{title}<span class="kl-facts">{facts}</span></div>'


def messages(report: KernelReport) -> Iterator[str]:
    """Yield what must not be overlooked first: cannot run, findings, unknown effects, the check; then notes."""
    cannot_run = wording.cannot_run_words(report.compiled)
    if cannot_run:
        yield message("kl-alert", cannot_run)
    for finding in report.run.findings if report.run else ():
        style = {Severity.ERROR: "kl-alert", Severity.WARNING: "kl-note kl-warn"}.get(finding.severity, "kl-note")
        yield message(style, f"{finding.severity}: {wording.finding_words(finding)}")
    for effect in report.compiled.effects.unknown:
        yield message("kl-note kl-warn", f"unknown: {wording.unknown_words(effect)}")
    for equal, words in wording.check_words(report.checks):
        yield message("kl-note kl-good" if equal else "kl-alert", words)
    yield from filter(None, map(heat_svg, report.checks))
    for note in wording.notes(report):
        yield message("kl-note", note)


def message(style: str, text: str) -> str:
    return f'<p class="{style}">{escape(text)}</p>'


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
        f"<td>{_accesses(argument, report)}</td>",
    ]
    if ran:
        style = "" if argument.changed else ' class="kl-dim"'
        cells.append(f"<td{style}>{escape(wording.changed_words(argument))}</td>")
    plain = ' class="kl-plain"' if argument.lines is None else ""
    return f"<tr{plain}>{''.join(cells)}</tr>"


def _accesses(argument: ArgumentReport, report: KernelReport) -> str:
    if not argument.lines:
        complete = not report.compiled.effects.unknown
        return f'<span class="kl-dim">{wording.untouched_words(argument, complete=complete)}</span>'
    return "".join(
        badge(
            kind,
            wording.lines_words(argument.lines[kind]),
            word=wording.PAST[kind],
            tip=wording.sites_words(report.compiled.effects, argument.name, kind),
        )
        for kind in Access
        if kind in argument.lines
    )


def resources(report: KernelReport) -> str:
    cells = []
    for fact in wording.resource_facts(report.compiled.resources):
        detail = f'<span class="kl-detail">{escape(fact.detail)}</span>' if fact.detail else ""
        alarm = " kl-alarm" if fact.alarm else ""
        bar = ""
        if fact.share is not None:
            bar = f'<span class="kl-bar"><i style="width:{fact.share:.0%}"></i></span>'
        cells.append(
            f'<div class="kl-number{alarm}"><span class="kl-label">{escape(fact.name)}</span>'
            f"<b>{escape(fact.value)}</b>{detail}{bar}</div>"
        )
    return f'<div class="kl-numbers">{"".join(cells)}</div>'


def output(report: KernelReport) -> Iterator[str]:
    if report.run is not None and report.run.output:
        yield details(
            "Printed by the kernel", "", f'<pre class="kl-pre">\n{escape(report.run.output)}</pre>', is_open=True
        )


def graphs(report: KernelReport, shown: frozenset[str], *, alone: bool, by_line: bool = True) -> Iterator[str]:
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
    text = source_text(report)
    for view, title, is_open in views if by_line else [each for each in views if each[0] != View.SOURCE]:
        picture = svg(graph, report.compiled.effects, view=view, text=text)
        detail = wording.plural(count, "operation") if view == View.OPERATIONS else ""
        yield details(title, detail, scrolling(picture), is_open=is_open)


def scrolling(picture: str) -> str:
    """Return a graph that shrinks a little where it is too wide, and then scrolls."""
    return f'<div class="kl-graph">{shrinking(picture)}</div>'


def source(report: KernelReport, shown: frozenset[str]) -> str:
    lines = annotated(report)
    detail = "operations per line; darker costs more"
    return details("Source, annotated", detail, source_table(lines), is_open="source" in shown)


def stages(report: KernelReport, names: tuple[str, ...]) -> Iterator[str]:
    """Yield the explorer, open on the first of the named stages, and say of each that does not exist why not."""
    missing = [name for name in names if name != "sass" and name not in report.compiled.stages]
    for name in missing:
        yield message("kl-note", stage_text(report.compiled, name))
    found = [name for name in names if name not in missing]
    if found:
        body = explorer_html(
            report.compiled,
            report.source,
            report.first_line,
            report.file,
            opened=found[0],
            sass="sass" in found,
            uid=f"{report.file} {report.label}",
        )
        yield details("Source and stages", "point at a line or click on it to see what it became", body, is_open=True)


def details(title: str, detail: str, body: str, *, is_open: bool) -> str:
    extra = f'<span class="kl-dim">{escape(detail)}</span>' if detail else ""
    return f"<details{' open' if is_open else ''}><summary>{escape(title)}{extra}</summary>\n{body}\n</details>"
