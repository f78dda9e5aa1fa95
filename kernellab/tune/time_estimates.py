"""Estimates of the times of configs that are not compiled, or not measured, from those that are.

Two quantities are interpolated between configs, both as logarithms: the predicted time, known of compiled configs, and
the measured over the predicted time, known of measured ones. Predicted times follow a ridge regression on the
parameters; what remains of them, and the ratios, are Gaussian processes whose correlation falls with the steps between
two configs. Rasmussen, Williams: Gaussian Processes for Machine Learning, 2006, chapter 2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log, log2
from typing import Any

from kernellab.timing.config import Config
from kernellab.tune.result import Row
from kernellab.workers.forks_and_interrupts import import_uninterrupted

_RIDGE = 0.03
_SLOWEST = 0.8  # of the logarithm of a time over the least one; what is slower, or does not fit, counts as that
_MODEL_ERROR = 0.17  # of the logarithm of a predicted time: `benchmarks.predict`
_STEPS = 4.0  # between two configs whose predicted times correlate by 1 / e
_ERROR_STEPS = 0.5  # between two whose errors do
_NOISE = 0.02
_MOST_KNOWN = 400  # configs that are interpolated between, the latest


@dataclass(frozen=True, slots=True)
class Estimate:
    """The logarithm of a config's time in ms, with its standard deviation; ``ratio`` is measured over predicted."""

    log_ms: float
    deviation: float
    ratio: float = 0.0
    ratio_deviation: float = _MODEL_ERROR

    @property
    def ratio_share(self) -> float:
        """The part of the model's usual error that is left, from 0 to 1."""
        return min(1.0, self.ratio_deviation / _MODEL_ERROR)


class TimeEstimates:
    """Estimates the times of the ``configs`` of a space."""

    def __init__(self, configs: Sequence[Config]) -> None:
        np = import_uninterrupted("numpy")
        table = _Table(configs)
        features = np.array(table.features())
        self._place = {config: index for index, config in enumerate(configs)}
        self._features = (features - features.mean(0)) / (features.std(0) + 1e-9)
        self._positions = np.array(table.positions(), np.float32)

    def estimate(
        self, rows: Mapping[Config, Row], times: Mapping[Config, float], wanted: Sequence[Config]
    ) -> dict[Config, Estimate]:
        """Return the estimates of some configs; ``rows`` are those compiled, ``times`` the measured ms of some.

        What does not fit or spills too much counts as slower than all others.
        """
        if not wanted:
            return {}
        predicted, spread = self._log_predictions(rows, wanted)
        ratios = self._ratios(rows, times, wanted)
        return {
            config: Estimate(mean + ratio, (sigma**2 + deviation**2) ** 0.5, ratio, deviation)
            for config, mean, sigma, (ratio, deviation) in zip(wanted, predicted, spread, ratios, strict=True)
        }

    def _log_predictions(self, rows: Mapping[Config, Row], wanted: Sequence[Config]) -> tuple[list[float], list[float]]:
        """Return the logarithms of predicted times, and the standard deviations of those that are estimated."""
        np = import_uninterrupted("numpy")
        known = {config: log(row.predicted_ms) for config, row in rows.items() if row.predicted_ms}
        if not known:
            return [0.0] * len(wanted), [1.0] * len(wanted)
        slowest = min(known.values()) + _SLOWEST
        logs = {config: min(known.get(config, slowest), slowest) for config in rows if config in self._place}
        inner, outer = self._rows_of(self._features, logs), self._rows_of(self._features, wanted)
        values = np.array([*logs.values()])
        weights = _ridge_weights(inner, values)
        left = values - _with_ones(inner) @ weights
        mean, deviation = self._interpolate(
            dict(zip(logs, left.tolist(), strict=True)), wanted, float(left.std()), _STEPS
        )
        estimates = (_with_ones(outer) @ weights + mean).tolist()
        return (
            [known.get(config, estimate) for config, estimate in zip(wanted, estimates, strict=True)],
            [0.0 if config in known else sigma for config, sigma in zip(wanted, deviation.tolist(), strict=True)],
        )

    def _ratios(
        self, rows: Mapping[Config, Row], times: Mapping[Config, float], wanted: Sequence[Config]
    ) -> list[tuple[float, float]]:
        """Return the logarithms of measured over predicted times, with standard deviations."""
        np = import_uninterrupted("numpy")
        known = {
            config: log(time_ms / predicted_ms)
            for config, time_ms in times.items()
            if config in rows and config in self._place and (predicted_ms := rows[config].predicted_ms)
        }
        if not known:
            return [(0.0, _MODEL_ERROR)] * len(wanted)
        centre = float(np.median([*known.values()]))
        errors = {config: ratio - centre for config, ratio in known.items()}
        mean, deviation = self._interpolate(errors, wanted, _MODEL_ERROR, _ERROR_STEPS)
        return [*zip((mean + centre).tolist(), deviation.tolist(), strict=True)]

    def _interpolate(
        self, known: Mapping[Config, float], wanted: Sequence[Config], sigma: float, steps: float
    ) -> tuple[Any, Any]:
        """Return mean and standard deviation of a Gaussian process of ``sigma``, given its values at some configs."""
        np = import_uninterrupted("numpy")
        some = dict([*known.items()][-_MOST_KNOWN:])
        inner, outer = self._rows_of(self._positions, some), self._rows_of(self._positions, wanted)
        within, across = _correlation(inner, inner, steps), _correlation(outer, inner, steps)
        noise = (_NOISE / max(sigma, _NOISE)) ** 2
        factor = np.linalg.inv(within + noise * np.eye(len(some)))
        mean = across @ (factor @ np.array([*some.values()]))
        explained = ((across @ factor) * across).sum(1)
        return mean, sigma * np.sqrt(np.clip(1 - explained, 1e-6, 1.0))

    def _rows_of(self, table: Any, configs: Any) -> Any:
        return table[[self._place[config] for config in configs]]


def _correlation(first: Any, second: Any, reach: float) -> Any:
    """Return a matrix of correlations, which fall with the steps between two configs on all axes."""
    np = import_uninterrupted("numpy")
    steps = sum(np.abs(one[:, None] - other[None, :]) for one, other in zip(first.T, second.T, strict=True))
    return np.exp(-steps / reach)


def _ridge_weights(features: Any, values: Any) -> Any:
    np = import_uninterrupted("numpy")
    scaled = _with_ones(features)
    penalty = _RIDGE * len(scaled) * np.eye(scaled.shape[1])
    penalty[-1, -1] = 0.0
    return np.linalg.solve(scaled.T @ scaled + penalty, scaled.T @ values)


def _with_ones(features: Any) -> Any:
    np = import_uninterrupted("numpy")
    return np.hstack([features, np.ones((len(features), 1))])


class _Table:
    """The parameters of configs as numbers: logarithms of positive integers, one column for each other value."""

    def __init__(self, configs: Sequence[Config]) -> None:
        self._values = [config.values for config in configs]
        names = list(dict.fromkeys(name for values in self._values for name in values))
        choices = {name: list(dict.fromkeys(map(repr, (v.get(name) for v in self._values)))) for name in names}
        self._numeric = [name for name in names if all(_is_size(values.get(name)) for values in self._values)]
        self._named = [(name, value) for name in names if name not in self._numeric for value in choices[name]]

    def features(self) -> list[list[float]]:
        """Return a row per config: parameters, their squares, and products of two."""
        return [self._row(values) for values in self._values]

    def positions(self) -> list[list[float]]:
        """Return a row per config: the place of each size among those of its axis; other values are a step apart."""
        places = {name: sorted({values[name] for values in self._values}) for name in self._numeric}
        ranks = {name: {size: float(rank) for rank, size in enumerate(sizes)} for name, sizes in places.items()}
        return [
            [*(ranks[name][values[name]] for name in self._numeric), *(named / 2 for named in self._named_row(values))]
            for values in self._values
        ]

    def _row(self, values: Mapping[str, Any]) -> list[float]:
        single = [log2(values[name]) for name in self._numeric] + self._named_row(values)
        return [*single, *(left * right for i, left in enumerate(single) for right in single[i:])]

    def _named_row(self, values: Mapping[str, Any]) -> list[float]:
        return [float(repr(values.get(name)) == value) for name, value in self._named]


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
