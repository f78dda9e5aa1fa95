"""Predicted times and snapshots of compiled launches, asked of the compile workers.

A worker gets a compiled launch without the contents of its memory. A launch whose time depends on them, or that has an
argument without a view, is predicted in this process, which otherwise loads nothing of the model of time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

from kernellab.compile.types import Compiled, CompileJob
from kernellab.errors import KernellabError
from kernellab.explain.argument_views import CannotView, views_of
from kernellab.explain.facts import DeviceRates
from kernellab.launch.calls import Grid3
from kernellab.timing.launches import Implementation
from kernellab.workers.forks_and_interrupts import Stop
from kernellab.workers.parallel import run_in_parallel
from kernellab.workers.worker import Job, Pool

if TYPE_CHECKING:
    from kernellab.explain.prediction import Prediction
    from kernellab.store import RecordedLaunch, Snapshot

_WORKER = "kernellab.explain.prediction_worker"
LOAD: Job[None, None] = Job(f"{_WORKER}:load", None, "Loading the model of time")
"""Lets a worker load what its first prediction needs, a tenth of a second."""


@dataclass(frozen=True, slots=True)
class PredictionRequest:
    """A compiled launch as plain data, with views of its arguments, and the device to predict for.

    One that ``is_quick`` is predicted from a few of its programs, or not at all; see `quick_prediction`.
    """

    name: str
    compiled: Compiled
    job: CompileJob
    arguments: Mapping[str, Any]
    grid: Grid3
    device: DeviceRates
    is_quick: bool = False

    def prediction_job(self) -> Job[PredictionRequest, Answer]:
        """Return the job of predicting its time in a worker."""
        return Job(f"{_WORKER}:answer_prediction", self, f"Predicting {self.name}")


@dataclass(frozen=True, slots=True)
class Answer:
    """The predicted time of a request, or None; it ``needs_contents`` of memory that the worker does not have."""

    prediction: Prediction | None
    needs_contents: bool = False


@dataclass(frozen=True, slots=True)
class SnapshotRequest:
    """A recorded launch, compiled, as plain data."""

    compiled: PredictionRequest
    launch: RecordedLaunch


def request_of(
    implementation: Implementation, device: DeviceRates, *, is_quick: bool = False
) -> PredictionRequest | None:
    """Return the request for a worker; None where an argument has no view."""
    launch, compiled = implementation.kernel_launch, implementation.kernel
    constants = frozenset(name for name, kind in launch.job.signature if kind == "constexpr")
    try:
        arguments = views_of(launch.arguments, constants)
    except CannotView:
        return None
    return PredictionRequest(implementation.name, compiled, launch.job, arguments, launch.grid, device, is_quick)


def can_predict_quickly(compiled: Compiled, grid: Grid3) -> bool:
    """Whether a launch may have a quick prediction: of a kernel for NVIDIA that fits, and not of nothing."""
    return compiled.target.backend == "cuda" and compiled.resources.fits and 0 not in grid


def predict_quickly(
    pool: Pool, implementation: Implementation, device: DeviceRates, timeout_s: float
) -> Prediction | None:
    """Return the quick prediction of a compiled launch, made by a worker where it can; see `quick_prediction`.

    Raises:
        KernellabError: the worker died, or took too long.
        Interrupted: instead of a KeyboardInterrupt; the worker was stopped.
    """
    if not can_predict_quickly(implementation.kernel, implementation.kernel_launch.grid):
        return None
    request = request_of(implementation, device, is_quick=True)
    answer = Answer(None, True) if request is None else pool.run(request.prediction_job(), timeout_s)
    if not answer.needs_contents:
        return answer.prediction
    from kernellab.explain.predicting import quick_prediction  # most launches need none of it

    return quick_prediction(implementation, device)


def predict_all(
    pool: Pool | None, implementations: Sequence[Implementation], device: DeviceRates, timeout_s: float
) -> list[Prediction | KernellabError]:
    """Predict the times of compiled launches; an error takes the place of a time. Without a pool, this process does.

    Raises:
        Interrupted: instead of a KeyboardInterrupt; the workers were stopped.
    """
    outcomes: dict[int, Prediction | KernellabError | None] = {}
    if pool is not None:
        requests = [request_of(implementation, device) for implementation in implementations]
        outcomes = dict(_remote_outcomes(pool, requests, timeout_s))
    return [
        outcomes.get(index) or _outcome_here(implementation, device)
        for index, implementation in enumerate(implementations)
    ]


def snapshot_job(
    implementation: Implementation, launch: RecordedLaunch, device: DeviceRates
) -> Job[SnapshotRequest, Snapshot | None] | None:
    """Return the job of making a snapshot, without the memory of the arguments; None where they have no views.

    Its answer is None where the snapshot depends on the contents of that memory.
    """
    request = request_of(implementation, device)
    if request is None:
        return None
    subject = f"Counting what {request.name} executes"
    return Job(f"{_WORKER}:answer_snapshot", SnapshotRequest(request, launch), subject)


def _remote_outcomes(
    pool: Pool, requests: Sequence[PredictionRequest | None], timeout_s: float
) -> Iterator[tuple[int, Prediction | KernellabError | None]]:
    """Yield the index and the outcome of each request as a worker answers it; None where it cannot."""
    waiting = [(index, request) for index, request in enumerate(requests) if request is not None]
    places = count()

    def work(stop: Stop) -> Iterator[tuple[int, Prediction | KernellabError | None]]:
        while not stop.why and (place := next(places)) < len(waiting):
            index, request = waiting[place]
            try:
                yield index, pool.run(request.prediction_job(), timeout_s, stop=stop).prediction
            except KernellabError as exc:
                yield index, exc

    yield from run_in_parallel([work] * min(len(pool.workers), len(waiting)))


def _outcome_here(implementation: Implementation, device: DeviceRates) -> Prediction | KernellabError:
    from kernellab.explain.predicting import predict_implementation  # most launches need none of it

    try:
        return predict_implementation(implementation, device)
    except KernellabError as exc:
        return exc
