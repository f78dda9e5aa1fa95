"""The plan of a tuning over sizes: which cases and configs to measure next.

The plan has no effects: `ask` returns a request, and `tell` takes its result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil, exp, inf, log
from typing import NamedTuple

import numpy as np

from kernellab.errors import UsageError, value_text
from kernellab.store.columns import Status
from kernellab.timing.config import Config
from kernellab.tune.dispatch.cover import best_set
from kernellab.tune.dispatch.result import CaseRequest, Forecast, MeasuredCase
from kernellab.tune.dispatch.table import CaseTable
from kernellab.tune.dispatch.time_model import Array, Fit, design_of
from kernellab.tune.predicted_search import expected_gain
from kernellab.tune.search import longest_first

_LEAST_GAIN = 1e-4  # as a logarithm
_HEAVY_SHARE = 4
_MINOR_SHARE = 0.01  # of the program's time: cases that take less together are not measured
_MOST_MARGIN = 0.3
_UNSERVED = 100.0  # factor for measurements on a case without a good config of the rule


@dataclass(frozen=True, slots=True)
class PlanPolicy:
    """The measurement budget of a tuning over sizes, and how it is divided.

    At most the ``share`` of the table of cases and configs is measured, known rows aside: ``first`` configs on the
    first case, ``at_least`` to ``at_most`` at the first visit of another. A config is tried there if it is faster than
    the best one by more than ``margin``, as a logarithm, where it is ``doubt`` standard deviations faster than
    expected. The rest of the budget is spent in ``rounds``, each on the share ``revisited`` of the cases at most, since
    a visit costs as much as several configs. In a round, the share ``rest`` goes to configs of the rule, on cases where
    they come within about ``near`` of the best, and the other part to configs that may be the best of a case. The model
    is not fitted anew while at most the share ``stale`` of the times is new. The rule has ``max_configs`` at most.

    Raises:
        UsageError: that is not a positive number.
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
            raise UsageError(f"max_configs is {value_text(self.max_configs)}; expected a positive integer.")


class _UntimedCell(NamedTuple):
    """A config that was not tried on a case, with the expected value of measuring it."""

    worth: float
    case: int
    place: int


@dataclass(slots=True)
class Plan:
    """Chooses the next case to measure; several cases may be measured at once.

    It starts with many configs on a case of middle size. The other cases follow, each as far as possible from those
    before it, so that the model soon covers all sizes. A few rounds over all cases follow: each measures the most
    valuable cells, those of one case in one visit.
    """

    table: CaseTable
    policy: PlanPolicy = field(default_factory=PlanPolicy)
    baseline: Sequence[int] = ()
    unmeasured: dict[int, float] = field(default_factory=dict)
    _waiting: list[int] = field(default_factory=list)
    _round: list[CaseRequest] = field(default_factory=list)
    _rounds_left: int = field(init=False)
    _under_way: dict[int, int] = field(default_factory=dict)  # by case: how many configs at most
    _spent: int = 0
    _is_timed: bool = True
    _exhausted: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        logs = np.log2([[float(value) for value in case.values()] for case in self.table.cases])
        middle = np.median(logs, axis=0)
        if self.table.counts is not None:  # of the work, as far as sizes tell
            middle = np.average(logs, axis=0, weights=np.exp2(logs.sum(axis=1)) * np.array(self.table.counts))
        self._waiting = spread_out(logs - middle, len(logs))
        self._rounds_left = self.policy.rounds

    @property
    def budget(self) -> int:
        """The maximum number of measured configs over all cases; covers the ``first`` ones and a few of each case."""
        policy, cases, configs = self.policy, len(self.table.cases), len(self.table.configs)
        least = min(configs, policy.first) + (cases - 1) * min(configs, policy.at_least)
        return max(least, int(policy.share * cases * configs))

    @property
    def left(self) -> int:
        """The rest of the budget, less the configs that running cases may take."""
        return self.budget - self._spent - sum(self._under_way.values())

    def ask(self) -> CaseRequest | None:
        """Return the next request; None if none is left, or if running cases must end first."""
        if self._waiting:
            fit = self.table.fit(self.policy.stale) if self._is_timed else None
            if fit is not None and self.table.counts is not None:
                self._sort_waiting(fit)
            if self._waiting:
                return self._first_request(self._waiting.pop(0), fit)
        if not self._round and not self._under_way and self._is_timed:
            self._round = self._next_round()
        return self._round.pop(0) if self._round else None

    def tell(self, case: MeasuredCase) -> None:
        """Record the result of a case."""
        self._under_way.pop(case.number, None)
        self.table.add_case(case)
        untimed = {Status.NOT_TIMED, Status.PRUNED}
        timed = [row for row in case.rows if row.status not in untimed or row.ranking_ms is not None]
        self._spent += max(0, len(timed) - case.known)
        if case.rows and not timed and all(row.status is Status.NOT_TIMED for row in case.rows):
            self._is_timed = False
            if len(case.rows) < len(self.table.configs):
                self._waiting.insert(0, case.number)  # all configs compile on all cases then
        if case.failure or not timed:
            self._exhausted.add(case.number)

    def _sort_waiting(self, fit: Fit) -> None:
        """Sort the waiting cases by the time that measuring may save; drop all once they take hardly any together."""
        shares = self.table.shares(fit, self.policy.doubt)
        if float(shares[self._waiting].sum()) < _MINOR_SHARE:
            expected = self.table.shares(fit)
            self.unmeasured |= {case: float(expected[case]) for case in self._waiting}
            self._waiting.clear()
        spreads = {case: float(fit.spreads(case, with_case=False).mean()) for case in self._waiting}
        self._waiting.sort(key=lambda case: -shares[case] * spreads[case])

    def _first_request(self, case: int, fit: Fit | None) -> CaseRequest:
        """Return the first request of a case."""
        policy, count = self.policy, len(self.table.configs)
        if fit is None:
            first = min(count, max(policy.at_most, 1) if self._under_way else policy.first) if self._is_timed else count
            forecasts = self._with_baseline(case, tuple(map(Forecast, first_configs(self.table.configs, first))))
            return self._request(case, forecasts, len(forecasts), len(forecasts), 1e-3)
        reserve = policy.at_least * len(self._waiting) + ceil(policy.rest * self.budget)
        at_most = max(policy.at_least, min(policy.at_most, self.left - reserve))
        at_least = min(policy.at_least, at_most)
        forecasts = self._with_baseline(case, self._forecasts(case, fit))
        margin = min(_MOST_MARGIN, self.policy.margin / min(1.0, self._importance(fit)[case]))
        return self._request(case, forecasts, at_least, at_most, self.table.prior.case, margin)

    def _request(
        self, case: int, forecasts: tuple[Forecast, ...], at_least: int, at_most: int, spread: float,
        margin: float | None = None,
    ) -> CaseRequest:  # fmt: skip
        self._under_way[case] = at_most
        margin = self.policy.margin if margin is None else margin
        sizes = dict(self.table.cases[case])
        return CaseRequest(case, sizes, forecasts, at_least, at_most, spread, self.policy.doubt, margin)

    def _with_baseline(self, case: int, forecasts: tuple[Forecast, ...]) -> tuple[Forecast, ...]:
        """Put the config that a case is launched with now before the others, unless it failed."""
        if not self.baseline or self.table.is_hopeless(case, self.baseline[case]):
            return forecasts
        own = self.table.configs[self.baseline[case]]
        others = (forecast for forecast in forecasts if forecast.config != own)
        return (Forecast(own), *others)  # without a time, it is tried before all that have one

    def _importance(self, fit: Fit) -> Array:
        """Return the share of each case in the program's time, relative to the mean."""
        importance: Array = np.maximum(self.table.shares(fit) * len(self.table.cases), 1e-6)
        return importance

    def _forecasts(self, case: int, fit: Fit) -> tuple[Forecast, ...]:
        """Return the forecasts of all configs, the most promising first."""
        logs, spreads = fit.log_times(case), fit.spreads(case, with_case=False)
        order = np.argsort(logs - self.policy.doubt * spreads, kind="stable")
        places = [int(place) for place in order if not self.table.is_hopeless(case, int(place))]
        return tuple(self._forecast(place, logs, spreads) for place in places)

    def _forecast(self, place: int, logs: Array, spreads: Array) -> Forecast:
        return Forecast(self.table.configs[place], float(np.exp(logs[place])), float(spreads[place]))

    def _next_round(self) -> list[CaseRequest]:
        """Return requests for the most valuable cells, within this round's share of the budget."""
        fit = self.table.fit()
        if fit is None or self.left <= 0 or not self._rounds_left:
            return []
        count = -(-self.left // self._rounds_left)
        self._rounds_left -= 1
        rule = frozenset(best_set(self.table, fit, self.policy.max_configs))
        closed = self._exhausted | self._under_way.keys()
        logs = {case: fit.log_times(case) for case in self.table.timed_cases if case not in closed}
        spreads = {case: fit.spreads(case) for case in logs}
        factors = self._importance(fit)
        gains = [
            cell._replace(worth=worth)
            for case in logs
            for cell in self._promising_cells(case, logs[case], spreads[case])
            if (worth := cell.worth * float(factors[case])) > _LEAST_GAIN
        ]
        lessons = [
            cell._replace(worth=cell.worth * float(factors[case]))
            for case in logs
            for cell in self._informative_cells(case, logs[case], spreads[case], rule)
        ]
        visited: dict[int, dict[int, None]] = {}
        for cells, most in ((gains, count - int(self.policy.rest * count)), (lessons, count), (gains, count)):
            self._add_cells(sorted(cells, reverse=True), most, visited)
        requests = []
        for case, own in visited.items():
            forecasts = tuple(self._forecast(place, logs[case], spreads[case]) for place in own)
            requests.append(self._request(case, forecasts, len(own), len(own), 1e-3))
        return requests

    def _add_cells(self, cells: Sequence[_UntimedCell], most: int, visited: dict[int, dict[int, None]]) -> None:
        """Add cells to a round until it has ``most``, on no more cases than a round may visit."""
        cases = ceil(self.policy.revisited * len(self.table.cases))
        for cell in cells:
            if sum(map(len, visited.values())) >= most:
                return
            if cell.case in visited or len(visited) < cases:
                visited.setdefault(cell.case, {})[cell.place] = None

    def _promising_cells(self, case: int, logs: Array, spreads: Array) -> list[_UntimedCell]:
        """Return untried configs with their expected improvement over the best of the case."""
        best = log(min(self.table.times_of(case).values())) - self.policy.margin
        return [_UntimedCell(expected_gain(best, logs[p], spreads[p]), case, p) for p in self._untried_configs(case)]

    def _informative_cells(self, case: int, logs: Array, spreads: Array, rule: frozenset[int]) -> list[_UntimedCell]:
        """Return untried configs of the rule; those count most that may be good and have an uncertain time."""
        times = self.table.times_of(case)
        best = log(min(times.values()))
        served = min((log(times[place]) for place in rule if place in times), default=inf)
        urgent = _UNSERVED if served > best + 2 * self.policy.margin else 1.0
        slower = np.maximum(0.0, logs - best) / self.policy.near
        return [
            _UntimedCell(urgent * spreads[p] * exp(-slower[p]), case, p)
            for p in self._untried_configs(case)
            if p in rule
        ]

    def _untried_configs(self, case: int) -> list[int]:
        times = self.table.times_of(case)
        return [p for p in range(len(self.table.configs)) if p not in times and not self.table.is_hopeless(case, p)]


def first_configs(configs: Sequence[Config], count: int) -> list[Config]:
    """Return ``count`` configs that lie far apart, without those that compile longest if there are enough.

    The first case waits for their compilation: of 48 matrix products, the longest takes ten times the shortest.
    """
    light = longest_first(configs)[min(len(configs) // _HEAVY_SHARE, len(configs) - count) :]
    kept = set(light)
    chosen = [config for config in configs if config in kept]
    return [chosen[place] for place in spread_out(design_of(chosen), count)]


def spread_out(design: Array, count: int) -> list[int]:
    """Return the places of points that lie far apart: the central one, then always the farthest from the others.

    Gonzalez 1985, *Clustering to minimize the maximum intercluster distance*.
    """
    chosen = [int((design**2).sum(axis=1).argmin())]
    distances = ((design - design[chosen[0]]) ** 2).sum(axis=1)
    while len(chosen) < min(count, len(design)):
        chosen.append(int(distances.argmax()))
        distances = np.minimum(distances, ((design - design[chosen[-1]]) ** 2).sum(axis=1))
    return chosen
