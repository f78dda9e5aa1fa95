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
from kernellab.judge.launchers import CpuLauncher, UnsafeLaunch
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


@triton.jit
def store_rows(out, n, BLOCK: tl.constexpr):
    row, columns = tl.program_id(0), tl.arange(0, BLOCK)
    tl.store(out + row * n + columns, row * BLOCK + columns)


@triton.jit
def store_one_element(out):
    tl.store(out, tl.program_id(0))


def unsafe_launch(worker: Worker, kernel: Any, grid: int, block: int | None = None, **arguments: Any) -> UnsafeLaunch:
    closure, constants = closure_of(kernel, () if block is None else (block,))
    variant = LaunchVariant((grid, 1, 1), tuple(("BLOCK", constant) for constant in constants), ())
    with pytest.raises(UnsafeLaunch) as caught:
        CpuLauncher(worker=worker)(closure, variant, arguments)
    return caught.value


def test_a_race_is_said_by_what_both_programs_did(worker: Worker) -> None:
    problem = unsafe_launch(worker, store_one_element, 2, out=torch.zeros(1, dtype=torch.int32))
    written = "writes element 0 of out, which program (0, 0, 0) wrote with another value; no atomic orders the two"
    assert problem.message == f"store_one_element races: program (1, 0, 0) {written} (1 lane of 1 program)"
    assert "read" not in problem.message


def test_a_store_without_a_mask_that_races_is_out_of_bounds_as_well(worker: Worker) -> None:
    problem = unsafe_launch(worker, store_rows, 3, 64, out=torch.zeros(3, 37, dtype=torch.int32), n=37)
    assert problem.message.startswith("store_rows races: program (1, 0, 0) writes element 37 of out, which program (0,")
    assert "; it also reaches beyond its memory: store of out out of bounds: element 111 " in problem.message
    assert "no mask" in problem.message


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
