"""The pipeline of a benchmark, on real compiles and an timer that is written down."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
import triton

import kernellab
from kernellab.benchmark.result import BenchmarkProgress, Watch
from kernellab.errors import OutOfBounds, RunError, UsageError, WorkerTimeout
from kernellab.timing.launches import Implementation
from kernellab.timing.timer import Clocks
from tests.benchmark.fakes import FakeGpu, Time
from tests.ir.test_arithmetic import counting_down
from tests.kernels.matmul import matmul_case
from tests.labs import lab_fixture, shared_lab
from tests.samples import add_kernel, tuned_kernel

lab = lab_fixture("cuda:90")


def grid(meta: Mapping[str, Any]) -> tuple[int, ...]:
    return (triton.cdiv(meta["n"], meta["BLOCK"]),)


def inputs(n: int) -> dict[str, Any]:
    x = torch.zeros(n)
    return {"x_ptr": x, "y_ptr": x, "out_ptr": torch.zeros(n), "n": n, "BLOCK": 64}


def torch_add(x_ptr: torch.Tensor, y_ptr: torch.Tensor) -> torch.Tensor:
    return x_ptr + y_ptr


def times(**by_name: Time) -> Callable[[Implementation, Mapping[str, Any]], Time]:
    return lambda implementation, arguments: by_name[implementation.name]


@pytest.mark.slow
def test_every_point_has_a_row_per_implementation_with_rates_and_speedup(lab: kernellab.Lab) -> None:
    gpu = FakeGpu(lab, lambda each, arguments: arguments["n"] / 1e6 * (1 if each.name == "add_kernel" else 2))
    frame = gpu.bench(add_kernel, grid, over={"n": [1000, 4000]}, inputs=inputs, versus={"torch": torch_add}).frame
    assert list(zip(frame.n, frame.implementation, frame["rank"], strict=True)) == [
        (1000, "add_kernel", 1),
        (1000, "torch", 2),
        (4000, "add_kernel", 1),
        (4000, "torch", 2),
    ]
    assert frame.time_ms.tolist() == pytest.approx([0.001, 0.002, 0.004, 0.008], rel=0.03)
    assert frame.bytes.tolist() == [12000, 12000, 48000, 48000]
    assert frame.gbps.tolist() == pytest.approx([12, 6, 12, 6], rel=0.03)
    assert frame.share.tolist() == pytest.approx([12 / 4200, 6 / 4200] * 2, rel=0.03)
    assert frame.speedup.tolist() == pytest.approx([2, 1, 2, 1], rel=0.05)
    assert (frame.low_ms <= frame.time_ms).all()
    assert set(frame.bound) == {"memory"}
    assert set(frame.clock_mhz) == {1980}
    assert set(frame.device) == {"NVIDIA H200"}
    assert frame.attrs["reference"] == "torch"


def test_the_reference_is_tried_first_and_all_are_timed_in_turns(lab: kernellab.Lab) -> None:
    gpu = FakeGpu(lab, times(add_kernel=1.0, torch=1.0))
    gpu.bench(add_kernel, grid, over={"n": [64]}, inputs=inputs, versus={"torch": torch_add}, rounds=6)
    assert gpu.log == [
        ("try", ("torch",)),
        ("try", ("add_kernel",)),
        ("time", ("torch", "add_kernel")),
        ("close", ()),
    ]


def test_a_wrong_result_is_a_row_and_is_not_timed(lab: kernellab.Lab) -> None:
    gpu = FakeGpu(lab, times(add_kernel=1.0, torch=1.0), frozenset({"add_kernel"}))
    frame = gpu.bench(add_kernel, grid, over={"n": [64]}, inputs=inputs, versus={"torch": torch_add}).frame
    assert list(frame.status) == ["wrong", "ok"]
    assert frame.time_ms.isna().tolist() == [True, False]
    assert all("add_kernel" not in names for what, names in gpu.log if what == "time")


def test_rows_of_functions_say_that_their_clock_differs_and_no_time_is_scaled(lab: kernellab.Lab) -> None:
    entry = Clocks("add_kernel", 1.04, 1.03, 1.05, 30)
    gpu = FakeGpu(lab, times(add_kernel=1.0, torch=1.0), entry=entry)
    frame = gpu.bench(add_kernel, grid, over={"n": [64]}, inputs=inputs, versus={"torch": torch_add}).frame
    assert list(frame.status) == ["ok", "ok"]
    assert frame.reason.tolist() == [
        "",
        "by the notebook's clock, add_kernel takes 4.0% longer (3.0% to 5.0%) than by that of the GPU worker",
    ]
    assert frame.attrs["clocks"] == [
        {"point": {"n": 64}, "entry": "add_kernel", "ratio": 1.04, "low": 1.03, "high": 1.05, "rounds": 30}
    ]
    assert frame.time_ms.tolist() == pytest.approx([1.0, 1.0], rel=0.03)


def test_clocks_that_agree_within_the_noise_are_kept_and_no_row_speaks_of_them(lab: kernellab.Lab) -> None:
    entry = Clocks("add_kernel", 1.02, 0.99, 1.05, 30)
    gpu = FakeGpu(lab, times(add_kernel=1.0, torch=1.0), entry=entry)
    frame = gpu.bench(add_kernel, grid, over={"n": [64]}, inputs=inputs, versus={"torch": torch_add}).frame
    assert frame.reason.tolist() == ["", ""]
    assert [each["ratio"] for each in frame.attrs["clocks"]] == [1.02]


def test_a_kernel_that_is_timed_in_the_notebooks_process_says_so(lab: kernellab.Lab) -> None:
    gpu = FakeGpu(lab, times(add_kernel=1.0), here={"add_kernel": "x_ptr lies on cpu"})
    frame = gpu.bench(add_kernel, grid, over={"n": [64]}, inputs=inputs).frame
    assert list(frame.status) == ["ok"]
    assert frame.reason.tolist() == ["timed in the notebook's own process: x_ptr lies on cpu"]
    assert frame.attrs["clocks"] == []


def test_who_fails_while_all_are_timed_costs_only_its_own_row(lab: kernellab.Lab) -> None:
    tried = set[str]()

    def time_of(implementation: Implementation, arguments: Mapping[str, Any]) -> Time:
        is_first = implementation.name not in tried
        tried.add(implementation.name)
        return RunError("add_kernel failed on the GPU") if implementation.name == "add_kernel" and not is_first else 1.0

    versus = {"torch": torch_add, "other": torch_add}
    frame = FakeGpu(lab, time_of).bench(add_kernel, grid, over={"n": [64]}, inputs=inputs, versus=versus).frame
    assert list(frame.status) == ["fault", "ok", "ok"]
    assert frame.reason[0] == "add_kernel failed on the GPU"
    assert frame.samples.tolist()[1:] == [30, 30]


@pytest.mark.parametrize(
    ("error", "status"),
    [(RunError("it faulted"), "fault"), (OutOfBounds("x"), "fault"), (WorkerTimeout("too long"), "timeout")],
)
def test_a_failing_point_is_a_row_with_its_reason_and_the_rest_goes_on(
    lab: kernellab.Lab, error: Exception, status: str
) -> None:
    gpu = FakeGpu(lab, lambda each, arguments: error if arguments["n"] == 128 else 1.0)
    frame = gpu.bench(add_kernel, grid, over={"n": [64, 128, 256]}, inputs=inputs).frame
    assert list(frame.status) == ["ok", status, "ok"]
    assert frame.reason[1] == str(error)


def test_inputs_that_fail_later_on_are_rows_too(lab: kernellab.Lab) -> None:
    def limited(n: int) -> dict[str, Any]:
        if n > 100:
            raise MemoryError(f"no room for {n}")
        return inputs(n)

    frame = FakeGpu(lab, times(add_kernel=1.0)).bench(add_kernel, grid, over={"n": [64, 128]}, inputs=limited).frame
    assert list(frame.status) == ["ok", "cannot_run"]
    assert frame.reason[1] == "inputs raised MemoryError: no room for 128"


def test_inputs_that_fail_at_once_are_an_error(lab: kernellab.Lab) -> None:
    with pytest.raises(UsageError, match="inputs raised ZeroDivisionError") as caught:
        FakeGpu(lab, times()).bench(add_kernel, grid, over={"n": [64]}, inputs=lambda n: n / 0)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_an_interrupt_keeps_what_was_measured(lab: kernellab.Lab) -> None:
    gpu = FakeGpu(lab, lambda each, arguments: KeyboardInterrupt() if arguments["n"] == 128 else 1.0)
    found = gpu.bench(add_kernel, grid, over={"n": [64, 128, 256]}, inputs=inputs)
    assert list(found.frame.status) == ["ok", "not_timed", "not_timed"]
    assert "interrupted" in found.frame.reason[2]
    assert any("interrupted" in note for note in found.notes)


def test_an_interrupt_before_anything_was_measured_goes_through(lab: kernellab.Lab) -> None:
    with pytest.raises(KeyboardInterrupt):
        FakeGpu(lab, times(add_kernel=KeyboardInterrupt())).bench(add_kernel, grid, over={"n": [64]}, inputs=inputs)


def test_an_interrupt_while_a_point_is_timed_keeps_its_rounds(lab: kernellab.Lab) -> None:
    asked = iter(range(100))

    def time_of(implementation: Implementation, arguments: Mapping[str, Any]) -> Time:
        if arguments["n"] == 128 and next(asked) > 12:  # one to try it out, ten of the first turn
            raise KeyboardInterrupt
        return 1.0

    gpu = FakeGpu(lab, time_of)
    found = gpu.bench(add_kernel, grid, over={"n": [64, 128, 256]}, inputs=inputs)
    assert list(found.frame.status) == ["ok", "ok", "not_timed"]
    assert found.frame.samples.tolist() == [30, 10, 0]
    assert any("interrupted" in note for note in found.notes)


def test_who_watches_is_told_of_inputs_compiles_and_points(lab: kernellab.Lab) -> None:
    told: list[BenchmarkProgress] = []

    @contextmanager
    def progress(kernel: str) -> Iterator[Watch]:
        assert kernel == "add_kernel"
        yield told.append

    gpu = FakeGpu(lab, times(add_kernel=1.0, torch=2.0), progress=progress)
    gpu.bench(add_kernel, grid, over={"n": [64, 128]}, inputs=inputs, versus={"torch": torch_add})
    stages = list(dict.fromkeys((each.stage, each.point, each.done) for each in told))
    assert stages == [
        ("inputs", "n=64", 0),
        ("inputs", "n=128", 0),
        ("compiling", "", 0),
        ("points", "n=64", 0),
        ("points", "n=64", 1),
        ("points", "n=128", 1),
        ("points", "n=128", 2),
        ("done", "", 2),
    ]
    assert {each.total for each in told} == {2}
    assert told[-1].compiled == told[-1].kernels
    assert re.fullmatch(r"n=128: add_kernel 1\.\d+ ms, torch 2\.\d+ ms", told[-1].latest)


@pytest.mark.slow
def test_a_swept_config_brings_its_own_options(lab: kernellab.Lab) -> None:
    gpu = FakeGpu(lab, times(add_kernel=1.0))
    given = {**inputs(256), "num_warps": 1}
    configs = [triton.Config({"BLOCK": 64}, num_warps=warps) for warps in (2, 8)]
    found = gpu.bench(add_kernel, grid, given=given, over={"config": configs})
    assert found.frame.num_warps.tolist() == [2, 8]


@pytest.mark.parametrize("flops", [lambda n: np.int64(3 * n), np.float32(192)])
def test_formulas_may_give_numbers_of_numpy(lab: kernellab.Lab, flops: Any) -> None:
    gpu = FakeGpu(lab, times(add_kernel=1.0))
    assert gpu.bench(add_kernel, grid, over={"n": [64]}, inputs=inputs, flops=flops).frame.flops.tolist() == [192]


@pytest.mark.slow
def test_there_are_no_speedups_where_what_they_relate_to_failed(lab: kernellab.Lab) -> None:
    failing = RunError("it faults")
    gpu = FakeGpu(lab, lambda each, arguments: failing if each.launch and each.launch.grid[0] == 8 else 1.0)
    given = {name: value for name, value in inputs(256).items() if name != "BLOCK"}
    found = gpu.bench(add_kernel, grid, given=given, over={"BLOCK": [64], "num_warps": [1, 2, 4]})
    assert found.frame.speedup.notna().all()
    configs = [triton.Config({"BLOCK": block}) for block in (32, 64, 128)]
    found = gpu.bench(add_kernel, grid, given=given, over={"config": configs})
    assert found.frame.status.tolist() == ["fault", "ok", "ok"]
    assert found.frame.speedup.isna().all()


def test_a_peer_has_a_name_of_its_own(lab: kernellab.Lab) -> None:
    gpu = FakeGpu(lab, times(add_kernel=1.0))
    with pytest.raises(UsageError, match="add_kernel is the kernel's own name"):
        gpu.bench(add_kernel, grid, over={"n": [64]}, inputs=inputs, versus={"add_kernel": torch_add})


@pytest.mark.slow
def test_configs_and_options_meet_in_one_case(lab: kernellab.Lab) -> None:
    gpu = FakeGpu(lab, lambda each, arguments: float(each.launch.grid[0]) if each.launch else 1.0)
    given = {name: value for name, value in inputs(256).items() if name != "BLOCK"}
    configs = [triton.Config({"BLOCK": block}) for block in (64, 128)]
    found = gpu.bench(add_kernel, grid, given=given, over={"config": configs, "num_warps": [2, 8]}, rounds=6)
    assert ("time", ("add_kernel",) * 4) in gpu.log
    assert found.frame.num_warps.tolist() == [2, 8, 2, 8]
    assert found.frame.BLOCK.tolist() == [64, 64, 128, 128]
    assert set(found.frame["rank"]) == {1, 2, 3, 4}


@pytest.mark.slow
def test_an_autotuned_kernel_runs_with_its_best_config_at_each_point(lab: kernellab.Lab) -> None:
    def best(launches: Any) -> Any:
        return tuned_kernel.configs[1 if launches.given["n"] > 100 else 0]

    def made(n: int) -> dict[str, Any]:
        return {"x_ptr": torch.zeros(n), "out_ptr": torch.zeros(n), "n": n}

    gpu = FakeGpu(lab, times(tuned_kernel=1.0), best=best)
    frame = gpu.bench(tuned_kernel, grid, over={"n": [64, 256]}, inputs=made).frame
    assert frame.BLOCK.tolist() == [64, 128]
    assert frame.num_warps.tolist() == [4, 8]


@pytest.mark.slow
def test_flops_come_from_the_dots_or_from_a_formula(lab: kernellab.Lab) -> None:
    case = matmul_case(torch.float16, 70, 90, 50)
    given = {**case.arguments, **{name: value for name, value in case.meta.items() if name != "BLOCK_K"}}
    gpu = FakeGpu(lab, times(matmul_kernel=1e-6))
    counted = gpu.bench(case.kernel, case.grid, given=given, over={"BLOCK_K": [16]}).frame.loc[0]
    assert counted.flops == 2 * 96 * 96 * 64
    assert counted.dot_dtype == "fp16"
    assert counted.tflops == pytest.approx(counted.flops / counted.time_ms / 1e9)
    told = gpu.bench(
        case.kernel, case.grid, given=given, over={"BLOCK_K": [16]}, flops=lambda m, n, k: 2 * m * n * k, bytes=1e3
    ).frame.loc[0]
    assert told.flops == 2 * 70 * 90 * 50
    assert told.bytes == 1000
    assert told.intensity == told.flops / 1000
    assert told.bound == "compute"
    assert told.share == pytest.approx(told.tflops / 740)


def test_rows_are_kept_in_the_history_and_the_kernel_stays_its_own_best(lab: kernellab.Lab) -> None:
    with shared_lab(target="cuda:90", store=":memory:") as own:
        gpu = FakeGpu(own, times(add_kernel=0.5, torch=0.1))
        gpu.bench(add_kernel, grid, over={"n": [64, 128]}, inputs=inputs, versus={"torch": torch_add})
        kept = own.frame("measurements")
        assert kept["implementation"].tolist() == ["torch", "add_kernel"] * 2
        assert kept["over.n"].tolist() == [64, 64, 128, 128]
        assert own.frame("kernels")["best_ms"].tolist() == pytest.approx([0.5], rel=0.05)


def test_what_a_function_takes_and_nobody_has_is_said(lab: kernellab.Lab) -> None:
    with pytest.raises(UsageError, match="flops takes rows; there are"):
        FakeGpu(lab, times(add_kernel=1.0)).bench(
            add_kernel, grid, over={"n": [64]}, inputs=inputs, flops=lambda rows: rows
        )


@pytest.mark.slow
def test_what_a_kernel_computes_is_said_to_be_unknown_with_its_reason(lab: kernellab.Lab) -> None:
    given = {"a_ptr": torch.zeros(16, 16), "n_ptr": torch.zeros(1, dtype=torch.int32), "n": 5, "BLOCK": 16}
    gpu = FakeGpu(lab, times(counting_down=1.0))
    found = gpu.bench(counting_down, (8,), given=given, over={"FROM_MEMORY": [True]})
    assert found.frame.flops.isna().all()
    assert found.frame.tflops.isna().all()
    assert any(note.startswith("The flops of counting_down are not known: ") for note in found.notes)
