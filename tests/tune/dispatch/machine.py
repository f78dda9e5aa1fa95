"""A machine that is a formula: times of configs on sizes, and a measurer that looks them up."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import exp

from kernellab.store.columns import Status
from kernellab.timing.config import Config
from kernellab.tune.dispatch.measuring import ForecastSearch
from kernellab.tune.dispatch.over import OverSizes
from kernellab.tune.dispatch.plan import Plan, PlanPolicy
from kernellab.tune.dispatch.result import CaseRequest, MeasuredCase
from kernellab.tune.dispatch.table import CaseTable
from kernellab.tune.result import Row

MULTIPROCESSORS = 16
CONFIGS = [
    Config.of({"BM": m, "BN": n, "num_warps": warps, "num_stages": stages})
    for m, n, warps, stages in product((16, 32, 64, 128), (32, 128), (4, 8), (2, 3))
]
CASES = [{"M": m, "N": n, "K": k} for m, n, k in product((16, 256, 2048), (64, 1024), (128, 1024, 4096))]


def grid_of(sizes: Mapping[str, int], config: Config) -> tuple[int, int, int]:
    values = config.values
    return -(-sizes["M"] // values["BM"]), -(-sizes["N"] // values["BN"]), 1


def resident(config: Config) -> int:
    return max(1, 16384 // (config.values["BM"] * config.values["BN"] * config.values["num_stages"] // 2))


def time_ms(sizes: Mapping[str, int], config: Config) -> float:
    """Return what a launch takes: it waits for memory once per wave, and computes a round after the other."""
    values = config.values
    rows, columns, _ = grid_of(sizes, config)
    programs = rows * columns
    waves = -(-programs // (MULTIPROCESSORS * resident(config)))
    rounds = -(-programs // MULTIPROCESSORS)
    step = values["BM"] * values["BN"] / 16384 * (1.0 + 8.0 / values["BM"] + 0.2 * (values["num_warps"] == 8))
    waiting = (0.2 + 0.1 * (values["num_stages"] == 2)) * (values["BM"] + values["BN"]) / 128
    return 0.005 + 0.001 * waves + 1e-4 * sizes["K"] * (waves * waiting + rounds * step) / 16


@dataclass
class Formula:
    """Answers requests; ``failing`` cases fail as a whole, and configs fault where ``faults`` says so."""

    cases: Sequence[Mapping[str, int]] = field(default_factory=lambda: CASES)
    noise: float = 0.003
    lanes: int = 1
    failing: frozenset[int] = frozenset()
    faults: frozenset[tuple[int, Config]] = frozenset()
    interrupt_after: int | None = None
    is_timed: bool = True
    requests: list[CaseRequest] = field(default_factory=list)
    measured: int = 0
    waiting: list[CaseRequest] = field(default_factory=list)
    closed: bool = False
    rng: random.Random = field(default_factory=lambda: random.Random(0))

    def submit(self, request: CaseRequest, /) -> None:
        self.requests.append(request)
        self.waiting.append(request)

    def take(self) -> MeasuredCase:
        if self.interrupt_after is not None and len(self.requests) > self.interrupt_after:
            raise KeyboardInterrupt
        request = self.waiting.pop(0)
        if request.number in self.failing:
            return MeasuredCase(request.number, request.sizes, failure="no memory for the inputs")
        search, rows = ForecastSearch(request), []
        while asked := search.ask():
            for config in asked:
                row = self._row(request, config)
                search.tell(config, row.time_ms)
                rows.append(row)
        self.measured += len(rows)
        grids = {row.config: grid_of(request.sizes, row.config) for row in rows}
        facts = {"device": "a formula", "multiprocessors": MULTIPROCESSORS}
        return MeasuredCase(
            request.number, request.sizes, tuple(rows), grids, {c: resident(c) for c in grids}, provenance=facts
        )

    def close(self) -> None:
        self.closed = True

    def _row(self, request: CaseRequest, config: Config) -> Row:
        if not self.is_timed:
            return Row(config, Status.NOT_TIMED, "not measured: there is no GPU")
        if (request.number, config) in self.faults:
            return Row(config, Status.FAULT, "an illegal access")
        return Row(config, Status.OK, time_ms=time_ms(request.sizes, config) * exp(self.rng.gauss(0, self.noise)))


def over_sizes(machine: Formula, policy: PlanPolicy | None = None) -> OverSizes:
    table = CaseTable(machine.cases, CONFIGS, MULTIPROCESSORS)
    return OverSizes("product", table, Plan(table, policy or PlanPolicy()), machine)


def best_ms(sizes: Mapping[str, int]) -> float:
    return min(time_ms(sizes, config) for config in CONFIGS)
