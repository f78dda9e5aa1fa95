"""The verb `Lab.harvest`: counts launches inside a with statement, and predicts rooflines of their cases later."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from kernellab._triton.launch_hooks import observe_launches
from kernellab.errors import KernellabError, first_line
from kernellab.explain.prediction_verbs import predict_implementation
from kernellab.explain.verbs import device_of
from kernellab.harvest.case_times import case_times
from kernellab.harvest.counting import CaseCount, LaunchCounter
from kernellab.harvest.graphs import GraphCount, GraphCounter
from kernellab.harvest.record import CasePrediction, HarvestedCase, HarvestedGraph, HarvestRecord
from kernellab.harvest.result import Harvest
from kernellab.harvest.sampling import DeviceSampler, cuda_clock
from kernellab.launch.calls import UserCall
from kernellab.registry import Session
from kernellab.registry.calls import compile_call
from kernellab.registry.launches_from_store import regenerated_inputs, values_of

_MOST_PREDICTED = 24
_PREDICTING_S = 30.0


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

    run = running_harvest()
    seen = Harvest(run.record, lambda record: with_predictions(session(), record, run.launches.cases))
    with ExitStack() as watches:
        watches.enter_context(run.graphs.watch(torch.cuda.CUDAGraph))
        watches.enter_context(observe_launches(run.launches, inductor=inductor))
        try:
            yield seen
        finally:
            run.end_s = time.perf_counter()


def running_harvest() -> RunningHarvest:
    """The counters of a harvest on this machine."""
    import torch

    sampler = DeviceSampler(cuda_clock())
    graphs = GraphCounter(torch.cuda.is_current_stream_capturing, sampler)
    return RunningHarvest(sampler, graphs, LaunchCounter(graphs, sampler), time.perf_counter())


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
