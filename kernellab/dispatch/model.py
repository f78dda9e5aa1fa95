"""The time of every config on every case, with how sure that is, from the few that were measured.

The logarithm of a time is that of a sum of terms (launch, waves, rounds, each times steps of a size), plus an offset of
the case that all configs share. The weights of the terms are positive: their logarithms are a Gaussian process over
configs, with a level, slopes in the parameters of the configs, and a part of each config's own. So what is measured of
one config tells of those like it, and a config that was measured on a few cases is known on others. The sum is made
linear around the estimate, again and again (Gauss-Newton), and measurements far off count less, as under Student's t
(Lange, Little and Taylor 1989). What is left out is found without a new fit: Rasmussen and Williams, *Gaussian
Processes for Machine Learning*, section 5.4.2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import log2

import numpy as np
from numpy.typing import NDArray

from kernellab.measure.config import Config

Array = NDArray[np.float64]
Places = NDArray[np.int64]

_ROUNDS, _FURTHER_ROUNDS = 16, 5  # the latter from an earlier fit
_CLOSE = 1e-3
_MOST_STEP = 2.0
_OUTLIERS = 4.0  # degrees of freedom of Student's t


@dataclass(frozen=True, slots=True)
class Prior:
    """Standard deviations of logarithms before anything is measured.

    ``level`` of the weight of a term, ``slope`` of how it changes with a parameter of the configs (by one standard
    deviation of that), ``own`` of what a config has beside these, ``case`` of what all configs of a case are off by,
    and ``noise`` of a measurement, with all that the terms do not say.
    """

    level: float = 4.0
    slope: float = 0.7
    own: float = 0.4
    case: float = 0.1
    noise: float = 0.03


@dataclass(frozen=True, slots=True)
class Observation:
    """A time that was measured, by the places of its case and its config."""

    case: int
    config: int
    time_ms: float


@dataclass(frozen=True, slots=True)
class _Places:
    """Cells of the table of cases and configs, with the share of each term in their times."""

    cases: Places
    configs: Places
    shares: Array


@dataclass(frozen=True, slots=True)
class Fit:
    """What is known of all times: logarithms of the weights, a row for each config and a column for each term.

    ``offsets`` are those of the cases.
    """

    features: Array
    design: Array
    prior: Prior
    case_spreads: Array
    log_weights: Array
    offsets: Array
    _base: Array
    _measured: _Places
    _inverse: Array
    _pull: Array

    @property
    def weights_ms(self) -> Array:
        """The weights of the terms for each config, in milliseconds."""
        weights: Array = np.exp(self.log_weights)
        return weights

    def log_times(self, case: int) -> Array:
        """Return the logarithm of the expected milliseconds of each config on a case, its offset included."""
        totals: Array = np.log((np.exp(self.log_weights) * self.features[case]).sum(axis=1))
        found: Array = totals + self.offsets[case]
        return found

    def spreads(self, case: int, places: Sequence[int] | None = None, *, with_case: bool = True) -> Array:
        """Return the standard deviations of `log_times`, of all configs or those at ``places``.

        They are without those of the common offset if not ``with_case``.
        """
        configs = np.arange(len(self.design)) if places is None else np.array(places, dtype=np.int64)
        parts = np.exp(self.log_weights[configs]) * self.features[case, configs]
        shares = parts / parts.sum(axis=1, keepdims=True)
        cells = _Places(np.full(len(configs), case), configs, shares)
        cross = _covariance(self, cells, self._measured)
        level, slope, own = self.prior.level**2, self.prior.slope**2, self.prior.own**2
        before = (shares**2).sum(axis=1) * (level + slope * (self.design[configs] ** 2).sum(axis=1) + own)
        found = before + self.case_spreads[case] ** 2 - ((cross @ self._inverse) * cross).sum(axis=1)
        if not with_case and case not in self._measured.cases:
            found = found - self.case_spreads[case] ** 2
        spreads: Array = np.sqrt(np.maximum(found, 0.0) + self.prior.noise**2)
        return spreads

    def without(self, case: int) -> Array:
        """Return the logarithms of the weights as they would be if a case had not been measured."""
        inside = np.flatnonzero(self._measured.cases == case)
        if not len(inside):
            return self.log_weights
        block = self._inverse[np.ix_(inside, inside)]
        pull = self._pull - self._inverse[:, inside] @ np.linalg.solve(block, self._pull[inside])
        pull[inside] = 0.0
        return _weights(self, pull)


def fitted(
    features: Array,
    design: Array,
    case_spreads: Array,
    observations: Sequence[Observation],
    prior: Prior,
    start: Fit | None = None,
) -> Fit:
    """Fit the weights to what was measured.

    ``features`` has what the weights are multiplied with: cases, configs, terms. ``design`` are the parameters of the
    configs, ``case_spreads`` the standard deviation of the offset of each case. ``start`` is an earlier fit of the same
    table, from which the way is shorter.
    """
    cases = np.array([each.case for each in observations], dtype=np.int64)
    configs = np.array([each.config for each in observations], dtype=np.int64)
    logs = np.log([each.time_ms for each in observations])
    seen = features[cases, configs]
    empty = _Places(cases, configs, np.zeros_like(seen))
    if start is None:
        base = np.log(np.median(np.exp(logs)) / features.shape[2] / np.maximum(np.median(seen, axis=0), 1e-12))
        log_weights, offsets = np.tile(base, (len(design), 1)), np.zeros(len(features))
    else:
        base, log_weights, offsets = start._base, start.log_weights, start.offsets
    fit = Fit(features, design, prior, case_spreads, log_weights, offsets, base, empty, np.eye(len(logs)), 0 * logs)
    trust = np.ones(len(logs))
    for _ in range(_ROUNDS if start is None else _FURTHER_ROUNDS):
        fit, change, trust = _improved(fit, logs, trust)
        if change < _CLOSE:
            break
    return fit


def _improved(fit: Fit, logs: Array, trust: Array) -> tuple[Fit, float, Array]:
    """Return a fit made linear around the last one, how far the weights moved, and how far each time is trusted."""
    cases, configs = fit._measured.cases, fit._measured.configs
    parts = np.exp(fit.log_weights[configs]) * fit.features[cases, configs]
    totals = parts.sum(axis=1)
    measured = _Places(cases, configs, parts / totals[:, None])
    residuals = logs - np.log(totals) - fit.offsets[cases]
    trust = (_OUTLIERS + 1) / (_OUTLIERS + (residuals / fit.prior.noise) ** 2)
    linear = (measured.shares * (fit.log_weights[configs] - fit._base)).sum(axis=1) + fit.offsets[cases]
    covariance = _covariance(fit, measured, measured) + np.diag(fit.prior.noise**2 / trust)
    inverse: Array = np.asarray(np.linalg.inv(covariance), dtype=np.float64)
    pull = inverse @ (residuals + linear)
    around = replace(fit, _measured=measured, _inverse=inverse, _pull=pull)
    moves = _weights(around, pull) - fit.log_weights
    change = float(np.abs(moves).max())
    step = min(1.0, _MOST_STEP / max(change, 1e-9))
    pulls = np.bincount(cases, weights=pull, minlength=len(fit.offsets))
    offsets = fit.offsets + step * (fit.case_spreads**2 * pulls - fit.offsets)
    return replace(around, log_weights=fit.log_weights + step * moves, offsets=offsets), step * change, trust


def _covariance(fit: Fit, left: _Places, right: _Places) -> Array:
    """Return the covariance of the logarithms of the times of cells before anything is measured."""
    prior, design = fit.prior, fit.design
    alike = prior.slope**2 * design[left.configs] @ design[right.configs].T + prior.level**2
    alike += prior.own**2 * (left.configs[:, None] == right.configs)
    same_case = left.cases[:, None] == right.cases
    found: Array = (left.shares @ right.shares.T) * alike + same_case * fit.case_spreads[right.cases] ** 2
    return found


def _weights(fit: Fit, pull: Array) -> Array:
    """Return the logarithms of the weights that a pull of the measurements gives."""
    prior, design, measured = fit.prior, fit.design, fit._measured
    alike = prior.slope**2 * design @ design[measured.configs].T + prior.level**2
    alike += prior.own**2 * (np.arange(len(design))[:, None] == measured.configs)
    found: Array = fit._base + alike @ (measured.shares * pull[:, None])
    return found


def design_of(configs: Sequence[Config]) -> Array:
    """Return the parameters and options of configs as numbers: doublings of positive ones, one column for each word.

    Columns have mean 0 and standard deviation 1; what is the same for all has none.
    """
    values = [config.values for config in configs]
    columns: list[list[float]] = []
    for name in dict.fromkeys(name for each in values for name in each):
        columns += _columns(name, [each.get(name) for each in values])
    table = np.array([column for column in columns if len(set(column)) > 1], dtype=np.float64)
    if not len(table):
        return np.zeros((len(configs), 0))
    table = table - table.mean(axis=1, keepdims=True)
    scaled: Array = (table / table.std(axis=1, keepdims=True)).T
    return scaled


def _columns(name: str, values: Sequence[object]) -> list[list[float]]:
    numbers = [float(value) for value in values if isinstance(value, int | float)]
    if len(numbers) == len(values):
        doubles = name != "num_stages" and min(numbers) > 0
        return [[log2(number) if doubles else number for number in numbers]]
    words = list(dict.fromkeys(map(repr, values)))
    return [[float(repr(value) == word) for value in values] for word in words]


def case_spreads(cases: Sequence[Mapping[str, int]], prior: Prior) -> Array:
    """Return the standard deviation of the offset of each case.

    Sizes that are no multiples of 16, where most are, are compiled otherwise (Triton assumes what divides by 16), and
    all configs may take several times as long: so little is assumed of their offset.
    """
    patterns = [tuple(value % 16 == 0 for value in case.values()) for case in cases]
    usual = max(patterns, key=patterns.count)
    return np.array([prior.case if pattern == usual else _ODD_CASE for pattern in patterns])


_ODD_CASE = 1.5
