"""Launches of candidates on the CPU: programs in batches leave what programs one by one leave."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from kernellab._triton.closure import closure_of
from kernellab.errors import KernellabError, WorkerDied, WorkerTimeout
from kernellab.interpreter.runner import INTERPRET_WORKER
from kernellab.judge.correctness import Examiner, examine
from kernellab.judge.judging import submission_of
from kernellab.judge.launchers import CpuLauncher, FailedLaunch, UnsafeLaunch
from kernellab.judge.program import LaunchVariant
from kernellab.judge.specification import read_specification
from kernellab.launch.run import InterpretJob, RunOutcome
from kernellab.source import Closure
from kernellab.workers.worker import Job, Worker
from tests.interpreter.both_ways import bytes_of_storage, tensors_in
from tests.judge import honest
from tests.judge.cheats.candidates import CANDIDATES as CHEATS
from tests.judge.honest.candidates import CANDIDATES as HONEST
from tests.tables import every

_HONEST_FOLDER = Path(honest.__file__).parent
_HONEST = {name for name, _, _ in HONEST}
_FILES = {
    **{cheat.name: (cheat.file, cheat.text) for cheat in CHEATS},
    **{name: (_HONEST_FOLDER / specification, text) for name, specification, text in HONEST},
}
_TIMEOUTS_S = {cheat.name: cheat.timeout_s for cheat in CHEATS}
_FAST = (
    "a_write_beyond_the_end",
    "a_sum_without_atomics",
    "add_tutorial",
    "sum_last_block",
    "embedding",
    "softmax_online",
)


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    worker = Worker(INTERPRET_WORKER)
    yield worker
    worker.close()


class BothWays(CpuLauncher):
    """Launches each kernel one by one and then in batches, and compares what is left; ``count`` is of launches."""

    count = 0

    def __init__(self, worker: Worker, timeout_s: float) -> None:
        super().__init__(timeout_s, worker=worker)
        self.one_by_one = CpuLauncher(timeout_s, in_batches=False, worker=worker)

    def __call__(self, closure: Closure, variant: LaunchVariant, arguments: Mapping[str, Any]) -> None:
        self.count += 1
        self.one_by_one.is_in_ring = self.is_in_ring
        storages = {tensor.untyped_storage().data_ptr(): tensor for tensor in tensors_in(arguments.values())}
        before = [bytes_of_storage(tensor).clone() for tensor in storages.values()]
        alone = _problem_of(self.one_by_one, closure, variant, arguments)
        after = [bytes_of_storage(tensor).clone() for tensor in storages.values()]
        for tensor, old in zip(storages.values(), before, strict=True):
            bytes_of_storage(tensor).copy_(old)
        together = _problem_of(super(), closure, variant, arguments)
        assert _words_of(together) == _words_of(alone)
        assert self.notes == self.one_by_one.notes
        assert self.unmodelled == self.one_by_one.unmodelled
        self.one_by_one.unmodelled = set(self.unmodelled)
        for tensor, one in zip(storages.values(), after, strict=True):
            assert torch.equal(bytes_of_storage(tensor), one), closure.name
        if together is not None:
            raise together


def _problem_of(launcher: Any, *launch: Any) -> KernellabError | None:
    try:
        launcher.__call__(*launch)
    except (UnsafeLaunch, FailedLaunch) as exc:
        return exc
    return None


def _words_of(problem: KernellabError | None) -> tuple[Any, ...]:
    return type(problem), str(problem), getattr(problem, "rule", None), getattr(problem, "line", None)


def _launches_both_ways(name: str, worker: Worker) -> int:
    """Judge a candidate by `BothWays`; return the number of launches that its trials came to."""
    file, text = _FILES[name]
    specification = read_specification(file, None).without_timed().with_layouts()
    timeout_s = _TIMEOUTS_S.get(name, 20.0)
    submission = submission_of(specification, "candidate.py", text.encode(), timeout_s)
    launcher = BothWays(worker, timeout_s)
    if not submission.reasons:
        examine(Examiner(specification, submission.programs, submission.kernels, launcher, "candidate.py"), seed=1)
    return launcher.count


@pytest.mark.parametrize("name", _FAST)
def test_launches_of_a_sample_leave_the_same_both_ways(name: str, worker: Worker) -> None:
    assert _launches_both_ways(name, worker)


@pytest.mark.slow
@pytest.mark.parametrize("name", every(50, [name for name in _FILES if name not in _FAST]))
def test_launches_of_cheats_and_honest_candidates_leave_the_same_both_ways(name: str, worker: Worker) -> None:
    assert _launches_both_ways(name, worker) or name not in _HONEST


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
