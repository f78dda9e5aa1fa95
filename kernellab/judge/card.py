"""The verdict of the judge as a card: the decision, its reasons, the times, and a table of the trials."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from kernellab.errors import plural, time_text
from kernellab.judge.verdict import Reason, Timing, Verdict, sizes_words
from kernellab.views.blocks import (
    Block,
    Card,
    Drawing,
    Fold,
    Heading,
    Message,
    Section,
    html_table,
    notes,
    table_of,
    wrap_lines,
)
from kernellab.views.elements import interval

_DIGITS = 12  # of a digest
_LINES_AT_MOST = 40


def verdict_card(verdict: Verdict) -> Card:
    """Return the decision with its reasons, and all that was tried."""
    blocks: list[Block] = [
        Message(reason_words(reason), "kl-alert", prefix=f"{verdict.verdict}: ") for reason in verdict.reasons
    ]
    blocks += [_times(verdict.timings), *notes(verdict.notes, prefix="note: ")]
    trials = table_of(
        {
            "sizes": lambda trial: sizes_words(trial.sizes),
            "inputs": lambda trial: f"{trial.inputs_words}{' (hidden)' if trial.is_hidden else ''}",
            "seed": lambda trial: str(trial.seed),
            "device": lambda trial: trial.device,
            "time": lambda trial: time_text(trial.seconds) if trial.seconds else "",
            "outcome": lambda trial: trial.outcome,
        },
        verdict.trials,
        left=("sizes", "inputs", "device", "outcome"),
        most_lines=_LINES_AT_MOST,
        rest_is="with --json",
    )
    counts = Counter(trial.outcome for trial in verdict.trials)
    outcomes = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
    blocks.append(Fold("Trials", [trials], outcomes, is_open=not verdict.is_accepted))
    blocks.append(Fold("Conditions", [_conditions(verdict)]))
    speedup = speedup_words(verdict)
    facts = (plural(len(verdict.trials), "trial"), speedup and f"speedup {speedup}", time_text(verdict.seconds))
    return Card([Section(Heading(f"{verdict.verdict}: {verdict.name}", [*filter(None, facts)]), blocks)])


def reason_words(reason: Reason) -> str:
    """Return a reason as a sentence with its rule, its line of the candidate and its trial."""
    file = None if reason.file is None else Path(reason.file).name
    place = file if file is None or reason.line is None else f"{file}, line {reason.line}"
    where = "; ".join(filter(None, (place, reason.trial)))
    return f"{reason.detail} [{reason.rule}{f'; {where}' if where else ''}]"


def trial_rows(verdict: Verdict) -> list[dict[str, Any]]:
    """Return a row per trial; without any, one row without values. Sizes are text: trials may have different ones."""
    names = ("sizes", "is_hidden", "layout", "distribution", "varied", "seed", "device", "seconds", "outcome")
    rows = [
        {**{name: getattr(trial, name) for name in names}, "sizes": sizes_words(trial.sizes)}
        for trial in verdict.trials
    ]
    return rows or [dict.fromkeys(names)]


def speedup_words(verdict: Verdict) -> str:
    """Return ``1.32x (1.30 - 1.34)``, or "" where nothing was compared."""
    if verdict.speedup is None:
        return ""
    bounds = interval(verdict.speedup_low, verdict.speedup_high)
    return f"{verdict.speedup:.3g}x{f' ({bounds})' if bounds else ''}"


def _times(timings: Sequence[Timing]) -> Block:
    def us(value: float | None) -> str:
        return "" if value is None else time_text(value / 1e6)

    return table_of(
        {
            "sizes": lambda timing: sizes_words(timing.sizes),
            "time": lambda timing: us(timing.time_us),
            "95 %": lambda timing: f"{us(timing.low_us)} - {us(timing.high_us)}",
            "baseline": lambda timing: us(timing.baseline_us),
            "speedup": lambda timing: "" if timing.speedup is None else f"{timing.speedup:.3g}x",
            "of it": lambda timing: interval(timing.speedup_low, timing.speedup_high),
            "roofline": lambda timing: us(timing.roofline_us),
            "remark": lambda timing: "launch overhead" if timing.is_launch_bound else "",
        },
        timings,
        left=("sizes", "remark"),
    )


def _conditions(verdict: Verdict) -> Block:
    conditions = {
        "kernels": ", ".join(verdict.kernels),
        "isolation": "; ".join(verdict.isolation),
        "seed": str(verdict.seed),
        "sizes of the call": "; ".join(map(sizes_words, verdict.options.sizes or ())),
        "specification": verdict.specification[:_DIGITS],
        "candidate": verdict.candidate[:_DIGITS],
        "environment": ", ".join(f"{name} {version}" for name, version in verdict.environment),
        "nonce": verdict.nonce,
        "signature": f"{verdict.signature[:_DIGITS]}..." if verdict.signature else "not signed",
    }
    rows = [(name, words) for name, words in conditions.items() if words]

    def table() -> str:
        return html_table(
            f'<tr><th scope="row">{escape(name)}</th><td style="text-align:left">{escape(words)}</td></tr>'
            for name, words in rows
        )

    return Drawing(table, lambda width: wrap_lines([f"{name}: {words}" for name, words in rows], width))
