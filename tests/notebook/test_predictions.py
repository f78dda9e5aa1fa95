"""The predicted time on the card of a cell without a GPU: for which device, where it is left out, when it shows."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import IPython.display
import pytest

import kernellab
from kernellab.errors import CheckFailed, WorkerDied
from kernellab.explain.prediction_requests import Answer, PredictionRequest
from kernellab.notebook import cell_predictions
from kernellab.notebook.cell_predictions import CellPredictions, PendingReport, RequestedPrediction
from kernellab.notebook.live import LiveProgress, NotebookDisplay, progress_of, show_in_notebook
from kernellab.views.report import CellReport, KernelReport, summary
from kernellab.workers.forks_and_interrupts import Stop
from kernellab.workers.worker import Job
from tests.notebook.conftest import Notebook, Ran

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
    assert (
        " on H100, limited by launch overhead.\n" in text.replace("\n    ", " ") + "\n"
    )  # without a share of its bound
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


def test_the_card_says_that_a_target_has_no_model(notebook: Notebook) -> None:
    text = " ".join(card(notebook, options="--target hip:gfx942").split())
    assert "No time is predicted for hip:gfx942: there is no model of its time." in text


COUNT_BINS = """
@triton.jit
def count_bins(bins_ptr, counts_ptr):
    tl.atomic_add(counts_ptr + tl.load(bins_ptr + tl.arange(0, 64)), 1)

count_bins[(1,)](bins, counts)
"""


def test_the_card_says_why_a_launch_with_changed_integers_has_no_time(notebook: Notebook) -> None:
    notebook.run("bins, counts = torch.arange(64) % 8, torch.zeros(8, dtype=torch.int32)")
    text = " ".join(str(notebook.triton(COUNT_BINS).shown[-1]["text/plain"]).split())
    assert "No time is predicted here: it may depend on integers that the launch changed; " in text
    assert "%triton_predict count_bins@1 predicts it." in text
    predicted = notebook.run("%triton_predict count_bins@1")
    assert predicted.error is None


def test_the_card_says_that_a_prediction_takes_too_long_for_it(
    notebook: Notebook, patch_prediction: Callable[[Run], None]
) -> None:
    patch_prediction(lambda job, stop, run: Answer(None))
    text = " ".join(card(notebook).split())
    assert "No time is predicted here: that takes too long for a card; %triton_predict double" in text


def test_the_settings_leave_it_out(notebook: Notebook, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = kernellab.current_lab()
    monkeypatch.setattr(lab, "settings", replace(lab.settings, predict=False))
    assert not predicted_line(card(notebook))


Run = Callable[..., Any]


@pytest.fixture
def patch_prediction(monkeypatch: pytest.MonkeyPatch) -> Callable[[Run], None]:
    """Have predictions answered by a function of the job and the request to stop, and not by a worker."""
    pool = kernellab.current_lab().compiler.pool
    run = pool.run

    def patch(predict: Run) -> None:
        def run_others(job: Job[Any, Any], *limits: Any, stop: Stop | None = None, **more: Any) -> Any:
            if isinstance(job.payload, PredictionRequest):
                return predict(job, stop, partial(run, job, *limits, stop=stop, **more))
            return run(job, *limits, stop=stop, **more)

        monkeypatch.setattr(pool, "run", run_others)

    return patch


class NotingDisplay(NotebookDisplay):
    """A display that calls ``on_first`` after its first result, and ``before_later`` before each other one."""

    on_first: Callable[[], object] = staticmethod(lambda: None)
    before_later: Callable[[], object] = staticmethod(lambda: None)

    def replace(self, result: object, /) -> bool:
        is_first = not self.is_shown
        if not is_first:
            self.before_later()
        super().replace(result)
        if is_first:
            self.on_first()
        return True


@pytest.fixture
def display(notebook: Notebook, monkeypatch: pytest.MonkeyPatch) -> NotingDisplay:
    """Let the shell replace what it shows, as that of a notebook; return the display of the next card."""
    display = NotingDisplay(IPython.display.DisplayHandle())
    live = LiveProgress(show_in_notebook, cell=lambda: notebook.cell_number, new_display=lambda: display)
    monkeypatch.setattr(kernellab.current_lab().launches, "reporter", live)
    return display


@pytest.fixture
def has_shown(display: NotingDisplay) -> threading.Event:
    """An event that is set once a card shows without its time."""
    shown = threading.Event()
    display.on_first = shown.set
    return shown


@pytest.mark.parametrize("does_die", [False, True])
def test_a_launch_that_takes_long_to_predict_or_whose_worker_dies_has_no_line(
    notebook: Notebook, patch_prediction: Callable[[Run], None], does_die: bool
) -> None:
    def predict(job: Job[Any, Any], stop: Stop | None, run: Run) -> Answer:
        if does_die:
            raise WorkerDied("Predicting ended its worker process.")
        return Answer(None)

    patch_prediction(predict)
    assert not predicted_line(card(notebook))


BEING_PREDICTED = "The time on H100 is being predicted."


def texts_of_one_display(ran: Ran) -> list[str]:
    """Return the texts that one display of a cell had, one after the other."""
    assert ran.is_update == [False, *[True] * (len(ran.shown) - 1)]
    assert len(set(ran.display_ids)) == 1
    return [data["text/plain"] for data in ran.shown]


@pytest.mark.parametrize("check", ["", '--check "2 * x"', '--check "3 * x"'])
def test_the_card_shows_before_its_prediction_is_there_and_is_replaced_in_its_display(
    notebook: Notebook, patch_prediction: Callable[[Run], None], has_shown: threading.Event, check: str
) -> None:
    def predict(job: Job[Any, Any], stop: Stop | None, run: Run) -> Any:
        assert has_shown.wait(10)
        return run()

    patch_prediction(predict)
    ran = notebook.double("double", launch=LAUNCH, options=f"{check} -o report")
    first, last = texts_of_one_display(ran)
    assert BEING_PREDICTED in first
    assert not predicted_line(first)
    assert BEING_PREDICTED not in last
    assert predicted_line(last)
    assert isinstance(ran.error, CheckFailed) == ("3" in check)
    (kernel,) = notebook.names["report"].kernels
    assert (kernel.prediction.device, kernel.predicting_for) == ("H100", "")


def test_a_card_whose_prediction_is_there_shows_once(
    notebook: Notebook, has_shown: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cell_predictions, "_SOON_S", 60.0)
    ran = notebook.double("double", launch=LAUNCH)
    (text,) = texts_of_one_display(ran)
    assert predicted_line(text)
    assert not has_shown.is_set()


@pytest.mark.parametrize("shows_progress", [True, False], ids=["a terminal", "without live progress"])
def test_where_nothing_is_replaced_the_card_shows_once_with_its_time(
    notebook: Notebook, monkeypatch: pytest.MonkeyPatch, shows_progress: bool
) -> None:
    live = progress_of(notebook.shell) if shows_progress else None
    monkeypatch.setattr(kernellab.current_lab().launches, "reporter", live)
    monkeypatch.setattr(cell_predictions, "_SOON_S", 0.0)
    (text,) = texts_of_one_display(notebook.double("double", launch=LAUNCH))
    assert predicted_line(text)


def test_a_card_that_showed_before_its_worker_died_has_no_time(
    notebook: Notebook, patch_prediction: Callable[[Run], None], has_shown: threading.Event
) -> None:
    def predict(job: Job[Any, Any], stop: Stop | None, run: Run) -> Any:
        assert has_shown.wait(10)
        raise WorkerDied("Predicting ended its worker process.")

    patch_prediction(predict)
    ran = notebook.double("double", launch=LAUNCH)
    assert ran.error is None
    _, last = texts_of_one_display(ran)
    assert BEING_PREDICTED not in last
    assert "No time is predicted here: its worker ended before it was there" in " ".join(last.split())


def test_only_a_shell_with_a_kernel_replaces_what_it_shows(notebook: Notebook) -> None:
    assert progress_of(notebook.shell).result_display() is None
    assert progress_of(SimpleNamespace(kernel=object())).result_display() is not None


def test_a_card_says_of_each_kernel_whether_its_time_is_being_predicted() -> None:
    def request(*, is_there: bool) -> RequestedPrediction:
        asked = SimpleNamespace(has_ended_within=lambda timeout_s: is_there, answer=lambda: Answer(time))
        return RequestedPrediction(None, SimpleNamespace(name="H100"), asked, False)  # type: ignore[arg-type]

    time: Any = object()
    kernel = KernelReport("k", "", "", 1, None, (), 1, (1,), None)  # type: ignore[arg-type]
    requests = (request(is_there=True), request(is_there=False), None)
    pending = PendingReport(CellReport((kernel, kernel, kernel)), requests)
    for is_waiting, device in ((True, "H100"), (False, "")):
        kernels = pending.current_report(is_waiting=is_waiting).kernels
        assert [(kernel.prediction, kernel.predicting_for) for kernel in kernels] == [
            (time, ""),
            (None, device),
            (None, ""),
        ]


def is_main_thread_in(function: str) -> bool:
    """Whether a function of this name is among the running ones of the main thread."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None and frame.f_code.co_name != function:
        frame = frame.f_back
    return frame is not None


@pytest.fixture
def stops(patch_prediction: Callable[[Run], None], monkeypatch: pytest.MonkeyPatch) -> list[Stop]:
    """Interrupt the wait for the first prediction, whose request to stop is appended to the list."""
    stops, has_passed = list[Stop](), threading.Event()

    def predict(job: Job[Any, Any], stop: Stop | None, run: Run) -> Any:
        if stops:
            return run()
        assert stop is not None
        stops.append(stop)
        while not stop.why:
            if is_main_thread_in("answer"):
                os.kill(os.getpid(), signal.SIGINT)
            has_passed.wait(0.5)
        raise WorkerDied(f"{job.subject} {stop.why}.")

    monkeypatch.setattr(CellPredictions, "begin", lambda predictions, launch: None)
    patch_prediction(predict)
    return stops


def require_interrupted(notebook: Notebook, ran: Ran, stops: list[Stop]) -> None:
    assert ran.error_lines == ["KeyboardInterrupt: Predicting double was interrupted."]
    assert [stop.why for stop in stops] == ["was interrupted"]
    assert predicted_line(card(notebook))


def test_an_interrupt_of_the_wait_for_a_prediction_ends_it_in_one_line_and_stops_its_work(
    notebook: Notebook, stops: list[Stop]
) -> None:
    ran = notebook.double("double", launch=LAUNCH)
    assert ran.shown == []
    require_interrupted(notebook, ran, stops)


def test_an_interrupt_of_the_wait_leaves_the_card_without_the_line_that_announced_a_time(
    notebook: Notebook, display: NotingDisplay, stops: list[Stop], monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = notebook.double("double", launch=LAUNCH)
    require_card_without_announcement(ran)
    monkeypatch.setattr(kernellab.current_lab().launches, "reporter", None)
    require_interrupted(notebook, ran, stops)


def test_an_interrupt_while_the_first_card_is_sent_leaves_it_without_that_line(
    notebook: Notebook, display: NotingDisplay, patch_prediction: Callable[[Run], None]
) -> None:
    def predict(job: Job[Any, Any], stop: Stop | None, run: Run) -> Any:
        assert stop is not None
        for _ in range(200):
            if stop.why or has_passed.wait(0.05):
                break
        raise WorkerDied(f"{job.subject} {stop.why}.")

    def interrupt() -> None:
        raise KeyboardInterrupt

    has_passed = threading.Event()
    patch_prediction(predict)
    display.on_first = interrupt
    ran = notebook.double("double", launch=LAUNCH)
    assert ran.error_lines == ["KeyboardInterrupt: Predicting double was interrupted."]
    require_card_without_announcement(ran)


def test_a_second_interrupt_while_the_card_is_redrawn_leaves_it_without_that_line(
    notebook: Notebook, display: NotingDisplay, stops: list[Stop]
) -> None:
    display.before_later = partial(os.kill, os.getpid(), signal.SIGINT)
    ran = notebook.double("double", launch=LAUNCH)
    assert ran.error_lines == ["KeyboardInterrupt: Predicting double was interrupted."]
    require_card_without_announcement(ran)


def require_card_without_announcement(ran: Ran) -> None:
    first, last = texts_of_one_display(ran)
    assert BEING_PREDICTED in first
    assert last == first.replace(f"\n  {BEING_PREDICTED}", "")


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
