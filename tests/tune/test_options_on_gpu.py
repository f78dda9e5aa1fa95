"""What tuning on a GPU is asked for beside configs: references, hooks, graphs, budgets, devices, executors."""

from __future__ import annotations

import multiprocessing
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

import kernellab
from kernellab.errors import CannotRun, UsageError
from kernellab.notebook.cell import CellOptions, run_cell
from kernellab.tune.result import Tuning

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]
N = 1 << 20
BLOCKS = [triton.Config({"BLOCK": block}, num_warps=warps) for block in (128, 1024) for warps in (2, 8)]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kernellab.Lab]:
    with kernellab.Lab(store=tmp_path_factory.mktemp("store")) as lab:
        yield lab


def grid(meta: dict[str, int]) -> tuple[int, ...]:
    return (triton.cdiv(N, meta["BLOCK"]),)


@triton.jit
def moody(x_ptr, out_ptr, n, BLOCK: tl.constexpr, MOOD: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    value = tl.load(x_ptr + offsets, mask=mask)
    if MOOD == 1:
        value = value * 2
    if MOOD == 2:
        mask = mask & (offsets % 4 != 3)
    if MOOD == 3:
        mask = offsets < n - 1
    tl.store(out_ptr + offsets, value, mask=mask)


@triton.jit
def sum_into(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out_ptr, tl.sum(tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)))


@triton.jit
def copy(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n), mask=offsets < n)


def moods(*wanted: int) -> list[triton.Config]:
    return [triton.Config({"BLOCK": 512, "MOOD": mood}) for mood in wanted]


def autotuned(kernel: Any, configs: list[triton.Config], **given: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return triton.autotune(configs, key=["n"], **given)(kernel)


def same(x_ptr: torch.Tensor) -> torch.Tensor:
    return x_ptr


def test_configs_that_differ_from_a_reference_are_wrong_with_how_much(lab: kernellab.Lab) -> None:
    x, out = torch.rand(N, device="cuda") + 1, torch.full((N,), 0.5, device="cuda")
    configs = [*moods(1, 2, 3, 0), triton.Config({"BLOCK": 256, "MOOD": 1})]
    tuning = lab.tune(moody, grid, x, out, N, configs=configs, check=same)
    assert list(tuning.frame.status) == ["wrong", "wrong", "wrong", "ok", "wrong"]
    assert f"out_ptr differs from the reference in {N:,} of {N:,} elements, max error 2" in tuning.frame.reason[0]
    assert f"in {N // 4:,} of {N:,} elements, {N // 4:,} of them never written" in tuning.frame.reason[1]
    assert "in 1 of" in tuning.frame.reason[2]
    assert tuning.frame.time_ms.notna().sum() == 1
    assert tuning.best is configs[3]
    assert torch.equal(out, x)


def test_an_output_filled_before_may_be_written_in_part(lab: kernellab.Lab) -> None:
    x, out = torch.rand(N, device="cuda"), torch.zeros(N, device="cuda")
    check = "torch.where(torch.arange(n, device=x_ptr.device) % 4 != 3, x_ptr, 0)"
    tuning = lab.tune(moody, grid, x, out, N, configs=moods(2, 0), check=check)
    assert list(tuning.frame.status) == ["ok", "wrong"]


def test_where_no_config_agrees_nothing_is_launched(lab: kernellab.Lab) -> None:
    x, out = torch.rand(N, device="cuda"), torch.zeros(N, device="cuda")
    tuning = lab.tune(moody, grid, x, out, N, configs=moods(1, 3), check=same)
    assert tuning.winner is None
    assert not out.any()
    with pytest.raises(CannotRun, match="agrees with the reference"):
        _ = tuning.best


def test_a_reference_for_other_outputs_is_refused(lab: kernellab.Lab) -> None:
    x, out = torch.rand(N, device="cuda"), torch.zeros(N, device="cuda")
    with pytest.raises(UsageError, match="gives 2 values and the kernel writes out_ptr"):
        lab.tune(moody, grid, x, out, N, configs=moods(0), check=lambda x_ptr: (x_ptr, x_ptr))


def test_hooks_go_to_the_worker_and_are_called_around_each_launch(lab: kernellab.Lab, tmp_path: Path) -> None:
    pytest.importorskip("cloudpickle")
    x, out, log = torch.ones(N, device="cuda"), torch.full((1,), 0.5, device="cuda"), str(tmp_path / "log")

    def after(named: dict[str, Any], exception: Exception | None) -> None:
        with open(log, "a", encoding="utf-8") as file:
            file.write(f"{float(named['out_ptr'])} {exception}\n")

    configs = [triton.Config({"BLOCK": b}, pre_hook=lambda named: named["out_ptr"].zero_()) for b in (256, 1024)]
    tuning = lab.tune(autotuned(sum_into, configs, post_hook=after), grid, x, out, N)
    assert list(tuning.frame.status) == ["ok", "ok"]
    assert any("hooks of the configs were called in the GPU worker" in note for note in tuning.notes)
    assert set(Path(log).read_text().splitlines()) == {f"{float(N)} None"}
    assert out.item() == N


def test_hooks_that_cannot_travel_are_called_in_this_process(lab: kernellab.Lab) -> None:
    x, out, lock = torch.ones(N, device="cuda"), torch.zeros(1, device="cuda"), threading.Lock()
    called: list[int] = []

    def before(named: dict[str, Any]) -> None:
        with lock:
            called.append(1)
        named["out_ptr"].zero_()

    tuning = lab.tune(sum_into, grid, x, out, N, configs=[triton.Config({"BLOCK": 512}, pre_hook=before)])
    assert any("own process" in note for note in tuning.notes)
    assert len(called) > 4
    assert out.item() == N


@pytest.mark.parametrize("hook", [None, lambda named: named["out_ptr"].zero_()])
def test_launches_are_timed_as_graphs_where_that_is_asked_for(lab: kernellab.Lab, hook: Any) -> None:
    x, out = torch.rand(N, device="cuda"), torch.zeros(N, device="cuda")
    configs = [triton.Config({"BLOCK": block}, pre_hook=hook) for block in (256, 1024)]
    kernel = autotuned(copy, configs, use_cuda_graph=True)
    tuning = lab.tune(kernel, grid, x, out, N)
    plain = lab.tune(copy, grid, x, out, N, configs=configs)
    assert list(tuning.frame.status) == ["ok", "ok"]
    assert any("replaying CUDA graphs" in note for note in tuning.notes)
    assert not any("without a CUDA graph" in note for note in tuning.notes)
    assert tuning.frame.time_ms.min() < 2 * plain.frame.time_ms.min()
    assert torch.equal(out, x)


def test_budgets_of_an_autotuner_set_how_many_launches_are_timed(lab: kernellab.Lab) -> None:
    x, out = torch.rand(N, device="cuda"), torch.zeros(N, device="cuda")
    slow = triton.Config({"BLOCK": 16}, num_warps=1)
    tuning = lab.tune(autotuned(copy, [*BLOCKS[2:], slow], warmup=1, rep=5), grid, x, out, N)
    assert tuning.frame.samples[0] > 100


def test_the_launch_of_a_tuning_is_kept(lab: kernellab.Lab) -> None:
    x, out = torch.rand(N, device="cuda"), torch.zeros(N, device="cuda")
    kernel = autotuned(copy, BLOCKS)
    lab.tune(kernel, grid, x, out, N)
    version = lab.kernels.version("copy")
    kept = lab.kernels.store.history.launches(version.id)[-1]
    assert kept.count == 1
    assert kept.launch.where == "gpu"
    assert {argument.name for argument in kept.launch.arguments} >= {"x_ptr", "out_ptr", "n"}
    assert lab.compare("copy", same).equal


def test_a_cell_checks_the_configs_of_its_kernel(lab: kernellab.Lab) -> None:
    cell = """
@triton.autotune([triton.Config({"BLOCK": 512, "MOOD": mood}) for mood in (0, 1)], key=["n"])
@triton.jit
def moody_cell(x_ptr, out_ptr, n, BLOCK: tl.constexpr, MOOD: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x_ptr + offsets, mask=offsets < n)
    if MOOD == 1:
        value = value * 2
    tl.store(out_ptr + offsets, value, mask=offsets < n)

moody_cell[grid](x, out, n)
"""
    names = {"grid": grid, "x": torch.rand(N, device="cuda"), "out": torch.zeros(N, device="cuda"), "n": N}
    shown: list[Any] = []
    run_cell(lab, cell, names, "In[test]", CellOptions(tune=True, check="x"), shown.append)
    (tuning,) = (each for each in shown if isinstance(each, Tuning))
    assert list(tuning.frame.status) == ["ok", "wrong"]


def test_an_executor_compiles_what_the_gpu_times(lab: kernellab.Lab) -> None:
    x, out = torch.rand(N, device="cuda"), torch.zeros(N, device="cuda")
    configs = [triton.Config({"BLOCK": block}, num_warps=4) for block in (192 // 3, 512)]
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as executor:
        tuning = lab.tune(copy, grid, x, out, N, configs=configs, executor=executor)
    assert list(tuning.frame.status) == ["ok", "ok"]
    assert torch.equal(out, x)


def test_a_device_that_does_not_exist_is_refused(lab: kernellab.Lab) -> None:
    x, out = torch.rand(N, device="cuda"), torch.zeros(N, device="cuda")
    with pytest.raises(UsageError, match="devices has 99, and there is GPU 0"):
        lab.tune(copy, grid, x, out, N, configs=BLOCKS, devices=[0, 99])


def test_one_device_is_like_none(lab: kernellab.Lab) -> None:
    x, out = torch.rand(N, device="cuda"), torch.zeros(N, device="cuda")
    tuning = lab.tune(copy, grid, x, out, N, configs=BLOCKS, devices=[0], fresh=True)
    assert set(tuning.frame.attrs["device_index"].values()) == {0}
    assert torch.equal(out, x)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_of_two_devices_one_measures_short_configs_alone(lab: kernellab.Lab) -> None:
    x, out = torch.rand(N, device="cuda") + 1, torch.full((N,), 0.5, device="cuda")
    blocks = (64, 128, 256, 512, 1024, 2048)
    right = [triton.Config({"BLOCK": b, "MOOD": 0}, num_warps=w) for b in blocks for w in (1, 2, 4, 8)]
    configs = [*right, *moods(1)]
    tuning = lab.tune(moody, grid, x, out, N, configs=configs, devices=[0, 1], check=same)
    assert list(tuning.frame.status) == ["ok"] * len(right) + ["wrong"]
    devices = tuning.frame.attrs["device_index"]
    assert set(devices.values()) == {0}
    assert any("device 0 measured alone" in note for note in tuning.notes)
    assert torch.equal(out, x)


@triton.jit
def slow(x_ptr, out_ptr, n, rounds, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    for _ in range(rounds):
        x = x * 1.0000001 + 1e-9
    tl.store(out_ptr + offsets, x, mask=offsets < n)


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_two_devices_share_configs_that_take_long(lab: kernellab.Lab) -> None:
    x, out = torch.rand(N, device="cuda") + 1, torch.zeros(N, device="cuda")
    configs = [triton.Config({"BLOCK": b}, num_warps=w) for b in (64, 128, 256, 512, 1024, 2048) for w in (1, 2, 4, 8)]
    tuning = lab.tune(slow, grid, x, out, N, 20_000_000, configs=configs, devices=[0, 1])
    devices = tuning.frame.attrs["device_index"]
    assert set(devices.values()) == {0, 1} or any("was not used" in note for note in tuning.notes)
    assert devices[tuning.winner] == 0
    assert set(tuning.frame.status) == {"ok"}
    assert out.min() > 1


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_the_second_device_alone_measures_copies_of_the_arguments(lab: kernellab.Lab) -> None:
    x, out = torch.ones(N, device="cuda:0"), torch.full((1,), 0.5, device="cuda:0")
    tuning = lab.tune(sum_into, grid, x, out, N, configs=BLOCKS, devices=[1], fresh=True)
    assert set(tuning.frame.attrs["device_index"].values()) == {1}
    assert out.item() == N + 0.5


@triton.jit
def sum_of_row(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = 0.0
    for start in range(0, n, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        total += tl.sum(tl.load(x_ptr + row * n + columns, mask=columns < n, other=0.0), 0)
    tl.store(out_ptr + row, total)


def test_configs_with_equal_bits_on_the_gpu_share_a_class_and_the_winner_is_of_the_largest(lab: kernellab.Lab) -> None:
    x, out = torch.randn(256, 5000, device="cuda"), torch.zeros(256, device="cuda")
    before = out.clone()
    configs = [triton.Config({"BLOCK": block}, num_warps=4, num_stages=s) for block in (128, 1024) for s in (1, 2)]
    tuning = lab.tune(sum_of_row, (256,), x, out, 5000, configs=configs, bitwise=True, fresh=True)
    results: dict[bytes, set[str | None]] = {}
    for row, config in zip(tuning.rows, tuning.configs, strict=True):
        left = before.clone()
        sum_of_row[(256,)](x, left, 5000, **config.all_kwargs())
        results.setdefault(left.cpu().numpy().tobytes(), set()).add(row.bits)
    assert all(len(classes) == 1 and None not in classes for classes in results.values())
    assert len({next(iter(classes)) for classes in results.values()}) == len(results)
    counts = [row.bits for row in tuning.rows]
    assert tuning.winner is not None
    assert counts.count(tuning.rows[tuning.winner].bits) == max(map(counts.count, counts))
    assert any("on the GPU" in note for note in tuning.notes)
