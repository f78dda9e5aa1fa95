"""What is kept of a kernel as a page; times that were merged, that changed, and vs baselines."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from operator import attrgetter

from kernellab.benchmark.baselines import RESOURCES, BaselineComparison
from kernellab.compile.types import Compiled
from kernellab.errors import plural, time_text
from kernellab.export.merging import Conflict, ConflictKind, Merged, MergedRow
from kernellab.registry import RecordedVersion, VersionRow, config_words, texts_of
from kernellab.registry.kept_times import KeptTime
from kernellab.registry.regressions import FASTEST, ChangedTime, Regressions, TimeChange
from kernellab.store import Argument, LaunchRow, MeasurementRow, Version
from kernellab.views.blocks import WARNING, Card, Message, Row, Section, Table, table_of
from kernellab.views.cards.listing import date_words
from kernellab.views.cards.results import compiled_card
from kernellab.views.elements import grid_words, group_by, html_page, interval, number

_STYLE = """
body { margin: 0; font: 15px/1.55 system-ui, sans-serif; background: Canvas; color: CanvasText; }
main { max-width: 70rem; margin: 0 auto; padding: 1rem 1.25rem 4rem; }
pre { font: 0.8rem/1.5 ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; overflow-x: auto;
  padding: 0.6rem 0.9rem; border-radius: 6px; background: color-mix(in srgb, CanvasText 5%, Canvas); }
.scroll { overflow-x: auto; }
table.facts { border-collapse: collapse; font-size: 0.85rem; }
table.facts th, table.facts td { text-align: left; padding: 0.2rem 1rem 0.2rem 0; vertical-align: top; }
table.facts tr + tr { border-top: 1px solid color-mix(in srgb, CanvasText 15%, Canvas); }
"""


_LAUNCHES: dict[str, Callable[[LaunchRow], str]] = {
    "when": lambda row: date_words(row.last),
    "where": lambda row: (
        row.launch.where if row.launch.by == "launch" else f"{row.launch.by} on the {row.launch.where}"
    ),
    "grid": lambda row: "" if row.launch.grid is None else grid_words(row.launch.grid),
    "arguments": lambda row: ", ".join(map(argument_words, row.launch.arguments)),
    "time": lambda row: "" if row.seconds is None else time_text(row.seconds),
    "times": lambda row: f"{row.count:,}",
}
_MEASUREMENTS: dict[str, Callable[[MeasurementRow], str]] = {
    "config": lambda row: config_words(row.measurement.config),
    "status": lambda row: row.measurement.status,
    "time": lambda row: "" if row.measurement.time_ms is None else time_text(row.measurement.time_ms / 1e3),
    "device": lambda row: row.measurement.device,
    "when": lambda row: date_words(row.created),
}


def report_page(
    recorded: RecordedVersion,
    row: VersionRow,
    compiled: Compiled | None,
    launches: list[LaunchRow],
    measurements: list[MeasurementRow],
    before: Version | None,
) -> str:
    """Return the page; ``before`` is the version that this one is compared with."""
    parts = [f"<h1>{escape(recorded.version.label)}</h1>", _version_facts(row)]
    if compiled is not None:
        parts += ["<h2>Compiled</h2>", compiled_card(compiled).html()]
    parts += ["<h2>Source</h2>", *(f"<pre>{escape(text)}</pre>" for text in texts_of(recorded.version))]
    if before is not None:
        diff = escape(source_diff(before, recorded.version))
        parts += [f"<h2>Since {escape(before.label)}</h2>", f"<pre>{diff}</pre>"]
    if launches:
        parts += ["<h2>Launches</h2>", _table(_LAUNCHES, launches[::-1])]
    if measurements:
        parts += ["<h2>Measurements</h2>", _table(_MEASUREMENTS, measurements)]
    body = "\n".join(parts)
    return html_page(recorded.version.label, _STYLE, f"<main>\n{body}\n</main>")


def source_diff(before: Version, after: Version) -> str:
    """Return the unified diff of two versions, with helpers and captured values; "" where they are the same."""
    old, new = ("\n".join(texts_of(version)).splitlines() for version in (before, after))
    return "\n".join(difflib.unified_diff(old, new, before.label, after.label, lineterm=""))


def _version_facts(row: VersionRow) -> str:
    facts = [("id", str(row.id)), ("from", row.cell), ("kept since", date_words(row.created))]
    launched = plural(row.launches, "time") if row.launches else ""
    facts += [("launched", launched), ("config", row.config), ("tags", ", ".join(row.tags))]
    if row.best_ms is not None:
        facts.append(("best time", f"{time_text(row.best_ms / 1e3)} on {row.where}"))
    facts += [("note", note) for note in row.notes]
    cells = (f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in facts if value)
    return f'<table class="facts">{"".join(cells)}</table>'


def argument_words(argument: Argument) -> str:
    """Return an argument in short: ``x_ptr float32 (300,)``, ``n=300``."""
    if argument.kind == "tensor":
        return f"{argument.name} {argument.dtype} {argument.shape}"
    if argument.members:
        return f"{argument.name} ({', '.join(map(argument_words, argument.members))})"
    return f"{argument.name}={argument.value}"


def _table(columns: Mapping[str, Callable[[Row], str]], rows: Iterable[Row]) -> str:
    head = "".join(f"<th>{column}</th>" for column in columns)
    cells = ("".join(f"<td>{escape(write(row))}</td>" for write in columns.values()) for row in rows)
    body = "".join(f"<tr>{row}</tr>" for row in cells)
    return f'<div class="scroll"><table class="facts"><tr>{head}</tr>{body}</table></div>'


_BASELINES = (
    *("test", "kernel", "baseline", "device", "ms", "interval", "was", "change"),
    *("registers", "spills", "shared", "verdict"),
)


def baseline_text(comparison: BaselineComparison) -> str:
    """Return the table of a launch and its baseline, then failures and notes, a line each."""
    failed = [f"failed: {line}" for line in comparison.failures]
    notes = [f"note: {line}" for line in comparison.notes]
    return "\n".join([*baseline_lines([baseline_cells(comparison)]), *failed, *notes])


def baseline_lines(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows of `baseline_cells` as the lines of a table, the head first, without empty columns."""
    return Table(_BASELINES, rows).without_empty_columns().lines()


def baseline_cells(comparison: BaselineComparison, test: str = "") -> tuple[str, ...]:
    """Return the row of a comparison, that of a ``test`` if it is named."""
    now, before = comparison.now, comparison.before
    was = None if before is None else before.time_ms
    change = "" if was is None or now.time_ms is None else f"{now.time_ms / was - 1:+.1%}"
    times = (number(now.time_ms, ".4g"), interval(now.low_ms, now.high_ms), number(was, ".4g"), change)
    needs = []
    for name in RESOURCES:
        need, old = getattr(now, name), getattr(before, name, None)
        was_words = "" if old in (None, need) else f" (was {old:,})"
        needs.append("" if need is None else f"{need:,}{was_words}")
    verdict = "written" if before is None else "failed" if comparison.failures else "ok"
    return (test, now.kernel, comparison.name, now.device, *times, *needs, verdict)


_MERGED: dict[str, Callable[[MergedRow], str]] = {
    **{name: attrgetter(name.lower()) for name in ("kernel", "launch", "device", "driver", "Triton", "version")},
    "fastest": lambda row: row.config if row.status == "ok" else row.status,
    "ms": lambda row: number(row.time_ms, ".4g"),
    "interval": lambda row: interval(row.low_ms, row.high_ms),
    "configs": lambda row: str(row.configs),
    "measured": lambda row: str(row.origin),
    "conflict": lambda row: row.conflict,
}


def merged_card(merged: Merged) -> Card:
    """Return the merged rows, the table of all rows of their kernels, and each conflict."""
    conflicts = [Message(conflict_words(conflict), WARNING, prefix="conflict: ") for conflict in merged.conflicts]
    new, count = plural(merged.new, "measurement"), plural(len(conflicts), "conflict") if conflicts else "no conflict"
    versions = ", ".join(merged.versions) or "no kernel"
    words = f"{merged.source}: {versions}; {new} entered, {merged.known:,} known before, {count}."
    table = table_of(_MERGED, merged.rows, left=set(_MERGED) - {"ms", "interval", "configs"})
    return Card([Section(None, [Message(words), table, *conflicts])])


def conflict_words(conflict: Conflict) -> str:
    """Return a conflict as a sentence: both measurements and their difference."""
    here, there = conflict.here, conflict.there
    launch = f"{here.launch.kernel} ({conflict.launch})" if conflict.launch else here.launch.kernel
    times = _time_or_status(here), _time_or_status(there)
    if conflict.kind is ConflictKind.CHOICE:
        fastest = f"{here.words} is the fastest here ({times[0]}), {there.words} there ({times[1]})"
        return f"{launch}: {fastest}; what differs: {conflict.by}."
    where = f"{here.launch.device}, driver {here.conditions.driver}, Triton {here.conditions.triton}, {here.version}"
    more = "" if conflict.ratio is None else f", {conflict.ratio.median:.3g}x the time"
    return f"{launch}, {here.words}: {times[0]} here, {times[1]} there{more}; both on {where}."


def _time_or_status(kept: KeptTime) -> str:
    return str(kept.status) if kept.time_ms is None else f"{kept.time_ms:.4g} ms"


_CHANGED: dict[str, Callable[[ChangedTime], str]] = {
    **{name: attrgetter(name) for name in ("kernel", "launch", "device")},
    "became": lambda row: str(row.became),
    "ratio": lambda row: "" if row.ratio is None else f"{row.ratio.median:.3f}",
    "interval": lambda row: "" if row.ratio is None else interval(row.ratio.low, row.ratio.high),
    "before ms": lambda row: "" if row.before is None else number(row.before.time_ms, ".4g"),
    "ms": lambda row: "" if row.after is None else number(row.after.time_ms, ".4g"),
    "by": lambda row: row.by,
    "config": lambda row: _changed_words(row.before, row.after),
    "why": lambda row: row.reason,
}
_QUIET = {TimeChange.SAME, TimeChange.INCOMPARABLE}


def regressions_card(regressions: Regressions) -> Card:
    """Return the launches with a changed time or too few samples, and the reasons for those left out."""
    shown = [row for row in regressions.rows if row.config == FASTEST and row.became not in _QUIET]
    table = table_of(_CHANGED, shown, left=set(_CHANGED) - {"ratio", "interval", "before ms", "ms"})
    words = f"Of each launch, its fastest configs before and after a change: {regressions.text}."
    if not regressions.rows:
        kernel = regressions.kernel or "any kernel"
        words = f"No launch of {kernel} is known under several versions of Triton, driver or kernel."
    rest = (Message(line, "kl-dim") for line in _left_out(regressions.rows))
    return Card([Section(None, [Message(words), table, *rest])])


def _left_out(changes: Sequence[ChangedTime]) -> list[str]:
    """Return a line on single configs, and one per reason for launches that cannot be compared."""
    alone = Counter(row.became for row in changes if row.config != FASTEST and row.became not in _QUIET)
    counts = ", ".join(f"{alone[kind]} {kind}" for kind in TimeChange if alone[kind])
    lines = [f"Single configs: {counts}; .frame has them."] if counts else []
    alike = (row for row in changes if row.config == FASTEST and row.became is TimeChange.INCOMPARABLE)
    for reason, rows in group_by(alike, lambda row: row.reason).items():
        first = f"{rows[0].kernel} ({rows[0].launch})" if rows[0].launch else rows[0].kernel
        which = first if len(rows) == 1 else f"{plural(len(rows), 'launch')}, such as {first}"
        lines.append(f"Not compared, {which}: {reason}.")
    return lines


def _changed_words(before: KeptTime | None, after: KeptTime | None) -> str:
    was, now = ("" if kept is None else kept.words for kept in (before, after))
    return now if was in ("", now) else f"{now} (was {was})"
