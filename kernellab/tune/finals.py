"""The final of a tuning: the fastest configs, interleaved, until one stands out or the rest cannot be told apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from kernellab.tune.bench import Bench, Candidate
from kernellab.tune.config import Config
from kernellab.tune.result import Row
from kernellab.tune.statistics import Standing, interval, preferred, standing


@dataclass(frozen=True, slots=True)
class Policy:
    """How much is measured before a config is dropped, and before a winner is called.

    A config whose first run takes ``loser_factor`` times the best median so far gets no more of its ``screen_runs``.
    Those within ``finalist_factor`` of the third fastest and within ``loser_factor`` of the fastest, ``max_finalists``
    at most, meet in the final: a few runs can mislead about the fastest. They play ``batch_rounds`` at a time, up to
    ``max_rounds`` or ``finals_s`` seconds. A difference below ``tie_margin`` is a tie. ``budget_s`` and
    ``budget_configs`` bound the search. ``max_spill_bytes`` drops configs of generated spaces. ``reference`` identifies
    the values that outputs are compared with; where it is "", they are compared with each other.
    """

    screen_runs: int = 4
    loser_factor: float = 1.25
    finalist_factor: float = 1.08
    max_finalists: int = 12
    batch_rounds: int = 12
    max_rounds: int = 72
    finals_s: float = 1.5
    tie_margin: float = 0.005
    warm_runs: int = 5
    budget_s: float | None = None
    budget_configs: int | None = None
    max_spill_bytes: int | None = None
    reference: str = ""
    seed: int = 0

    @property
    def has_budget(self) -> bool:
        """Whether the search may end early: then configs come in the order of the list."""
        return self.budget_s is not None or self.budget_configs is not None


@dataclass(frozen=True, slots=True)
class Final:
    """The winner of a final, None where nothing could be measured, and the configs that tie with it."""

    winner: Config | None
    ties: tuple[Config, ...]


def settle(
    bench: Bench,
    finalists: Sequence[Candidate],
    rows: Mapping[Config, Row],
    policy: Policy,
    clock: Callable[[], float],
    name: str,
) -> tuple[Final, dict[Config, Row]]:
    """Measure the finalists against each other; return who won, and their rows with what was measured."""
    if not finalists:
        return Final(None, ()), {}
    times: dict[int, list[float]] = {candidate.index: [] for candidate in finalists}
    stand = _played(bench, finalists, times, policy, clock)
    by_index = {candidate.index: candidate for candidate in finalists}
    together = [stand.leader, *stand.level]
    winner = preferred(together, {index: rows[by_index[index].config].resources for index in together})
    ties = [index for index in (stand.leader, *stand.tied, *stand.open) if index != winner]
    warm = dict(zip(by_index, bench.warm(finalists, policy.warm_runs), strict=True))
    found = {}
    for index, candidate in by_index.items():
        measured = interval(times[index], policy.seed)
        found[candidate.config] = replace(
            rows[candidate.config],
            time_ms=measured.median,
            low_ms=measured.low,
            high_ms=measured.high,
            cold_ms=measured.median,
            warm_ms=warm[index],
            samples=rows[candidate.config].samples + len(times[index]),
            standing="winner" if index == winner else "tied" if index in ties else "lost",
            tuning=name,
        )
    return Final(by_index[winner].config, tuple(by_index[index].config for index in sorted(ties))), found


def _played(
    bench: Bench,
    finalists: Sequence[Candidate],
    times: dict[int, list[float]],
    policy: Policy,
    clock: Callable[[], float],
) -> Standing:
    """Play rounds until every config has won, lost or tied, or the rounds are used up. Who has lost plays no more."""
    active = list(finalists)
    end_s = clock() + policy.finals_s
    while True:
        played = bench.interleave(active, policy.batch_rounds)
        for candidate, samples in zip(active, played, strict=True):
            times[candidate.index] += samples
        stand = standing(
            {candidate.index: times[candidate.index] for candidate in active},
            seed=policy.seed,
            margin=policy.tie_margin,
        )
        active = [candidate for candidate in active if candidate.index not in stand.lost]
        count = len(times[stand.leader])
        if len(active) == 1 or not stand.open or count >= policy.max_rounds or clock() >= end_s:
            return stand
