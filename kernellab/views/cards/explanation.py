"""Why a launch takes as long as it does, as a card: what limits it, what to change, the time of each unit alone.

And where the time goes: what the warps were about, the leading lines, the explorer with its heat.
"""

from __future__ import annotations

import linecache
from collections.abc import Iterator
from html import escape

from kernellab.errors import plural
from kernellab.explain.explanation import Explanation, PerformanceFinding, evidence_words
from kernellab.explain.profile import Counters, LineSamples, Profile, calls_text
from kernellab.ir.graph import short_file
from kernellab.views.elements import (
    Table,
    body,
    details,
    dim,
    framed,
    grid_words,
    header,
    message,
    percent,
    seconds_words,
    section,
    share_bar,
    warning,
)
from kernellab.views.explorers import explorer_html, heat_of, reasons_words

_LEAST_SHOWN = 0.02
_GAP = "  "


def explanation_html(explanation: Explanation, *, uid: str = "") -> str:
    """Return the card; ``uid`` has to differ between the cards of one page."""
    parts = [answer_html(explanation)]
    if explanation.profile is not None and explanation.profile.samples:
        parts.append(details("Samples", profile_html(explanation.profile, uid=f"why {uid}")))
    return framed(section(header(explanation.kernel, _facts(explanation)), *parts))


def answer_html(explanation: Explanation) -> str:
    """Return the answer without a frame: the summary, the findings, the units and what is not known."""
    parts = [message("kl-note", explanation.summary)]
    parts += [_finding_html(number, each, explanation) for number, each in enumerate(explanation.findings, 1)]
    parts.append(_units(explanation))
    parts += [f'<p class="kl-dim">{escape(told)}</p>' for told in explanation.unknown]
    return body(*parts)


def explanation_text(explanation: Explanation) -> str:
    """Return the same as lines for a terminal."""
    return "\n".join([_GAP.join([explanation.kernel, *_facts(explanation)]), *answer_lines(explanation)])


def answer_lines(explanation: Explanation) -> list[str]:
    """Return the answer as lines of text: the summary, the findings and what is not known."""
    lines = [explanation.summary]
    for number, each in enumerate(explanation.findings, 1):
        lines.append(f"{number}. {each.cause}, {gain_words(each)}: {each.text}")
        lines += [f"   {code}" for code in [_source(each, explanation)] if code]
        lines.append(f"   ({evidence_words(each.evidence)})")
    return [*lines, *(f"not known: {told}" for told in explanation.unknown)]


def _facts(explanation: Explanation) -> list[str]:
    """Return the facts beside the name."""
    facts = explanation.facts
    took = facts.time_s if facts.time_s is not None else explanation.times.total
    how = "" if facts.time_s is not None else " by the model"
    return [facts.device.name, f"{seconds_words(took)}{how}", f"limited by {explanation.bound}"]


def gain_words(finding: PerformanceFinding) -> str:
    """Return ``1.3 to 2.4 times faster``."""
    low, high = finding.gain
    return f"up to {high:.3g} times faster" if low < 1.01 else f"{low:.3g} to {high:.3g} times faster"


def _finding_html(number: int, finding: PerformanceFinding, explanation: Explanation) -> str:
    code = _source(finding, explanation)
    shown = f'<pre class="kl-pre">{escape(code)}</pre>' if code else ""
    title = f"<b>{number}. {escape(str(finding.cause))}</b> {dim(gain_words(finding))}"
    figures = f'<span class="kl-dim"> ({escape(evidence_words(finding.evidence))})</span>'
    return f'<div class="kl-why"><p>{title}</p>{shown}<p>{escape(finding.text)}{figures}</p></div>'


def _source(finding: PerformanceFinding, explanation: Explanation) -> str:
    """Return the line that a finding is about, with its number."""
    if finding.line is None or not explanation.file:
        return ""
    text = linecache.getline(explanation.file, finding.line).strip()
    return f"{finding.line}  {text}" if text else ""


def _units(explanation: Explanation) -> str:
    """Return the time of each unit as bars."""
    times = explanation.times
    total = max(explanation.facts.time_s or times.total, 1e-12)
    units = sorted(times.units.items(), key=lambda pair: -pair[1])
    rows = "".join(
        f'<tr><th scope="row">{escape(str(unit))}</th><td>{seconds_words(seconds)}</td>'
        f"<td>{share_bar(min(1.0, seconds / total))}</td></tr>"
        for unit, seconds in units
        if seconds > _LEAST_SHOWN * total
    )
    return f'<table class="kl-args"><tbody>{rows}</tbody></table>'


_LINES = 12
_COLOURS = ("#e06c12", "#3b82c4", "#3f9a57", "#9060c0", "#c0a020", "#8a8f98")


def profile_html(profile: Profile, *, uid: str = "") -> str:
    """Return the card; ``uid`` has to differ between the cards of one page."""
    parts = [warning(profile.refused)] if profile.refused else []
    parts += [message("kl-note", told) for told in _remarks(profile)]
    if profile.samples:
        parts += [_reasons_bar(profile), _table(profile).html(left=("line", "mostly", "called from"))]
    heat = heat_of(profile)
    if profile.compiled is not None and heat is not None:
        explorer = explorer_html(profile.compiled, opened="sass", uid=f"profile {uid}", heat=heat)
        parts.append(details("Source and stages", explorer, "the share of the samples beside each line", is_open=True))
    return framed(section(header(profile.kernel, profile_facts(profile)), *parts))


def profile_text(profile: Profile) -> str:
    """Return the same as lines for a terminal."""
    lines = [_GAP.join([profile.kernel, *profile_facts(profile)]), *filter(None, [profile.refused]), *_remarks(profile)]
    if profile.samples:
        lines += [reasons_words(profile.reasons), *_table(profile).text()]
    return "\n".join(lines)


def profile_facts(profile: Profile) -> list[str]:
    """Return the facts beside the name."""
    if not profile.samples:
        return [profile.target, profile.device or "no GPU", f"grid {grid_words(profile.grid)}"]
    many = f"{profile.samples:,} samples of {plural(profile.launches, 'launch')}"
    return [profile.device, f"grid {grid_words(profile.grid)}", many, f"in {seconds_words(profile.seconds)}"]


def _remarks(profile: Profile) -> Iterator[str]:
    if profile.counters is not None:
        yield counters_words(profile.counters)
    yield from profile.notes


def counters_words(counters: Counters) -> str:
    """Return what was counted as a sentence: the shares of what the hardware can do."""
    named = {"DRAM": counters.dram, "L2": counters.l2, "tensor cores": counters.tensor}
    named["multiprocessors"] = counters.multiprocessor
    shares = [f"{name} {percent(share)}" for name, share in named.items() if share is not None]
    return f"Counted: of what they can do, {', '.join(shares)}." if shares else "The counters said nothing."


def _reasons_bar(profile: Profile) -> str:
    """Return what the warps were about as one bar."""
    total, parts = profile.samples, []
    for index, (stall, count) in enumerate(profile.reasons.items()):
        share = count / total
        if share >= 0.01:
            colour = _COLOURS[min(index, len(_COLOURS) - 1)]
            tip = f"{stall}, {percent(share)}: {stall.about}"
            label = f"{stall} {percent(share)}" if share > 0.08 else ""
            style = f"flex:{share:.4f} 1 0;background:{colour};color:#fff;padding:1px 5px;overflow:hidden"
            parts.append(f'<span style="{style};white-space:nowrap" title="{escape(tip)}">{escape(label)}</span>')
    style = "display:flex;gap:1px;margin:6px 0;border-radius:4px;overflow:hidden;font-size:11px"
    return f'<div style="{style}">{"".join(parts)}</div>'


def _table(profile: Profile) -> Table:
    head = ("line", "share", "between", "mostly", "called from")
    shown = [line for line in profile.lines[:_LINES] if line.samples]
    tips = [reasons_words(line.reasons) for line in shown]
    return Table(head, [_row(line) for line in shown], tips).filled()


def _row(line: LineSamples) -> tuple[str, ...]:
    place = "not known" if line.line is None else f"{short_file(line.file)}:{line.line}"
    bounds = f"{percent(line.share.low)} - {percent(line.share.high)}"
    calls = calls_text(tuple((short_file(file), number) for file, number in line.calls))
    return (place, percent(line.share.value), bounds, "" if line.main is None else str(line.main), calls)
