"""The explanation of a launch: its bottleneck and findings, each with an estimated speedup, from facts."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kernellab.display import Drawable
from kernellab.errors import plural, share_text, time_text
from kernellab.explain.causes import CONSEQUENCES, STALLS, UNDERSTATED, Cause, PerformanceFinding, figure_text
from kernellab.explain.compute_rules import COMPUTE_RULES, launch_overhead
from kernellab.explain.facts import Facts, unknown_sentences
from kernellab.explain.memory_rules import MEMORY_RULES
from kernellab.explain.model import (
    Bottleneck,
    Times,
    floor_seconds,
    gain_of,
    leaves_idle,
    roofline_seconds,
    times_of,
    with_measured_time,
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


RULES: Mapping[Cause, Callable[[Facts], PerformanceFinding | None]] = {**MEMORY_RULES, **COMPUTE_RULES}
"""The rule of each cause."""

_MOST_FINDINGS = 5
_LEAST_GAIN = 1.08
_NEAR_BOUND = 0.87  # share of the roofline bound; a launch above it has no findings
_FAR_FROM_BOUND = 0.6  # share of the roofline bound; below it, a launch without a finding may have a faster config
_MOSTLY_OVERHEAD = 0.6  # launch overhead over the time of a launch; above it, nothing else is worth a change
_GRID_REASONS = {Cause.FEW_PROGRAMS: "grid too small", Cause.LAST_WAVE: "partial last wave"}


def explain_facts(facts: Facts, file: str = "", why_no_traffic: str = "") -> Explanation:
    """Explain a launch by the rules; a function of its facts alone.

    ``why_no_traffic`` is the reason for missing traffic.
    """
    times = with_measured_time(facts, times_of(facts))
    share, findings = share_of_limit(facts), findings_of(facts, times)
    return Explanation(
        kernel=facts.kernel,
        target=facts.target,
        bound=times.largest,
        findings=tuple(findings),
        summary=summary_of(facts, times, share, findings),
        share=share,
        facts=facts,
        times=times,
        unknown=unknown_sentences(facts, why_no_traffic),
        file=file,
    )


def findings_of(facts: Facts, times: Times) -> list[PerformanceFinding]:
    """Return the findings of all rules, the largest gain first; a consequence follows its root cause.

    A launch that is mostly overhead has that finding alone; one that was measured near its roofline bound has none.
    """
    is_overhead, share = times.launch > _MOSTLY_OVERHEAD * times.total, share_of_limit(facts)
    if not is_overhead and share is not None and share >= _NEAR_BOUND:
        return []
    rules = (launch_overhead,) if is_overhead else RULES.values()
    findings = [_with_gain(finding, facts) for rule in rules if (finding := rule(facts)) is not None]
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
    """Return a finding with its estimated speedup: the least by the smallest effect of the change."""
    low, high = _rounded_gain(finding.cause, facts, finding.fixed)
    if finding.least_fixed is not None:
        low = min(low, _rounded_gain(finding.cause, facts, finding.least_fixed)[0])
    return replace(finding, gain=(low, high))


def _rounded_gain(cause: Cause, facts: Facts, fixed: Facts) -> tuple[float, float]:
    """Return the speedup of a change, rounded down to two decimals."""
    low, high = gain_of(facts, fixed, is_understated=cause in UNDERSTATED)
    return math.floor(100 * low) / 100, math.floor(100 * high) / 100


def _weight(finding: PerformanceFinding, facts: Facts) -> float:
    """Return the rank of a finding: the geometric mean of its expected gain, raised where samples support it.

    Samples support a finding by falling on its line, and by stall reasons that match its cause.
    """
    low, high = _rounded_gain(finding.cause, facts, finding.fixed)
    on_line = facts.line_shares.get(finding.line or -1, 0.0)
    waiting = sum(facts.stalls.get(stall, 0.0) for stall in STALLS.get(finding.cause, ()))
    return math.sqrt(low * high) * (1 + 0.3 * on_line + 0.3 * waiting)


def share_of_limit(facts: Facts) -> float | None:
    """Return the roofline bound over the measured time, from 0 to 1; None without a measured time."""
    if facts.time_s is None or facts.time_s <= 0:
        return None
    return min(1.0, floor_seconds(facts) / facts.time_s)


def summary_of(facts: Facts, times: Times, share: float | None, findings: Sequence[PerformanceFinding]) -> str:
    """Return the bottleneck of a launch, its time, and its roofline bound, in two to four sentences."""
    device, floor = facts.device, roofline_seconds(facts, times)
    rates = f"rates measured on {device.name}" if device.is_measured else f"{device.name} data sheet"
    roofline = f"roofline bound {time_text(floor)} ({rates})"
    end = "" if findings else " No suggestion."
    total_s = times.total if facts.time_s is None else facts.time_s
    is_far = times.largest is not Bottleneck.LAUNCH and floor < _FAR_FROM_BOUND * total_s
    if facts.has_time and not findings and is_far:
        end += " No rule says why it is so far from that bound: tune it, since another config may be faster."
    if facts.time_s is None:
        took = f"Estimated {time_text(times.total)}" if facts.is_predictable else f"No estimate for {facts.target}"
    else:
        reached = "" if share is None else f", {share_text(share)} of the roofline"
        took = f"Measured {time_text(facts.time_s)}{reached}"
    return f"{_bound_sentence(facts, times, findings)} {took}; {roofline}.{end}"


def _bound_sentence(facts: Facts, times: Times, findings: Sequence[PerformanceFinding]) -> str:
    """Return ``Limited by HBM.``, with the grid where that is the reason, and whether another one would help."""
    causes = [finding.cause for finding in findings]
    programs = f"{plural(facts.programs, 'program')} for {facts.device.multiprocessors} SMs"
    reason = next((f": {_GRID_REASONS[cause]}, {programs}" for cause in causes if cause in _GRID_REASONS), "")
    no_help = ""
    may_help = Cause.FEW_PROGRAMS in causes or times.largest is Bottleneck.LAUNCH or not facts.is_predictable
    if leaves_idle(facts) and not may_help:
        no_help = f" {programs[0].upper()}{programs[1:]}, but a larger grid would hardly be faster."
    return f"Limited by {times.largest}{reason}.{no_help}"
