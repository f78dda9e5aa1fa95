"""Calls to the processes of a cluster: one at a time each, once more elsewhere, and errors that come back as data."""

from __future__ import annotations

from typing import Any

import pytest

from kernellab.errors import RunError, UsageError, WorkerDied, WorkerError
from kernellab.tune.cluster_calls import CallQueue, Refusal
from tests.tune.cluster.fakes import A100, H100, QUESTION, Clock, FakeCluster, call


def doubled(number: int) -> int:
    return 2 * number


def failing(payload: Any) -> None:
    raise RunError("scale failed on the GPU")


def raising(payload: Any) -> None:
    raise ZeroDivisionError("of the user")


def declining(payload: Any) -> Refusal:
    return Refusal("A100, driver 570")


def opened(cluster: FakeCluster, **more: Any) -> CallQueue:
    queue = CallQueue(cluster, QUESTION, clock=Clock(), **more)
    queue.open()
    return queue


def test_calls_go_to_whoever_owns_a_gpu_and_come_back_by_their_number() -> None:
    cluster = FakeCluster({"a": H100, "b": None, "c": H100})
    queue = opened(cluster)
    assert queue.lanes == 2
    for number in range(5):
        queue.put(number, call(doubled, number))
    assert {(found := queue.take()).number: found.result for _ in range(5)} == {n: 2 * n for n in range(5)}
    assert set(cluster.calls) == {"a", "c"}


def test_a_process_has_one_call_at_a_time() -> None:
    cluster = FakeCluster({"a": H100, "b": H100}, silent={"a"})
    queue = opened(cluster)
    for number in range(4):
        queue.put(number, call(doubled, number))
    assert [queue.take().number for _ in range(3)] == [1, 2, 3]
    assert cluster.calls.count("a") == 1
    queue.close()
    assert cluster.open["a"].cancelled()


def test_gpus_of_another_model_take_no_call() -> None:
    queue = opened(FakeCluster({"a": A100, "b": H100, "c": H100}))
    assert queue.owner is not None
    assert queue.owner.device == H100
    assert any(note.startswith("a has A100") for note in queue.notes)


def test_a_call_whose_process_is_lost_goes_elsewhere() -> None:
    cluster = FakeCluster({"a": H100, "b": H100}, loses={"a"})
    queue = opened(cluster)
    queue.put(0, call(doubled, 21))
    found = queue.take()
    assert (found.result, found.name) == (42, "b")
    assert queue.notes == ["The tuning of scale lost a (Lost: a is gone) and went elsewhere"]


def test_a_process_that_is_gone_without_a_word_is_lost() -> None:
    cluster = FakeCluster({"a": H100, "b": H100}, silent={"a"})
    queue = opened(cluster)
    queue.put(0, call(doubled, 21))
    cluster.lose("a")
    assert queue.take().name == "b"


def test_a_call_that_loses_two_processes_is_given_up() -> None:
    cluster = FakeCluster({"a": H100, "b": H100, "c": H100}, loses={"a", "b"})
    queue = opened(cluster)
    queue.put(0, call(doubled, 21))
    result = queue.take().result
    assert isinstance(result, WorkerDied)
    assert result.message == "The tuning of scale was lost twice, by a and b: Lost: b is gone."
    queue.put(1, call(doubled, 4))
    assert queue.take().result == 8


def test_a_process_that_is_started_again_takes_the_call() -> None:
    cluster = FakeCluster({"a": H100}, loses={"a"}, restarts_as={"a": "a again"})
    queue = opened(cluster)
    queue.put(0, call(doubled, 21))
    assert queue.take().name == "a again"


@pytest.mark.slow
def test_where_nobody_is_left_a_call_is_answered_with_that() -> None:
    queue = opened(FakeCluster({"a": H100}, loses={"a"}))
    queue.put(0, call(doubled, 21))
    result = queue.take().result
    assert isinstance(result, WorkerDied)
    assert "found no process with H100, driver 570, cuda:90, Triton 3.9.0 after a was lost" in result.message


def test_a_process_that_comes_later_joins_if_its_gpu_is_of_the_same_kind() -> None:
    cluster = FakeCluster({"a": H100}, silent={"a"})
    queue = opened(cluster)
    queue.put(0, call(doubled, 0))
    queue.put(1, call(doubled, 1))
    cluster.devices |= {"b": A100, "c": H100}
    assert queue.take().name == "c"
    assert queue.lanes == 2
    assert any(note.startswith("b came later with A100") for note in queue.notes)


@pytest.mark.parametrize(
    ("function", "kind", "message"), [(failing, RunError, "failed on the GPU"), (raising, WorkerError, "of the user")]
)
def test_an_error_is_the_answer_and_loses_no_process(function: Any, kind: type[Exception], message: str) -> None:
    queue = opened(FakeCluster({"a": H100}))
    queue.put(0, call(function))
    with pytest.raises(kind, match=message):
        raise queue.take().result
    assert queue.lanes == 1


def test_a_process_of_another_kind_declines_until_that_is_told() -> None:
    queue = opened(FakeCluster({"a": H100}, is_addressed=False))
    queue.put(0, call(declining))
    result = queue.take().result
    assert isinstance(result, WorkerError)
    assert "met no process with H100" in result.message


def test_what_cannot_travel_is_refused_here() -> None:
    queue = opened(FakeCluster({"a": H100}))
    with pytest.raises(UsageError, match=r"The tuning of scale cannot be sent to another process \(TypeError"):
        queue.put(0, call(doubled, (each for each in ())))


def test_without_a_gpu_nobody_is_there_to_ask() -> None:
    assert opened(FakeCluster({"a": None})).owner is None
