"""The search within one case: forecasts say what to try, what was measured corrects them, and losers are dropped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf, log

from kernellab.dispatch.cases import CaseRequest, Forecast
from kernellab.measure.config import Config

BATCH = 4


@dataclass(slots=True)
class ForecastSearch:
    """Asks for the configs of a request, a few at a time, as long as one of them may be the best. A `tune.Search`.

    ``known`` are configs that the store knows; they are asked for first, and cost nothing.
    """

    request: CaseRequest
    known: frozenset[Config] = frozenset()
    _times_ms: dict[Config, float] = field(default_factory=dict)
    _given: set[Config] = field(default_factory=set)
    _has_begun: bool = False

    def ask(self) -> list[Config]:
        """Return the next configs; none where no other can be the best, or so many were measured as are asked for."""
        if not self._has_begun:
            self._has_begun = True
            self._given |= self.known
            if free := [each.config for each in self.request.forecasts if each.config in self.known]:
                return free
        tried = len(self._given - self.known)
        left = [each for each in self.request.forecasts if each.config not in self._given]
        wanted = [each.config for each in hopeful(self.request, left, self._times_ms)]
        owed = self.request.at_least - tried
        if len(wanted) < owed:
            wanted += [each.config for each in left if each.config not in wanted][: owed - len(wanted)]
        found = wanted[: min(max(BATCH, owed), self.request.at_most - tried)]
        self._given |= set(found)
        return found

    def tell(self, config: Config, time_ms: float | None) -> None:
        """Take the median of a config; None where it could not be measured."""
        if time_ms is not None:
            self._times_ms[config] = time_ms


def hopeful(request: CaseRequest, left: list[Forecast], times_ms: Mapping[Config, float]) -> list[Forecast]:
    """Return the forecasts of those that may still be the best, the most hopeful first, given what was measured.

    All forecasts of a case may be off in common: by how much, the configs that were measured tell, each with the weight
    of its own precision.
    """
    known = [each for each in request.forecasts if each.config in times_ms and each.time_ms]
    precise = [1.0 / (each.spread**2 + 1e-4) for each in known]
    missed = [log(times_ms[each.config]) - log(each.time_ms or 1.0) for each in known]
    total = sum(precise) + 1.0 / request.case_spread**2
    offset = sum(weight * value for weight, value in zip(precise, missed, strict=True)) / total
    best = log(min(times_ms.values())) - request.margin if times_ms else inf

    def hope(forecast: Forecast) -> float:
        return -inf if forecast.time_ms is None else log(forecast.time_ms) + offset - request.doubt * forecast.spread

    return [each for each in sorted(left, key=hope) if hope(each) < best]
