"""The predicted times of a cell's launches, for the card."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeVar

from kernellab.checking.check_launch import updated_by
from kernellab.compile.cache import Compiler
from kernellab.errors import KernellabError
from kernellab.explain.devices import device_for
from kernellab.explain.prediction_requests import LOAD, Answer, PredictionRequest, can_predict_quickly, request_of
from kernellab.lab import Lab
from kernellab.launch.arguments import memory_of
from kernellab.launch.bound_launch import BoundLaunch
from kernellab.launch.calls import UserCall
from kernellab.launch.recording import LaunchRecord, can_read, record_of
from kernellab.registry.calls import compile_call, has_gpu
from kernellab.timing.launches import Implementation
from kernellab.workers.forks_and_interrupts import in_background
from kernellab.workers.worker import Job

if TYPE_CHECKING:
    from kernellab.explain.prediction import Prediction

T = TypeVar("T")
_MOST_KERNELS = 4  # of a cell; each takes up to a quarter of a second


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request to a compile worker; ``answers`` has the answer when the thread has ended, unless the worker died."""

    request: PredictionRequest
    thread: Thread
    answers: list[Answer]


@dataclass(slots=True)
class CellPredictions:
    """Predicts the launches of a cell where there is no GPU. The compile workers do so while the launches run."""

    lab: Lab
    _begun: set[str] = field(default_factory=set)
    _asked: dict[str, _Asked] = field(default_factory=dict)
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

    def of(self, record: LaunchRecord) -> Prediction | None:
        """Return the predicted time of a launch; None of one beyond the first few, or where the settings say so.

        None also where a quick prediction is impossible, where the worker died, and where the time depends on integers
        that the launch has changed.
        """
        self._count += 1
        if self._count > _MOST_KERNELS or not self._is_wanted(record):
            return None
        implementation = self._implementation_of(record)
        asked = self._ask(implementation)
        if asked is not None:
            asked.thread.join()
            answer = asked.answers[0] if asked.answers else Answer(None)
            if not answer.needs_contents:
                return answer.prediction
        memory = memory_of(record.arguments)
        if any(not memory[name].is_floating_point() for name in updated_by(record) & memory.keys()):
            return None
        from kernellab.explain.predicting import quick_prediction  # most launches need none of it

        return quick_prediction(implementation, device_for(self.lab.target, self.lab.session().model))

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

    def _ask(self, implementation: Implementation) -> _Asked | None:
        """Ask a worker for the time of a launch, unless one was asked for it before; None where it has no views."""
        session, digest = self.lab.session(), implementation.kernel.digest
        request = request_of(implementation, device_for(session.target, session.model), is_quick=True)
        asked = self._asked.get(digest)
        if request is None or (asked is not None and asked.request == request):
            return asked
        answers: list[Answer] = []
        predict = partial(self._predict, request, answers)
        asked = self._asked[digest] = _Asked(request, in_background(predict), answers)
        return asked

    def _predict(self, request: PredictionRequest, answers: list[Answer]) -> None:
        """Have a worker predict a request. It loads the model while the kernel is disassembled, which takes longest."""
        compiler = self.lab.compiler
        loading = in_background(partial(_run_if_possible, compiler, LOAD))
        with suppress(KernellabError):  # raised again where it is needed
            _ = request.compiled.sass
        loading.join()
        answer = _run_if_possible(compiler, request.prediction_job())
        if answer is not None:
            answers.append(answer)


def _run_if_possible(compiler: Compiler, job: Job[Any, T]) -> T | None:
    """Run a job on a compile worker; return None where that died or was too slow, which costs the prediction alone."""
    with suppress(KernellabError):
        return compiler.pool.run(job, compiler.timeout_s)
    return None
