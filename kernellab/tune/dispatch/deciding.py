"""From what was measured to a rule: which few configs serve all sizes, and what is lost with them.

Sizes between those that were measured count by what the model expects there. What the rule loses is told for the
measured cases, and as it would be for each if that had not been measured.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import reduce
from math import gcd

import numpy as np

from kernellab.measure.config import Status
from kernellab.tune.dispatch.model import Array, Fit
from kernellab.tune.dispatch.result import CoverStep, MeasuredCase, Regret
from kernellab.tune.dispatch.rule import Rule, Term
from kernellab.tune.dispatch.table import Table

_LOST = 0.05  # a size where the best of a set loses more than this counts many times
_LOST_WEIGHT = 30.0
_MEASURED_LOST = 0.015
_MEASURED_WEIGHT = 20.0
_UNMEASURED = 0.03  # what a config that was not measured on a case is taken to be slower by than the model says


def decided(table: Table, max_configs: int) -> tuple[Rule, Fit | None]:
    """Return the rule of what is known, with the model; where nothing was timed, the first config that fits."""
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


def best_set(table: Table, fit: Fit, at_most: int, count: int = 300) -> list[int]:
    """Return the places of at most so many configs that lose least, on measured cases and on sizes between them.

    They are chosen one after the other, and then exchanged while that helps; the first of them is the best alone. A
    config without any time is none of them.
    """
    timed = table.timed_configs
    losses = np.concatenate([_weighted(*part) for part in _losses(table, fit, count)])
    chosen = _exchanged(_greedy(losses, timed, at_most), timed, losses)
    return _greedy(losses, chosen, at_most)


def _exchanged(chosen: list[int], timed: Sequence[int], losses: Array) -> list[int]:
    lost = float(losses[:, chosen].min(axis=1).sum())
    is_better = len(chosen) > 1
    while is_better:
        is_better = False
        for index in range(len(chosen)):
            others = chosen[:index] + chosen[index + 1 :]
            place, total = _best_added(losses, losses[:, others].min(axis=1), timed)
            if total < lost - 1e-12:
                chosen, lost, is_better = [*chosen[:index], place, *chosen[index + 1 :]], total, True
    return chosen


def _greedy(losses: Array, places: Sequence[int], at_most: int) -> list[int]:
    """Return places in the order in which each takes most of what the ones before it lose."""
    chosen: list[int] = []
    left, lost = np.full(len(losses), np.inf), np.inf
    while len(chosen) < min(at_most, len(places)):
        place, total = _best_added(losses, left, places)
        if chosen and total >= lost:
            break
        chosen.append(place)
        left, lost = np.minimum(left, losses[:, place]), total
    return chosen


def _best_added(losses: Array, left: Array, places: Sequence[int]) -> tuple[int, float]:
    """Return the place that takes most of what is left to lose, and what is lost then."""
    totals = np.minimum(left[:, None], losses[:, list(places)]).sum(axis=0)
    best = int(totals.argmin())
    return places[best], float(totals[best])


def _losses(table: Table, fit: Fit, count: int) -> tuple[tuple[Array, float, float], tuple[Array, float, float]]:
    """Return what each config loses as a logarithm, on sizes between the cases and on the cases themselves."""
    between = table.features(sizes_between(table.cases, count))
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


def _weighted(losses: Array, bound: float, weight: float) -> Array:
    found: Array = (losses + weight * np.maximum(0.0, losses - bound)) / len(losses)
    return found


def sizes_between(cases: Sequence[Mapping[str, int]], count: int, seed: int = 0) -> list[dict[str, int]]:
    """Return sizes that a rule may be asked for: half of them near the lines between two cases, half anywhere within.

    They are uniform in their logarithms, and multiples of what divides all values of a size.
    """
    rng = random.Random(seed)
    names = list(cases[0])
    values = {name: [case[name] for case in cases] for name in names}
    steps = {name: reduce(gcd, values[name]) or 1 for name in names}
    found = []
    for index in range(count):
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
        found.append(sizes)
    return found


def cover_steps(table: Table, fit: Fit, chosen: Sequence[int], count: int = 300) -> tuple[CoverStep, ...]:
    """Return what the first of some configs lose, the first two, and so on."""
    (between, *_), (cases, *_) = _losses(table, fit, count)
    found = []
    for some in range(1, len(chosen) + 1):
        own = np.exp(cases[:, list(chosen[:some])].min(axis=1))
        others = np.exp(between[:, list(chosen[:some])].min(axis=1))
        found.append(CoverStep(some, float(own.mean()), float(own.max()), float(others.mean())))
    return tuple(found)


def regrets_of(table: Table, rule: Rule, fit: Fit | None, cases: Sequence[MeasuredCase]) -> tuple[Regret, ...]:
    """Return what a rule loses on each case."""
    places = {config: place for place, config in enumerate(table.configs)}
    own = [places[config] for config in rule.configs]
    return tuple(_regret(table, rule, fit, case, own) for case in cases)


def _regret(table: Table, rule: Rule, fit: Fit | None, case: MeasuredCase, own: Sequence[int]) -> Regret:
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
        estimated=_estimated(table, fit, case.number, own),
    )


def _estimated(table: Table, fit: Fit, case: int, own: Sequence[int]) -> float | None:
    """Return what would be lost on a case if it had not been measured; None where no other was.

    Where what the rule would pick was not measured on the case, it counts with the time that is expected of it now.
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
