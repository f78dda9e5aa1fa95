from __future__ import annotations

import importlib
import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kernellab
from kernellab._triton import CODE_GENERATOR
from kernellab.errors import CompileError, KernellabError, Place, UsageError, WorkerDied, WorkerTimeout
from kernellab.workers.forks_and_interrupts import Stop
from kernellab.workers.process import (
    Channel,
    ChannelClosedError,
    DeadlineError,
    ForkedWorker,
    ForkServer,
    WorkerProcess,
    limit_of,
    pack_message,
)
from kernellab.workers.worker import BackgroundJobs, Job, Pool, Worker, WorkerKind

KIND = WorkerKind("test", preload=())


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


def job(function: Callable[[Any, Callable[[Any], None]], Any], payload: Any) -> Job[Any, Any]:
    return Job(function, payload, "the job")


@pytest.fixture
def worker() -> Iterator[Worker]:
    worker = Worker(KIND)
    yield worker
    worker.close()


@pytest.mark.slow
def test_a_job_returns_what_its_handler_returns(worker: Worker) -> None:
    assert worker.run(job(echo, {"a": (1, 2)}), 30) == {"a": (1, 2)}


@pytest.mark.slow
def test_one_process_serves_many_jobs(worker: Worker) -> None:
    worker.run(job(echo, 1), 30)
    pid = worker.pid
    worker.run(job(echo, 2), 30)
    assert worker.pid == pid


@pytest.mark.slow
def test_progress_arrives_in_order_before_the_result(worker: Worker) -> None:
    seen: list[int] = []
    assert worker.run(job(count, 3), 30, seen.append) == 3
    assert seen == [0, 1, 2]


@pytest.mark.slow
def test_an_error_keeps_its_class_place_and_detail(worker: Worker) -> None:
    with pytest.raises(CompileError, match="no good") as caught:
        worker.run(job(fail, "no good"), 30)
    assert caught.value.place == Place("In[3]", 4, 2, "x = y")
    assert (caught.value.kernel, caught.value.detail) == ("k", "all of it")


@pytest.mark.slow
def test_a_foreign_error_is_named_and_its_traceback_is_the_detail(worker: Worker) -> None:
    with pytest.raises(KernellabError, match="ZeroDivisionError: division by zero") as caught:
        worker.run(job(divide, 1), 30)
    assert "in divide" in caught.value.detail


@pytest.mark.slow
def test_a_result_that_cannot_be_sent_is_an_error_and_the_worker_goes_on(worker: Worker) -> None:
    worker.run(job(echo, 1), 30)
    pid = worker.pid
    with pytest.raises(KernellabError, match="pickle"):
        worker.run(job(unpicklable, None), 30)
    assert worker.run(job(echo, 1), 30) == 1
    assert worker.pid == pid


@pytest.mark.slow
def test_a_job_over_its_limit_is_stopped_and_the_next_one_runs(worker: Worker) -> None:
    worker.run(job(echo, 1), 30)
    with pytest.raises(WorkerTimeout, match=r"the job did not finish within 0\.2 s"):
        worker.run(job(sleep, 60.0), 0.2)
    assert worker.run(job(echo, 1), 30) == 1


@pytest.mark.slow
def test_a_worker_that_exits_says_its_last_words(worker: Worker) -> None:
    with pytest.raises(WorkerDied, match=r"exit status 7.*out of luck"):
        worker.run(job(leave, 7), 30)
    assert worker.run(job(echo, 1), 30) == 1


@pytest.mark.slow
def test_a_worker_killed_from_outside_is_replaced_and_the_job_done(worker: Worker, tmp_path: Any) -> None:
    assert worker.run(job(die_once, str(tmp_path / "died")), 30) == "alive"


@pytest.mark.slow
def test_a_worker_that_is_killed_again_and_again_is_an_error_that_names_the_job(worker: Worker) -> None:
    with pytest.raises(WorkerDied, match=r"worker of the job was killed twice \(SIGKILL\)"):
        worker.run(job(die, None), 30)
    assert worker.run(job(echo, 1), 30) == 1


@pytest.mark.slow
def test_a_job_that_runs_out_of_memory_is_an_error_and_the_worker_goes_on(worker: Worker) -> None:
    with pytest.raises(KernellabError, match="MemoryError"):
        worker.run(job(gorge, 2**60), 30)
    assert worker.run(job(echo, 1), 30) == 1


@pytest.mark.slow
def test_a_worker_killed_while_idle_is_replaced(worker: Worker) -> None:
    worker.run(job(echo, 1), 30)
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGKILL)
    assert worker.run(job(echo, 2), 30) == 2


@pytest.mark.slow
def test_an_interrupt_stops_the_job_and_the_next_one_runs(worker: Worker) -> None:
    worker.run(job(echo, 1), 30)
    with pytest.raises(KeyboardInterrupt) as caught:
        worker.run(job(begin_and_sleep, 60.0), 60, lambda told: os.kill(os.getpid(), signal.SIGINT))
    [shown] = caught.value._render_traceback_()  # type: ignore[attr-defined]
    assert shown == f"KeyboardInterrupt: {job(sleep, 60.0).subject} was interrupted."
    assert worker.run(job(echo, 3), 30) == 3


@pytest.mark.slow
def test_closing_ends_the_process(worker: Worker) -> None:
    worker.run(job(echo, 1), 30)
    pid = worker.pid
    assert pid is not None
    worker.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


@pytest.mark.slow
def test_jobs_of_a_pool_run_side_by_side(tmp_path: Path) -> None:
    pool = Pool(KIND, 2)
    try:
        pids: list[int] = []
        meet = [threading.Thread(target=lambda: pids.append(pool.run(job(met, str(tmp_path)), 30))) for _ in range(2)]
        for thread in meet:
            thread.start()
        for thread in meet:
            thread.join()
        assert len(set(pids)) == 2
    finally:
        pool.close()


@pytest.mark.parametrize("passes_stop", [True, False])
def test_closing_a_pool_stops_what_runs_in_the_background_and_no_later_job_of_it_starts_a_process(
    passes_stop: bool,
) -> None:
    pool, stop, has_begun, errors = Pool(KIND, 1), Stop(), threading.Event(), list[str]()

    def run_jobs() -> None:
        has_begun.set()
        while not stop.why:
            pass
        try:
            pool.run(Job(echo, 1, "The later job"), 30, stop=stop if passes_stop else None)
        except WorkerDied as exc:
            errors.append(str(exc))

    thread = pool.run_in_background(run_jobs, stop)
    has_begun.wait()
    pool.close()
    assert not thread.is_alive()
    assert errors == ["The later job ended: its worker was closed."]
    assert pool.workers[0].pid is None


def test_closing_a_pool_waits_for_a_step_in_the_background_whose_result_is_kept() -> None:
    pool, has_begun, kept = Pool(KIND, 1), threading.Event(), list[int]()

    def keep() -> None:
        has_begun.set()
        kept.append(pool.run(Job(echo, 1, "The job"), 30))

    pool.run_in_background(keep)
    has_begun.wait()
    pool.close()
    assert kept == [1]
    assert pool.workers[0].pid is None


def test_a_fork_at_work_for_a_step_in_the_background_is_closed_with_the_pool() -> None:
    pool, has_begun = Pool(KIND, 1), threading.Event()

    def work() -> None:
        with pytest.raises(WorkerDied):
            pool.run(job(begin_and_sleep, 600.0), 600.0, lambda told: has_begun.set())

    thread = pool.run_in_background(work, Stop())
    has_begun.wait()
    process = pool.workers[0]._process
    assert process is not None
    assert isinstance(process.child, ForkedWorker)
    pool.close()
    assert not thread.is_alive()
    assert process.log.closed
    assert process.channel.socket.fileno() == process.child.lifeline.socket.fileno() == -1


def test_a_job_that_starts_in_the_background_while_the_others_are_stopped_does_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def stop_and_start(thread: threading.Thread) -> None:
        waited_for.append(jobs.stop("ended"))
        start(thread)

    start, jobs, steps, waited_for = threading.Thread.start, BackgroundJobs(), list[str](), list[Any]()
    monkeypatch.setattr(threading.Thread, "start", stop_and_start)
    jobs.begin(lambda: steps.append("step")).join()
    assert steps == []
    assert waited_for == [()]


@pytest.mark.slow
def test_a_pool_gives_a_job_to_the_process_that_was_last_at_work() -> None:
    pool = Pool(KIND, 3)
    try:
        assert len({pool.run(job(own_pid, None), 30) for _ in range(4)}) == 1
    finally:
        pool.close()


def own_pid(payload: None, progress: Callable[[Any], None]) -> int:
    """Return the process that runs the job."""
    return os.getpid()


def met(payload: str, progress: Callable[[Any], None]) -> int:
    """Return the process once another one is here, too."""
    Path(payload, str(os.getpid())).touch()
    while len(os.listdir(payload)) < 2:
        pass
    return os.getpid()


@pytest.fixture
def server() -> Iterator[ForkServer]:
    server = ForkServer((), {})
    yield server
    server.close()


def forked(server: ForkServer) -> WorkerProcess:
    process = server.fork(60.0, "the job", Stop())
    process.channel.send(pack_message(KIND))
    return process


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def ends(process: WorkerProcess) -> bool:
    """Tell whether the process closes its end of the channel."""
    with pytest.raises(ChannelClosedError):
        process.channel.receive(limit_of(30.0, "the end"))
    return True


@pytest.mark.slow
def test_a_server_tells_how_its_fork_ended(server: ForkServer) -> None:
    process = forked(server)
    process.channel.send(job(leave, 7).message())
    assert process.child.exit_code(30.0) == 7
    assert process.stop() == 7


@pytest.mark.slow
def test_a_stopped_fork_is_ended_and_no_zombie_is_left(server: ForkServer) -> None:
    process = forked(server)
    os.kill(process.child.pid, signal.SIGSTOP)
    assert process.child.exit_code(0) is None
    assert process.stop() == -signal.SIGKILL
    assert not is_alive(process.child.pid)


@pytest.mark.slow
def test_a_fork_that_nobody_holds_any_more_is_ended(server: ForkServer) -> None:
    process = forked(server)
    process.child.lifeline.close()  # type: ignore[union-attr]
    assert ends(process)
    process.channel.close()
    process.log.close()


@pytest.mark.slow
def test_a_request_that_is_stopped_leaves_no_answer_for_the_next(server: ForkServer) -> None:
    forked(server).stop()
    stop = Stop()
    stop.ask()
    with pytest.raises(WorkerDied, match=r"^the job was interrupted\.$"):
        server.fork(60.0, "the job", stop)
    first, second = forked(server), forked(server)
    assert first.child.pid != second.child.pid
    assert (first.stop(), second.stop()) == (-signal.SIGKILL, -signal.SIGKILL)
    assert not is_alive(first.child.pid)
    assert not is_alive(second.child.pid)


@pytest.mark.slow
def test_a_stopped_server_is_replaced(server: ForkServer) -> None:
    server.answer_s = 1.0
    first = forked(server)
    [popen] = [server._server.child.popen] if server._server else []
    os.kill(popen.pid, signal.SIGSTOP)
    second = forked(server)
    assert popen.returncode == -signal.SIGKILL
    assert ends(first)  # a fork ends with its server
    assert first.stop() == -signal.SIGKILL
    second.channel.send(job(echo, 5).message())
    assert second.channel.receive(limit_of(30.0, "the job")) == ("result", 5)
    second.stop()


@pytest.mark.slow
def test_a_fork_of_a_stopped_server_can_be_ended(server: ForkServer) -> None:
    server.answer_s = 1.0
    process = forked(server)
    assert server._server is not None
    os.kill(server._server.child.pid, signal.SIGSTOP)
    assert process.stop() == -signal.SIGKILL
    assert not is_alive(server._server.child.pid)


@pytest.mark.slow
def test_a_server_that_cannot_start_says_why() -> None:
    server = ForkServer(("kernellab.there_is_no_such",), {})
    with pytest.raises(WorkerDied, match=r"got no worker: ModuleNotFoundError: No module named 'kernellab.there"):
        forked(server)
    server.close()


@pytest.mark.slow
def test_what_a_fork_has_started_ends_with_it(server: ForkServer, tmp_path: Path) -> None:
    process = forked(server)
    process.channel.send(job(start_another, str(tmp_path / "pipe")).message())
    os.mkfifo(tmp_path / "pipe")
    with open(tmp_path / "pipe", "rb") as pipe:
        assert pipe.read(1) == b"."
        process.stop()
        assert pipe.read() == b""  # comes when the last that could write to it has ended


def start_another(payload: str, progress: Callable[[Any], None]) -> None:
    while not os.path.exists(payload):
        pass
    os.system(f"exec 3> {payload}; printf . >&3; sleep 600")


@pytest.mark.slow
def test_a_worker_that_reads_nothing_is_stopped_in_time(worker: Worker) -> None:
    worker.run(job(echo, 1), 30)
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGSTOP)
    with pytest.raises(WorkerTimeout):
        worker.run(job(echo, b"x" * 10_000_000), 0.5)
    assert worker.run(job(echo, 2), 30) == 2


def test_half_a_message_keeps_nobody_waiting() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        theirs.sendall(pack_message("whatever")[:3])
        channel = Channel(ours)
        assert channel.has_news()
        with pytest.raises(DeadlineError):
            channel.receive(limit_of(0.05, "the message"))
        channel.close()


def test_messages_arrive_whole_whatever_their_size() -> None:
    ours, theirs = socket.socketpair()
    one, other = Channel(ours), Channel(theirs)
    text = "x" * 5_000_000
    sender = threading.Thread(target=lambda: (one.send(pack_message(text)), one.send(pack_message("next"))))
    sender.start()
    assert other.receive() == text
    assert other.receive() == "next"
    sender.join()
    one.close()
    with pytest.raises(ChannelClosedError):
        other.receive()
    other.close()


def test_a_limit_ends_when_it_is_asked_to_stop() -> None:
    stop = Stop()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        stop.ask("was closed")
        with pytest.raises(WorkerDied, match=r"^the job was closed\.$"):
            limit_of(1e6, "the job", stop).wait(ours.fileno(), select.POLLIN)


@pytest.mark.slow
def test_closing_a_worker_ends_the_job_of_another_thread() -> None:
    worker, begun, errors = Worker(KIND), threading.Event(), []

    def run() -> None:
        try:
            worker.run(job(begin_and_sleep, 600.0), 600.0, lambda told: begun.set())
        except KernellabError as exc:
            errors.append(exc.message)

    thread = threading.Thread(target=run)
    thread.start()
    begun.wait()
    worker.close()
    thread.join()
    assert errors == ["the job ended: its worker was closed."]
    assert worker.pid is None


def begin_and_sleep(payload: float, progress: Callable[[Any], None]) -> None:
    progress("begun")
    time.sleep(payload)


def test_a_time_limit_is_a_number_of_seconds(worker: Worker) -> None:
    for wrong in (float("nan"), float("inf"), 0.0, -1.0):
        with pytest.raises(UsageError, match=r"^The time limit is .*; expected seconds, more than 0\.$"):
            worker.run(job(echo, 1), wrong)


def test_a_pool_has_workers() -> None:
    with pytest.raises(UsageError, match=r"^A pool has 0 workers; expected at least 1\.$"):
        Pool(KIND, 0)


NAMES = ("random", "json", "socket", "pickle", "torch", "triton", "numpy", "kernellab")


@pytest.fixture
def littered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder, first on the search path as in a notebook, whose files have the names of modules."""
    for name in NAMES:
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'a').write('{name} ')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("preload", [("kernellab.compile.worker", CODE_GENERATOR), ("torch",)])
def test_files_of_the_current_folder_stand_in_for_no_module(littered: Path, preload: tuple[str, ...]) -> None:
    pool, worker = Pool(WorkerKind("test", preload), 1), Worker(WorkerKind("test", preload))
    assert [each.run(job(echo, 1), 60) for each in (pool, worker)] == [1, 1]
    pool.close()
    worker.close()
    assert not (littered / "ran").exists()


def test_a_worker_imports_from_the_folder_of_the_user(littered: Path, worker: Worker) -> None:
    (littered / "my_own_module.py").write_text("def answer(payload, progress): return 42\n")
    answer = importlib.import_module("my_own_module").answer
    assert worker.run(Job(answer, None, "the job"), 30) == 42


@pytest.mark.slow
def test_a_worker_has_the_kernellab_of_its_parent(littered: Path, worker: Worker) -> None:
    assert worker.run(job(where, "kernellab"), 30) == kernellab.__file__


def where(payload: str, progress: Callable[[Any], None]) -> str | None:
    return importlib.import_module(payload).__file__


@pytest.mark.slow
def test_a_deleted_current_folder_keeps_no_worker_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, worker: Worker
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert worker.run(job(echo, 1), 30) == 1


@pytest.mark.slow
def test_a_pool_whose_processes_end_while_they_start_is_an_error_that_blames_no_disk(tmp_path: Path) -> None:
    pool = Pool(WorkerKind("test", ("no_such_module",)), 1)
    with pytest.raises(WorkerDied, match=r"got no worker: ModuleNotFoundError"):
        pool.run(job(echo, 1), 30)
    pool.close()
