"""The rule of a table of cases and configs: its few configs, their costs, and its regrets.

The configs are chosen by their losses on measured cases, and on sizes between them as the model estimates; with weights
of the cases, by the time of the whole program. Regrets are given for each measured case, and estimated for a rule
fitted without it.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import reduce
from math import exp, gcd, log

import numpy as np

from kernellab.store.columns import Status
from kernellab.tune.dispatch.result import CoverStep, MeasuredCase, Regret
from kernellab.tune.dispatch.rule import Rule, Term
from kernellab.tune.dispatch.table import CaseTable
from kernellab.tune.dispatch.time_model import Array, Fit

_SIZES_BETWEEN = 300
_LOST = 0.05  # a size where the best of a set loses more than this counts many times
_LOST_WEIGHT = 30.0
_MEASURED_LOST = 0.015
_MEASURED_WEIGHT = 20.0
_BETWEEN_WEIGHT = 0.1  # of sizes between the cases, beside a program's own
_FAILED = 10.0
_UNMEASURED = 0.03  # penalty on the predicted logarithm of an unmeasured time


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
    between, cases = _losses(table, fit)
    if table.counts is None:
        losses = np.concatenate(
            [_penalised(between, _LOST, _LOST_WEIGHT), _penalised(cases, _MEASURED_LOST, _MEASURED_WEIGHT)]
        )
    else:  # the time of the program that is lost, and a little for sizes that it may have later
        shares = table.shares(fit)[_judged_cases(table)]
        losses = np.concatenate([_BETWEEN_WEIGHT * between / len(between), shares[:, None] * np.expm1(cases)])
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


def _judged_cases(table: CaseTable) -> list[int]:
    """Return the cases that a rule is judged on: the timed ones, and all of a program."""
    return table.timed_cases if table.counts is None else list(range(len(table.cases)))


def _losses(table: CaseTable, fit: Fit) -> tuple[Array, Array]:
    """Return the loss of each config as a logarithm, on sizes between the cases and on the judged cases."""
    between = table.features(_sizes_between(table.cases))
    logs = np.log((between * fit.weights_ms).sum(axis=2))
    rows = [_case_losses(table, fit, case) for case in _judged_cases(table)]
    return logs - logs.min(axis=1, keepdims=True), np.array(rows)


def _case_losses(table: CaseTable, fit: Fit, case: int) -> Array:
    row, times_ms = fit.log_times(case), table.times_of(case)
    best = np.log(min(times_ms.values())) if times_ms else row.min()
    row = row + (_UNMEASURED if times_ms else 0.0)
    for config, time_ms in times_ms.items():
        row[config] = np.log(time_ms)
    losses: Array = np.maximum(row - best, 0.0)
    losses[[place for place in range(len(row)) if table.is_hopeless(case, place)]] = _FAILED
    return losses


def _penalised(losses: Array, bound: float, weight: float) -> Array:
    """Return the share of each loss in the mean, where a loss beyond the bound counts many times."""
    penalised: Array = (losses + weight * np.maximum(0.0, losses - bound)) / len(losses)
    return penalised


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
                middle = rng.uniform(log(low), log(high))
            else:
                middle = log(one[name]) * share + log(other[name]) * (1 - share) + rng.gauss(0.0, 0.3)
            step = steps[name]
            sizes[name] = min(high, max(low, step * round(exp(middle) / step)))
        drawn.append(sizes)
    return drawn


def cover_steps(table: CaseTable, fit: Fit, chosen: Sequence[int]) -> tuple[CoverStep, ...]:
    """Return the losses of the first config, of the first two, and so on."""
    between, cases = _losses(table, fit)
    shares = table.shares(fit)[_judged_cases(table)]
    steps = []
    for some in range(1, len(chosen) + 1):
        own = np.exp(cases[:, list(chosen[:some])].min(axis=1))
        others = np.exp(between[:, list(chosen[:some])].min(axis=1))
        mean = float(np.average(own, weights=shares))
        steps.append(CoverStep(some, mean, float(own.max()), float(others.mean())))
    return tuple(steps)


def regrets_of(table: CaseTable, rule: Rule, fit: Fit | None, cases: Sequence[MeasuredCase]) -> tuple[Regret, ...]:
    """Return the regret of a rule on each case."""
    own = [table.places[config] for config in rule.configs]
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
