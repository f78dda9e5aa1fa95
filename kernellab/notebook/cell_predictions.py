"""The predicted times on the card of a cell where there is no GPU. The card does not wait for them in a notebook.

Whatever waits for one raises `Interrupted` instead of a KeyboardInterrupt, which stops the work for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeVar

from kernellab.checking.check_launch import updated_by
from kernellab.compile.cache import Compiler
from kernellab.errors import KernellabError
from kernellab.explain.devices import device_for
from kernellab.explain.facts import DeviceRates
from kernellab.explain.prediction_requests import LOAD, Answer, PredictionRequest, can_predict_quickly, request_of
from kernellab.lab import Lab
from kernellab.launch.arguments import memory_of
from kernellab.launch.bound_launch import BoundLaunch
from kernellab.launch.calls import UserCall
from kernellab.launch.recording import LaunchRecord, can_read, record_of
from kernellab.notebook.live import DisplayHandle, LiveProgress, show_report
from kernellab.registry.calls import compile_call, has_gpu
from kernellab.timing.launches import Implementation
from kernellab.views.report import CellReport, KernelReport
from kernellab.workers.forks_and_interrupts import Interrupted, Stop, in_background, run_uninterrupted
from kernellab.workers.worker import Job

if TYPE_CHECKING:
    from kernellab.explain.prediction import Prediction

_MOST_KERNELS = 4  # of a cell; each takes up to a quarter of a second
_SOON_S = 0.005  # a prediction that comes within it is on the card from the start
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _RunningRequest:
    """A request to a compile worker; ``answers`` has the answer when the thread has ended, unless the worker died.

    ``stop`` ends the work for it.
    """

    request: PredictionRequest
    thread: Thread
    answers: list[Answer]
    stop: Stop

    def answer(self) -> Answer:
        """Wait for the answer; without a prediction where the worker died or was too slow."""
        self.has_ended_within(None)
        return self.answers[0] if self.answers else Answer(None)

    def has_ended_within(self, timeout_s: float | None) -> bool:
        """Whether `answer` need not wait after at most this time, or None for any time."""
        if timeout_s is None or timeout_s > 0:
            subject = self.request.prediction_job().subject
            run_uninterrupted(partial(self.thread.join, timeout_s), self.stop, subject, patience_s=0)
        return not self.thread.is_alive()


@dataclass(frozen=True, slots=True)
class RequestedPrediction:
    """The predicted time of a launch, found by a worker, or by this process where that needs its memory.

    Without ``asked``, no worker can. ``has_changed_integers`` says whether the launch changed integers, so that this
    process cannot predict it any more.
    """

    implementation: Implementation
    device: DeviceRates
    asked: _RunningRequest | None
    has_changed_integers: bool

    def is_there_within(self, timeout_s: float) -> bool:
        """Whether `prediction` returns at once after at most this time."""
        if self.asked is None:
            return self.has_changed_integers
        if not self.asked.has_ended_within(timeout_s):
            return False
        return self.has_changed_integers or not self.asked.answer().needs_contents

    def prediction(self) -> Prediction | None:
        """Wait for the predicted time; None where the worker died or was too slow, or the integers are not there."""
        answer = Answer(None, needs_contents=True) if self.asked is None else self.asked.answer()
        if self.has_changed_integers or not answer.needs_contents:
            return answer.prediction
        from kernellab.explain.predicting import quick_prediction  # most launches need none of it

        return quick_prediction(self.implementation, self.device)

    def predicted_report(self, kernel: KernelReport) -> KernelReport:
        """Wait for the predicted time and return the report with it, or with the reason why there is none."""
        prediction = self.prediction()
        if prediction is not None:
            return replace(kernel, prediction=prediction, why_unpredicted="")
        if self.asked is not None and not self.asked.answers:
            why = "its worker ended before it was there"
        elif self.has_changed_integers and (self.asked is None or self.asked.answer().needs_contents):
            why = "it may depend on integers that the launch changed"
        else:
            why = "that takes too long for a card"
        words = f"No time is predicted here: {why}; %triton_predict {kernel.label} predicts it."
        return replace(kernel, prediction=None, why_unpredicted=words)


@dataclass(frozen=True, slots=True)
class PendingReport:
    """The report of a cell, and a request for the predicted time of each of its kernels, None where it has none."""

    report: CellReport
    requests: tuple[RequestedPrediction | None, ...]

    def is_complete_within(self, timeout_s: float) -> bool:
        """Whether all predictions are there after at most this time."""
        end_s = time.monotonic() + timeout_s
        open_requests = (request for request in self.requests if request is not None)
        return all(request.is_there_within(max(0.0, end_s - time.monotonic())) for request in open_requests)

    def complete(self) -> CellReport:
        """Return the report with all predictions, once they are there."""
        return self._with_each(lambda kernel, request: request.predicted_report(kernel))

    def current_report(self, *, is_waiting: bool) -> CellReport:
        """Return the report with the predictions that are there; kernels without say so where it ``is_waiting``."""

        def kernel_now(kernel: KernelReport, request: RequestedPrediction) -> KernelReport:
            if request.is_there_within(0):
                return request.predicted_report(kernel)
            return replace(kernel, predicting_for=request.device.name if is_waiting else "")

        return self._with_each(kernel_now)

    def stop(self) -> None:
        """Stop the work for the predictions that are not there."""
        for request in self.requests:
            if request is not None and request.asked is not None:
                request.asked.stop.ask()

    @property
    def subject(self) -> str:
        """Words for what the cell waits for: ``Predicting softmax``."""
        names = (request.implementation.name for request in self.requests if request is not None)
        return f"Predicting {', '.join(dict.fromkeys(names))}"

    def _with_each(self, change: Callable[[KernelReport, RequestedPrediction], KernelReport]) -> CellReport:
        pairs = zip(self.report.kernels, self.requests, strict=True)
        kernels = tuple(kernel if request is None else change(kernel, request) for kernel, request in pairs)
        return replace(self.report, kernels=kernels)


def show_pending_report(lab: Lab, pending: PendingReport) -> CellReport:
    """Show the card of a cell and return its report with all predictions.

    Where the shell can replace a display, the card shows before its predictions are there, and again in the same
    display. An interrupt of the wait leaves it without those that are missing.
    """
    if pending.is_complete_within(_SOON_S) or (display := _result_display(lab)) is None:
        report = pending.complete()
        show_report(lab, report)
        return report
    try:
        display.replace(pending.current_report(is_waiting=True))
        report = pending.complete()
        display.replace(report)
    except BaseException as exc:
        # A second interrupt does not leave the card as it is.
        run_uninterrupted(partial(_show_without_missing, display, pending), subject=pending.subject)
        if isinstance(exc, KeyboardInterrupt):
            raise Interrupted(f"{pending.subject} was interrupted.") from None
        raise
    return report


def _show_without_missing(display: DisplayHandle, pending: PendingReport) -> None:
    """Stop the work for the predictions that are not there, and show the card without them."""
    pending.stop()
    display.replace(pending.current_report(is_waiting=False))


def _result_display(lab: Lab) -> DisplayHandle | None:
    """Return a display for a report of a cell and its replacement; None where the shell replaces nothing."""
    live = lab.launches.reporter
    return live.result_display() if isinstance(live, LiveProgress) else None


@dataclass(slots=True)
class CellPredictions:
    """Predicts the launches of a cell where there is no GPU. The compile workers do so while the launches run."""

    lab: Lab
    _begun: set[str] = field(default_factory=set)
    _asked: dict[str, _RunningRequest] = field(default_factory=dict)
    _count: int = 0

    def begin(self, launch: BoundLaunch) -> None:
        """Have the first launch of a kernel predicted in the background."""
        if launch.compiled.digest in self._begun or len(self._begun) >= _MOST_KERNELS:
            return
        self._begun.add(launch.compiled.digest)
        record = replace(record_of(launch), grid=launch.grid)
        with suppress(KernellabError):  # raised again where it is needed
            if self._is_wanted(record):
                self._ask(self._implementation_of(record))

    def request(self, record: LaunchRecord) -> RequestedPrediction | None:
        """Request the predicted time of a launch; None of one beyond the first few, or where the settings say so.

        None also where a quick prediction is impossible.
        """
        self._count += 1
        if self._count > _MOST_KERNELS or not self._is_wanted(record):
            return None
        implementation, memory = self._implementation_of(record), memory_of(record.arguments)
        has_changed = any(not memory[name].is_floating_point() for name in updated_by(record) & memory.keys())
        asked, device = self._ask(implementation), device_for(self.lab.target, self.lab.session().model)
        return RequestedPrediction(implementation, device, asked, has_changed)

    def _is_wanted(self, record: LaunchRecord) -> bool:
        """Whether a launch is to be predicted, and can be."""
        if not self.lab.settings.predict or record.grid is None or not can_read(record.arguments):
            return False
        return can_predict_quickly(record.compiled, record.grid) and not has_gpu(self.lab.session())

    def _implementation_of(self, record: LaunchRecord) -> Implementation:
        """Return a launch, compiled for the lab's target."""
        session = self.lab.session()
        call = UserCall(session.bind(record.kernel), record.grid, (), record.keywords)
        return compile_call(session, call, takes_best=False)

    def _ask(self, implementation: Implementation) -> _RunningRequest | None:
        """Ask a worker for the time of a launch, unless one was asked for it before; None where it has no views."""
        session, digest = self.lab.session(), implementation.kernel.digest
        request = request_of(implementation, device_for(session.target, session.model), is_quick=True)
        asked = self._asked.get(digest)
        if request is None:
            return None
        if asked is not None and asked.request == request:
            return asked
        answers, stop = list[Answer](), Stop()
        thread = self.lab.compiler.pool.run_in_background(partial(self._predict, request, answers, stop), stop)
        asked = self._asked[digest] = _RunningRequest(request, thread, answers, stop)
        return asked

    def _predict(self, request: PredictionRequest, answers: list[Answer], stop: Stop) -> None:
        """Have a worker predict a request. It loads the model while the kernel is disassembled, which takes longest."""
        compiler = self.lab.compiler
        loading = in_background(partial(_run_if_possible, compiler, LOAD, stop))
        with suppress(KernellabError):  # raised again where it is needed
            _ = request.compiled.sass
        loading.join()
        answer = _run_if_possible(compiler, request.prediction_job(), stop)
        if answer is not None:
            answers.append(answer)


def _run_if_possible(compiler: Compiler, job: Job[Any, T], stop: Stop) -> T | None:
    """Run a job on a compile worker; return None where that died or was too slow, which costs the prediction alone."""
    with suppress(KernellabError):
        return compiler.pool.run(job, compiler.timeout_s, stop=stop)
    return None
