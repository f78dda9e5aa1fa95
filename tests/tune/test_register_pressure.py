"""What the registers of compiled configs make a tuning try, and leave out."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

import kernellab
from kernellab.store.columns import Status
from kernellab.target import limits_of, parse_target
from kernellab.timing.config import Config, Space
from kernellab.tune import workloads
from kernellab.tune.options import Options
from kernellab.tune.result import Row
from kernellab.tune.search import Random, halve_for_registers, halve_within_space
from tests.labs import shared_lab
from tests.tune.fakes import FakeBench, FakeCompiler, compiled, config, tune
from tests.tune.test_run_tuning import FirstTwo

LIMITS = limits_of(parse_target("cuda:90"))
A, B, C, D = config(64), config(128), config(256), config(512)


@pytest.fixture(scope="module")
def lab() -> Iterator[kernellab.Lab]:
    with shared_lab(target="cuda:90", store=":memory:") as lab:
        yield lab


@triton.jit
def scale_rows(x_ptr, out_ptr, n, R0_BLOCK: tl.constexpr, XBLOCK: tl.constexpr):
    for row in range(XBLOCK):
        offsets = row * n + tl.arange(0, R0_BLOCK)
        tl.store(out_ptr + offsets, tl.load(x_ptr + offsets) * 2)


def tuned(lab: kernellab.Lab, configs: Space | Sequence[Any], **options: Any) -> list[int]:
    """Return the blocks of the rows of a tuning."""
    x = torch.zeros(8192)
    tuning = lab.tune(scale_rows, (1,), x, x.clone(), 8192, configs=configs, **options)
    return [dict(row.config.parameters)["R0_BLOCK"] for row in tuning.rows]


def test_a_block_is_halved_only_where_registers_hold_blocks_back() -> None:
    assert LIMITS is not None
    large = Config.of({"XBLOCK": 1, "R0_BLOCK": 2048, "num_warps": 8})
    halved = halve_for_registers(large, 128, LIMITS)
    assert halved is not None
    assert halved.values["R0_BLOCK"] == 1024
    assert halve_for_registers(large, 32, LIMITS) is None
    assert halve_for_registers(Config.of({"R0_BLOCK": 32}), 128, LIMITS) is None


def test_of_a_space_the_largest_block_is_halved_that_the_space_has_in_two() -> None:
    assert LIMITS is not None
    space = Space(M=[64, 128], N=[256], num_warps=[4], where="M != 64 or N != 512")
    wide = Config.of({"M": 128, "N": 256, "num_warps": 4})
    assert halve_within_space(space, wide, 200, LIMITS) == Config.of({"M": 64, "N": 256, "num_warps": 4})
    excluded = Space(M=[64, 128], N=[256], num_warps=[4], where="M == 128")
    assert halve_within_space(excluded, wide, 200, LIMITS) is None


@pytest.mark.slow
def test_a_search_over_a_space_also_tries_halves_of_blocks_that_take_many_registers(lab: kernellab.Lab) -> None:
    space = Space(R0_BLOCK=[8192, 4096, 32], XBLOCK=[1], num_warps=[4])
    drawn = Config.of({"R0_BLOCK": 8192, "XBLOCK": 1, "num_warps": 4})
    search = FirstTwo(drawn)
    assert tuned(lab, space, search=search) == [8192, 4096]
    assert search.told == [drawn]
    assert tuned(lab, space) == [8192, 4096, 32]


@pytest.mark.slow
def test_a_generated_list_grows_by_the_halves_of_blocks_that_take_many_registers(lab: kernellab.Lab) -> None:
    (generated,) = workloads.reduction(1, 8192, "inner")
    listed = [generated.with_values({"R0_BLOCK": 8192, "num_warps": 4})]
    found = tuned(lab, listed)
    assert found[:2] == [8192, 4096]
    assert found == sorted(found, reverse=True)


@pytest.mark.slow
def test_a_list_of_the_user_is_tried_as_it_is(lab: kernellab.Lab) -> None:
    assert tuned(lab, [triton.Config({"R0_BLOCK": 8192, "XBLOCK": 1}, num_warps=4)]) == [8192]


def test_what_is_suggested_is_tried_once_and_suggests_in_turn() -> None:
    bench = FakeBench({A: 1.0, B: 2.0, C: 3.0, D: 4.0})
    smaller = {D: C, C: B, B: A, A: A}
    told: list[Row] = []

    def suggested(config: Config, row: Row) -> Config | None:
        told.append(row)
        return smaller[config]

    outcome = tune([D, B], bench, suggest=suggested)
    assert bench.measured == [D, B, C, A]
    assert outcome.winner == A
    assert all(row.registers for row in told)


@pytest.mark.parametrize("has_gpu", [True, False])
def test_a_random_search_with_a_budget_tries_so_many_configs_and_no_halves(has_gpu: bool) -> None:
    space = Space(BLOCK=[2**power for power in range(4, 12)], num_warps=[1, 2, 4, 8])
    search = Random(space, 12, random.Random(0), batch=4)
    times = {Config.of({"BLOCK": b, "num_warps": w}): 1.0 for b in space.values["BLOCK"] for w in (1, 2, 4, 8)}
    known = {each: Row(each, Status.OK, time_ms=2.0) for each in itertools.islice(times, 5)}
    bench = FakeBench(times) if has_gpu else None

    def halved(config: Config, row: Row) -> Config | None:
        half = config.with_values({"BLOCK": config.values["BLOCK"] // 2})
        return half if half in times else None

    for options, many in ((Options(budget_configs=12, finals_s=1e9), False), (Options(finals_s=1e9), True)):
        again = replace(search, _seen=set(), _count=0, rng=random.Random(0))
        outcome = tune([], bench, search=again, suggest=halved, options=options, known=known if has_gpu else {})
        assert (len(outcome.rows) > 12) is many
        assert len(outcome.rows) >= 12


def test_a_config_that_was_suggested_is_not_measured_again_when_the_search_asks_for_it() -> None:
    bench = FakeBench({A: 1.0, B: 2.0, C: 3.0})
    asked = [[C], [A, B]]

    class Asking:
        def ask(self) -> list[Config]:
            return asked.pop(0) if asked else []

        def tell(self, config: Config, time_ms: float | None) -> None: ...

    tune([], bench, search=Asking(), suggest=lambda config, row: {C: B}.get(config))
    assert bench.measured == [C, B, A]


def test_spills_drop_a_config_unless_it_is_listed() -> None:
    compiler = FakeCompiler({A: compiled(spill_bytes=4096)})
    times, options = {A: 1.0, B: 2.0}, Options([A, B], finals_s=1e9)
    dropped = tune([A, B], FakeBench(times), compiler=compiler, options=options)
    assert (dropped.rows[A].status, dropped.winner) == (Status.PRUNED, B)
    assert tune([A, B], FakeBench(times), compiler=compiler).winner == A


def test_where_all_spill_those_that_spill_least_are_measured() -> None:
    spills = {A: 8000, B: 600, C: 4000}
    compiler = FakeCompiler({each: compiled(spill_bytes=count) for each, count in spills.items()})
    bench = FakeBench(dict.fromkeys(spills, 1.0) | {B: 0.5})
    options = Options([A, B, C], max_finalists=2, finals_s=1e9)
    seen: list[Any] = []
    outcome = tune([A, B, C], bench, compiler=compiler, options=options, watch=seen.append)
    assert outcome.winner == B
    assert bench.measured == [B, C]
    assert outcome.rows[A].status is Status.PRUNED
    assert seen[-1].compiled == 3
