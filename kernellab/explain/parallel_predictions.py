"""Predicted times of many compiled launches, side by side in the compile workers.

A worker gets a compiled launch without the contents of its memory. A launch whose time depends on them, or that has an
argument without a view, is predicted in this process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from kernellab.compile.types import Compiled, CompileJob
from kernellab.errors import KernellabError
from kernellab.explain.argument_views import CannotView, NeedsContents, views_of
from kernellab.explain.facts import DeviceRates
from kernellab.explain.prediction import Prediction
from kernellab.explain.prediction_verbs import predict_implementation
from kernellab.launch.calls import Grid3
from kernellab.timing.launches import Implementation, KernelLaunch
from kernellab.workers.forks_and_interrupts import ProgressCallback, Stop, run_in_parallel
from kernellab.workers.worker import Job, Pool

Outcome = Prediction | KernellabError
"""The predicted time of a launch, or why there is none."""


@dataclass(frozen=True, slots=True)
class PredictionRequest:
    """A compiled launch as plain data, with views of its arguments, and the device to predict for."""

    name: str
    compiled: Compiled
    job: CompileJob
    arguments: Mapping[str, Any]
    grid: Grid3
    device: DeviceRates


def request_of(implementation: Implementation, device: DeviceRates) -> PredictionRequest | None:
    """Return the request for a worker; None where an argument has no view."""
    launch = implementation.kernel_launch
    constants = frozenset(name for name, kind in launch.job.signature if kind == "constexpr")
    try:
        arguments = views_of(launch.arguments, constants)
    except CannotView:
        return None
    return PredictionRequest(implementation.name, implementation.kernel, launch.job, arguments, launch.grid, device)


def predict_request(request: PredictionRequest, progress: ProgressCallback) -> Prediction | None:
    """Predict the time of a request, in a worker; None if it depends on the contents of memory.

    Raises:
        UsageError: times of its target cannot be predicted.
    """
    try:
        return predict_implementation(implementation_of_request(request), request.device)
    except NeedsContents:
        return None


def implementation_of_request(request: PredictionRequest) -> Implementation:
    """Return the compiled launch of a request, with views as arguments."""
    launch = KernelLaunch(request.job, None, request.arguments, request.grid, (), None, {})
    return Implementation(request.name, launch, request.compiled)


def predict_all(
    pool: Pool, implementations: Sequence[Implementation], device: DeviceRates, timeout_s: float
) -> list[Outcome]:
    """Predict the times of compiled launches; an error takes the place of a time. One launch alone needs no worker.

    Raises:
        Interrupted: instead of a KeyboardInterrupt; the workers were stopped.
    """
    outcomes: dict[int, Outcome | None] = {}
    if len(implementations) > 1:
        requests = [request_of(implementation, device) for implementation in implementations]
        outcomes = dict(_remote_outcomes(pool, requests, timeout_s))
    return [
        outcomes.get(index) or _outcome_here(implementation, device)
        for index, implementation in enumerate(implementations)
    ]


def _remote_outcomes(
    pool: Pool, requests: Sequence[PredictionRequest | None], timeout_s: float
) -> Iterator[tuple[int, Outcome | None]]:
    """Yield the index and the outcome of each request as a worker answers it; None where it cannot."""
    waiting = [(index, request) for index, request in enumerate(requests) if request is not None]
    places = count()

    def work(stop: Stop) -> Iterator[tuple[int, Outcome | None]]:
        while not stop.why and (place := next(places)) < len(waiting):
            index, request = waiting[place]
            job = Job(predict_request, request, f"Predicting {request.name}")
            try:
                yield index, pool.run(job, timeout_s, stop=stop)
            except KernellabError as exc:
                yield index, exc

    yield from run_in_parallel([work] * min(len(pool.workers), len(waiting)))


def _outcome_here(implementation: Implementation, device: DeviceRates) -> Outcome:
    try:
        return predict_implementation(implementation, device)
    except KernellabError as exc:
        return exc
