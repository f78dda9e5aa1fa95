"""One benchmark, from its spec to a `Benchmark`: inputs, compiling ahead, trial launches, timing, the store."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

from kernellab.benchmark.result import (
    Benchmark,
    BenchmarkProgress,
    BenchmarkRow,
    ImplementationState,
    Progress,
    Watch,
    enter_work,
    ignore_progress,
    measurements_of,
    outcome_words,
    point_words,
    with_rates,
    with_times,
)
from kernellab.benchmark.spec import (
    BenchmarkSpec,
    CaseArguments,
    ImplementationSpec,
    equal_bytes_notes,
    implementations_of,
    launch_of,
    table_value,
)
from kernellab.checking.reference import require_names
from kernellab.compile.cache import Compiler
from kernellab.compile.types import Compiled, CompileJob
from kernellab.errors import KernellabError, LaunchError, UsageError, first_line
from kernellab.source import INTEGER_OPTIONS
from kernellab.store import History
from kernellab.store.columns import Status
from kernellab.target import Target
from kernellab.timing.config import Config
from kernellab.timing.launches import Implementation, Launches
from kernellab.timing.outcome import NO_GPU, reason_of, resource_columns, status_of
from kernellab.timing.provenance import Ceilings
from kernellab.timing.timer import Clocks, GpuTimer

STOPPED = "not measured: the benchmark was interrupted"
AGREE = "; outputs agree on the CPU"


@dataclass(frozen=True, slots=True)
class BenchmarkContext:
    """The parts of a lab that a benchmark needs.

    ``kernel_of`` returns name and bound kernel of a kernel, a label or an id; ``best`` the config of an autotuned one
    for a launch. ``make_timer`` opens the timer of a case, from its arguments and implementations; None means that
    nothing can be timed, for the reason ``why_not``. ``check`` compares the outputs of implementations on the CPU.
    ``progress`` opens the watcher of a benchmark.
    """

    compiler: Compiler
    target: Target
    kernel_of: Callable[[Any], tuple[str, Any]]
    best: Callable[[Launches], Any]
    make_timer: Callable[[Mapping[str, Any], Sequence[Implementation]], GpuTimer] | None
    provenance: Mapping[str, Any]
    ceilings: Ceilings | None = None
    why_not: str = NO_GPU
    check: Callable[[Mapping[str, Any], Sequence[Implementation]], list[str]] | None = None
    history: History | None = None
    version_id: int = 0
    clock: Callable[[], float] = time.perf_counter
    progress: Progress | None = None


@dataclass(slots=True)
class _Session:
    environment: BenchmarkContext
    spec: BenchmarkSpec
    arguments: CaseArguments
    notes: list[str] = field(default_factory=list)
    configs: dict[tuple[int, int], Any] = field(default_factory=dict)
    errors: list[KernellabError] = field(default_factory=list)
    watch: Watch = ignore_progress
    so_far: BenchmarkProgress = field(init=False)
    runner: CaseRunner = field(init=False)

    def __post_init__(self) -> None:
        name = self.environment.kernel_of(self.spec.kernel)[0]
        self.so_far = BenchmarkProgress(name, "inputs", len(self.spec.cases))
        self.runner = CaseRunner(self.spec, self.environment.clock)

    def report_progress(self, **news: Any) -> None:
        """Report progress to the watcher."""
        self.so_far = replace(self.so_far, **news)
        self.watch(self.so_far)

    def prepare_states(self, number: int, case: Mapping[str, Any]) -> tuple[dict[str, Any], list[ImplementationState]]:
        """Return the arguments of a case and the state of each implementation: with its launch, or dropped."""
        states = [
            ImplementationState(asked, _first_row(self.spec, case, asked))
            for asked in implementations_of(self.spec, case, self.environment.kernel_of)
        ]
        try:
            arguments = self.arguments.of(number, case)
        except UsageError as exc:
            self.errors.append(exc)
            for state in states:
                state.drop(Status.CANNOT_RUN, exc.message)
            return {}, states
        for index, state in enumerate(states):
            if state.asked.kernel is not None:
                self._prepare(state, arguments, (number, index))
        return arguments, states

    def _prepare(self, state: ImplementationState, arguments: Mapping[str, Any], key: tuple[int, int]) -> None:
        def best(launches: Launches) -> Any:
            if key not in self.configs:
                self.configs[key] = self.environment.best(launches)
            return self.configs[key]

        try:
            state.launch, config = launch_of(state.asked, arguments, self.environment.target, best)
        except KernellabError as exc:
            self.errors.append(exc)
            state.drop(Status.COMPILE_ERROR if not isinstance(exc, LaunchError) else Status.CANNOT_RUN, reason_of(exc))
            return
        state.row = replace(state.row, config=config)

    def compile_ahead(self) -> None:
        """Compile the kernels of all cases in parallel; errors are raised again where a kernel is used."""
        jobs: dict[str, CompileJob] = {}
        for number, case in enumerate(self.spec.cases):
            self.report_progress(point=point_words(case))
            arguments, states = self.prepare_states(number, case)
            jobs.update({state.launch.job.digest: state.launch.job for state in states if state.launch is not None})
            if arguments:
                self.arguments.keep(number, arguments)
            del arguments, states  # free them before the next case: they may fill the device
        self.report_progress(stage="compiling", kernels=len(jobs), point="")
        for _ in self.environment.compiler.stream(list(jobs.values())) if jobs else ():
            self.report_progress(compiled=self.so_far.compiled + 1)

    def measure_cases(self) -> list[list[BenchmarkRow]]:
        """Measure the cases; an interrupt keeps measured cases, if any, and marks the rest as not measured."""
        rows: list[list[BenchmarkRow]] = []
        try:
            for number, case in enumerate(self.spec.cases):
                self.report_progress(stage="points", point=point_words(case))
                rows.append(self.measure_case(number, case))
                has_failed = all(row.status is Status.CANNOT_RUN for row in rows[0])
                if len(rows) == 1 and self.errors and (has_failed or len(self.errors) == len(rows[0])):
                    raise self.errors[0]  # all of the first case failed: a mistake in the call, not a result
                if self.environment.history is not None and self.environment.make_timer is not None:
                    kept = measurements_of(rows[-1], list(self.spec.versus), self.environment.provenance)
                    self.environment.history.add_measurements(self.environment.version_id, kept)
                self.report_progress(done=number + 1, latest=outcome_words(case, rows[-1]))
                if self.runner.interrupted:
                    raise KeyboardInterrupt
        except KeyboardInterrupt:
            has_times = any(row.time_ms for row in itertools.chain(*rows))
            if not rows or (self.environment.make_timer is not None and not has_times):
                raise
            for case in self.spec.cases[len(rows) :]:
                left = implementations_of(self.spec, case, self.environment.kernel_of)
                rows.append(
                    [_first_row(self.spec, case, implementation, Status.NOT_TIMED, STOPPED) for implementation in left]
                )
            self.notes.append("The benchmark was interrupted; these are the points so far.")
        self.report_progress(stage="done", point="")
        return rows

    def measure_case(self, number: int, case: Mapping[str, Any]) -> list[BenchmarkRow]:
        """Measure one case."""
        self.errors.clear()
        arguments, states = self.prepare_states(number, case)
        for state in states:
            self._compile(state)
            if state.asked.function is not None and state.is_in:
                with state.dropped_on_errors():
                    require_names(state.asked.function, arguments, state.asked.name)
                    state.implementation = Implementation(state.asked.name, function=state.asked.function)
        self.notes += enter_work(self.spec, case, arguments, states)
        if self.environment.make_timer is None:
            self._check_without_timing(arguments, states)
        else:
            self.runner.run(self.environment.make_timer, arguments, states)
        created = time.time()
        return [with_rates(replace(state.row, created=created), self.environment.ceilings) for state in states]

    def _compile(self, state: ImplementationState) -> None:
        if state.launch is None or not state.is_in:
            return
        try:
            compiled = state.compiled = self.environment.compiler.compile(state.launch.job)
        except KernellabError as exc:
            state.drop(Status.COMPILE_ERROR, reason_of(exc))
            return
        options = {name: compiled.options.get(name) for name in INTEGER_OPTIONS}
        state.row = replace(state.row, options=options, **resource_columns(compiled))
        if not compiled.resources.fits:
            state.drop(Status.CANNOT_RUN, compiled.resources.why_not or "")
            return
        state.implementation = Implementation(state.asked.name, state.launch, compiled)

    def _check_without_timing(self, arguments: Mapping[str, Any], states: list[ImplementationState]) -> None:
        present = self.runner.reference_first(states)
        check = self.environment.check if self.spec.check else None
        problems = [""] * len(present)
        if check is not None:
            problems = check(arguments, list(map(_implementation_of, present)))
        same = "" if check is None or len(present) < 2 else AGREE
        for state, problem in zip(present, problems, strict=True):
            why = difference_words(problem, state.compiled) or self.environment.why_not + same
            state.drop(Status.WRONG if problem else Status.NOT_TIMED, why)


def run_benchmark(environment: BenchmarkContext, spec: BenchmarkSpec, parameters: tuple[str, ...]) -> Benchmark:
    """Measure every point of a benchmark; an interrupt keeps the points so far.

    Raises:
        UsageError, LaunchError: no point has arguments that fit the kernel.
    """
    start_s = environment.clock()
    session = _Session(environment, spec, CaseArguments(spec, parameters))
    progress = (
        nullcontext(ignore_progress) if environment.progress is None else environment.progress(session.so_far.kernel)
    )
    with progress as session.watch:
        session.compile_ahead()
        rows = session.measure_cases()
    if environment.make_timer is None and environment.why_not != NO_GPU:
        session.notes.append(f"Not timed: {environment.why_not.removeprefix('not measured: ')}.")
    all_rows = tuple(itertools.chain(*rows))
    if all(row.status is not Status.WRONG for row in all_rows) and any(row.reason.endswith(AGREE) for row in all_rows):
        session.notes.append(f"The outputs agree with those of {next(iter(spec.versus), 'each other')}, on the CPU.")
    own = [row.bytes for row in all_rows if row.implementation == session.so_far.kernel]
    session.notes += equal_bytes_notes(spec, environment.kernel_of(spec.kernel)[1], own)
    return Benchmark(
        kernel=session.so_far.kernel,
        swept=tuple(spec.over),
        implementations=tuple(dict.fromkeys(row.implementation for row in all_rows)),
        reference=next(iter(spec.versus), all_rows[0].implementation if "version" in spec.over else ""),
        rows=all_rows,
        seconds=environment.clock() - start_s,
        ceilings=environment.ceilings,
        provenance={**environment.provenance, "created": time.time()},
        notes=tuple(dict.fromkeys([*session.notes, *session.runner.notes])),
        clocks=tuple(session.runner.clocks),
    )


def _first_row(
    spec: BenchmarkSpec,
    case: Mapping[str, Any],
    asked: ImplementationSpec,
    status: Status = Status.OK,
    reason: str = "",
) -> BenchmarkRow:
    values = {**case, **asked.values}
    point = tuple((name, table_value(values.get(name))) for name in spec.over)
    config = asked.values.get("config")
    chosen = None if config is None else Config.from_triton(config)
    return BenchmarkRow(chosen, status, reason, point=point, implementation=asked.name)


_BATCH = 10
_CASE_S = 2.0
_IMPLEMENTATION_S = 0.4


@dataclass(slots=True)
class CaseRunner:
    """Times the cases one by one. ``interrupted``: the user stopped a case, and its rounds so far count.

    ``clocks`` and ``notes`` collect those of the cases so far.
    """

    spec: BenchmarkSpec
    clock: Callable[[], float]
    interrupted: bool = False
    clocks: list[Clocks] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def reference_first(self, states: list[ImplementationState]) -> list[ImplementationState]:
        """Return the implementations that take part, the reference first."""
        present = [state for state in states if state.implementation is not None]
        return sorted(present, key=lambda state: not self._is_reference(state))

    def run(
        self, make_timer: Callable[..., GpuTimer], arguments: Mapping[str, Any], states: list[ImplementationState]
    ) -> None:
        """Try out the reference first, then the others; time those that agree with it."""
        ordered = self.reference_first(states)
        if not ordered:
            return
        try:
            timer = make_timer(arguments, list(map(_implementation_of, ordered)))
        except RuntimeError as exc:  # no room for copies
            for state in ordered:
                state.drop(Status.CANNOT_RUN, first_line(exc))
            return
        try:
            for state in ordered:
                with state.dropped_on_errors():
                    problem = timer.try_out(_implementation_of(state))
                    if problem:
                        state.drop(Status.WRONG, difference_words(problem, state.compiled))
            for state in filter(lambda state: state.is_in, ordered):
                with state.dropped_on_errors():
                    timer.load_in_worker(_implementation_of(state))
            present, times = self._time(timer, [state for state in ordered if state.is_in])
        finally:
            timer.close()
        first = states[0] if not self.spec.versus else next(filter(self._is_reference, states))
        has_reference = len(present) > 1 and present[0] is first  # speedups of all cases relate to one reference
        rows = with_times([state.row for state in present], times, has_reference=has_reference)
        device_state = timer.state
        for state, row in zip(present, rows, strict=True):
            state.row = replace(row, clock_mhz=device_state.clock_mhz, temperature_c=device_state.temperature_c)
        self._note_clocks(timer, present)
        self.notes += timer.notes

    def _note_clocks(self, timer: GpuTimer, present: list[ImplementationState]) -> None:
        """Record the relation of the clocks, and note it in rows that were timed by the other clock."""
        clocks = timer.clocks()
        if clocks is not None and present:
            self.clocks.append(replace(clocks, point=present[0].row.point))
        for state in present:
            if not state.is_in or state.implementation is None:
                continue
            why = timer.why_here(state.implementation)
            words = [f"timed in the notebook's own process: {why}"] if why else []
            if clocks is not None and clocks.differ and (why or state.launch is None):
                words.append(clocks.text)
            state.row = replace(state.row, reason="; ".join(words))

    def _time(
        self, timer: GpuTimer, present: list[ImplementationState]
    ) -> tuple[list[ImplementationState], list[list[float]]]:
        """Time all implementations, in ms; drop those that fail, alone."""
        times: dict[int, list[float]] = {id(state): [] for state in present}
        end_s, done = self.clock() + _CASE_S + _IMPLEMENTATION_S * len(present), 0
        while present and done < self.spec.rounds:
            rounds = min(_BATCH, self.spec.rounds - done)
            try:
                batch = timer.interleave(list(map(_implementation_of, present)), rounds)
            except KernellabError as exc:
                present = _drop_failing(timer, present, exc)
                continue
            except KeyboardInterrupt:  # keep the rounds so far; `run_benchmark` stops after this case
                if not done:
                    raise
                self.interrupted = True
                break
            for state, samples in zip(present, batch, strict=True):
                times[id(state)] += samples
            done += rounds
            if self.clock() > end_s:
                break
        return present, [times[id(state)] for state in present]

    def _is_reference(self, state: ImplementationState) -> bool:
        return state.asked.name == next(iter(self.spec.versus), "")


def _implementation_of(state: ImplementationState) -> Implementation:
    assert state.implementation is not None, "it is compiled, or a function that fits"
    return state.implementation


def _drop_failing(
    timer: GpuTimer, present: list[ImplementationState], failure: KernellabError
) -> list[ImplementationState]:
    """Drop implementations that fail alone, and return the others; if none does, all fail."""
    for state in present:
        with state.dropped_on_errors():
            timer.interleave([_implementation_of(state)], 1)
    left = [state for state in present if state.is_in]
    if len(left) < len(present):
        return left
    for state in present:
        state.drop(status_of(failure), reason_of(failure))
    return []


def difference_words(problem: str, compiled: Compiled | None) -> str:
    """Return the difference of outputs and its likely reason: the kernel accumulates into an output."""
    name = problem.partition(" differs")[0]
    if compiled is None or name not in compiled.effects.mutated & (compiled.effects.reads | compiled.effects.atomics):
        return problem
    return f"{problem}; the kernel updates {name} in place: fill it in inputs=, or let the other start from it, too"
