"""Tuning on a GPU: what is timed, what the tensors hold afterwards, and configs that go wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from triton.runtime._allocation import NullAllocator

import kernellab
from kernellab.timing.bench_jobs import Readiness
from kernellab.timing.bench_worker import get_ready
from kernellab.workers.worker import Job
from tests.asked_of_workers import free_bytes_there, has_torch

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
    if MOOD == 5:
        tl.store(out_ptr + n + offsets, value, mask=offsets < 100)
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


def test_getting_ready_leaves_no_memory_behind(lab: kernellab.Lab) -> None:
    trials = lab.launches.trials
    assert trials is not None
    dtypes = (("bfloat16", 2), ("bool", 1), ("complex64", 8), ("float32", 4), ("int64", 8))
    job = Job(get_ready, Readiness(torch.cuda.current_device(), dtypes), "getting ready")
    trials.wait_ready(0)
    trials.worker(0).run(job, 60.0)

    def taken_by_another() -> int:
        before = trials.worker(0).run(Job(free_bytes_there, None, "asking"), 60.0)
        trials.worker(0).run(job, 60.0)
        return before - trials.worker(0).run(Job(free_bytes_there, None, "asking"), 60.0)

    assert min(taken_by_another() for _ in range(5)) <= 0  # other processes take memory meanwhile, but not each time


def test_a_tuning_leaves_its_worker_without_torch() -> None:
    x, out = torch.rand(N, device="cuda"), torch.zeros(N, device="cuda")
    with kernellab.Lab(store=":memory:") as fresh:
        assert list(fresh.tune(copy, grid, x, out, N, configs=BLOCKS).frame.status) == ["ok"] * 4
        assert fresh.launches.trials is not None
        assert not fresh.launches.trials.worker(0).run(Job(has_torch, None, "asking"), 60.0)


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
    others = [{"BLOCK": block, "MOOD": mood} for block, mood in ((1024, 0), (1000, 0), (512, 5), (256, 0))]
    large = triton.Config({"BLOCK": 1024, "MOOD": 0}, num_warps=64)
    configs = [*moods, *map(triton.Config, others), large]
    tuning = lab.tune(moody, grid, x, out, N, configs=configs, timeout_s=1)
    expected = ["ok", "fault", "timeout", "differs", "differs", "ok", "compile_error", "fault", "ok", "cannot_run"]
    assert list(tuning.frame.status) == expected
    assert tuning.best in {configs[0], configs[5], configs[8]}
    assert all(tuning.frame.reason[[1, 2, 3, 4, 6, 7, 9]])
    assert "wrote out of bounds" in tuning.frame.reason[7]
    assert "beyond the end of out_ptr" in tuning.frame.reason[7]
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


def test_a_new_session_launches_the_winner_without_compiling_timing_or_trying(tmp_path: Path) -> None:
    first, again = (in_a_new_process(tmp_path) for _ in range(2))
    assert first["has_gpu_worker"]
    assert first["has_compiled"]
    assert first["measurements"] == again["measurements"] > 0
    assert not again["has_gpu_worker"]
    assert not again["has_compiled"]
    assert again["config"] == first["config"]
    assert first["out"] == again["out"] == [2.5, 2.5]


def test_other_extents_fly_again_in_a_new_session(tmp_path: Path) -> None:
    in_a_new_process(tmp_path, 5000)
    other = in_a_new_process(tmp_path, 5016)
    assert other["has_gpu_worker"]
    assert other["out"] == [2.5, 2.5]


def in_a_new_process(store: Path, size: int = 5000) -> dict[str, Any]:
    """Launch an autotuned kernel twice in a process of its own, which must not end with memory still shared."""
    command = [sys.executable, "-m", "tests.tune.tuned_session", str(store), str(size)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "shared CUDA tensors" not in done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@triton.jit
def copy_by_descriptor(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    source = tl.make_tensor_descriptor(x_ptr, [n], [1], [BLOCK])
    target = tl.make_tensor_descriptor(out_ptr, [n], [1], [BLOCK])
    start = tl.program_id(0) * BLOCK
    target.store([start], source.load([start]))


def test_a_winner_that_needs_an_allocator_is_timed_and_its_launch_without_one_noted(lab: kernellab.Lab) -> None:
    triton.set_allocator(NullAllocator())  # others may have set one
    x, configs = torch.randn(N, device="cuda"), [triton.Config({"BLOCK": block}) for block in (128, 256)]
    tuning = lab.tune(copy_by_descriptor, grid, x, torch.empty_like(x), N, configs=configs)
    assert set(tuning.frame.status) == {"ok"}
    assert any("triton.set_allocator" in note for note in tuning.notes)
    with pytest.raises(kernellab.KernellabError, match="needs memory of Triton's allocator"):
        lab.bind(copy_by_descriptor)[grid](x, torch.empty_like(x), N, BLOCK=128)
