"""Kept kernels as a table; one that was loaded again, or written as a file. None of it loads Triton."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from html import escape
from typing import TYPE_CHECKING

from kernellab.errors import plural, time_text
from kernellab.views.blocks import (
    WARNING,
    Block,
    Card,
    Drawing,
    Heading,
    Message,
    PlainText,
    Section,
    Table,
    html_table,
    text_only,
)

if TYPE_CHECKING:
    from kernellab.export.write import Exported
    from kernellab.registry import Listing, LoadedVersion, VersionRow

_COLUMNS = ("kernel", "id", "status", "launches", "last", "last config", "best time", "tags", "notebook", "cell")
_AGES = ((86400.0, "day"), (3600.0, "hour"), (60.0, "minute"))


def listing_card(listing: Listing) -> Card:
    """Return a row per version, its notes below it."""
    if not listing.rows:
        return Card([Section(None, [Message(_empty_words(listing))])])
    table = Table(_COLUMNS, [_cells(row, listing.now) for row in listing.rows]).without_empty_columns()
    versions = Drawing(partial(_version_table, listing, table), lambda _: _version_lines(listing, table))
    gone = [Message(f"{_removal_words(listing)}; left are:")] if listing.removed else []
    more = [Message(f"{plural(listing.more, 'older version')} not shown; --all shows them.")] if listing.more else []
    return Card([Section(None, [*gone, versions, *more])])


def _version_lines(listing: Listing, table: Table) -> list[str]:
    head, *lines = table.lines()
    rows = zip(lines, listing.rows, strict=True)
    return [head, *(text for line, row in rows for text in (line, *(f"    {note}" for note in _remarks(row))))]


def _version_table(listing: Listing, table: Table) -> str:
    rows = list[str]()
    for row, (first, *rest) in zip(listing.rows, table.rows, strict=True):
        cells = "".join(f"<td>{escape(cell)}</td>" for cell in rest)
        rows.append(f'<tr><th scope="row">{escape(first)}</th>{cells}</tr>')
        rows += (f'<tr><td></td><td colspan="{len(rest)}">{escape(note)}</td></tr>' for note in _remarks(row))
    return html_table(rows, [f"<th>{column}</th>" for column in table.head])


def _remarks(row: VersionRow) -> tuple[str, ...]:
    """Return the notes on a version, and why it did not compile."""
    return (*row.notes, row.error) if row.error else row.notes


def loaded_card(loaded: LoadedVersion) -> Card:
    """Return the names that were defined, then the source."""
    label, (kernel, *helpers) = loaded.row.label, loaded.names
    facts = [f"defined as {kernel}", f"with {', '.join(helpers)}" if helpers else "", loaded.row.config]
    facts = [*filter(None, (*facts, _time_words(loaded.row)))]
    missing = [Message(f"{name} could not be kept and is left out", WARNING) for name in loaded.missing]
    head = text_only([f"{label}  {'; '.join(facts)}"])
    blocks: list[Block] = [head, *missing, text_only([""]), PlainText(loaded.source)]
    return Card([Section(Heading(label, facts, in_text=False), blocks)])


def exported_card(exported: Exported) -> Card:
    """Return the path of an export, and the notes on it."""
    written = Message(f"{exported.label} was written as {exported.path} ({exported.kind}).")
    return Card([Section(None, [written, *(Message(f"Note: {note}.") for note in exported.notes)])])


def age_words(seconds: float) -> str:
    """Return an age in words: ``3 minutes ago``."""
    for scale, word in _AGES:
        if seconds >= scale:
            return f"{plural(int(seconds / scale), word)} ago"
    return "just now"


def date_words(when: float) -> str:
    """Return a time, given in seconds since 1970, in UTC and to the minute."""
    return datetime.fromtimestamp(when, tz=UTC).strftime("%Y-%m-%d %H:%M UTC")


def _removal_words(listing: Listing) -> str:
    return f"{', '.join(listing.removed)} {'is' if len(listing.removed) == 1 else 'are'} deleted"


def _empty_words(listing: Listing) -> str:
    if listing.removed:
        names = "its name" if len(listing.removed) == 1 else "their names"
        return f"{_removal_words(listing)}; nothing is left under {names}."
    return f"No kernel matches {listing.search!r}." if listing.search else "No kernels are kept yet."


def _cells(row: VersionRow, now: float) -> tuple[str, ...]:
    not_counted = "" if row.last_launch is None else "not counted"
    counts = [f"{row.launches:,}" if row.launches else not_counted, plural(row.runs, "run") if row.runs else ""]
    launches, tags = ", ".join(filter(None, counts)), ", ".join(row.tags)
    age = age_words(now - row.last_used)
    places = (row.notebook, row.cell)
    return (row.label, str(row.id), row.status, launches, age, row.last_config, _time_words(row), tags, *places)


def _time_words(row: VersionRow) -> str:
    """Return the best time where a GPU measured one; a time of the interpreter says nothing about the kernel."""
    return "" if row.best_ms is None else f"{time_text(row.best_ms / 1e3)} ({row.where})"
