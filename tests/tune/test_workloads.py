"""Configs by workload, beside those of Inductor's heuristics; and grids, beside Inductor's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernellab.errors import UsageError
from kernellab.measure.config import Config
from kernellab.tune import grids, workloads
from kernellab.tune.workloads import MAX_BLOCK, MAX_GRID

HINTS = {"inner": "INNER", "outer": "OUTER", "tiny": "OUTER_TINY", "default": "DEFAULT"}
SIZES = st.integers(0, 24).map(lambda power: 1 << power)
LENGTHS = st.integers(1, 15).map(lambda power: 1 << power)


@dataclass(frozen=True)
class Inductor:
    """Inductor's heuristics, which take a second to import, its hints by our names, and the device that it is told."""

    heuristics: Any
    hints: Mapping[str, Any]
    device: Any


@pytest.fixture(scope="module")
def inductor() -> Inductor:
    heuristics = pytest.importorskip("torch._inductor.runtime.triton_heuristics")
    given = pytest.importorskip("torch._inductor.runtime.hints")
    device = given.DeviceProperties(
        type="cuda", index=0, multi_processor_count=132, cc=90, major=9, regs_per_multiprocessor=65536,
        max_threads_per_multi_processor=2048, warp_size=32,
    )  # fmt: skip
    hints = {name: getattr(given.ReductionHint, member) for name, member in HINTS.items()}
    return Inductor(heuristics, hints, device)


def same(ours: list[Config], theirs: list[Any]) -> None:
    wanted = dict.fromkeys((tuple(sorted(c.kwargs.items())), c.num_warps, c.num_stages) for c in theirs)
    found = [(tuple(sorted(c.parameters)), c.num_warps, c.num_stages) for c in ours]
    assert found == list(wanted)


@settings(max_examples=60, deadline=None)
@given(st.lists(SIZES, min_size=1, max_size=3))
def test_pointwise_configs_are_inductors(inductor: Inductor, numels: list[int]) -> None:
    try:
        theirs = inductor_pointwise(inductor, numels)
    except AssertionError:
        return  # where Inductor refuses its own block, there is nothing to compare
    same(workloads.pointwise(*numels), theirs)


def inductor_pointwise(inductor: Inductor, numels: list[int]) -> list[Any]:
    size_hints = dict(zip("xyz", numels, strict=False))
    meta = {"device": inductor.device, "constants": {}, "signature": {}}
    found: list[Any] = inductor.heuristics.pointwise(
        size_hints, meta, inductor_meta={"max_autotune_pointwise": True}, return_configs=True
    )
    return found


@settings(max_examples=80, deadline=None)
@given(x=SIZES, r=LENGTHS, hint=st.sampled_from(sorted(HINTS)), loads=st.sampled_from([0, 4, 12]))
def test_reduction_configs_are_inductors(inductor: Inductor, x: int, r: int, hint: str, loads: int) -> None:
    theirs = inductor.heuristics._reduction_configs(
        size_hints={"x": x, "r0_": r},
        inductor_meta={"reduction_hint": inductor.hints[hint], "num_load": loads, "num_reduction": 0},
        triton_meta={"device": inductor.device},
    )
    same(workloads.reduction(x, r, hint, loads=loads), theirs)  # type: ignore[arg-type]


@settings(max_examples=80, deadline=None)
@given(x=SIZES, r=LENGTHS, hint=st.sampled_from(sorted(HINTS)))
def test_persistent_reduction_configs_are_inductors(inductor: Inductor, x: int, r: int, hint: str) -> None:
    if hint == "inner" and not torch.cuda.is_available() and 256 <= r <= 1024:
        return  # Inductor takes another branch where there is no CUDA device
    theirs = inductor.heuristics._persistent_reduction_configs(
        {"x": x, "r0_": r}, inductor.hints[hint], {}, {"device": inductor.device}
    )
    same(workloads.persistent_reduction(x, r, hint), theirs)  # type: ignore[arg-type]


@given(st.lists(st.integers(1, 1 << 40), min_size=1, max_size=3))
def test_blocks_stay_within_their_limits_and_grids_within_the_devices(numels: list[int]) -> None:
    for config in workloads.pointwise(*numels):
        extents = grids.blocked(*numels)(config.values)
        for axis, extent in zip("XYZ", extents[: len(numels)], strict=False):
            block = config.values[f"{axis}BLOCK"]
            assert block <= MAX_BLOCK[axis]
            assert extent <= MAX_GRID[axis] or block == MAX_BLOCK[axis]


@given(x=SIZES, r=LENGTHS, multiprocessors=st.integers(1, 200))
def test_cooperating_programs_never_outnumber_the_multiprocessors(x: int, r: int, multiprocessors: int) -> None:
    for config in workloads.cooperative_reduction(x, r, multiprocessors):
        wide = grids.cooperative(x)(config.values)
        assert config.values["RSPLIT"] == 1 or wide[0] * wide[1] <= multiprocessors


def test_the_blocks_of_a_split_scan_are_large() -> None:
    assert min(config.values["R0_BLOCK"] for config in workloads.split_scan(4, 1 << 20)) >= 256


def test_products_stay_within_shared_memory() -> None:
    space = list(workloads.matmul(4096, 4096, 4096))
    assert 40 <= len(space) <= 400
    for config in space:
        values = config.values
        used_bytes = (values["BLOCK_M"] + values["BLOCK_N"]) * values["BLOCK_K"] * 2 * values["num_stages"]
        assert used_bytes <= 227 * 1024 + 1024


def test_small_problems_get_small_blocks() -> None:
    assert {config.values["BLOCK_M"] for config in workloads.matmul(16, 4096, 4096)} == {16}
    assert max(config.values["BLOCK_M"] for config in workloads.attention(32, 2048, 64)) <= 32


def test_four_extents_are_refused() -> None:
    with pytest.raises(UsageError, match="one to three extents"):
        workloads.pointwise(1, 2, 3, 4)


@given(st.integers(0, 1 << 30), st.integers(0, 1 << 30), st.sampled_from([1, 32, 1024]))
def test_an_overflowing_grid_covers_every_block_within_the_limit(x: int, y: int, block: int) -> None:
    _, wide, deep = grids.overflowing(x, y)({"XBLOCK": 64, "YBLOCK": block})
    assert wide <= grids.MAX_GRID_Y
    assert wide * deep >= grids.ceil_div(y, block)


@pytest.mark.parametrize(
    ("name", "ours", "numels", "meta"),
    [
        ("Grid1D", grids.blocked(1000), {"xnumel": 1000}, {"XBLOCK": 64}),
        ("Grid2D", grids.blocked(1000, 70), {"xnumel": 1000, "ynumel": 70}, {"XBLOCK": 64, "YBLOCK": 32}),
        (
            "Grid3D",
            grids.blocked(1000, 70, 5),
            {"xnumel": 1000, "ynumel": 70, "znumel": 5},
            {"XBLOCK": 64, "YBLOCK": 32, "ZBLOCK": 2},
        ),
        (
            "Grid2DWithYZOverflow",
            grids.overflowing(1000, 3_000_000),
            {"xnumel": 1000, "ynumel": 3_000_000},
            {"XBLOCK": 64, "YBLOCK": 16},
        ),
        ("CooperativeReductionGrid", grids.cooperative(70), {"xnumel": 70}, {"XBLOCK": 8, "RSPLIT": 16}),
        ("SplitScanGrid", grids.split_scan(3, 5000), {"xnumel": 3, "r0_numel": 5000}, {"XBLOCK": 1, "R0_BLOCK": 256}),
    ],
)
def test_grids_are_inductors(
    inductor: Inductor, name: str, ours: grids.Grid, numels: dict[str, int], meta: dict[str, int]
) -> None:
    expression = getattr(inductor.heuristics, name)(inductor_meta={}, mode="python")
    expression.generate(meta)
    scope: dict[str, Any] = dict(numels)
    for line in expression.prefix:
        exec(line, scope)
    theirs = tuple(eval(str(each), scope) for each in (expression.x_grid, expression.y_grid, expression.z_grid))
    assert ours(meta) == theirs
