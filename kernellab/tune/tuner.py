"""The tuning pipeline: ask for configs, compile them side by side, measure each, and decide in a final."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

from kernellab.checking.comparison import OutputDifference
from kernellab.compile.cache import JobSource
from kernellab.compile.types import Compiled, CompileJob
from kernellab.errors import KernellabError, LaunchError, StoreError, UsageError, WorkerError
from kernellab.store.columns import Status
from kernellab.timing.bench_jobs import NO_GROUP, NOT_COMPARED, LaunchTimes
from kernellab.timing.config import Config
from kernellab.timing.launches import Implementation
from kernellab.timing.outcome import NO_GPU, reason_of, resources_of, status_of
from kernellab.timing.stopwatch import interval
from kernellab.tune.agreement import NOT_REPEATED, bench_group, outputs_of, rows_with_agreement
from kernellab.tune.cpu_check import AGREES
from kernellab.tune.device_pool import DevicePool, PoolResult
from kernellab.tune.finals import EarlyFinals, Final, Policy, finalists_of, finish_final
from kernellab.tune.result import Agreement, Counts, Row, Stage, Watch, ignore_progress, times_of, unmeasured_row
from kernellab.tune.search import Search


def longest_first(configs: Iterable[Config]) -> list[Config]:
    """Return configs in descending order of their estimated compile time; the sort is stable.

    The compiler unrolls each thread's part of a block, once per stage of a pipelined loop. So the product of the block
    sizes over the threads, times the stages, ranks the configs of one kernel; two kernels cannot be compared by it.
    """
    return sorted(configs, key=_compile_weight, reverse=True)


def _compile_weight(config: Config) -> float:
    sizes = (value for _, value in config.parameters if type(value) is int and value > 0)
    return math.prod(sizes) * (config.num_stages or 1) / (config.num_warps or 1)


_MOST_CANDIDATES = 256  # losers that are kept, since a vote may still make finalists of them
_EARLY_SHARE = 0.75  # of the configs that are compiled before an early final begins
_EARLY_EACH = 64  # finalists of an early final are chosen again after this share of new configs
_COMPARED_AT_ONCE = 16
_MIN_ENDED = 4  # configs that have ended before their pace tells anything
# Exactly these classes, not their subclasses: no memory for the bench, a worker that cannot start.
_INFRASTRUCTURE_ERRORS = frozenset({KernellabError, WorkerError})
SPENT = "not measured: the budget was spent"
STOPPED = "not measured: the tuning was interrupted"


class Stream(Protocol):
    """Compiles jobs side by side; yields the index and result of each when it ends. See `Compiler.stream`."""

    def __call__(
        self,
        jobs: Sequence[JobSource],
        *,
        from_both_ends: bool = False,
        idle: Callable[[], bool] | None = None,
    ) -> Iterator[tuple[int, Compiled | KernellabError]]: ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a tuner: a row per config in the order of asking, the winner, and its ties."""

    rows: Mapping[Config, Row]
    winner: Config | None
    ties: tuple[Config, ...]
    from_cache: bool
    interrupted: bool
    agreement: Agreement | None = None


@dataclass(slots=True)
class Tuner:
    """One tuning. ``known`` are rows of earlier ones, which are not measured again.

    ``record`` takes each row as soon as it is known, ``bytes_of`` and ``flops_of`` give what a launch moves
    and computes, ``implementation`` what a bench launches, and ``watch`` is told how far it has come. ``require``
    raises where what is asked does not fit the first kernel that compiles. ``suggest`` returns another config to try
    for what compiling one told, or None; ``listed`` are measured however much they spill. Without a pool, configs are
    compiled, and ``check`` gives the status of each that fits, with its reason: None where nothing is compared.
    """

    search: Search
    prepare: Callable[[Config], CompileJob]
    stream: Stream
    pool: DevicePool | None
    policy: Policy
    clock: Callable[[], float]
    name: str = ""
    bytes_of: Callable[[Config, Compiled], int | None] = lambda config, compiled: None
    flops_of: Callable[[Config, Compiled], int | None] = lambda config, compiled: None
    known: Mapping[Config, Row] = field(default_factory=dict)
    record: Callable[[Sequence[Row]], None] = lambda rows: None
    kernel: str = ""
    implementation: Callable[[Config, Compiled, int], Implementation] = lambda config, compiled, index: Implementation(
        config.text, None, compiled, None, config, index
    )
    require: Callable[[Config, Compiled], None] = lambda config, compiled: None
    suggest: Callable[[Config, Row], Config | None] = lambda config, row: None
    listed: Collection[Config] = ()
    check: Callable[[Config, Compiled], tuple[Status, str]] | None = None
    watch: Watch = ignore_progress
    _rows: dict[Config, Row] = field(default_factory=dict)
    _places: dict[Config, int] = field(default_factory=dict)  # in the order of the asking
    _candidates: dict[Config, Implementation] = field(default_factory=dict)
    _fresh: set[Config] = field(default_factory=set)  # measured in this tuning
    _agreement: Agreement | None = None
    _counts: Counts = field(default_factory=Counts)
    _work: dict[Config, tuple[int | None, int | None]] = field(default_factory=dict)  # bytes and operations
    _early: EarlyFinals = field(init=False)
    _next_early: int = 0
    _submitted: int = 0
    _job_errors: dict[Config, KernellabError] = field(default_factory=dict)  # those that no job could be made for
    _spill_exempt: set[Config] = field(default_factory=set)  # those that no spills keep from being measured
    _is_ready: bool = False
    _start_s: float = 0.0
    _first_s: float | None = None  # when the first config ended

    def __post_init__(self) -> None:
        self._early = EarlyFinals(self.policy, self.clock)
        self._spill_exempt = set(self.listed)

    def run(self) -> Outcome:
        """Run the tuning; after an interrupt or a spent budget, return the result so far.

        Raises:
            LaunchError: the arguments fit no config.
            UsageError: what is asked does not fit the kernel.
            KeyboardInterrupt: before anything was measured, or compiled where nothing is measured.
        """
        self._start_s = self.clock()
        self._report_progress("start")
        final = Final(None, ())
        interrupted = False
        try:
            self._screen_all()
            self._group_outputs(launches=True)
            self._check_untimed()
            if self.pool is not None:
                final = self._earlier_final() or self._finals(self.pool)
        except KeyboardInterrupt:
            interrupted, best = True, self._best_so_far()
            if best is None and (self.pool is not None or not self._counts.compiled):
                raise
            final = Final(best, ())
        if self.pool is None:
            fitting = [c for c, row in self._rows.items() if row.status is Status.NOT_TIMED and c in self._candidates]
            final = Final(next((c for c in fitting if self._rows[c].checked), next(iter(fitting), None)), ())
        from_cache = bool(self._rows) and self._submitted == 0 and self.pool is not None
        self._counts.recount(self._rows, final.winner)
        self._report_progress("done")
        return Outcome(self._rows, final.winner, final.ties, from_cache, interrupted, self._agreement)

    def _check_untimed(self) -> None:
        """Compare untimed configs with the reference on the CPU; those that agree get `checked`."""
        if self.pool is not None or self.check is None:
            return
        for config in [config for config in self._rows if config in self._candidates]:
            status, reason = self.check(config, self._candidates[config].kernel)
            is_known = status is Status.WRONG or reason == AGREES
            checked = self.policy.reference if is_known else ""
            self._rows[config] = replace(self._rows[config], status=status, reason=reason, checked=checked)

    def _best_so_far(self) -> Config | None:
        """Return the fastest config after an interrupt; None without any."""
        self._rows = {c: replace(r, reason=STOPPED) if r.reason == SPENT else r for c, r in self._rows.items()}
        self._group_outputs(launches=False)
        return min(self._ok_configs(), key=self._time_of, default=None)

    def _screen_all(self) -> None:
        while asked := self.search.ask():
            wanted = asked
            while wanted:
                self._screen_new([config for config in wanted if config not in self._rows])
                suggested = [] if self._is_spent() else self._suggestions(wanted)
                wanted = [config for config in dict.fromkeys(suggested) if config and config not in self._rows]
            for config in asked:
                self.search.tell(config, self._rows[config].time_ms)
            if self._is_spent():
                break
        self._screen_spilling()

    def _suggestions(self, configs: Iterable[Config]) -> list[Config | None]:
        """Return configs with fewer registers to try; none where the number of configs is limited."""
        if self.policy.budget_configs is not None:
            return []
        return [self.suggest(config, self._rows[config]) for config in configs]

    def _screen_new(self, asked: Sequence[Config]) -> None:
        for config in asked:
            self._rows[config] = Row(config, Status.NOT_TIMED, SPENT)
            self._places.setdefault(config, len(self._places))
            if config in self.known:
                self._adopt_row(config)
        self._report_progress("screening")
        self._screen([config for config in asked if config not in self.known])

    def _screen_spilling(self) -> None:
        """If only spilling configs are left, measure those that spill least."""
        if self.policy.max_spill_bytes is None or self.pool is None or self._ok_configs():
            return
        spilling = [config for config, row in self._rows.items() if row.status is Status.PRUNED]
        least = sorted(spilling, key=lambda config: self._rows[config].spill_bytes or 0)[: self.policy.max_finalists]
        self._spill_exempt |= set(least)
        self._counts.reopen(len(least))
        self._screen(least)

    def _adopt_row(self, config: Config) -> None:
        row = self._rows[config] = replace(self.known[config], config=config)
        self._counts.add_known(row)

    def _screen(self, configs: list[Config]) -> None:
        """Compile configs and measure each; configs begun before the budget is spent are finished.

        Raises:
            LaunchError: the arguments fit none of them.
        """
        order = longest_first(configs) if self.policy.longest_first else configs
        self._next_early = self._counts.compiled + math.ceil(len(order) * _EARLY_SHARE)
        if self.pool is not None:
            self.pool.expect(len(order))
        for config, result in self._compile(order, idle=self._measure_early):
            self._record_compile(config, result)
            for measured in self.pool.ready_results() if self.pool else ():
                self._record_measurement(measured)
            self._report_progress("screening")
            if self._is_spent():
                break
        for measured in self.pool.remaining_results() if self.pool else ():
            self._record_measurement(measured)
            self._report_progress("screening")
        first = min(self._job_errors, key=self._places.__getitem__, default=None)
        if first is not None and not self._counts.compiled and isinstance(self._job_errors[first], LaunchError):
            raise self._job_errors[first]

    def _compile(
        self, order: Sequence[Config], idle: Callable[[], bool] | None = None
    ) -> Iterator[tuple[Config, Compiled | KernellabError]]:
        """Compile configs, and yield each with its result; jobs are made one by one, not all in advance."""
        jobs = [partial(self._job, config) for config in order]
        both_ends = self.policy.longest_first and idle is not None
        for index, result in self.stream(jobs, from_both_ends=both_ends, idle=idle) if jobs else ():
            yield order[index], result

    def _job(self, config: Config) -> CompileJob:
        try:
            job = self.prepare(config)
        except KernellabError as exc:
            self._job_errors[config] = exc
            raise
        if self.pool is not None and not self._is_ready:
            self._is_ready = True
            self.pool.get_ready()
        return job

    def _record_compile(self, config: Config, result: Compiled | KernellabError) -> None:
        """Record the compile result of a config; submit the config for measurement if it can run."""
        if config in self._job_errors:
            row = self._rows[config] = Row(config, Status.COMPILE_ERROR, self._job_errors[config].message)
            self._counts.add(row)
            return
        self._counts.compiled += 1
        if not isinstance(result, KernellabError) and not self._candidates:
            self.require(config, result)
        limit_bytes = None if config in self._spill_exempt else self.policy.max_spill_bytes
        self._rows[config] = row = unmeasured_row(config, result, limit_bytes)
        if isinstance(result, KernellabError) or row.reason:
            candidate = None
        else:
            candidate = self._candidates[config] = self.implementation(config, result, self._places[config])
            self._rows[config] = replace(row, reason=NO_GPU if self.pool is None else STOPPED)
        if candidate is None or self.pool is None:
            self._counts.add(self._rows[config])
            if not isinstance(result, WorkerError | StoreError):  # a lost worker, a full disk: nothing of the config
                self.record([self._rows[config]])
            return
        self._submitted += 1
        self.pool.submit(candidate, self.policy.screen_runs, self._bound_ms)

    def _bound_ms(self) -> float | None:
        best_ms = self._counts.best_ms
        return None if best_ms is None else best_ms * self.policy.loser_factor

    def _record_measurement(self, measurement: PoolResult) -> None:
        """Record the measurement of a candidate.

        Raises:
            UsageError: the bench was asked something wrong, which is no fault of the config.
        """
        config, result, device = measurement.candidate.config, measurement.result, self._device(measurement.place)
        self._counts.measured += 1
        if isinstance(result, UsageError) and not isinstance(result, LaunchError):
            raise result
        if isinstance(result, KernellabError):
            row = _failure_row(measurement.candidate, result)
        else:
            row = self._timed_row(measurement.candidate, result)
            row = row if self.policy.reference else replace(row, group=self._group(measurement, result))
            self._fresh.add(config)
        self._rows[config] = replace(row, device_index=device)
        self._counts.add(row)
        bound_ms = self._bound_ms() if len(self._candidates) > _MOST_CANDIDATES else None
        if row.time_ms is None or (bound_ms is not None and row.time_ms > bound_ms):
            del self._candidates[config]  # of ten thousand, those that lose would fill the memory
        if type(result) not in _INFRASTRUCTURE_ERRORS:
            self.record([self._rows[config]])

    def _timed_row(self, candidate: Implementation, measured: LaunchTimes) -> Row:
        row = Row(candidate.config, Status.OK, **resources_of(candidate.kernel))
        row = replace(row, checked=self.policy.reference, outputs=self.policy.outputs)
        if not measured.times_ms:
            return replace(row, status=Status.WRONG, reason=measured.difference)
        statistics = interval(measured.times_ms)
        timed = replace(
            row,
            time_ms=statistics.median,
            low_ms=statistics.low,
            high_ms=statistics.high,
            samples=len(measured.times_ms),
        )
        return self._with_rate(timed, candidate)

    def _group(self, measurement: PoolResult, measured: LaunchTimes) -> str:
        """Return the output group of a row; outputs unlike any that the bench keeps get a group of their own."""
        if measured.group == NOT_COMPARED or self.pool is None:
            return NOT_REPEATED
        if measured.group == NO_GROUP:
            return bench_group(f"{self.name}.{measurement.place}", -1 - measurement.candidate.index)
        place, group = self.pool.group_of(measurement.place, measured.group)
        return bench_group(f"{self.name}.{place}", group)

    def _device(self, place: int) -> int | None:
        return None if self.pool is None else self.pool.devices[place]

    def _report_progress(self, stage: Stage) -> None:
        left_s = self._seconds_left() if stage == "screening" else None
        self.watch(self._counts.progress(self.kernel, stage, len(self._rows), left_s))

    def _seconds_left(self) -> float | None:
        """Return the estimated seconds left, from the pace since the first config ended; None until it is known."""
        now_s, ended = self.clock(), self._counts.ended
        if ended == 1 and self._first_s is None:
            self._first_s = now_s
        bounds = [] if self.policy.budget_s is None else [self._start_s + self.policy.budget_s - now_s]
        if self._first_s is not None and ended >= _MIN_ENDED:
            rest = len(self._rows) - self._counts.known - ended
            bounds.append((now_s - self._first_s) / (ended - 1) * rest)
        return max(0.0, min(bounds)) if bounds else None

    def _group_outputs(self, *, launches: bool) -> None:
        """Group the configs by their outputs, and mark those that differ from the majority.

        ``launches`` allows to launch configs again for comparisons. A tuning with a reference does nothing here.
        """
        if self.policy.reference or self.pool is None:
            return
        outputs = outputs_of(self._rows, self._fresh)
        if launches and not self._fresh.isdisjoint(outputs.groups):
            try:
                outputs.settle(self._compare_outputs)
            except KernellabError as exc:
                self.pool.notes.append(f"not all outputs could be compared with each other: {exc.message}")
        changed = rows_with_agreement(self._rows, outputs)
        self._rows.update(changed)
        self.record(list(changed.values()))
        self._agreement = outputs.agreement() if outputs.groups else None
        self._counts.recount(self._rows)

    def _compare_outputs(self, config: Config, others: Sequence[Config]) -> list[tuple[OutputDifference, ...]]:
        """Launch configs again, and return how the outputs of the others differ from those of the first."""
        self._compile_known([config, *others])
        lost = next((each for each in (config, *others) if each not in self._candidates), None)
        if lost is not None or self.pool is None:
            raise KernellabError(f"{'' if lost is None else lost.text} cannot be compiled now")
        differences: list[tuple[OutputDifference, ...]] = []
        for begin in range(0, len(others), _COMPARED_AT_ONCE):
            if self.policy.budget_s is not None and self._elapsed_s() > self.policy.budget_s + self.policy.finals_s:
                raise KernellabError("the budget was spent")
            part = [self._candidates[each] for each in others[begin : begin + _COMPARED_AT_ONCE]]
            differences += self.pool.reference.compare(self._candidates[config], part)
        return differences

    def _earlier_final(self) -> Final | None:
        """Return the decision of an earlier final if it still holds for the current rows."""
        good = self._ok_configs()
        winners = [config for config in good if self._rows[config].standing == "winner"]
        if len(winners) != 1 or self._submitted:
            return None
        winner = self._rows[winners[0]]
        tied = [c for c in good if self._rows[c].standing == "tied" and self._rows[c].tuning == winner.tuning]
        others = [c for c in good if c != winners[0] and self._rows[c].tuning != winner.tuning]
        if any(self._time_of(config) < (winner.high_ms or 0.0) for config in others):
            return None
        return Final(winners[0], tuple(tied))

    def _finals(self, pool: DevicePool) -> Final:
        """Run the final between the fastest configs, and record its result; a config that fails there is dropped."""
        chosen = finalists_of(self._rows, self.policy)
        if not chosen:
            return Final(None, ())
        self._report_progress("final")
        self._compile_known(chosen)
        finalists = tuple(self._candidates[config] for config in chosen if config in self._candidates)
        if not finalists:  # known from before, and cannot be compiled now: its launch will raise the error
            return Final(chosen[0], ())
        batch_s = self.policy.batch_rounds * sum(map(self._time_of, chosen)) / 1e3
        rounds = self._early.rounds_of(*pool.final_bench(batch_s), finalists)
        self._submitted += len(rounds.finalists)
        try:
            final, rows = finish_final(rounds, self._rows, self.name)
        except KernellabError:
            failures = rounds.failures()
            if not 0 < len(failures) < len(rounds.finalists):  # no config is to blame
                raise
            self._drop_failures(failures)
            return self._finals(pool)
        device = self._device(0)
        rated = [replace(self._with_rate(r, self._candidates[c]), device_index=device) for c, r in rows.items()]
        beaten = [c for c in self._ok_configs() if self._rows[c].standing in {"winner", "tied"} and c not in rows]
        rated += [replace(self._rows[config], standing="lost", tuning=self.name) for config in beaten]
        self._rows.update({row.config: row for row in rated})
        self.record(rated)
        return final

    def _drop_failures(self, failures: Mapping[Config, KernellabError]) -> None:
        """Record the failures of finalists."""
        for config, error in failures.items():
            self._rows[config] = replace(_failure_row(self._candidates[config], error), device_index=self._device(0))
        self.record([self._rows[config] for config in failures])
        self._group_outputs(launches=False)

    def _measure_early(self) -> bool:
        """Continue an early final while the last configs compile; return whether more can follow.

        Its rounds count if no later config becomes a finalist. The finalists are chosen again after some more configs.
        """
        if self.pool is None or self.pool.is_shared:
            return False
        self.pool.flush()
        if not self._fresh:
            return False
        if self._counts.compiled < self._next_early:
            return self._early.measure_more()
        self._next_early = self._counts.compiled + self._counts.compiled // _EARLY_EACH
        outvoted = set(() if self.policy.reference else outputs_of(self._rows).minority())
        rows = {config: row for config, row in self._rows.items() if config not in outvoted}
        return self._early.measure(self.pool.reference, rows, self._candidates)

    def _with_rate(self, row: Row, candidate: Implementation) -> Row:
        config, kernel = candidate.config, candidate.kernel
        if config not in self._work:
            self._work[config] = self.bytes_of(config, kernel), self.flops_of(config, kernel)
        moved, flops = self._work[config]
        return replace(
            row,
            gbps=moved / row.time_ms / 1e6 if moved and row.time_ms else None,
            tflops=flops / row.time_ms / 1e9 if flops and row.time_ms else None,
        )

    def _compile_known(self, configs: list[Config]) -> None:
        """Compile configs known from earlier tunings, for the final."""
        for config, result in self._compile([config for config in configs if config not in self._candidates]):
            if not isinstance(result, KernellabError) and result.resources.fits:
                self._candidates[config] = self.implementation(config, result, self._places[config])

    def _ok_configs(self) -> list[Config]:
        return list(times_of(self._rows.values()))

    def _time_of(self, config: Config) -> float:
        return self._rows[config].time_ms or 0.0

    def _is_spent(self) -> bool:
        policy = self.policy
        done = self._counts.compiled if self.pool is None else self._submitted
        if policy.budget_configs is not None and done >= policy.budget_configs:
            return True
        return policy.budget_s is not None and self._elapsed_s() >= policy.budget_s

    def _elapsed_s(self) -> float:
        return self.clock() - self._start_s


def _failure_row(candidate: Implementation, error: KernellabError) -> Row:
    return Row(candidate.config, status_of(error), reason_of(error), **resources_of(candidate.kernel))
