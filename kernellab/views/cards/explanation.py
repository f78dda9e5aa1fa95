"""An explanation as a card: what limits the launch, what to change, and the time of each unit if it worked alone."""

from __future__ import annotations

import linecache
from collections.abc import Iterator
from html import escape

from kernellab.explain.result import Explanation, PerformanceFinding, evidence_words
from kernellab.views.cards.profile import profile_html
from kernellab.views.elements import body, details, dim, framed, header, message, seconds_words, section

_LEAST_SHOWN = 0.02
_GAP = "  "


def explanation_html(explanation: Explanation, *, uid: str = "") -> str:
    """Return the card; ``uid`` has to differ between the cards of one page."""
    parts = [answer_html(explanation)]
    if explanation.profile is not None and explanation.profile.samples:
        parts.append(details("Samples", profile_html(explanation.profile, uid=f"why {uid}")))
    return framed(section(header(explanation.kernel, words(explanation)), *parts))


def answer_html(explanation: Explanation) -> str:
    """Return the answer without a frame: the summary, the findings, the units and what is not known."""
    parts = [message("kl-note", explanation.summary)]
    parts += [_finding_html(number, each, explanation) for number, each in enumerate(explanation.findings, 1)]
    parts.append(_units(explanation))
    parts += [f'<p class="kl-dim">{escape(told)}</p>' for told in explanation.unknown]
    return body(*parts)


def explanation_text(explanation: Explanation) -> str:
    """Return the same as lines for a terminal."""
    return "\n".join([_GAP.join([explanation.kernel, *words(explanation)]), *answer_lines(explanation)])


def answer_lines(explanation: Explanation) -> list[str]:
    """Return the answer as lines of text: the summary, the findings and what is not known."""
    lines = [explanation.summary]
    for number, each in enumerate(explanation.findings, 1):
        lines.append(f"{number}. {each.cause}, {gain_words(each)}: {each.text}")
        lines += [f"   {code}" for code in [_source(each, explanation)] if code]
        lines.append(f"   ({evidence_words(each.evidence)})")
    return [*lines, *(f"not known: {told}" for told in explanation.unknown)]


def words(explanation: Explanation) -> list[str]:
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
    return "".join(_bars(explanation))


def _bars(explanation: Explanation) -> Iterator[str]:
    times = explanation.times
    total = max(explanation.facts.time_s or times.total, 1e-12)
    units = sorted(times.units.items(), key=lambda pair: -pair[1])
    shown = [(unit, seconds) for unit, seconds in units if seconds > _LEAST_SHOWN * total]
    yield '<table class="kl-args"><tbody>'
    for unit, seconds in shown:
        width = f"{min(1.0, seconds / total):.0%}"
        bar = f'<span class="kl-bar"><i style="width:{width}"></i></span>'
        yield f'<tr><th scope="row">{escape(str(unit))}</th><td>{seconds_words(seconds)}</td><td>{bar}</td></tr>'
    yield "</tbody></table>"
