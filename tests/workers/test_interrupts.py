"""Interrupts at any moment leave the process, the lab and the machine as they should be."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernellab.errors import WorkerDied
from kernellab.workers.forks_and_interrupts import (
    Interrupted,
    Stop,
    hold_lock,
    import_uninterrupted,
    run_uninterrupted,
    run_uninterrupted_with_progress,
)
from kernellab.workers.parallel import run_in_parallel
from tests.tables import every
from tests.workers.interrupted import session


@pytest.mark.slow
@pytest.mark.parametrize("moments", every(2, [8, 40]))
def test_interrupts_leave_the_process_the_next_results_and_no_trace(tmp_path: Path, moments: int) -> None:
    found = session(moments, 1, tmp_path, CUDA_VISIBLE_DEVICES="")
    assert found["faults"] == []
    assert found["moments"] == moments
    assert found["descriptors"] <= 0
    assert list(tmp_path.iterdir()) == []


def test_a_call_runs_in_a_thread_that_no_signal_reaches_and_returns_its_value() -> None:
    assert run_uninterrupted(threading.current_thread) is not threading.main_thread()


def test_a_library_is_whole_after_an_interrupt_of_its_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nfor _ in range(10**5): pass\nvalue = 1\n"
    (tmp_path / "slow_library.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        import_uninterrupted("slow_library")
    assert sys.modules["slow_library"].value == 1  # type: ignore[attr-defined]
    import_uninterrupted("slow_library")


def test_an_error_of_a_call_is_raised_where_it_was_asked_for() -> None:
    def fail() -> None:
        raise ValueError("no good")

    with pytest.raises(ValueError, match="no good"):
        run_uninterrupted(fail)


def test_an_interrupt_asks_the_call_to_stop_and_waits_until_it_has() -> None:
    stop, ended = Stop(), threading.Event()

    def call(tell: object) -> None:
        assert callable(tell)
        tell("begun")
        while not stop.why:
            ended.wait(0.01)
        ended.set()

    def interrupt(told: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(Interrupted, match=r"^The work was interrupted\.$"):
        run_uninterrupted_with_progress(call, stop, "The work", interrupt)
    assert ended.is_set()


def test_who_waits_for_a_lock_can_be_asked_to_stop() -> None:
    lock, stop = threading.Lock(), Stop()
    stop.ask()
    with lock, pytest.raises(WorkerDied, match=r"^The work was interrupted\.$"), hold_lock(lock, stop, "The work"):
        pass


def test_sources_side_by_side_yield_all_they_have_and_raise_what_they_raise() -> None:
    def three(stop: Stop) -> Iterator[int]:
        yield from range(3)

    def bad(stop: Stop) -> Iterator[int]:
        raise ValueError("no good")
        yield

    assert sorted(run_in_parallel([three, three])) == [0, 0, 1, 1, 2, 2]
    with pytest.raises(ValueError, match="no good"):
        list(run_in_parallel([bad]))


def test_leaving_sources_side_by_side_stops_and_awaits_them() -> None:
    ended = threading.Event()

    def endless(stop: Stop) -> Iterator[int]:
        while not stop.why:
            yield 1
        ended.set()

    for _ in run_in_parallel([endless]):
        break
    assert ended.is_set()


@pytest.mark.slow
@pytest.mark.parametrize("step", every(2, [5, 1]))
def test_a_signal_handler_launches_at_any_line_of_another_launch(step: int) -> None:
    script = f"from tests.workers import signalled; signalled.main({step})"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=True)
    assert int(result.stdout.split()[-1]) > 300
