"""The predicted time on the card of a cell without a GPU: for which device, where it is left out."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

import kernellab
from kernellab.errors import WorkerDied
from kernellab.explain.prediction_requests import Answer, PredictionRequest
from kernellab.notebook.cell_launches import CellPredictions
from kernellab.views.report import summary
from kernellab.workers.forks_and_interrupts import Stop
from kernellab.workers.worker import Job
from tests.notebook.conftest import Notebook

LAUNCH = "double[(1,)](x, out, 100, BLOCK=128)"
pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def predicting(notebook: Notebook, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    lab = kernellab.current_lab()
    monkeypatch.setattr(lab, "settings", replace(lab.settings, predict=True))
    yield
    lab.use_target("cuda:90")


def card(notebook: Notebook, launch: str = LAUNCH, options: str = "") -> str:
    ran = notebook.double("double", launch=launch, options=f"{options} -o report")
    assert ran.error is None
    return str(ran.shown[-1]["text/plain"])


def predicted_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if "Predicted" in line), "")


def test_the_card_predicts_the_time_on_the_device_of_the_target(notebook: Notebook) -> None:
    text = card(notebook)
    assert predicted_line(text).startswith("Predicted ")
    assert " on H100, limited by launch overhead; " in text.replace("\n    ", " ")
    prediction = notebook.names["report"].kernels[0].prediction
    assert prediction.low_ms < prediction.time_ms < prediction.high_ms
    (facts,) = summary(notebook.names["report"])
    assert (facts["predicted_for"], facts["predicted_seconds"]) == ("H100", prediction.time_ms / 1e3)


def test_a_target_named_by_its_model_predicts_for_that_model(notebook: Notebook) -> None:
    assert "on L4, limited by" in predicted_line(card(notebook, options="--target l4"))
    assert "on H100, limited by" in predicted_line(card(notebook))
    notebook.run("%triton_target h200")
    assert "on H200, limited by" in predicted_line(card(notebook))


@pytest.mark.parametrize("options", ["--target hip:gfx942", "--no-run", '--args "x, out, 100, BLOCK=128"'])
def test_the_card_has_no_time_for_amd_nor_without_a_launch(notebook: Notebook, options: str) -> None:
    launch = "" if "args" in options else LAUNCH
    assert not predicted_line(card(notebook, launch, options))


def test_the_settings_leave_it_out(notebook: Notebook, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = kernellab.current_lab()
    monkeypatch.setattr(lab, "settings", replace(lab.settings, predict=False))
    assert not predicted_line(card(notebook))


@pytest.mark.parametrize("does_die", [False, True])
def test_a_launch_that_takes_long_to_predict_or_whose_worker_dies_has_no_line(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch, does_die: bool
) -> None:
    pool = kernellab.current_lab().compiler.pool
    run = pool.run

    def run_others(job: Job[Any, Any], *limits: Any, **more: Any) -> Any:
        if not isinstance(job.payload, PredictionRequest):
            return run(job, *limits, **more)
        if does_die:
            raise WorkerDied("Predicting ended its worker process.")
        return Answer(None)

    monkeypatch.setattr(pool, "run", run_others)
    assert not predicted_line(card(notebook))


def is_main_thread_in(function: str) -> bool:
    """Whether a function of this name is among the running ones of the main thread."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None and frame.f_code.co_name != function:
        frame = frame.f_back
    return frame is not None


def test_an_interrupt_of_the_wait_for_a_prediction_ends_it_in_one_line_and_stops_its_work(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool, stops, has_passed = kernellab.current_lab().compiler.pool, list[Stop](), threading.Event()
    run = pool.run

    def run_others(job: Job[Any, Any], timeout_s: float, *more: Any, stop: Stop | None = None) -> Any:
        if not isinstance(job.payload, PredictionRequest):
            return run(job, timeout_s, *more, stop=stop)
        assert stop is not None
        stops.append(stop)
        while not stop.why:
            if is_main_thread_in("answer"):
                os.kill(os.getpid(), signal.SIGINT)
            has_passed.wait(0.5)
        raise WorkerDied(f"{job.subject} {stop.why}.")

    with monkeypatch.context() as patched:
        patched.setattr(pool, "run", run_others)
        patched.setattr(CellPredictions, "begin", lambda predictions, launch: None)
        ran = notebook.double("double", launch=LAUNCH)
    assert ran.error_lines == ["KeyboardInterrupt: Predicting double was interrupted."]
    assert [stop.why for stop in stops] == ["was interrupted"]
    assert predicted_line(card(notebook))


def test_the_predicted_launch_is_the_last_of_the_cell(notebook: Notebook) -> None:
    both = "double[(1,)](x, out, 100, BLOCK=128)\ndouble[(10_000,)](x, out, 100, BLOCK=128)"
    card(notebook, both)
    of_both = notebook.names["report"].kernels[0].prediction
    card(notebook, "double[(10_000,)](x, out, 100, BLOCK=128)")
    assert of_both.time_ms == notebook.names["report"].kernels[0].prediction.time_ms
    card(notebook)
    assert of_both.time_ms > notebook.names["report"].kernels[0].prediction.time_ms


@pytest.mark.parametrize(
    ("statement", "has_line"),
    [("tl.atomic_add(places_ptr, 1)", True), ("tl.atomic_add(places_ptr + tl.load(places_ptr), 1)", False)],
)
def test_a_launch_that_changes_integers_has_a_line_unless_addresses_depend_on_them(
    notebook: Notebook, statement: str, has_line: bool
) -> None:
    counting = f"""
@triton.jit
def counting(places_ptr):
    {statement}

counting[(4,)](torch.zeros(8, dtype=torch.int32))
"""
    ran = notebook.triton(counting)
    assert ran.error is None
    assert bool(predicted_line(ran.shown[-1]["text/plain"])) == has_line
