"""Tuning on a GPU: what is timed, what the tensors hold afterwards, and configs that go wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl

import kernellab

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]
N = 1 << 20
BLOCKS = [triton.Config({"BLOCK": block}, num_warps=warps) for block in (128, 1024) for warps in (2, 8)]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="module")
def lab(store: Path) -> Iterator[kernellab.Lab]:
    with kernellab.Lab(store=store) as lab:
        yield lab


def grid(meta: dict[str, int]) -> tuple[int, ...]:
    return (triton.cdiv(N, meta["BLOCK"]),)


@triton.jit
def copy(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n), mask=offsets < n)


@triton.jit
def add_into(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(out_ptr + offsets, mask=mask) + tl.load(x_ptr + offsets, mask=mask), mask=mask)


@triton.jit
def sum_into(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out_ptr, tl.sum(tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)))


@triton.jit
def moody(x_ptr, out_ptr, n, BLOCK: tl.constexpr, MOOD: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    value = tl.load(x_ptr + offsets, mask=mask)
    if MOOD == 1:
        value = tl.load(x_ptr + offsets + 1000000000000)
    if MOOD == 2:
        again = tl.load(x_ptr, volatile=True)
        while again < 100.0:
            again = tl.load(x_ptr, volatile=True)
        value += again
    if MOOD == 3:
        value = value * 2
    if MOOD == 4:
        mask = mask & (offsets % 7 != 3)
    tl.store(out_ptr + offsets, value, mask=mask)


add_tuned = triton.autotune(configs=BLOCKS, key=["n"])(add_into)
zeroed_tuned = triton.autotune(configs=BLOCKS, key=["n"], reset_to_zero=["out_ptr"])(sum_into)


def test_every_config_is_timed_and_ranked(lab: kernellab.Lab) -> None:
    x, out = torch.rand(N, device="cuda"), torch.zeros(N, device="cuda")
    frame = lab.tune(copy, grid, x, out, N, configs=BLOCKS).frame
    assert list(frame.status) == ["ok"] * 4
    assert sorted(frame["rank"]) == [1, 2, 3, 4]
    assert (frame.low_ms <= frame.time_ms).all()
    assert (frame.time_ms <= frame.high_ms).all()
    assert frame.gbps.max() > 100
    assert frame.attrs["device"] == torch.cuda.get_device_name()
    assert torch.equal(out, x)


def test_an_accumulator_gets_one_contribution(lab: kernellab.Lab) -> None:
    x, out = torch.ones(N, device="cuda"), torch.full((N,), 0.5, device="cuda")
    lab.tune(add_into, grid, x, out, N, configs=BLOCKS)
    assert torch.equal(out, torch.full_like(out, 1.5))


def test_an_atomic_sum_gets_one_contribution(lab: kernellab.Lab) -> None:
    x, out = torch.ones(N, device="cuda"), torch.full((1,), 0.5, device="cuda")
    assert len(lab.tune(sum_into, grid, x, out, N, configs=BLOCKS).rows) == 4
    assert out.item() == N + 0.5


def test_a_bound_kernel_is_tuned_at_its_first_launch(lab: kernellab.Lab) -> None:
    x, out = torch.ones(N, device="cuda"), torch.full((N,), 0.5, device="cuda")
    bound = lab.bind(add_tuned)
    bound[grid](x, out, N)
    assert torch.equal(out, torch.full_like(out, 1.5))
    bound[grid](x, out, N)
    assert torch.equal(out, torch.full_like(out, 2.5))
    assert bound.best_config in add_tuned.configs


def test_what_is_declared_to_be_zeroed_is_zeroed(lab: kernellab.Lab) -> None:
    x, out = torch.ones(N, device="cuda"), torch.full((1,), 0.5, device="cuda")
    lab.bind(zeroed_tuned)[grid](x, out, N)
    assert out.item() == N


def test_configs_that_go_wrong_are_named_and_the_best_of_the_rest_is_found(lab: kernellab.Lab) -> None:
    x, out = torch.rand(N, device="cuda"), torch.full((N,), 0.5, device="cuda")
    moods = [triton.Config({"BLOCK": 512, "MOOD": mood}) for mood in (0, 1, 2, 3, 4)]
    configs = [*moods, triton.Config({"BLOCK": 1024, "MOOD": 0}), triton.Config({"BLOCK": 1000, "MOOD": 0})]
    tuning = lab.tune(moody, grid, x, out, N, configs=configs, timeout_s=1)
    assert list(tuning.frame.status) == ["ok", "fault", "timeout", "wrong", "wrong", "ok", "compile_error"]
    assert tuning.best in {configs[0], configs[5]}
    assert all(tuning.frame.reason[[1, 2, 3, 4, 6]])
    assert torch.equal(out, x)


def test_what_the_store_knows_is_not_timed_again(lab: kernellab.Lab, store: Path) -> None:
    x, out = torch.rand(N, device="cuda"), torch.zeros(N, device="cuda")
    first = lab.tune(copy, grid, x, out, N, configs=BLOCKS)
    with kernellab.Lab(store=store) as other:
        again = other.tune(copy, grid, x, out.zero_(), N, configs=BLOCKS)
        more = other.tune(copy, grid, x, out, N, configs=[*BLOCKS, triton.Config({"BLOCK": 512})])
    assert again.from_cache
    assert again.best is first.best
    assert not more.from_cache
    assert torch.equal(out, x)


def test_hooks_of_configs_run_before_each_launch(lab: kernellab.Lab) -> None:
    x, out = torch.ones(N, device="cuda"), torch.full((1,), 0.5, device="cuda")
    configs = [
        triton.Config({"BLOCK": block}, pre_hook=lambda named: named["out_ptr"].zero_()) for block in (256, 1024)
    ]
    tuning = lab.tune(sum_into, grid, x, out, N, configs=configs)
    assert list(tuning.frame.status) == ["ok", "ok"]
    assert any("hooks" in note for note in tuning.notes)
    assert out.item() == N
