"""What timings say: medians with their uncertainty, who clearly loses, who wins and who ties."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

CONFIDENCE = 0.99
_RESAMPLES = 400
_FEW = 6


@dataclass(frozen=True, slots=True)
class Interval:
    """A median and the bounds between which it lies with the given confidence."""

    median: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Standing:
    """Where the finalists stand: ``leader`` has the smallest median, the others are sorted by what is known of them.

    ``tied`` cannot be slower than the leader by more than the margin, ``lost`` are slower for certain and by more than
    half of it, ``open`` needs more samples. ``level`` are those of the tied that are slower by less than half of it.
    """

    leader: int
    tied: tuple[int, ...]
    lost: tuple[int, ...]
    open: tuple[int, ...]
    level: tuple[int, ...] = ()


def interval(samples: Sequence[float], seed: int = 0, confidence: float = CONFIDENCE) -> Interval:
    """Return the median of samples with its bootstrap percentile interval.

    Of six samples or fewer, that is their range at the default confidence: the median of six draws is the least of the
    samples in nine cases of a thousand.
    """
    if len(samples) < 3 or (len(samples) <= _FEW and confidence >= CONFIDENCE):
        return Interval(float(median(samples)), float(min(samples)), float(max(samples)))
    values = np.asarray(samples, dtype=float)
    medians = _resampled_medians(values, seed)
    tail = (1 - confidence) / 2
    low, high = np.quantile(medians, [tail, 1 - tail])
    middle = float(np.median(values))
    return Interval(middle, min(float(low), middle), max(float(high), middle))


def ratio_interval(
    challenger: Sequence[float], leader: Sequence[float], seed: int = 0, confidence: float = CONFIDENCE
) -> Interval:
    """Return how many times slower a challenger is than the leader.

    The samples are pairs, taken in the same round: what slows the device down for a while slows both.
    """
    return interval([a / b for a, b in zip(challenger, leader, strict=True)], seed, confidence)


def standing(
    rounds: Mapping[int, Sequence[float]], *, seed: int = 0, margin: float = 0.005, confidence: float = CONFIDENCE
) -> Standing:
    """Return where finalists stand after interleaved rounds of equal number.

    One has tied if the interval of its ratio to the leader ends below 1 + ``margin``, and has lost if it begins above
    1 + half of ``margin``; else the rounds do not tell yet. So a config that is level in one final has not lost in the
    next, which makes the ties of two finals of the same configs agree.
    """
    medians = {index: float(np.median(samples)) for index, samples in rounds.items()}
    leader = min(medians, key=lambda index: medians[index])
    tied, lost, undecided, level = [], [], [], []
    for index in rounds:
        if index == leader:
            continue
        ratio = ratio_interval(rounds[index], rounds[leader], seed, confidence)
        if ratio.high < 1 + margin:
            tied.append(index)
            level += [index] if ratio.high < 1 + margin / 2 else []
        elif ratio.low > 1 + margin / 2:
            lost.append(index)
        else:
            undecided.append(index)
    return Standing(leader, tuple(tied), tuple(lost), tuple(undecided), tuple(level))


def preferred(tied: Sequence[int], resources: Mapping[int, tuple[float, ...]]) -> int:
    """Return the winner among configs that tie: the one that needs fewer resources, then the earlier in the list."""
    return min(tied, key=lambda index: (resources[index], index))


def _resampled_medians(values: np.ndarray, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    draws = rng.integers(0, len(values), size=(_RESAMPLES, len(values)))
    medians: np.ndarray = np.median(values[draws], axis=1)
    return medians
