"""A merge as a table: launches with their fastest configs, by device, driver, Triton and version; what disagrees."""

from __future__ import annotations

from kernellab.errors import plural
from kernellab.export.merging import Conflict, Disagreement, Merged, MergedRow
from kernellab.registry.kept_times import KeptTime
from kernellab.views.elements import Table, body, framed, interval, message, number, warning

_HEAD = (
    *("kernel", "launch", "device", "driver", "Triton", "version", "fastest", "ms", "interval", "configs"),
    *("measured", "conflict"),
)
_NUMBERS = ("ms", "interval", "configs")


def merged_text(merged: Merged) -> str:
    """Return what came, the table of all that is known of its kernels, and a line per conflict."""
    rows = [*map(_cells, merged.rows)]
    table = Table(_HEAD, rows).filled().text() if rows else []
    return "\n".join([_first(merged), *table, *(f"conflict: {conflict_words(each)}" for each in merged.conflicts)])


def merged_html(merged: Merged) -> str:
    """Return the same as a card."""
    rows = [*map(_cells, merged.rows)]
    table = Table(_HEAD, rows).filled().html(dict.fromkeys(set(_HEAD) - set(_NUMBERS), "left")) if rows else ""
    return framed(body(message("kl-note", _first(merged)), table, *map(warning, map(conflict_words, merged.conflicts))))


def conflict_words(conflict: Conflict) -> str:
    """Return a conflict as a sentence: who measured what, and what differs."""
    here, there = conflict.here, conflict.there
    launch = f"{here.launch.kernel} ({conflict.launch})" if conflict.launch else here.launch.kernel
    if conflict.kind is Disagreement.CHOICE:
        return (
            f"{launch}: {here.words} is the fastest here ({_time(here)}), {there.words} there ({_time(there)}); "
            f"what differs: {conflict.by}."
        )
    where = f"{here.launch.device}, driver {here.conditions.driver}, Triton {here.conditions.triton}, {here.version}"
    more = "" if conflict.ratio is None else f", {conflict.ratio.median:.3g} times as long"
    return f"{launch}, {here.words}: {_time(here)} here, {_time(there)} there{more}; both on {where}."


def _first(merged: Merged) -> str:
    new, known = plural(merged.new, "measurement"), f"{merged.known:,}"
    conflicts = plural(len(merged.conflicts), "conflict") if merged.conflicts else "no conflict"
    versions = ", ".join(merged.versions) or "no kernel"
    return f"{merged.source}: {versions}; {new} entered, {known} known before, {conflicts}."


def _cells(row: MergedRow) -> tuple[str, ...]:
    return (
        row.kernel,
        row.launch,
        row.device,
        row.driver,
        row.triton,
        row.version,
        row.config if row.status == "ok" else row.status,
        number(row.time_ms, ".4g"),
        interval(row.low_ms, row.high_ms),
        str(row.configs),
        str(row.origin),
        row.conflict,
    )


def _time(kept: KeptTime) -> str:
    return str(kept.status) if kept.time_ms is None else f"{kept.time_ms:.4g} ms"
