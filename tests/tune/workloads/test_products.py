"""Spaces of products: blocks that the extents and the shared memory have room for."""

from __future__ import annotations

import pytest

from kernellab.target import parse_target, shared_bytes_limit
from kernellab.tune import workloads


def test_products_stay_within_shared_memory() -> None:
    space = list(workloads.matmul(4096, 4096, 4096))
    assert 40 <= len(space) <= 400
    for config in space:
        values = config.values
        used_bytes = (values["BLOCK_M"] + values["BLOCK_N"]) * values["BLOCK_K"] * 2 * values["num_stages"]
        assert used_bytes <= 227 * 1024


def test_small_problems_get_small_blocks() -> None:
    assert {config.values["BLOCK_M"] for config in workloads.matmul(16, 4096, 4096)} == {16}
    assert max(config.values["BLOCK_M"] for config in workloads.attention(32, 2048, 64)) <= 32


def test_a_range_has_the_blocks_of_its_largest_extent() -> None:
    assert workloads.matmul(range(1, 4097), 64, 64).values == workloads.matmul(4096, 64, 64).values


@pytest.mark.parametrize("target", ["cuda:80", "cuda:120", "hip:gfx942", "hip:gfx1100"])
@pytest.mark.parametrize("element_bytes", [1, 4])
def test_tiles_fit_into_the_shared_memory_of_the_target(target: str, element_bytes: int) -> None:
    limit = shared_bytes_limit(parse_target(target))
    assert limit is not None
    is_amd = target.startswith("hip")
    products = list(workloads.matmul(4096, 4096, 4096, target=target, element_bytes=element_bytes))
    held = [
        (each.values["BLOCK_M"] + each.values["BLOCK_N"]) * each.values["BLOCK_K"] * ((each.num_stages or 0) - is_amd)
        for each in products
    ]
    assert 0.4 * limit < max(held) * element_bytes <= limit
    assert {"waves_per_eu" in each.values for each in products} == {is_amd}
    for each in workloads.attention(4096, 4096, 64, target=target, element_bytes=element_bytes):
        rows = each.values["BLOCK_M"] + 2 * each.values["BLOCK_N"] * ((each.num_stages or 0) - is_amd)
        assert rows * 64 * element_bytes <= limit


def test_a_thread_accumulates_as_many_elements_whatever_the_size_of_a_warp() -> None:
    for target, warp_size in (("cuda:90", 32), ("hip:gfx942", 64)):
        for each in workloads.matmul(4096, 4096, 4096, target=target):
            per_thread = each.values["BLOCK_M"] * each.values["BLOCK_N"] / ((each.num_warps or 0) * warp_size)
            assert 16 <= per_thread <= 256
