"""Launches beside their baselines, as a table for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from kernellab.benchmark.baselines import RESOURCES, BaselineComparison
from kernellab.views.elements import Table, interval, number

_HEAD = (
    "test",
    "kernel",
    "baseline",
    "device",
    "ms",
    "interval",
    "was",
    "change",
    "registers",
    "spills",
    "shared",
    "verdict",
)


def comparison_text(comparison: BaselineComparison) -> str:
    """Return the table of one comparison, then what failed and what is worth knowing, a line each."""
    failed = [f"failed: {line}" for line in comparison.failures]
    return "\n".join([*table_lines([cells(comparison)]), *failed, *(f"note: {line}" for line in comparison.notes)])


def table_lines(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows of `cells` as the lines of a table, the head first, without empty columns."""
    return Table(_HEAD, rows).filled().text()


def cells(comparison: BaselineComparison, test: str = "") -> tuple[str, ...]:
    """Return the row of a comparison, that of a ``test`` if it is named."""
    now, before = comparison.now, comparison.before
    was = None if before is None else before.time_ms
    change = "" if was is None or now.time_ms is None else f"{now.time_ms / was - 1:+.1%}"
    times = (number(now.time_ms, ".4g"), interval(now.low_ms, now.high_ms), number(was, ".4g"), change)
    needs = [_beside(getattr(now, name), getattr(before, name, None)) for name in RESOURCES]
    verdict = "written" if before is None else "failed" if comparison.failures else "ok"
    return (test, now.kernel, comparison.name, now.device, *times, *needs, verdict)


def _beside(now: int | None, before: int | None) -> str:
    if now is None:
        return ""
    return f"{now:,}" if before in (None, now) else f"{now:,} (was {before:,})"
