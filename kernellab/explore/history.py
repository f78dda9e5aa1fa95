"""The points of a parameter space that were evaluated, and what was found at each."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kernellab.compile.types import Compiled
from kernellab.errors import KernellabError
from kernellab.explore.controls import values_text
from kernellab.launch.run import Run
from kernellab.measure.config import Config
from kernellab.measure.outcomes import Status, reason_of
from kernellab.measure.statistics import Interval
from kernellab.tune.result import Row, Tuning, frame_of

if TYPE_CHECKING:
    import pandas

FAILURES = frozenset({Status.CANNOT_RUN, Status.COMPILE_ERROR, Status.FAULT, Status.TIMEOUT})


@dataclass(frozen=True, slots=True)
class Point:
    """Values for all controls, and a target; "" is the GPU of this machine."""

    values: tuple[tuple[str, Any], ...]
    target: str

    @property
    def named(self) -> dict[str, Any]:
        """The values by the names of their controls."""
        return dict(self.values)

    @property
    def text(self) -> str:
        """The values in words: ``BLOCK=128, num_warps=4``."""
        return values_text(self.named)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether the outputs are right: ``equal`` is None where nobody can tell, and ``text`` says what was compared."""

    equal: bool | None
    text: str


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What was found at a point.

    ``sizes`` are the values that say what is computed, and not how: only points that agree in them are compared;
    ``key`` names the launches that can be timed in turns. ``against`` is how many times longer it takes than the best
    point so far, whose number is ``best``. ``run`` is what the interpreter did. ``is_partial`` marks what is known
    while the rest is being worked out.
    """

    point: Point
    target: str
    row: Row
    compiled: Compiled | None = None
    grid: tuple[int, int, int] | None = None
    sizes: tuple[tuple[str, str], ...] = ()
    key: tuple[Any, ...] = ()
    verdict: Verdict = Verdict(None, "")
    run: Run | None = None
    against: Interval | None = None
    best: int | None = None
    error: KernellabError | None = None
    notes: tuple[str, ...] = ()
    is_partial: bool = False
    number: int = 0
    job: int = 0

    @property
    def has_failed(self) -> bool:
        """Whether it could not be compiled, launched or ended."""
        return self.row.status in FAILURES

    @property
    def is_timed(self) -> bool:
        """Whether it has a time that counts."""
        return self.row.time_ms is not None and self.row.status is Status.OK


@dataclass(slots=True)
class PointHistory:
    """The evaluations in the order in which they were made, numbered from 1."""

    kernel: str
    evaluations: list[Evaluation] = field(default_factory=list)

    def add(self, evaluation: Evaluation) -> Evaluation:
        """Number an evaluation and keep it."""
        numbered = dataclasses.replace(evaluation, number=len(self.evaluations) + 1)
        self.evaluations.append(numbered)
        return numbered

    def __iter__(self) -> Iterator[Evaluation]:
        return iter(self.evaluations)

    def __len__(self) -> int:
        return len(self.evaluations)

    def last_good(self) -> Evaluation | None:
        """Return the latest point that compiled and did not fail."""
        return next((evaluation for evaluation in reversed(self.evaluations) if not evaluation.has_failed), None)

    def best_of(self, sizes: Sequence[tuple[str, str]], target: str) -> Evaluation | None:
        """Return the fastest right point among those that compute the same on the same device."""
        best: Evaluation | None = None
        for evaluation in self.evaluations:
            if evaluation.is_timed and evaluation.sizes == tuple(sizes) and evaluation.target == target:
                best = evaluation if best is None or _beats(evaluation, best) else best
        return best

    def frame(self, jobs: int, provenance: Mapping[str, Any]) -> pandas.DataFrame:
        """Return a row per evaluation: the columns of a tuning's frame, then where it was and whether it was right."""
        best = self._best_of_last()
        frame = frame_of(
            Tuning(
                kernel=self.kernel,
                rows=tuple(evaluation.row for evaluation in self.evaluations),
                configs=(),
                winner=None if best is None else best.number - 1,
                ties=(),
                seconds=0.0,
                from_cache=False,
                provenance={**provenance, "jobs": jobs},
            )
        )
        frame["target"] = [evaluation.target for evaluation in self.evaluations]
        frame["grid"] = [evaluation.grid for evaluation in self.evaluations]
        frame["correct"] = [evaluation.verdict.equal for evaluation in self.evaluations]
        frame["compared_with"] = [evaluation.verdict.text for evaluation in self.evaluations]
        frame["findings"] = [
            None if evaluation.run is None else len(evaluation.run.findings) for evaluation in self.evaluations
        ]
        frame["job"] = [evaluation.job for evaluation in self.evaluations]
        return frame

    def _best_of_last(self) -> Evaluation | None:
        last = self.evaluations[-1] if self.evaluations else None
        return None if last is None else self.best_of(last.sizes, last.target)


def _beats(evaluation: Evaluation, best: Evaluation) -> bool:
    """Tell whether a point is faster than the best so far beyond the noise; one that cannot be told from it is not."""
    if evaluation.best == best.number and evaluation.against is not None:
        return evaluation.against.high < 1
    return (evaluation.row.high_ms or 0.0) < (best.row.low_ms or 0.0)


def failed(point: Point, target: str, config: Config, status: Status, error: KernellabError) -> Evaluation:
    """Return the evaluation of a point where something failed before it could be compiled or run."""
    return Evaluation(point, target, Row(config, status, reason_of(error)), error=error)
