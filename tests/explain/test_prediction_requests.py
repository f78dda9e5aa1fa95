"""Predictions in the compile workers: the same times as in this process, also where memory decides them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import triton
import triton.language as tl

import kernellab
from kernellab.errors import UsageError, WorkerDied
from kernellab.explain.devices import named_device
from kernellab.explain.predicting import predict_implementation, quick_prediction
from kernellab.explain.prediction import Prediction
from kernellab.explain.prediction_requests import PredictionRequest, predict_all, predict_quickly, request_of
from kernellab.explain.prediction_worker import answer_prediction
from kernellab.launch.calls import UserCall
from kernellab.registry.calls import compile_call
from kernellab.timing.launches import Implementation
from kernellab.workers.worker import Job
from tests.labs import lab_fixture

pytestmark = pytest.mark.slow
ROWS, COLUMNS = 512, 2048
DEVICE = named_device("h200").rates


@triton.jit
def sum_rows(x_ptr, out_ptr, lengths_ptr, columns, BLOCK: tl.constexpr, BY_LENGTH: tl.constexpr):
    row = tl.program_id(0)
    length = tl.load(lengths_ptr + row) if BY_LENGTH else columns
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, length, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + row * columns + offsets, mask=offsets < length, other=0.0)
    tl.store(out_ptr + row, tl.sum(total))


class ObservedPool:
    """A pool that notes its jobs; ``failure`` takes the place of an answer."""

    def __init__(self, pool: Any, failure: Exception | None = None) -> None:
        self.workers, self._pool, self._failure = pool.workers, pool, failure
        self.requests: list[PredictionRequest] = []

    def run(self, job: Job[Any, Any], *limits: Any, **more: Any) -> Any:
        self.requests.append(job.payload)
        if self._failure is not None:
            raise self._failure
        return self._pool.run(job, *limits, **more)


lab = lab_fixture("cuda:90")


@pytest.fixture
def pool(lab: kernellab.Lab) -> ObservedPool:
    return ObservedPool(lab.compiler.pool)


def launches_of(lab: kernellab.Lab, *, by_length: bool) -> list[Implementation]:
    x, out = torch.zeros(ROWS, COLUMNS), torch.empty(ROWS)
    lengths = torch.full((ROWS,), 64, dtype=torch.int32)
    session, kernel = lab.session(), lab.bind(sum_rows)
    metas = [{"BLOCK": block, "BY_LENGTH": by_length, "num_warps": 4} for block in (128, 1024)]
    calls = [UserCall(kernel, (ROWS,), (x, out, lengths, COLUMNS), meta) for meta in metas]
    return [compile_call(session, call, takes_best=False) for call in calls]


def times_of(outcomes: list[Any]) -> list[tuple[float, float, float]]:
    assert all(isinstance(outcome, Prediction) for outcome in outcomes)
    return [(outcome.low_ms, outcome.time_ms, outcome.high_ms) for outcome in outcomes]


def test_workers_predict_what_this_process_does(lab: kernellab.Lab, pool: ObservedPool) -> None:
    launches = launches_of(lab, by_length=False)
    outcomes = predict_all(pool, launches, DEVICE, 60.0)
    request = request_of(launches[0], DEVICE)
    assert request is not None
    assert pool.requests == [request, request_of(launches[1], DEVICE)]
    assert answer_prediction(request, print).prediction == outcomes[0]
    assert times_of(outcomes) == times_of([predict_implementation(each, DEVICE) for each in launches])


def test_a_launch_whose_trip_counts_lie_in_memory_is_predicted_with_them(
    lab: kernellab.Lab, pool: ObservedPool
) -> None:
    launches = launches_of(lab, by_length=True)
    request = request_of(launches[0], DEVICE)
    assert request is not None
    assert answer_prediction(request, print).needs_contents
    outcomes = predict_all(pool, launches, DEVICE, 60.0)
    assert times_of(outcomes) == times_of([predict_implementation(each, DEVICE) for each in launches])
    assert (
        max(outcome.time_ms for outcome in outcomes)
        < predict_all(pool, launches_of(lab, by_length=False), DEVICE, 60.0)[0].time_ms
    )


@pytest.mark.parametrize("by_length", [False, True])
def test_a_quick_prediction_by_a_worker_is_that_of_this_process(
    lab: kernellab.Lab, pool: ObservedPool, by_length: bool
) -> None:
    launch = launches_of(lab, by_length=by_length)[0]
    prediction = predict_quickly(pool, launch, DEVICE, 60.0)  # type: ignore[arg-type]
    expected = quick_prediction(launch, DEVICE)
    assert times_of([prediction]) == times_of([expected])
    assert [request.is_quick for request in pool.requests] == [True]


def test_a_launch_of_nothing_is_not_asked_for(lab: kernellab.Lab, pool: ObservedPool) -> None:
    x, out, lengths = torch.zeros(ROWS, COLUMNS), torch.empty(ROWS), torch.zeros(ROWS, dtype=torch.int32)
    call = UserCall(lab.bind(sum_rows), (0,), (x, out, lengths, COLUMNS), {"BLOCK": 128, "BY_LENGTH": False})
    launch = compile_call(lab.session(), call, takes_best=False)
    assert predict_quickly(pool, launch, DEVICE, 60.0) is None  # type: ignore[arg-type]
    assert not pool.requests


def test_a_worker_that_dies_costs_its_own_prediction_alone(lab: kernellab.Lab) -> None:
    dead = ObservedPool(lab.compiler.pool, WorkerDied("Predicting ended its worker process."))
    outcomes = predict_all(dead, launches_of(lab, by_length=False), DEVICE, 60.0)
    assert [type(outcome) for outcome in outcomes] == [WorkerDied] * 2


def test_a_target_without_predictions_is_refused_for_each_launch(lab: kernellab.Lab, pool: ObservedPool) -> None:
    session = lab.session("hip:gfx942")
    x, out, lengths = torch.zeros(ROWS, COLUMNS), torch.empty(ROWS), torch.zeros(ROWS, dtype=torch.int32)
    meta = {"BLOCK": 128, "BY_LENGTH": False}
    launch = compile_call(session, UserCall(lab.bind(sum_rows), (ROWS,), (x, out, lengths, COLUMNS), meta))
    outcomes = predict_all(pool, [launch, launch], named_device("mi300x").rates, 60.0)
    assert [type(outcome) for outcome in outcomes] == [UsageError] * 2
