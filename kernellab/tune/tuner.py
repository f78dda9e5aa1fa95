"""The tuning pipeline: ask for configs, compile them side by side, measure each, and decide in a final."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from uuid import uuid4

from kernellab.checking.comparison import OutputDifference
from kernellab.compile.cache import Compiler
from kernellab.compile.types import Compiled, CompileJob
from kernellab.errors import KernellabError, LaunchError, StoreError, UsageError, WorkerError
from kernellab.store.columns import Status
from kernellab.timing.bench_jobs import NO_GROUP, NOT_COMPARED, LaunchTimes
from kernellab.timing.config import Config
from kernellab.timing.launches import Implementation, Launches, implementation_of
from kernellab.timing.outcome import NO_GPU
from kernellab.tune.agreement import (
    NOT_REPEATED,
    bench_group,
    disagreement_note,
    note_needless_restores,
    outputs_of,
    require_written,
    rows_with_agreement,
)
from kernellab.tune.config_runs import AGREES, BitCheck, CpuCheck, ExactCheck
from kernellab.tune.device_pool import DevicePool, PoolResult
from kernellab.tune.finals import EarlyFinals, Final, earlier_final, finalists_of, finish_final
from kernellab.tune.options import Options
from kernellab.tune.progress import Counts, Stage, Watch, ignore_progress
from kernellab.tune.result import Agreement, Records, Row, Tuning, times_of
from kernellab.tune.rows import (
    Predictor,
    failure_row,
    predicted_final,
    reference_identity,
    row_with_rates,
    timed_row,
    unmeasured_row,
)
from kernellab.tune.search import Search, longest_first

_MOST_CANDIDATES = 256  # losers that are kept, since a vote may still make finalists of them
_EARLY_SHARE = 0.75  # of the configs that are compiled before an early final begins
_EARLY_EACH = 64  # finalists of an early final are chosen again after this share of new configs
_COMPARED_AT_ONCE = 16
_PREDICTED_AT_ONCE = 16  # in as many workers as there are
# Exactly these classes, not their subclasses: no memory for the bench, a worker that cannot start.
_INFRASTRUCTURE_ERRORS = frozenset({KernellabError, WorkerError})
STOPPED = "not measured: the tuning was interrupted"


@dataclass(slots=True)
class Tuner:
    """One tuning of launches that have their configs set; it adds each row to ``records`` as soon as it is known.

    ``known`` are rows of earlier tunings, which are not measured again. ``suggest`` returns another config to try after
    one compiled, or None. Without a ``pool``, configs are only compiled, ``check`` compares those that fit with the
    reference, and ``predictor`` predicts their times. ``exact`` finds those that compute something else than the first,
    and ``bits`` groups those that ran well, or without a ``pool`` those that fit, by the bits of their outputs.
    """

    launches: Launches
    options: Options
    search: Search
    compiler: Compiler
    pool: DevicePool | None
    records: Records
    clock: Callable[[], float]
    known: Mapping[Config, Row] = field(default_factory=dict)
    suggest: Callable[[Config, Row], Config | None] = lambda config, row: None
    check: CpuCheck | None = None
    predictor: Predictor | None = None
    exact: ExactCheck | None = None
    bits: BitCheck | None = None
    watch: Watch = ignore_progress
    name: str = field(default_factory=lambda: uuid4().hex[:12])
    _rows: dict[Config, Row] = field(default_factory=dict)
    _places: dict[Config, int] = field(default_factory=dict)  # in the order of the asking
    _candidates: dict[Config, Implementation] = field(default_factory=dict)
    _unpredicted: list[Config] = field(default_factory=list)  # compiled, in the order of their candidates
    _fresh: set[Config] = field(default_factory=set)  # measured in this tuning
    _agreement: Agreement | None = None
    _counts: Counts = field(default_factory=Counts)
    _early: EarlyFinals = field(init=False)
    _next_early: int = 0
    _submitted: int = 0
    _job_errors: dict[Config, KernellabError] = field(default_factory=dict)  # those that no job could be made for
    _spill_exempt: set[Config] = field(default_factory=set)  # those that no spills keep from being measured
    _eligible: frozenset[Config] | None = None  # those that may win; None for all
    _is_ready: bool = False
    _start_s: float = 0.0

    def __post_init__(self) -> None:
        self._early = EarlyFinals(self.options, self.clock)
        self._spill_exempt = set() if self.options.is_generated else set(self.launches.originals)

    def run(self) -> Tuning:
        """Run the tuning; after an interrupt or a spent budget, return the result so far.

        Raises:
            LaunchError: the arguments fit no config.
            UsageError: what is asked does not fit the kernel.
            KeyboardInterrupt: before anything was measured, or compiled where nothing is measured.
        """
        self._start_s = self.clock()
        self._report_progress("start")
        final, is_interrupted = Final(None, ()), False
        try:
            self._screen_all()
            self._group_outputs(launches=True)
            if self.pool is not None and self.bits is not None:
                self._eligible = self._rows_of_largest_class(self.bits, self._ok_configs())
                final = self._finals(self.pool)
            elif self.pool is not None:
                final = (None if self._submitted else earlier_final(self._rows)) or self._finals(self.pool)
            elif self.check is not None:
                self._check_untimed(self.check)
        except KeyboardInterrupt:
            is_interrupted, best = True, self._best_so_far()
            if best is None and (self.pool is not None or not self._counts.compiled):
                raise
            final = Final(best, ())
        if self.pool is None:
            fitting = [c for c, row in self._rows.items() if row.status is Status.NOT_TIMED and c in self._candidates]
            eligible = fitting if self.bits is None else self._rows_of_largest_class(self.bits, fitting)
            final = predicted_final({config: self._rows[config] for config in eligible})
        self._counts.recount(self._rows, final.winner)
        self._report_progress("done")
        return self._result(final, is_interrupted=is_interrupted)

    def _rows_of_largest_class(self, bits: BitCheck, configs: Collection[Config]) -> frozenset[Config]:
        """Record the classes of configs by their bits; return the configs of the largest one."""
        rows = bits.rows_with_bits({config: self._rows[config] for config in configs})
        self._rows |= rows
        return frozenset(bits.preferred(rows))

    def _result(self, final: Final, *, is_interrupted: bool) -> Tuning:
        """Return the rows in the order of the list, those of a search's own configs last."""
        launches = self.launches
        pruned = {config: Row(config, Status.PRUNED, reason) for config, reason in launches.pruned.items()}
        rows = {**self._rows, **pruned}
        order = list(dict.fromkeys([*(config for config in launches.listed if config in rows), *rows]))
        places = {config: place for place, config in enumerate(order)}
        notes = []
        if is_interrupted and self.pool is not None:
            notes.append("The tuning was interrupted; this is the best so far.")
        elif is_interrupted:
            uncompiled = sum(row.reason == STOPPED for row in self._rows.values())
            left = f"{uncompiled} of {len(self._rows)} configs were not compiled"
            if self._unpredicted and not uncompiled:
                left = f"{len(self._unpredicted)} of {len(self._rows)} configs have no predicted time"
            notes.append(f"The tuning was interrupted; {left}.")
        if self._agreement is not None and (remark := disagreement_note(self._agreement)):
            notes.append(remark)
        return Tuning(
            kernel=launches.name,
            rows=tuple(rows[config] for config in order),
            configs=tuple(map(launches.original, order)),
            winner=None if final.winner is None else places[final.winner],
            ties=tuple(places[config] for config in final.ties),
            seconds=self._elapsed_s(),
            from_cache=bool(self._rows) and self._submitted == 0 and self.pool is not None,
            notes=tuple(notes),
            agreement=self._agreement,
            is_interrupted=is_interrupted,
        )

    def _check_untimed(self, check: CpuCheck) -> None:
        """Compare untimed configs with the reference on the CPU; those that agree get `checked`."""
        for config in [config for config in self._rows if config in self._candidates]:
            status, reason = check.status_of(config)
            is_known = status is Status.WRONG or reason == AGREES
            checked = reference_identity(self.launches) if is_known else ""
            self._rows[config] = replace(self._rows[config], status=status, reason=reason, checked=checked)

    def _best_so_far(self) -> Config | None:
        """Return the fastest config after an interrupt; None without any."""
        spent = self.options.spent_reason
        self._rows = {c: replace(r, reason=STOPPED) if r.reason == spent else r for c, r in self._rows.items()}
        self._group_outputs(launches=False)
        return min(self._ok_configs(), key=self._time_of, default=None)

    def _screen_all(self) -> None:
        is_counted = self.options.budget_configs is not None  # then no configs are added
        while asked := self.search.ask():
            wanted = asked
            while wanted:
                self._screen_new([config for config in wanted if config not in self._rows])
                is_last = is_counted or self._is_spent()
                suggested = [] if is_last else [self.suggest(config, self._rows[config]) for config in wanted]
                wanted = [config for config in dict.fromkeys(suggested) if config and config not in self._rows]
            for row in map(self._rows.__getitem__, asked):
                self.search.tell(row.config, row.ranking_ms if self.pool is None else row.time_ms)
            if self._is_spent():
                break
        self._screen_spilling()

    def _screen_new(self, asked: Sequence[Config]) -> None:
        for config in asked:
            self._rows[config] = Row(config, Status.NOT_TIMED, self.options.spent_reason)
            self._places.setdefault(config, len(self._places))
            if config in self.known:
                self._rows[config] = replace(self.known[config], config=config)
                self._counts.add_known(self._rows[config])
        self._report_progress("screening")
        excluded = {} if self.exact is None else self.exact.excluded_rows(asked)
        self._rows.update(excluded)
        for row in excluded.values():
            self._counts.add(row)
        self._screen_configs([config for config in asked if config not in self.known and config not in excluded])

    def _screen_spilling(self) -> None:
        """If only spilling configs are left, measure those that spill least."""
        if self.pool is None or self._ok_configs():
            return
        spilling = [config for config, row in self._rows.items() if row.status is Status.PRUNED]
        least = sorted(spilling, key=lambda config: self._rows[config].spill_bytes or 0)[: self.options.max_finalists]
        self._spill_exempt |= set(least)
        self._counts.reopen(len(least))
        self._screen_configs(least)

    def _screen_configs(self, configs: list[Config]) -> None:
        """Compile and measure configs, begun ones also after the budget; `LaunchError` if the arguments fit none."""
        order = longest_first(configs) if self.options.compiles_longest_first else configs
        self._next_early = self._counts.compiled + math.ceil(len(order) * _EARLY_SHARE)
        if self.pool is not None:
            self.pool.expect(len(order))
        for config, result in self._compile(order, idle=self._measure_early):
            self._record_compile(config, result)
            self._predict(least=_PREDICTED_AT_ONCE)
            for measured in self.pool.ready_results() if self.pool else ():
                self._record_measurement(measured)
            self._report_progress("screening")
            if self._is_spent():
                break
        self._predict(least=1)
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
        both_ends = self.options.compiles_longest_first and idle is not None
        for index, result in self.compiler.stream(jobs, from_both_ends=both_ends, idle=idle) if jobs else ():
            yield order[index], result

    def _job(self, config: Config) -> CompileJob:
        try:
            job = self.launches.job(config)
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
            require_written(self.launches, config, result)
        self._rows[config] = row = unmeasured_row(config, result, may_spill=config in self._spill_exempt)
        if not isinstance(result, KernellabError) and not row.reason:
            self._candidates[config] = implementation_of(self.launches, config, result, self._places[config])
            self._rows[config] = replace(row, reason=NO_GPU if self.pool is None else STOPPED)
            self._unpredicted += [config] if self.predictor is not None else []
        if config not in self._candidates or self.pool is None:
            self._counts.add(self._rows[config])
            if not isinstance(result, WorkerError | StoreError):  # a lost worker, a full disk: nothing of the config
                self._record([self._rows[config]])
            return
        self._submitted += 1
        self.pool.submit(self._candidates[config], self.options.screen_runs, self._bound_ms)

    def _predict(self, least: int) -> None:
        """Predict the times of compiled configs side by side, if there are ``least`` that nothing measures."""
        if self.predictor is not None and len(self._unpredicted) >= least:
            rows = [self._rows[config] for config in self._unpredicted]
            predicted = self.predictor.predicted_rows(rows, [self._candidates[row.config] for row in rows])
            self._rows.update({row.config: row for row in predicted})
            self._unpredicted.clear()

    def _bound_ms(self) -> float | None:
        best_ms = self._counts.best_ms
        return best_ms and best_ms * self.options.loser_factor

    def _record_measurement(self, measurement: PoolResult) -> None:
        """Record the measurement of a candidate; raise where the bench was asked something wrong."""
        config, result = measurement.candidate.config, measurement.result
        self._counts.measured += 1
        if isinstance(result, UsageError) and not isinstance(result, LaunchError):
            raise result
        if isinstance(result, KernellabError):
            row = failure_row(measurement.candidate, result)
        else:
            row = timed_row(self.launches, measurement.candidate, result)
            note_needless_restores(self.launches, measurement.candidate.kernel)
            row = row if self.launches.reference is not None else replace(row, group=self._group(measurement, result))
            self._fresh.add(config)
        device = None if self.pool is None else self.pool.devices[measurement.place]
        self._rows[config] = replace(row, device_index=device)
        self._counts.add(row)
        bound_ms = self._bound_ms() if len(self._candidates) > _MOST_CANDIDATES else None
        if row.time_ms is None or (bound_ms is not None and row.time_ms > bound_ms):
            del self._candidates[config]  # of ten thousand, those that lose would fill the memory
        if type(result) not in _INFRASTRUCTURE_ERRORS:
            self._record([self._rows[config]])

    def _group(self, measurement: PoolResult, measured: LaunchTimes) -> str:
        """Return the output group of a row; outputs unlike any that the bench keeps get a group of their own."""
        if measured.group == NOT_COMPARED or self.pool is None:
            return NOT_REPEATED
        if measured.group == NO_GROUP:
            return bench_group(f"{self.name}.{measurement.place}", -1 - measurement.candidate.index)
        place, group = self.pool.group_of(measurement.place, measured.group)
        return bench_group(f"{self.name}.{place}", group)

    def _report_progress(self, stage: Stage) -> None:
        total, budget_s = len(self._rows), self.options.budget_s
        end_s = None if budget_s is None else self._start_s + budget_s
        left_s = self._counts.seconds_left(self.clock(), total, end_s) if stage == "screening" else None
        self.watch(self._counts.progress(self.launches.name, stage, total, left_s))

    def _group_outputs(self, *, launches: bool) -> None:
        """Group the configs by their outputs, and mark those that differ from the majority.

        ``launches`` allows to launch configs again for comparisons. A tuning with a reference does nothing here.
        """
        if self.launches.reference is not None or self.pool is None:
            return
        outputs = outputs_of(self._rows, self._fresh)
        if launches and not self._fresh.isdisjoint(outputs.groups):
            try:
                outputs.settle(self._compare_outputs)
            except KernellabError as exc:
                self.pool.notes.append(f"not all outputs could be compared with each other: {exc.message}")
        changed = rows_with_agreement(self._rows, outputs)
        self._rows.update(changed)
        self._record(list(changed.values()))
        self._agreement = outputs.agreement() if outputs.groups else None
        self._counts.recount(self._rows)

    def _compare_outputs(self, config: Config, others: Sequence[Config]) -> list[tuple[OutputDifference, ...]]:
        """Launch configs again, and return how the outputs of the others differ from those of the first."""
        self._compile_known([config, *others])
        lost = next((needed for needed in (config, *others) if needed not in self._candidates), None)
        if lost is not None or self.pool is None:
            raise KernellabError(f"{'' if lost is None else lost.text} cannot be compiled now")
        differences: list[tuple[OutputDifference, ...]] = []
        for begin in range(0, len(others), _COMPARED_AT_ONCE):
            if self.options.budget_s is not None and self._elapsed_s() > self.options.budget_s + self.options.finals_s:
                raise KernellabError("the budget was spent")
            part = [self._candidates[other] for other in others[begin : begin + _COMPARED_AT_ONCE]]
            differences += self.pool.reference.compare(self._candidates[config], part)
        return differences

    def _finals(self, pool: DevicePool) -> Final:
        """Run the final between the fastest configs, and record its result; a config that fails there is dropped."""
        rows = {c: row for c, row in self._rows.items() if self._eligible is None or c in self._eligible}
        chosen = finalists_of(rows, self.options)
        if not chosen:
            return Final(None, ())
        self._report_progress("final")
        self._compile_known(chosen)
        finalists = tuple(self._candidates[config] for config in chosen if config in self._candidates)
        if not finalists:  # known from before, and cannot be compiled now: its launch will raise the error
            return Final(chosen[0], ())
        batch_s = self.options.batch_rounds * sum(map(self._time_of, chosen)) / 1e3
        rounds = self._early.rounds_of(*pool.final_bench(batch_s), finalists)
        self._submitted += len(rounds.finalists)
        device = pool.devices[0]
        try:
            final, rows = finish_final(rounds, self._rows, self.name, self._candidates)
        except KernellabError:
            failures = rounds.failures()
            if not 0 < len(failures) < len(rounds.finalists):  # no config is to blame
                raise
            for config, error in failures.items():
                self._rows[config] = replace(failure_row(self._candidates[config], error), device_index=device)
            self._record([self._rows[config] for config in failures])
            self._group_outputs(launches=False)
            return self._finals(pool)
        rated = {c: replace(row_with_rates(r, self._candidates[c]), device_index=device) for c, r in rows.items()}
        for config in self._ok_configs():  # what has won an earlier final, and lost before this one
            row = rated.get(config, self._rows[config])
            if row.standing in {"winner", "tied"} and row.tuning != self.name:
                rated[config] = replace(row, standing="lost", tuning=self.name)
        self._rows |= rated
        self._record([*rated.values()])
        return final

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
        outvoted = set(() if self.launches.reference is not None else outputs_of(self._rows).minority())
        rows = {config: row for config, row in self._rows.items() if config not in outvoted}
        return self._early.measure(self.pool.reference, rows, self._candidates)

    def _record(self, rows: Sequence[Row]) -> None:
        if self.pool is not None:
            self.records.add(rows)

    def _compile_known(self, configs: list[Config]) -> None:
        """Compile configs known from earlier tunings, for the final."""
        for config, result in self._compile([config for config in configs if config not in self._candidates]):
            if not isinstance(result, KernellabError) and result.resources.fits:
                self._candidates[config] = implementation_of(self.launches, config, result, self._places[config])

    def _ok_configs(self) -> list[Config]:
        return list(times_of(self._rows.values()))

    def _time_of(self, config: Config) -> float:
        return self._rows[config].time_ms or 0.0

    def _is_spent(self) -> bool:
        done = self._counts.compiled if self.pool is None else self._submitted
        most, most_s = self.options.budget_configs, self.options.budget_s
        return (most is not None and done >= most) or (most_s is not None and self._elapsed_s() >= most_s)

    def _elapsed_s(self) -> float:
        return self.clock() - self._start_s
