"""From what was measured to a rule, and what the rule loses: on measured cases, and on those it would not know."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kernellab.measure.config import Status
from kernellab.tune.dispatch.cases import MeasuredCase
from kernellab.tune.dispatch.model import Array, Fit
from kernellab.tune.dispatch.result import Regret
from kernellab.tune.dispatch.rule import Rule, Term
from kernellab.tune.dispatch.selection import best_set
from kernellab.tune.dispatch.table import Table


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
