"""The final of a tuning: interleaved rounds of the fastest configs, until one wins or the others tie."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from kernellab.errors import KernellabError
from kernellab.store.columns import Status
from kernellab.timing.bench import Bench
from kernellab.timing.config import Config
from kernellab.timing.launches import Implementation
from kernellab.timing.outcome import time_columns
from kernellab.timing.stopwatch import Standing, standing, tie_winner
from kernellab.tune.device_pool import SharedRounds
from kernellab.tune.options import Options
from kernellab.tune.result import Row, times_of

Rounds = Bench | SharedRounds
"""Where rounds are measured: on one bench, or divided among several."""


@dataclass(frozen=True, slots=True)
class Final:
    """The winner of a final, None where nothing could be measured, and the configs that tie with it."""

    winner: Config | None
    ties: tuple[Config, ...]


def finalists_of(rows: Mapping[Config, Row], options: Options) -> list[Config]:
    """Return the configs that enter the final, the fastest first."""
    times_ms = times_of(rows.values())
    fastest = sorted(times_ms, key=times_ms.__getitem__)
    if not fastest:
        return []
    best_ms, third_ms = times_ms[fastest[0]], times_ms[fastest[:3][-1]]
    bound_ms = min(best_ms * options.loser_factor, third_ms * options.finalist_factor)
    return [config for config in fastest if times_ms[config] <= bound_ms][: options.max_finalists]


@dataclass(slots=True)
class FinalRounds:
    """Finalists measured against each other in batches of rounds; those that have lost are measured no more.

    ``devices`` measure rounds at the same time, and the seconds of each count.
    """

    bench: Rounds
    devices: int
    finalists: tuple[Implementation, ...]
    options: Options
    clock: Callable[[], float]
    is_decided: bool = False
    _times_ms: dict[int, list[float]] = field(default_factory=dict)
    _lost: set[int] = field(default_factory=set)
    _standing: Standing | None = None
    _spent_s: float = 0.0

    def measure(self) -> None:
        """Measure one batch; the final is decided once each config has won, lost or tied, or no rounds are left."""
        begin_s = self.clock()
        active = [candidate for candidate in self.finalists if candidate.index not in self._lost]
        measured = self.bench.interleave(active, self.options.batch_rounds)
        for candidate, samples in zip(active, measured, strict=True):
            self._times_ms.setdefault(candidate.index, []).extend(samples)
        times_ms = {candidate.index: self._times_ms[candidate.index] for candidate in active}
        stand = self._standing = standing(times_ms, seed=self.options.seed, margin=self.options.tie_margin)
        self._lost |= set(stand.lost)
        self._spent_s += self.devices * (self.clock() - begin_s)
        is_spent = len(times_ms[stand.leader]) >= self.options.max_rounds or self._spent_s >= self.options.finals_s
        self.is_decided = is_spent or not stand.open or len(self.finalists) - len(self._lost) == 1

    def result(self) -> tuple[Standing, dict[int, list[float]]]:
        """Measure until the final is decided; return the standing, and the times of each finalist in ms."""
        while not self.is_decided:
            self.measure()
        assert self._standing is not None
        return self._standing, self._times_ms

    def failures(self) -> dict[Config, KernellabError]:
        """Measure each finalist alone, and return the errors of those that fail."""
        errors: dict[Config, KernellabError] = {}
        for candidate in self.finalists:
            try:
                self.bench.interleave([candidate], self.options.batch_rounds)
            except KernellabError as exc:
                errors[candidate.config] = exc
        return errors


@dataclass(slots=True)
class EarlyFinals:
    """Rounds of a final that start before all configs are measured.

    Rounds are kept while the finalists are the same, and start again when they change.
    """

    options: Options
    clock: Callable[[], float]
    _rounds: FinalRounds | None = None
    _has_failed: bool = False

    def rounds_of(self, bench: Rounds, devices: int, finalists: tuple[Implementation, ...]) -> FinalRounds:
        """Return the rounds of these finalists, continuing running ones if they are the same."""
        if self._rounds is None or self._rounds.finalists != finalists:
            self._rounds = FinalRounds(bench, devices, finalists, self.options, self.clock)
        return self._rounds

    def measure(self, bench: Bench, rows: Mapping[Config, Row], candidates: Mapping[Config, Implementation]) -> bool:
        """Measure a batch of the rows that qualify, if all are candidates; return whether more can follow.

        None follows after an error, which the final will raise again. There is no early final with a budget in seconds,
        or with long batches, which would delay configs that wait to be measured.
        """
        chosen = finalists_of(rows, self.options)
        batch_s = self.options.batch_rounds * sum(rows[config].time_ms or 0.0 for config in chosen) / 1e3
        if self._has_failed or self.options.budget_s is not None or batch_s > self.options.early_s:
            return False
        if len(chosen) < 2 or not candidates.keys() >= set(chosen):
            return False
        self.rounds_of(bench, 1, tuple(candidates[config] for config in chosen))
        return self.measure_more()

    def measure_more(self) -> bool:
        """Measure a batch of the running rounds; return whether more can follow."""
        if self._rounds is None or self._rounds.is_decided:
            return False
        try:
            self._rounds.measure()
        except KernellabError:
            self._rounds, self._has_failed = None, True
            return False
        return not self._rounds.is_decided


def finish_final(
    rounds: FinalRounds, rows: Mapping[Config, Row], name: str, candidates: Mapping[Config, Implementation]
) -> tuple[Final, dict[Config, Row]]:
    """Finish a final; return its winner and ties, and the rows that it adds measurements to.

    These are the finalists, and with a warm L2 also those of ``candidates`` that the options name.
    """
    if not rounds.finalists:
        return Final(None, ()), {}
    stand, times_ms = rounds.result()
    options = rounds.options
    by_index = {candidate.index: candidate for candidate in rounds.finalists}
    together = [stand.leader, *stand.level]
    winner = tie_winner(together, {index: rows[by_index[index].config].resources for index in together})
    ties = [index for index in (stand.leader, *stand.tied, *stand.open) if index != winner]
    named = [config for config in options.warm_configs if config in candidates and rows[config].status is Status.OK]
    others = tuple(candidates[config] for config in named if candidates[config].index not in by_index)
    all_warm = (*rounds.finalists, *others) if options.warm_runs else ()
    times = rounds.bench.warm(all_warm, options.warm_runs) if all_warm else []
    warm_ms = {candidate.index: ms for candidate, ms in zip(all_warm, times, strict=True)}
    finals_rows = {c.config: replace(rows[c.config], warm_ms=warm_ms[c.index]) for c in others if all_warm}
    for index, candidate in by_index.items():
        columns = time_columns(times_ms[index], options.seed)
        finals_rows[candidate.config] = replace(
            rows[candidate.config],
            **columns,
            cold_ms=columns["time_ms"],
            warm_ms=warm_ms.get(index),
            samples=rows[candidate.config].samples + len(times_ms[index]),
            standing="winner" if index == winner else "tied" if index in ties else "lost",
            tuning=name,
        )
    return Final(by_index[winner].config, tuple(by_index[index].config for index in sorted(ties))), finals_rows


def earlier_final(rows: Mapping[Config, Row]) -> Final | None:
    """Return the decision of an earlier final if it still holds for the current rows."""
    good = times_of(rows.values())
    winners = [config for config in good if rows[config].standing == "winner"]
    if len(winners) != 1:
        return None
    winner = rows[winners[0]]
    tied = [c for c in good if rows[c].standing == "tied" and rows[c].tuning == winner.tuning]
    others = [c for c in good if c != winners[0] and rows[c].tuning != winner.tuning]
    if any(good[config] < (winner.high_ms or 0.0) for config in others):
        return None
    return Final(winners[0], tuple(tied))
