"""The table of kernels, and a kernel that was brought back."""

from __future__ import annotations

from datetime import UTC, datetime
from html import escape

from kernellab.registry.listing import Listing, Loaded, VersionRow
from kernellab.views import sections, wording

_COLUMNS = ("kernel", "id", "launched", "last", "config", "best time", "tags", "from")
_AGES = ((86400.0, "day"), (3600.0, "hour"), (60.0, "minute"))


def listing_html(listing: Listing) -> str:
    """Return a row per version; its notes below it."""
    if not listing.rows:
        return sections.framed(f'<div class="kl-body">{sections.message("kl-note", _nothing(listing))}</div>')
    head = "".join(f"<th>{column}</th>" for column in _COLUMNS)
    body = "".join(_html_row(row, listing.now) for row in listing.rows)
    table = f'<table class="kl-args"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    gone = sections.message("kl-note", f"{_removed(listing)}; left are:") if listing.removed else ""
    return sections.framed(f'<div class="kl-body">{gone}{table}</div>')


def listing_text(listing: Listing) -> str:
    """Return the same as aligned columns."""
    if not listing.rows:
        return _nothing(listing)
    table = [_COLUMNS, *(_cells(row, listing.now) for row in listing.rows)]
    widths = [max(len(cells[i]) for cells in table) for i in range(len(_COLUMNS))]
    lines = [f"{_removed(listing)}; left are:"] if listing.removed else []
    for cells, row in zip(table, (None, *listing.rows), strict=True):
        lines.append("  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip())
        lines += [f"    {note}" for note in (row.notes if row else ())]
    return "\n".join(lines)


def loaded_html(loaded: Loaded) -> str:
    """Return what was defined, then the source."""
    messages = [sections.message("kl-note kl-warn", words) for words in _missing(loaded)]
    source = f"<pre>{escape(loaded.source)}</pre>"
    return sections.framed(sections.section(sections.header(loaded.row.label, _facts(loaded)), *messages, source))


def loaded_text(loaded: Loaded) -> str:
    return "\n".join([f"{loaded.row.label}  {'; '.join(_facts(loaded))}", *_missing(loaded), "", loaded.source])


def age_words(seconds: float) -> str:
    """Return how long ago something was: ``3 minutes ago``."""
    for scale, word in _AGES:
        if seconds >= scale:
            return f"{wording.plural(int(seconds / scale), word)} ago"
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
    counts = [f"{row.launches:,}" if row.launches else uncounted, wording.plural(row.runs, "run") if row.runs else ""]
    return ", ".join(filter(None, counts))


def _time_words(row: VersionRow) -> str:
    """Return the best time where a GPU measured one; a time of the interpreter says nothing about the kernel."""
    return "" if row.best_ms is None else f"{wording.seconds_words(row.best_ms / 1e3)} ({row.where})"


def _html_row(row: VersionRow, now: float) -> str:
    first, *rest = _cells(row, now)
    cells = "".join(f"<td>{escape(cell)}</td>" for cell in rest)
    notes = "".join(f'<tr><td></td><td colspan="{len(rest)}">{escape(note)}</td></tr>' for note in row.notes)
    return f'<tr><th scope="row">{escape(first)}</th>{cells}</tr>{notes}'


def _facts(loaded: Loaded) -> list[str]:
    kernel, *helpers = loaded.names
    facts = [f"defined as {kernel}"]
    if helpers:
        facts.append(f"with {', '.join(helpers)}")
    if loaded.row.config:
        facts.append(loaded.row.config)
    if loaded.row.best_ms is not None:
        facts.append(_time_words(loaded.row))
    return facts


def _missing(loaded: Loaded) -> list[str]:
    return [f"{name} could not be kept and is left out" for name in loaded.missing]
