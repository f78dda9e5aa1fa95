"""A case, which is one combination of sizes: what is to be measured of it, what came of that, and who measures it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from kernellab.launch.calls import Grid3
from kernellab.measure.config import Config, Status
from kernellab.tune.result import Row


@dataclass(frozen=True, slots=True)
class Forecast:
    """What is expected of a config: its time in milliseconds, None where nothing tells.

    ``spread`` is the standard deviation of the logarithm of that time: 0.05 where it may well be off by 5 %.
    """

    config: Config
    time_ms: float | None = None
    spread: float = 1.0


@dataclass(frozen=True, slots=True)
class CaseRequest:
    """What is to be measured of a case: configs in the order of trying, each until it cannot be the best any more.

    ``sizes`` are the values by name that ``inputs`` is called with, in the order of ``over``. A config is not measured
    where its forecast, less ``doubt`` times its ``spread``, is not faster than the best one by more than ``margin``, a
    difference of logarithms. ``at_least`` so
    many of the first are measured whatever their forecasts say, and no more than ``at_most``. ``case_spread`` is the
    standard deviation of what all forecasts of this case are off by in common. It can be pickled if the configs can.
    """

    number: int
    sizes: Mapping[str, int]
    forecasts: tuple[Forecast, ...]
    at_least: int = 1
    at_most: int = 16
    case_spread: float = 0.1
    doubt: float = 1.5
    margin: float = 0.01


@dataclass(frozen=True, slots=True)
class MeasuredCase:
    """What is known of a case: a row for each config that was tried, or known before.

    ``grids`` are the extents of the grid of configs, as far as it was called; ``resident`` is how many programs of a
    config fit on one multiprocessor, where it was compiled. ``key`` is the one that the rows have in the
    store, ``provenance`` has device
    and versions. ``failure`` says why the whole case could not be measured: no memory for its inputs, a lost worker.
    ``known`` counts rows that were not measured anew. ``is_interrupted`` tells that the user ended it: the rows count,
    and nothing more is to be measured.
    """

    number: int
    sizes: Mapping[str, int]
    rows: tuple[Row, ...] = ()
    grids: Mapping[Config, Grid3] = field(default_factory=dict)
    resident: Mapping[Config, int] = field(default_factory=dict)
    key: str = ""
    provenance: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    known: int = 0
    failure: str = ""
    is_interrupted: bool = False

    @property
    def times_ms(self) -> dict[Config, float]:
        """The medians of the configs that ran well."""
        good = (row for row in self.rows if row.status is Status.OK and row.time_ms is not None)
        return {row.config: row.time_ms or 0.0 for row in good}


class CaseMeasurer(Protocol):
    """Measures cases, ``lanes`` of them side by side. Rows enter the store before a case comes back.

    A case that fails comes back with its ``failure``; nothing is raised for it.
    """

    @property
    def lanes(self) -> int:
        """How many cases are worth handing over before the first has come back."""

    def submit(self, request: CaseRequest, /) -> None:
        """Hand a case over."""

    def take(self) -> MeasuredCase:
        """Wait for the next case that ends, in whatever order; raises `KeyboardInterrupt` where that is interrupted."""

    def close(self) -> None:
        """Give up what has not ended."""
