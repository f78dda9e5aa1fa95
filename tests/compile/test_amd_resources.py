from __future__ import annotations

import re

import pytest
import torch
import triton
import triton.language as tl

import kernellab
from kernellab.compile.types import Compiled
from kernellab.errors import UsageError
from kernellab.target import BlockNeeds, limits_of, occupancy
from kernellab.views.compile_facts import resource_facts
from tests import samples

N = 1000
ADD = {"x_ptr": torch.rand(N), "y_ptr": torch.rand(N), "out_ptr": torch.zeros(N), "n": N, "BLOCK": 256}
TARGETS = ("hip:gfx90a", "hip:gfx942", "hip:gfx950", "hip:gfx1100", "hip:gfx1151", "hip:gfx1201", "hip:gfx1250")


@triton.jit
def product(a, b, c, K, ROWS: tl.constexpr, STEP: tl.constexpr):  # type: ignore[no-untyped-def]
    rows, steps = tl.arange(0, ROWS), tl.arange(0, STEP)
    total = tl.zeros((ROWS, ROWS), tl.float32)
    for start in range(0, K, STEP):
        left = tl.load(a + rows[:, None] * K + (start + steps)[None, :])
        right = tl.load(b + (start + steps)[:, None] * ROWS + rows[None, :])
        total = tl.dot(left, right, total)
    tl.store(c + rows[:, None] * ROWS + rows[None, :], total)


@triton.jit
def row_softmax(x, out, COLUMNS: tl.constexpr):  # type: ignore[no-untyped-def]
    place = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    values = tl.load(x + place)
    powers = tl.exp(values - tl.max(values))
    tl.store(out + place, powers / tl.sum(powers))


def _product(lab: kernellab.Lab, target: str, rows: int) -> Compiled:
    a, b = torch.rand(rows, 256).half(), torch.rand(256, rows).half()
    return lab.compile(product, a, b, torch.zeros(rows, rows), 256, rows, 64, num_warps=4, target=target)


def _occupancy_of_llvm(compiled: Compiled) -> int:
    """Return the waves per SIMD that LLVM writes below a kernel; it counts registers, and not the LDS of Triton."""
    found = re.search(r"; Occupancy: (\d+)", compiled.amdgcn)
    assert found
    return int(found[1])


def _by_registers(compiled: Compiled) -> int:
    limits, resources = limits_of(compiled.target), compiled.resources
    assert limits is not None
    assert resources.registers is not None
    one_warp = compiled.target.warp_size
    scalar = resources.scalar_registers or 0
    found = occupancy(limits, BlockNeeds(one_warp, resources.registers, 0, scalar))
    return found.blocks // 4


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_occupancy_by_registers_is_that_of_llvm(lab: kernellab.Lab, target: str) -> None:
    for compiled in (
        lab.compile(samples.add_kernel, **ADD, target=target),
        lab.compile(row_softmax, torch.rand(4, 4096), torch.zeros(4, 4096), 4096, target=target),
    ):
        assert _by_registers(compiled) == _occupancy_of_llvm(compiled)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["hip:gfx90a", "hip:gfx942", "hip:gfx950", "hip:gfx1100"])
def test_a_product_declares_its_registers_and_lds(lab: kernellab.Lab, target: str) -> None:
    compiled = _product(lab, target, 64)
    resources = compiled.resources
    assert f".vgpr_count:     {resources.registers}" in compiled.amdgcn
    assert f".sgpr_count:     {resources.scalar_registers}" in compiled.amdgcn
    assert resources.shared_bytes > 0
    assert resources.fits
    assert _by_registers(compiled) == _occupancy_of_llvm(compiled)


@pytest.mark.slow
def test_accumulation_registers_are_among_the_registers_of_cdna(lab: kernellab.Lab) -> None:
    compiled = _product(lab, "hip:gfx942", 256)
    resources = compiled.resources
    assert (resources.accumulation_registers, resources.registers) == (256, 512)
    assert (resources.occupancy, resources.limiter) == (0.125, "registers")
    words = {fact.name: f"{fact.value} {fact.detail}" for fact in resource_facts(compiled)}
    assert words["registers"] == "512 per thread, 256 of them accumulation registers"
    assert words["scalar registers"].endswith("per wave")


@pytest.mark.slow
def test_spills_lie_in_scratch(lab: kernellab.Lab) -> None:
    compiled = _product(lab, "hip:gfx1100", 128)
    resources = compiled.resources
    assert f"; ScratchSize: {resources.stack_bytes}" in compiled.amdgcn
    assert resources.spill_bytes
    assert resources.stack_bytes
    assert resources.spill_bytes <= resources.stack_bytes


@pytest.mark.slow
def test_more_lds_than_there_is_does_not_fit(lab: kernellab.Lab) -> None:
    a, b = torch.rand(128, 512).half(), torch.rand(512, 128).half()
    compiled = lab.compile(product, a, b, torch.zeros(128, 128), 512, 128, 512, num_warps=8, target="hip:gfx90a")
    assert compiled.resources.shared_bytes > 65536
    assert not compiled.resources.fits
    assert "hip:gfx90a has 65,536" in str(compiled.resources.why_not)


def test_disassembly_that_the_wheel_has_no_tool_for_is_said(lab: kernellab.Lab) -> None:
    compiled = lab.compile(samples.add_kernel, **ADD, target="hip:gfx942")
    with pytest.raises(UsageError, match=r"no disassembler for AMD.*Read \.amdgcn"):
        _ = compiled.sass


@pytest.mark.slow
def test_blackwell_keeps_accumulators_in_tensor_memory(lab: kernellab.Lab) -> None:
    compiled = _product(lab, "cuda:100", 128)
    assert compiled.resources.tensor_memory_columns == 128
    assert "tcgen05.mma" in compiled.ptx
    facts = {fact.name: f"{fact.value} {fact.detail}" for fact in resource_facts(compiled)}
    assert facts["tensor memory"] == "128 columns per program"
    hopper = _product(lab, "cuda:90", 128)
    assert hopper.resources.tensor_memory_columns is None
    assert "tensor memory" not in {fact.name for fact in resource_facts(hopper)}
