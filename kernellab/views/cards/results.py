"""What the results of a lab show when they stand alone in a notebook: a compiled kernel, its effects, its graph."""

from __future__ import annotations

from html import escape

from kernellab.compile.types import Compiled
from kernellab.ir.effects import Effects
from kernellab.ir.graph import Graph, main_file
from kernellab.launch.run import Run
from kernellab.views import elements
from kernellab.views.blocks import (
    WARNING,
    WIDTH,
    Block,
    Card,
    Drawing,
    Fold,
    Heading,
    Message,
    Section,
    Table,
    html_table,
    notes,
    text_only,
)
from kernellab.views.cards import card
from kernellab.views.cards.arguments import accesses, changes_words, value_words
from kernellab.views.compile_facts import option_words
from kernellab.views.elements import dim
from kernellab.views.explorers import explorer_html
from kernellab.views.graph import diagram_of
from kernellab.views.graph.drawing import tree_text
from kernellab.views.layouts import FEW_TILES
from kernellab.views.report import KernelReport, argument_reports, lines_by_argument

_CHANGED = ("argument", "shape", "after the run")


def compiled_card(compiled: Compiled, *, uid: str = "") -> Card:
    """Return a compiled kernel: arguments, resources, the explorer of its stages, graphs.

    ``uid`` has to differ between the cards of one page.
    """
    report = KernelReport(
        label=compiled.kernel,
        source="",  # it is read from its file
        file=main_file(compiled.graph) or "",
        first_line=1,
        compiled=compiled,
        arguments=argument_reports(compiled, compiled.arguments, None),
        launches=0,
        grid=None,
        run=None,
    )
    explorer = Drawing(lambda: explorer_html(compiled, uid=uid, graph=True, tiles=FEW_TILES))
    blocks: list[Block] = [
        *card.kernel_blocks(report),
        Fold("Source, stages and graph", [explorer], is_open=True),
        *card.dataflow(report, frozenset(), alone=False, by_line=False),
        card.source(report, frozenset()),
    ]
    facts = [str(compiled.target), elements.compile_words(compiled), *option_words(compiled)]
    heading = Heading(compiled.kernel, facts, elements.compile_tips(compiled))
    return Card([Section(heading, blocks, "  ")], WIDTH)


def effects_card(effects: Effects) -> Card:
    """Return a row per argument that names memory, or holds addresses, and the unknown effects."""
    unknown = [f"unknown: {elements.unknown_words(effect)}" for effect in effects.unknown]
    nothing, lines_of = "not known" if effects.unknown else "untouched", lines_by_argument(effects)

    def table() -> str:
        cells = {name: accesses(effects, name, lines) or dim(nothing) for name, lines in lines_of.items()}
        return html_table(
            f'<tr><th scope="row">{escape(name)}</th><td>{cell}</td></tr>' for name, cell in cells.items()
        )

    width = max(map(len, lines_of), default=0) + 2
    text = [name.ljust(width) + (elements.accesses_words(lines) or nothing) for name, lines in lines_of.items()]
    warnings = [Message(words, WARNING, in_text=False) for words in unknown]
    return Card([Section(None, [*warnings, Drawing(table), text_only([*text, *unknown])])])


def graph_card(graph: Graph) -> Card:
    """Return the default view of a graph: a picture in a frame that scrolls, or an indented list."""

    def tree(_: int) -> list[str]:
        diagram = diagram_of(graph)
        return [diagram.title, *tree_text(diagram).split("\n")]

    return Card([Section(None, [Drawing(lambda: card.scrolling(graph), tree)])])


def run_card(run: Run) -> Card:
    """Return the outcome of a launch: place, time, what its outputs equal, changes, findings."""
    rows = [
        (name, value_words(value := run.arguments.get(name)), changes_words(count, value.elements if value else None))
        for name, count in run.changed.items()
    ]
    table = Table(_CHANGED, rows, left=_CHANGED).without_empty_columns()
    blocks: list[Block] = [
        *([Message(run.matches, "kl-note kl-good")] if run.matches else []),
        text_only(table.lines()[1:]),
        *map(card.finding_alert, run.findings),
        *notes(run.notes, "note: "),
        Drawing(table.html),
        *card.printed_output(run),
    ]
    heading = Heading(run.kernel, [card.ran_words(run), f"grid {elements.grid_words(run.grid)}"])
    return Card([Section(heading, blocks, "  ")])
