"""Benchmarks on a GPU: what is timed beside what, what is kept, and implementations that go wrong."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

import kernellab
from kernellab.errors import UsageError
from kernellab.timing.bench_jobs import RoundsJob
from kernellab.timing.stopwatch import Turn, gpu_stopwatch
from kernellab.timing.timer import TRIALS_OFF
from kernellab.views.figures.sweep import roofline_figure
from kernellab.workers.worker import Job, Worker
from tests.kernels.matmul import matmul_kernel
from tests.labs import lab_fixture

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]
lab = lab_fixture(open_lab=kernellab.Lab, on_disk=True)


@triton.jit
def add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + tl.load(y_ptr + offsets, mask=mask), mask=mask)


@triton.jit
def add_into(x_ptr, out_ptr, n, FAULTY: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets + FAULTY * 1000000000000, mask=mask)
    tl.store(out_ptr + offsets, tl.load(out_ptr + offsets, mask=mask) + x, mask=mask)


@triton.jit
def add_zeros(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) + 0.0, mask=mask)


@triton.jit
def copy_reversed(out_ptr, n, x_ptr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask), mask=mask)


tuned_add = triton.autotune([triton.Config({"BLOCK": block}) for block in (256, 1024)], key=["n"])(add)


def grid(meta: dict[str, Any]) -> tuple[int, ...]:
    return (triton.cdiv(meta["n"], meta["BLOCK"]),)


def inputs(n: int, dtype: torch.dtype = torch.float32) -> dict[str, Any]:
    x, y = (torch.randn(n, device="cuda").to(dtype) for _ in range(2))
    return {"x_ptr": x, "y_ptr": y, "out_ptr": torch.empty_like(x), "n": n}


def torch_add(x_ptr: torch.Tensor, y_ptr: torch.Tensor) -> torch.Tensor:
    return x_ptr + y_ptr


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[type]:
    """The types of the jobs that workers get, in order."""
    asked: list[type] = []
    plain = Worker.run

    def run(self: Worker, job: Job[Any, Any], *more: Any) -> Any:
        asked.append(type(job.payload))
        return plain(self, job, *more)

    monkeypatch.setattr(Worker, "run", run)
    return asked


def test_kernels_are_timed_in_the_worker_beside_a_function_and_the_clocks_agree(
    lab: kernellab.Lab, jobs: list[type]
) -> None:
    found = lab.bench(add, grid, BLOCK=1024, over={"n": [2**24]}, inputs=inputs, versus={"torch": torch_add})
    assert list(found.frame.status) == ["ok", "ok"]
    assert jobs.count(RoundsJob) == 3  # of ten each
    (clocks,) = found.frame.attrs["clocks"]
    assert (clocks["point"], clocks["entry"], clocks["rounds"]) == ({"n": 2**24}, "add", 30)
    assert clocks["ratio"] == pytest.approx(1.0, abs=0.1)
    assert clocks["low"] <= clocks["ratio"] <= clocks["high"]
    is_told = ["by the notebook's clock" in reason for reason in found.frame.reason]
    assert is_told == [False, found.clocks[0].differ]


def test_kernels_with_arguments_of_their_own_meet_in_one_memory(lab: kernellab.Lab, jobs: list[type]) -> None:
    def blocks(meta: dict[str, Any]) -> tuple[int, ...]:
        return (triton.cdiv(2**20, meta["BLOCK"]),)

    other = lab.bind(copy_reversed)
    x, out = torch.ones(2**20, device="cuda"), torch.zeros(2**20, device="cuda")
    versus = {"other": (other, blocks, {"BLOCK": 512})}
    frame = lab.bench(add_zeros, blocks, x, out, 2**20, over={"BLOCK": [256]}, versus=versus).frame
    assert list(frame.status) == ["ok", "ok"]
    assert frame.attrs["clocks"] == []  # there is but one
    assert RoundsJob in jobs


def test_a_kernel_on_memory_that_the_worker_cannot_reach_says_where_it_was_timed(lab: kernellab.Lab) -> None:
    def pinned(n: int) -> dict[str, Any]:
        return {**inputs(n), "x_ptr": torch.ones(n).pin_memory()}

    frame = lab.bench(add, grid, BLOCK=1024, over={"n": [2**12]}, inputs=pinned).frame
    assert list(frame.status) == ["ok"]
    assert frame.reason[0] == "timed in the notebook's own process: x_ptr lies on cpu"


def test_without_trial_launches_rows_say_that_all_is_timed_in_the_notebooks_process(lab: kernellab.Lab) -> None:
    trials = lab.launches.trials
    assert trials is not None
    trials.enabled = False
    try:
        frame = lab.bench(add, grid, BLOCK=1024, over={"n": [2**12]}, inputs=inputs, versus=torch_add).frame
    finally:
        trials.enabled = True
    assert list(frame.status) == ["ok", "ok"]
    assert frame.reason[0] == f"timed in the notebook's own process: {TRIALS_OFF}"
    assert frame.attrs["clocks"] == []


def test_a_kernel_that_faults_costs_only_its_row(lab: kernellab.Lab) -> None:
    x, out = torch.ones(4096, device="cuda"), torch.zeros(4096, device="cuda")
    versus = {"torch": lambda x_ptr, out_ptr: x_ptr + out_ptr}
    configs = [triton.Config({"FAULTY": faulty, "BLOCK": 256}) for faulty in (0, 1)]
    frame = lab.bench(
        add_into, grid, x, out, 4096, over={"config": configs}, versus=versus, timeout_s=20
    ).frame  # fmt: skip
    assert list(frame.status) == ["ok", "fault", "ok"]
    assert frame.time_ms.notna().tolist() == [True, False, True]


def test_versions_are_compared_by_the_clock_of_the_worker(lab: kernellab.Lab, jobs: list[type]) -> None:
    bound = lab.bind(add)
    made = inputs(2**20)
    lab.run(bound, (1024,), **made, BLOCK=1024)
    lab.kernels.add(bound)
    comparison = lab.compare("add", torch_add)
    assert comparison.equal
    assert comparison.timing is not None
    assert comparison.timing.rounds == 60
    assert 0.1 < comparison.timing.ratio < 10
    assert jobs.count(RoundsJob) == 2


def test_a_sweep_is_timed_beside_torch_and_shares_follow_from_the_ceilings(lab: kernellab.Lab) -> None:
    before = len(lab.frame("measurements"))
    found = lab.bench(
        add, grid, BLOCK=1024, over={"n": [2**16, 2**26], "dtype": [torch.float32, torch.float16]},
        inputs=inputs, versus={"torch": torch_add},
    )  # fmt: skip
    frame = found.frame
    assert list(frame.status) == ["ok"] * 8
    assert sorted(set(frame.implementation)) == ["add", "torch"]
    assert (frame.low_ms <= frame.time_ms).all()
    assert (frame.time_ms <= frame.high_ms).all()
    large = frame[(frame.n == 2**26) & (frame.dtype == "float32")]
    assert large.share.between(0.5, 1.2).all()
    assert set(large.bound) == {"memory"}
    assert (large.bytes == 3 * 4 * 2**26).all()
    assert (frame[frame.implementation == "torch"].speedup == 1.0).all()
    assert (frame.device == torch.cuda.get_device_name()).all()
    kept = lab.frame("measurements")[before:]
    assert len(kept) == 8
    assert set(kept["over.n"]) == {2**16, 2**26}


def test_configs_of_one_point_meet_on_the_same_inputs(lab: kernellab.Lab) -> None:
    configs = [triton.Config({"BLOCK": block}, num_warps=warps) for block in (128, 1024) for warps in (2, 8)]
    frame = lab.bench(add, grid, over={"n": [2**24], "config": configs}, inputs=inputs).frame
    assert sorted(frame["rank"]) == [1, 2, 3, 4]
    assert list(frame.BLOCK) == [128, 128, 1024, 1024]
    assert list(frame.num_warps) == [2, 8, 2, 8]


def test_an_autotuned_kernel_is_tuned_at_each_point(lab: kernellab.Lab) -> None:
    frame = lab.bench(tuned_add, grid, over={"n": [2**12, 2**24]}, inputs=inputs, versus=torch_add).frame
    own = frame[frame.implementation == "add"]
    assert list(own.status) == ["ok", "ok"]
    assert set(own.BLOCK) <= {256, 1024}


def test_what_the_user_gave_is_left_as_it_was_and_accumulators_are_restored(lab: kernellab.Lab) -> None:
    x, out = torch.ones(4096, device="cuda"), torch.full((4096,), 0.5, device="cuda")
    found = lab.bench(
        add_into, grid, x, out, 4096, FAULTY=0, over={"BLOCK": [256, 1024]},
        versus={"torch": lambda x_ptr, out_ptr: x_ptr + out_ptr},
    )  # fmt: skip
    assert list(found.frame.status) == ["ok"] * 4
    assert torch.equal(out, torch.full_like(out, 0.5))


def test_what_is_wrong_or_faults_is_a_row_and_the_rest_is_timed(lab: kernellab.Lab) -> None:
    x, out = torch.ones(4096, device="cuda"), torch.full((4096,), 0.5, device="cuda")

    def careless(x_ptr: torch.Tensor, out_ptr: torch.Tensor) -> torch.Tensor:
        return x_ptr.add_(out_ptr)

    def failing(x_ptr: torch.Tensor) -> torch.Tensor:
        raise ZeroDivisionError("no such thing")

    versus = {"torch": lambda x_ptr, out_ptr: x_ptr + out_ptr, "double": lambda x_ptr: 2 * x_ptr, "failing": failing}
    found = lab.bench(
        add_into, grid, x, out, 4096, BLOCK=256, over={"FAULTY": [0, 1]}, versus=versus, timeout_s=20
    )  # fmt: skip
    rows = {(row.implementation, dict(row.point)["FAULTY"]): row for row in found.rows}
    assert {key: str(row.status) for key, row in rows.items() if key[1] == 0} == {
        ("add_into", 0): "ok", ("torch", 0): "ok", ("double", 0): "wrong", ("failing", 0): "fault",
    }  # fmt: skip
    assert rows["add_into", 1].status == "fault"
    assert rows["torch", 1].status == "ok"
    assert "ZeroDivisionError: no such thing" in rows["failing", 0].reason
    again = lab.bench(add_into, grid, x, out, 4096, FAULTY=0, BLOCK=256, over={"n": [4096]}, versus=careless)
    assert any("changes x_ptr in place" in row.reason for row in again.rows)
    assert torch.equal(x, torch.ones_like(x))


def test_a_product_has_its_rate_and_the_roof_of_its_dtype(lab: kernellab.Lab) -> None:
    def square(size: int) -> dict[str, Any]:
        a, b = (torch.randn(size, size, device="cuda", dtype=torch.float16) for _ in range(2))
        sides = dict.fromkeys(("m", "n", "k", "a_stride", "b_stride", "c_stride"), size)
        return {"a_ptr": a, "b_ptr": b, "c_ptr": torch.empty_like(a), **sides}

    blocks = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": 8}
    frame = lab.bench(
        matmul_kernel, lambda meta: (triton.cdiv(meta["m"], 128) * triton.cdiv(meta["n"], 128),),
        **blocks, num_warps=8, over={"size": [1024, 4096]}, inputs=square,
        versus={"torch": lambda a_ptr, b_ptr: a_ptr @ b_ptr},
    ).frame  # fmt: skip
    assert list(frame.status) == ["ok"] * 4
    assert list(frame.flops) == [2 * 1024**3] * 2 + [2 * 4096**3] * 2
    assert set(frame.dot_dtype) == {"fp16"}
    assert frame[frame["size"] == 4096].bound.eq("compute").all()
    assert frame[frame["size"] == 4096].share.between(0.1, 1.2).all()


def test_ceilings_are_measured_once(lab: kernellab.Lab) -> None:
    first = lab.ceilings()
    assert first == lab.ceilings()
    assert first.memory_gbps > 100
    assert first.tflops["fp16"] > first.tflops["fp32"]


def test_a_tuning_has_rates_and_a_roofline_once_the_ceilings_are_known(lab: kernellab.Lab) -> None:
    lab.ceilings()
    a, b, c = (torch.randn(512, 512, device="cuda", dtype=torch.float16) for _ in range(3))
    configs = [
        triton.Config({"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_M": group}, num_warps=4) for group in (1, 8)
    ]
    frame = lab.tune(matmul_kernel, (64,), a, b, c, *[512] * 6, configs=configs).frame
    assert list(frame.status) == ["ok", "ok"]
    assert frame.tflops.tolist() == pytest.approx((2 * 512**3 / frame.time_ms / 1e9).tolist())
    assert roofline_figure(frame) is not None


def test_what_the_host_takes_is_no_part_of_the_time() -> None:
    watch, x = gpu_stopwatch(), torch.zeros(1024, device="cuda")

    def slow_on_the_host() -> torch.Tensor:
        end_s = time.perf_counter() + 0.0005
        while time.perf_counter() < end_s:
            pass
        return x + x

    quick, slow = watch.turns([Turn(lambda: x + x), Turn(slow_on_the_host)], 20)
    assert median(slow) < 2 * median(quick)
    assert watch.late == 0


def test_clock_and_temperature_stand_beside_the_times(lab: kernellab.Lab) -> None:
    frame = lab.bench(add, grid, BLOCK=1024, over={"n": [2**20]}, inputs=inputs).frame
    assert frame.clock_mhz.isna().all() or (frame.clock_mhz > 100).all()
    assert frame.temperature_c.isna().all() or frame.temperature_c.between(1, 120).all()


def test_without_a_grid_the_user_is_told(lab: kernellab.Lab) -> None:
    with pytest.raises(UsageError, match="The grid is missing"):
        lab.bench(add, over={"n": [8]}, inputs=inputs)


def test_the_launch_of_a_cell_is_scaled(lab: kernellab.Lab, tmp_path: Path) -> None:
    bound = lab.bind(add)
    lab.kernels.add(bound)
    made = inputs(5000)
    lab.run(bound, lambda meta: (triton.cdiv(5000, meta["BLOCK"]),), **made, BLOCK=256)
    frame = lab.bench("add", over={"n": [2**12, 2**20]}, versus=torch_add).frame
    assert list(frame.status) == ["ok"] * 4
    assert list(frame.bytes) == [12 * 2**12] * 2 + [12 * 2**20] * 2
