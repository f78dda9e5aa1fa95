"""The search by predicted times: which configs to compile, in which order to measure them, and where to stop.

Of a large space, a random part is compiled and predicted first. A regression of these times on the parameters estimates
those of all configs, and says which to compile next. What promises most is measured. The rest of the budget refines:
the neighbours of the fastest config, then of the fastest of each block shape, are compiled and measured while they may
be faster, by estimates that measured times correct.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import erf, exp, log, log2, pi, sqrt
from typing import Any

from kernellab.store.columns import Status
from kernellab.timing.config import Config
from kernellab.tune.result import Row
from kernellab.workers.forks_and_interrupts import import_uninterrupted

PredictRows = Callable[[Sequence[Config]], Mapping[Config, Row]]
"""Compiles configs and returns a row each, with a predicted time if it fits and can be predicted."""

_LEAST_COMPILED = 48
_SHARE = 20  # one of so many configs of a large space is compiled
_RANDOM_PART = 0.25  # of the compiled configs, drawn at random
_FIRST_PART = 0.5  # of the compiled configs, before any is measured
_ROUNDS = 3  # of estimating and compiling, before that
_AT_ONCE = 8  # configs that are compiled, or measured, before the next decision
_INFORMATIVE = 2.0  # times the best; what is faster is measured while configs are compiled, to learn of its neighbours
_LEAST_GAIN = 1e-4  # expected of a config that is compiled, as a share of the best time
_RIDGE = 0.03
_SLOWEST = 0.8  # of the logarithm of a time over the least one; what is slower, or does not fit, counts as that
_MODEL_ERROR = 0.17  # of the logarithm of a predicted time: `benchmarks.predict`
_STEPS = 4.0  # between two configs whose predicted times correlate by 1 / e
_ERROR_STEPS = 0.5  # between two whose errors do
_NOISE = 0.02
_MOST_KNOWN = 400  # configs that are interpolated between, the latest


def compile_budget(configs: int) -> int:
    """Return the number of configs of a space to compile by default: all of a small one, else one in twenty."""
    return min(configs, max(_LEAST_COMPILED, configs // _SHARE))


@dataclass(slots=True)
class PredictedSearch:
    """Asks for configs in the order of their estimated times, and stops where no other one can win.

    ``most`` configs are compiled at most. ``known`` have measured times already, and are asked first. Without
    ``measures``, all compiled configs are asked, for their predicted times. ``left`` are the rows that were compiled
    and not asked, ``note`` says how many were not compiled.
    """

    configs: Iterable[Config]
    predict_rows: PredictRows
    most: int | None = None
    seed: int = 0
    known: Sequence[Config] = ()
    measures: bool = True
    left: dict[Config, Row] = field(default_factory=dict)
    note: str = ""
    _rows: dict[Config, Row] = field(default_factory=dict)
    _times: dict[Config, float] = field(default_factory=dict)
    _asked: set[Config] = field(default_factory=set)
    _waiting: list[Config] = field(default_factory=list)
    _estimates: TimeEstimates | None = None
    _budget: int = 0
    _is_over: bool = False

    def ask(self) -> list[Config]:
        """Return the next configs to measure; none when no other one can win."""
        if self._is_over:
            return []
        asked: list[Config] = []
        if self._estimates is None:
            self._compile_first()
            asked = [*self.known]
        while not asked:
            asked = self._configs_to_measure() if self.measures else []
            batch = [] if asked else self._configs_to_compile()
            if not asked and not batch:
                return self._end()
            self._compile(batch)
        self._asked.update(asked)
        return asked

    def tell(self, config: Config, time_ms: float | None) -> None:
        """Record the measured time of a config."""
        if time_ms is not None:
            self._times[config] = time_ms

    def _compile_first(self) -> None:
        """Compile a random part of the configs, then the most promising by estimates from it."""
        everything = list(dict.fromkeys(self.configs))
        self._estimates, self._waiting = TimeEstimates(everything), everything
        total = len(everything)
        self._budget = min(total, self.most or compile_budget(total))
        if self._budget == total:
            self._compile(everything)
            return
        drawn = max(1, int(_RANDOM_PART * self._budget))
        self._compile(random.Random(self.seed).sample(everything, drawn))
        for _ in range(_ROUNDS):
            size = -(-int((_FIRST_PART - _RANDOM_PART) * self._budget) // _ROUNDS)
            estimates = self._estimates_of(self._waiting)
            order = sorted(self._waiting, key=lambda config: estimates[config].log_ms)
            self._compile(order[: min(size, self._left_budget)])

    @property
    def _left_budget(self) -> int:
        return self._budget - len(self._rows)

    def _compile(self, batch: Sequence[Config]) -> None:
        if batch:
            self._rows |= self.predict_rows(batch)
            self._waiting = [config for config in self._waiting if config not in self._rows]

    def _estimates_of(self, configs: Sequence[Config]) -> dict[Config, Estimate]:
        assert self._estimates is not None, "the search has begun"
        return self._estimates.estimate(self._rows, self._times, configs)

    def _best_ms(self) -> float | None:
        """Return the least measured time; without measurements, the least predicted one."""
        predicted = (row.predicted_ms for row in self._rows.values() if row.predicted_ms)
        return min(self._times.values(), default=None if self.measures else min(predicted, default=None))

    def _open_rows(self) -> list[Row]:
        """Return the compiled rows that fit and were not asked for."""
        return [row for row in self._rows.values() if row.status is Status.NOT_TIMED and row.config not in self._asked]

    def _configs_to_measure(self) -> list[Config]:
        """Return the compiled configs with the least estimated times, of those that can win or say what others take."""
        rows, best_ms = self._open_rows(), self._best_ms()
        estimates = self._estimates_of([row.config for row in rows])
        bounds = {row.config: _bounds_ms(row, estimates[row.config]) for row in rows}
        reach = _INFORMATIVE if self._left_budget else 1.0
        wanted = [
            config
            for config, (low, time_ms, _) in bounds.items()
            if best_ms is None or low <= best_ms or time_ms < reach * best_ms
        ]
        return sorted(wanted, key=lambda config: bounds[config][1])[:_AT_ONCE]

    def _configs_to_compile(self) -> list[Config]:
        """Return configs that may be faster than the best: its neighbours, else those of the best of each shape."""
        best_ms = self._best_ms()
        if best_ms is None or self._left_budget <= 0:
            return []
        estimates = self._estimates_of(self._waiting)
        best = log(best_ms)
        gains = {c: expected_gain(best, e.log_ms, max(e.deviation, 1e-6)) for c, e in estimates.items()}
        promising = sorted((c for c in self._waiting if gains[c] > _LEAST_GAIN), key=lambda c: -gains[c])
        size = min(_AT_ONCE, self._left_budget)
        for centres in self._centres():
            near = by_axes_in_turn(promising, centres)
            if near:
                return near[:size]
        return promising[:size]

    def _centres(self) -> Iterator[list[Config]]:
        """Yield the fastest config, then the fastest of each block shape."""
        times = self._times or {config: row.predicted_ms for config, row in self._rows.items() if row.predicted_ms}
        order = sorted(times, key=lambda config: times[config])
        yield order[:1]
        shapes: dict[Any, Config] = {}
        for config in order:
            shapes.setdefault(config.parameters, config)
        yield [*shapes.values()]

    def _end(self) -> list[Config]:
        """Set the note and the rows that were not asked for; return the configs that are asked without measuring."""
        self._is_over = True
        if self._waiting:
            self.note = (
                f"{len(self._waiting):,} of {len(self._waiting) + len(self._rows):,} configs were not compiled: "
                "those that were say that others are faster"
            )
        self.left |= {config: row for config, row in self._rows.items() if row.status is not Status.NOT_TIMED}
        rows, best_ms = self._open_rows(), self._best_ms()
        if not self.measures:
            rows.sort(key=lambda row: row.predicted_ms or float("inf"))
            return [row.config for row in rows]
        estimates = self._estimates_of([row.config for row in rows])
        for row in rows:
            low, time, high = (f"{ms:.4g}" for ms in _bounds_ms(row, estimates[row.config]))
            reason = f"not measured: predicted {time} ms ({low} to {high}), best measured {best_ms or 0.0:.4g} ms"
            self.left[row.config] = replace(row, reason=reason)
        return []


def _bounds_ms(row: Row, estimate: Estimate) -> tuple[float, float, float]:
    """Return the interval of a predicted time and the time, as measured ones correct it: low, time, high.

    The interval is as much narrower as the error of the prediction is known; a row without a prediction may be fastest.
    """
    if not row.predicted_ms:
        return 0.0, 0.0, 0.0
    time_ms, width = row.predicted_ms * exp(estimate.ratio), estimate.ratio_share
    low, high = (
        ((ms or row.predicted_ms) / row.predicted_ms) ** width for ms in (row.predicted_low_ms, row.predicted_high_ms)
    )
    return low * time_ms, time_ms, high * time_ms


def expected_gain(best: float, mean: float, deviation: float) -> float:
    """Return the expected improvement of a normal variable on ``best``; of logarithms, a share of the best time.

    Jones, Schonlau, Welch: "Efficient Global Optimization of Expensive Black-Box Functions", 1998.
    """
    z = (best - mean) / deviation
    return deviation * (z * (1 + erf(z / sqrt(2))) / 2 + exp(-z * z / 2) / sqrt(2 * pi))


def by_axes_in_turn(configs: Iterable[Config], centres: Sequence[Config]) -> list[Config]:
    """Return the configs that differ from a centre in one value alone, ordered: the first of each axis come first."""
    places, counts = dict[Config, int](), Counter[tuple[Config, str]]()
    for config in configs:
        for centre in centres:
            axis = only_difference(config, centre)
            if axis is not None and config not in places:
                places[config] = counts[centre, axis]
                counts[centre, axis] += 1
    return sorted(places, key=lambda config: places[config])


def only_difference(config: Config, centre: Config) -> str | None:
    """Return the name of the only value in which two configs differ; None if there are more, or none."""
    values, others = config.values, centre.values
    if values.keys() != others.keys():
        return None
    names = [name for name, value in values.items() if value != others[name]]
    return names[0] if len(names) == 1 else None


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
    """Estimates the times of the ``configs`` of a space, of which some are compiled and some measured.

    Two quantities are interpolated between configs, both as logarithms: the predicted time, known of compiled configs,
    and the measured over the predicted time, known of measured ones. Predicted times follow a ridge regression on the
    parameters; what remains of them, and the ratios, are Gaussian processes whose correlation falls with the steps
    between two configs. Rasmussen, Williams: Gaussian Processes for Machine Learning, 2006, chapter 2.
    """

    def __init__(self, configs: Sequence[Config]) -> None:
        np = import_uninterrupted("numpy")
        rows, positions = _numeric_tables(configs)
        features = np.array(rows)
        self._place = {config: index for index, config in enumerate(configs)}
        scaled = (features - features.mean(0)) / (features.std(0) + 1e-9)
        self._features = np.hstack([scaled, np.ones((len(scaled), 1))])
        self._positions = np.array(positions, np.float32)

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
        left = values - inner @ weights
        mean, deviation = self._interpolate(
            dict(zip(logs, left.tolist(), strict=True)), wanted, float(left.std()), _STEPS
        )
        estimates = (outer @ weights + mean).tolist()
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
    penalty = _RIDGE * len(features) * np.eye(features.shape[1])
    penalty[-1, -1] = 0.0
    return np.linalg.solve(features.T @ features + penalty, features.T @ values)


def _numeric_tables(configs: Sequence[Config]) -> tuple[list[list[float]], list[list[float]]]:
    """Return features and positions of configs, a row each.

    Features are logarithms of positive integers and a column for each other value, their squares and products of two.
    The position of a size is its place among those of its axis; other values are a step apart.
    """
    rows = [config.values for config in configs]
    names = list(dict.fromkeys(name for row in rows for name in row))
    numeric = [name for name in names if all(_is_size(row.get(name)) for row in rows)]
    choices = {n: dict.fromkeys(repr(row.get(n)) for row in rows) for n in names if n not in numeric}
    axes = {name: sorted({row[name] for row in rows}) for name in numeric}
    ranks = {name: {size: float(rank) for rank, size in enumerate(sizes)} for name, sizes in axes.items()}
    features, positions = [], []
    for row in rows:
        named = [float(repr(row.get(name)) == value) for name, values in choices.items() for value in values]
        single = [*(log2(row[name]) for name in numeric), *named]
        features.append([*single, *(left * right for i, left in enumerate(single) for right in single[i:])])
        positions.append([*(ranks[name][row[name]] for name in numeric), *(value / 2 for value in named)])
    return features, positions


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
