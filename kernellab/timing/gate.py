"""The gate of a benchmark: rounds of two kernels in turns, until the slowdown is decided or the budget ends.

Each round gives a ratio of times, in which drift of the device cancels. The medians of blocks of rounds are taken as
independent: one bad sample moves none of them, and where the runs test finds neighbours alike, pairs of blocks merge.
The interval of their median is a confidence sequence: it holds at all looks together, so that looking after each batch
of rounds does not add false alarms. It inverts the sign test whose evidence is the uniform mixture of binomial
likelihood ratios (Robbins, "Statistical methods related to the law of the iterated logarithm", 1970; Howard and Ramdas,
"Sequential estimation of quantiles", Bernoulli 28(3), 2022). By Ville's inequality, the evidence against the true
median ever reaches 1/alpha with a probability of alpha at most, whatever the distribution of independent blocks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from statistics import median

from kernellab.timing.stopwatch import Interval

ALPHA = 0.002
"""The probability that an interval misses the true median at any of its looks; half of it on either side."""

_ALPHA_OF_HALF = 0.05  # for each half of a slowdown's blocks, which must show it too
_MOST_BLOCK_ROUNDS = 10
_WANTED_BLOCKS = 100
_MERGE_ABOVE = 2.5  # standard deviations of the runs test
_LEAST_MERGED = 32
_FIRST_ROUNDS = 4
_MOST_ROUNDS = 2000  # of one batch
_GROWTH = 1.5
_LEAST_SLOWER_S = 1.0  # of rounds before a slowdown counts, in which passing interference shows as such

SampleRounds = Callable[[int], Sequence[Sequence[float]]]
"""Times two kernels in turns for a number of rounds; returns the milliseconds of the earlier, and of the later."""


class GateVerdict(StrEnum):
    """The outcome of a gate; ``SUSPECT`` is that of a comparison without times, ``DIFFERENT`` that of a check."""

    WITHIN = "within"
    FASTER = "faster"
    SLOWER = "slower"
    DIFFERENT = "different"
    UNDECIDED = "undecided"
    SUSPECT = "suspect"

    @property
    def status(self) -> int:
        """The exit status: 0 within the gate or faster, 1 slower or with other outputs, 3 undecided or suspect."""
        return _STATUSES[self]


_STATUSES = {
    GateVerdict.WITHIN: 0,
    GateVerdict.FASTER: 0,
    GateVerdict.SLOWER: 1,
    GateVerdict.DIFFERENT: 1,
    GateVerdict.UNDECIDED: 3,
    GateVerdict.SUSPECT: 3,
}


@dataclass(frozen=True, slots=True)
class GateDecision:
    """A verdict on ratios, with the interval of their median over ``blocks`` independent blocks."""

    verdict: GateVerdict
    ratio: Interval
    blocks: int


@dataclass(frozen=True, slots=True)
class GateTiming:
    """Two kernels timed in turns: medians in ms, and the ratio of the later to the earlier with its interval.

    The interval holds with 99.8 % confidence at all looks together. It is that of ``blocks`` independent blocks of the
    ``rounds``; ``seconds`` is the time they took.
    """

    earlier_ms: float
    later_ms: float
    ratio: Interval
    rounds: int
    blocks: int
    seconds: float


def decide(ratios: Sequence[float], gate: float, block_rounds: int) -> GateDecision:
    """Decide from the ratios of rounds whether the later kernel is slower than ``1 + gate`` times the earlier.

    A slowdown must show in all blocks, and in each half of them by itself: a disturbance of one stretch decides
    nothing.
    """
    blocks = independent_blocks(block_medians(ratios, block_rounds))
    whole = median_interval(blocks, ALPHA)
    half = len(blocks) // 2
    verdict = GateVerdict.UNDECIDED
    if whole.high < 1 - gate:
        verdict = GateVerdict.FASTER
    elif whole.high <= 1 + gate:
        verdict = GateVerdict.WITHIN
    elif whole.low > 1 + gate:
        lows = [median_interval(part, _ALPHA_OF_HALF).low for part in (blocks[:half], blocks[half:])]
        verdict = GateVerdict.SLOWER if min(lows) > 1 + gate else GateVerdict.UNDECIDED
    return GateDecision(verdict, whole, len(blocks))


def block_medians(ratios: Sequence[float], block_rounds: int) -> list[float]:
    """The medians of consecutive blocks; an incomplete last block is left out."""
    whole = len(ratios) - len(ratios) % block_rounds
    return [float(median(ratios[start : start + block_rounds])) for start in range(0, whole, block_rounds)]


def independent_blocks(values: list[float]) -> list[float]:
    """Merge neighbouring pairs of blocks as long as neighbours lie on the same side of the median too often.

    The test is that of Wald and Wolfowitz on runs; merging is the method of batch means (Alexopoulos and Goldsman).
    """
    while len(values) >= _LEAST_MERGED:
        middle = median(values)
        sides = [value > middle for value in values if value != middle]
        pairs = len(sides) - 1
        alike = sum(a == b for a, b in pairwise(sides))
        if pairs < 1 or alike - pairs / 2 <= _MERGE_ABOVE * math.sqrt(pairs) / 2:
            break
        values = [(a + b) / 2 for a, b in zip(values[::2], values[1::2], strict=False)]
    return values


def median_interval(values: Sequence[float], alpha: float) -> Interval:
    """The median of independent values with its confidence sequence; unbounded where they are too few for one."""
    if not values:
        return Interval(math.nan, 0.0, math.inf)
    ordered, count = sorted(values), len(values)
    rank = _rejected_count(count, alpha)
    low, high = (0.0, math.inf) if rank < 0 else (ordered[rank], ordered[count - 1 - rank])
    return Interval(float(median(ordered)), low, high)


def _rejected_count(count: int, alpha: float) -> int:
    """The largest number of values on one side of a median that is rejected; -1 where none is."""
    bound = math.log(1 / alpha) - count * math.log(2) + math.lgamma(count + 2)
    rejected, above = -1, count // 2
    while above - rejected > 1:  # the evidence falls towards the middle
        rank = (above + rejected) // 2
        if math.lgamma(rank + 1) + math.lgamma(count - rank + 1) >= bound:
            rejected = rank
        else:
            above = rank
    return rejected


def time_until_decided(
    sample_rounds: SampleRounds, gate: float, budget_s: float, clock: Callable[[], float]
) -> tuple[GateVerdict, GateTiming]:
    """Time two kernels in turns, in growing batches of rounds, until a decision or the end of the budget."""
    start = clock()
    earlier, later = list[float](), list[float]()
    rounds, block_rounds = _FIRST_ROUNDS, 1
    while True:
        samples = sample_rounds(rounds)
        earlier += samples[0]
        later += samples[1]
        seconds = clock() - start
        round_s = max(seconds / len(earlier), 1e-9)
        if rounds == _FIRST_ROUNDS:
            block_rounds = max(1, min(_MOST_BLOCK_ROUNDS, int(budget_s / round_s / _WANTED_BLOCKS)))
        ratios = [b / a for a, b in zip(earlier, later, strict=True)]
        decision = decide(ratios, gate, block_rounds)
        affordable = int((budget_s - seconds) / round_s)
        is_early = decision.verdict is GateVerdict.SLOWER and seconds < min(_LEAST_SLOWER_S, budget_s / 4)
        is_open = is_early or decision.verdict is GateVerdict.UNDECIDED
        if not is_open or affordable < 1:
            medians = float(median(earlier)), float(median(later))
            return decision.verdict, GateTiming(*medians, decision.ratio, len(earlier), decision.blocks, seconds)
        wanted = max(2 * _MOST_BLOCK_ROUNDS, int((_GROWTH - 1) * len(earlier)))
        rounds = min(affordable, wanted, _MOST_ROUNDS)
