from __future__ import annotations

import ctypes
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

import kernellab
from kernellab.target import BlockNeeds, limits_of, occupancy, occupancy_step, parse_target
from tests.kernels.cases import all_cases

CASES = all_cases()


@pytest.mark.parametrize(
    ("target", "threads", "registers", "shared", "blocks", "share", "limiter"),
    [
        ("cuda:90", 128, 32, 0, 16, 1.0, "registers"),
        ("cuda:90", 128, 16, 0, 16, 1.0, "threads"),
        ("cuda:90", 32, 16, 0, 32, 0.5, "blocks"),
        ("cuda:90", 128, 255, 0, 2, 0.125, "registers"),
        ("cuda:90", 256, 168, 0, 1, 0.125, "registers"),
        ("cuda:90", 256, 64, 100 * 1024, 2, 0.25, "shared memory"),
        ("cuda:90", 128, 64, 227 * 1024, 1, 0.0625, "shared memory"),
        ("cuda:75", 256, 32, 0, 4, 1.0, "threads"),
        ("cuda:75", 32, 16, 0, 16, 0.5, "blocks"),
        ("cuda:75", 128, 32, 33 * 1024, 1, 0.125, "shared memory"),
        ("cuda:86", 128, 40, 0, 12, 1.0, "registers"),
        ("cuda:120", 1024, 64, 0, 1, 2 / 3, "registers"),
        ("hip:gfx90a", 256, 64, 0, 8, 1.0, "registers"),
        ("hip:gfx942", 256, 65, 0, 7, 0.875, "registers"),
        ("hip:gfx942", 256, 512, 0, 1, 0.125, "registers"),
        ("hip:gfx942", 64, 32, 0, 32, 1.0, "threads"),
        ("hip:gfx942", 256, 32, 33 * 1024, 1, 0.125, "shared memory"),
        ("hip:gfx950", 256, 32, 33 * 1024, 4, 0.5, "shared memory"),
        ("hip:gfx1100", 128, 97, 0, 12, 0.75, "registers"),
        ("hip:gfx1100", 128, 32, 40 * 1024, 3, 0.1875, "shared memory"),
        ("hip:gfx1102", 128, 97, 0, 9, 0.5625, "registers"),
        ("hip:gfx1250", 128, 1024, 0, 1, 0.0625, "registers"),
    ],
)
def test_occupancy_follows_the_calculator(
    target: str, threads: int, registers: int, shared: int, blocks: int, share: float, limiter: str
) -> None:
    limits = limits_of(parse_target(target))
    assert limits is not None
    found = occupancy(limits, BlockNeeds(threads, registers, shared))
    assert (found.blocks, found.share) == (blocks, pytest.approx(share))
    assert found.limiter == limiter


def test_scalar_registers_bound_the_waves_of_cdna() -> None:
    limits = limits_of(parse_target("hip:gfx942"))
    assert limits is not None
    found = occupancy(limits, BlockNeeds(256, 16, 0, scalar_registers=101))
    assert (found.blocks, found.share, found.limiter) == (7, 0.875, "scalar registers")


@pytest.mark.parametrize(
    ("target", "needs", "need", "then", "blocks"),
    [
        ("cuda:90", BlockNeeds(128, 82, 24 * 1024), "registers", 80, 6),
        ("cuda:90", BlockNeeds(128, 255, 0), "registers", 168, 3),
        ("cuda:90", BlockNeeds(256, 64, 100 * 1024), "shared memory", 75 * 1024, 3),
        ("cuda:90", BlockNeeds(32, 16, 0), "threads", 64, 32),
        ("cuda:89", BlockNeeds(1024, 32, 0), "threads", 512, 3),
        ("hip:gfx942", BlockNeeds(256, 65, 0), "registers", 64, 8),
    ],
)
def test_the_nearest_step_is_the_least_change_that_raises_the_occupancy(
    target: str, needs: BlockNeeds, need: str, then: int, blocks: int
) -> None:
    limits = limits_of(parse_target(target))
    assert limits is not None
    step, before = occupancy_step(limits, needs), occupancy(limits, needs)
    assert step is not None
    assert (step.need, step.then, step.after.blocks) == (need, then, blocks)
    assert step.after.share > before.share
    if need != "threads":  # one more of it, and nothing is gained
        field = {"registers": "registers", "shared memory": "shared_bytes"}[need]
        assert occupancy(limits, replace(needs, **{field: then + 1})) == before


def test_what_two_needs_limit_has_no_step() -> None:
    limits = limits_of(parse_target("cuda:90"))
    assert limits is not None
    both = BlockNeeds(128, 128, 48 * 1024)
    assert occupancy(limits, both).limiters == ("registers", "shared memory")
    assert occupancy_step(limits, both) is None
    assert occupancy_step(limits, BlockNeeds(128, 16, 0)) is None


def test_more_registers_never_raise_the_occupancy() -> None:
    limits = limits_of(parse_target("cuda:90"))
    assert limits is not None
    shares = [occupancy(limits, BlockNeeds(128, r, 0)).share for r in range(1, 256)]
    assert shares == sorted(shares, reverse=True)


@pytest.fixture(scope="module")
def gpu_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kernellab.Lab]:
    with kernellab.Lab(store=tmp_path_factory.mktemp("store")) as lab:
        yield lab


@pytest.mark.gpu
@pytest.mark.parametrize("name", CASES)
def test_occupancy_is_what_the_driver_says(gpu_lab: kernellab.Lab, name: str) -> None:
    case = CASES[name]
    arguments = case.fresh_arguments("cuda")
    limits = limits_of(gpu_lab.target)
    assert limits is not None
    for num_warps in (1, 4, 8):
        meta = {**case.meta, "num_warps": num_warps}
        handle = gpu_lab.bind(case.kernel)[case.grid](**arguments, **meta)
        resources = gpu_lab.compile(case.kernel, **arguments, **meta).resources
        assert resources.occupancy is not None
        blocks = _resident_blocks(handle, resources.threads)
        assert resources.occupancy == blocks * resources.threads / limits.threads_per_multiprocessor


@pytest.mark.gpu
def test_the_limits_are_those_of_the_device(gpu_lab: kernellab.Lab) -> None:
    import torch

    device = torch.cuda.get_device_properties(0)
    limits = limits_of(gpu_lab.target)
    assert limits is not None
    assert limits.shared_bytes_per_block == device.shared_memory_per_block_optin
    assert limits.shared_bytes_per_multiprocessor == device.shared_memory_per_multiprocessor
    assert limits.registers_per_multiprocessor == device.regs_per_multiprocessor
    assert limits.threads_per_multiprocessor == device.max_threads_per_multi_processor


def _resident_blocks(handle: Any, threads: int) -> int:
    """Ask the CUDA driver how many blocks of a loaded kernel one multiprocessor holds."""
    cuda = ctypes.CDLL("libcuda.so.1")
    blocks = ctypes.c_int()
    status = cuda.cuOccupancyMaxActiveBlocksPerMultiprocessor(
        ctypes.byref(blocks), ctypes.c_void_p(handle.function), threads, ctypes.c_size_t(handle.metadata.shared)
    )
    assert status == 0
    return blocks.value
