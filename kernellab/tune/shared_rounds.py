"""Rounds of a final on several devices at once: each round is held on one, so that what is compared never differs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from kernellab.measure.implementations import Bench, Implementation
from kernellab.workers.uninterrupted import Stop, side_by_side

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SharedRounds:
    """Holds rounds on benches whose devices agree, the first of which is the reference.

    Who stands where follows from ratios of times of one round, so it matters to none on which device that was. Every
    config has as many rounds on each as all others, so that their medians can be compared, too.
    """

    benches: Sequence[Bench]

    def interleave(self, implementations: Sequence[Implementation], rounds: int) -> list[tuple[float, ...]]:
        """Return the times of each in ms, one per round; see `Bench.interleave`."""
        count = len(self.benches)
        shares = [rounds // count + (place < rounds % count) for place in range(count)]
        pairs = zip(self.benches, shares, strict=True)
        parts = _at_once([partial(bench.interleave, implementations, share) for bench, share in pairs if share])
        return [tuple(time for part in parts for time in part[place]) for place in range(len(implementations))]

    def warm(self, implementations: Sequence[Implementation], runs: int) -> list[float]:
        """Return the median time of each in ms with a warm L2, of one on one device."""
        count = len(self.benches)
        hands = [implementations[place::count] for place in range(count)]
        pairs = zip(self.benches, hands, strict=True)
        parts = _at_once([partial(bench.warm, hand, runs) for bench, hand in pairs if hand])
        return [parts[place % count][place // count] for place in range(len(implementations))]


def _at_once(calls: Sequence[Callable[[], T]]) -> list[T]:
    """Return what some calls return, each made in a thread of its own; raise the first error."""

    def source(place: int, stop: Stop) -> Iterator[tuple[int, T]]:
        yield place, calls[place]()

    found = dict(side_by_side([partial(source, place) for place in range(len(calls))]))
    return [found[place] for place in range(len(calls))]
