"""Tuning over sizes: a plan chooses cases, a measurer measures them, and a rule fitted to them is the dispatch."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

from kernellab._triton.kernel import Kernel, parameter_names
from kernellab.checking.reference import keyword_names, takes_any_name
from kernellab.errors import UsageError, WorkerError, plural, three_digits, value_text
from kernellab.explain.devices import device_for, device_of_model
from kernellab.launch.calls import UserCall
from kernellab.registry import Session
from kernellab.target import Target, multiprocessors, parse_target
from kernellab.timing.config import Config, Space
from kernellab.timing.launches import Launches
from kernellab.tune.dispatch.cover import cover_steps, fit_rule, regrets_of
from kernellab.tune.dispatch.measuring import CaseSpec, LocalCases
from kernellab.tune.dispatch.plan import Plan, PlanPolicy
from kernellab.tune.dispatch.result import (
    CaseMeasurer,
    CaseRequest,
    Dispatch,
    DispatchProgress,
    MeasuredCase,
    Watch,
    size_text,
)
from kernellab.tune.dispatch.rule import whole_number
from kernellab.tune.dispatch.speedup import baselines_of, program_speedup, weights_of, with_shares
from kernellab.tune.dispatch.table import CaseTable
from kernellab.tune.progress import ignore_progress
from kernellab.tune.result import Row
from kernellab.tune.run_tuning import Environment, candidates_of
from kernellab.tune.verbs import environment_of
from kernellab.workers.forks_and_interrupts import Interrupted

if TYPE_CHECKING:
    from kernellab.tune.cluster_tuning import OpenEnvironment

WITHOUT_GPU = "Without times, the rule picks the first config that fits, for all sizes."

_WARM_RUNS = 5


def tune_over(
    session: Session,
    call: UserCall,
    over: Any,
    spec: CaseSpec,
    executor: Any = None,
    opened: OpenEnvironment | None = None,
    max_configs: int = 8,
    weights: Any = None,
    baseline: Any = None,
) -> Dispatch:
    """Tune a bound kernel over sizes; ``spec`` has the user's options and how a case is measured.

    ``opened`` returns the environment of an executor's process; ``max_configs`` limits the configs of the rule. For
    ``weights`` and ``baseline``, see `weights_of` and `baselines_of`.

    Raises:
        UsageError, LaunchError: the sizes, configs or arguments do not fit the kernel.
        WorkerError: the executor has no GPU, or broke.
    """
    environment = replace(environment_of(session), progress=None)  # one display for all cases
    kernel, grid = call.kernel, call.grid
    names = parameter_names(kernel)
    arguments = {**dict(zip(names, call.args, strict=False)), **call.meta}
    known = () if takes_any_name(spec.inputs) else (*names, *keyword_names(spec.inputs))
    listed = listed_cases(over, known)
    cases = distinct_cases(listed)
    counts = weights_of(weights, over, listed, cases)
    launches = Launches(kernel, grid, (), arguments, environment.device.target)
    originals = candidates_of(launches, spec.options.configs)
    before = baselines_of(baseline, over, listed, cases, launches.effective)
    if before and counts is None:
        raise UsageError("baseline needs weights: the number of launches of each case, weights=[1000, 20, ...].")
    originals |= {config: original for config, original in before if config not in originals}
    baselines = tuple(dict.fromkeys(config for config, _ in before))
    warm_runs = 0 if counts is None else _WARM_RUNS  # only the speedup of a program needs launches with a warm L2
    options = replace(spec.options, configs=[*originals.values()], warm_runs=warm_runs, warm_configs=baselines)
    spec = replace(spec, base_arguments=arguments, options=options)
    count = 0 if environment.make_bench is not None else device_for(session.target, session.model).multiprocessors
    measurer, remarks = measurer_of(environment, kernel, spec, executor, opened, count)
    processors = getattr(measurer, "multiprocessors", None) or multiprocessors()
    table = CaseTable(cases, list(originals), processors, counts=counts)
    reporter = session.runtime.dispatch_reporter
    try:
        watching = nullcontext(ignore_progress) if reporter is None else reporter(launches.name)
        with session.runtime.observers.own_launches(), watching as watch:
            plan = Plan(table, PlanPolicy(max_configs=max_configs), [table.places[config] for config, _ in before])
            dispatch = OverSizes(launches.name, table, plan, measurer, environment.clock, watch).run()
    except KeyboardInterrupt:
        raise Interrupted("The tuning over sizes was interrupted before anything was known.") from None
    notes = (*dispatch.notes, *remarks, *getattr(over, "notes", ()), *_notes_without_gpu(dispatch, session.target))
    return replace(
        dispatch,
        originals=tuple(originals[config] for config in dispatch.rule.configs),
        notes=notes,
        function=kernel,
        grid=grid,
        arguments=partial(spec.arguments, kernel),
        check=spec.check,
    )


def _notes_without_gpu(dispatch: Dispatch, target: Target) -> tuple[str, ...]:
    """Return the notes of a dispatch without times: its rule is predicted, or has no basis."""
    if dispatch.is_predicted:
        device = dispatch.provenance["predicted_for"]
        return (f"Predicted for {device}, not measured: tune again where there is a GPU, which measures everything.",)
    if any(case.times_ms for case in dispatch.cases):
        return ()
    refused = (f"Times cannot be predicted for {target}.",) if target.backend != "cuda" else ()
    return (*refused, WITHOUT_GPU)


def measurer_of(
    environment: Environment,
    kernel: Kernel,
    spec: CaseSpec,
    executor: Any,
    opened: OpenEnvironment | None,
    multiprocessors: int = 0,
) -> tuple[CaseMeasurer, tuple[str, ...]]:
    """Return the measurer and its notes: the executor's processes that own a GPU, else this process.

    ``multiprocessors`` are those of the device that this process predicts for, where it has no GPU.
    """
    if executor is None or opened is None:
        return LocalCases(environment, kernel, spec, multiprocessors), ()
    from kernellab.tune.cluster_tuning import cluster_cases  # most need none of it

    make = partial(LocalCases, spec=spec)
    try:
        return cluster_cases(environment, executor, opened, kernel, make), ()
    except WorkerError as exc:
        if environment.make_bench is None:
            raise
        return LocalCases(environment, kernel, spec), (f"measured in this process: {exc.message}",)


@dataclass(slots=True)
class OverSizes:
    """One tuning over sizes, and its progress."""

    kernel: str
    table: CaseTable
    plan: Plan
    measurer: CaseMeasurer
    clock: Callable[[], float] = time.perf_counter
    watch: Watch = ignore_progress
    _cases: dict[int, MeasuredCase] = field(default_factory=dict)
    _under_way: dict[int, CaseRequest] = field(default_factory=dict)
    _begin_s: float = 0.0
    _measured: int = 0
    _latest: str = ""

    def run(self) -> Dispatch:
        """Measure all cases, and return the dispatch; after an interrupt, the dispatch so far.

        Raises:
            UsageError: no case could be measured at all.
            KeyboardInterrupt: before anything was known.
        """
        self._begin_s = self.clock()
        is_interrupted = False
        try:
            self._report_progress()
            is_interrupted = self._measure()
        except KeyboardInterrupt:
            if not any(case.rows for case in self._cases.values()):
                raise
            is_interrupted = True
        finally:
            self.measurer.close()
        return self._dispatch(is_interrupted)

    def _measure(self) -> bool:
        """Measure until the plan has no more requests; return whether the user interrupted it."""
        while True:
            while len(self._under_way) < self.measurer.lanes and (request := self.plan.ask()) is not None:
                self._under_way[request.number] = request
                self.measurer.submit(request)
                self._report_progress()
            if not self._under_way:
                return False
            case = self.measurer.take()
            self._under_way.pop(case.number, None)
            self.plan.tell(case)
            self._measured += max(0, len(case.rows) - case.known)
            before = self._cases.get(case.number)
            self._cases[case.number] = case if before is None else merge_cases(before, case)
            self._latest = outcome_text(self._cases[case.number])
            self._report_progress()
            if case.is_interrupted:
                return True

    def _report_progress(self) -> None:
        done, left_s = len(self._cases), None
        if self._measured and done >= 2:  # from the pace so far and the rest of the budget
            left_s = max(0.0, (self.clock() - self._begin_s) * self.plan.left / self._measured)
        self.watch(
            DispatchProgress(
                kernel=self.kernel,
                done=done,
                total=len(self.table.cases),
                measured=self._measured,
                budget=self.plan.budget,
                failed=sum(bool(case.failure) for case in self._cases.values()),
                under_way=tuple(size_text(request.sizes) for request in self._under_way.values()),
                latest=self._latest,
                left_s=left_s,
                is_predicted=any("predicted_for" in case.provenance for case in self._cases.values()),
            )
        )

    def _dispatch(self, is_interrupted: bool) -> Dispatch:
        cases = tuple(self._cases[number] for number in sorted(self._cases))
        if cases and all(case.failure and not case.rows for case in cases):
            raise UsageError(f"No case of {self.kernel} could be measured. The first says: {cases[0].failure}")
        table, unmeasured = self.table, self.plan.unmeasured
        skipped = {number: MeasuredCase(number, dict(table.cases[number])) for number in unmeasured}
        cases = tuple(case for _, case in sorted((self._cases | skipped).items()))
        rule, fit = fit_rule(table, self.plan.policy.max_configs)
        provenance = {name: value for case in cases for name, value in case.provenance.items()}
        provenance |= {"multiprocessors": table.multiprocessors, "measured": self._measured}
        is_weighted = table.counts is not None and fit is not None and bool(rule.costs)
        return Dispatch(
            kernel=self.kernel,
            rule=rule,
            cases=cases,
            regrets=with_shares(regrets_of(table, rule, fit, cases), table, fit, unmeasured),
            originals=(),
            seconds=self.clock() - self._begin_s,
            provenance=provenance,
            notes=(*self._coverage_notes(is_interrupted), *getattr(self.measurer, "notes", ())),
            is_interrupted=is_interrupted,
            cover=() if fit is None else cover_steps(table, fit, [table.places[config] for config in rule.configs]),
            speedup=program_speedup(table, fit, rule, self.plan.baseline, _flush_ms(provenance))
            if is_weighted and fit
            else None,
        )

    def _coverage_notes(self, is_interrupted: bool) -> list[str]:
        """Return notes on the cases that were not measured."""
        total, unmeasured, notes = len(self.table.cases), self.plan.unmeasured, []
        if is_interrupted:
            left = total - len(self._cases) - len(unmeasured)
            notes.append(f"It was interrupted: {left} of {plural(total, 'case')} were not measured.")
        if unmeasured:
            share = f"about {sum(unmeasured.values()):.2%} of the program's time"
            notes.append(f"{len(unmeasured)} of {plural(total, 'case')} not measured: {share} (.unmeasured).")
        return notes


def _flush_ms(provenance: Mapping[str, Any]) -> float:
    """The milliseconds in which the memory of the measured device takes as many bytes as its L2 has; 0 if unknown."""
    model, target = provenance.get("device"), provenance.get("target")
    if not model or not target:
        return 0.0
    rates = device_of_model(parse_target(str(target)), str(model))
    return rates.l2_bytes / rates.memory_gbps / 1e6


def merge_cases(before: MeasuredCase, after: MeasuredCase) -> MeasuredCase:
    """Merge two measurements of a case; a later row of a config replaces an earlier one."""
    rows: dict[Config, Row] = {row.config: row for row in (*before.rows, *after.rows)}
    return replace(
        after,
        rows=tuple(rows.values()),
        grids={**before.grids, **after.grids},
        resident={**before.resident, **after.resident},
        key=after.key or before.key,
        provenance={**before.provenance, **after.provenance},
        seconds=before.seconds + after.seconds,
        known=before.known,
        failure=before.failure if before.failure and not rows else "",
    )


def outcome_text(case: MeasuredCase) -> str:
    """Return the outcome of a case as text."""
    if case.failure:
        return f"{size_text(case.sizes)}: {case.failure}"
    times = case.times_ms
    if not times:
        return f"{size_text(case.sizes)}: nothing was timed"
    best = min(times, key=times.__getitem__)
    is_predicted = any(row.config == best and row.time_ms is None for row in case.rows)
    time = f"predicted {three_digits(times[best])}" if is_predicted else f"{times[best]:.4g}"
    return f"{size_text(case.sizes)}: {time} ms with {best.text}"


def listed_cases(over: Any, known: Sequence[str]) -> list[dict[str, int]]:
    """Return the sizes of each case: all combinations of a dict of values, or the combinations of a `Space`.

    A list of dicts has one dict per case, which may be repeated. ``known`` are the names that the kernel or ``inputs``
    takes; empty allows all.

    Raises:
        UsageError: there is none, or a size is not an integer.
    """
    if isinstance(over, Mapping):
        for name, values in over.items():
            if isinstance(values, str) or not hasattr(values, "__iter__"):
                raise UsageError(f"over[{name!r}] is {values!r}; expected a list of sizes.")
        cases = [dict(zip(over, values, strict=True)) for values in product(*over.values())]
    elif isinstance(over, Space):
        cases = [{name: config.values.get(name) for name in over.values} for config in over]
    elif isinstance(over, Sequence) and all(isinstance(case, Mapping) for case in over):
        cases = [dict(case) for case in over]
    else:
        raise UsageError(
            f'over is {value_text(over)}; expected the values of each size: over={{"M": [16, 4096], "K": [512]}}.'
        )
    for case in cases:  # numpy's integers become Python's
        case.update({name: whole for name, value in case.items() if (whole := whole_number(value)) is not None})
    _require_sizes(cases, known)
    return cases


def distinct_cases(cases: Sequence[dict[str, int]]) -> list[dict[str, int]]:
    """Return the cases without repetitions, in order."""
    return list({tuple(sorted(case.items())): case for case in cases}.values())


def _require_sizes(cases: Sequence[Mapping[str, Any]], known: Sequence[str]) -> None:
    if not cases or not cases[0]:
        raise UsageError('over has no case; give sizes: over={"M": [16, 4096]}.')
    for case in cases:
        if case.keys() != cases[0].keys():
            raise UsageError(f"over has {size_text(case)} and {size_text(cases[0])}; expected the same names in all.")
        for name, value in case.items():
            if known and name not in known:
                names = ", ".join(dict.fromkeys(known))
                raise UsageError(f"over has {name!r}, which neither the kernel nor inputs takes; known are {names}.")
            if type(value) is not int or value < 1:
                raise UsageError(f"over has {name}={value_text(value)}; expected a positive integer.")
