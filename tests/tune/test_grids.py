"""Grids, beside those that Inductor's launchers compute."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernellab.errors import UsageError
from kernellab.tune import grids
from kernellab.tune.grids import BlockedExtents
from tests.tune.conftest import Inductor

XYZ = {"XBLOCK": 64, "YBLOCK": 32, "ZBLOCK": 2}
KERNELS = [BlockedExtents(1000), BlockedExtents(7, has_x_block=False), BlockedExtents(130, 3_000_000)]
COMBO = {
    "default_config": None, "num_kernels": 3,
    "xnumel_0": 1000, "no_x_dim_0": False, "xnumel_1": 7, "no_x_dim_1": True,
    "xnumel_2": None, "no_x_dim_2": False, "ynumel_2": None,
}  # fmt: skip
NUMELS = {"xnumel_2": 130, "ynumel_2": 3_000_000}
LISTED = [({"XBLOCK": 64}, (3, 4, 5)), ({"XBLOCK": 32}, (6, 4, 5))]


def theirs(inductor: Inductor, name: str, told: dict[str, Any], numels: dict[str, int], meta: dict[str, int]) -> Any:
    expression = getattr(inductor.heuristics, name)(inductor_meta=told, mode="python")
    expression.generate(meta)
    scope: dict[str, Any] = dict(numels)
    for line in expression.prefix:
        exec(line, scope)
    return tuple(eval(str(each), scope) for each in (expression.x_grid, expression.y_grid, expression.z_grid))


@pytest.mark.parametrize(
    ("name", "ours", "numels", "meta"),
    [
        ("Grid1D", grids.blocked(1000), {"xnumel": 1000}, XYZ),
        ("Grid1D", grids.blocked(1000), {"xnumel": 1000}, {}),
        ("Grid2D", grids.blocked(1000, 70), {"xnumel": 1000, "ynumel": 70}, XYZ),
        ("Grid3D", grids.blocked(1000, 70, 5), {"xnumel": 1000, "ynumel": 70, "znumel": 5}, XYZ),
        ("BatchMatmulGrid3D", grids.batched(1000, 70, 5), {"xnumel": 1000, "ynumel": 70, "znumel": 5}, XYZ),
        (
            "Grid2DWithYZOverflow",
            grids.overflowing(1000, 3_000_000),
            {"xnumel": 1000, "ynumel": 3_000_000},
            {"XBLOCK": 64, "YBLOCK": 16},
        ),
        ("CooperativeReductionGrid", grids.cooperative(70), {"xnumel": 70}, {"XBLOCK": 8, "RSPLIT": 16}),
        ("MixOrderReductionGrid", grids.mixed_order(1000), {"xnumel": 1000}, {"XBLOCK": 8, "RSPLIT_SIZE": 64}),
        ("SplitScanGrid", grids.split_scan(3, 5000), {"xnumel": 3, "r0_numel": 5000}, {"XBLOCK": 1, "R0_BLOCK": 256}),
    ],
)
def test_grids_are_inductors(
    inductor: Inductor, name: str, ours: grids.Grid, numels: dict[str, int], meta: dict[str, int]
) -> None:
    if not hasattr(inductor.heuristics, name):
        pytest.skip(f"this version of Inductor has no {name}")
    assert ours(meta) == theirs(inductor, name, {}, numels, meta)


@pytest.mark.parametrize("least", [0, 10_000])
@pytest.mark.parametrize("ours", [grids.sequential, grids.round_robin])
def test_grids_of_combined_kernels_are_inductors(known_inductor: Inductor, ours: Any, least: int) -> None:
    name = {"sequential": "SequentialComboKernelGrid", "round_robin": "RoundRobinComboKernelGrid"}[ours.__name__]
    told = {"combo_grid_meta": {**COMBO, "min_blocks": least}}
    assert ours(KERNELS, least)(XYZ) == theirs(known_inductor, name, told, NUMELS, XYZ)
    flat = {"combo_grid_meta": {**COMBO, "min_blocks": least, "num_kernels": 2}}
    assert ours(KERNELS[:2], least)(XYZ) == theirs(known_inductor, name, flat, NUMELS, XYZ)


@pytest.mark.parametrize("least", [0, 10_000_000])
def test_the_flattened_grid_of_combined_kernels_is_inductors(known_inductor: Inductor, least: int) -> None:
    meta = {"XBLOCK_0": 128, "XBLOCK_2": 32, "YBLOCK_2": 4}
    told = {"combo_grid_meta": {**COMBO, "min_blocks": least}}
    wanted = theirs(known_inductor, "SequentialFlattenComboKernelGrid", told, NUMELS, meta)
    assert grids.flattened(KERNELS, least)(meta) == wanted


def test_grids_that_are_given_are_inductors(known_inductor: Inductor) -> None:
    told = {"fixed_grid": (3, 4, 5), "precomputed_grids": [{"config": c, "python": grid} for c, grid in LISTED]}
    assert grids.fixed(3, 4, 5)(XYZ) == theirs(known_inductor, "FixedGrid", told, {}, XYZ)
    for block in (64, 32):
        meta = {"XBLOCK": block}
        assert grids.per_config(LISTED)(meta) == theirs(known_inductor, "PrecomputedGrid", told, {}, meta)


def test_configs_without_a_grid_are_named() -> None:
    with pytest.raises(UsageError, match=r"config \{'XBLOCK': 16\}; there are grids for XBLOCK=64; XBLOCK=32"):
        grids.per_config(LISTED)({"XBLOCK": 16})
    with pytest.raises(UsageError, match="RSPLIT_SIZE is 60; expected a multiple of XBLOCK, which is 8"):
        grids.mixed_order(100)({"RSPLIT_SIZE": 60, "XBLOCK": 8})


@given(st.integers(0, 1 << 30), st.integers(0, 1 << 30), st.sampled_from([1, 32, 1024]))
def test_an_overflowing_grid_covers_every_block_within_the_limit(x: int, y: int, block: int) -> None:
    _, wide, deep = grids.overflowing(x, y)({"XBLOCK": 64, "YBLOCK": block})
    assert wide <= grids.MAX_GRID_Y
    assert wide * deep >= grids.ceil_div(y, block)


@pytest.mark.parametrize(
    ("grid", "meta", "message"),
    [
        (lambda: grids.blocked(10, 70000, 4), {}, "grids.blocked has 70,000 programs along y; expected at most 65,535"),
        (lambda: grids.blocked(10, 4, 70000), {"XBLOCK": 2}, "70,000 programs along z"),
        (lambda: grids.blocked(10, 70000), {}, "take a larger block, or grids.overflowing"),
        (lambda: grids.blocked(1 << 40), {"XBLOCK": 64}, "programs along x; expected at most 2,147,483,647"),
        (lambda: grids.batched(70000, 8, 4), {}, "grids.batched has 70,000 programs along z"),
        (lambda: grids.cooperative(70000), {"RSPLIT": 2}, "grids.cooperative has 70,000 programs along y"),
        (lambda: grids.split_scan(70000, 512), {"R0_BLOCK": 256}, "grids.split_scan has 70,000 programs along y"),
        (lambda: grids.overflowing(1, 1 << 40), {}, "grids.overflowing has .* programs along z"),
        (lambda: grids.per_config([({}, (1, 70000, 1))]), {}, "grids.per_config has 70,000 programs along y"),
        (lambda: grids.fixed(1, 70000), {}, "grids.fixed has 70,000 programs along y.*: take a smaller grid"),
    ],
)
def test_grids_that_cuda_cannot_launch_are_errors(grid: Any, meta: dict[str, int], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        grid()(meta)


def test_a_larger_block_brings_a_grid_within_the_limits() -> None:
    assert grids.blocked(10, 70000, 4)({"YBLOCK": 2}) == (10, 35000, 4)


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        (grids.cooperative(64), "grids.cooperative needs RSPLIT, which the config lacks; it has XBLOCK."),
        (grids.mixed_order(64), "grids.mixed_order needs RSPLIT_SIZE, which the config lacks; it has XBLOCK."),
        (grids.split_scan(8, 64), "grids.split_scan needs R0_BLOCK or RBLOCK, which the config lacks; it has XBLOCK."),
    ],
)
def test_a_block_that_a_grid_needs_and_a_config_lacks_is_named(grid: grids.Grid, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        grid({"XBLOCK": 8})


def test_a_split_scan_has_a_program_for_each_block_of_rows() -> None:
    assert grids.split_scan(10, 5000)({"XBLOCK": 4, "R0_BLOCK": 256}) == (20, 3, 1)
    assert grids.split_scan(10, 5000)({"XBLOCK": 4, "RBLOCK": 256}) == (20, 3, 1)
