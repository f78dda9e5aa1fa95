"""Jobs that workers take from both ends of a line."""

from __future__ import annotations

from contextlib import ExitStack

from kernellab.compile.cache import JobQueue


def test_some_take_from_the_end_and_all_others_from_the_front() -> None:
    line = JobQueue(6, 1)
    with ExitStack() as held:
        assert [held.enter_context(line.taken()) for _ in range(4)] == [5, 0, 1, 2]


def test_who_ends_a_short_one_takes_the_next_short_one() -> None:
    line = JobQueue(4, 1)
    with line.taken() as giant_or_short:
        assert giant_or_short == 3
    with line.taken() as short, line.taken() as long:
        assert (short, long) == (2, 0)
    with line.taken() as last:
        assert last == 1


def test_without_such_it_is_a_queue() -> None:
    line = JobQueue(3, 0)
    with ExitStack() as held:
        assert [held.enter_context(line.taken()) for _ in range(3)] == [0, 1, 2]


def test_one_that_failed_is_no_longer_held() -> None:
    line = JobQueue(3, 1)
    try:
        with line.taken():
            raise ValueError
    except ValueError:
        pass
    with line.taken() as index:
        assert index == 1
