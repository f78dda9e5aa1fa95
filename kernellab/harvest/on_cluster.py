"""A function called in all processes of an executor, with one harvest of what it launches there."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from kernellab.errors import KernellabError, UsageError, WorkerDied, WorkerError
from kernellab.harvest.record import HarvestRecord, merged_record
from kernellab.harvest.result import Harvest
from kernellab.tune.cluster_calls import ClusterCall, future_result
from kernellab.tune.executors import Cluster, cluster_of
from kernellab.workers.forks_and_interrupts import Interrupted

_REFRESH_S = 1.0


class OpenHarvest(Protocol):
    """Returns a harvest of the process in which it is called. It runs there, so it must be a function of a module."""

    def __call__(self, *, inductor: bool) -> AbstractContextManager[Harvest]: ...


@dataclass(frozen=True, slots=True)
class RemoteHarvest:
    """A function to call with a harvest around it, for another process; ``call`` has its arguments."""

    open: OpenHarvest
    call: Callable[[], Any]
    inductor: bool


def harvest_on(executor: Any, opened: OpenHarvest, call: partial[Any], *, inductor: bool) -> Harvest:
    """Call a function in all processes of an executor, and merge their harvests.

    Raises:
        UsageError: it is not an executor, or the call cannot be pickled.
        WorkerError: the call failed in a process, or the process was lost.
    """
    subject = f"The harvest of {getattr(call.func, '__name__', 'a function')}"
    cluster = cluster_of(executor)
    try:
        data = ClusterCall(harvest_here, RemoteHarvest(opened, call, inductor), subject).to_bytes()
    except UsageError as exc:  # a kernel holds locks, and cannot be pickled but by its name in a module
        raise UsageError(f"{exc.message} Functions with kernels go along from modules, not from a notebook.") from exc
    names = sorted(cluster.names())
    if not names:
        raise WorkerError(f"{subject} found no process: start workers first, client.wait_for_workers(1) with dask.")
    futures: dict[str, Future[bytes]] = {}
    try:
        for name in names:
            futures[name] = cluster.submit(name, data)
        records = dict(_records(cluster, futures, subject))
    except KeyboardInterrupt:
        raise Interrupted(f"{subject} was interrupted; the processes end the call by themselves.") from None
    finally:
        for future in futures.values():
            future.cancel()
    record = merged_record([records[name] for name in names])
    return Harvest(lambda: record)


def harvest_here(sent: RemoteHarvest) -> HarvestRecord:
    """Call a function in this process, and return what it launched, with predictions while its kernels are at hand."""
    with sent.open(inductor=sent.inductor) as seen:
        try:
            sent.call()
        except KernellabError:
            raise
        except Exception as exc:
            raise WorkerError(f"{type(exc).__name__}: {exc}", detail=traceback.format_exc()) from exc
    return seen.predict()


def _records(
    cluster: Cluster, futures: Mapping[str, Future[bytes]], subject: str
) -> Iterator[tuple[str, HarvestRecord]]:
    """Yield each process with its record, as they end; the first failure ends the wait for the others."""
    pending = dict(futures)
    while pending:
        wait(pending.values(), _REFRESH_S, FIRST_COMPLETED)
        lost = pending.keys() - cluster.names()  # dask never ends the call of a worker that is gone
        for name, future in list(pending.items()):
            if future.done():
                del pending[name]
                yield name, _require_record(future_result(future), name, subject)
            elif name in lost:
                raise WorkerDied(f"{subject} lost {name} before it ended.")


def _require_record(answer: Any, name: str, subject: str) -> HarvestRecord:
    if isinstance(answer, KernellabError):
        raise WorkerError(f"{subject} failed on {name}: {answer.message}", detail=answer.detail) from answer
    if not isinstance(answer, HarvestRecord):
        raise WorkerError(f"{subject} came back from {name} as a {type(answer).__name__}.")
    return answer
