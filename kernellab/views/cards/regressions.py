"""What became slower or faster, as a table: launches with the change that did it, and why others cannot be compared."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from kernellab.errors import plural
from kernellab.registry.kept_times import KeptTime
from kernellab.registry.regressions import FASTEST, ChangedTime, Regressions, TimeChange
from kernellab.views.elements import Table, body, framed, interval, message, number

_HEAD = ("kernel", "launch", "device", "became", "ratio", "interval", "before ms", "ms", "by", "config", "why")
_QUIET = {TimeChange.SAME, TimeChange.INCOMPARABLE}


def regressions_text(found: Regressions) -> str:
    """Return the launches that changed as aligned columns, below what became of all of them."""
    rows = shown(found)
    return "\n".join(
        [_first(found), *(Table(_HEAD, [*map(_cells, rows)]).filled().text() if rows else ()), *_rest(found)]
    )


def regressions_html(found: Regressions) -> str:
    """Return the same as a card."""
    rows = shown(found)
    aligned = dict.fromkeys(set(_HEAD) - {"ratio", "interval", "before ms", "ms"}, "left")
    table = Table(_HEAD, [*map(_cells, rows)]).filled().html(aligned) if rows else ""
    return framed(body(message("kl-note", _first(found)), table, *(message("kl-dim", line) for line in _rest(found))))


def shown(found: Regressions) -> list[ChangedTime]:
    """Return the rows of the table: launches that changed, or of which more samples would tell."""
    return [row for row in found.rows if row.config == FASTEST and row.became not in _QUIET]


def _first(found: Regressions) -> str:
    if not found.rows:
        return (
            f"No launch of {found.kernel or 'any kernel'} is known under several versions of Triton, driver or kernel."
        )
    return f"Of each launch, its fastest configs before and after a change: {found.text}."


def _rest(found: Regressions) -> list[str]:
    """Return lines on what the table leaves out: single configs, and what cannot be compared, by reason."""
    alone = Counter(row.became for row in found.rows if row.config != FASTEST and row.became not in _QUIET)
    counts = ", ".join(f"{alone[kind]} {kind}" for kind in TimeChange if alone[kind])
    lines = [f"Single configs: {counts}; .frame has them."] if counts else []
    reasons: dict[str, list[ChangedTime]] = {}
    for row in found.rows:
        if row.config == FASTEST and row.became is TimeChange.INCOMPARABLE:
            reasons.setdefault(row.reason, []).append(row)
    return [*lines, *(f"Not compared, {_which(rows)}: {reason}." for reason, rows in reasons.items())]


def _which(rows: Sequence[ChangedTime]) -> str:
    first = f"{rows[0].kernel} ({rows[0].launch})" if rows[0].launch else rows[0].kernel
    return first if len(rows) == 1 else f"{plural(len(rows), 'launch')}, such as {first}"


def _cells(row: ChangedTime) -> tuple[str, ...]:
    ratio = row.ratio
    return (
        row.kernel,
        row.launch,
        row.device,
        str(row.became),
        "" if ratio is None else f"{ratio.median:.3f}",
        "" if ratio is None else interval(ratio.low, ratio.high),
        _time(row.before),
        _time(row.after),
        row.by,
        _configs(row),
        row.reason,
    )


def _time(kept: KeptTime | None) -> str:
    return "" if kept is None else number(kept.time_ms, ".4g")


def _configs(row: ChangedTime) -> str:
    """Return the config, or what it was and is."""
    was, now = (kept.words if kept is not None else "" for kept in (row.before, row.after))
    return now if was in ("", now) else f"{now} (was {was})"
