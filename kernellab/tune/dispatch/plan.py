"""The plan of a tuning over sizes: which cases and configs to measure next; then the rule, and its regrets.

The plan has no effects: `ask` returns a request, and `tell` takes its result. The rule's few configs are chosen by
their losses on measured cases, and on sizes between them as the model estimates. Regrets are given for each measured
case, and estimated for a rule fitted without it.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from math import ceil, erf, exp, gcd, inf, log, pi, sqrt
from typing import NamedTuple

import numpy as np

from kernellab.errors import UsageError, value_text
from kernellab.store.columns import Status
from kernellab.timing.config import Config
from kernellab.tune.dispatch.result import CaseRequest, CoverStep, Forecast, MeasuredCase, Regret
from kernellab.tune.dispatch.rule import Rule, Term
from kernellab.tune.dispatch.table import Array, CaseTable, Fit, design_of
from kernellab.tune.search import longest_first

_LEAST_GAIN = 1e-4  # as a logarithm
_HEAVY_SHARE = 4
_UNSERVED = 100.0  # factor for measurements on a case without a good config of the rule
_SIZES_BETWEEN = 300
_LOST = 0.05  # a size where the best of a set loses more than this counts many times
_LOST_WEIGHT = 30.0
_MEASURED_LOST = 0.015
_MEASURED_WEIGHT = 20.0
_UNMEASURED = 0.03  # penalty on the predicted logarithm of an unmeasured time


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

    def _first_request(self, case: int, fit: Fit | None) -> CaseRequest:
        """Return the first request of a case."""
        policy, count = self.policy, len(self.table.configs)
        if fit is None:
            first = min(count, max(policy.at_most, 1) if self._under_way else policy.first) if self._is_timed else count
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
        gains = [cell for case in logs for cell in self._promising_cells(case, logs[case], spreads[case])]
        lessons = [cell for case in logs for cell in self._informative_cells(case, logs[case], spreads[case], rule)]
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
        cells = (_UntimedCell(_expected_gain(best, logs[p], spreads[p]), case, p) for p in self._untried_configs(case))
        return [cell for cell in cells if cell.worth > _LEAST_GAIN]

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


def _expected_gain(best: float, mean: float, spread: float) -> float:
    """Return the expected improvement of a normal variable on ``best`` (Jones, Schonlau and Welch 1998)."""
    z = (best - mean) / spread
    return spread * (z * 0.5 * (1.0 + erf(z / sqrt(2.0))) + exp(-0.5 * z * z) / sqrt(2.0 * pi))


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


def fit_rule(table: CaseTable, max_configs: int) -> tuple[Rule, Fit | None]:
    """Return the rule fitted to a table, with its model; if nothing was timed, a rule of the first config that fits."""
    names = tuple(table.cases[0])
    fit = table.fit()
    if fit is None:
        fitting = [place for (_, place), row in table.rows.items() if row.status is Status.NOT_TIMED]
        first = min(fitting, default=None)
        only = () if first is None else (table.cost(first, (0.0,)),)
        return Rule(names, (Term("launch"),), only, table.multiprocessors), None
    places = best_set(table, fit, max_configs)
    weights = fit.weights_ms
    costs = tuple(table.cost(place, [float(value) for value in weights[place]]) for place in places)
    known = {}
    for case, sizes in enumerate(table.cases):
        times = {place: time for place, time in table.times_of(case).items() if place in places}
        if times:
            known[tuple(sizes[name] for name in names)] = places.index(min(times, key=times.__getitem__))
    return Rule(names, table.terms, costs, table.multiprocessors, known), fit


def best_set(table: CaseTable, fit: Fit, at_most: int) -> list[int]:
    """Return the places of at most ``at_most`` configs with the least loss, on measured cases and sizes between.

    A greedy choice is improved by exchanges; the first place is the best single config. Configs without any time are
    left out.
    """
    timed = table.timed_configs
    losses = np.concatenate([_weighted_losses(*part) for part in _losses(table, fit)])
    chosen = _exchange_configs(_greedy(losses, timed, at_most), timed, losses)
    return _greedy(losses, chosen, at_most)


def _exchange_configs(chosen: list[int], timed: Sequence[int], losses: Array) -> list[int]:
    lost = float(losses[:, chosen].min(axis=1).sum())
    is_better = len(chosen) > 1
    while is_better:
        is_better = False
        for index in range(len(chosen)):
            others = chosen[:index] + chosen[index + 1 :]
            place, total = _best_addition(losses, losses[:, others].min(axis=1), timed)
            if total < lost - 1e-12:
                chosen, lost, is_better = [*chosen[:index], place, *chosen[index + 1 :]], total, True
    return chosen


def _greedy(losses: Array, places: Sequence[int], at_most: int) -> list[int]:
    """Return places in the order in which each reduces the remaining loss most."""
    chosen: list[int] = []
    left, lost = np.full(len(losses), np.inf), np.inf
    while len(chosen) < min(at_most, len(places)):
        place, total = _best_addition(losses, left, places)
        if chosen and total >= lost:
            break
        chosen.append(place)
        left, lost = np.minimum(left, losses[:, place]), total
    return chosen


def _best_addition(losses: Array, left: Array, places: Sequence[int]) -> tuple[int, float]:
    """Return the place that reduces the remaining loss most, and the loss with it."""
    totals = np.minimum(left[:, None], losses[:, list(places)]).sum(axis=0)
    best = int(totals.argmin())
    return places[best], float(totals[best])


def _losses(table: CaseTable, fit: Fit) -> tuple[tuple[Array, float, float], tuple[Array, float, float]]:
    """Return the loss of each config as a logarithm, on sizes between the cases and on the cases."""
    between = table.features(_sizes_between(table.cases))
    logs = np.log((between * fit.weights_ms).sum(axis=2))
    unmeasured = logs - logs.min(axis=1, keepdims=True)
    numbers = table.timed_cases
    rows = []
    for case in numbers:
        row = fit.log_times(case) + _UNMEASURED
        for config, time_ms in table.times_of(case).items():
            row[config] = np.log(time_ms)
        best = np.log(min(table.times_of(case).values()))
        row = np.maximum(row - best, 0.0)
        row[[place for place in range(len(row)) if table.is_hopeless(case, place)]] = 10.0
        rows.append(row)
    return (unmeasured, _LOST, _LOST_WEIGHT), (np.array(rows), _MEASURED_LOST, _MEASURED_WEIGHT)


def _weighted_losses(losses: Array, bound: float, weight: float) -> Array:
    weighted: Array = (losses + weight * np.maximum(0.0, losses - bound)) / len(losses)
    return weighted


def _sizes_between(cases: Sequence[Mapping[str, int]]) -> list[dict[str, int]]:
    """Return sizes to judge a rule by: half of them near lines between two cases, half anywhere within.

    Their logarithms are uniform; each is a multiple of the greatest common divisor of the size's values.
    """
    rng = random.Random(0)
    names = list(cases[0])
    values = {name: [case[name] for case in cases] for name in names}
    steps = {name: reduce(gcd, values[name]) or 1 for name in names}
    drawn = []
    for index in range(_SIZES_BETWEEN):
        one, other, share = rng.choice(cases), rng.choice(cases), rng.random()
        sizes = {}
        for name in names:
            low, high = min(values[name]), max(values[name])
            if index % 2:
                log = rng.uniform(np.log(low), np.log(high))
            else:
                log = np.log(one[name]) * share + np.log(other[name]) * (1 - share) + rng.gauss(0.0, 0.3)
            step = steps[name]
            sizes[name] = min(high, max(low, step * round(float(np.exp(log)) / step)))
        drawn.append(sizes)
    return drawn


def cover_steps(table: CaseTable, fit: Fit, chosen: Sequence[int]) -> tuple[CoverStep, ...]:
    """Return the losses of the first config, of the first two, and so on."""
    (between, *_), (cases, *_) = _losses(table, fit)
    steps = []
    for some in range(1, len(chosen) + 1):
        own = np.exp(cases[:, list(chosen[:some])].min(axis=1))
        others = np.exp(between[:, list(chosen[:some])].min(axis=1))
        steps.append(CoverStep(some, float(own.mean()), float(own.max()), float(others.mean())))
    return tuple(steps)


def regrets_of(table: CaseTable, rule: Rule, fit: Fit | None, cases: Sequence[MeasuredCase]) -> tuple[Regret, ...]:
    """Return the regret of a rule on each case."""
    places = {config: place for place, config in enumerate(table.configs)}
    own = [places[config] for config in rule.configs]
    return tuple(_regret(table, rule, fit, case, own) for case in cases)


def _regret(table: CaseTable, rule: Rule, fit: Fit | None, case: MeasuredCase, own: Sequence[int]) -> Regret:
    times = table.times_of(case.number)
    picked = rule.place(**case.sizes) if rule.costs else None
    config = None if picked is None else rule.configs[picked]
    if not times or picked is None or fit is None:
        reason = case.failure or next((row.reason for row in case.rows if row.reason), "nothing was timed")
        return Regret(case.sizes, config, None, None, None, None, None, reason)
    best = min(times, key=times.__getitem__)
    time_ms = times.get(own[picked])
    return Regret(
        sizes=case.sizes,
        config=config,
        best=table.configs[best],
        time_ms=time_ms,
        best_ms=times[best],
        regret=None if time_ms is None else time_ms / times[best],
        estimated=_estimated_regret(table, fit, case.number, own),
    )


def _estimated_regret(table: CaseTable, fit: Fit, case: int, own: Sequence[int]) -> float | None:
    """Return the regret on a case for a rule fitted without it; None if no other case was timed.

    If the config that the rule picks was not measured on the case, its predicted time counts.
    """
    if len(table.timed_cases) < 2:
        return None
    times = table.times_of(case)
    features: Array = table.features([table.cases[case]])[0]
    expected = (fit.weights_without(case) * features).sum(axis=1)
    picked = min(own, key=lambda place: float(expected[place]))
    best_ms = min(times.values())
    time_ms = times.get(picked) or max(best_ms, float(np.exp(fit.log_times(case)[picked])))
    return time_ms / best_ms
