"""A comparison of two kernels, as text and as HTML."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from kernellab.benchmark.comparison import Comparison
from kernellab.views import elements, wording
from kernellab.views.cards.diff import diff_html, diff_text


def comparison_text(comparison: Comparison) -> str:
    """Return what differs: effects, outputs, time, then resources and source."""
    left, right = comparison.compiled
    lines = [*(words for _, words in _facts(comparison)), *_resources(comparison)]
    if left is not None and right is not None:
        return "\n".join([*lines, diff_text(left, right, names=comparison.names, sources=comparison.sources)])
    return "\n".join([*lines, comparison.source_diff])


def comparison_html(comparison: Comparison) -> str:
    """Return the same as a card."""
    left, right = comparison.compiled
    facts = [*_facts(comparison), *(("", words) for words in _resources(comparison))]
    notes = [elements.message(f"kl-note {style}".strip(), words) for style, words in facts]
    if left is not None and right is not None:
        body = diff_html(left, right, names=comparison.names, sources=comparison.sources)
    else:
        body = f"<pre>{escape(comparison.source_diff)}</pre>"
    heading = elements.header(f"{comparison.names[0]} and {comparison.names[1]}", [])
    return elements.framed(elements.section(heading, *notes, body))


def timing_words(comparison: Comparison) -> str:
    """Return the verdict in one sentence, with the interval that it rests on."""
    one, two = comparison.names
    timing = comparison.timing
    if timing is None:
        return f"Not timed: {comparison.why_no_timing}."
    times = f"{wording.seconds_words(timing.left_ms / 1e3)} and {wording.seconds_words(timing.right_ms / 1e3)}"
    bounds = f"{timing.low:.3f} to {timing.high:.3f} times as long, 99 % interval of {timing.rounds} interleaved rounds"
    note = f" Note: {timing.note}." if timing.note else ""
    if timing.verdict == "no difference":
        return f"{two} and {one} take the same time ({times}; {bounds}).{note}"
    return f"{two} is {timing.verdict} than {one} ({times}; {bounds}).{note}"


def _facts(comparison: Comparison) -> list[tuple[str, str]]:
    """Return (style, sentence) pairs."""
    facts = [*_outcomes(comparison), *(("kl-warn", f"{comparison.names[1]} {words}.") for words in comparison.effects)]
    for check in comparison.outputs:
        style = "kl-good" if check.equal else "kl-warn"
        facts.append((style, _output_words(comparison, check.argument, equal=check.equal, error=check.max_error)))
    if not comparison.outputs and comparison.same_inputs and not any(comparison.failures):
        facts.append(("kl-warn", "No outputs are known, so none were compared."))
    return [*facts, ("", timing_words(comparison))]


def _outcomes(comparison: Comparison) -> Iterator[tuple[str, str]]:
    """Yield what became of each run, where one did not end well."""
    if comparison.same_inputs and not any(comparison.failures):
        return
    if any(comparison.failures) and comparison.failures[0] is comparison.failures[1]:
        yield "kl-warn", f"Nothing was run: {comparison.failures[0]}"
        return
    for name, failure in zip(comparison.names, comparison.failures, strict=True):
        if failure is None:
            yield "kl-good", f"{name} ran to its end."
        else:
            yield "kl-warn", f"{name} failed: {type(failure).__name__}: {failure}"


def _resources(comparison: Comparison) -> Iterator[str]:
    """Yield the resources of the one that compiled, where the other did not; those of two are in their comparison."""
    if None not in comparison.compiled or not any(comparison.failures):
        return
    for name, compiled in zip(comparison.names, comparison.compiled, strict=True):
        if compiled is not None:
            shown = (f"{fact.name} {fact.value}" for fact in wording.resource_facts(compiled.resources))
            yield f"{name} takes: {', '.join(shown)}."


def _output_words(comparison: Comparison, argument: str, *, equal: bool, error: float) -> str:
    same = "is equal" if equal else f"of {comparison.names[1]} DIFFERS"
    return f"{argument} {same} on the same inputs; the largest difference is {error:.3g}."
