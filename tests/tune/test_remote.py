"""Compiling on an executor of the user, and executors that are of no use."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

import kernellab
from kernellab.build import BuildRequest
from kernellab.compiler import Compiler, compile_job
from kernellab.errors import UsageError, WorkerDied, WorkerError, WorkerTimeout
from kernellab.tune.remote import Built, ExecutorPool
from kernellab.worker import Job

X, OUT = torch.zeros(300), torch.zeros(300)


@pytest.fixture
def lab() -> Iterator[kernellab.Lab]:
    with kernellab.Lab(target="cuda:90", store=":memory:") as lab:
        yield lab


@triton.jit
def scale(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n) * 2, mask=offsets < n)


def configs(*blocks: int) -> list[triton.Config]:
    return [triton.Config({"BLOCK": block}) for block in blocks]


class Answering(Executor):
    """Answers each job at once, with what it is given; an exception is raised, None leaves it open for ever."""

    def __init__(self, answer: Built | Exception | None) -> None:
        self.answer = answer
        self.futures: list[Future[Any]] = []

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.futures.append(future)
        if isinstance(self.answer, Exception):
            future.set_exception(self.answer)
        elif self.answer is not None:
            future.set_result(self.answer)
        return future


def test_a_thread_pool_compiles_in_place_of_the_workers(lab: kernellab.Lab) -> None:
    with ThreadPoolExecutor(2) as executor:
        tuning = lab.tune(scale, (3,), X, OUT, 300, configs=configs(63, 64, 128), executor=executor)
    assert list(tuning.frame.status) == ["compile_error", "pruned", "pruned"]
    assert "power of 2" in tuning.frame.reason[0]
    assert tuning.frame.registers[1] > 0
    assert not any(worker.pid for worker in lab.compiler.pool.workers)
    assert lab.compile(scale, X, OUT, 300, BLOCK=64).from_cache


def test_spawned_processes_compile(lab: kernellab.Lab) -> None:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as executor:
        tuning = lab.tune(scale, (3,), X, OUT, 300, configs=configs(64, 128), executor=executor)
    assert list(tuning.frame.status) == ["pruned", "pruned"]
    assert tuning.best.kwargs == {"BLOCK": 64}


@pytest.mark.parametrize(
    ("executor", "message"),
    [
        (Answering(BrokenExecutor("a child died")), r"The executor broke .*a child died"),
        (Answering(ModuleNotFoundError("No module named 'kernellab'")), "install kernellab there"),
        (Answering(Built("another digest", {})), "another Triton"),
    ],
)
def test_an_executor_that_is_of_no_use_is_an_error(lab: kernellab.Lab, executor: Executor, message: str) -> None:
    with pytest.raises(WorkerError, match=message):
        lab.tune(scale, (3,), X, OUT, 300, configs=configs(64, 128), executor=executor)


def test_a_job_that_an_executor_lost_is_a_row_with_its_reason(lab: kernellab.Lab) -> None:
    tuning = lab.tune(scale, (3,), X, OUT, 300, configs=configs(64), executor=Answering(OSError("worker lost")))
    assert list(tuning.frame.status) == ["compile_error"]
    assert "OSError: worker lost" in tuning.frame.reason[0]


def test_what_is_no_executor_is_refused(lab: kernellab.Lab) -> None:
    with pytest.raises(UsageError, match=r"expected a concurrent\.futures\.Executor"):
        lab.tune(scale, (3,), X, OUT, 300, configs=configs(64), executor=4)  # type: ignore[arg-type]


def test_an_executor_without_workers_is_given_up(lab: kernellab.Lab) -> None:
    pool = ExecutorPool(Answering(None))
    compiler = Compiler(pool, lab.compiler.folder, 0.05)  # type: ignore[arg-type]
    job = compile_job(scale, lab.target, (X, OUT, 300), {"BLOCK": 256})
    assert [type(result) for _, result in compiler.stream([job])] == [WorkerTimeout]
    assert isinstance(pool.failure, WorkerTimeout)


def test_an_interrupt_cancels_what_has_not_begun() -> None:
    executor = Answering(None)
    pool = ExecutorPool(executor)
    pool.interrupt()
    with pytest.raises(WorkerDied, match="interrupted"):
        pool.run(Job("", BuildRequest(None, Path()), "Compiling scale"), 5.0)  # type: ignore[arg-type]
    assert executor.futures[0].cancelled()


class Breaking(ThreadPoolExecutor):
    """Compiles one kernel, and breaks."""

    def __init__(self) -> None:
        super().__init__(1)
        self.count = 0

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.count += 1
        if self.count > 1:
            raise BrokenExecutor("a child died")
        return super().submit(fn, *args, **kwargs)


def test_what_an_executor_compiled_before_it_broke_counts_and_the_rest_is_tried_again(lab: kernellab.Lab) -> None:
    with Breaking() as executor:
        tuning = lab.tune(scale, (3,), X, OUT, 300, configs=configs(64, 128, 256), executor=executor)
    assert sorted(tuning.frame.status) == ["compile_error", "compile_error", "pruned"]
    assert any("The executor broke" in note for note in tuning.notes)
    assert list(lab.tune(scale, (3,), X, OUT, 300, configs=configs(64, 128, 256)).frame.status) == ["pruned"] * 3
