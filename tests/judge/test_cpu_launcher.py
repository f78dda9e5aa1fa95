"""Launches on the CPU whose batches break off; what those of candidates leave is compared where these are judged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from kernellab._triton.closure import closure_of
from kernellab.errors import KernellabError, WorkerDied, WorkerTimeout
from kernellab.interpreter.runner import INTERPRET_WORKER
from kernellab.judge.launchers import CpuLauncher
from kernellab.judge.program import LaunchVariant
from kernellab.launch.run import InterpretJob, RunOutcome
from kernellab.workers.worker import Job, Worker


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    worker = Worker(INTERPRET_WORKER)
    yield worker
    worker.close()


@triton.jit
def increments(x, LAST: tl.constexpr):
    program = tl.program_id(0)
    tl.store(x + program, tl.load(x + program) + 1)
    if program == LAST:
        tl.device_print("last", program)


def launch(launcher: CpuLauncher, programs: int) -> torch.Tensor:
    """Launch `increments`, whose last program prints, so that it cannot run with others."""
    x = torch.arange(programs)
    closure, constants = closure_of(increments, (programs - 1,))
    launcher(closure, LaunchVariant((programs, 1, 1), (("LAST", constants[0]),), ()), {"x": x})
    return x


@pytest.mark.parametrize("programs", [2, 100, 5000])
def test_a_launch_whose_batches_break_off_runs_on_memory_as_it_was(programs: int, worker: Worker) -> None:
    assert torch.equal(launch(CpuLauncher(worker=worker), programs), torch.arange(1, programs + 1))


class BatchesFail(Worker):
    """A worker in which a launch in batches hangs or ends the process; it keeps which launches may run so."""

    def __init__(self, failure: KernellabError) -> None:
        super().__init__(INTERPRET_WORKER)
        self.failure = failure
        self.launches: list[tuple[bool, float]] = []

    def run(self, job: Job[Any, Any], timeout_s: float, *options: Any) -> Any:
        if not isinstance(job.payload, InterpretJob):
            return None
        self.launches.append((job.payload.may_batch, timeout_s))
        if job.payload.may_batch:
            raise self.failure
        return RunOutcome(0.0)


@pytest.mark.parametrize("failure", [WorkerTimeout("hung"), WorkerDied("died")])
def test_a_launch_that_fails_in_batches_gets_all_its_time_one_by_one_as_do_those_after_it(
    failure: KernellabError,
) -> None:
    worker = BatchesFail(failure)
    launcher = CpuLauncher(10.0, worker=worker)
    for _ in range(2):
        launch(launcher, 2)
    assert worker.launches == [(True, 5.0), (False, 10.0), (False, 10.0)]
