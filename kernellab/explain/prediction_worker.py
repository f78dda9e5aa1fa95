"""Predictions and snapshots in a compile worker, of launches that come as plain data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernellab.explain.argument_views import NeedsContents
from kernellab.explain.predicting import predict_implementation, quick_prediction
from kernellab.explain.prediction_requests import Answer, PredictionRequest, SnapshotRequest
from kernellab.timing.launches import Implementation, KernelLaunch
from kernellab.workers.forks_and_interrupts import ProgressCallback

if TYPE_CHECKING:
    from kernellab.store import Snapshot


def load(payload: None, progress: ProgressCallback) -> None:
    """Do nothing: to find this function, the worker has loaded the model of time."""


def answer_prediction(request: PredictionRequest, progress: ProgressCallback) -> Answer:
    """Predict the time of a request.

    Raises:
        UsageError: times of its target cannot be predicted.
    """
    predict = quick_prediction if request.is_quick else predict_implementation
    try:
        return Answer(predict(_implementation_of(request), request.device))
    except NeedsContents:
        return Answer(None, needs_contents=True)


def answer_snapshot(request: SnapshotRequest, progress: ProgressCallback) -> Snapshot | None:
    """Return the snapshot of a request; None if it depends on the contents of memory."""
    from kernellab.explain.snapshot import snapshot_of  # a prediction needs none of it

    try:
        return snapshot_of(_implementation_of(request.compiled), request.compiled.device, request.launch)
    except NeedsContents:
        return None


def _implementation_of(request: PredictionRequest) -> Implementation:
    """Return the compiled launch of a request, with views as arguments."""
    launch = KernelLaunch(request.job, None, request.arguments, request.grid, (), None, {})
    return Implementation(request.name, launch, request.compiled)
