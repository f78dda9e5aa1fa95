"""How points are timed and compared, on a bench whose times are made up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Event
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

import kernellab
from kernellab.checking.comparison import OutputDifference
from kernellab.checking.reference import check_of
from kernellab.errors import RunError, WorkerTimeout
from kernellab.explore.evaluator import Evaluator, OnGpu, OutputComparer, rounds_for
from kernellab.explore.points import FIRST, Evaluation, Point, PointHistory, Requests
from kernellab.target import parse_target
from kernellab.timing.bench_jobs import NOT_COMPARED, LaunchTimes
from kernellab.timing.launches import Implementation
from tests import samples

SIZE = 4096
NO_DEVICE = -1  # torch has no device to change to


@dataclass
class MadeUp:
    """A bench that takes the times from the block size; 512 faults, 1024 hangs, and 2048 computes something else."""

    met: list[list[int]] = field(default_factory=list)
    faults: set[int] = field(default_factory=lambda: {512})
    not_held: set[int] = field(default_factory=set)
    closed: int = 0

    def measure(self, candidate: Implementation, runs: int, stop_above_ms: float | None) -> LaunchTimes:
        block = candidate.config.values["BLOCK"]
        if block in self.faults:
            raise RunError("an illegal memory access")
        if block == 1024:
            raise WorkerTimeout("it did not end")
        return LaunchTimes((1.0,) * runs, NOT_COMPARED if block in self.not_held else int(block == 2048))

    def interleave(self, candidates: Sequence[Implementation], rounds: int) -> list[tuple[float, ...]]:
        self.met.append([candidate.config.values["BLOCK"] for candidate in candidates])
        return [tuple(64 / c.config.values["BLOCK"] + i / 10_000 for i in range(rounds)) for c in candidates]

    def compare(self, founder: Implementation, others: Sequence[Implementation]) -> list[tuple[OutputDifference, ...]]:
        return [(OutputDifference("out_ptr", 8, SIZE, 1.5),) for _ in others]

    def warm(self, candidates: Sequence[Implementation], runs: int) -> list[float]:
        return [1.0] * len(candidates)

    def close(self) -> None:
        self.closed += 1


@dataclass
class Evaluations:
    """Goes to points, one after the other."""

    evaluator: Evaluator
    bench: MadeUp

    def go(self, target: str = "", **values: Any) -> Evaluation:
        found = self.evaluator.evaluate(Point(tuple(values.items()), target), Event(), lambda evaluation: None)
        return self.evaluator.history.add(found)


@pytest.fixture
def evaluations(lab: kernellab.Lab) -> Evaluations:
    kernel, bench = lab.bind(samples.add_kernel), MadeUp()
    fixed = {name: torch.zeros(SIZE) for name in ("x_ptr", "y_ptr", "out_ptr")}
    requests = Requests(
        kernel,
        lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),),
        fixed,
        frozenset(kernel.arg_names),
        frozenset({"BLOCK"}),
    )
    on_gpu = OnGpu(lab.launches, lambda launches: bench, fixed, OutputComparer(None), NO_DEVICE, 1.0)
    evaluator = Evaluator(lab.compiler, requests, PointHistory("add_kernel"), parse_target("cuda:90"), on_gpu)
    return Evaluations(evaluator, bench)


@pytest.mark.slow
def test_a_point_meets_the_best_so_far(evaluations: Evaluations) -> None:
    first = evaluations.go(n=SIZE, BLOCK=64)
    second = evaluations.go(n=SIZE, BLOCK=128)
    third = evaluations.go(n=SIZE, BLOCK=32)
    assert evaluations.bench.met == [[64], [128, 64], [32, 128]]
    assert first.against is None
    assert second.against is not None
    assert second.against.high < 1
    assert (second.best, third.best) == (1, 2)
    assert third.row.status == "ok"


def test_rates_follow_from_what_the_kernel_moves(evaluations: Evaluations) -> None:
    row = evaluations.go(n=SIZE, BLOCK=64).row
    assert row.time_ms is not None
    assert row.gbps == pytest.approx(3 * 4 * SIZE / row.time_ms / 1e6)
    assert row.low_ms is not None
    assert row.high_ms is not None
    assert row.low_ms <= row.time_ms <= row.high_ms


@pytest.mark.slow
def test_points_that_fail_are_rows_with_their_reason_and_the_bench_is_given_back(evaluations: Evaluations) -> None:
    assert evaluations.go(n=SIZE, BLOCK=64).row.status == "ok"
    fault, hang = evaluations.go(n=SIZE, BLOCK=512), evaluations.go(n=SIZE, BLOCK=1024)
    assert (fault.row.status, fault.row.reason) == ("fault", "an illegal memory access")
    assert hang.row.status == "timeout"
    assert fault.row.registers is not None
    assert evaluations.bench.closed == 3


@pytest.mark.slow
def test_other_outputs_than_those_of_the_first_point_differ_and_are_never_the_best(evaluations: Evaluations) -> None:
    evaluations.go(n=SIZE, BLOCK=64)
    other = evaluations.go(n=SIZE, BLOCK=2048)
    assert other.row.status == "differs"
    assert other.verdict.is_right is None
    assert other.row.reason == (
        f"differs from the first point (n={SIZE}, BLOCK=64), which is not checked: "
        f"{OutputDifference('out_ptr', 8, SIZE, 1.5).text}"
    )
    assert evaluations.go(n=SIZE, BLOCK=128).best == 1


def test_a_config_that_differs_differs_at_other_sizes_too(evaluations: Evaluations) -> None:
    evaluations.go(n=SIZE, BLOCK=64)
    evaluations.go(n=SIZE, BLOCK=2048)
    other = evaluations.go(n=1000, BLOCK=2048)
    assert other.row.status == "differs"
    assert "the config of the first point (n=1000, BLOCK=64)" in other.row.reason
    assert evaluations.go(n=1000, BLOCK=64).verdict is FIRST
    assert evaluations.bench.met == [[64], [2048, 64], [2048], [64]], "it is launched for its outputs, and not timed"


def test_a_first_config_that_fails_at_other_sizes_leaves_the_point_unchecked(evaluations: Evaluations) -> None:
    evaluations.go(n=SIZE, BLOCK=64)
    evaluations.bench.faults.add(64)
    assert evaluations.go(n=1000, BLOCK=128).verdict is FIRST


def test_outputs_that_were_not_held_are_those_of_no_first_config(evaluations: Evaluations) -> None:
    evaluations.go(n=SIZE, BLOCK=64)
    evaluations.bench.not_held.add(64)
    assert evaluations.go(n=1000, BLOCK=128).verdict is FIRST


@pytest.mark.slow
def test_sizes_race_among_themselves(evaluations: Evaluations) -> None:
    evaluations.go(n=SIZE, BLOCK=64)
    assert evaluations.go(n=1000, BLOCK=128).best is None
    assert evaluations.bench.met == [[64], [128]]


def test_another_target_is_only_compiled(evaluations: Evaluations) -> None:
    evaluation = evaluations.go("hip:gfx942", n=SIZE, BLOCK=64)
    assert evaluation.compiled is not None
    assert evaluation.row.time_ms is None
    assert evaluations.bench.met == []


def test_a_superseded_point_is_not_timed(evaluations: Evaluations) -> None:
    superseded = Event()
    superseded.set()
    evaluation = evaluations.evaluator.evaluate(
        Point((("n", SIZE), ("BLOCK", 64)), ""), superseded, lambda evaluation: None
    )
    assert evaluation.compiled is not None
    assert evaluations.bench.met == []


def test_what_is_compiled_is_told_before_it_is_timed(evaluations: Evaluations) -> None:
    told: list[Evaluation] = []
    evaluations.evaluator.evaluate(Point((("n", SIZE), ("BLOCK", 64)), ""), Event(), told.append)
    (partly,) = told
    assert partly.is_partial
    assert partly.row.registers is not None
    assert partly.row.time_ms is None


@triton.jit
def sum_into(x_ptr, out_ptr, BLOCK: tl.constexpr):
    tl.atomic_add(out_ptr, tl.sum(tl.load(x_ptr + tl.arange(0, BLOCK))))


@pytest.mark.parametrize(("expected", "equal"), [(64.0, True), (69.0, False)])
def test_points_are_checked_on_zeros_where_a_tuning_sets_them(lab: kernellab.Lab, expected: float, equal: bool) -> None:
    kernel, bench = lab.bind(sum_into), MadeUp()
    fixed = {"x_ptr": torch.ones(64), "out_ptr": torch.full((1,), 5.0)}
    requests = Requests(kernel, (1,), fixed, frozenset(kernel.arg_names), frozenset({"BLOCK"}))
    comparer = OutputComparer(check_of(lambda out_ptr: out_ptr + expected))
    on_gpu = OnGpu(lab.launches, lambda launches: bench, fixed, comparer, NO_DEVICE, 60.0, ("out_ptr",))
    evaluator = Evaluator(lab.compiler, requests, PointHistory("sum_into"), parse_target("cuda:90"), on_gpu)
    for _ in range(2):
        evaluation = Evaluations(evaluator, bench).go(BLOCK=64)
        assert evaluation.verdict.equal is equal, evaluation.verdict.text
    assert fixed["out_ptr"].item() == 5.0


def test_fast_kernels_are_timed_more_often_than_slow_ones() -> None:
    assert rounds_for(0.001) == 25
    assert rounds_for(2.0) == 14
    assert rounds_for(100.0) == 5
