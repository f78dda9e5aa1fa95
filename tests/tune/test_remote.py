"""Compiling on an executor of the user, and executors that are of no use."""

from __future__ import annotations

import linecache
import multiprocessing
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

import kernellab
from kernellab.compile.cache import Compiler
from kernellab.compile.types import compile_job
from kernellab.compile.worker import BuildRequest, compile_kernel
from kernellab.errors import UsageError, WorkerDied, WorkerError, WorkerTimeout
from kernellab.tune.executors import ExecutorPool, RemoteBuild
from kernellab.workers.worker import Job
from tests.labs import shared_lab

X, OUT = torch.zeros(300), torch.zeros(300)


@pytest.fixture
def lab() -> Iterator[kernellab.Lab]:
    with shared_lab("cuda:90", ":memory:") as lab:
        yield lab


@triton.jit
def scale(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n) * 2, mask=offsets < n)


def configs(*blocks: int) -> list[triton.Config]:
    return [triton.Config({"BLOCK": block}) for block in blocks]


class RemoteError(Exception):
    """As ipyparallel has it: an error of an engine, by its name."""

    ename = "ModuleNotFoundError"


class Answering(Executor):
    """Answers each job at once, with what it is given; an exception is raised, None leaves it open for ever."""

    def __init__(self, answer: object) -> None:
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


@pytest.mark.slow
def test_a_thread_pool_compiles_in_place_of_the_workers() -> None:
    with kernellab.Lab("cuda:90", ":memory:") as lab:
        with ThreadPoolExecutor(2) as executor:
            tuning = lab.tune(scale, (3,), X, OUT, 300, configs=configs(63, 64, 128), executor=executor)
        assert list(tuning.frame.status) == ["compile_error", "not_timed", "not_timed"]
        assert "power of 2" in tuning.frame.reason[0]
        assert tuning.frame.registers[1] > 0
        assert not any(worker.pid for worker in lab.compiler.pool.workers)
        assert linecache.getline(__file__, 1).startswith('"""')  # what it compiled in this process leaves files whole
        assert lab.compile(scale, X, OUT, 300, BLOCK=64).from_cache


@pytest.mark.slow
def test_spawned_processes_compile(lab: kernellab.Lab) -> None:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as executor:
        tuning = lab.tune(scale, (3,), X, OUT, 300, configs=configs(64, 128), executor=executor)
    assert list(tuning.frame.status) == ["not_timed", "not_timed"]
    assert tuning.best is not None
    assert tuning.is_predicted


class Dropping(Answering):
    """Cancels what it has taken, as the client of a cluster that is closed."""

    def __init__(self) -> None:
        super().__init__(None)

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future = super().submit(fn, *args, **kwargs)
        future.cancel()
        future.set_running_or_notify_cancel()
        return future


class Closed(Answering):
    def __init__(self) -> None:
        super().__init__(None)

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        raise RuntimeError("cannot schedule new futures after shutdown")


class Client:
    """Submits as the client of dask does, whose futures are its own."""

    def submit(self, fn: Any, *args: Any) -> object:
        return object()


@pytest.mark.parametrize(
    ("executor", "message"),
    [
        (Answering(BrokenExecutor("a child died")), r"The executor broke .*a child died"),
        (Answering(ModuleNotFoundError("No module named 'kernellab'")), "install kernellab there"),
        (Answering(RemoteError("[0:apply] No module named 'kernellab'")), "install kernellab there"),
        (Answering(RemoteBuild("another digest", {})), "another Triton"),
        (Dropping(), "dropped a compile: its cluster was closed"),
        (Closed(), r"takes no compiles \(RuntimeError: cannot schedule new futures after shutdown\); is it closed\?"),
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


@pytest.mark.parametrize(
    ("executor", "message"),
    [
        (Answering([RemoteBuild("", {}), RemoteBuild("", {})]), r"returned a list .*load_balanced_view\(\)\.executor"),
        (Client(), r"returned a object; .* client\.get_executor\(\) of dask"),
    ],
)
def test_an_executor_that_is_none_is_told_what_to_pass(lab: kernellab.Lab, executor: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        lab.tune(scale, (3,), X, OUT, 300, configs=configs(64, 128), executor=executor)


class Elsewhere(Answering):
    """Calls what it is given in an interpreter that has nothing but the standard library."""

    def __init__(self) -> None:
        super().__init__(None)
        self.printed = ""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        program = "import pickle, sys; fn, args = pickle.load(sys.stdin.buffer); print('called', flush=True); fn(*args)"
        command = [sys.executable, "-I", "-S", "-c", program]
        ran = subprocess.run(command, input=pickle.dumps((fn, args)), capture_output=True, check=False)
        self.printed, said = ran.stdout.decode(), ran.stderr.decode().splitlines()[-1]
        self.answer = ImportError(said)
        return super().submit(fn)


def test_a_worker_without_kernellab_can_be_called_and_says_that_it_lacks_it(lab: kernellab.Lab) -> None:
    executor = Elsewhere()
    with pytest.raises(WorkerError, match=r"No module named 'kernellab'.*install kernellab there"):
        lab.tune(scale, (3,), X, OUT, 300, configs=configs(64), executor=executor)
    assert executor.printed.strip() == "called"


def test_an_executor_without_workers_is_given_up(lab: kernellab.Lab) -> None:
    pool = ExecutorPool(Answering(None))
    compiler = Compiler(pool, lab.compiler.folder, 0.05)  # type: ignore[arg-type]
    job = compile_job(scale, lab.target, (X, OUT, 300), {"BLOCK": 256})
    assert [type(result) for _, result in compiler.stream([job])] == [WorkerTimeout]
    assert isinstance(pool.failure, WorkerTimeout)


def test_an_interrupt_cancels_what_is_under_way_and_the_executor_can_be_used_again(lab: kernellab.Lab) -> None:
    executor = Submitted()
    pool = ExecutorPool(executor)
    job = compile_job(scale, lab.target, (X, OUT, 300), {"BLOCK": 512})
    outcomes: list[BaseException] = []

    def run() -> None:
        with pytest.raises(WorkerDied, match="interrupted") as caught:
            pool.run(Job(compile_kernel, BuildRequest(job, Path()), "Compiling scale"), 60.0)
        outcomes.append(caught.value)

    thread = threading.Thread(target=run)
    thread.start()
    executor.submitted.wait()
    pool.interrupt()
    thread.join()
    assert len(outcomes) == 1
    assert executor.futures[0].cancelled()
    executor.answer = OSError("a later job has its own answer")
    with pytest.raises(WorkerError, match="a later job"):
        pool.run(Job(compile_kernel, BuildRequest(job, Path()), "Compiling scale"), 60.0)
    assert pool.failure is None


class Submitted(Answering):
    """Tells when something was submitted."""

    def __init__(self) -> None:
        super().__init__(None)
        self.submitted = threading.Event()

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future = super().submit(fn, *args, **kwargs)
        self.submitted.set()
        return future


class Breaking(ThreadPoolExecutor):
    """Says that it owns no GPU, compiles one kernel, and breaks."""

    def __init__(self) -> None:
        super().__init__(1)
        self.count = 0

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.count += 1
        if self.count > 2:
            raise BrokenExecutor("a child died")
        return super().submit(fn, *args, **kwargs)


@pytest.mark.slow
def test_what_an_executor_compiled_before_it_broke_counts_and_the_rest_is_tried_again(lab: kernellab.Lab) -> None:
    with Breaking() as executor:
        tuning = lab.tune(scale, (3,), X, OUT, 300, configs=configs(64, 128, 256), executor=executor)
    assert sorted(tuning.frame.status) == ["compile_error", "compile_error", "not_timed"]
    assert any("The executor broke" in note for note in tuning.notes)
    assert list(lab.tune(scale, (3,), X, OUT, 300, configs=configs(64, 128, 256)).frame.status) == ["not_timed"] * 3
