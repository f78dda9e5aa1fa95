"""Where the implementations of a case meet: each is tried out beside the reference, and those that agree are timed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from kernellab.benchmark.arena import Arena, Contestant
from kernellab.benchmark.cases import Entrant
from kernellab.benchmark.figures import rows_of_times
from kernellab.benchmark.result import Row
from kernellab.benchmark.spec import Question
from kernellab.compile.types import Compiled
from kernellab.errors import KernellabError, RunError, UsageError, WorkerTimeout, first_line
from kernellab.measure.launches import Launch
from kernellab.tune.records import reason_of
from kernellab.tune.result import Status

_BATCH = 10
_CASE_S = 2.0
_EACH_S = 0.4


@dataclass(slots=True)
class Place:
    """An entrant of a case, with what is known of it so far; it is out of the contest once its row has a status."""

    entrant: Entrant
    row: Row
    launch: Launch | None = None
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
            place.drop(_status_of(exc), reason_of(exc))
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


def _status_of(exc: KernellabError) -> Status:
    if isinstance(exc, WorkerTimeout):
        return Status.TIMEOUT
    return Status.CANNOT_RUN if isinstance(exc, UsageError) else Status.FAULT
