"""Jobs that workers take from both ends of a line, and that are made shortly before."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
import torch

from kernellab.compile.job_queue import JobQueue
from kernellab.compile.types import CompileJob, compile_job
from kernellab.errors import LaunchError, WorkerDied
from kernellab.target import Target
from kernellab.workers.forks_and_interrupts import Stop
from tests import samples

X = torch.zeros(64)
JOB = compile_job(samples.add_kernel, Target("cuda", 90, 32), (X, X, X, 64), {"BLOCK": 64})
GO_ON = Stop()


def line_of(count: int, shortest: int, workers: int = 4) -> JobQueue:
    """Return a line whose jobs are made as soon as there is room for them."""
    line = JobQueue([JOB] * count, shortest, workers)
    while line.advance():
        pass
    return line


def test_some_take_from_the_end_and_all_others_from_the_front() -> None:
    line = line_of(6, 1)
    with ExitStack() as held:
        assert [held.enter_context(line.take(GO_ON))[0] for _ in range(4)] == [5, 0, 1, 2]


def test_who_ends_a_short_one_takes_the_next_short_one() -> None:
    line = line_of(4, 1)
    with line.take(GO_ON) as (giant_or_short, _):
        assert giant_or_short == 3
    with line.take(GO_ON) as (short, _), line.take(GO_ON) as (long, _):
        assert (short, long) == (2, 0)
    with line.take(GO_ON) as (last, _):
        assert last == 1


def test_without_such_it_is_a_queue() -> None:
    line = line_of(3, 0)
    with ExitStack() as held:
        assert [held.enter_context(line.take(GO_ON))[0] for _ in range(3)] == [0, 1, 2]


def test_one_that_failed_is_no_longer_held() -> None:
    line = line_of(3, 1)
    try:
        with line.take(GO_ON):
            raise ValueError
    except ValueError:
        pass
    with line.take(GO_ON) as (index, _):
        assert index == 1


def test_a_job_is_made_when_it_is_soon_to_be_taken() -> None:
    made: list[int] = []

    def source(index: int) -> CompileJob:
        made.append(index)
        return JOB

    line = JobQueue([lambda index=index: source(index) for index in range(10_000)], 1, workers=4)
    while line.advance():
        pass
    assert len(made) == 16
    assert {9999, 9998, 0, 1} < set(made)
    with line.take(GO_ON), line.take(GO_ON):
        assert line.advance()
        assert line.advance()
        assert not line.advance()
    assert len(made) == 18


def test_where_the_ends_meet_each_job_is_taken_once() -> None:
    line, found = JobQueue([JOB] * 11, 1, workers=2), []
    for _ in range(11):
        line.advance()
        with line.take(GO_ON) as (long_or_short, _):
            found.append(long_or_short)
    assert sorted(found) == list(range(11))
    assert not line.advance()


def test_an_error_of_making_a_job_is_taken_in_its_place() -> None:
    def refuse() -> CompileJob:
        raise LaunchError("there is no argument BLOCKS")

    line = JobQueue([JOB, refuse], 0, workers=2)
    assert line.advance()
    assert line.advance()
    with line.take(GO_ON) as (_, job), line.take(GO_ON) as (index, error):
        assert job is JOB
        assert (index, type(error)) == (1, LaunchError)


def test_who_waits_for_a_job_ends_when_asked_to_stop() -> None:
    line, stop = JobQueue([JOB], 0, workers=1), Stop()
    stop.ask()
    with pytest.raises(WorkerDied, match="interrupted"), line.take(stop):
        pass
