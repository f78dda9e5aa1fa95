"""The table of cases by configs: the times measured so far, and the terms of the model that predicts the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from kernellab.store.columns import Status
from kernellab.timing.config import Config
from kernellab.tune.dispatch.result import MeasuredCase
from kernellab.tune.dispatch.rule import (
    ALIGNMENT,
    QUANTITIES,
    Cost,
    ProgramsFormula,
    Quantity,
    SeenGrid,
    Term,
    programs_formula,
)
from kernellab.tune.dispatch.time_model import Array, Fit, Prior, design_of, fit_weights
from kernellab.tune.result import Row

_BROKEN = frozenset({Status.CANNOT_RUN, Status.COMPILE_ERROR, Status.PRUNED})
_MOST_FAULTS = 2
_BUSY: tuple[Quantity, ...] = ("wave", "round")
_FEW_SIZES = 2
_IMPORTANCE = (0.25, 4.0)  # the precision of a measurement by its case's share of the time, limited


@dataclass(slots=True)
class CaseTable:
    """Cases by configs: times, rows, and a model that is fitted again after new measurements.

    ``cases`` are sizes by name, ``multiprocessors`` those of the device; ``terms`` are those of the model, in the order
    of its weights. ``counts`` are how often a program launches each case, None where all cases count alike. ``places``
    are the places of the configs.
    """

    cases: Sequence[Mapping[str, int]]
    configs: Sequence[Config]
    multiprocessors: int
    prior: Prior = field(default_factory=Prior)
    counts: Sequence[float] | None = None
    rows: dict[tuple[int, int], Row] = field(default_factory=dict)
    formula: ProgramsFormula | None = None
    terms: tuple[Term, ...] = ()
    places: dict[Config, int] = field(init=False)
    _times_ms: dict[int, dict[int, float]] = field(default_factory=dict)  # by case and config
    _new_times: int = 0  # times since the last fit
    _is_changed: bool = False  # the formula, since the last fit
    _faults: dict[int, list[Status]] = field(default_factory=dict)  # by config
    _resident: dict[int, int] = field(default_factory=dict)
    _grids: list[SeenGrid] = field(default_factory=list)
    _design: Array = field(init=False)
    _fit: Fit | None = None

    def __post_init__(self) -> None:
        self.places = {config: place for place, config in enumerate(self.configs)}
        self._design = design_of(self.configs)

    def add_case(self, case: MeasuredCase) -> None:
        """Add the measurements of a case."""
        places = self.places
        self.multiprocessors = case.provenance.get("multiprocessors", self.multiprocessors)
        for row in case.rows:
            if row.config in places:
                self._add_row(case.number, places[row.config], row)
        for config, count in case.resident.items():
            if config in places:
                self._resident.setdefault(places[config], count)
        seen = [SeenGrid(case.sizes, config, grid) for config, grid in case.grids.items()]
        is_first = not self._grids
        self._grids += seen
        if is_first or not all(self.formula is not None and self.formula.matches(observed) for observed in seen):
            formula = programs_formula(self._grids)
            self._is_changed |= formula != self.formula
            self.formula = formula

    def _add_row(self, case: int, place: int, row: Row) -> None:
        before = self.rows.get((case, place))
        if before is not None:
            self._times_ms.get(case, {}).pop(place, None)
            if before.status in self._faults.get(place, ()):
                self._faults[place].remove(before.status)
        self.rows[case, place] = row
        if row.ranking_ms is not None:
            self._times_ms.setdefault(case, {})[place] = row.ranking_ms
            self._new_times += 1
        elif row.status not in {Status.OK, Status.NOT_TIMED}:
            self._faults.setdefault(place, []).append(row.status)

    @property
    def timed_cases(self) -> list[int]:
        """The places of the cases with a time."""
        return sorted(case for case, times in self._times_ms.items() if times)

    @property
    def timed_configs(self) -> list[int]:
        """The places of the configs with a time."""
        return sorted(set().union(*self._times_ms.values()))

    def times_of(self, case: int) -> dict[int, float]:
        """Return the medians of a case by the places of configs."""
        return dict(self._times_ms.get(case, {}))

    def shares(self, fit: Fit | None, doubt: float = 0.0) -> Array:
        """Return the share of each case in the program's time with its best config; without counts, all are equal.

        A case that was not timed counts with its forecast, ``doubt`` standard deviations longer; 0 without a model.
        """
        if self.counts is None:
            return np.full(len(self.cases), 1.0 / len(self.cases))
        times_ms = np.zeros(len(self.cases))
        for case in range(len(self.cases)):
            if measured := self._times_ms.get(case):
                times_ms[case] = min(measured.values())
            elif fit is not None:
                logs, spreads = fit.log_times(case), fit.spreads(case, with_case=False)
                best = int(logs.argmin())
                times_ms[case] = np.exp(logs[best] + doubt * np.hypot(spreads[best], self.prior.case))
        totals: Array = times_ms * np.array(self.counts)
        shares: Array = totals / totals.sum()
        return shares

    def _importance(self) -> Array:
        """Return how much the measurements of each case count in the fit, by its share of the program's time."""
        if self.counts is None:
            return np.ones(len(self.cases))
        shares = self.shares(None)
        importance: Array = np.clip(shares * (shares > 0).sum(), *_IMPORTANCE)
        return importance

    def is_hopeless(self, case: int, config: int) -> bool:
        """Whether to skip a config on a case: it failed there, does not compile, or fails often."""
        row = self.rows.get((case, config))
        if row is not None and row.status is not Status.OK and row.ranking_ms is None:
            return True
        failed = self._faults.get(config, ())
        return any(status in _BROKEN for status in failed) or len(failed) >= _MOST_FAULTS

    def fit(self, tolerated: float = 0.0) -> Fit | None:
        """Return the model fitted to all measurements; None if nothing was timed.

        An earlier one will do where no more than a ``tolerated`` share of the times is new.
        """
        count = sum(map(len, self._times_ms.values()))
        if not count:
            return None
        start = self._fit
        if start is not None and self._new_times <= tolerated * count:
            return start
        if start is None or self._is_changed:
            start = None
            self.terms = terms_of(self.cases, self.formula)
        logs = np.full((len(self.cases), len(self.configs)), np.nan)
        for case, times in self._times_ms.items():
            logs[case, list(times)] = np.log(list(times.values()))
        features = self.features(self.cases)
        self._fit = fit_weights(features, self._design, logs, self.prior, start, self._importance())
        self._new_times, self._is_changed = 0, False
        return self._fit

    def slots(self) -> list[int]:
        """Return the number of programs of each config that run at a time; uncompiled ones use the nearest config's."""
        known = sorted(self._resident)
        counts = [1] * len(self.configs)
        if known:
            distances = ((self._design[:, None] - self._design[None, known]) ** 2).sum(axis=2)
            counts = [self._resident[known[place]] for place in distances.argmin(axis=1)]
            counts = [self._resident.get(place, count) for place, count in enumerate(counts)]
        most = None if self.formula is None else self.formula.at_most
        slots = [self.multiprocessors * count for count in counts]
        return slots if most is None else [min(count, most) for count in slots]

    def features(self, cases: Sequence[Mapping[str, int]]) -> Array:
        """Return the factors of the terms' weights: cases by configs by terms."""
        names = list(self.cases[0])
        sizes = {name: np.array([case[name] for case in cases], dtype=np.float64) for name in names}
        programs = np.ones((len(cases), len(self.configs)))
        for size, by in () if self.formula is None else self.formula.factors:
            blocks = [float(config.values[by]) if isinstance(by, str) else float(by) for config in self.configs]
            programs = programs * (np.ceil(sizes[size][:, None] / np.array(blocks)) if size else np.array(blocks))
        waves = np.ceil(programs / np.array(self.slots(), dtype=np.float64))
        counts = {"launch": np.ones_like(programs), "wave": waves, "round": np.ceil(programs / self.multiprocessors)}
        columns = []
        for term in self.terms:
            column = counts[term.per]
            for name in term.sizes:
                column = column * sizes[name][:, None]
            if term.odd:
                column = column * (sizes[term.odd][:, None] % ALIGNMENT > 0)
            columns.append(column)
        return np.stack(columns, axis=-1)

    def cost(self, place: int, weights_ms: Sequence[float]) -> Cost:
        """Return the cost of a config with some weights."""
        extents = () if self.formula is None else self.formula.extents(self.configs[place])
        return Cost(self.configs[place], extents, self.slots()[place], tuple(weights_ms))


def terms_of(cases: Sequence[Mapping[str, int]], formula: ProgramsFormula | None) -> tuple[Term, ...]:
    """Return the terms of the time model: launches, waves and rounds, alone and times each size of a program's loop.

    The number of programs does not depend on those sizes. If it depends on all sizes, and these are few, all count,
    since a program may loop over what it is also counted by. A size that is odd in some cases only has terms of its
    own, for the longer waves and rounds.
    """
    names = list(cases[0])
    outside = frozenset() if formula is None else formula.sizes
    inside = [name for name in names if name not in outside]
    if not inside and 1 < len(names) <= _FEW_SIZES:
        inside = list(names)
    steps: list[tuple[str, ...]] = [(name,) for name in inside]
    terms = [Term(per, sizes) for per in QUANTITIES for sizes in ((), *steps)]
    mixed = [name for name in names if len({case[name] % ALIGNMENT > 0 for case in cases}) > 1]
    return (*terms, *(Term(per, sizes, name) for name in mixed for per in _BUSY for sizes in steps or [()]))
