from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kernellab.errors import CompileError, KernellabError, Place, WorkerDied, WorkerTimeout
from kernellab.worker import Job, Kind, Pool, Worker

KIND = Kind("test", preload=())


def echo(payload: Any, progress: Callable[[Any], None]) -> Any:
    return payload


def count(payload: int, progress: Callable[[Any], None]) -> int:
    for number in range(payload):
        progress(number)
    return payload


def sleep(payload: float, progress: Callable[[Any], None]) -> None:
    time.sleep(payload)


def leave(payload: int, progress: Callable[[Any], None]) -> None:
    print("fatal error: out of luck", flush=True)
    os._exit(payload)


def fail(payload: str, progress: Callable[[Any], None]) -> None:
    raise CompileError(payload, place=Place("In[3]", 4, 2, "x = y"), kernel="k", detail="all of it")


def divide(payload: int, progress: Callable[[Any], None]) -> float:
    return payload / 0


def unpicklable(payload: None, progress: Callable[[Any], None]) -> Any:
    return lambda: None


def die_once(payload: str, progress: Callable[[Any], None]) -> str:
    """Be killed on the first call, as by somebody outside; answer on the second."""
    if not os.path.exists(payload):
        open(payload, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return "alive"


def gorge(payload: int, progress: Callable[[Any], None]) -> int:
    return len(bytearray(payload))


def die(payload: None, progress: Callable[[Any], None]) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def job(function: Callable[..., Any], payload: Any) -> Job:
    return Job(f"tests.test_worker:{function.__name__}", payload, "the job")


@pytest.fixture
def worker() -> Iterator[Worker]:
    worker = Worker(KIND)
    yield worker
    worker.close()


def test_a_job_returns_what_its_handler_returns(worker: Worker) -> None:
    assert worker.run(job(echo, {"a": (1, 2)}), 30) == {"a": (1, 2)}


def test_one_process_serves_many_jobs(worker: Worker) -> None:
    worker.run(job(echo, 1), 30)
    pid = worker.pid
    worker.run(job(echo, 2), 30)
    assert worker.pid == pid


def test_progress_arrives_in_order_before_the_result(worker: Worker) -> None:
    seen: list[int] = []
    assert worker.run(job(count, 3), 30, seen.append) == 3
    assert seen == [0, 1, 2]


def test_an_error_keeps_its_class_place_and_detail(worker: Worker) -> None:
    with pytest.raises(CompileError, match="no good") as caught:
        worker.run(job(fail, "no good"), 30)
    assert caught.value.place == Place("In[3]", 4, 2, "x = y")
    assert (caught.value.kernel, caught.value.detail) == ("k", "all of it")


def test_a_foreign_error_is_named_and_its_traceback_is_the_detail(worker: Worker) -> None:
    with pytest.raises(KernellabError, match="ZeroDivisionError: division by zero") as caught:
        worker.run(job(divide, 1), 30)
    assert "in divide" in caught.value.detail


def test_a_result_that_cannot_be_sent_is_an_error_and_the_worker_goes_on(worker: Worker) -> None:
    worker.run(job(echo, 1), 30)
    pid = worker.pid
    with pytest.raises(KernellabError, match="pickle"):
        worker.run(job(unpicklable, None), 30)
    assert worker.run(job(echo, 1), 30) == 1
    assert worker.pid == pid


def test_a_job_over_its_limit_is_stopped_and_the_next_one_runs(worker: Worker) -> None:
    worker.run(job(echo, 1), 30)
    with pytest.raises(WorkerTimeout, match=r"the job did not finish within 0\.2 s"):
        worker.run(job(sleep, 60.0), 0.2)
    assert worker.run(job(echo, 1), 30) == 1


def test_a_worker_that_exits_says_its_last_words(worker: Worker) -> None:
    with pytest.raises(WorkerDied, match=r"exit status 7.*out of luck"):
        worker.run(job(leave, 7), 30)
    assert worker.run(job(echo, 1), 30) == 1


def test_a_worker_killed_from_outside_is_replaced_and_the_job_done(worker: Worker, tmp_path: Any) -> None:
    assert worker.run(job(die_once, str(tmp_path / "died")), 30) == "alive"


def test_a_worker_that_is_killed_again_and_again_is_an_error_that_names_the_job(worker: Worker) -> None:
    with pytest.raises(WorkerDied, match=r"worker of the job was killed twice \(SIGKILL\)"):
        worker.run(job(die, None), 30)
    assert worker.run(job(echo, 1), 30) == 1


def test_a_job_that_runs_out_of_memory_is_an_error_and_the_worker_goes_on(worker: Worker) -> None:
    with pytest.raises(KernellabError, match="MemoryError"):
        worker.run(job(gorge, 2**60), 30)
    assert worker.run(job(echo, 1), 30) == 1


def test_a_worker_killed_while_idle_is_replaced(worker: Worker) -> None:
    worker.run(job(echo, 1), 30)
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGKILL)
    assert worker.run(job(echo, 2), 30) == 2


def test_an_interrupt_stops_the_job_and_the_next_one_runs(worker: Worker) -> None:
    worker.run(job(echo, 1), 30)
    timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt) as caught:
        worker.run(job(sleep, 60.0), 60)
    [shown] = caught.value._render_traceback_()  # type: ignore[attr-defined]
    assert shown == f"KeyboardInterrupt: {job(sleep, 60.0).subject} was interrupted."
    assert worker.run(job(echo, 3), 30) == 3


def test_closing_ends_the_process(worker: Worker) -> None:
    worker.run(job(echo, 1), 30)
    pid = worker.pid
    assert pid is not None
    worker.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_jobs_of_a_pool_run_side_by_side() -> None:
    pool = Pool(KIND, 2)
    try:
        pids: list[int] = []
        meet = [threading.Thread(target=lambda: pids.append(pool.run(job(getpid_slowly, 0.2), 30))) for _ in range(2)]
        for thread in meet:
            thread.start()
        for thread in meet:
            thread.join()
        assert len(set(pids)) == 2
    finally:
        pool.close()


def getpid_slowly(payload: float, progress: Callable[[Any], None]) -> int:
    time.sleep(payload)
    return os.getpid()
