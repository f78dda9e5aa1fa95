"""Whole tunings in processes of an executor that count as owners of a GPU: see `tests.tune.cluster.cpu_device`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
import torch
import triton
import triton.language as tl

import kernellab
from kernellab.errors import LaunchError, UsageError
from kernellab.timing.launches import Launches
from kernellab.tune.cluster_tuning import pack_arguments, unpack_arguments
from kernellab.tune.options import Options
from kernellab.tune.result import Tuning
from kernellab.tune.verbs import environment_of, remote_tuning, tune_and_launch
from tests.labs import shared_lab
from tests.tune.cluster.cpu_device import MODEL, cpu_environment

X, OUT = torch.arange(300, dtype=torch.float32), torch.zeros(300)


@pytest.fixture
def lab() -> Iterator[kernellab.Lab]:
    with shared_lab("cuda:90", ":memory:") as lab:
        yield lab


@triton.jit
def twice(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n) * 2, mask=offsets < n)


def grid(meta: dict[str, Any]) -> tuple[int, ...]:
    return (triton.cdiv(300, meta["BLOCK"]),)


def launches_in(lab: kernellab.Lab, *args: Any) -> Launches:
    return Launches(lab.bind(twice), grid, args, {}, lab.target)


def measured(
    lab: kernellab.Lab, executor: Any, *blocks: int, opened: Callable[[], Any] = cpu_environment, **more: Any
) -> Tuning:
    """Tune as `Lab.tune` does, but for who counts as the owner of a GPU."""
    options = Options([triton.Config({"BLOCK": block}) for block in blocks], executor=executor, **more)
    return tune_and_launch(lab.session(), launches_in(lab, X, OUT, 300), options, opened)


def _no_bench(launches: Launches, timeout_s: float, device: int | None) -> Any:
    raise AssertionError("nothing is to be timed")


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as executor:
        yield executor


@pytest.mark.slow
def test_rows_are_measured_elsewhere_and_enter_the_store_here(lab: kernellab.Lab, threads: ThreadPoolExecutor) -> None:
    tuning = measured(lab, threads, 64, 128)
    assert list(tuning.frame.status) == ["ok", "ok"]
    assert tuning.frame.time_ms.min() > 0
    assert tuning.best.kwargs in ({"BLOCK": 64}, {"BLOCK": 128})
    assert tuning.provenance["device"] == MODEL
    version = lab.kernels.version("twice")
    rows = lab.kernels.store.history.measurements(version.id)
    assert {row.measurement.device for row in rows} == {MODEL}
    assert {row.measurement.key for row in rows} == {tuning.provenance["key"]}
    assert not OUT.any()


@pytest.mark.slow
def test_what_is_known_here_is_not_measured_again_there(lab: kernellab.Lab, threads: ThreadPoolExecutor) -> None:
    first = measured(lab, threads, 64, 128)
    count = len(lab.kernels.store.history.measurements())
    again = measured(lab, threads, 64, 128)
    assert again.from_cache
    assert list(again.frame.time_ms) == list(first.frame.time_ms)
    assert len(lab.kernels.store.history.measurements()) == count
    longer = measured(lab, threads, 64, 128, 256)
    assert not longer.from_cache
    assert list(longer.frame.status) == ["ok"] * 3


def test_an_error_of_the_tuning_is_raised_here(lab: kernellab.Lab, threads: ThreadPoolExecutor) -> None:
    with pytest.raises(UsageError, match=r"outputs names nothing_ptr, and twice writes out_ptr\."):
        measured(lab, threads, 64, outputs=("nothing_ptr",))


def test_a_lab_with_a_gpu_of_its_own_asks_no_process_for_one(lab: kernellab.Lab, threads: ThreadPoolExecutor) -> None:
    environment = replace(environment_of(lab.session()), make_bench=_no_bench)
    options = Options(executor=threads)
    assert remote_tuning(environment, launches_in(lab, X, OUT, 300), options, cpu_environment) is None


@pytest.mark.slow
def test_an_executor_leaves_the_compile_pool_alone(lab: kernellab.Lab, threads: ThreadPoolExecutor) -> None:
    class Untouched:
        def start(self) -> None:
            raise AssertionError("the pool of the lab was started")

    pool, lab.compiler.pool = lab.compiler.pool, Untouched()  # type: ignore[assignment]
    try:
        lab.launches.start_workers(compiling=False)
        with pytest.raises(AssertionError, match="was started"):
            lab.launches.start_workers()
        tuning = lab.tune(twice, grid, X, OUT, 300, configs=[triton.Config({"BLOCK": 512})], executor=threads)
    finally:
        lab.compiler.pool = pool
    assert list(tuning.frame.status) == ["not_timed"]


def test_views_of_one_memory_travel_as_such() -> None:
    whole = torch.zeros(8)
    data = pack_arguments((whole[:4], whole[4:]), {"n": 4})
    (left, right), meta = unpack_arguments(data, environment_device())
    assert meta == {"n": 4}
    assert left.untyped_storage().data_ptr() == right.untyped_storage().data_ptr()


def environment_device() -> Any:
    return cpu_environment().device


def test_arguments_that_do_not_fit_are_refused_here(lab: kernellab.Lab, threads: ThreadPoolExecutor) -> None:
    options = Options([triton.Config({"BLOCK": 64})], executor=threads)
    with pytest.raises(LaunchError):
        tune_and_launch(lab.session(), launches_in(lab, X, OUT), options, cpu_environment)
