"""A table of all cases and configs that was measured once, and a measurer that looks them up: tuning over sizes again.

The table (`results/tune_over_table.json`) has a matrix product in fp16 on an H200, 48 configs on 63 shapes: 24 to tune
over, 12 that nobody sees before, 27 more. ``resident`` is how many programs of a config fit on one multiprocessor, from
a compile for cuda:90. Small shapes were timed with a flushed L2, those of 2**34 products and more without. Tables of
other kernels are written by `tune_over_record`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf, log, prod
from pathlib import Path
from statistics import median
from typing import Any

from kernellab.launch.calls import Grid3
from kernellab.store.columns import Status
from kernellab.timing.config import Config
from kernellab.tune.dispatch.measuring import ForecastSearch
from kernellab.tune.dispatch.result import CaseRequest, MeasuredCase
from kernellab.tune.result import Row

PATH = Path(__file__).parent / "results" / "tune_over_table.json"
MULTIPROCESSORS = 132


@dataclass(frozen=True, slots=True)
class Shape:
    """A case of the table: its sizes, its group, and by config milliseconds, None where it failed, and the grid.

    ``resident`` is how many programs of each fit on one multiprocessor.
    """

    sizes: dict[str, int]
    group: str
    times_ms: tuple[float | None, ...]
    grids: tuple[Grid3, ...]
    resident: tuple[int | None, ...]

    @property
    def best_ms(self) -> float:
        """The least of the times."""
        return min(time_ms for time_ms in self.times_ms if time_ms is not None)

    @property
    def is_aligned(self) -> bool:
        """Whether all sizes are multiples of 8, so that no other kernel is compiled for it than for most."""
        sizes = self.sizes
        return all(value % 8 == 0 for value in sizes.values()) and sizes["K"] % 16 == 0 == sizes["N"] % 16


@dataclass(frozen=True, slots=True)
class MeasuredTable:
    """What was measured, with its configs and where."""

    configs: tuple[Config, ...]
    shapes: tuple[Shape, ...]
    facts: dict[str, Any]

    def twin_noise(self, shape: Shape) -> float:
        """Return the median difference, as a logarithm, of pairs of configs that do the same work on a shape.

        They differ in ``num_stages`` alone, with one step along K and programs that all run at once: so their times
        should be equal, and what differs is the noise of the record. 0 without such pairs.
        """
        twins: dict[object, list[float]] = {}
        for place, config in enumerate(self.configs):
            time_ms, programs = shape.times_ms[place], prod(shape.grids[place])
            is_single = shape.sizes.get("K", inf) <= config.values.get("BK", 0) and programs <= MULTIPROCESSORS
            if time_ms is not None and is_single:
                twins.setdefault((config.parameters, config.num_warps), []).append(time_ms)
        return median([abs(log(times[0] / times[1])) for times in twins.values() if len(times) == 2] or [0.0])

    def group(self, name: str) -> list[Shape]:
        """Return the shapes of a group; of ``more``, those that are aligned as the others are."""
        return [shape for shape in self.shapes if shape.group == name and (name != "more" or shape.is_aligned)]


def table(path: Path = PATH) -> MeasuredTable:
    """Return the table of a file."""
    given = json.loads(path.read_text(encoding="utf-8"))
    configs = tuple(Config.of(each) for each in given["configs"])
    shapes = tuple(_shape(each, given, configs) for each in given["cases"])
    facts = {name: given[name] for name in ("device", "triton", "torch", "kernel")}
    return MeasuredTable(configs, shapes, facts)


def _shape(case: dict[str, Any], given: dict[str, Any], configs: Sequence[Config]) -> Shape:
    """Return a case; that of a product has no grids, since these follow from its sizes."""
    sizes = case.get("sizes") or {"M": case["m"], "N": case["n"], "K": case["k"]}
    grids = tuple(_three(grid) for grid in case["grid"]) if "grid" in case else tuple(_grid(sizes, c) for c in configs)
    return Shape(sizes, case["group"], tuple(case["ms"]), grids, tuple(case.get("resident") or given["resident"]))


def _three(grid: Sequence[int]) -> Grid3:
    x, y, z = (*grid, 1, 1)[:3]
    return x, y, z


def _grid(sizes: dict[str, int], config: Config) -> Grid3:
    values = config.values
    return -(-sizes["M"] // values["BM"]) * -(-sizes["N"] // values["BN"]), 1, 1


@dataclass(slots=True)
class TableCases:
    """Looks cases up in the table; ``tried`` has what was asked for, by shape."""

    measured: MeasuredTable
    shapes: Sequence[Shape]
    lanes: int = 1
    tried: dict[int, set[Config]] = field(default_factory=dict)
    _waiting: list[CaseRequest] = field(default_factory=list)

    def submit(self, request: CaseRequest, /) -> None:
        """Note a case."""
        self._waiting.append(request)

    def take(self) -> MeasuredCase:
        """Return the rows that a search of forecasts asks for."""
        request = self._waiting.pop(0)
        shape = self.shapes[request.number]
        places = {config: place for place, config in enumerate(self.measured.configs)}
        tried = self.tried.setdefault(request.number, set())
        search, rows = ForecastSearch(request, frozenset(tried)), []
        while asked := search.ask():
            for config in asked:
                time_ms = shape.times_ms[places[config]]
                search.tell(config, time_ms)
                rows.append(Row(config, Status.FAULT if time_ms is None else Status.OK, time_ms=time_ms))
        known = sum(row.config in tried for row in rows)
        tried.update(row.config for row in rows)
        own = {row.config: places[row.config] for row in rows}
        grids = {config: shape.grids[place] for config, place in own.items()}
        resident = {config: count for config, place in own.items() if (count := shape.resident[place]) is not None}
        facts = self.measured.facts
        return MeasuredCase(request.number, request.sizes, tuple(rows), grids, resident, provenance=facts, known=known)

    def close(self) -> None:
        """Hold nothing."""
