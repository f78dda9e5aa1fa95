"""Spaces of products: blocks that the extents and the shared memory have room for."""

from __future__ import annotations

from kernellab.tune import workloads


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


def test_a_range_has_the_blocks_of_its_largest_extent() -> None:
    assert workloads.matmul(range(1, 4097), 64, 64).values == workloads.matmul(4096, 64, 64).values
