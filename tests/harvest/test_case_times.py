"""Times and shares of cases, from samples, graphs and predictions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernellab.harvest.record import (
    Basis,
    CasePrediction,
    HarvestedCase,
    HarvestedGraph,
    HarvestRecord,
    case_times,
    merged_record,
)
from kernellab.store import Argument, RecordedLaunch


def case(n: int, **fields: int | float | CasePrediction) -> HarvestedCase:
    arguments = (Argument("n", "scalar", value=n),)
    launch = RecordedLaunch((("n", "i32"),), arguments, {"num_warps": 4}, (1, 1, 1), "cuda:90", "gpu", "")
    return replace(HarvestedCase("add_kernel", "program", "program.py", 1, "triton", launch), **fields)  # type: ignore[arg-type]


def predicted(ms: float) -> CasePrediction:
    return CasePrediction(ms, ms / 2, "HBM", "H100")


def test_the_share_follows_from_mean_samples_and_counts() -> None:
    cases = case(1, launches=10, samples=2, sampled_ms=2.0), case(2, launches=30, samples=1, sampled_ms=1.0)
    times = case_times(HarvestRecord(cases))
    assert [time.share for time in times] == pytest.approx([0.25, 0.75])
    assert [time.basis for time in times] == [Basis.SAMPLED] * 2


def test_launches_that_timed_configs_have_no_share() -> None:
    cases = (
        case(1, launches=10, trials=10, samples=1, sampled_ms=1.0),
        case(2, launches=1, samples=1, sampled_ms=1.0),
    )
    assert [time.share for time in case_times(HarvestRecord(cases))] == [0.0, 1.0]


def test_a_case_in_a_graph_takes_at_most_what_the_sampled_ones_leave_of_a_replay() -> None:
    cases = (
        case(1, captured=2, replayed=20, launches=1, samples=1, sampled_ms=1.0),
        case(2, captured=1, replayed=10, prediction=predicted(6.0)),
    )
    graph = HarvestedGraph(replays=10, samples=2, sampled_ms=10.0, launches=((0, 2), (1, 1)))
    first, second = case_times(HarvestRecord(cases, (graph,)))
    assert (first.basis, second.basis) == (Basis.SAMPLED, Basis.GRAPH)
    assert second.ms == pytest.approx(3.0)
    less = replace(cases[1], prediction=predicted(2.0))
    assert case_times(HarvestRecord((cases[0], less), (graph,)))[1].ms == pytest.approx(2.0)


def test_a_case_without_times_has_no_share() -> None:
    time = case_times(HarvestRecord((case(1, launches=1),)))[0]
    assert (time.ms, time.share, time.basis) == (None, None, Basis.UNKNOWN)


def test_a_merged_graph_launches_the_merged_cases() -> None:
    graph = HarvestedGraph(3, 1, 1.0, ((0, 2),))
    left = HarvestRecord((case(1, launches=1), case(2, launches=1)), rest={"add_kernel": 2})
    right = HarvestRecord((case(2, replayed=6),), (graph,), rest={"add_kernel": 3}, unknown_replays=1)
    merged = merged_record([left, right])
    assert merged.graphs == (replace(graph, launches=((1, 2),)),)
    assert [(c.launches, c.replayed) for c in merged.cases] == [(1, 0), (1, 6)]
    assert (merged.rest, merged.unknown_replays) == ({"add_kernel": 5}, 1)
