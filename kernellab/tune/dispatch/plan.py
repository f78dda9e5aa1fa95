"""What to measure next: which case, and which of its configs; a pure core that is asked and told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil, erf, exp, inf, log, pi, sqrt
from typing import NamedTuple

import numpy as np

from kernellab.errors import UsageError
from kernellab.measure.config import Config, Status
from kernellab.tune.dispatch.deciding import best_set
from kernellab.tune.dispatch.model import Array, Fit, design_of
from kernellab.tune.dispatch.result import CaseRequest, Forecast, MeasuredCase
from kernellab.tune.dispatch.table import Table
from kernellab.tune.tuner import longest_first


@dataclass(frozen=True, slots=True)
class PlanPolicy:
    """How much is measured.

    ``share`` of the table of cases and configs is measured at most, known rows aside. On the first case, ``first``
    configs are; on others, ``at_least`` and ``at_most`` so many at the first visit. A config is tried there where it
    may be faster than the best one by more than ``margin``, as a logarithm, if it is ``doubt`` standard deviations
    faster than expected. What is left of the budget is spent in so many ``rounds`` over all cases, each on the share
    ``revisited`` of these at most, since a visit costs as much as several configs. In a round, ``rest`` goes to the
    configs of the rule, on cases where they come within about ``near`` of the best, and the other part to configs that
    may be better than the best of a case. The model is not fitted anew for a case where no more than
    the share ``stale`` of the times is. The rule has ``max_configs`` at most.

    Raises:
        UsageError: that is no positive number.
    """

    share: float = 0.25
    first: int = 20
    at_least: int = 3
    at_most: int = 12
    doubt: float = 1.5
    margin: float = 0.01
    rounds: int = 2
    revisited: float = 0.4
    rest: float = 0.12
    near: float = 0.2
    stale: float = 0.05
    max_configs: int = 8

    def __post_init__(self) -> None:
        if type(self.max_configs) is not int or self.max_configs < 1:
            raise UsageError(f"max_configs is {self.max_configs!r}; expected a positive integer.")


_LEAST_GAIN = 1e-4  # as a logarithm
_HEAVY_SHARE = 4
_UNSERVED = 100.0  # how much more it is worth to measure on a case for which the rule has no good config yet


class _Cell(NamedTuple):
    """A config that was not tried on a case, with what that is worth."""

    worth: float
    case: int
    place: int


@dataclass(slots=True)
class Plan:
    """Asked for the next case to measure, and told what came of it; several cases may be under way.

    First comes a case of middle size, on which many configs are tried; then the others, each as unlike those before it
    as can be, so that the model soon knows what sizes change. Then all cases are looked at together, in a few rounds: a
    round measures the cells from which most is to be expected, all those of a case in one visit.
    """

    table: Table
    policy: PlanPolicy = field(default_factory=PlanPolicy)
    _waiting: list[int] = field(default_factory=list)
    _round: list[CaseRequest] = field(default_factory=list)
    _rounds_left: int = field(init=False)
    _under_way: dict[int, int] = field(default_factory=dict)  # by case: how many configs at most
    _spent: int = 0
    _is_timed: bool = True
    _exhausted: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        logs = np.log2([[float(value) for value in case.values()] for case in self.table.cases])
        self._waiting = spread_out(logs - np.median(logs, axis=0), len(logs))
        self._rounds_left = self.policy.rounds

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

    def ask(self) -> CaseRequest | None:
        """Return what to measure next; None where nothing is left, or what is under way has to come back first."""
        if self._waiting:
            fit = self.table.fit(self.policy.stale) if self._is_timed else None
            return self._begin(self._waiting.pop(0), fit)
        if not self._round and not self._under_way and self._is_timed:
            self._round = self._next_round()
        return self._round.pop(0) if self._round else None

    def tell(self, case: MeasuredCase) -> None:
        """Take what came of a case."""
        self._under_way.pop(case.number, None)
        self.table.enter(case)
        timed = [row for row in case.rows if row.status not in {Status.NOT_TIMED, Status.PRUNED}]
        self._spent += max(0, len(timed) - case.known)
        if case.rows and not timed and all(row.status is Status.NOT_TIMED for row in case.rows):
            self._is_timed = False
            if len(case.rows) < len(self.table.configs):
                self._waiting.insert(0, case.number)  # all configs compile on all cases then
        if case.failure or not timed:
            self._exhausted.add(case.number)

    def _begin(self, case: int, fit: Fit | None) -> CaseRequest:
        """Return the request of a case that nobody has measured."""
        policy, count = self.policy, len(self.table.configs)
        if fit is None:
            first = min(count, policy.first if not self._under_way else max(policy.at_most, 1))
            first = count if not self._is_timed else first
            forecasts = tuple(map(Forecast, first_configs(self.table.configs, first)))
            return self._request(case, forecasts, first, first, 1e-3)
        reserve = policy.at_least * len(self._waiting) + ceil(policy.rest * self.budget)
        at_most = max(policy.at_least, min(policy.at_most, self.left - reserve))
        at_least = min(policy.at_least, at_most)
        return self._request(case, self._forecasts(case, fit), at_least, at_most, self.table.prior.case)

    def _request(
        self, case: int, forecasts: tuple[Forecast, ...], at_least: int, at_most: int, spread: float
    ) -> CaseRequest:
        self._under_way[case] = at_most
        sizes = dict(self.table.cases[case])
        return CaseRequest(case, sizes, forecasts, at_least, at_most, spread, self.policy.doubt, self.policy.margin)

    def _forecasts(self, case: int, fit: Fit) -> tuple[Forecast, ...]:
        """Return what is expected of all configs, the most hopeful first."""
        logs, spreads = fit.log_times(case), fit.spreads(case, with_case=False)
        order = np.argsort(logs - self.policy.doubt * spreads, kind="stable")
        places = [int(place) for place in order if not self.table.is_hopeless(case, int(place))]
        return tuple(self._forecast(place, logs, spreads) for place in places)

    def _forecast(self, place: int, logs: Array, spreads: Array) -> Forecast:
        return Forecast(self.table.configs[place], float(np.exp(logs[place])), float(spreads[place]))

    def _next_round(self) -> list[CaseRequest]:
        """Return requests of the cases on which most is to be found, for this round's part of what is left."""
        fit = self.table.fit()
        if fit is None or self.left <= 0 or not self._rounds_left:
            return []
        count = -(-self.left // self._rounds_left)
        self._rounds_left -= 1
        rule = frozenset(best_set(self.table, fit, self.policy.max_configs))
        logs = {case: fit.log_times(case) for case in self._measured()}
        spreads = {case: fit.spreads(case) for case in logs}
        gains = [cell for case in logs for cell in self._gains(case, logs[case], spreads[case])]
        lessons = [cell for case in logs for cell in self._lessons(case, logs[case], spreads[case], rule)]
        visited: dict[int, dict[int, None]] = {}
        for cells, most in ((gains, count - int(self.policy.rest * count)), (lessons, count), (gains, count)):
            self._take(sorted(cells, reverse=True), most, visited)
        found = []
        for case, own in visited.items():
            forecasts = tuple(self._forecast(place, logs[case], spreads[case]) for place in own)
            found.append(self._request(case, forecasts, len(own), len(own), 1e-3))
        return found

    def _take(self, cells: Sequence[_Cell], most: int, visited: dict[int, dict[int, None]]) -> None:
        """Add cells to those that a round visits, until there are so many, on no more cases than it may visit."""
        cases = ceil(self.policy.revisited * len(self.table.cases))
        for cell in cells:
            if sum(map(len, visited.values())) >= most:
                return
            if cell.case in visited or len(visited) < cases:
                visited.setdefault(cell.case, {})[cell.place] = None

    def _gains(self, case: int, logs: Array, spreads: Array) -> list[_Cell]:
        """Return untried configs with how much they are expected to be faster than the best of the case."""
        best = log(min(self.table.times_of(case).values())) - self.policy.margin
        found = (_Cell(_expected_gain(best, logs[p], spreads[p]), case, p) for p in self._untried(case))
        return [cell for cell in found if cell.worth > _LEAST_GAIN]

    def _lessons(self, case: int, logs: Array, spreads: Array, rule: frozenset[int]) -> list[_Cell]:
        """Return untried configs of the rule with what a time tells: most where one may be good, and is not known."""
        times = self.table.times_of(case)
        best = log(min(times.values()))
        served = min((log(times[place]) for place in rule if place in times), default=inf)
        urgent = _UNSERVED if served > best + 2 * self.policy.margin else 1.0
        slower = np.maximum(0.0, logs - best) / self.policy.near
        return [_Cell(urgent * spreads[p] * exp(-slower[p]), case, p) for p in self._untried(case) if p in rule]

    def _untried(self, case: int) -> list[int]:
        times = self.table.times_of(case)
        return [p for p in range(len(self.table.configs)) if p not in times and not self.table.is_hopeless(case, p)]

    def _measured(self) -> list[int]:
        return [case for case in self.table.timed_cases if case not in self._exhausted | self._under_way.keys()]


def _expected_gain(best: float, mean: float, spread: float) -> float:
    """Return by how much a normal variable is expected to be below ``best`` (Jones, Schonlau and Welch 1998)."""
    z = (best - mean) / spread
    return spread * (z * 0.5 * (1.0 + erf(z / sqrt(2.0))) + exp(-0.5 * z * z) / sqrt(2.0 * pi))


def first_configs(configs: Sequence[Config], count: int) -> list[Config]:
    """Return so many configs that lie far apart, none of those that compile longest where there are enough others.

    The first case waits for these: the longest of 48 matrix products takes ten times the shortest to compile.
    """
    light = longest_first(configs)[min(len(configs) // _HEAVY_SHARE, len(configs) - count) :]
    kept = set(light)
    chosen = [config for config in configs if config in kept]
    return [chosen[place] for place in spread_out(design_of(chosen), count)]


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
