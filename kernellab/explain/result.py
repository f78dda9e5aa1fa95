"""What an explanation says: what limits a launch, findings on what to change, and what each change may gain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from kernellab.errors import Shown
from kernellab.explain.facts import Facts
from kernellab.explain.model import Bottleneck, Times, floor_seconds, times_of
from kernellab.explain.profile import Profile
from kernellab.workers.forks_and_interrupts import imported_whole


class Cause(StrEnum):
    """Why a launch takes longer than it has to."""

    UNCOALESCED = "uncoalesced access"
    NARROW = "narrow access"
    REREAD = "memory read several times"
    ORDER = "order of programs"
    TILES = "tiles too small"
    CONFLICTS = "bank conflicts"
    SPILLS = "spills"
    FEW_PROGRAMS = "too few programs"
    LAST_WAVE = "the last wave"
    NO_PIPELINE = "latency of loads in a loop"
    OCCUPANCY = "too few warps to hide latency"
    SMALL_BLOCK = "block too small"
    MASKED = "masked lanes"
    NO_TENSOR_CORES = "no tensor cores"
    WIDE_OPERANDS = "operands wider than their data"
    ARITHMETIC = "slow arithmetic"
    REDUCTION = "reduction in every round"
    ATOMICS = "atomics on one address"
    LAUNCH = "launch overhead"


@dataclass(frozen=True, slots=True)
class PerformanceFinding:
    """One thing to change.

    ``line`` is that of the kernel's file, None where no line is to blame. ``evidence`` holds the figures behind it by
    name. ``gain`` says between which factors the launch may get faster; 2 means half the time.
    """

    cause: Cause
    line: int | None
    text: str
    evidence: Mapping[str, float]
    gain: tuple[float, float]


@dataclass(frozen=True)
class Explanation(Shown):
    """Why a launch takes as long as it does.

    ``findings`` come with the largest gain first, five at most; none is an answer, and ``summary`` says how close to
    the limit the launch is. ``share`` is that part of what the limiting unit can do, from 0 to 1, None without a
    measured time. ``unknown`` are sentences on what could not be known.
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

    def with_more(self, unknown: str, profile: Profile | None) -> Explanation:
        """Return the explanation with one more sentence on what is not known, if it is any, and with its profile."""
        told = (*self.unknown, unknown) if unknown else self.unknown
        return replace(self, unknown=told, profile=profile)

    @property
    def frame(self) -> Any:
        """A row per finding as a DataFrame: cause, line, text, low, high, and the evidence in words."""
        imported_whole("pandas")
        import pandas as pd  # keeps `import kernellab` light

        rows = [
            (str(each.cause), each.line, each.text, *each.gain, evidence_words(each.evidence)) for each in self.findings
        ]
        found = pd.DataFrame(rows, columns=["cause", "line", "text", "low", "high", "evidence"])
        found.attrs |= {"kernel": self.kernel, "bound": str(self.bound), "summary": self.summary}
        return found.astype({"line": "Int64"})


def evidence_words(evidence: Mapping[str, float]) -> str:
    """Return ``sectors 64, ideal 8``."""
    return ", ".join(f"{name} {figure(value)}" for name, value in evidence.items())


def figure(value: float) -> str:
    """Return a number in four digits; one of more is written out: ``262,144``."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


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
