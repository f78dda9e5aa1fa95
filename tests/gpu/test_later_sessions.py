"""Which first launches a later session tries again, on a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

import kernellab
from kernellab.errors import OutOfBounds, RunError
from kernellab.gpu.trial import GpuTrials
from kernellab.gpu.worker import try_launch
from kernellab.launch.runtime import Runtime
from kernellab.workers.worker import Worker

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]
N = 1000
CONFIGS = [triton.Config({"BLOCK": block}) for block in (128, 256)]


@triton.jit
def scatter(x_ptr, where_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    where = tl.load(where_ptr + offsets, mask=mask)
    tl.store(out_ptr + where, tl.load(x_ptr + offsets, mask=mask), mask=mask)


@triton.jit
def copy(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n), mask=offsets < n)


@triton.jit
def locked_sum(x_ptr, lock_ptr, out_ptr, BLOCK: tl.constexpr):
    total = tl.sum(tl.load(x_ptr + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)))
    while tl.atomic_cas(lock_ptr, 0, 1) == 1:
        pass
    tl.store(out_ptr, tl.load(out_ptr) + total)
    tl.atomic_xchg(lock_ptr, 0)


@dataclass
class WatchedWorker:
    """A worker that notes what it is asked."""

    worker: Worker
    asked: list[Any]

    def run(self, job: Any, *given: Any) -> Any:
        self.asked.append(job.handler)
        return self.worker.run(job, *given)

    def prepare(self, job: Any, *given: Any) -> None:
        self.asked.append(job.handler)
        self.worker.prepare(job, *given)

    def close(self) -> None:
        self.worker.close()

    @property
    def pid(self) -> int | None:
        return self.worker.pid


@dataclass
class WatchedTrials(GpuTrials):
    """GPU workers that note what they are asked."""

    asked: list[Any] = field(default_factory=list)

    def worker(self, device: int, *, with_torch: bool = False) -> Any:
        return WatchedWorker(super().worker(device, with_torch=with_torch), self.asked)


@dataclass
class Session:
    """A session on the store of earlier ones."""

    lab: kernellab.Lab
    trials: WatchedTrials

    @property
    def tried(self) -> int:
        return self.trials.asked.count(try_launch)

    def scatter(self, where: torch.Tensor) -> torch.Tensor:
        x, out = torch.arange(N, device="cuda", dtype=torch.float32), torch.zeros(N, device="cuda")
        self.lab.bind(scatter)[(8,)](x, where, out, N, BLOCK=128)
        return out


@contextmanager
def session(folder: Path) -> Iterator[Session]:
    with kernellab.Lab(store=folder) as lab:
        launches: Runtime = lab.launches
        assert launches.trials is not None
        launches.trials.close()
        trials = WatchedTrials(60.0, log=lab.kernels.store.trials)
        launches.trials = trials
        yield Session(lab, trials)


def order(least: int, most: int) -> torch.Tensor:
    where = torch.arange(N, device="cuda", dtype=torch.int32).clamp(least, most)
    return where[torch.randperm(N, device="cuda")]


def test_a_later_session_tries_no_launch_again_that_no_loaded_value_decides(tmp_path: Path) -> None:
    x, out = torch.rand(N, device="cuda"), torch.zeros(N, device="cuda")
    for tried in (1, 0):
        with session(tmp_path) as each:
            each.lab.bind(copy)[(8,)](x, out, N, BLOCK=128)
            assert each.tried == tried
    assert each.trials.asked == []  # not even a worker was asked for
    assert torch.equal(out, x)


def test_each_session_tries_the_new_indices_of_its_first_launch_once(tmp_path: Path) -> None:
    for _ in range(2):
        with session(tmp_path) as each:
            where = order(10, 900)
            out = each.scatter(where)
            assert out[where.long()].bool().any()
            each.scatter(order(10, 900))
            assert each.tried == 1


def test_an_index_out_of_bounds_in_a_later_session_is_an_error_and_costs_nothing(tmp_path: Path) -> None:
    with session(tmp_path) as first:
        first.scatter(order(0, N - 1))
    for bad in (N + 5, 1 << 28):
        with session(tmp_path) as later:
            where = order(0, N - 1)
            where[3] = bad
            with pytest.raises((OutOfBounds, RunError)):
                later.scatter(where)
            assert later.tried == 1
            in_order = torch.arange(N, device="cuda", dtype=torch.int32)
            assert torch.equal(later.scatter(in_order), in_order.float())


def test_a_later_session_tries_no_launch_again_whose_arguments_have_the_same_contents(tmp_path: Path) -> None:
    where = order(0, N - 1)
    for tried in (1, 0):
        with session(tmp_path) as later:
            out = later.scatter(where.clone())
            assert later.tried == tried
    assert later.trials.asked == []  # not even a worker was asked for
    assert torch.equal(out[where.long()], torch.arange(N, device="cuda").float())


def test_the_contents_of_a_lock_count_as_well(tmp_path: Path) -> None:
    x = torch.ones(1024, device="cuda")
    for value, tried in ((1, 1), (1, 0), (2, 1)):
        lock, out = torch.zeros(1, device="cuda", dtype=torch.int32), torch.zeros(1, device="cuda")
        with session(tmp_path) as later:
            later.lab.bind(locked_sum)[(8,)](value * x, lock, out, BLOCK=128)
            assert later.tried == tried
        assert out.item() == 1024 * value


def test_memory_that_is_only_written_does_not_count(tmp_path: Path) -> None:
    where, x = order(0, N - 1), torch.rand(N, device="cuda")
    for rubbish, tried in ((0, 1), (7, 0)):
        with session(tmp_path) as later:
            out = torch.full((N,), float(rubbish), device="cuda")
            later.lab.bind(scatter)[(8,)](x, where, out, N, BLOCK=128)
            assert later.tried == tried


def test_the_bench_is_the_trial_of_a_winner(tmp_path: Path) -> None:
    x, out, where = torch.rand(N, device="cuda"), torch.zeros(N, device="cuda"), order(0, N - 1)
    grid = lambda meta: (triton.cdiv(N, meta["BLOCK"]),)  # noqa: E731
    with session(tmp_path) as first:
        tuning = first.lab.tune(scatter, grid, x, where, out, N, configs=CONFIGS)
        assert first.tried == 0
        assert torch.equal(out[where.long()], x)
        first.lab.bind(scatter)[grid](x, where, out, N, **tuning.best.kwargs)
        assert first.tried == 0


def test_what_the_bench_launched_is_tried_on_another_grid(tmp_path: Path) -> None:
    x, out, where = torch.rand(N, device="cuda"), torch.zeros(N, device="cuda"), order(0, N - 1)
    with session(tmp_path) as first:
        tuning = first.lab.tune(scatter, (8,), x, where, out, N, configs=CONFIGS)
        other = next(config for config in CONFIGS if config.kwargs != tuning.best.kwargs)
        first.lab.bind(scatter)[(7,)](x, where, out, N, **other.kwargs)
        assert first.tried == 1


def test_what_the_bench_launched_on_another_memory_is_tried(tmp_path: Path) -> None:
    x, out, where = torch.rand(N, device="cuda"), torch.zeros(N, device="cuda"), order(0, N - 1)
    with session(tmp_path) as first:
        tuning = first.lab.tune(scatter, (8,), x, where, out, N, configs=CONFIGS)
        other = next(config for config in CONFIGS if config.kwargs != tuning.best.kwargs)
        first.lab.bind(scatter)[(8,)](x, where.clone(), out, N, **other.kwargs)
        assert first.tried == 1
