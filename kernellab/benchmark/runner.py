"""One benchmark, from what is asked to a `Benchmark`: inputs, compiling ahead, trying out, timing, the store."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

from kernellab.benchmark.cases import Arguments, Entrant, entrants, launch_of, unscaled
from kernellab.benchmark.figures import measurements_of, rated, rows_of_times, with_work
from kernellab.benchmark.result import (
    Benchmark,
    BenchmarkProgress,
    Progress,
    Row,
    Watch,
    outcome_words,
    point_words,
    unwatched,
)
from kernellab.benchmark.spec import Question, shown
from kernellab.benchmark.timer import Arena, Contestant
from kernellab.compile.cache import Compiler
from kernellab.compile.types import Compiled, CompileJob
from kernellab.errors import KernellabError, LaunchError, RunError, UsageError, first_line
from kernellab.measure.ceilings import Ceilings
from kernellab.measure.config import Config
from kernellab.measure.functions import require_names
from kernellab.measure.launches import KernelLaunch, Launches
from kernellab.measure.outcomes import NO_GPU, OPTION_COLUMNS, Status, reason_of, resources_of, status_of
from kernellab.store import History
from kernellab.target import Target

STOPPED = "not measured: the benchmark was interrupted"
AGREE = "; outputs agree on the CPU"


@dataclass(frozen=True, slots=True)
class Workshop:
    """What a benchmark works with.

    ``kernel_of`` returns name and bound kernel of a kernel, a label or an id; ``best`` the config of an autotuned one
    for a launch. ``make_arena`` opens the arena of a case, from its arguments and contestants; None means that nothing
    can be timed, for the reason ``why_not``. ``check`` compares the outputs of contestants on the CPU. ``progress`` is
    a context in which a benchmark is watched.
    """

    compiler: Compiler
    target: Target
    kernel_of: Callable[[Any], tuple[str, Any]]
    best: Callable[[Launches], Any]
    make_arena: Callable[[Mapping[str, Any], Sequence[Contestant]], Arena] | None
    provenance: Mapping[str, Any]
    ceilings: Ceilings | None = None
    why_not: str = NO_GPU
    check: Callable[[Mapping[str, Any], Sequence[Contestant]], list[str]] | None = None
    history: History | None = None
    version_id: int = 0
    clock: Callable[[], float] = time.perf_counter
    progress: Progress | None = None


@dataclass(slots=True)
class _Session:
    workshop: Workshop
    question: Question
    arguments: Arguments
    notes: list[str] = field(default_factory=list)
    configs: dict[tuple[int, int], Any] = field(default_factory=dict)
    errors: list[KernellabError] = field(default_factory=list)
    watch: Watch = unwatched
    so_far: BenchmarkProgress = field(init=False)
    contest: Contest = field(init=False)

    def __post_init__(self) -> None:
        name = self.workshop.kernel_of(self.question.kernel)[0]
        self.so_far = BenchmarkProgress(name, "inputs", len(self.question.cases))
        self.contest = Contest(self.question, self.workshop.clock)

    def tell(self, **news: Any) -> None:
        """Tell who watches what is new."""
        self.so_far = replace(self.so_far, **news)
        self.watch(self.so_far)

    def places(self, number: int, case: Mapping[str, Any]) -> tuple[dict[str, Any], list[Place]]:
        """Return the arguments of a case and its entrants, each with its launch, or dropped with the reason."""
        found = [
            Place(entrant, _first_row(self.question, case, entrant))
            for entrant in entrants(self.question, case, self.workshop.kernel_of)
        ]
        try:
            made = self.arguments.of(number, case)
        except UsageError as exc:
            self.errors.append(exc)
            for place in found:
                place.drop(Status.CANNOT_RUN, exc.message)
            return {}, found
        for index, place in enumerate(found):
            if place.entrant.kernel is not None:
                self._prepare(place, made, (number, index))
        return made, found

    def _prepare(self, place: Place, made: Mapping[str, Any], key: tuple[int, int]) -> None:
        def best(launches: Launches) -> Any:
            if key not in self.configs:
                self.configs[key] = self.workshop.best(launches)
            return self.configs[key]

        try:
            place.launch, config = launch_of(place.entrant, made, self.workshop.target, best)
        except KernellabError as exc:
            self.errors.append(exc)
            place.drop(Status.COMPILE_ERROR if not isinstance(exc, LaunchError) else Status.CANNOT_RUN, reason_of(exc))
            return
        place.row = replace(place.row, config=config)

    def compile_ahead(self) -> None:
        """Compile what all cases need, side by side. Errors come again where the kernel is asked for."""
        jobs: dict[str, CompileJob] = {}
        for number, case in enumerate(self.question.cases):
            self.tell(point=point_words(case))
            made, places = self.places(number, case)
            jobs.update({place.launch.job.digest: place.launch.job for place in places if place.launch is not None})
            if made:
                self.arguments.keep(number, made)
            del made, places  # before the next ones are made: they may fill the device
        self.tell(stage="compiling", kernels=len(jobs), point="")
        for _ in self.workshop.compiler.stream(list(jobs.values())) if jobs else ():
            self.tell(compiled=self.so_far.compiled + 1)

    def measured(self) -> list[list[Row]]:
        """Measure the cases; an interrupt keeps those so far, if there are any, and marks the rest as not measured."""
        rows: list[list[Row]] = []
        try:
            for number, case in enumerate(self.question.cases):
                self.tell(stage="points", point=point_words(case))
                rows.append(self.case(number, case))
                _require_some(rows, self.errors)
                self._keep(rows[-1])
                self.tell(done=number + 1, latest=outcome_words(case, rows[-1]))
                if self.contest.interrupted:
                    raise KeyboardInterrupt
        except KeyboardInterrupt:
            if self.workshop.make_arena is not None and not any(row.time_ms for row in itertools.chain(*rows)):
                raise
            if not rows:
                raise
            for case in self.question.cases[len(rows) :]:
                left = entrants(self.question, case, self.workshop.kernel_of)
                rows.append([_first_row(self.question, case, each, Status.NOT_TIMED, STOPPED) for each in left])
            self.notes.append("The benchmark was interrupted; these are the points so far.")
        self.tell(stage="done", point="")
        return rows

    def _keep(self, rows: Sequence[Row]) -> None:
        """Enter measurements into the store."""
        workshop = self.workshop
        if workshop.history is not None and workshop.make_arena is not None:
            kept = measurements_of(rows, list(self.question.versus), workshop.provenance)
            workshop.history.add_measurements(workshop.version_id, kept)

    def case(self, number: int, case: Mapping[str, Any]) -> list[Row]:
        """Measure one case."""
        self.errors.clear()
        made, places = self.places(number, case)
        for place in places:
            self._compile(place)
            if place.entrant.function is not None and place.is_in:
                self._enter(place, made)
        self.notes += with_work(self.question, case, made, places)
        if self.workshop.make_arena is None:
            self._without_timing(made, places)
        else:
            self.contest.hold(self.workshop.make_arena, made, places)
        created = time.time()
        return rated([replace(place.row, created=created) for place in places], self.workshop.ceilings)

    def _enter(self, place: Place, made: Mapping[str, Any]) -> None:
        """Let a function of the user take part, if it takes what there is."""
        try:
            require_names(place.entrant.function, made, place.entrant.name)
        except UsageError as exc:
            place.drop(Status.CANNOT_RUN, exc.message)
            return
        place.contestant = Contestant(place.entrant.name, function=place.entrant.function)

    def _compile(self, place: Place) -> None:
        if place.launch is None or not place.is_in:
            return
        try:
            compiled = place.compiled = self.workshop.compiler.compile(place.launch.job)
        except KernellabError as exc:
            place.drop(Status.COMPILE_ERROR, reason_of(exc))
            return
        place.row = _with_resources(place.row, compiled)
        if not compiled.resources.fits:
            place.drop(Status.CANNOT_RUN, compiled.resources.why_not or "")
            return
        place.contestant = Contestant(place.entrant.name, place.launch, compiled)

    def _without_timing(self, made: Mapping[str, Any], places: list[Place]) -> None:
        ordered = self.contest.ordered(places)
        contestants = [place.contestant for place in ordered if place.contestant is not None]
        check = self.workshop.check if self.question.check else None
        problems = check(made, contestants) if check is not None else [""] * len(ordered)
        same = "" if check is None or len(ordered) < 2 else AGREE
        for place, problem in zip(ordered, problems, strict=True):
            why = explained(problem, place.compiled) or self.workshop.why_not + same
            place.drop(Status.WRONG if problem else Status.NOT_TIMED, why)


def benchmarked(workshop: Workshop, question: Question, parameters: tuple[str, ...]) -> Benchmark:
    """Measure every point; an interrupt keeps what there is.

    Raises:
        UsageError, LaunchError: no point has arguments that fit the kernel.
    """
    start_s = workshop.clock()
    session = _Session(workshop, question, Arguments(question, parameters))
    watched = nullcontext(unwatched) if workshop.progress is None else workshop.progress(session.so_far.kernel)
    with watched as session.watch:
        session.compile_ahead()
        rows = session.measured()
    if workshop.make_arena is None:
        session.notes.append(f"Nothing was timed ({workshop.why_not.removeprefix('not measured: ')}).")
    found = tuple(itertools.chain(*rows))
    session.notes += _compared(question, found)
    own = [row.bytes for row in found if row.implementation == session.so_far.kernel]
    session.notes += unscaled(question, workshop.kernel_of(question.kernel)[1], own)
    return Benchmark(
        kernel=session.so_far.kernel,
        swept=tuple(question.over),
        implementations=tuple(dict.fromkeys(row.implementation for row in found)),
        reference=next(iter(question.versus), found[0].implementation if "version" in question.over else ""),
        rows=found,
        seconds=workshop.clock() - start_s,
        ceilings=workshop.ceilings,
        provenance={**workshop.provenance, "created": time.time()},
        notes=tuple(dict.fromkeys(session.notes)),
    )


def _compared(question: Question, rows: Sequence[Row]) -> list[str]:
    """Return in words what a check on the CPU came to; what it found wrong, the rows say."""
    if any(row.status is Status.WRONG for row in rows) or not any(row.reason.endswith(AGREE) for row in rows):
        return []
    return [f"The outputs agree with those of {next(iter(question.versus), 'each other')}, on the CPU."]


def _require_some(rows: list[list[Row]], errors: list[KernellabError]) -> None:
    """Raise what the first case failed with, where no argument fits at all: a mistake in the call, and no result."""
    if len(rows) == 1 and len(errors) == len(rows[0]) and errors:
        raise errors[0]
    if len(rows) == 1 and errors and all(row.status is Status.CANNOT_RUN for row in rows[0]):
        raise errors[0]


def _first_row(
    question: Question, case: Mapping[str, Any], entrant: Entrant, status: Status = Status.OK, reason: str = ""
) -> Row:
    values = {**case, **entrant.values}
    point = tuple((name, shown(values.get(name))) for name in question.over)
    config = entrant.values.get("config")
    return Row(point, entrant.name, status, reason, config=None if config is None else Config.from_triton(config))


def _with_resources(row: Row, compiled: Compiled) -> Row:
    options = {name: compiled.options.get(name) for name in OPTION_COLUMNS}
    return replace(row, options=options, **resources_of(compiled))


_BATCH = 10
_CASE_S = 2.0
_EACH_S = 0.4


@dataclass(slots=True)
class Place:
    """An entrant of a case, with what is known of it so far; it is out of the contest once its row has a status."""

    entrant: Entrant
    row: Row
    launch: KernelLaunch | None = None
    compiled: Compiled | None = None
    contestant: Contestant | None = None

    @property
    def is_in(self) -> bool:
        return self.row.status is Status.OK

    def drop(self, status: Status, reason: str) -> None:
        self.row = replace(self.row, status=status, reason=reason)


@dataclass(slots=True)
class Contest:
    """Holds one case after the other. ``interrupted`` tells that the user stopped one, whose rounds so far count."""

    question: Question
    clock: Callable[[], float]
    interrupted: bool = False

    def ordered(self, places: list[Place]) -> list[Place]:
        """Return those who take part, the reference first."""
        present = [place for place in places if place.contestant is not None]
        return sorted(present, key=lambda place: not self._is_reference(place))

    def hold(self, make_arena: Callable[..., Arena], made: Mapping[str, Any], places: list[Place]) -> None:
        """Try out the reference first, then the others; time those that agree with it."""
        ordered = self.ordered(places)
        if not ordered:
            return
        try:
            arena = make_arena(made, [place.contestant for place in ordered])
        except RuntimeError as exc:  # no room for copies
            for place in ordered:
                place.drop(Status.CANNOT_RUN, first_line(exc))
            return
        try:
            for place in ordered:
                self._try_out(arena, place)
            present = [place for place in ordered if place.is_in]
            times = self._times(arena, present)
        finally:
            arena.close()
        state = arena.state
        first = places[0] if not self.question.versus else next(filter(self._is_reference, places))
        has_reference = len(present) > 1 and present[0] is first  # else speedups of two cases would mean two things
        rows = rows_of_times([place.row for place in present], times, has_reference=has_reference)
        for place, row in zip(present, rows, strict=True):
            place.row = replace(row, clock_mhz=state.clock_mhz, temperature_c=state.temperature_c)

    def _try_out(self, arena: Arena, place: Place) -> None:
        assert place.contestant is not None, "only contestants are tried"
        try:
            problem = arena.try_out(place.contestant)
        except KernellabError as exc:
            place.drop(status_of(exc), reason_of(exc))
            return
        if problem:
            place.drop(Status.WRONG, explained(problem, place.compiled))

    def _times(self, arena: Arena, present: list[Place]) -> list[list[float]]:
        times: list[list[float]] = [[] for _ in present]
        end_s = self.clock() + _CASE_S + _EACH_S * len(present)
        contestants = [place.contestant for place in present if place.contestant is not None]
        while contestants and len(times[0]) < self.question.rounds:
            rounds = min(_BATCH, self.question.rounds - len(times[0]))
            try:
                played = arena.interleave(contestants, rounds)
            except RunError as exc:
                for place in present:
                    place.drop(Status.FAULT, exc.message)
                break
            except KeyboardInterrupt:  # the rounds so far are as good as any; `benchmarked` stops after this case
                if not times[0]:
                    raise
                self.interrupted = True
                break
            times = [[*samples, *more] for samples, more in zip(times, played, strict=True)]
            if self.clock() > end_s:
                break
        return times

    def _is_reference(self, place: Place) -> bool:
        return place.entrant.name == next(iter(self.question.versus), "")


def explained(problem: str, compiled: Compiled | None) -> str:
    """Return how outputs differ, and a likely reason: the kernel goes on from what an output held before."""
    name = problem.partition(" differs")[0]
    if compiled is None or name not in compiled.effects.mutated & (compiled.effects.reads | compiled.effects.atomics):
        return problem
    return f"{problem}; the kernel goes on from what {name} holds: let inputs= fill it, or the other start from it too"
