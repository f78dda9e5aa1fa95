"""Where a descent starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
import triton

from kernellab.store import Store
from kernellab.store.columns import Status
from kernellab.timing.config import Config, NonJsonValue, Space
from kernellab.timing.launches import Launches
from kernellab.timing.provenance import key_of
from kernellab.tune.options import Options
from kernellab.tune.result import Row
from kernellab.tune.run_tuning import Environment, tune_launches
from kernellab.tune.search import best_nearby, fastest_fitting
from tests.labs import shared_lab
from tests.tune.fakes import FakeBench, config
from tests.tune.frames import row
from tests.tune.test_records import records
from tests.tune.test_run_tuning import DEVICE, N, scale

A, B, C = config(64), config(128), config(256)


def anything(found: Config) -> bool:
    return True


def rows(*found: Row) -> dict[Config, Row]:
    return {each.config: each for each in found}


def key(n: int, *, device: str = "NVIDIA H200", dtype: str = "*fp32") -> str:
    return key_of({"values": {"n": str(n), "mode": "'fast'"}, "device": device, "signature": [["x", dtype]]})


def nearby(kept: Mapping[str, Config], wanted: str) -> Config | None:
    """Return where to start for one kind of launch, with the best configs of others in a store."""
    store = Store(None)
    for each, best in kept.items():
        records(store, each).add([row(best, 1.0), row(C, 9.0)])
    return best_nearby(store.history.measurements(records(store).version_id), wanted, anything)


def test_the_fastest_that_ran_well_and_fits_is_the_best_known() -> None:
    found = rows(row(A, 1.0, Status.WRONG), row(B, 2.0), row(C, 3.0))
    assert fastest_fitting(found, anything) == B
    assert fastest_fitting(found, lambda each: each != B) == C
    assert fastest_fitting({}, anything) is None


def test_values_that_the_store_keeps_as_text_are_no_start() -> None:
    kept = replace(A, parameters=(("MODE", NonJsonValue("Mode.FAST", "a key")),))
    assert fastest_fitting(rows(row(kept, 1.0)), anything) is None


@pytest.mark.parametrize(
    ("kept", "best"),
    [
        ({}, None),
        ({key(1024): A, key(65536): B}, A),
        ({key(4096, device="NVIDIA A100"): A, key(65536): B}, B),
        ({key(4096, dtype="*fp16"): A, key(65536): B}, B),
        ({"no JSON": A}, A),
    ],
    ids=["nothing", "sizes", "device", "signature", "unreadable"],
)
def test_the_best_of_the_launches_most_like_these_comes_first(kept: dict[str, Config], best: Config | None) -> None:
    assert nearby(kept, key(4096)) == best


def descended(lab: Any, n: int, bench: FakeBench) -> list[Config]:
    """Return what a descent over blocks measures for so many elements."""
    environment = Environment(lab.compiler, lab.kernels, DEVICE, lambda *_: bench)
    space = Space(BLOCK=[64, 128, 256, 512, 1024], num_warps=[4], num_stages=[3], num_ctas=[1])
    x = torch.zeros(n)
    options = Options(space, search="descent")
    tune_launches(environment, Launches(scale, (1,), (x, x.clone(), n), {}, environment.device.target), options)
    return bench.measured


@pytest.mark.slow
def test_a_descent_starts_where_a_tuning_of_another_size_ended() -> None:
    times = {Config.of({"BLOCK": 2**i, "num_warps": w, "num_stages": s, "num_ctas": 1}): abs(i - 9.0) + w + s
             for i in range(4, 13) for w in (1, 2, 4, 8) for s in range(1, 6)}  # fmt: skip
    with shared_lab(target="cuda:90", store=":memory:") as lab:
        first = descended(lab, N, FakeBench(times, noise=0.0))
        second = descended(lab, 2 * N, FakeBench(times, noise=0.0))
    assert dict(first[0].parameters)["BLOCK"] == 64
    best = min(first, key=times.__getitem__)
    assert second[0] == best
    assert len(second) < len(first)


def test_configs_that_a_search_makes_up_have_the_hook_that_all_listed_share() -> None:
    def hook(arguments: dict[str, Any]) -> None: ...

    listed = [triton.Config({"BLOCK": block}, pre_hook=hook) for block in (64, 128)]
    given = Launches(scale, (1,), (), {}, DEVICE.target, common_hook=hook)
    given.originals = {Config.from_triton(each): each for each in listed}
    assert given.original(Config.from_triton(listed[1])) is listed[1]
    made_up = given.original(Config.of({"BLOCK": 1024}))
    assert (made_up.kwargs, made_up.pre_hook) == ({"BLOCK": 1024}, hook)
