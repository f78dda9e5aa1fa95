"""What a launch computes, against closed formulas."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import triton
import triton.language as tl

import kernellab
from kernellab.ir.arithmetic import Arithmetic, arithmetic_of
from tests.kernels.attention import attention_case
from tests.kernels.case import Case
from tests.kernels.elementwise import add_case
from tests.kernels.matmul import matmul_case
from tests.labs import lab_fixture

lab = lab_fixture("cuda:90")


def counted(lab: kernellab.Lab, kernel: Any, grid: tuple[int, ...], **given: Any) -> Arithmetic:
    return arithmetic_of(lab.graph(kernel, **given), given, (*grid, 1, 1)[:3])


def of_case(lab: kernellab.Lab, case: Case) -> Arithmetic:
    return counted(lab, case.kernel, case.grid, **case.arguments, **case.meta)


@triton.jit
def persistent(a_ptr, c_ptr, tiles, k, PROGRAMS: tl.constexpr, BLOCK: tl.constexpr, CAUSAL: tl.constexpr = False):
    inner = tl.arange(0, BLOCK)
    for tile in range(tl.program_id(0), tiles, PROGRAMS):
        total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
        last = (tile + 1) * BLOCK if CAUSAL else k
        for start in range(0, last, BLOCK):
            a = tl.load(a_ptr + inner[:, None] * k + inner[None, :] + start)
            total = tl.dot(a, a, total, input_precision="ieee")
        tl.store(c_ptr + tile * BLOCK * BLOCK + inner[:, None] * BLOCK + inner[None, :], total)


@triton.jit
def flattened(a_ptr, c_ptr, tiles, rounds, BLOCK: tl.constexpr):
    inner = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    at = -1
    for _ in range(tiles * rounds):
        at = tl.where(at == rounds - 1, 0, at + 1)
        if at == 0:
            total = tl.dot(tl.load(a_ptr + inner[:, None] * BLOCK + inner[None, :]), total.to(tl.float16), total)
    tl.store(c_ptr + inner[:, None] * BLOCK + inner[None, :], total)


@triton.jit
def counting_down(a_ptr, n_ptr, n, FROM_MEMORY: tl.constexpr, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    if pid >= n:
        return
    inner = tl.arange(0, BLOCK)
    left = tl.load(n_ptr) if FROM_MEMORY else n - pid
    a = tl.load(a_ptr + inner[:, None] * BLOCK + inner[None, :])
    while left > 0:
        a = tl.dot(a, a, input_precision="tf32")
        left -= 1
    tl.store(a_ptr + inner[:, None] * BLOCK + inner[None, :], a)


@triton.jit(noinline=True)
def squared(a_ptr, times, BLOCK: tl.constexpr):
    inner = tl.arange(0, BLOCK)
    places = a_ptr + inner[:, None] * BLOCK + inner[None, :]
    a = tl.load(places)
    for _ in range(times):
        a = tl.dot(a, a).to(tl.float16)
    tl.store(places, a)
    return times + 1


@triton.jit
def calling(a_ptr, BLOCK: tl.constexpr):
    times = squared(a_ptr, 3, BLOCK)
    if tl.program_id(1) < 2:
        squared(a_ptr, times, BLOCK)


@triton.jit
def scaled_dot(a_ptr, a_scale_ptr, b_ptr, b_scale_ptr, c_ptr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, k, s = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K), tl.arange(0, K // 32)
    a = tl.load(a_ptr + m[:, None] * (K // 2) + tl.arange(0, K // 2)[None, :])
    b = tl.load(b_ptr + k[:, None] * N + n[None, :])
    a_scale = tl.load(a_scale_ptr + m[:, None] * (K // 32) + s[None, :])
    b_scale = tl.load(b_scale_ptr + n[:, None] * (K // 32) + s[None, :])
    tl.store(c_ptr + m[:, None] * N + n[None, :], tl.dot_scaled(a, a_scale, "e2m1", b, b_scale, "e4m3"))


@pytest.mark.parametrize(("m", "n", "k"), [(128, 64, 96), (70, 90, 50), (32, 32, 16)])
def test_a_matmul_counts_two_operations_per_element_and_step_of_its_padded_tiles(
    lab: kernellab.Lab, m: int, n: int, k: int
) -> None:
    found = of_case(lab, matmul_case(torch.float16, m, n, k))
    padded = 2 * (triton.cdiv(m, 32) * 32) * (triton.cdiv(n, 32) * 32) * (triton.cdiv(k, 16) * 16)
    assert found.dots == (("fp16", padded),)
    assert found.elementwise == 0


@pytest.mark.parametrize("causal", [False, True])
def test_attention_counts_the_tiles_that_each_program_visits(lab: kernellab.Lab, causal: bool) -> None:
    heads, length, size, block = 3, 64, 16, 16
    found = of_case(lab, attention_case(torch.bfloat16, causal=causal, heads=heads, length=length, head_size=size))
    blocks = length // block
    visited = heads * (blocks * (blocks + 1) // 2 if causal else blocks * blocks)
    assert found.dots == (("bf16", visited * 2 * 2 * block * block * size),)
    assert found.elementwise is not None
    assert found.elementwise > visited * 3 * block * block


def test_a_persistent_kernel_counts_the_tiles_of_all_programs(lab: kernellab.Lab) -> None:
    a, c = torch.zeros(16, 64, dtype=torch.float16), torch.zeros(10, 16, 16)
    found = counted(lab, persistent, (4,), a_ptr=a, c_ptr=c, tiles=10, k=64, PROGRAMS=4, BLOCK=16)
    assert found.dot_flops == 10 * 2 * 16 * 16 * 64


def test_inner_bounds_that_depend_on_the_outer_loop_are_followed_round_by_round(lab: kernellab.Lab) -> None:
    a, c = torch.zeros(16, 160), torch.zeros(10, 16, 16)
    given = {"a_ptr": a, "c_ptr": c, "tiles": 10, "k": 160, "PROGRAMS": 4, "BLOCK": 16, "CAUSAL": True}
    found = counted(lab, persistent, (4,), **given)
    assert found.dots == (("fp32", sum(range(1, 11)) * 2 * 16**3),)


def test_a_condition_on_a_counter_that_a_loop_carries_is_followed(lab: kernellab.Lab) -> None:
    a, c = torch.zeros(16, 16, dtype=torch.float16), torch.zeros(16, 16)
    found = counted(lab, flattened, (3,), a_ptr=a, c_ptr=c, tiles=5, rounds=4, BLOCK=16)
    assert found.dot_flops == 3 * 5 * 2 * 16**3


def test_programs_that_return_early_count_nothing(lab: kernellab.Lab) -> None:
    given = {"a_ptr": torch.zeros(16, 16), "n_ptr": torch.zeros(1, dtype=torch.int32), "n": 5, "BLOCK": 16}
    found = counted(lab, counting_down, (8,), **given, FROM_MEMORY=False)
    assert found.dots == (("tf32", (5 + 4 + 3 + 2 + 1) * 2 * 16**3),)


def test_a_loop_that_memory_decides_about_is_unknown_and_says_why(lab: kernellab.Lab) -> None:
    given = {"a_ptr": torch.zeros(16, 16), "n_ptr": torch.zeros(1, dtype=torch.int32), "n": 5, "BLOCK": 16}
    found = counted(lab, counting_down, (8,), **given, FROM_MEMORY=True)
    assert found.dots is None
    assert found.dot_flops is None
    assert found.main_dot is None
    assert "the loop in line" in found.why_unknown


def test_a_helper_counts_at_each_of_its_calls(lab: kernellab.Lab) -> None:
    a = torch.zeros(16, 16, dtype=torch.float16)
    assert counted(lab, calling, (2, 3), a_ptr=a, BLOCK=16).dot_flops == 2 * (3 * 3 + 2 * 4) * 2 * 16**3


def test_packed_numbers_count_by_their_elements(lab: kernellab.Lab) -> None:
    def bytes_of(*shape: int) -> torch.Tensor:
        return torch.zeros(shape, dtype=torch.uint8)

    tensors = {
        "a_ptr": bytes_of(128, 64),
        "a_scale_ptr": bytes_of(128, 4),
        "b_ptr": torch.zeros(128, 64, dtype=torch.float8_e4m3fn),
        "b_scale_ptr": bytes_of(64, 4),
        "c_ptr": torch.zeros(128, 64),
    }
    found = counted(lab, scaled_dot, (2,), **tensors, M=128, N=64, K=128)
    assert found.dots == (("mxfp8", 2 * 2 * 128 * 64 * 128),)


def test_an_elementwise_kernel_has_no_dots_and_one_operation_per_lane(lab: kernellab.Lab) -> None:
    case = add_case(torch.float32)
    found = of_case(lab, case)
    assert found.dot_flops == 0
    assert found.elementwise == case.grid[0] * case.meta["BLOCK"]


def test_a_grid_of_millions_of_programs_is_counted_where_they_all_do_the_same(lab: kernellab.Lab) -> None:
    case = matmul_case(torch.float16, 32, 32, 64)
    graph = lab.graph(case.kernel, **case.arguments, **case.meta)
    assert arithmetic_of(graph, case.arguments, (10**7, 1, 1)).dot_flops == 10**7 * 2 * 32 * 32 * 64


def test_an_empty_grid_computes_nothing(lab: kernellab.Lab) -> None:
    case = matmul_case(torch.float16)
    graph = lab.graph(case.kernel, **case.arguments, **case.meta)
    assert arithmetic_of(graph, case.arguments, (0, 1, 1)).dot_flops == 0
