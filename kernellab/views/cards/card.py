"""The card that a cell shows under itself: HTML without scripts and without a network, and text for a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from html import escape
from typing import Unpack

from kernellab.compile import STAGES
from kernellab.errors import plural, time_text
from kernellab.ir.effects import Effects
from kernellab.ir.graph import Graph
from kernellab.ir.operations import Access
from kernellab.launch.run import Finding, Run, Severity, finding_words
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
    PlainText,
    Section,
    join_parts,
    notes,
    text_only,
    wrap_lines,
)
from kernellab.views.cards.arguments import argument_lines, argument_table, check_lines, check_messages, check_picture
from kernellab.views.compile_facts import option_words, precision_words, resource_facts
from kernellab.views.elements import badge, code_line, dim, share_bar
from kernellab.views.graph import OPERATIONS_AT_MOST, PictureOptions, View, default_view, shrinking, svg
from kernellab.views.graph.dataflow import MemoryTouch
from kernellab.views.palette import ORANGE, with_opacity
from kernellab.views.report import AnnotatedLine, CellReport, KernelReport, annotate_lines

_PLACES = {"interpreter": "on the interpreter", "gpu": "on the GPU"}
_MOST_CHANGED = 3
_SEVERITY_STYLES = {Severity.ERROR: "kl-alert", Severity.WARNING: WARNING}
_DARKEST = 0.42  # of what marks the work of a line
_INDENT = "  "


def cell_card(report: CellReport, *, graphs: bool = True) -> Card:
    """Return the card of a cell; without ``graphs`` its HTML is a few kilobytes."""
    shown = frozenset(part.strip() for part in (report.show or "").split(",") if part.strip())
    alone = len(report.kernels) == 1
    sections = [_section(kernel, shown, graphs=graphs, alone=alone) for kernel in report.kernels]
    named = tuple(name for name in STAGES if name in shown)
    stages = [Section(None, [_stage(kernel, name)]) for kernel in report.kernels for name in named]
    hints = [Section(None, notes(report.hints))] if report.hints else []
    return Card([*sections, *stages, *hints], WIDTH)


def _section(report: KernelReport, shown: frozenset[str], *, graphs: bool, alone: bool) -> Section:
    blocks = [
        *kernel_blocks(report),
        *(dataflow(report, shown, alone=alone) if graphs else ()),
        source(report, shown),
        *_stages(report, tuple(name for name in STAGES if name in shown)),
    ]
    return Section(Heading(report.label, _facts(report), elements.compile_tips(report.compiled)), blocks, _INDENT)


def _stage(report: KernelReport, name: str) -> Block:
    """Return the text of a stage, for a terminal."""
    from kernellab.views.explorers.exploration import stage_text  # most cards show none

    return text_only([f"{report.label} {name}", *stage_text(report.compiled, name).split("\n")])


def kernel_blocks(report: KernelReport) -> list[Block]:
    """Return one kernel's messages, arguments, resources, predicted time, explanation and printed output."""
    arguments, effects, checks = report.arguments, report.compiled.effects, report.checks
    blocks: list[Block] = [
        *_alerts(report),
        *(Drawing(partial(check_picture, check), partial(wrap_lines, [*check_lines(check)])) for check in checks),
        *notes(remarks(report), "note: "),
        Drawing(partial(argument_table, arguments, effects), partial(argument_lines, arguments, effects)),
        Drawing(partial(_resource_numbers, report), partial(_resource_lines, report)),
    ]
    if report.explanation is None:  # which has a time of its own
        blocks.extend(_predicted_time(report))
    else:
        from kernellab.views.cards.explanation import answer_blocks  # most cards have none

        answer, limit = answer_blocks(report.explanation), f"limited by {report.explanation.bound}"
        blocks.append(Fold("Why it takes this long", [Section(None, answer)], limit, is_open=True))
    return [*blocks, *printed_output(report.run)]


def _predicted_time(report: KernelReport) -> Iterator[Block]:
    """Yield the row of the predicted time, or one that announces it or says why there is none."""
    if report.prediction is not None:
        yield Message(elements.prediction_sentence(report.prediction))
    elif report.predicting_for:
        yield Message(f"The time on {report.predicting_for} is being predicted.")
    elif report.why_unpredicted:
        yield Message(report.why_unpredicted)


def _alerts(report: KernelReport) -> Iterator[Message]:
    target, resources = report.compiled.target, report.compiled.resources
    if not resources.fits:
        why_not = resources.why_not or "it exceeds a limit of the target"
        yield Message(f"cannot run on {target}: {why_not}", "kl-alert")
    for finding in report.run.findings if report.run else ():
        yield finding_alert(finding)
    if report.birth is not None:
        yield Message(report.birth, WARNING)
    for effect in report.compiled.effects.unknown:
        yield Message(f"unknown: {elements.unknown_words(effect)}", WARNING)
    lines_of = {row.name: row.lines or {} for row in report.arguments}
    stores = {name: (*of.get(Access.WRITE, ()), *of.get(Access.ATOMIC, ())) for name, of in lines_of.items()}
    yield from check_messages(report.checks, stores)
    for check in report.checks:
        for hint in check.hints:
            yield Message(f"hint: {hint}", "kl-note kl-hint")


def finding_alert(finding: Finding) -> Message:
    """Return the message of a finding of a run."""
    style = _SEVERITY_STYLES.get(finding.severity, "kl-note")
    return Message(f"{finding.severity}: {finding_words(finding)}", style)


def _resource_lines(report: KernelReport, width: int) -> list[str]:
    facts = resource_facts(report.compiled)
    limits = [f" ({fact.detail})" if fact.detail.startswith("limited") else "" for fact in facts]
    words = [f"{fact.name} {fact.value}{limit}" for fact, limit in zip(facts, limits, strict=True)]
    return join_parts(words, width, " · ")


def _resource_numbers(report: KernelReport) -> str:
    """Return registers, spills, stack, shared memory and occupancy as numbers in a row, with names and bars."""
    cells = []
    for fact in resource_facts(report.compiled):
        detail = f' <span class="kl-detail">{escape(fact.detail)}</span>' if fact.detail else ""
        alarm = " kl-alarm" if fact.alarm else ""
        bar = "" if fact.share is None else share_bar(fact.share)
        cells.append(
            f'<div class="kl-number{alarm}"><span class="kl-label">{escape(fact.name)}</span>'
            f" <b>{escape(fact.value)}</b>{detail}{bar}</div>"
        )
    return f'<div class="kl-numbers">{"".join(cells)}</div>'


def printed_output(run: Run | None) -> list[Block]:
    """Return the output of the kernel's own prints; [] without any."""
    if run is None or not run.output:
        return []
    output = PlainText(run.output, "printed by the kernel:", "kl-pre")
    return [Fold("Printed by the kernel", [output], is_open=True)]


def dataflow(report: KernelReport, shown: frozenset[str], *, alone: bool, by_line: bool = True) -> Iterator[Block]:
    """Yield the views of the graph that suit its size; the first is open where it is small or asked for.

    Without ``by_line``, the view by source line is left to the explorer.
    """
    graph, count = report.compiled.graph, len(report.compiled.graph.operations)
    is_open = "graph" in shown or (alone and count <= OPERATIONS_AT_MOST)
    folds = {View.SOURCE: ("Dataflow by source line", "")}
    if count <= OPERATIONS_AT_MOST:
        folds[View.OPERATIONS] = ("Dataflow by operation", plural(count, "operation"))
    views = sorted(folds, key=lambda view: view is not default_view(graph))
    for view in views:
        if by_line or view is not View.SOURCE:
            picture = partial(scrolling, graph, report.compiled.effects, view=view, text=report.text.own)
            title, detail = folds[view]
            yield Fold(title, [Drawing(picture)], detail, is_open=is_open and view is views[0])


def scrolling(graph: Graph, effects: Effects | None = None, **options: Unpack[PictureOptions]) -> str:
    """Return the picture of a graph, which shrinks a little where it is too wide, and then scrolls."""
    return in_frame(svg(graph, effects, **options))


def in_frame(picture: str) -> str:
    """Return the frame of a picture that shrinks, and then scrolls."""
    return f'<div class="kl-graph">{shrinking(picture)}</div>'


def source(report: KernelReport, shown: frozenset[str]) -> Block:
    """Return the source with what became of each line, folded unless ``shown`` has it."""
    table = Drawing(lambda: source_table(annotate_lines(report)))
    return Fold("Source, annotated", [table], "TTIR operations per line", is_open="source" in shown)


def source_table(lines: tuple[AnnotatedLine, ...]) -> str:
    """Return the table; hovering over a line shows the operations that it became."""
    before = (None, *lines)
    rows = "\n".join(_row(line, earlier) for earlier, line in zip(before, lines, strict=False))
    return f'<div class="kl-scroll"><table class="kl-source"><tbody>\n{rows}\n</tbody></table></div>'


def _row(line: AnnotatedLine, before: AnnotatedLine | None) -> str:
    """Return a row, below one that marks a gap where lines are not shown, or another file begins."""
    heat = f' style="background:{with_opacity(ORANGE, line.heat * _DARKEST)}"' if line.operations else ""
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


def _stages(report: KernelReport, names: tuple[str, ...]) -> Iterator[Block]:
    """Yield the explorer, open on the first of the named stages, and say of each that does not exist why not."""
    if not names:
        return
    from kernellab.views.explorers import explorer_html
    from kernellab.views.explorers.exploration import stage_text

    missing = [name for name in names if name != "sass" and name not in report.compiled.stages]
    for name in missing:
        yield Message(stage_text(report.compiled, name), in_text=False)
    present = [name for name in names if name not in missing]
    if present:
        uid = f"{report.file} {report.label}"
        draw = partial(explorer_html, report.compiled, report.text, opened=present[0], sass="sass" in present, uid=uid)
        detail = "point at a line or click on it to see what it became"
        yield Fold("Source and stages", [Drawing(draw)], detail, is_open=True)


def _facts(report: KernelReport) -> list[str]:
    compiled, run = report.compiled, report.run
    grid = report.grid or (run.grid if run else None)
    config = [report.config] if report.config else option_words(compiled)
    launch = [
        *([ran_words(run)] if run else []),
        *([f"grid {elements.grid_words(grid)}"] if grid else []),
        *([plural(report.launches, "launch")] if report.launches > 1 else []),
    ]
    return [str(compiled.target), elements.compile_words(compiled), *config, *(launch or ["not launched"])]


def ran_words(run: Run) -> str:
    """Return the place and the duration of a run."""
    return f"ran {_PLACES.get(run.where, f'on {run.where}')} in {time_text(run.seconds)}"


def remarks(report: KernelReport) -> tuple[str, ...]:
    """Return the remarks on the kernel, its arguments and its run, each once."""
    same = [f"{' and '.join(sorted(group))} are the same memory." for group in report.compiled.effects.aliases]
    of_run = (*_memory_changes(report.run), *report.run.notes) if report.run else ()
    return tuple(dict.fromkeys((*same, *report.notes, *precision_words(report.compiled), *of_run)))


def _memory_changes(run: Run) -> list[str]:
    """Return the changes in memory that the arguments hold addresses of."""
    behind = {name: count for name, count in run.changed.items() if count and name.startswith("memory ")}
    changed = [f"{name} ({plural(count, 'element')})" for name, count in behind.items()]
    more = [f"{len(changed) - _MOST_CHANGED:,} more"] if len(changed) > _MOST_CHANGED else []
    return [f"changed: {', '.join([*changed[:_MOST_CHANGED], *more])}"] if changed else []
