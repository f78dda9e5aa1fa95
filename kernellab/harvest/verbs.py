"""The verb `Lab.harvest`: counts launches inside a with statement, and predicts rooflines of their cases later.

A script or module is harvested as Python would run it, a function in all processes of an executor.
"""

from __future__ import annotations

import os
import runpy
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from kernellab._triton.launch_hooks import observe_launches
from kernellab.errors import KernellabError, UsageError, WorkerDied, WorkerError, first_line
from kernellab.explain.predicting import predict_implementation
from kernellab.explain.verbs import device_of
from kernellab.harvest.counting import CaseCount, GraphCount, GraphCounter, LaunchCounter
from kernellab.harvest.record import (
    CasePrediction,
    HarvestedCase,
    HarvestedGraph,
    HarvestRecord,
    case_times,
    merged_record,
)
from kernellab.harvest.result import Harvest
from kernellab.harvest.sampling import DeviceSampler, cuda_clock
from kernellab.launch.calls import UserCall
from kernellab.registry import Session
from kernellab.registry.calls import compile_call
from kernellab.registry.launches_from_store import regenerated_inputs, values_of
from kernellab.tune.cluster_calls import ClusterCall, future_result
from kernellab.tune.executors import Cluster, cluster_of
from kernellab.workers.forks_and_interrupts import Interrupted

_MOST_PREDICTED = 24
_PREDICTING_S = 30.0
_REFRESH_S = 1.0


@dataclass(slots=True)
class RunningHarvest:
    """One running harvest: the counters of launches, graphs and samples."""

    sampler: DeviceSampler
    graphs: GraphCounter
    launches: LaunchCounter
    begin_s: float
    end_s: float | None = None

    def record(self) -> HarvestRecord:
        """The counts so far."""
        self.sampler.read(waits=self.end_s is not None)
        self.graphs.fold()
        counts = list(self.launches.cases)
        places = {id(count): place for place, count in enumerate(counts)}
        replayed = [count.replayed for count in counts]
        for graph in self.graphs.graphs:
            for case, launches in graph.cases.items():
                replayed[places[id(case)]] += launches * graph.replays
        empty_ms = self.sampler.empty_ms
        return HarvestRecord(
            cases=tuple(_case(count, total, empty_ms) for count, total in zip(counts, replayed, strict=True)),
            graphs=tuple(_graph(graph, places, empty_ms) for graph in self.graphs.graphs),
            rest=dict(self.launches.rest),
            unknown_replays=self.graphs.unknown_replays,
            seconds=(time.perf_counter() if self.end_s is None else self.end_s) - self.begin_s,
        )


def _case(count: CaseCount, replayed: int, empty_ms: float) -> HarvestedCase:
    kernel = count.kernel
    code = getattr(getattr(kernel.function, "fn", None), "__code__", None)
    return HarvestedCase(
        kernel=kernel.name,
        module=getattr(kernel.function, "__module__", None) or "",
        file=code.co_filename if code is not None else "",
        line=code.co_firstlineno if code is not None else 0,
        origin=str(kernel.origin),
        launch=count.launch,
        config_names=kernel.config_names,
        launches=count.launches,
        trials=count.trials,
        captured=count.captured,
        replayed=replayed,
        samples=count.times.count,
        sampled_ms=max(count.times.sum_ms - empty_ms * count.times.count, 0.0),
    )


def _graph(graph: GraphCount, places: dict[int, int], empty_ms: float) -> HarvestedGraph:
    launches = tuple((places[id(case)], number) for case, number in graph.cases.items())
    sampled_ms = max(graph.times.sum_ms - empty_ms * graph.times.count, 0.0)
    return HarvestedGraph(graph.replays, graph.times.count, sampled_ms, launches)


@contextmanager
def harvest(session: Callable[[], Session], *, inductor: bool = False) -> Iterator[Harvest]:
    """Count the launches of this process inside a with statement; ``session`` predicts their cases later."""
    import torch

    sampler = DeviceSampler(cuda_clock())
    graphs = GraphCounter(torch.cuda.is_current_stream_capturing, sampler)
    run = RunningHarvest(sampler, graphs, LaunchCounter(graphs, sampler), time.perf_counter())
    seen = Harvest(run.record, lambda record: with_predictions(session(), record, run.launches.cases))
    with ExitStack() as watches:
        watches.enter_context(graphs.watch(torch.cuda.CUDAGraph))
        watches.enter_context(observe_launches(run.launches, inductor=inductor))
        try:
            yield seen
        finally:
            run.end_s = time.perf_counter()


def with_predictions(session: Session, record: HarvestRecord, counts: list[CaseCount]) -> HarvestRecord:
    """Predict the cases that take the most time, within a number and seconds; the others stay as they are.

    ``counts`` are those of the record's first cases, with the kernels. A case that cannot be predicted, such as one for
    an AMD device, keeps why.
    """
    times = case_times(record)
    order = sorted(range(len(counts)), key=lambda i: (-(times[i].total_ms or 0.0), -record.cases[i].count))
    cases, begin_s = list(record.cases), time.perf_counter()
    for place in order[:_MOST_PREDICTED]:
        if time.perf_counter() - begin_s > _PREDICTING_S:
            break
        if cases[place].prediction is None and not cases[place].no_roofline:
            cases[place] = predicted_case(session, cases[place], counts[place].kernel.function)
    return replace(record, cases=tuple(cases))


def predicted_case(session: Session, case: HarvestedCase, function: Any) -> HarvestedCase:
    """A case with its predicted time and roofline, compiled again for the session's target, or why it has none."""
    launch = case.launch
    if function is None or launch.grid is None or 0 in launch.grid:
        return replace(case, no_roofline="its grid is empty" if function else "its source is unknown")
    try:
        arguments = {**regenerated_inputs(launch, "cpu", fills_floats=False), **values_of(launch)}
        call = UserCall(session.bind(function), launch.grid, (), arguments)
        prediction = predict_implementation(compile_call(session, call, takes_best=False), device_of(session))
    except KernellabError as exc:  # of a target without a model, or a launch that cannot be made again
        return replace(case, no_roofline=first_line(exc).rstrip("."))
    bound_ms = prediction.time_ms * prediction.share
    known = CasePrediction(prediction.time_ms, bound_ms, prediction.bound, prediction.device)
    return replace(case, prediction=known)


OpenHarvest = Callable[[], AbstractContextManager[Harvest]]
"""Returns a harvest of the process in which it is called. It runs there, so it must be a function of a module."""


def harvest_on(executor: Any, opened: OpenHarvest, call: partial[Any]) -> Harvest:
    """Call a function in all processes of an executor, and merge their harvests.

    Raises:
        UsageError: it is not an executor, or the call cannot be pickled.
        WorkerError: the call failed in a process, or the process was lost.
    """
    subject = f"The harvest of {getattr(call.func, '__name__', 'a function')}"
    cluster = cluster_of(executor)
    try:
        data = ClusterCall(harvest_here, (opened, call), subject).to_bytes()
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


def harvest_here(sent: tuple[OpenHarvest, Callable[[], Any]]) -> HarvestRecord:
    """Call a function in this process, and return what it launched, with predictions while its kernels are at hand."""
    opened, call = sent
    with opened() as seen:
        try:
            call()
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


def run_program(program: str, arguments: Sequence[str], *, is_module: bool = False) -> int:
    """Run a script, or a module by name, as ``__main__``; return its exit status.

    An exception of the program is printed, and its status is 1.

    Raises:
        UsageError: there is no such script.
    """
    if not is_module and not Path(program).exists():
        raise UsageError(f"There is no script {program!r}; expected a file of Python, or -m and the name of a module.")
    with _command_line(program, arguments, os.getcwd() if is_module else str(Path(program).resolve().parent)):
        try:
            if is_module:
                runpy.run_module(program, run_name="__main__", alter_sys=True)
            else:
                runpy.run_path(program, run_name="__main__")
        except SystemExit as exc:
            if exc.code is None or isinstance(exc.code, int):
                return exc.code or 0
            print(exc.code, file=sys.stderr)  # as Python does for sys.exit("text")
            return 1
        except Exception:  # noqa: BLE001 - the program's own; what it has launched is harvested
            traceback.print_exc()
            return 1
    return 0


@contextmanager
def _command_line(program: str, arguments: Sequence[str], folder: str) -> Iterator[None]:
    before = sys.argv, sys.path[:]
    sys.argv = [program, *arguments]
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.argv, sys.path[:] = before
