"""The time of each harvested case: sampled, shared out from the replays of its graph, or predicted."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from kernellab.harvest.record import HarvestedGraph, HarvestRecord


class Basis(StrEnum):
    """How the time of a case is known: ``graph`` is predicted, at most what the replays of its graph leave for it."""

    SAMPLED = "sampled"
    GRAPH = "graph"
    PREDICTED = "predicted"
    UNKNOWN = ""


@dataclass(frozen=True, slots=True)
class CaseTime:
    """The milliseconds of one launch of a case, or None, and those of all its launches."""

    ms: float | None
    total_ms: float | None
    share: float | None
    basis: Basis


def case_times(record: HarvestRecord) -> list[CaseTime]:
    """The times of all cases, with their shares of the sum."""
    known = [_case_ms(record, place) for place in range(len(record.cases))]
    totals = [None if ms is None else ms * c.count for (ms, _), c in zip(known, record.cases, strict=True)]
    whole = sum(total for total in totals if total is not None)
    return [
        CaseTime(ms, total, None if total is None or not whole else total / whole, basis)
        for (ms, basis), total in zip(known, totals, strict=True)
    ]


def _case_ms(record: HarvestRecord, place: int) -> tuple[float | None, Basis]:
    case = record.cases[place]
    if case.samples:
        return case.sampled_ms / case.samples, Basis.SAMPLED
    if case.prediction is None:
        return None, Basis.UNKNOWN
    graphs = [graph for graph in record.graphs if graph.samples and any(at == place for at, _ in graph.launches)]
    if not graphs:
        return case.prediction.time_ms, Basis.PREDICTED
    most_replayed = max(graphs, key=lambda graph: graph.replays)
    return case.prediction.time_ms * _scale(record, most_replayed), Basis.GRAPH


def _scale(record: HarvestRecord, graph: HarvestedGraph) -> float:
    """The factor of predicted times in a graph: less than 1 where they exceed what its sampled cases leave."""
    left, predicted = graph.sampled_ms / graph.samples, 0.0
    for place, count in graph.launches:
        case = record.cases[place]
        if case.samples:
            left -= count * case.sampled_ms / case.samples
        elif case.prediction is not None:
            predicted += count * case.prediction.time_ms
    return min(1.0, max(left, 0.0) / predicted) if predicted else 1.0
