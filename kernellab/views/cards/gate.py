"""A gate between two revisions as a card, as Markdown for a pull request, and as JUnit XML for a CI server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from xml.etree import ElementTree

from kernellab.errors import time_text
from kernellab.store import Snapshot
from kernellab.timing.gate import GateVerdict
from kernellab.upgrade.gate_result import GateResult
from kernellab.views.blocks import WARNING, Block, Card, Message, Section, Table, notes, table_of
from kernellab.views.cards.upgrade import markdown_cell, markdown_table, write_text
from kernellab.views.elements import number

_Row = tuple[str, float | None, Snapshot]
_FAILURES = {GateVerdict.SLOWER: "failure", GateVerdict.UNDECIDED: "error", GateVerdict.SUSPECT: "error"}


def gate_card(result: GateResult) -> Card:
    """The verdict, a table of both sides, what became worse, and the notes."""
    text = Message(result.text, WARNING) if result.status else Message(result.text)
    blocks: list[Block] = [text, _table(result), *(Message(words, WARNING) for words in _warnings(result))]
    return Card([Section(None, [*blocks, *notes(result.notes)])])


def _figure(figure_of: Callable[[Snapshot], float | None], form: str) -> Callable[[_Row], str]:
    return lambda row: number(figure_of(row[2]), form)


def _table(result: GateResult) -> Table:
    """A row per side, with the columns that have a figure of one of them."""
    timing, sides = result.timing, (result.before, result.after)
    predicted = [side.predicted_ms for side in sides]
    times = predicted if timing is None else [timing.earlier_ms, timing.later_ms]
    columns: dict[str, Callable[[_Row], str]] = {
        "revision": lambda row: row[0],
        "predicted" if timing is None else "time": lambda row: "" if row[1] is None else time_text(row[1] / 1e3),
        "registers": _figure(lambda side: side.registers, ",d"),
        "spills": _figure(lambda side: side.spill_bytes, ",d"),
        "shared": _figure(lambda side: side.shared_bytes, ",d"),
        "occupancy": _figure(lambda side: side.occupancy, ".0%"),
        "sectors": _figure(lambda side: sum(a.sectors for a in side.accesses) if side.accesses else None, ",.0f"),
        "wavefronts": _figure(lambda side: side.wavefronts, ",.0f"),
    }
    return table_of(columns, list(zip(result.names, times, sides, strict=True)), left={"revision"})


def _warnings(result: GateResult) -> Iterator[str]:
    yield from map(str, result.reasons)
    if result.difference:
        yield f"Outputs differ: {result.difference}"


def gate_markdown(result: GateResult) -> str:
    """The verdict and the table of both sides, for a pull request or the summary of a job."""
    parts = [f"### {markdown_cell(result.names[1])}: {markdown_cell(result.text)}", markdown_table(_table(result))]
    parts.append(f"On {markdown_cell(result.device)}{_rounds_words(result)}.")
    parts += [f"- {markdown_cell(words)}" for words in (*_warnings(result), *result.notes)]
    return "\n\n".join(parts) + "\n"


def _rounds_words(result: GateResult) -> str:
    timing = result.timing
    if timing is None:
        return ", not timed"
    return f": {timing.rounds:,} rounds in turns, {timing.blocks:,} blocks, {time_text(timing.seconds)}"


def gate_junit(result: GateResult, file: str) -> str:
    """A test suite of one test in the XML of JUnit: a slowdown is a failure, what is undecided an error."""
    kind = _FAILURES.get(result.verdict)
    counts = {f"{name}s": str(int(name == kind)) for name in ("failure", "error")}
    seconds = f"{0.0 if result.timing is None else result.timing.seconds:.3f}"
    suite = ElementTree.Element("testsuite", {"name": "kernellab", "tests": "1", "time": seconds, **counts})
    case = ElementTree.SubElement(suite, "testcase", classname=file, name=result.names[1], time=seconds)
    if kind is not None:
        ElementTree.SubElement(case, kind, message=result.text, type=str(result.verdict)).text = str(result)
    ElementTree.SubElement(case, "system-out").text = str(result)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def write_gate(
    result: GateResult, file: str, summary: str | None, junit: str | None, step_summary: Path | None
) -> None:
    """Write the Markdown and the XML of a gate where they are asked for; that of a step of GitHub is appended to.

    Raises:
        UsageError: a file cannot be written.
    """
    if summary is not None:
        write_text("--summary", Path(summary), gate_markdown(result))
    if step_summary is not None:
        write_text("--step-summary", step_summary, gate_markdown(result), appends=True)
    if junit is not None:
        write_text("--junit", Path(junit), gate_junit(result, file))
