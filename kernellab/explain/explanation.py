"""The explanation of a launch: its bottleneck and findings, each with an estimated speedup, from facts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kernellab.display import Drawable
from kernellab.explain.causes import CONSEQUENCES, STALLS, UNDERSTATED, PerformanceFinding, figure_text
from kernellab.explain.compute_rules import COMPUTE_RULES
from kernellab.explain.facts import Facts
from kernellab.explain.memory_rules import MEMORY_RULES
from kernellab.explain.model import (
    Bottleneck,
    Times,
    bound_of,
    floor_seconds,
    gain_of,
    times_of,
    with_measured_latency,
)
from kernellab.explain.profile import Profile
from kernellab.workers.forks_and_interrupts import import_uninterrupted


@dataclass(frozen=True)
class Explanation(Drawable):
    """The bottleneck of a launch, and what to change.

    ``findings`` are sorted by gain, the largest first, five at most. None may be left; ``summary`` then says how close
    the launch is to its roofline bound. ``share`` is that bound over the measured time, from 0 to 1, None without a
    measured time. ``unknown`` are sentences about missing facts.
    """

    kernel: str
    target: str
    bound: Bottleneck
    findings: tuple[PerformanceFinding, ...]
    summary: str
    share: float | None
    facts: Facts = field(repr=False)
    times: Times = field(repr=False)
    unknown: tuple[str, ...] = ()
    profile: Profile | None = field(default=None, repr=False)
    file: str = ""

    @property
    def frame(self) -> Any:
        """A row per finding as a DataFrame: cause, line, text, low, high, and the evidence in words."""
        pd = import_uninterrupted("pandas")

        rows = [
            (str(finding.cause), finding.line, finding.text, *finding.gain, evidence_text(finding.evidence))
            for finding in self.findings
        ]
        frame = pd.DataFrame(rows, columns=["cause", "line", "text", "low", "high", "evidence"])
        frame.attrs |= {"kernel": self.kernel, "bound": str(self.bound), "summary": self.summary}
        return frame.astype({"line": "Int64"})


def evidence_text(evidence: Mapping[str, float]) -> str:
    """Return evidence as text: ``sectors 64, ideal 8``."""
    return ", ".join(f"{name} {figure_text(value)}" for name, value in evidence.items())


RULES = (*MEMORY_RULES, *COMPUTE_RULES)
_MOST_FINDINGS = 5
_LEAST_GAIN = 1.08
_NEAR_BOUND = 0.87  # share of the roofline bound; a launch above it has no findings


def explain_facts(facts: Facts, file: str = "", why_no_traffic: str = "") -> Explanation:
    """Explain a launch by the rules; a function of its facts alone.

    ``why_no_traffic`` is the reason for missing traffic.
    """
    times = with_measured_latency(facts, times_of(facts))
    share = share_of_limit(facts)
    findings = [] if share is not None and share >= _NEAR_BOUND else findings_of(facts)
    bound = bound_of(facts, times)
    return Explanation(
        kernel=facts.kernel,
        target=facts.target,
        bound=bound,
        findings=tuple(findings),
        summary=summary_of(facts, times, bound, share, findings),
        share=share,
        facts=facts,
        times=times,
        unknown=_unknown_sentences(facts, why_no_traffic),
        file=file,
    )


def findings_of(facts: Facts) -> list[PerformanceFinding]:
    """Return the findings of all rules, the largest gain first; a consequence follows its root cause."""
    findings = [_with_gain(finding, facts) for rule in RULES if (finding := rule(facts)) is not None]
    waiting = [finding for finding in findings if finding.gain[1] >= _LEAST_GAIN]
    waiting.sort(key=lambda finding: -_weight(finding, facts))
    ordered: list[PerformanceFinding] = []
    while waiting and len(ordered) < _MOST_FINDINGS:
        following = set().union(*(CONSEQUENCES.get(finding.cause, ()) for finding in waiting))
        root = next(finding for finding in waiting if finding.cause not in following)
        ordered.append(root)
        waiting.remove(root)
    return ordered


def _with_gain(finding: PerformanceFinding, facts: Facts) -> PerformanceFinding:
    """Return a finding with its estimated speedup, rounded down to two decimals."""
    gain = gain_of(facts, finding.fixed, is_understated=finding.cause in UNDERSTATED)
    low, high = (math.floor(100 * factor) / 100 for factor in gain)
    return replace(finding, gain=(low, high))


def _weight(finding: PerformanceFinding, facts: Facts) -> float:
    """Return the rank of a finding: the geometric mean of its gain, raised where samples support it.

    Samples support a finding by falling on its line, and by stall reasons that match its cause.
    """
    low, high = finding.gain
    on_line = facts.line_shares.get(finding.line or -1, 0.0)
    waiting = sum(facts.stalls.get(stall, 0.0) for stall in STALLS.get(finding.cause, ()))
    return math.sqrt(low * high) * (1 + 0.3 * on_line + 0.3 * waiting)


def share_of_limit(facts: Facts) -> float | None:
    """Return the roofline bound over the measured time, from 0 to 1; None without a measured time."""
    if facts.time_s is None or facts.time_s <= 0:
        return None
    return min(1.0, floor_seconds(facts) / facts.time_s)


def summary_of(
    facts: Facts, times: Times, bound: Bottleneck, share: float | None, findings: Sequence[PerformanceFinding]
) -> str:
    """Return one sentence on the bottleneck of a launch and how close to it the launch is."""
    device = facts.device
    known = f"measured on {device.name}" if device.is_measured else f"by the data sheet of {device.name}"
    floor = floor_seconds(facts)
    if share is not None and not findings:
        if floor < 2 * device.launch_s:
            return f"It takes about as long as a launch takes ({(facts.time_s or 0.0) * 1e6:.3g} us)."
        memory = facts.footprint_bytes / (device.memory_gbps * 1e9)
        has_products = any(dot.flops for dot in facts.dots)
        what = "the tensor cores" if has_products and memory < floor - device.launch_s else "the memory"
        return f"At {share:.0%} of what {what} can do, {known}.".replace("%", " %")
    took = facts.time_s if facts.time_s is not None else times.total
    time_text = f"{took * 1e6:,.4g} us" + ("" if facts.time_s is not None else " by the model")
    best = f"{floor * 1e6:,.4g} us at least ({known})"
    end = "" if findings else "; no rule finds what to change"
    largest = "" if bound is times.largest else f" (most of the time is {times.largest})"
    return f"Limited by {bound}{largest}: {time_text}, where its bytes and products need {best}{end}."


def _unknown_sentences(facts: Facts, why_no_traffic: str) -> tuple[str, ...]:
    sentences = list(facts.unknown)
    if not facts.has_traffic:
        why = f" ({why_no_traffic})" if why_no_traffic else ""
        sentences.append(
            f"How addresses lie was not worked out{why}: every access counts as coalesced, without bank conflicts."
        )
    if facts.time_s is None:
        sentences.append("Without a GPU, the time is a model's, of one device by its data sheet; gains are its ratios.")
    return tuple(dict.fromkeys(sentences))
