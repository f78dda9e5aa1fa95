"""A model of time: what every config takes on every case, with a standard deviation, from a few measurements.

The logarithm of a time is that of a sum of terms (launch, waves, rounds, each times steps of a size), plus an offset
of the case that all configs share. The weights of the terms are positive. Their logarithms are distributed around a
plane over the parameters of the configs, so a measurement informs the predictions of similar configs, and of other
cases. The sum is made linear around the estimate, again and again (Gauss-Newton), and measurements far off count less,
as under Student's t (Lange, Little and Taylor 1989).

A linear step is a mixed model. Given the plane and the offsets, configs do not know of each other: so their weights are
eliminated, which leaves a small system for plane and offsets (Henderson 1975; Rasmussen and Williams, *Gaussian
Processes for Machine Learning*, section 2.7). It costs cases x cases x configs, however many cells were measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log2

import numpy as np
from numpy.typing import NDArray

from kernellab.timing.config import Config

Array = NDArray[np.float64]

_ROUNDS, _FURTHER_ROUNDS = 16, 4  # the latter from an earlier fit
_CLOSE = 1e-2
_MOST_STEP = 2.0
_EXPECTED = 4.0  # measurements that a config's misfit is known by before there is one
_OUTLIERS = 4.0  # degrees of freedom of Student's t


@dataclass(frozen=True, slots=True)
class Prior:
    """Standard deviations of logarithms before any measurement.

    ``level`` of the weight of a term, ``slope`` of its change per standard deviation of a parameter of the configs,
    ``own`` of the rest of a config, ``case`` of the common error of a case, and ``noise`` of a measurement, including
    all effects that the terms leave out.
    """

    level: float = 4.0
    slope: float = 0.7
    own: float = 0.4
    case: float = 0.1
    noise: float = 0.05


@dataclass(frozen=True, slots=True)
class Fit:
    """The fitted model: logarithms of the weights, configs by terms.

    ``features`` are multiplied with the weights: cases by configs by terms. ``offsets`` are those of the cases.
    ``misfits`` are the mean squared errors of each config, as a logarithm.
    """

    features: Array
    design: Array
    prior: Prior
    log_weights: Array
    offsets: Array
    misfits: Array
    _base: Array
    _linear: _Linear
    _solution: _Solution

    @property
    def weights_ms(self) -> Array:
        """The weights of the terms in milliseconds, configs by terms, for the expected time.

        That of a config that the terms do not describe well is longer than the most likely one, as the mean of a
        lognormal variable is.
        """
        weights: Array = np.exp(self.log_weights + self.misfits[:, None] / 2)
        return weights

    def log_times(self, case: int) -> Array:
        """Return the logarithm of the expected milliseconds of each config on a case, its offset included."""
        totals: Array = np.log((np.exp(self.log_weights) * self.features[case]).sum(axis=1))
        log_times: Array = totals + self.offsets[case]
        return log_times

    def spreads(self, case: int, *, with_case: bool = True) -> Array:
        """Return the standard deviation of the logarithm of each config's predicted time.

        It is without that of the common offset if not ``with_case``, on a case that was not measured.
        """
        shares, solved = self._linear.shares[case], self._solution
        moved = (solved.within @ shares[:, :, None])[:, :, 0]
        plane = (self.design[:, :, None] * moved[:, None, :]).reshape(len(shares), -1) / self.prior.own**2
        offsets = -(solved.coupling * shares[:, :, None]).sum(axis=1)
        if with_case or self._linear.precisions[case].any():
            offsets[:, case] += 1.0
        towards = np.concatenate([plane, offsets], axis=1)
        variances = (moved * shares).sum(axis=1) + ((towards @ solved.between) * towards).sum(axis=1)
        spreads: Array = np.sqrt(np.maximum(variances, 0.0) + self.misfits)
        return spreads

    def weights_without(self, case: int) -> Array:
        """Return `weights_ms` of a model fitted without a case."""
        precisions = self._linear.precisions.copy()
        precisions[case] = 0.0
        solved = _solve(replace(self._linear, precisions=precisions), self.design, self.prior)
        weights: Array = np.exp(self._base + solved.log_weights + self.misfits[:, None] / 2)
        return weights


@dataclass(frozen=True, slots=True)
class _Linear:
    """The model linearised around an estimate: shares of the terms in each time, and their precisions.

    ``targets`` are what shares times logarithms of weights, plus offsets, are to come to. Arrays are over cases,
    configs and terms in this order; ``precisions`` are 0 where nothing was measured.
    """

    shares: Array
    precisions: Array
    targets: Array


@dataclass(frozen=True, slots=True)
class _Solution:
    """The solution of a linear step, with the matrices of its variances.

    ``within`` is the covariance of the weights of a config given plane and offsets, configs by terms by terms,
    ``coupling`` what an offset of a case moves them by, and ``between`` the covariance of plane and offsets.
    """

    log_weights: Array
    offsets: Array
    within: Array
    coupling: Array
    between: Array


def fit_weights(
    features: Array, design: Array, log_times: Array, prior: Prior, start: Fit | None, importance: Array
) -> Fit:
    """Fit the weights to the measured times.

    ``design`` are the parameters of the configs, ``log_times`` the logarithms of milliseconds, cases by configs, NaN
    where nothing was measured. ``start`` is an earlier fit of the same table, from which the way is shorter.
    ``importance`` multiplies the precision of each case's measurements.
    """
    plane = np.concatenate([np.ones((len(design), 1)), design], axis=1)
    known = ~np.isnan(log_times)
    if start is None:
        base = np.median(log_times[known]) - np.log(features.shape[2] * _typical_features(features[known]))
        log_weights, offsets = np.tile(base, (len(design), 1)), np.zeros(len(features))
    else:
        base, log_weights, offsets = start._base, start.log_weights, start.offsets
    rounds = _ROUNDS if start is None else _FURTHER_ROUNDS
    for _ in range(rounds):
        linear = _linearise(features, log_times, known, log_weights, offsets, base, prior)
        linear = replace(linear, precisions=linear.precisions * importance[:, None])
        solved = _solve(linear, plane, prior)
        moves = base + solved.log_weights - log_weights
        change = float(np.abs(moves).max())
        step = min(1.0, _MOST_STEP / max(change, 1e-9))
        log_weights, offsets = log_weights + step * moves, offsets + step * (solved.offsets - offsets)
        if change < _CLOSE:
            break
    missed = log_times - np.log((np.exp(log_weights) * features).sum(axis=2)) - offsets[:, None]
    squares, counts = np.where(known, missed**2, 0.0).sum(axis=0), known.sum(axis=0)
    misfits = (squares + _EXPECTED * prior.noise**2) / (counts + _EXPECTED)
    return Fit(features, plane, prior, log_weights, offsets, misfits, base, linear, solved)


def _typical_features(features: Array) -> Array:
    """Return the median of the positive values of each feature; 1 if it has none."""
    counts = np.where(features > 0, features, np.nan)
    counts[0, ~(features > 0).any(axis=0)] = 1.0
    medians: Array = np.nanmedian(counts, axis=0)
    return medians


def _linearise(
    features: Array, log_times: Array, known: NDArray[np.bool_], log_weights: Array, offsets: Array, base: Array,
    prior: Prior,
) -> _Linear:  # fmt: skip
    parts = np.exp(log_weights) * features
    totals = parts.sum(axis=2)
    shares = parts / totals[:, :, None]
    missed = np.where(known, log_times - np.log(totals) - offsets[:, None], 0.0)
    trust = (_OUTLIERS + 1) / (_OUTLIERS + (missed / prior.noise) ** 2)
    targets = missed + (shares * (log_weights - base)).sum(axis=2) + offsets[:, None]
    return _Linear(shares, np.where(known, trust / prior.noise**2, 0.0), targets)


def _solve(linear: _Linear, plane: Array, prior: Prior) -> _Solution:
    """Solve a linear step for weights (less the base), plane and offsets."""
    shares, precisions = linear.shares, linear.precisions
    cases, configs, terms = shares.shape
    own = prior.own**-2
    pulled = (shares * precisions[:, :, None]).transpose(1, 2, 0)  # configs, terms, cases
    within: Array = np.asarray(
        np.linalg.inv(pulled @ shares.transpose(1, 0, 2) + own * np.eye(terms)), dtype=np.float64
    )
    coupling = within @ pulled
    alone = (coupling * linear.targets.T[:, None, :]).sum(axis=2)
    columns = plane.shape[1]
    inner = (own * np.eye(terms) - own**2 * within).reshape(configs, -1)
    products = (plane[:, :, None] * plane[:, None, :]).reshape(configs, -1)
    size = columns * terms
    system = np.empty((size + cases, size + cases))
    spread = (products.T @ inner).reshape(columns, columns, terms, terms).transpose(0, 2, 1, 3)
    known = np.repeat([prior.level**-2] + [prior.slope**-2] * (columns - 1), terms)
    system[:size, :size] = spread.reshape(size, size) + np.diag(known)
    crossing = own * (plane.T @ coupling.reshape(configs, -1)).reshape(size, cases)
    system[:size, size:], system[size:, :size] = crossing, crossing.T
    flat = pulled.reshape(-1, cases).T
    diagonal = np.diag(precisions.sum(axis=1) + prior.case**-2)
    system[size:, size:] = diagonal - flat @ coupling.reshape(-1, cases)
    right = np.concatenate(
        [own * (plane.T @ alone).ravel(), (precisions * linear.targets).sum(axis=1) - flat @ alone.ravel()]
    )
    between = np.linalg.inv(system)
    solution = between @ right
    expected, offsets = plane @ solution[:size].reshape(columns, terms), solution[size:]
    log_weights: Array = alone + own * (within @ expected[:, :, None])[:, :, 0] - coupling @ offsets
    return _Solution(log_weights, offsets, within, coupling, np.asarray(between, dtype=np.float64))


def design_of(configs: Sequence[Config]) -> Array:
    """Return the parameters and options of configs as numbers: logarithms of positive ones, a column per word.

    Columns have mean 0 and standard deviation 1; what is the same for all has none.
    """
    values = [config.values for config in configs]
    columns: list[list[float]] = []
    for name in dict.fromkeys(name for row in values for name in row):
        columns += _columns(name, [row.get(name) for row in values])
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
