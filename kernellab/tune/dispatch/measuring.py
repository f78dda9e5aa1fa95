"""Measuring of cases in this process: make the inputs, then run a short tuning of the most promising configs.

Within a case, forecasts order the configs, measurements correct the forecasts, and losers are dropped.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf, log
from typing import Any

from kernellab._triton.kernel import Kernel, parameter_names
from kernellab.benchmark.spec import BenchmarkSpec, CaseArguments
from kernellab.compile.cache import Compiler
from kernellab.compile.job_queue import JobSource, resolve_job
from kernellab.errors import KernellabError
from kernellab.store import Version
from kernellab.store.columns import Status
from kernellab.target import DeviceLimits, limits_of, multiprocessors
from kernellab.timing.config import Config
from kernellab.timing.launches import Launches
from kernellab.tune.dispatch.result import CaseRequest, Forecast, MeasuredCase
from kernellab.tune.options import Options
from kernellab.tune.result import Row
from kernellab.tune.run_tuning import Environment, known_rows, prepare_launches, run_tuning
from kernellab.tune.search import longest_first
from kernellab.workers.forks_and_interrupts import TICK_S, ProgressCallback, Work

_BATCH = 4
_END_S = 15.0
_MOST_AHEAD = 64
SHORT_FINALS = Options(
    screen_runs=3,
    at_once=16,
    max_finalists=4,
    batch_rounds=6,
    max_rounds=18,
    finals_s=0.15,
    early_s=0.05,
    tie_margin=0.01,
    warm_runs=0,
)
"""How much is measured within one case: for a rule, configs within a percent of each other are equal."""


@dataclass(frozen=True, slots=True)
class CaseSpec:
    """The common part of all cases: grid, arguments that no size changes, ``inputs``, options and reference.

    ``inputs`` returns arguments by name for some sizes; without it, sizes replace ``base_arguments``. ``check`` is the
    reference as the user wrote it.
    """

    grid: Any
    base_arguments: Mapping[str, Any]
    inputs: Callable[..., Mapping[str, Any]] | None
    options: Options = SHORT_FINALS
    check: Any = None

    def arguments(self, kernel: Kernel, sizes: Mapping[str, int], number: int = 0) -> dict[str, Any]:
        """Return the arguments of a case by name; `UsageError` where ``inputs`` raises, or returns something else."""
        swept = {name: (value,) for name, value in sizes.items()}
        bench = BenchmarkSpec(kernel, self.grid, self.base_arguments, swept, inputs=self.inputs)
        return CaseArguments(bench, parameter_names(kernel)).of(number, dict(sizes))

    def options_of(self, search: ForecastSearch) -> Options:
        """Return the tuning options of a case."""
        if self.check is None:
            return replace(self.options, search=search)
        from kernellab.checking.reference import check_of  # most have none

        return replace(self.options, search=search, check=check_of(self.check))


@dataclass(slots=True)
class LocalCases:
    """Measures cases one after the other on this process's GPU; without a GPU, their times are predicted.

    ``multiprocessors`` are those of the device that times are predicted for, 0 for that of this machine.
    """

    environment: Environment
    kernel: Kernel
    spec: CaseSpec
    multiprocessors: int = 0
    lanes: int = 1
    _waiting: list[CaseRequest] = field(default_factory=list)
    _launches: Launches | None = None
    _version: Version | None = None
    _ahead: CompilingAhead | None = None

    def submit(self, request: CaseRequest, /) -> None:
        """Queue a case."""
        self._waiting.append(request)

    def take(self) -> MeasuredCase:
        """Measure the first queued case; if it fails as a whole, the result has its ``failure``."""
        clock, request = self.environment.clock, self._waiting.pop(0)
        begin_s = clock()
        try:
            case = self._measure(request)
        except KernellabError as exc:
            case = MeasuredCase(request.number, dict(request.sizes), failure=exc.message)
        return replace(case, seconds=clock() - begin_s)

    def close(self) -> None:
        """Drop the queued cases, and stop compiling ahead."""
        self._waiting.clear()
        if self._ahead is not None:
            self._ahead.close()

    def _measure(self, request: CaseRequest) -> MeasuredCase:
        """Measure a case, and store its rows; `KernellabError` where the case as a whole failed."""
        environment, sizes = self.environment, dict(request.sizes)
        if self._launches is None:
            self._launches = Launches(self.kernel, self.spec.grid, (), {}, environment.device.target)
            self._version = environment.kernels.current_version(self.kernel)
        launches = self._launches.with_arguments((), self.spec.arguments(self.kernel, sizes, request.number))
        search = ForecastSearch(request)
        options = self.spec.options_of(search)
        records = prepare_launches(environment, launches, options, self._version, sizes)
        unpruned = tuple(forecast for forecast in request.forecasts if forecast.config in launches.originals)
        search.request = replace(request, forecasts=unpruned)
        is_timed = environment.make_bench is not None
        if is_timed and self._ahead is None:
            self._ahead = _compile_ahead(environment.compiler, launches, request)
        if is_timed and options.check is None:  # stored rows are of no use with a reference
            search.known = frozenset(known_rows(launches, options, records)) & launches.originals.keys()
        tuning = run_tuning(environment, launches, options, records, environment.clock())
        own = {"search", "seed", "key", "created"}
        facts = {name: value for name, value in tuning.provenance.items() if name not in own}
        rows = tuple(row for row in tuning.rows if row.status is not Status.NOT_TIMED or not is_timed)
        return MeasuredCase(
            number=request.number,
            sizes=sizes,
            rows=rows,
            grids={r.config: launches.of(r.config).grid for r in rows if r.status in {Status.OK, Status.NOT_TIMED}},
            resident=_resident_programs(rows, limits_of(environment.device.target)),
            key=records.key,
            provenance={**facts, "multiprocessors": self.multiprocessors or multiprocessors()},
            known=sum(row.config in search.known for row in rows),
            is_interrupted=tuning.is_interrupted,
        )


class CompilingAhead:
    """Compiles jobs in the background until it is closed."""

    def __init__(self, compiler: Compiler, jobs: Sequence[JobSource]) -> None:
        self._compiler, self._jobs = compiler, jobs
        self._closed = threading.Event()
        self._work: Work[None] = Work(self._run, daemon=True)
        self._work.begin()

    def close(self) -> None:
        """Stop compiling."""
        self._closed.set()
        self._work.await_end(_END_S)

    def _run(self, tell: ProgressCallback) -> None:
        with suppress(_StopCompiling):
            for _ in self._compiler.stream(self._jobs, idle=self._go_on):  # errors appear where a config is needed
                self._go_on(0.0)

    def _go_on(self, wait_s: float = TICK_S) -> bool:
        if self._closed.wait(wait_s):
            raise _StopCompiling
        return True


class _StopCompiling(Exception):
    """Stops the compile stream when compiling ahead is closed."""


def _compile_ahead(compiler: Compiler, launches: Launches, request: CaseRequest) -> CompilingAhead:
    """Compile configs that the first case does not ask for while others are measured, the longest first."""
    asked = {forecast.config for forecast in request.forecasts}
    left = longest_first(config for config in launches.originals if config not in asked)[:_MOST_AHEAD]
    jobs = [resolve_job(partial(launches.job, config)) for config in left]  # by functions of the user, in this thread
    return CompilingAhead(compiler, jobs)


def _resident_programs(rows: Sequence[Row], limits: DeviceLimits | None) -> dict[Config, int]:
    """Return the programs of each config that fit on one SM, from its occupancy."""
    if limits is None:
        return {}
    warps = limits.threads_per_multiprocessor // limits.warp_threads
    return {
        row.config: max(1, round(row.occupancy * warps / (row.config.num_warps or 4)))
        for row in rows
        if row.occupancy is not None
    }


@dataclass(slots=True)
class ForecastSearch:
    """Asks for the configs of a request in small batches, while one of them may be the best. A `tune.Search`.

    ``known`` configs have stored rows; they are asked for first, and cost nothing.
    """

    request: CaseRequest
    known: frozenset[Config] = frozenset()
    _times_ms: dict[Config, float] = field(default_factory=dict)
    _asked: set[Config] = field(default_factory=set)
    _has_begun: bool = False

    def ask(self) -> list[Config]:
        """Return the next configs; none when no other can be the best, or ``at_most`` are measured."""
        request = self.request
        if not self._has_begun:
            self._has_begun = True
            self._asked |= self.known
            if free := [forecast.config for forecast in request.forecasts if forecast.config in self.known]:
                return free
        tried = len(self._asked - self.known)
        left = [forecast for forecast in request.forecasts if forecast.config not in self._asked]
        wanted = [forecast.config for forecast in promising_forecasts(request, left, self._times_ms)]
        owed = request.at_least - tried
        if owed > len(wanted):
            hopeful = set(wanted)
            others = [forecast.config for forecast in left if forecast.config not in hopeful]
            wanted += others[: owed - len(wanted)]
        batch = wanted[: min(max(_BATCH, owed), request.at_most - tried)]
        self._asked |= set(batch)
        return batch

    def tell(self, config: Config, time_ms: float | None) -> None:
        """Record the median of a config; None if it could not be measured."""
        if time_ms is not None:
            self._times_ms[config] = time_ms


def promising_forecasts(request: CaseRequest, left: list[Forecast], times_ms: Mapping[Config, float]) -> list[Forecast]:
    """Return the forecasts of configs that may still be the best after these times, the most promising first.

    The common error of a case's forecasts is estimated from the measured configs, weighted by their precision.
    """
    known = [entry for entry in request.forecasts if entry.config in times_ms and entry.time_ms]
    precise = [1.0 / (entry.spread**2 + 1e-4) for entry in known]
    missed = [log(times_ms[entry.config]) - log(entry.time_ms or 1.0) for entry in known]
    total = sum(precise) + 1.0 / request.case_spread**2
    offset = sum(weight * value for weight, value in zip(precise, missed, strict=True)) / total
    best = log(min(times_ms.values())) - request.margin if times_ms else inf

    def hope(forecast: Forecast) -> float:
        return -inf if forecast.time_ms is None else log(forecast.time_ms) + offset - request.doubt * forecast.spread

    return [entry for entry in sorted(left, key=hope) if hope(entry) < best]
