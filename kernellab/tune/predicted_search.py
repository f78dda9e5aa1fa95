"""The search by predicted times: which configs to compile, in which order to measure them, and where to stop.

Of a large space, a random part is compiled and predicted first. A regression of these times on the parameters estimates
those of all configs, and says which to compile next. Then configs are measured in the order predicted, until no other
one can win within its interval. Predictions are scaled by what was measured.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import exp, log, log2
from statistics import median
from typing import Any

from kernellab.errors import three_digits
from kernellab.store.columns import Status
from kernellab.timing.config import Config
from kernellab.tune.result import Row
from kernellab.workers.forks_and_interrupts import import_uninterrupted

PredictRows = Callable[[Sequence[Config]], Mapping[Config, Row]]
"""Compiles configs and returns a row each, with a predicted time if it fits and can be predicted."""

_LEAST_COMPILED = 48
_SHARE = 20  # one of so many configs of a large space is compiled
_RANDOM_PART = 3  # one of so many compiled configs is drawn at random
_ROUNDS = 3  # of estimating and compiling
_AT_ONCE = 8  # configs that are measured before the next decision
_RIDGE = 0.03
_PENALTY = 1.0  # added to the logarithm of the slowest time, for a config that does not fit


def compile_budget(configs: int) -> int:
    """Return how many configs of a space are compiled by default: all of a small one, else one in twenty."""
    return min(configs, max(_LEAST_COMPILED, configs // _SHARE))


@dataclass(slots=True)
class PredictedSearch:
    """Asks for configs in the order of their predicted times, and stops where no other one can win.

    ``most`` configs are compiled. ``known`` have measured times already, and are asked first. Without ``measures``, all
    compiled configs are asked, for their predicted times. ``left`` are the rows that were compiled and not asked,
    ``note`` says how many were not compiled.
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
    _order: list[Config] | None = None
    _times: dict[Config, float] = field(default_factory=dict)

    def ask(self) -> list[Config]:
        """Return the next configs to measure; none when no other one can win."""
        if self._order is None:
            self._order = self._compile_promising()
            if not self.measures:
                asked, self._order = self._order, []
                return [*dict.fromkeys([*self.known, *asked])]
            if self.known:
                return list(self.known)
        while self._order and self._order[0] in self._times:
            self._order.pop(0)
        best_ms = min(self._times.values(), default=None)
        if best_ms is not None and not any(self._can_win(config, best_ms) for config in self._order):
            self.left |= {config: self._unmeasured_row(config, best_ms) for config in self._order}
            self._order = []
        asked, self._order = self._order[:_AT_ONCE], self._order[_AT_ONCE:]
        return asked

    def tell(self, config: Config, time_ms: float | None) -> None:
        """Record the measured time of a config."""
        if time_ms is not None:
            self._times[config] = time_ms

    def _compile_promising(self) -> list[Config]:
        """Compile the most promising configs; return those with a predicted time, the least first."""
        waiting = list(dict.fromkeys(self.configs))
        total = len(waiting)
        budget = min(total, self.most or compile_budget(total))
        random.Random(self.seed).shuffle(waiting)
        first = budget if budget == total else max(1, budget // _RANDOM_PART)
        batch, waiting = waiting[:first], waiting[first:]
        while batch:
            self._rows |= self.predict_rows(batch)
            size = min(budget - len(self._rows), -(-(budget - first) // _ROUNDS))
            if size <= 0:
                break
            estimates = estimated_times(self._rows, waiting)
            waiting.sort(key=lambda config: estimates[config])
            batch, waiting = waiting[:size], waiting[size:]
        if waiting:
            self.note = (
                f"{len(waiting):,} of {total:,} configs were not compiled: those that were say that others are faster"
            )
        predicted = {config: row for config, row in self._rows.items() if row.predicted_ms is not None}
        unpredicted = [
            c for c, row in self._rows.items() if row.predicted_ms is None and row.status is Status.NOT_TIMED
        ]
        self.left |= {config: row for config, row in self._rows.items() if row.status is not Status.NOT_TIMED}
        return [*sorted(predicted, key=lambda config: predicted[config].predicted_ms or 0.0), *unpredicted]

    def _scale(self) -> float:
        """Return by how much measured times exceed predicted ones, in the median."""
        ratios = [
            time_ms / predicted_ms
            for config, time_ms in self._times.items()
            if config in self._rows and (predicted_ms := self._rows[config].predicted_ms)
        ]
        return median(ratios) if ratios else 1.0

    def _can_win(self, config: Config, best_ms: float) -> bool:
        low_ms = self._rows[config].predicted_low_ms
        return low_ms is None or low_ms * self._scale() <= best_ms

    def _unmeasured_row(self, config: Config, best_ms: float) -> Row:
        row, scale = self._rows[config], self._scale()
        low, time, high = (
            three_digits((ms or 0.0) * scale) for ms in (row.predicted_low_ms, row.predicted_ms, row.predicted_high_ms)
        )
        return replace(
            row, reason=f"not measured: predicted {time} ms ({low} to {high}), best measured {best_ms:.4g} ms"
        )


def estimated_times(rows: Mapping[Config, Row], configs: Sequence[Config]) -> dict[Config, float]:
    """Return an estimate of the milliseconds of each config, from rows of others.

    The logarithm of the time is a sum over the parameters' logarithms, their squares and products: a ridge regression.
    What does not fit or spills too much counts as slower than all others.
    """
    np = import_uninterrupted("numpy")
    known = [(config, row.predicted_ms) for config, row in rows.items() if row.predicted_ms is not None]
    if not known:
        return dict.fromkeys(configs, 0.0)
    worst = log(max(ms for _, ms in known)) + _PENALTY
    failed = [(config, exp(worst)) for config, row in rows.items() if row.predicted_ms is None]
    table = _Table([*(config for config, _ in known), *(config for config, _ in failed), *configs])
    count = len(known) + len(failed)
    features = np.array(table.features())
    centre, spread = features[:count].mean(0), features[:count].std(0) + 1e-9
    scaled = np.hstack([(features - centre) / spread, np.ones((len(features), 1))])
    times = np.log([ms for _, ms in (*known, *failed)])
    inner = scaled[:count]
    penalty = _RIDGE * count * np.eye(scaled.shape[1])
    penalty[-1, -1] = 0.0
    weights = np.linalg.solve(inner.T @ inner + penalty, inner.T @ times)
    return dict(zip(configs, np.exp(scaled[count:] @ weights).tolist(), strict=True))


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

    def _row(self, values: Mapping[str, Any]) -> list[float]:
        single = [log2(values[name]) for name in self._numeric]
        single += [float(repr(values.get(name)) == value) for name, value in self._named]
        return [*single, *(left * right for i, left in enumerate(single) for right in single[i:])]


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
