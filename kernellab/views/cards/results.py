"""What the results of a lab show when they stand alone in a notebook: a compiled kernel, its effects, its graph."""

from __future__ import annotations

from html import escape

from kernellab.compile.types import Compiled
from kernellab.errors import plural
from kernellab.export.write import Exported
from kernellab.ir.effects import Effects
from kernellab.ir.graph import Graph, main_file
from kernellab.launch.run import Run
from kernellab.views import elements
from kernellab.views.cards import card
from kernellab.views.cards.card import kernel_text
from kernellab.views.elements import Table, body, details, dim, framed, header, message, section, warning
from kernellab.views.explorers import explorer_html
from kernellab.views.graph import diagram_of, svg
from kernellab.views.graph.drawing import tree_text
from kernellab.views.layouts import FEW_TILES
from kernellab.views.report import KernelReport, access_lines, argument_reports

_CHANGED = ("argument", "elements changed")


def compiled_html(compiled: Compiled, *, uid: str = "") -> str:
    """Return a compiled kernel as a card: arguments, resources, the explorer of its stages, graphs.

    ``uid`` has to differ between the cards of one page.
    """
    report = _as_report(compiled)
    explorer = explorer_html(compiled, uid=uid, graph=True, tiles=FEW_TILES)
    return framed(
        section(
            header(compiled.kernel, _words(compiled), elements.compile_tips(compiled)),
            *card.messages(report),
            card.arguments(report),
            card.resources(report),
            details("Source, stages and graph", explorer, is_open=True),
            *card.dataflow(report, frozenset(), alone=False, by_line=False),
            card.source(report, frozenset()),
        )
    )


def compiled_text(compiled: Compiled) -> str:
    """Return the same as lines for a terminal."""
    return kernel_text(_as_report(compiled), _words(compiled))


def _words(compiled: Compiled) -> list[str]:
    return [str(compiled.target), elements.compile_words(compiled), *elements.option_words(compiled)]


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
        done = card.accesses(effects, argument, access_lines(effects, argument)) or dim(_nothing(effects))
        rows.append(f'<tr><th scope="row">{escape(argument)}</th><td>{done}</td></tr>')
    table = f'<table class="kl-args"><tbody>{"".join(rows)}</tbody></table>'
    return framed(body(*(warning(f"unknown: {elements.unknown_words(each)}") for each in effects.unknown), table))


def effects_text(effects: Effects) -> str:
    """Return a line per argument that names memory, and one for each effect that is unknown."""
    memories = _memories(effects)
    rows = [(each, elements.accesses_words(access_lines(effects, each)) or _nothing(effects)) for each in memories]
    width = max(map(len, memories), default=0) + 2
    lines = [name.ljust(width) + words for name, words in rows]
    return "\n".join([*lines, *(f"unknown: {elements.unknown_words(each)}" for each in effects.unknown)])


def _memories(effects: Effects) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*effects.arguments, *(site.argument for site in effects.sites))))


def _nothing(effects: Effects) -> str:
    return "not known" if effects.unknown else "untouched"


def graph_html(graph: Graph) -> str:
    """Return the default view of a graph in a frame that scrolls."""
    return framed(body(card.scrolling(svg(graph))))


def graph_text(graph: Graph) -> str:
    """Return the default view of a graph as an indented list."""
    diagram = diagram_of(graph)
    return f"{diagram.title}\n{tree_text(diagram)}"


def run_text(run: Run, reference: str | None = None) -> str:
    """Return what a launch did: where it ran, what it changed, what was suspicious.

    ``reference`` names what its outputs were compared with and equal, None where they were not.
    """
    lines = ["  ".join([run.kernel, *_run_words(run)])]
    width = max(map(len, run.changed), default=0) + 2
    for name, count in run.changed.items():
        change = f"{plural(count, 'element')} changed" if count else "unchanged"
        lines.append(f"  {name.ljust(width)}{change}")
    if reference is not None:
        lines.append(f"  equals {reference}")
    lines += [f"  {each.severity}: {elements.finding_words(each)}" for each in run.findings]
    lines += [f"  note: {note}" for note in run.notes]
    if run.output:
        lines += ["  printed by the kernel:", *(f"    {line}" for line in run.output.rstrip().splitlines())]
    return "\n".join(lines)


def run_html(run: Run) -> str:
    """Return the same as a card."""
    changed = [(name, f"{count:,}" if count else "unchanged") for name, count in run.changed.items()]
    return framed(
        section(
            header(run.kernel, _run_words(run)),
            *(message(*card.finding_alert(each)) for each in run.findings),
            *(message("kl-note", note) for note in run.notes),
            Table(_CHANGED, changed).html(left=_CHANGED),
            card.printed(run),
        )
    )


def _run_words(run: Run) -> list[str]:
    return [card.ran_words(run), f"grid {elements.grid_words(run.grid)}"]


def exported_text(exported: Exported) -> str:
    """Return where a kernel was written, and the remarks on it."""
    lines = [f"{exported.label} was written as {exported.path} ({exported.kind})."]
    return "\n".join([*lines, *(f"Note: {note}." for note in exported.notes)])
