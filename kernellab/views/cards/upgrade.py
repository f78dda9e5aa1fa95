"""Gates as cards: an upgrade, two revisions; with Markdown and HTML for a pull request, JUnit XML for a CI server."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape
from operator import attrgetter
from pathlib import Path
from xml.etree import ElementTree

from kernellab.errors import UsageError, plural, time_text
from kernellab.store import Snapshot
from kernellab.timing.gate import GateVerdict
from kernellab.upgrade.gate_result import GateResult
from kernellab.upgrade.result import Upgrade, UpgradeOutcome, UpgradeRow
from kernellab.views.blocks import WARNING, Block, Card, Fold, Message, Section, Table, html_of, notes, table_of
from kernellab.views.elements import html_page, number, style

_QUIET = {UpgradeOutcome.SAME, UpgradeOutcome.CLEARED}
_LINES_AT_MOST = 6
_PAGES = (".md", ".html")
_STYLE = "body { margin: 1rem auto; max-width: 90rem; font: 15px/1.55 system-ui, sans-serif; }"


def _change(name: str, form: str = ",d") -> Callable[[UpgradeRow], str]:
    """A column with a figure before and after; one number where they are equal."""

    def write(row: UpgradeRow) -> str:
        was, now = (number(getattr(side, name, None), form) for side in (row.before, row.after))
        return now if was in ("", now) else f"{was} -> {now}"

    return write


def _measured_words(row: UpgradeRow) -> str:
    if row.retimed is None:
        return ""
    ratio = "" if row.retimed.ratio is None else f" {row.retimed.ratio.median:.3f}x"
    best = f"; now fastest: {row.retimed.best}" if row.retimed.best else ""
    return f"{row.retimed.became}{ratio}{best}" + (f" ({row.retimed.reason})" if row.retimed.reason else "")


_COLUMNS: dict[str, Callable[[UpgradeRow], str]] = {
    **{name: attrgetter(name) for name in ("kernel", "launch", "config")},
    "outcome": lambda row: str(row.outcome),
    "predicted": lambda row: "" if row.ratio is None else f"{row.ratio:.2f}x",
    "registers": _change("registers"),
    "spills": _change("spill_bytes"),
    "shared": _change("shared_bytes"),
    "occupancy": _change("occupancy", ".0%"),
    "parts at": lambda row: "" if row.parting is None else row.parting.stage or "nowhere",
    "measured": _measured_words,
    "why": attrgetter("why"),
}
_RIGHT = {"predicted", "registers", "spills", "shared", "occupancy"}


def upgrade_card(upgrade: Upgrade) -> Card:
    """The winners that fail, are suspect or cannot be compared, the stage at which they part, and the notes."""
    shown = [row for row in upgrade.winners if row.outcome not in _QUIET]
    timed = [row for row in upgrade.winners if row.outcome in _QUIET and row.retimed is not None]
    blocks: list[Block] = [Message(upgrade.text), _table([*shown, *timed])]
    blocks += [Message(words, WARNING) for words in _better_neighbours(upgrade)]
    lines = [words for row in shown for words in _parting_lines(row)]
    if lines:
        blocks.append(Fold("First stage that differs, by line", [Message(line, "kl-dim") for line in lines]))
    return Card([Section(None, [*blocks, *notes(upgrade.notes)])])


def _table(rows: Sequence[UpgradeRow]) -> Table:
    return table_of(_COLUMNS, rows, left=set(_COLUMNS) - _RIGHT)


def _parting_lines(row: UpgradeRow) -> list[str]:
    """The stage and the lines at which the two compiles of a winner part."""
    if row.parting is None or not row.parting.stage:
        return []
    lines = row.parting.lines
    more = [f"  and {plural(len(lines) - _LINES_AT_MOST, 'line')} more"] if len(lines) > _LINES_AT_MOST else []
    head = f"{row.kernel}, {row.config}: {row.parting.stage}"
    return [head, *(f"  {line}" for line in lines[:_LINES_AT_MOST]), *more]


def _better_neighbours(upgrade: Upgrade) -> list[str]:
    """A sentence for each suspect with a stored neighbour that is predicted to be faster now."""
    sentences = []
    for row in upgrade.suspects:
        near = [n for n in upgrade.rows if not n.is_winner and (n.kernel, n.launch) == (row.kernel, row.launch)]
        known = [n for n in near if n.after.predicted_ms is not None and not n.after.failure]
        best = min(known, key=lambda n: n.after.predicted_ms or 0.0, default=None)
        if best is not None and row.after.predicted_ms and (best.after.predicted_ms or 0.0) < row.after.predicted_ms:
            gain = row.after.predicted_ms / (best.after.predicted_ms or 1.0)
            sentences.append(f"{row.kernel} ({row.launch}): {best.config} is predicted to be {gain:.2f}x as fast.")
    return sentences


def upgrade_markdown(upgrade: Upgrade) -> str:
    """The page of a pull request: the summary, a table of what is suspect, and one of all others in a fold."""
    quiet = [row for row in upgrade.winners if row.outcome in _QUIET]
    loud = [row for row in upgrade.winners if row.outcome not in _QUIET]
    parts = [f"### {markdown_cell(upgrade.text)}"]
    parts += [markdown_table(_table(loud))] if loud else ["No stored winner is suspect."]
    parts += [f"- {markdown_cell(words)}" for words in (*_better_neighbours(upgrade), *upgrade.notes)]
    lines = [words for row in loud for words in _parting_lines(row)]
    if lines:
        text = escape("\n".join(lines))
        parts.append(f"<details><summary>First stage that differs, by line</summary>\n<pre>{text}</pre>\n</details>")
    if quiet:
        words = plural(len(quiet), "winner")
        parts.append(f"<details><summary>{words} as before</summary>\n\n{markdown_table(_table(quiet))}\n\n</details>")
    return "\n\n".join(parts) + "\n"


def markdown_table(table: Table) -> str:
    """A table in Markdown."""
    rows = [table.head, ["---"] * len(table.head), *([markdown_cell(cell) for cell in row] for row in table.rows)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def markdown_cell(text: str) -> str:
    """A text in a cell of a Markdown table: no markup of its own, one line."""
    return escape(" ".join(text.split()), quote=False).replace("|", "\\|").replace("*", "\\*").replace("_", "\\_")


def upgrade_page(upgrade: Upgrade) -> str:
    """The page as HTML: the card, and a table of all winners."""
    rest = html_of([_table(upgrade.winners)])
    title = f"Upgrade to Triton {upgrade.after}"
    body = f"{upgrade_card(upgrade).html()}\n<details><summary>All winners</summary>{rest}</details>"
    return html_page(title, _STYLE, style("kernellab.views", "card.css") + body)


def write_summary(upgrade: Upgrade, path: Path) -> Path:
    """Write the page as Markdown (``.md``) or HTML (``.html``).

    Raises:
        UsageError: the path has another suffix, or cannot be written.
    """
    if path.suffix not in _PAGES:
        raise UsageError(f"--summary {str(path)!r}: expected a file that ends in {' or '.join(_PAGES)}.")
    text = upgrade_markdown(upgrade) if path.suffix == ".md" else upgrade_page(upgrade)
    return write_text("--summary", path, text)


def write_text(option: str, path: Path, text: str, *, appends: bool = False) -> Path:
    """Write the text of an option as a file.

    Raises:
        UsageError: the path cannot be written.
    """
    try:
        with path.open("a" if appends else "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as exc:
        raise UsageError(f"{option} {str(path)!r} cannot be written: {exc.strerror or exc}.") from exc
    return path


_Row = tuple[str, float | None, Snapshot]
_KINDS = {1: "failure", 3: "error"}
"""What a gate is to a CI server, by its status; others pass."""


def gate_card(result: GateResult) -> Card:
    """The verdict, a table of both sides, what became worse, and the notes."""
    text = Message(result.text, WARNING) if result.status else Message(result.text)
    blocks: list[Block] = [text, _sides_table(result), *(Message(words, WARNING) for words in _warnings(result))]
    return Card([Section(None, [*blocks, *notes(result.notes)])])


def _figure(figure_of: Callable[[Snapshot], float | None], form: str) -> Callable[[_Row], str]:
    return lambda row: number(figure_of(row[2]), form)


def _sides_table(result: GateResult) -> Table:
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
    if result.difference and result.verdict is not GateVerdict.DIFFERENT:  # whose sentence says it
        yield f"Outputs differ: {result.difference}"


def gate_markdown(result: GateResult) -> str:
    """The verdict and the table of both sides, for a pull request or the summary of a job."""
    timing, rounds = result.timing, ", not timed"
    if timing is not None:
        rounds = f": {timing.rounds:,} rounds in turns, {timing.blocks:,} blocks, {time_text(timing.seconds)}"
    parts = [
        f"### {markdown_cell(result.names[1])}: {markdown_cell(result.text)}",
        markdown_table(_sides_table(result)),
        f"On {markdown_cell(result.device)}{rounds}.",
        *(f"- {markdown_cell(words)}" for words in (*_warnings(result), *result.notes)),
    ]
    return "\n\n".join(parts) + "\n"


def gate_junit(result: GateResult, file: str) -> str:
    """A test suite of one test in the XML of JUnit: slower or different is a failure, undecided or suspect an error."""
    kind = _KINDS.get(result.status)
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
