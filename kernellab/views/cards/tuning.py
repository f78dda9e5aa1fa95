"""What a tuning shows: the plot and a table of its configs as HTML, the table alone as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from kernellab.measure.outcomes import UNMEASURED, Status
from kernellab.tune.result import Tuning
from kernellab.views.cards import card as sections
from kernellab.views.figures.canvas import picture
from kernellab.views.figures.roofline import roofline_figure
from kernellab.views.figures.tuning import config_text, parameters_figure, timings_figure, varying

_ROWS = 12
_MOST_FAILURES = 6
_FINE = {Status.OK, *UNMEASURED}
_HEAD = ("rank", "config", "ms", "interval", "registers", "spills", "shared", "occupancy", "status")


def tuning_text(tuning: Tuning) -> str:
    """Return the summary and the best configs as a table for a terminal."""
    names = varying(tuning.frame)
    lines = _lines(tuning, _order(tuning)[:_ROWS], names)
    shown = _filled(lines)
    lines = [tuple(line[i] for i in shown) for line in [_HEAD, *lines]]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    table = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
    rest = len(tuning.rows) - len(lines) + 1
    more = [f"... and {rest} more in .frame"] if rest > 0 else []
    ends = [*more, *_failures(tuning), *_left_out(tuning), *tuning.notes]
    return "\n".join([summary(tuning), *map(str.rstrip, table), *ends])


def tuning_html(tuning: Tuning) -> str:
    """Return a card: summary, plots and table; the pictures are part of the text, in a light and a dark version."""
    frame = tuning.frame
    parts = [sections.message("kl-note" if tuning.winner is not None else "kl-note kl-warn", summary(tuning))]
    if frame["registers"].notna().any() or frame["rank"].notna().any():
        parts.append(picture(lambda dark: timings_figure(frame, dark=dark), "times of the configs"))
    else:  # a picture would be empty but for its failures, cut short
        parts += [f"<div>{escape(line)}</div>" for line in _failures(tuning)]
    if parameters_figure(frame) is not None and len(tuning.rows) > 4:
        parts.append(picture(lambda dark: parameters_figure(frame, dark=dark), "times by parameter"))
    parts.append(picture(lambda dark: roofline_figure(frame, dark=dark), "configs under the roofs of the device"))
    parts.append(_table(tuning))
    parts += [sections.message("kl-note", note) for note in (*_left_out(tuning), *tuning.notes)]
    where = tuning.provenance.get("device") or f"{tuning.provenance.get('target', '')}, no GPU"
    words = [_count(len(tuning.rows)), str(where), "from the store" if tuning.from_cache else f"{tuning.seconds:.2f} s"]
    return sections.framed(sections.section(sections.header(tuning.kernel, words), *parts))


def summary(tuning: Tuning) -> str:
    """Return one sentence: what was tuned, how long it took, and what won."""
    if tuning.winner is None:
        is_wrong = any(row.status is Status.WRONG and row.checked for row in tuning.rows)
        what = "agrees with the reference" if is_wrong else "works"
        return f"{tuning.kernel}: none of {_count(len(tuning.rows))} {what}"
    row = tuning.rows[tuning.winner]
    how = "from the store" if tuning.from_cache else f"in {tuning.seconds:.2f} s"
    if row.time_ms is None:
        compiled = sum(row.status not in _FINE or row.compile_s is not None for row in tuning.rows)
        part = f"{compiled} of " if compiled < len(tuning.rows) else ""
        many = _count(len(tuning.rows))
        return f"{tuning.kernel}: {part}{many} compiled {how}; the first that fits is {row.config.text}"
    ties = f", tied with {len(tuning.ties)}" if tuning.ties else ""
    best = f"best is {row.config.text} at {row.time_ms:.4g} ms{ties}"
    return f"{tuning.kernel}: {_count(len(tuning.rows))} {how}; {best}"


def _count(configs: int) -> str:
    return f"{configs} config{'s' if configs != 1 else ''}"


def _order(tuning: Tuning) -> list[int]:
    """Return the rows by rank; of those without one, what could run comes before what went wrong."""
    ranks = tuning.frame["rank"].fillna(len(tuning.rows)).tolist()
    went_wrong = [row.status not in _FINE for row in tuning.rows]
    return sorted(range(len(tuning.rows)), key=lambda index: (ranks[index], went_wrong[index], index))


def _lines(tuning: Tuning, order: Sequence[int], names: Sequence[str]) -> list[tuple[str, ...]]:
    shown = tuning.frame[[*names, "rank"]]
    shown.attrs = {}  # pandas copies them for every row that is taken
    values = shown.to_dict("records")
    return [_cells(tuning, index, values[index], names) for index in order]


def _cells(tuning: Tuning, index: int, values: Mapping[str, Any], names: Sequence[str]) -> tuple[str, ...]:
    row = tuning.rows[index]
    mark = " *" if index == tuning.winner and row.time_ms is not None else " =" if index in tuning.ties else ""
    return (
        "" if row.time_ms is None or row.status != "ok" else f"{values['rank']}{mark}",
        config_text(values, names) or row.config.text,
        _number(row.time_ms, "{:.4g}"),
        "" if row.low_ms is None or row.high_ms is None else f"{row.low_ms:.4g} - {row.high_ms:.4g}",
        _number(row.registers, "{}"),
        _number(row.spill_bytes, "{}"),
        _number(row.shared_bytes, "{:,}"),
        _number(row.occupancy, "{:.0%}"),
        str(row.status),
    )


def _table(tuning: Tuning) -> str:
    names, order = varying(tuning.frame), _order(tuning)
    lines = _lines(tuning, order, names)
    shown = _filled(lines)
    head = "".join(f'<th scope="col" style="{_align(i)}">{escape(_HEAD[i])}</th>' for i in shown)
    rows = [
        f'<tr title="{escape(tuning.rows[index].reason)}">'
        + "".join(f'<td style="{_align(i)}">{escape(line[i])}</td>' for i in shown)
        + "</tr>"
        for index, line in zip(order, lines, strict=True)
    ]
    count = len(tuning.rows)
    is_open = " open" if count <= _ROWS else ""
    table = f'<table class="kl-args"><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table>'
    return f"<details{is_open}><summary>{count} configs</summary>{table}</details>"


def _filled(lines: Sequence[Sequence[str]]) -> list[int]:
    """Return the columns that say something: without a GPU there are neither ranks nor times."""
    return [i for i, name in enumerate(_HEAD) if name == "config" or any(line[i] for line in lines)]


def _align(column: int) -> str:
    return "text-align:left" if _HEAD[column] in {"config", "status"} else "text-align:right"


def _failures(tuning: Tuning) -> list[str]:
    """Return a line per config that went wrong; of many, one per reason."""
    failed = [row for row in tuning.rows if row.status not in _FINE]
    if len(failed) <= _MOST_FAILURES:
        return [f"{row.status}: {row.config.text}: {row.reason}" for row in failed]
    counts = Counter((row.status, row.reason) for row in failed).most_common()
    first = {(row.status, row.reason): row.config.text for row in reversed(failed)}
    lines = [
        f"{status}: {count} configs, the first {first[status, reason]}: {reason}"
        for (status, reason), count in counts[:_MOST_FAILURES]
    ]
    rest = sum(count for _, count in counts[_MOST_FAILURES:])
    return [*lines, f"... and {rest} more that went wrong"] if rest else lines


def _left_out(tuning: Tuning) -> list[str]:
    """Return a line per reason for which configs were not measured; that there is no GPU, a note says."""
    left = [row for row in tuning.rows if row.status in UNMEASURED and row.compile_s is None and row.reason]
    counts = Counter((row.status, row.reason) for row in left).most_common()
    return [f"{status}: {_count(count)}: {reason}" for (status, reason), count in counts]


def _number(value: float | None, pattern: str) -> str:
    return "" if value is None else pattern.format(value)
