"""A worker that does not wait for its server: its first process is a new interpreter, later ones are forks."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kernellab.errors import WorkerDied
from kernellab.workers.forks_and_interrupts import Stop
from kernellab.workers.process import ForkServer
from kernellab.workers.worker import Job, Worker, WorkerKind

MODULE = """
import os, subprocess
words = []

def say(*more):
    words.extend(more)

def start_sleeper(payload, progress):
    return subprocess.Popen(["sleep", "600"]).pid

def parent_and_words(payload, progress):
    return os.getppid(), words

def report(payload, progress):
    progress(None)
"""
JOB: Job[None, tuple[int, list[str]]] = Job("module_of_worker:parent_and_words", None, "the job")


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ForkServer]:
    (tmp_path / "module_of_worker.py").write_text(MODULE)
    (tmp_path / "module_slow_to_import.py").write_text("import time\ntime.sleep(2)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    server = ForkServer(("module_of_worker",), {})
    yield server
    server.close()


@pytest.mark.slow
def test_it_is_started_by_this_process_until_the_server_is_and_calls_what_its_kind_names(server: ForkServer) -> None:
    kind = WorkerKind("test", ("module_of_worker:say:one:two", *server.modules))
    worker = Worker(kind, server, waits_for_server=False)
    try:
        assert worker.run(JOB, 30) == (os.getpid(), ["one", "two"])
        assert not server.is_started
        server.start()
        assert worker.run(JOB, 30)[0] == os.getpid()  # as long as it lives
        worker.close()
        parent, words = worker.run(JOB, 30)
        assert parent != os.getpid()
        assert words == ["one", "two"]
    finally:
        worker.close()


@pytest.mark.slow
def test_one_that_waits_is_a_fork_from_the_first(server: ForkServer) -> None:
    worker = Worker(WorkerKind("test", server.modules), server)
    try:
        assert worker.run(JOB, 30)[0] != os.getpid()
        assert server.is_started
    finally:
        worker.close()


@pytest.mark.slow
def test_to_start_a_worker_waits_for_no_job_of_it(server: ForkServer) -> None:
    worker = Worker(WorkerKind("test", server.modules), server, waits_for_server=False)
    may_end = threading.Event()
    job: Job[None, None] = Job("module_of_worker:report", None, "the job")
    thread = threading.Thread(target=lambda: worker.run(job, 30, lambda report: may_end.wait(10)))
    try:
        thread.start()
        while worker.pid is None:
            time.sleep(0.01)
        worker.start()
        assert thread.is_alive()
        may_end.set()
        thread.join()
    finally:
        worker.close()


@pytest.mark.slow
def test_to_start_a_server_waits_for_no_fork_that_waits_for_its_imports(server: ForkServer) -> None:
    server.preload(["module_slow_to_import"])
    forked: list[Any] = []
    thread = threading.Thread(target=lambda: forked.append(server.fork(30, "a fork", Stop())))
    thread.start()
    while not server.is_started:
        time.sleep(0.01)
    server.start()
    assert not forked
    thread.join()
    forked[0].stop()


@pytest.mark.slow
@pytest.mark.parametrize("waits_for_server", [False, True])
def test_what_a_worker_has_started_ends_with_it(server: ForkServer, waits_for_server: bool) -> None:
    worker = Worker(WorkerKind("test", server.modules), server, waits_for_server=waits_for_server)
    sleeper: int = worker.run(Job("module_of_worker:start_sleeper", None, "the job"), 30)
    assert is_running(sleeper)
    worker.close()
    end_s = time.monotonic() + 10
    while is_running(sleeper) and time.monotonic() < end_s:
        time.sleep(0.01)
    assert not is_running(sleeper)


@pytest.mark.slow
def test_a_stop_before_a_fork_was_sent_its_kind_leaves_the_next_job_a_worker_of_the_kind(
    server: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker, stop, fork = Worker(WorkerKind("test", server.modules), server), Stop(), ForkServer.fork

    def fork_and_stop(own: ForkServer, *call: Any) -> Any:
        process = fork(own, *call)
        stop.ask()
        return process

    monkeypatch.setattr(ForkServer, "fork", fork_and_stop)
    with pytest.raises(WorkerDied, match="was interrupted"):
        worker.run(JOB, 30, stop=stop)
    assert worker.pid is None
    monkeypatch.undo()
    assert worker.run(JOB, 30)[0] != os.getpid()
    worker.close()


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
