"""What is known of the table of cases and configs, and the model of the rest of it.

How many programs a launch has, of sizes that nobody launched, is a product of sizes over blocks: the one that gives all
grids that were seen, of sizes, sizes over values of the config, rounded up, and constants.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations_with_replacement
from math import prod

import numpy as np

from kernellab.dispatch.cases import MeasuredCase
from kernellab.dispatch.model import Array, Fit, Observation, Prior, case_spreads, design_of, fitted
from kernellab.dispatch.rule import QUANTITIES, Cost, Extent, Term
from kernellab.launch.grid import Grid3
from kernellab.measure.config import Config
from kernellab.measure.outcomes import Status
from kernellab.tune.result import Row

_BROKEN = frozenset({Status.CANNOT_RUN, Status.COMPILE_ERROR, Status.PRUNED})
_MOST_FAULTS = 2
_FEW_SIZES = 2


@dataclass(slots=True)
class Table:
    """Cases by configs: times, rows, and a model that is fitted anew when something was entered.

    ``cases`` are sizes by name, ``multiprocessors`` those of the device.
    """

    cases: Sequence[Mapping[str, int]]
    configs: Sequence[Config]
    multiprocessors: int
    prior: Prior = field(default_factory=Prior)
    rows: dict[tuple[int, int], Row] = field(default_factory=dict)
    formula: ProgramsFormula | None = None
    _times_ms: dict[int, dict[int, float]] = field(default_factory=dict)  # by case and config
    _faults: dict[int, list[Status]] = field(default_factory=dict)  # by config
    _resident: dict[int, int] = field(default_factory=dict)
    _seen: list[SeenGrid] = field(default_factory=list)
    _design: Array = field(init=False)
    _fit: Fit | None = None
    _terms: tuple[Term, ...] = ()

    def __post_init__(self) -> None:
        self._design = design_of(self.configs)

    def enter(self, case: MeasuredCase) -> None:
        """Take what was measured of a case. The next `fit` knows it."""
        places = {config: place for place, config in enumerate(self.configs)}
        self.multiprocessors = case.provenance.get("multiprocessors", self.multiprocessors)
        for row in case.rows:
            if row.config in places:
                self._enter(case.number, places[row.config], row)
        for config, count in case.resident.items():
            if config in places:
                self._resident[places[config]] = count
        self._seen += [SeenGrid(case.sizes, config, grid) for config, grid in case.grids.items()]

    def _enter(self, case: int, place: int, row: Row) -> None:
        before = self.rows.get((case, place))
        if before is not None:
            self._times_ms.get(case, {}).pop(place, None)
            if before.status in self._faults.get(place, ()):
                self._faults[place].remove(before.status)
        self.rows[case, place] = row
        if row.status is Status.OK and row.time_ms is not None:
            self._times_ms.setdefault(case, {})[place] = row.time_ms
        elif row.status not in {Status.OK, Status.NOT_TIMED}:
            self._faults.setdefault(place, []).append(row.status)

    @property
    def times_ms(self) -> dict[tuple[int, int], float]:
        """The medians that were measured, by the places of case and config."""
        return {(case, place): ms for case, times in self._times_ms.items() for place, ms in times.items()}

    def times_of(self, case: int) -> dict[int, float]:
        """Return the medians of a case by the places of configs."""
        return dict(self._times_ms.get(case, {}))

    def is_hopeless(self, case: int, config: int) -> bool:
        """Tell whether a config need not be tried on a case: it failed there, does not compile, or fails often."""
        row = self.rows.get((case, config))
        if row is not None and row.status is not Status.OK:
            return True
        failed = self._faults.get(config, ())
        return any(status in _BROKEN for status in failed) or len(failed) >= _MOST_FAULTS

    def fit(self) -> Fit | None:
        """Return the model, fitted to all that was entered; None where nothing was timed."""
        times = self.times_ms
        if not times:
            return None
        start = self._fit
        formula = programs_formula(self._seen)
        if formula != self.formula or start is None or len(self._resident) < len(self.configs):
            self.formula, start = formula, None
            self._terms = terms_of(list(self.cases[0]), formula)
        features = self.features(self.cases)
        observations = [Observation(case, config, time_ms) for (case, config), time_ms in times.items()]
        self._fit = fitted(
            features, self._design, case_spreads(self.cases, self.prior), observations, self.prior, start
        )
        return self._fit

    @property
    def terms(self) -> tuple[Term, ...]:
        """The terms of the model, in the order of its weights."""
        return self._terms

    def slots(self) -> list[int]:
        """Return how many programs of each config run at a time; of one that nobody compiled, as of those like it."""
        found = []
        for place in range(len(self.configs)):
            count = self._resident.get(place) or self._nearest_resident(place)
            most = None if self.formula is None else self.formula.at_most
            found.append(self.multiprocessors * count if most is None else min(self.multiprocessors * count, most))
        return found

    def _nearest_resident(self, place: int) -> int:
        if not self._resident:
            return 1
        distances = {other: float(((self._design[other] - self._design[place]) ** 2).sum()) for other in self._resident}
        return self._resident[min(distances, key=distances.__getitem__)]

    def features(self, cases: Sequence[Mapping[str, int]]) -> Array:
        """Return what the weights of the terms are multiplied with: cases, configs, terms."""
        names = list(self.cases[0])
        sizes = {name: np.array([case[name] for case in cases], dtype=np.float64) for name in names}
        programs = np.ones((len(cases), len(self.configs)))
        for size, by in () if self.formula is None else self.formula.factors:
            blocks = [float(config.values[by]) if isinstance(by, str) else float(by) for config in self.configs]
            programs = programs * (np.ceil(sizes[size][:, None] / np.array(blocks)) if size else np.array(blocks))
        waves = np.ceil(programs / np.array(self.slots(), dtype=np.float64))
        counts = {"launch": np.ones_like(programs), "wave": waves, "round": np.ceil(programs / self.multiprocessors)}
        columns = []
        for term in self._terms:
            column = counts[term.per]
            for name in term.sizes:
                column = column * sizes[name][:, None]
            columns.append(column)
        return np.stack(columns, axis=-1)

    def cost(self, place: int, weights_ms: Sequence[float]) -> Cost:
        """Return the cost of a config with some weights."""
        extents = () if self.formula is None else self.formula.extents(self.configs[place])
        return Cost(self.configs[place], extents, self.slots()[place], tuple(weights_ms))


def terms_of(names: Sequence[str], formula: ProgramsFormula | None) -> tuple[Term, ...]:
    """Return the terms of a kernel's time: launches, waves and rounds, alone and for each size within a program.

    Those are the sizes that the number of programs does not depend on; where it depends on all of them and these are
    few, all are, since programs may run over what they are also counted by.
    """
    outside = frozenset() if formula is None else formula.sizes
    inside = [name for name in names if name not in outside]
    if not inside and 1 < len(names) <= _FEW_SIZES:
        inside = list(names)
    return tuple(Term(per, sizes) for per in QUANTITIES for sizes in ((), *((name,) for name in inside)))


_MOST_FACTORS = 3


@dataclass(frozen=True, slots=True)
class SeenGrid:
    """The grid of a config for some sizes, as the user's function gave it."""

    sizes: Mapping[str, int]
    config: Config
    grid: Grid3


Factor = tuple[str, str | int]
"""A size over a parameter of the config, by its name, or over a number; "" as the size is a constant."""


@dataclass(frozen=True, slots=True)
class ProgramsFormula:
    """The number of programs as factors, and how many there are ``at_most``, as a persistent kernel has them."""

    factors: tuple[Factor, ...]
    at_most: int | None = None

    def extents(self, config: Config) -> tuple[Extent, ...]:
        """Return the factors for a config."""
        values = config.values
        return tuple(Extent(size, values[by] if isinstance(by, str) else by) for size, by in self.factors)

    @property
    def sizes(self) -> frozenset[str]:
        """The sizes that the number of programs depends on."""
        return frozenset(size for size, _ in self.factors if size)


def programs_formula(seen: Sequence[SeenGrid]) -> ProgramsFormula | None:
    """Return what gives the number of programs of all grids that were seen; None where no such product does."""
    if not seen:
        return None
    found = [_axis(seen, [each.grid[axis] for each in seen]) for axis in range(3)]
    if all(axis is not None for axis in found):
        return ProgramsFormula(tuple(factor for axis in found for factor in axis or ()))
    return _persistent(seen)


def _axis(seen: Sequence[SeenGrid], values: Sequence[int]) -> tuple[Factor, ...] | None:
    if len(set(values)) == 1 and len(seen) > 1:
        return () if values[0] == 1 else (("", values[0]),)
    for factors in _products(seen[0]):
        if all(_value(factors, each) == value for each, value in zip(seen, values, strict=True)):
            return factors
    return None


def _persistent(seen: Sequence[SeenGrid]) -> ProgramsFormula | None:
    """Return a product that gives the programs but where these are the most that were seen."""
    counts = [prod(each.grid) for each in seen]
    most = max(counts)
    for factors in _products(seen[0]):
        values = [_value(factors, each) for each in seen]
        if all(min(value, most) == count for value, count in zip(values, counts, strict=True)):
            return ProgramsFormula(factors, most)
    return None


def _products(first: SeenGrid) -> Iterator[tuple[Factor, ...]]:
    """Yield the products that may be, those of few factors first; a size is in each of them once."""
    blocks = [name for name, value in first.config.parameters if type(value) is int and value > 0]
    dividers: list[str | int] = [*blocks, 1]
    single: list[Factor] = [(size, by) for size in first.sizes for by in dividers]
    for count in range(1, _MOST_FACTORS + 1):
        for factors in combinations_with_replacement(single, count):
            sizes = [size for size, _ in factors]
            if len(set(sizes)) == count:
                yield factors


def _value(factors: Sequence[Factor], seen: SeenGrid) -> int:
    values = seen.config.values
    return prod(-(-seen.sizes[size] // (values[by] if isinstance(by, str) else by)) for size, by in factors)
