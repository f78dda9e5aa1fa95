"""What to measure next: which case, and which of its configs; a pure core that is asked and told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil, log

import numpy as np

from kernellab.dispatch.cases import CaseRequest, Forecast, MeasuredCase
from kernellab.dispatch.model import Array, Fit, design_of
from kernellab.dispatch.selection import best_set
from kernellab.dispatch.table import Table
from kernellab.measure.outcomes import Status


@dataclass(frozen=True, slots=True)
class PlanPolicy:
    """How much is measured.

    ``share`` of the table of cases and configs is measured at most, known rows aside. On the first case, ``first``
    configs are; on others, ``at_least`` and ``at_most`` so many. A config is tried where it may be faster than the
    best one by more than ``margin``, as a logarithm, if it is ``doubt`` standard deviations faster than expected.
    ``rest`` of the budget goes to the configs of the rule, on cases where they come within about ``near`` of the best.
    """

    share: float = 0.25
    first: int = 64
    at_least: int = 3
    at_most: int = 8
    doubt: float = 1.5
    margin: float = 0.01
    rest: float = 0.12
    near: float = 0.2
    again: int = 3
    max_configs: int = 8


_MOST_SPREAD = 0.3  # that is taken for possible where many configs are looked through again
_UNSERVED = 100.0  # how much more it is worth to measure on a case for which the rule has no good config yet


@dataclass(slots=True)
class Plan:
    """Asked for the next case to measure, and told what came of it; several cases may be under way.

    First comes a case of middle size, on which many configs are tried; then the others, each as unlike those before it
    as can be, so that the model soon knows what sizes change; then again those where an untried config may be the best;
    and at last what the rule's own configs lack.
    """

    table: Table
    policy: PlanPolicy = field(default_factory=PlanPolicy)
    _waiting: list[int] = field(default_factory=list)
    _under_way: dict[int, int] = field(default_factory=dict)  # by case: how many configs at most
    _spent: int = 0
    _is_timed: bool = True
    _exhausted: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        logs = np.log2([[float(value) for value in case.values()] for case in self.table.cases])
        self._waiting = spread_out(logs - np.median(logs, axis=0), len(logs))

    @property
    def budget(self) -> int:
        """How many configs are measured at most, over all cases; at least the ``first`` ones and some of each case."""
        policy, cases, configs = self.policy, len(self.table.cases), len(self.table.configs)
        least = min(configs, policy.first) + (cases - 1) * min(configs, policy.at_least)
        return max(least, int(policy.share * cases * configs))

    @property
    def left(self) -> int:
        """How many of them are left, less those that cases under way may take."""
        return self.budget - self._spent - sum(self._under_way.values())

    @property
    def cases_left(self) -> int:
        """How many cases were not measured yet, those under way aside."""
        return len(self._waiting)

    def ask(self) -> CaseRequest | None:
        """Return what to measure next; None where nothing is left, or what is under way has to come back first."""
        fit = self.table.fit() if self._is_timed else None
        if self._waiting:
            return self._begin(self._waiting.pop(0), fit)
        if fit is None or self.left <= 0 or self._under_way:
            return None
        return self._again(fit) or self._rest(fit)

    def tell(self, case: MeasuredCase) -> None:
        """Take what came of a case."""
        self._under_way.pop(case.number, None)
        self.table.enter(case)
        timed = [row for row in case.rows if row.status not in {Status.NOT_TIMED, Status.PRUNED}]
        self._spent += max(0, len(timed) - case.known)
        if case.rows and not timed and all(row.status is Status.NOT_TIMED for row in case.rows):
            self._is_timed = False
        if case.failure or not timed:
            self._exhausted.add(case.number)

    def _begin(self, case: int, fit: Fit | None) -> CaseRequest:
        """Return the request of a case that nobody has measured."""
        policy, count = self.policy, len(self.table.configs)
        if fit is None:
            first = min(count, policy.first if not self._under_way else max(policy.at_most, 1))
            first = count if not self._is_timed else first
            chosen = spread_out(design_of(self.table.configs), first)
            forecasts = tuple(Forecast(self.table.configs[place]) for place in chosen)
            return self._request(case, forecasts, first, first)
        reserve = policy.at_least * len(self._waiting) + ceil(policy.rest * self.budget)
        at_most = max(policy.at_least, min(policy.at_most, self.left - reserve))
        return self._request(case, self._forecasts(case, fit), min(policy.at_least, at_most), at_most)

    def _request(self, case: int, forecasts: tuple[Forecast, ...], at_least: int, at_most: int) -> CaseRequest:
        self._under_way[case] = at_most
        sizes, spread = dict(self.table.cases[case]), self._case_spread(case)
        return CaseRequest(case, sizes, forecasts, at_least, at_most, spread, self.policy.doubt, self.policy.margin)

    def _case_spread(self, case: int) -> float:
        fit = self.table._fit
        measured = any(number == case for number, _ in self.table.times_ms)
        return 1e-3 if measured or fit is None else float(fit.case_spreads[case])

    def _forecasts(self, case: int, fit: Fit) -> tuple[Forecast, ...]:
        logs, spreads = fit.log_times(case), fit.spreads(case, with_case=False)
        hopeful = [place for place in range(len(logs)) if not self.table.is_hopeless(case, place)]
        order = sorted(hopeful, key=lambda place: float(logs[place] - self.policy.doubt * spreads[place]))
        return tuple(
            Forecast(self.table.configs[place], float(np.exp(logs[place])), float(spreads[place])) for place in order
        )

    def _again(self, fit: Fit) -> CaseRequest | None:
        """Return the request of the case where an untried config may be better than the best by most."""
        found: tuple[float, int, list[int]] | None = None
        for case in self._measured():
            gains = self._gains(case, fit)
            hopeful = sorted((place for place in gains if gains[place] > 0), key=lambda place: -gains[place])
            if hopeful and (found is None or gains[hopeful[0]] > found[0]):
                found = gains[hopeful[0]], case, hopeful[: min(self.policy.again, self.left)]
        if found is None:
            return None
        _, case, places = found
        return self._request(case, self._those(case, places, fit), len(places), len(places))

    def _gains(self, case: int, fit: Fit) -> dict[int, float]:
        times = self.table.times_of(case)
        best = log(min(times.values())) - self.policy.margin
        logs = fit.log_times(case)
        near = np.flatnonzero(logs < best + self.policy.doubt * _MOST_SPREAD)
        untried = [int(p) for p in near if p not in times and not self.table.is_hopeless(case, int(p))]
        if not untried:
            return {}
        hopes = logs[untried] - self.policy.doubt * fit.spreads(case, untried)
        return {place: best - float(hope) for place, hope in zip(untried, hopes, strict=True)}

    def _rest(self, fit: Fit) -> CaseRequest | None:
        """Return the request of the case on which most is to be learnt of the rule's own configs."""
        chosen = best_set(self.table, fit, self.policy.max_configs)
        scores: dict[int, dict[int, float]] = {}
        for case in self._measured():
            times, logs = self.table.times_of(case), fit.log_times(case)
            best = log(min(times.values()))
            untried = [p for p in chosen if p not in times and not self.table.is_hopeless(case, p)]
            spreads = dict(zip(untried, fit.spreads(case, untried), strict=True))
            served = min((log(times[p]) for p in chosen if p in times), default=np.inf)
            urgent = _UNSERVED if served > best + 2 * self.policy.margin else 1.0
            scores[case] = {p: urgent * _worth(spreads[p], logs[p], best, self.policy.near) for p in untried}
        scores = {case: own for case, own in scores.items() if own}
        if not scores:
            return None
        case = max(scores, key=lambda number: max(scores[number].values()))
        places = sorted(scores[case], key=lambda place: -scores[case][place])[: min(self.policy.again, self.left)]
        return self._request(case, self._those(case, places, fit), len(places), len(places))

    def _those(self, case: int, places: Sequence[int], fit: Fit) -> tuple[Forecast, ...]:
        wanted = {self.table.configs[place] for place in places}
        return tuple(forecast for forecast in self._forecasts(case, fit) if forecast.config in wanted)

    def _measured(self) -> list[int]:
        cases = {case for case, _ in self.table.times_ms}
        return sorted(cases - self._exhausted - self._under_way.keys())


def _worth(spread: float, log_time: float, best: float, near: float) -> float:
    return float(spread) * float(np.exp(-max(0.0, log_time - best) / near))


def spread_out(design: Array, count: int) -> list[int]:
    """Return the places of so many configs that lie far apart: the middle one, then each farthest from those taken.

    Gonzalez 1985, *Clustering to minimize the maximum intercluster distance*.
    """
    chosen = [int((design**2).sum(axis=1).argmin())]
    distances = ((design - design[chosen[0]]) ** 2).sum(axis=1)
    while len(chosen) < min(count, len(design)):
        chosen.append(int(distances.argmax()))
        distances = np.minimum(distances, ((design - design[chosen[-1]]) ** 2).sum(axis=1))
    return chosen
