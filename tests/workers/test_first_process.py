"""A worker that does not wait for its server: its first process is a new interpreter, later ones are forks."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernellab.workers.forks_and_interrupts import Stop
from kernellab.workers.process import ForkServer
from kernellab.workers.worker import Job, Worker, WorkerKind

HERE = __name__
SAID: list[str] = []


def say(*words: str) -> None:
    SAID.extend(words)


def parent_and_words(payload: None, progress: Callable[[Any], None]) -> tuple[int, list[str]]:
    return os.getppid(), SAID


JOB: Job[None, tuple[int, list[str]]] = Job(parent_and_words, None, "the job")


@pytest.mark.slow
def test_it_is_started_by_this_process_until_the_server_is_and_calls_what_its_kind_names() -> None:
    server = ForkServer((HERE,), {})
    worker = Worker(WorkerKind("test", (f"{HERE}:say:one:two", HERE)), server, waits_for_server=False)
    try:
        assert worker.run(JOB, 30) == (os.getpid(), ["one", "two"])
        assert not server.is_started
        server.start()
        assert worker.run(JOB, 30)[0] == os.getpid()  # as long as it lives
        worker.close()
        parent, words = worker.run(JOB, 30)
        assert (parent, words) == (server.fork(30, "another", Stop()).child.server.pid, ["one", "two"])  # type: ignore[union-attr]
    finally:
        worker.close()
        server.close()


@pytest.mark.slow
def test_one_that_waits_is_a_fork_from_the_first() -> None:
    server = ForkServer((HERE,), {})
    worker = Worker(WorkerKind("test", (HERE,)), server)
    try:
        assert worker.run(JOB, 30)[0] != os.getpid()
        assert server.is_started
    finally:
        worker.close()
        server.close()


@pytest.mark.slow
def test_to_start_a_server_waits_for_no_fork_that_waits_for_its_imports(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "slow_to_import.py").write_text("import time\ntime.sleep(2)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    server, stop = ForkServer(("slow_to_import",), {}), Stop()
    forked: list[Any] = []
    thread = threading.Thread(target=lambda: forked.append(server.fork(30, "a fork", stop)))
    thread.start()
    try:
        while not server.is_started:
            time.sleep(0.01)
        server.start()
        assert not forked
    finally:
        thread.join()
        server.close()
