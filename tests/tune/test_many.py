"""Long lists: what a tuning does grows with the number of configs, and no faster. Calls are counted, not time."""

from __future__ import annotations

import cProfile
import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import triton

import kernellab
from kernellab.measure.config import Space
from kernellab.measure.outcomes import Status
from kernellab.tune.device_pool import DevicePool
from kernellab.tune.finals import Policy
from kernellab.tune.result import Row, Tuning
from kernellab.tune.search import Random
from kernellab.views.cards.tuning import tuning_text
from tests import samples
from tests.tune.fakes import Config, FakeBench, FakeCompiler, tune

SMALL, LARGE = 300, 900


def configs(count: int) -> list[Config]:
    return [Config.of({"BLOCK": 64, "num_warps": 4, "num_stages": stages}) for stages in range(1, count + 1)]


def timed(count: int, *, devices: int = 1) -> Any:
    times = {config: 10.0 + place % 7 - 5.0 * place / count for place, config in enumerate(configs(count))}
    pool = DevicePool([partial(FakeBench, times, noise=0.0)] * devices, tuple(range(devices)))
    return tune(configs(count), pool, compiler=FakeCompiler(dawdles=True), policy=Policy(finals_s=1e9))


def shown(count: int) -> str:
    rows = tuple(Row(config, Status.OK, time_ms=1.0, device_index=0) for config in configs(count))
    return tuning_text(Tuning("scale", rows, (None,) * count, 0, (), 1.0, False))


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
        pytest.param(drawn, id="drawn at random"),
    ],
)
def test_three_times_the_configs_are_about_three_times_the_work(work: Callable[[int], Any]) -> None:
    work(SMALL)  # imports, and what is made once
    assert calls(work, LARGE) < 1.25 * LARGE / SMALL * calls(work, SMALL)


def test_a_budget_that_is_spent_at_once_prepares_few_of_many_configs() -> None:
    listed = [triton.Config({"BLOCK": 128}, num_stages=stages) for stages in range(1, LARGE + 1)]
    x, out = torch.ones(100), torch.zeros(100)
    with kernellab.Lab(store=":memory:") as lab:
        profile = cProfile.Profile()
        tuning = profile.runcall(
            lab.tune, samples.scale_kernel, (1,), x, out, 100, configs=listed, budget_s=1e-9, timeout_s=60
        )
    prepared = [e for e in profile.getstats() if getattr(e.code, "co_qualname", "") == "Launches._launch"]
    assert len(tuning.rows) == LARGE
    assert sum(entry.callcount for entry in prepared) <= 3
    assert tuning.rows[0].compile_s is not None
    assert {row.status for row in tuning.rows} == {Status.NOT_TIMED}
    assert tuning.rows[-1].reason == "not measured: the budget was spent"


def test_configs_of_a_later_part_of_the_list_come_to_their_turn_within_a_budget() -> None:
    listed = configs(LARGE)
    bench = FakeBench(dict.fromkeys(listed[:-1], 2.0) | {listed[-1]: 1.0}, noise=0.0)
    outcome = tune(listed, bench, policy=Policy(budget_s=1e9, finals_s=1e9))
    assert outcome.winner == listed[-1]
    assert bench.measured == listed
