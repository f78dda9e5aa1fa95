"""Kernels that are kept: their table, one that was brought back, and all that is known of one as a page."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from datetime import UTC, datetime
from html import escape

from kernellab.compile.types import Compiled
from kernellab.errors import plural
from kernellab.registry import Listing, LoadedVersion, RecordedVersion, VersionRow, config_words, texts_of
from kernellab.store import Argument, LaunchRow, MeasurementRow, Version
from kernellab.views import elements
from kernellab.views.cards.results import compiled_html
from kernellab.views.elements import html_page

_COLUMNS = ("kernel", "id", "launched", "last", "config", "best time", "tags", "from")
_AGES = ((86400.0, "day"), (3600.0, "hour"), (60.0, "minute"))


def listing_html(listing: Listing) -> str:
    """Return a row per version; its notes below it."""
    if not listing.rows:
        return elements.framed(elements.body(elements.message("kl-note", _nothing(listing))))
    head = "".join(f"<th>{column}</th>" for column in _COLUMNS)
    rows = "".join(_html_row(row, listing.now) for row in listing.rows)
    table = f'<table class="kl-args"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'
    gone = elements.message("kl-note", f"{_removed(listing)}; left are:") if listing.removed else ""
    return elements.framed(elements.body(gone, table))


def listing_text(listing: Listing) -> str:
    """Return the same as aligned columns."""
    if not listing.rows:
        return _nothing(listing)
    table = elements.Table(_COLUMNS, [_cells(row, listing.now) for row in listing.rows])
    lines = [f"{_removed(listing)}; left are:"] if listing.removed else []
    for line, row in zip(table.text(), (None, *listing.rows), strict=True):
        lines += [line, *(f"    {note}" for note in (row.notes if row else ()))]
    return "\n".join(lines)


def loaded_html(loaded: LoadedVersion) -> str:
    """Return what was defined, then the source."""
    messages = [elements.warning(words) for words in _missing(loaded)]
    source = f"<pre>{escape(loaded.source)}</pre>"
    return elements.framed(elements.section(elements.header(loaded.row.label, _facts(loaded)), *messages, source))


def loaded_text(loaded: LoadedVersion) -> str:
    """Return the same as text."""
    return "\n".join([f"{loaded.row.label}  {'; '.join(_facts(loaded))}", *_missing(loaded), "", loaded.source])


def age_words(seconds: float) -> str:
    """Return how long ago something was: ``3 minutes ago``."""
    for scale, word in _AGES:
        if seconds >= scale:
            return f"{plural(int(seconds / scale), word)} ago"
    return "just now"


def date_words(when: float) -> str:
    """Return a time, given in seconds since 1970, in UTC and to the minute."""
    return datetime.fromtimestamp(when, tz=UTC).strftime("%Y-%m-%d %H:%M UTC")


def _removed(listing: Listing) -> str:
    return f"{', '.join(listing.removed)} {'is' if len(listing.removed) == 1 else 'are'} deleted"


def _nothing(listing: Listing) -> str:
    if listing.removed:
        names = "its name" if len(listing.removed) == 1 else "their names"
        return f"{_removed(listing)}; nothing is left under {names}."
    return f"No kernel matches {listing.search!r}." if listing.search else "No kernels are kept yet."


def _cells(row: VersionRow, now: float) -> tuple[str, ...]:
    return (
        row.label,
        str(row.id),
        _launched_words(row),
        "" if row.last_launch is None else age_words(now - row.last_launch),
        row.config,
        _time_words(row),
        ", ".join(row.tags),
        row.cell,
    )


def _launched_words(row: VersionRow) -> str:
    """Return how often cells launched it; trials are told apart, and nobody counts what other code launches."""
    uncounted = "" if row.last_launch is None else "uncounted"
    counts = [f"{row.launches:,}" if row.launches else uncounted, plural(row.runs, "run") if row.runs else ""]
    return ", ".join(filter(None, counts))


def _time_words(row: VersionRow) -> str:
    """Return the best time where a GPU measured one; a time of the interpreter says nothing about the kernel."""
    return "" if row.best_ms is None else f"{elements.seconds_words(row.best_ms / 1e3)} ({row.where})"


def _html_row(row: VersionRow, now: float) -> str:
    first, *rest = _cells(row, now)
    cells = "".join(f"<td>{escape(cell)}</td>" for cell in rest)
    notes = "".join(f'<tr><td></td><td colspan="{len(rest)}">{escape(note)}</td></tr>' for note in row.notes)
    return f'<tr><th scope="row">{escape(first)}</th>{cells}</tr>{notes}'


def _facts(loaded: LoadedVersion) -> list[str]:
    kernel, *helpers = loaded.names
    facts = [f"defined as {kernel}"]
    if helpers:
        facts.append(f"with {', '.join(helpers)}")
    if loaded.row.config:
        facts.append(loaded.row.config)
    if loaded.row.best_ms is not None:
        facts.append(_time_words(loaded.row))
    return facts


def _missing(loaded: LoadedVersion) -> list[str]:
    return [f"{name} could not be kept and is left out" for name in loaded.missing]


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
        parts += ["<h2>Compiled</h2>", compiled_html(compiled)]
    parts += ["<h2>Source</h2>", *(f"<pre>{escape(text)}</pre>" for text in texts_of(recorded.version))]
    if before is not None:
        parts += [
            f"<h2>Since {escape(before.label)}</h2>",
            f"<pre>{escape(source_diff(before, recorded.version))}</pre>",
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
        facts.append(("best time", f"{elements.seconds_words(row.best_ms / 1e3)} on {row.where}"))
    facts += [("note", note) for note in row.notes]
    cells = (f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in facts if value)
    return f'<table class="facts">{"".join(cells)}</table>'


def _launches(launches: list[LaunchRow]) -> Iterator[tuple[str, ...]]:
    for row in reversed(launches):
        yield (
            date_words(row.last),
            row.launch.where if row.launch.by == "launch" else f"{row.launch.by} on the {row.launch.where}",
            "" if row.launch.grid is None else elements.grid_words(row.launch.grid),
            ", ".join(map(argument_words, row.launch.arguments)),
            "" if row.seconds is None else elements.seconds_words(row.seconds),
            f"{row.count:,}",
        )


def _measurements(rows: list[MeasurementRow]) -> Iterator[tuple[str, ...]]:
    for row in rows:
        made = row.measurement
        time = "" if made.time_ms is None else elements.seconds_words(made.time_ms / 1e3)
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
