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

from kernellab.launch.calls import Grid3
from kernellab.measure.config import Config, Status
from kernellab.tune.dispatch.model import Array, Fit, Prior, design_of, fitted
from kernellab.tune.dispatch.result import MeasuredCase
from kernellab.tune.dispatch.rule import ALIGNMENT, QUANTITIES, Cost, Extent, Quantity, Term
from kernellab.tune.result import Row

_BROKEN = frozenset({Status.CANNOT_RUN, Status.COMPILE_ERROR, Status.PRUNED})
_MOST_FAULTS = 2
_BUSY: tuple[Quantity, ...] = ("wave", "round")
_FEW_SIZES = 2
_MOST_FACTORS = 3


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
    _fresh: int = 0  # times since the last fit
    _is_changed: bool = False  # the formula, since the last fit
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
                self._resident.setdefault(places[config], count)
        self._see([SeenGrid(case.sizes, config, grid) for config, grid in case.grids.items()])

    def _see(self, seen: Sequence[SeenGrid]) -> None:
        """Keep the formula of programs if it gives these grids, too; else look for another one."""
        is_first = not self._seen
        self._seen += seen
        if is_first or not all(self.formula is not None and self.formula.gives(each) for each in seen):
            found = programs_formula(self._seen)
            self._is_changed |= found != self.formula
            self.formula = found

    def _enter(self, case: int, place: int, row: Row) -> None:
        before = self.rows.get((case, place))
        if before is not None:
            self._times_ms.get(case, {}).pop(place, None)
            if before.status in self._faults.get(place, ()):
                self._faults[place].remove(before.status)
        self.rows[case, place] = row
        if row.status is Status.OK and row.time_ms is not None:
            self._times_ms.setdefault(case, {})[place] = row.time_ms
            self._fresh += 1
        elif row.status not in {Status.OK, Status.NOT_TIMED}:
            self._faults.setdefault(place, []).append(row.status)

    @property
    def timed_cases(self) -> list[int]:
        """The places of the cases of which something was timed."""
        return sorted(case for case, times in self._times_ms.items() if times)

    @property
    def timed_configs(self) -> list[int]:
        """The places of the configs that were timed on a case."""
        return sorted(set().union(*self._times_ms.values()))

    @property
    def has_times(self) -> bool:
        """Whether anything was timed."""
        return any(self._times_ms.values())

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

    def fit(self, tolerated: float = 0.0) -> Fit | None:
        """Return the model, fitted to what was entered; None where nothing was timed.

        An earlier one will do where no more than a ``tolerated`` share of the times is new.
        """
        count = sum(map(len, self._times_ms.values()))
        if not count:
            return None
        start = self._fit
        if start is not None and self._fresh <= tolerated * count:
            return start
        if start is None or self._is_changed:
            start = None
            self._terms = terms_of(self.cases, self.formula)
        logs = np.full((len(self.cases), len(self.configs)), np.nan)
        for case, times in self._times_ms.items():
            logs[case, list(times)] = np.log(list(times.values()))
        self._fit = fitted(self.features(self.cases), self._design, logs, self.prior, start)
        self._fresh, self._is_changed = 0, False
        return self._fit

    @property
    def terms(self) -> tuple[Term, ...]:
        """The terms of the model, in the order of its weights."""
        return self._terms

    def slots(self) -> list[int]:
        """Return how many programs of each config run at a time; of one that nobody compiled, as of those like it."""
        known = sorted(self._resident)
        counts = [1] * len(self.configs)
        if known:
            distances = ((self._design[:, None] - self._design[None, known]) ** 2).sum(axis=2)
            counts = [self._resident[known[place]] for place in distances.argmin(axis=1)]
            counts = [self._resident.get(place, count) for place, count in enumerate(counts)]
        most = None if self.formula is None else self.formula.at_most
        found = [self.multiprocessors * count for count in counts]
        return found if most is None else [min(count, most) for count in found]

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
            if term.odd:
                column = column * (sizes[term.odd][:, None] % ALIGNMENT > 0)
            columns.append(column)
        return np.stack(columns, axis=-1)

    def cost(self, place: int, weights_ms: Sequence[float]) -> Cost:
        """Return the cost of a config with some weights."""
        extents = () if self.formula is None else self.formula.extents(self.configs[place])
        return Cost(self.configs[place], extents, self.slots()[place], tuple(weights_ms))


def terms_of(cases: Sequence[Mapping[str, int]], formula: ProgramsFormula | None) -> tuple[Term, ...]:
    """Return the terms of a kernel's time: launches, waves and rounds, alone and for each size within a program.

    Those are the sizes that the number of programs does not depend on; where it depends on all of them and these are
    few, all are, since programs may run over what they are also counted by. A size that is odd in some cases and not in
    others has terms of its own, with what waves and rounds take longer then.
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


@dataclass(frozen=True, slots=True)
class SeenGrid:
    """The grid of a config for some sizes, as the user's function gave it."""

    sizes: Mapping[str, int]
    config: Config
    grid: Grid3


Factor = tuple[str, str | int]
"""A size over a parameter of the config, by its name, or over a number; with "" as the size, that itself."""


@dataclass(frozen=True, slots=True)
class ProgramsFormula:
    """The number of programs as factors, and how many there are ``at_most``, as a persistent kernel has them."""

    factors: tuple[Factor, ...]
    at_most: int | None = None

    def gives(self, seen: SeenGrid) -> bool:
        """Tell whether this is the number of programs of a grid."""
        value, programs = _value(self.factors, seen), prod(seen.grid)
        return programs == (value if self.at_most is None else min(value, self.at_most))

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
    """Yield the products that may be, those of few factors first; a size is in each of them once, as is a parameter."""
    blocks = [name for name, value in first.config.parameters if type(value) is int and value > 0]
    dividers: list[str | int] = [*blocks, 1]
    single: list[Factor] = [(size, by) for size in first.sizes for by in dividers]
    single += [("", name) for name in blocks]
    for count in range(1, _MOST_FACTORS + 1):
        for factors in combinations_with_replacement(single, count):
            sizes = [size for size, _ in factors]
            if len(set(sizes)) == count:
                yield factors


def _value(factors: Sequence[Factor], seen: SeenGrid) -> int:
    found = 1
    for size, by in factors:
        block = seen.config.values[by] if isinstance(by, str) else by
        found *= -(-seen.sizes[size] // block) if size else block
    return found
