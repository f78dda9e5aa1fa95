"""What a change may gain: the model's time of the launch with it and without, held against the measured one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kernellab.explain.facts import Facts
from kernellab.explain.model import floor_seconds, times_of
from kernellab.explain.result import Cause, PerformanceFinding

LEAST_GAIN = 1.08
_MODEL_LOW, _MODEL_HIGH = 0.55, 1.5  # of the gain that the model has, what experience says it comes to
_MOST = 100.0


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a rule found: its cause, what to change, and the facts of the launch as they would be then."""

    cause: Cause
    line: int | None
    text: str
    evidence: Mapping[str, float]
    mended: Facts


def finding_of(facts: Facts, proposal: Proposal) -> PerformanceFinding | None:
    """Return a proposal with its gain; None where that is too small to mention."""
    low, high = gain_of(facts, proposal.mended)
    if high < LEAST_GAIN:
        return None
    return PerformanceFinding(
        proposal.cause, proposal.line, proposal.text, proposal.evidence, (round(low, 2), round(high, 2))
    )


def gain_of(facts: Facts, mended: Facts) -> tuple[float, float]:
    """Return between which factors a launch gets faster.

    Of a measured time, what the model does not account for may stay or go. So the gain lies between that of saving the
    difference of the two modelled times and that of reaching the second; and never beyond the floor, which no change
    saves: the bytes once, the products, the launch.
    """
    now, then = times_of(facts).total, times_of(mended).total
    if facts.time_s is None:
        ratios = [now / then]
        limit = _MOST
    else:
        time_s = facts.time_s
        saving = max(then, time_s - max(0.0, now - then))
        ratios = [time_s / saving, now / then]
        limit = time_s / min(time_s, floor_seconds(mended))
    low = 1 + (min(ratios) - 1) * _MODEL_LOW
    high = min(1 + (max(ratios) - 1) * _MODEL_HIGH, limit, _MOST)
    return max(1.0, min(low, high)), max(1.0, high)
