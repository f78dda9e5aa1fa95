"""What a change may gain: the model's time of the launch with it and without, held against the measured one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kernellab.explain.facts import Facts
from kernellab.explain.model import floor_seconds, times_of
from kernellab.explain.result import Cause, PerformanceFinding

LEAST_GAIN = 1.08
_LOWER, _UPPER = 0.5, 2.0  # of the gain that the model has: what mends gain beside that, `benchmarks.planted`
_MOST = 1000.0
_BOTTLENECK = 0.3  # of the time of the slowest unit, that a change has to save to be about it
# Of these the model has the least that they cost; what it misses of the time is likely theirs.
_UNDERSTATED = {
    Cause.SPILLS,
    Cause.NO_PIPELINE,
    Cause.TILES,
    Cause.NO_TENSOR_CORES,
    Cause.WIDE_OPERANDS,
    Cause.REDUCTION,
    Cause.OCCUPANCY,
    Cause.SMALL_BLOCK,
    Cause.ATOMICS,
}


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
    low, high = gain_of(facts, proposal.mended, is_understated=proposal.cause in _UNDERSTATED)
    if high < LEAST_GAIN:
        return None
    gain = (round(low, 2), round(high, 2))
    return PerformanceFinding(proposal.cause, proposal.line, proposal.text, proposal.evidence, gain)


def gain_of(facts: Facts, mended: Facts, *, is_understated: bool = False) -> tuple[float, float]:
    """Return between which factors a launch gets faster.

    The model has a time without the change and one with it. Where a time was measured and the change is about the
    slowest unit, or of a kind that the model understates, that time may come down to the second; else what the model
    does not account for may stay as it is. The gain is never beyond the floor, which no change saves: the bytes once,
    the products, the launch.
    """
    now, then = times_of(facts), times_of(mended)
    ratios, limit = [now.total / then.total], _MOST
    if facts.time_s is not None:
        saved = max(0.0, now.total - then.total)
        is_about_slowest = now.longest - then.longest > _BOTTLENECK * now.longest
        left = then.total if is_about_slowest or is_understated else max(then.total, facts.time_s - saved)
        ratios.append(facts.time_s / left)
        limit = facts.time_s / min(facts.time_s, floor_seconds(mended))
    low = 1 + (min(ratios) - 1) * _LOWER
    high = min(1 + (max(ratios) - 1) * _UPPER, limit, _MOST)
    return max(1.0, min(low, high)), max(1.0, high)
