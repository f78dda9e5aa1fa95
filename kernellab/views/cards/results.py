"""What the results of a lab show when they stand alone in a notebook: a compiled kernel, its effects, its graph."""

from __future__ import annotations

from html import escape

from kernellab.compile.types import Compiled
from kernellab.export.write import Exported
from kernellab.ir.effects import Access, Effects
from kernellab.ir.graph import Graph
from kernellab.views import wording
from kernellab.views.cards import card as sections
from kernellab.views.cards.card import kernel_text
from kernellab.views.cards.report import KernelReport, argument_reports
from kernellab.views.elements import badge
from kernellab.views.explorers.explorer import explorer_html
from kernellab.views.graph import diagram_of, svg
from kernellab.views.graphs.drawing import tree_text
from kernellab.views.graphs.labels import main_file


def compiled_html(compiled: Compiled, *, uid: str = "") -> str:
    """Return a compiled kernel as a card: arguments, resources, the explorer of its stages, graphs.

    ``uid`` has to differ between the cards of one page.
    """
    report = _as_report(compiled)
    explorer = explorer_html(compiled, uid=uid, graph=True)
    return sections.framed(
        sections.section(
            sections.header(compiled.kernel, _words(compiled), compiled),
            *sections.messages(report),
            sections.arguments(report),
            sections.resources(report),
            sections.details("Source, stages and graph", "", explorer, is_open=True),
            *sections.dataflow(report, frozenset(), alone=False, by_line=False),
            sections.source(report, frozenset()),
        )
    )


def compiled_text(compiled: Compiled) -> str:
    return kernel_text(_as_report(compiled), _words(compiled))


def _words(compiled: Compiled) -> list[str]:
    return [str(compiled.target), wording.compile_words(compiled), *wording.option_words(compiled)]


def _as_report(compiled: Compiled) -> KernelReport:
    """Return the report of a kernel that no cell launched; its source is read from its file."""
    return KernelReport(
        label=compiled.kernel,
        source="",
        file=main_file(compiled.graph) or "",
        first_line=1,
        compiled=compiled,
        arguments=argument_reports(compiled, {}, None),
        launches=0,
        grid=None,
        run=None,
    )


def effects_html(effects: Effects) -> str:
    """Return a row per argument that names memory, or whose values do, and what is unknown."""
    rows = []
    for argument in _memories(effects):
        found = "".join(
            badge(kind, lines, word=wording.PAST[kind], tip=wording.sites_words(effects, argument, kind))
            for kind, lines in _accesses(effects, argument)
        )
        done = found or f'<span class="kl-dim">{_nothing(effects)}</span>'
        rows.append(f'<tr><th scope="row">{escape(argument)}</th><td>{done}</td></tr>')
    table = f'<table class="kl-args"><tbody>{"".join(rows)}</tbody></table>'
    unknown = [
        sections.message("kl-note kl-warn", f"unknown: {wording.unknown_words(each)}") for each in effects.unknown
    ]
    return sections.framed(f'<div class="kl-body">{"".join(unknown)}{table}</div>')


def effects_text(effects: Effects) -> str:
    """Return a line per argument that names memory, and one for each effect that is unknown."""
    memories = _memories(effects)
    width = max(map(len, memories), default=0) + 2
    lines = []
    for argument in memories:
        words = ", ".join(f"{wording.PAST[kind]} ({where})" for kind, where in _accesses(effects, argument))
        lines.append(argument.ljust(width) + (words or _nothing(effects)))
    return "\n".join([*lines, *(f"unknown: {wording.unknown_words(each)}" for each in effects.unknown)])


def _memories(effects: Effects) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*effects.arguments, *(site.argument for site in effects.sites))))


def _nothing(effects: Effects) -> str:
    return "not known" if effects.unknown else "untouched"


def _accesses(effects: Effects, argument: str) -> list[tuple[Access, str]]:
    found = []
    for kind in Access:
        sites = [site for site in effects.sites if (site.argument, site.kind) == (argument, kind)]
        if sites:
            found.append((kind, wording.lines_words(tuple(site.line for site in sites if site.line is not None))))
    return found


def graph_html(graph: Graph) -> str:
    """Return the default view of a graph in a frame that scrolls."""
    return sections.framed(f'<div class="kl-body">{sections.scrolling(svg(graph))}</div>')


def graph_text(graph: Graph) -> str:
    """Return the default view of a graph as an indented list."""
    diagram = diagram_of(graph)
    return f"{diagram.title}\n{tree_text(diagram)}"


def exported_text(exported: Exported) -> str:
    """Return where a kernel was written, and the remarks on it."""
    lines = [f"{exported.label} was written as {exported.path} ({exported.kind})."]
    return "\n".join([*lines, *(f"Note: {note}." for note in exported.notes)])
