"""Long lists: what a tuning does grows with the number of configs, and no faster. Calls are counted, not time."""

from __future__ import annotations

import cProfile
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import torch
import triton

from kernellab.checking.comparison import OutputDifference
from kernellab.errors import LaunchError
from kernellab.store.columns import Status
from kernellab.timing.bench_jobs import NO_GROUP
from kernellab.timing.config import Space
from kernellab.timing.launches import Implementation
from kernellab.tune.device_pool import DevicePool
from kernellab.tune.options import Options
from kernellab.tune.progress import TuningProgress, Watch
from kernellab.tune.result import Row, Tuning
from kernellab.tune.search import Random
from kernellab.views.cards.tuning import tuning_card
from tests import samples
from tests.labs import shared_lab
from tests.tune.fakes import DIFFERENCE, Config, FakeBench, FakeCompiler, tune

SMALL, LARGE = 300, 900


def configs(count: int) -> list[Config]:
    return [Config.of({"BLOCK": 64, "num_warps": 4, "num_stages": stages}) for stages in range(1, count + 1)]


@dataclass(slots=True)
class SlowToCompare(FakeBench):
    """A bench whose comparisons take a second each, and where no two configs leave the same."""

    def compare(
        self, candidate: Implementation, others: Sequence[Implementation]
    ) -> list[tuple[OutputDifference, ...]]:
        self.clock.now_s += 1.0
        self.compared.append((candidate.config, *(other.config for other in others)))
        return [() if other is candidate else (DIFFERENCE,) for other in others]


def timed(count: int, *, devices: int = 1) -> Any:
    times = {config: 10.0 + place % 7 - 5.0 * place / count for place, config in enumerate(configs(count))}
    pool = DevicePool([partial(FakeBench, times, noise=0.0)] * devices, tuple(range(devices)))
    return tune(configs(count), pool, compiler=FakeCompiler(dawdles=True), options=Options(finals_s=1e9))


def shown(count: int) -> str:
    rows = tuple(Row(config, Status.OK, time_ms=1.0, device_index=0) for config in configs(count))
    return tuning_card(Tuning("scale", rows, (None,) * count, 0, (), 1.0, False)).text()


def pictured(count: int) -> str:
    rows = tuple(
        Row(config, Status.OK, time_ms=1.0 + place, low_ms=1.0, high_ms=2.0 + place, device_index=0)
        for place, config in enumerate(configs(count))
    )
    return tuning_card(Tuning("scale", rows, (None,) * count, 0, (), 1.0, False)).html()


def drawn(count: int) -> None:
    search = Random(Space(BLOCK=range(count)), count, random.Random(0))
    while search.ask():
        pass


def calls(work: Callable[[int], Any], count: int) -> int:
    profile = cProfile.Profile()
    profile.runcall(work, count)
    return sum(entry.callcount for entry in profile.getstats())


@pytest.mark.slow
@pytest.mark.parametrize(
    "work",
    [
        pytest.param(timed, id="timed"),
        pytest.param(lambda count: timed(count, devices=2), id="timed on two devices"),
        pytest.param(lambda count: tune(configs(count), None), id="without a GPU"),
        pytest.param(shown, id="shown"),
        pytest.param(pictured, id="pictured", marks=pytest.mark.exhaustive),
        pytest.param(drawn, id="drawn at random"),
    ],
)
def test_three_times_the_configs_are_about_three_times_the_work(work: Callable[[int], Any]) -> None:
    work(SMALL)  # imports, and what is made once
    assert calls(work, LARGE) < 1.25 * LARGE / SMALL * calls(work, SMALL)


def many_tuned(**options: Any) -> tuple[Tuning, int]:
    """Tune many configs, which an interrupt ends after the first; return also for how many a grid was asked for."""
    asked: list[Any] = []

    def grid(meta: Mapping[str, Any]) -> tuple[int]:
        asked.append(meta)
        return (1,)

    @contextmanager
    def interrupted(kernel: str) -> Iterator[Watch]:
        def told(progress: TuningProgress) -> None:
            if progress.stage == "screening" and progress.compiled and "budget_s" not in options:
                raise KeyboardInterrupt

        yield told

    listed = [triton.Config({"BLOCK": 128}, num_stages=stages) for stages in range(1, LARGE + 1)]
    x, out = torch.ones(100), torch.zeros(100)
    with shared_lab(store=":memory:") as lab:
        lab.launches.tuning_reporter = interrupted
        return lab.tune(samples.scale_kernel, grid, x, out, 100, configs=listed, timeout_s=60, **options), len(asked)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"budget_s": 1e-9}, "not measured: the budget was spent"),
        ({}, "not measured: the tuning was interrupted"),
    ],
    ids=["a budget", "an interrupt"],
)
def test_the_first_of_many_configs_is_there_when_few_were_prepared(options: dict[str, Any], reason: str) -> None:
    tuning, prepared = many_tuned(**options)
    assert prepared < LARGE / 10
    assert len(tuning.rows) == LARGE
    assert sum(row.compile_s is not None for row in tuning.rows) == 1
    assert {row.status for row in tuning.rows} == {Status.NOT_TIMED}
    assert sum(row.reason == reason for row in tuning.rows) == LARGE - 1


def test_configs_that_no_launch_fits_are_told_by_the_first_of_the_list() -> None:
    def grid(meta: Mapping[str, Any]) -> tuple[int]:
        return (-meta["BLOCK"],)

    listed = [triton.Config({"BLOCK": block}) for block in (64, 256, 128)]
    x = torch.ones(100)
    with shared_lab(store=":memory:") as lab, pytest.raises(LaunchError, match="-64"):
        lab.tune(samples.scale_kernel, grid, x, x.clone(), 100, configs=listed)


@pytest.mark.slow
def test_what_is_told_on_the_way_does_not_grow_with_the_list() -> None:
    listed = configs(LARGE)
    bench = FakeBench({config: 1.0 + place for place, config in enumerate(listed)}, noise=0.0)
    told: list[TuningProgress] = []
    tune(listed, bench, watch=told.append)
    assert max(len(progress.times_ms) for progress in told) < 0.6 * LARGE
    assert max(len(progress.fastest) + len(progress.latest) for progress in told) < 20
    assert told[-1].times_ms[0] == pytest.approx(1.0)
    assert told[-1].times_ms[-1] == pytest.approx(float(LARGE))
    assert list(told[-1].times_ms) == sorted(told[-1].times_ms)


@pytest.mark.slow
def test_a_vote_between_many_groups_is_given_up_soon_after_the_budget() -> None:
    listed = configs(LARGE)
    bench = SlowToCompare(dict.fromkeys(listed, 1.0), groups=dict.fromkeys(listed, NO_GROUP), noise=0.0)
    outcome = tune(listed, bench, options=Options(budget_s=4.0 * LARGE + 9.0, finals_s=10.0))
    assert outcome.winner is not None
    assert {row.status for row in outcome.rows.values()} == {Status.OK}
    assert 10 < len(bench.compared) < 30


@pytest.mark.slow
def test_configs_of_a_later_part_of_the_list_come_to_their_turn_within_a_budget() -> None:
    listed = configs(LARGE)
    bench = FakeBench(dict.fromkeys(listed[:-1], 2.0) | {listed[-1]: 1.0}, noise=0.0)
    outcome = tune(listed, bench, options=Options(budget_s=1e9, finals_s=1e9))
    assert outcome.winner == listed[-1]
    assert bench.measured == listed
