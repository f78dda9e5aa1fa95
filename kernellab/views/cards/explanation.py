"""The times of a launch as cards: why it takes so long, where its samples fall, what it is predicted to take."""

from __future__ import annotations

import linecache
import math
from collections.abc import Callable, Mapping
from html import escape

from kernellab.errors import plural, share_text, time_text
from kernellab.explain.causes import Cause, PerformanceFinding
from kernellab.explain.explanation import Explanation
from kernellab.explain.prediction import Prediction
from kernellab.explain.profile import Counters, LineSamples, Profile, calls_text
from kernellab.ir.graph import short_file
from kernellab.views.blocks import (
    WARNING,
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
    text_only,
    wrap_lines,
    wrap_text,
)
from kernellab.views.elements import dim, grid_words, longest_times, prediction_sentence, share_bar
from kernellab.views.explorers import explorer_html, heat_of, reasons_words
from kernellab.views.palette import BLUE, GREEN, GREY, ORANGE, PURPLE, WHITE, YELLOW


def explanation_card(explanation: Explanation, *, uid: str = "") -> Card:
    """Return the limit of a launch and its findings; ``uid`` is unique on a page."""
    blocks, profile = answer_blocks(explanation), explanation.profile
    if profile is not None and profile.samples:
        blocks.append(Fold("Samples", [Drawing(profile_card(profile, uid=uid).html)]))
    return Card([Section(Heading(explanation.kernel, [explanation.target, explanation.facts.device.name]), blocks)])


def answer_blocks(explanation: Explanation) -> list[Block]:
    """Return the summary, the findings, the time of each unit, and what is not known."""
    terms = {str(unit): seconds for unit, seconds in explanation.times.terms.items()}
    facts = explanation.facts
    total_s = max(facts.time_s or explanation.times.total, 1e-12)
    return [
        Message(explanation.summary),
        *(_finding_block(number, finding, explanation) for number, finding in enumerate(explanation.findings, 1)),
        *([Drawing(lambda: terms_table(terms, total_s))] if facts.has_time else []),
        *(Message(reason, "kl-dim", prefix="note: ") for reason in explanation.unknown),
    ]


def gain_words(finding: PerformanceFinding) -> str:
    """Return ``estimated speedup 1.3-2.4x``; the larger factor is rounded down."""
    low, high = map(_factor_text, finding.gain)
    if finding.cause is Cause.LAUNCH:
        return f"at most {high}x"
    return f"estimated speedup {low}-{high}x" if finding.gain[0] >= 1.1 else f"estimated speedup up to {high}x"


def _factor_text(factor: float) -> str:
    """Return a factor with two digits, rounded down: ``1.08``, ``1.3``, ``24``."""
    digits = 2 if factor < 1.1 else 1 if factor < 10 else 0
    return f"{math.floor(factor * 10**digits) / 10**digits:g}"


def _finding_block(number: int, finding: PerformanceFinding, explanation: Explanation) -> Block:
    """Return one finding: cause and estimated speedup, its source line, evidence and what to change."""
    code = _source(finding, explanation)
    cause = f"{number}. {finding.cause[0].upper()}{finding.cause[1:]}"

    def lines(width: int) -> list[str]:
        head = f"{cause}: {gain_words(finding)}"
        return [*wrap_text(head, width), *wrap_lines(filter(None, [code, finding.text]), width, "   ")]

    def html() -> str:
        shown = f'<pre class="kl-pre">{escape(code)}</pre>' if code else ""
        title = f"<b>{escape(cause)}</b> {dim(gain_words(finding))}"
        return f'<div class="kl-why"><p>{title}</p>{shown}<p>{escape(finding.text)}</p></div>'

    return Drawing(html, lines)


def _source(finding: PerformanceFinding, explanation: Explanation) -> str:
    if finding.line is None or not explanation.file:
        return ""
    text = linecache.getline(explanation.file, finding.line).strip()
    return f"{finding.line}  {text}" if text else ""


_LINES = 12
_COLOURS = (ORANGE, BLUE, GREEN, PURPLE, YELLOW, GREY)


def profile_card(profile: Profile, *, uid: str = "") -> Card:
    """Return why there are no samples, or the remarks, the stall reasons, the leading lines, and the explorer.

    ``uid`` is unique on a page.
    """
    blocks: list[Block] = [Message(profile.refused, WARNING)] if profile.refused else []
    counters = [] if profile.counters is None else [counters_words(profile.counters)]
    blocks += notes([*counters, *profile.notes])
    if profile.samples:
        lines = [line for line in profile.lines[:_LINES] if line.samples]
        tips = [reasons_words(line.reasons) for line in lines]
        table = table_of(_COLUMNS, lines, tips=tips, left=("line", "main stall", "called from"))
        blocks += [Drawing(lambda: _reasons_bar(profile)), text_only([reasons_words(profile.reasons)]), table]
    compiled, heat = profile.compiled, heat_of(profile)
    if compiled is not None and heat is not None:
        explorer = Drawing(lambda: explorer_html(compiled, opened="sass", uid=f"profile {uid}", heat=heat))
        blocks.append(Fold("Source and stages", [explorer], "share of the samples by line", is_open=True))
    return Card([Section(Heading(profile.kernel, profile_facts(profile)), blocks)])


def profile_facts(profile: Profile) -> list[str]:
    """Return device, samples and time for the title line."""
    if not profile.samples:
        return [profile.target, profile.device or "no GPU", f"grid {grid_words(profile.grid)}"]
    many = f"{profile.samples:,} samples of {plural(profile.launches, 'launch')}"
    return [profile.device, f"grid {grid_words(profile.grid)}", many, f"in {time_text(profile.seconds)}"]


def counters_words(counters: Counters) -> str:
    """Return a sentence on the counters: shares of the hardware's peak rates."""
    named = {"HBM": counters.dram, "L2": counters.l2, "tensor cores": counters.tensor}
    named["SMs"] = counters.multiprocessor
    shares = [f"{name} {share_text(share)}" for name, share in named.items() if share is not None]
    return f"Share of peak, by counters: {', '.join(shares)}." if shares else "The counters are empty."


def _reasons_bar(profile: Profile) -> str:
    total, parts = profile.samples, []
    for index, (stall, count) in enumerate(profile.reasons.items()):
        share = count / total
        if share >= 0.01:
            colour = _COLOURS[min(index, len(_COLOURS) - 1)]
            tip = f"{stall}, {share_text(share)}: {stall.about}"
            label = f"{stall} {share_text(share)}" if share > 0.08 else ""
            style = f"flex:{share:.4f} 1 0;background:{colour};color:{WHITE};padding:1px 5px;overflow:hidden"
            parts.append(f'<span style="{style};white-space:nowrap" title="{escape(tip)}">{escape(label)}</span>')
    style = "display:flex;gap:1px;margin:6px 0;border-radius:4px;overflow:hidden;font-size:11px"
    return f'<div style="{style}">{"".join(parts)}</div>'


_COLUMNS: dict[str, Callable[[LineSamples], str]] = {
    "line": lambda line: "unknown" if line.line is None else f"{short_file(line.file)}:{line.line}",
    "share": lambda line: share_text(line.share.value),
    "interval": lambda line: f"{share_text(line.share.low)} - {share_text(line.share.high)}",
    "main stall": lambda line: "" if line.main is None else str(line.main),
    "called from": lambda line: calls_text(tuple((short_file(file), number) for file, number in line.calls)),
}


_LEAST_SHOWN = 0.02  # of the time of the launch


def prediction_card(prediction: Prediction) -> Card:
    """Return the predicted time of a launch with its terms."""
    terms, total_s = {name: ms / 1e3 for name, ms in prediction.terms.items()}, prediction.time_ms / 1e3
    lines = [f"  {name:<20}{time_text(seconds):>9}" for name, seconds in longest_times(terms, _LEAST_SHOWN * total_s)]
    blocks: list[Block] = [
        Message(prediction_sentence(prediction)),
        Drawing(lambda: terms_table(terms, total_s), lambda width: lines),
        *notes(prediction.unknown),
    ]
    return Card([Section(Heading(prediction.kernel, [prediction.device, prediction.target]), blocks)])


def terms_table(terms: Mapping[str, float], total_s: float) -> str:
    """Return the seconds that each unit would take alone as a table, with its share of the launch."""
    rows = (
        f'<tr><th scope="row">{escape(name)}</th><td>{time_text(seconds)}</td>'
        f"<td>{share_bar(min(1.0, seconds / total_s))}</td></tr>"
        for name, seconds in longest_times(terms, _LEAST_SHOWN * total_s)
    )
    return html_table(rows, [f'<th scope="col">{name}</th>' for name in ("unit", "time alone", "of the launch")])
