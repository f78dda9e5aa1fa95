"""A comparison of two kernels, as text and as HTML."""

from __future__ import annotations

from html import escape

from kernellab.comparing import Comparison
from kernellab.views import sections, wording
from kernellab.views.diff import diff_html, diff_text


def comparison_text(comparison: Comparison) -> str:
    """Return what differs: effects, outputs, time, then resources and source."""
    left, right = comparison.compiled
    lines = [words for _, words in _facts(comparison)]
    if left is not None and right is not None:
        return "\n".join([*lines, diff_text(left, right, names=comparison.names, sources=comparison.sources)])
    return "\n".join([*lines, comparison.source_diff])


def comparison_html(comparison: Comparison) -> str:
    """Return the same as a card."""
    left, right = comparison.compiled
    notes = [sections.message(f"kl-note {style}".strip(), words) for style, words in _facts(comparison)]
    if left is not None and right is not None:
        body = diff_html(left, right, names=comparison.names, sources=comparison.sources)
    else:
        body = f"<pre>{escape(comparison.source_diff)}</pre>"
    heading = sections.header(f"{comparison.names[0]} and {comparison.names[1]}", [])
    return sections.framed(sections.section(heading, *notes, body))


def timing_words(comparison: Comparison) -> str:
    """Return the verdict in one sentence, with the interval that it rests on."""
    one, two = comparison.names
    timing = comparison.timing
    if timing is None:
        return f"Not timed: {comparison.why_no_timing}."
    times = f"{wording.seconds_words(timing.left_ms / 1e3)} and {wording.seconds_words(timing.right_ms / 1e3)}"
    bounds = f"{timing.low:.3f} to {timing.high:.3f} times as long, 99 % interval of {timing.rounds} interleaved rounds"
    if timing.verdict == "no difference":
        return f"{two} and {one} take the same time ({times}; {bounds})."
    return f"{two} is {timing.verdict} than {one} ({times}; {bounds})."


def _facts(comparison: Comparison) -> list[tuple[str, str]]:
    """Return (style, sentence) pairs."""
    facts = [("kl-warn", f"{comparison.names[1]} {words}.") for words in comparison.effects]
    for check in comparison.outputs:
        style = "kl-good" if check.equal else "kl-warn"
        facts.append((style, _output_words(comparison, check.argument, equal=check.equal, error=check.max_error)))
    if not comparison.outputs:
        facts.append(("kl-warn", "No outputs are known, so none were compared."))
    return [*facts, ("", timing_words(comparison))]


def _output_words(comparison: Comparison, argument: str, *, equal: bool, error: float) -> str:
    same = "is equal" if equal else f"of {comparison.names[1]} DIFFERS"
    return f"{argument} {same} on the same inputs; the largest difference is {error:.3g}."
