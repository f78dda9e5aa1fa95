"""All that the lab knows of a kernel, as one HTML file that opens without a network."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from html import escape

from kernellab.compile.types import Compiled
from kernellab.export.module import Subject
from kernellab.registry.listing import VersionRow, config_words, texts_of
from kernellab.store import Argument, LaunchRow, MeasurementRow, Version
from kernellab.views import wording
from kernellab.views.listing import date_words
from kernellab.views.page import html_page
from kernellab.views.results import compiled_html

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


def report_page(
    subject: Subject,
    row: VersionRow,
    compiled: Compiled | None,
    launches: list[LaunchRow],
    measurements: list[MeasurementRow],
    before: Version | None,
) -> str:
    """Return the page; ``before`` is the version that this one is compared with."""
    parts = [f"<h1>{escape(subject.version.label)}</h1>", _facts(row)]
    if compiled is not None:
        parts += ["<h2>Compiled</h2>", compiled_html(compiled)]
    parts += ["<h2>Source</h2>", *(f"<pre>{escape(text)}</pre>" for text in texts_of(subject.version))]
    if before is not None:
        parts += [
            f"<h2>Since {escape(before.label)}</h2>",
            f"<pre>{escape(source_diff(before, subject.version))}</pre>",
        ]
    if launches:
        parts += [
            "<h2>Launches</h2>",
            _table(("when", "where", "grid", "arguments", "time", "times"), _launches(launches)),
        ]
    if measurements:
        columns = ("config", "status", "time", "device", "when")
        parts += ["<h2>Measurements</h2>", _table(columns, _measurements(measurements))]
    body = "\n".join(parts)
    return html_page(subject.version.label, _STYLE, f"<main>\n{body}\n</main>")


def source_diff(before: Version, after: Version) -> str:
    """Return the unified diff of two versions, with helpers and captured values; "" where they are the same."""
    old, new = ("\n".join(texts_of(version)).splitlines() for version in (before, after))
    return "\n".join(difflib.unified_diff(old, new, before.label, after.label, lineterm=""))


def _facts(row: VersionRow) -> str:
    facts = [("id", str(row.id)), ("from", row.cell), ("kept since", date_words(row.created))]
    launched = wording.plural(row.launches, "time") if row.launches else ""
    facts += [("launched", launched), ("config", row.config), ("tags", ", ".join(row.tags))]
    if row.best_ms is not None:
        facts.append(("best time", f"{wording.seconds_words(row.best_ms / 1e3)} on {row.where}"))
    facts += [("note", note) for note in row.notes]
    cells = (f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in facts if value)
    return f'<table class="facts">{"".join(cells)}</table>'


def _launches(launches: list[LaunchRow]) -> Iterator[tuple[str, ...]]:
    for row in reversed(launches):
        yield (
            date_words(row.last),
            row.launch.where if row.launch.by == "launch" else f"{row.launch.by} on the {row.launch.where}",
            "" if row.launch.grid is None else wording.grid_words(row.launch.grid),
            ", ".join(map(argument_words, row.launch.arguments)),
            "" if row.seconds is None else wording.seconds_words(row.seconds),
            f"{row.count:,}",
        )


def _measurements(rows: list[MeasurementRow]) -> Iterator[tuple[str, ...]]:
    for row in rows:
        made = row.measurement
        time = "" if made.time_ms is None else wording.seconds_words(made.time_ms / 1e3)
        yield config_words(made.config), made.status, time, made.device, date_words(row.created)


def argument_words(argument: Argument) -> str:
    """Return an argument in short: ``x_ptr float32 (300,)``, ``n=300``."""
    if argument.kind == "tensor":
        return f"{argument.name} {argument.dtype} {argument.shape}"
    if argument.members:
        return f"{argument.name} ({', '.join(map(argument_words, argument.members))})"
    return f"{argument.name}={argument.value}"


def _table(columns: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f'<div class="scroll"><table class="facts"><tr>{head}</tr>{body}</table></div>'
