"""Which processes an executor has: workers of dask, engines of ipyparallel, or so many without a name."""

from __future__ import annotations

import pickle
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from kernellab.errors import UsageError, WorkerError
from kernellab.tune.executors import cluster_of, executor_of

WORKERS = {
    "tcp://1": {"name": 0, "host": "n1", "resources": {"GPU": 1}},
    "tcp://2": {"name": "two", "host": "n2", "resources": {}},
}


class DaskClient:
    """As much of a client of dask as is asked, and what its executors were made with."""

    def __init__(self, workers: dict[str, Any] | Exception = WORKERS) -> None:
        self.workers = workers
        self.options: list[dict[str, Any]] = []

    def scheduler_info(self, n_workers: int) -> dict[str, Any]:
        if isinstance(self.workers, Exception):
            raise self.workers
        return {"workers": self.workers}

    def get_executor(self, **options: Any) -> Any:
        self.options.append(options)
        return SimpleNamespace(submit=at_once, _client=self, _kwargs=options)


class View:
    """A view of ipyparallel."""

    def __init__(self, client: Any, targets: list[int] | None) -> None:
        self.client, self.targets = client, targets
        self.executor = SimpleNamespace(view=self, submit=at_once)

    def apply_async(self, function: Any, *args: Any) -> Future[Any]:
        return at_once(function, *args)


class Engines:
    """A client of ipyparallel."""

    ids = (0, 1, 5)

    def __getitem__(self, number: int) -> View:
        return View(self, [number])

    def load_balanced_view(self) -> View:
        return View(self, None)


def at_once(function: Any, *args: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(function(*args))
    return future


def test_workers_of_dask_are_known_by_their_addresses_from_client_and_executor() -> None:
    client = DaskClient()
    for given in (client, client.get_executor(pure=False)):
        cluster = cluster_of(given)
        assert cluster.is_addressed
        assert cluster.names() == {"tcp://1", "tcp://2"}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"resources": {"GPU": 1}}, {"tcp://1"}),
        ({"workers": ["two"]}, {"tcp://2"}),
        ({"workers": "tcp://1"}, {"tcp://1"}),
        ({"workers": ["n1", "n2"]}, {"tcp://1", "tcp://2"}),
    ],
)
def test_resources_and_workers_of_an_executor_of_dask_count(options: dict[str, Any], expected: set[str]) -> None:
    assert cluster_of(DaskClient().get_executor(**options)).names() == expected


def test_a_call_to_a_worker_of_dask_goes_to_no_other_and_is_never_answered_from_memory() -> None:
    client = DaskClient()
    cluster = cluster_of(client.get_executor(resources={"GPU": 1}))
    assert cluster.submit("tcp://1", pickle.dumps("asked")).result() == "asked"
    bound = {"workers": ["tcp://1"], "allow_other_workers": False, "pure": False, "retries": 0}
    assert client.options[-1] == {**bound, "resources": {"GPU": 1}}


def test_a_scheduler_that_is_gone_is_an_error() -> None:
    with pytest.raises(WorkerError, match=r"does not answer \(OSError: closed\)"):
        cluster_of(DaskClient(OSError("closed"))).names()


def test_engines_are_known_by_their_numbers_from_client_view_and_executor() -> None:
    client = Engines()
    view = client.load_balanced_view()
    for given in (client, view, view.executor):
        assert cluster_of(given).names() == {"0", "1", "5"}
    assert cluster_of(View(client, [0, 5])).names() == {"0", "5"}
    assert cluster_of(client).submit("5", pickle.dumps("asked")).result() == "asked"


def test_what_compiles_is_the_executor_of_a_client_or_a_view() -> None:
    client = DaskClient()
    assert executor_of(client).submit is at_once
    assert client.options == [{"pure": False}]
    assert executor_of(Engines()).submit is at_once
    with ThreadPoolExecutor(1) as pool:
        assert executor_of(pool) is pool


def test_another_executor_has_so_many_processes_without_a_name() -> None:
    with ThreadPoolExecutor(3) as pool:
        cluster = cluster_of(pool)
        assert not cluster.is_addressed
        assert len(cluster.names()) == 3
        assert cluster.submit("1", pickle.dumps("asked")).result() == "asked"


def test_what_takes_no_calls_is_refused() -> None:
    with pytest.raises(UsageError, match=r"executor is 4; expected a concurrent\.futures\.Executor, a Client of dask"):
        cluster_of(4)
